"""The options of a connection."""

from typing import Literal

import msgspec

Mode = Literal["component", "client"]


class TLS(msgspec.Struct, frozen=True, kw_only=True):
    """TLS, and how the server is authenticated.

    Attributes:
        direct: TLS from the first byte, as always for a component, which has no STARTTLS (XEP-0368
            for clients). Otherwise the stream is opened first, and secured with STARTTLS.
        ca_file: PEM file of the authorities to trust instead of the system's.
        server_name: the name that the certificate must contain, if it is not the host's.
        verify: verify the certificate; without it anybody on the path can read the proof of the
            secret and all traffic.
    """

    direct: bool = True
    ca_file: str | None = None
    server_name: str | None = None
    verify: bool = True


class ConnectionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The server, the address to connect as, and time-outs. Times are in seconds.

    Attributes:
        host: name or address of the server.
        port: TCP port of its listener for components, or for clients.
        address: the component's domain, as the server knows it, or the account's bare address.
        secret: the component's secret, or the account's password; it is left out of every repr and
            log.
        mode: how the agent is attached.
        resource: the resource that a client asks for; None lets the server choose.
        srv: look up the servers of a client's domain (RFC 6120 §3.2, XEP-0368); host and port are
            used if it names none.
        tls: how to use TLS; None for plain TCP, as on loopback.
        connect_timeout_s: for resolving, TCP and TLS together, over all addresses.
        handshake_timeout_s: from the stream header sent to the handshake accepted.
        reconnect_min_s: shortest pause before connecting again.
        reconnect_max_s: longest pause; at most 5 while another process has the domain.
        settled_s: after a stream of this duration the pauses start from the shortest again.
        keepalive_s: a space is sent after this time without output, to keep NAT mappings open.
        read_timeout_s: the server is probed after this time without input.
        probe_timeout_s: the time within which something must arrive after a probe.
        read_bytes: the maximum number of bytes of one read.
        max_stanza_bytes: a larger stanza is skipped (`StanzaSkipped`).
        max_depth: a stanza with deeper nested elements is skipped.
        max_elements: a stanza with more elements is skipped.
    """

    host: str
    port: int
    address: str
    secret: str
    mode: Mode = "component"
    resource: str | None = None
    srv: bool = False
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
        """Return the options without the secret."""
        return f"ConnectionOptions({self.address} at {self.host}:{self.port})"

    @property
    def listener(self) -> str:
        """A name for the server's listener, for people."""
        return "component (XEP-0114) listener" if self.mode == "component" else "client listener"
