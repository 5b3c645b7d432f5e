"""What a connection needs to be told."""

import msgspec


class TLS(msgspec.Struct, frozen=True, kw_only=True):
    """TLS from the first byte; XEP-0114 has no STARTTLS.

    Attributes:
        ca_file: PEM file of the authorities to trust instead of the system's.
        server_name: the name the certificate must hold, when it is not the host's.
        verify: check the certificate; without it anybody on the way can read the secret's proof
            and all traffic.
    """

    ca_file: str | None = None
    server_name: str | None = None
    verify: bool = True


class ConnectionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where to connect, as whom, and how patiently. Times are in seconds.

    Attributes:
        host: name or address of the server's component listener.
        port: its TCP port.
        domain: the component's domain, as the server knows it.
        secret: the component's secret; it is left out of every repr and log.
        tls: use TLS from the first byte; None for plain TCP, as on loopback.
        connect_timeout_s: for resolving, TCP and TLS together, over all addresses.
        handshake_timeout_s: from the stream header sent to the handshake accepted.
        reconnect_min_s: shortest pause before connecting again.
        reconnect_max_s: longest pause; it is at most 5 while another process has the domain.
        settled_s: a stream that lived this long starts the pauses from the shortest again.
        keepalive_s: a space is sent after so long without output, to keep middle boxes open.
        read_timeout_s: after so long without input the server is probed.
        probe_timeout_s: how long after a probe anything at all may take to arrive.
        read_bytes: most bytes taken from the kernel at once.
        max_stanza_bytes: a stanza of more bytes is skipped (`StanzaSkipped`).
        max_depth: so is one of more elements inside each other.
        max_elements: and one of more elements in all.
    """

    host: str
    port: int
    domain: str
    secret: str
    tls: TLS | None = None
    connect_timeout_s: float = 10.0
    handshake_timeout_s: float = 10.0
    reconnect_min_s: float = 0.5
    reconnect_max_s: float = 60.0
    settled_s: float = 30.0
    keepalive_s: float = 60.0
    read_timeout_s: float = 120.0
    probe_timeout_s: float = 30.0
    read_bytes: int = 65536
    max_stanza_bytes: int = 262_144
    max_depth: int = 64
    max_elements: int = 4096

    def __repr__(self) -> str:
        """Without the secret."""
        return f"ConnectionOptions({self.domain} at {self.host}:{self.port})"
