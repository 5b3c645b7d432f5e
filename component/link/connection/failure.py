"""Why there is no connection: one code for programs, one sentence for the admin."""

import errno
import os
import socket
import ssl
from typing import Literal

from component.config.server import Server
from xep.stream.errors import StreamError

FailureCode = Literal[
    "bad-xml",  # the input is not an XML stream, or violates XEP-0114
    "closed",  # the server closed the stream or the connection
    "conflict",  # another process is connected as this component
    "handshake-timeout",  # connected, but the handshake was never answered
    "host-unknown",  # the server has no such component
    "lost",  # the connection broke
    "login",  # the server offers no usable login mechanism, or binds no resource
    "not-authorized",  # wrong secret (or, on ejabberd, wrong domain), or wrong password
    "not-reading",  # the server does not read what is sent
    "refused",  # nothing listens at the port
    "silent",  # the server sends nothing, not even stanzas that it should loop back
    "stream-error",  # any other <stream:error/>
    "system-shutdown",  # the server is going down
    "timeout",  # no TCP or TLS connection in time
    "tls",  # the certificate was not accepted, or there is no TLS at all
    "unreachable",  # no route, network down, …
    "unresolved",  # the host's name has no address
]


class ConnectionFailed(Exception):  # noqa: N818 - what it says, not what it is
    """There is no connection, or it ended.

    Its text is one sentence that says what is wrong and what to do about it. The text does not
    change while the reason is the same, and never contains the secret.

    Attributes:
        code: the reason, for programs.
    """

    def __init__(self, code: FailureCode, sentence: str) -> None:
        super().__init__(sentence)
        self.code: FailureCode = code


def unresolved(server: Server, error: Exception) -> ConnectionFailed:
    """Return the failure of a name that does not resolve."""
    why = error.strerror if isinstance(error, socket.gaierror) else str(error)
    return ConnectionFailed(
        "unresolved",
        f"The name {server.host!r} does not resolve ({why}): correct the server's host, or add "
        "the name to DNS or /etc/hosts.",
    )


def not_offered(domain: str) -> ConnectionFailed:
    """The domain's SRV records say that it has no server for clients."""
    return ConnectionFailed(
        "unresolved",
        f"{domain} says in DNS that it has no server for clients: correct server.jid, or set"
        " server.host and server.port.",
    )


def connect_failed(server: Server, error: OSError) -> ConnectionFailed:
    """Return the failure if no address accepted a TCP connection; ``error`` is that of the last
    one.
    """
    if error.errno == errno.ECONNREFUSED:
        return ConnectionFailed(
            "refused",
            f"{_peer(server)} refuses connections: start the XMPP server, and check that its "
            f"{server.listener} is enabled on that address and port.",
        )
    if error.errno == errno.ETIMEDOUT:
        return connect_timed_out(server)
    return ConnectionFailed(
        "unreachable",
        f"{_peer(server)} cannot be reached ({_why(error)}): check the server's host and the "
        "network between.",
    )


def connect_timed_out(server: Server) -> ConnectionFailed:
    """Return the failure if nothing answered in time."""
    return ConnectionFailed(
        "timeout",
        f"{_peer(server)} did not accept a connection within {server.connect_timeout_s:g} s: check"
        " the server's host and port, and that no firewall drops the packets.",
    )


def tls_failed(server: Server, error: OSError) -> ConnectionFailed:
    """Return the failure of TLS, including a certificate that is not accepted."""
    if isinstance(error, ssl.SSLCertVerificationError):
        sentence = (
            f"The certificate of {_peer(server)} is not accepted ({error.verify_message}): "
            "set the CA file to the authority that signed it, and check that it was issued for "
            f"{server.certificate_name!r} and has not expired."
        )
    elif isinstance(error, ssl.SSLError) and error.reason in _NOT_TLS:
        sentence = (
            f"{_peer(server)} does not speak TLS: turn TLS off for this connection, or give the "
            f"port of the server's {server.listener} with TLS."
        )
    elif isinstance(error, FileNotFoundError | PermissionError):
        sentence = f"The CA file {server.tls_ca} cannot be read ({_why(error)})."
    else:
        sentence = (
            f"TLS with {_peer(server)} failed ({_why(error)}): check that the port is the "
            f"server's {server.listener} with TLS, of version 1.2 or later."
        )
    return ConnectionFailed("tls", sentence)


def lost(server: Server, error: OSError) -> ConnectionFailed:
    """Return the failure of a connection that broke while it was in use."""
    return ConnectionFailed(
        "lost",
        f"The connection to {_peer(server)} broke ({_why(error)}): if that happens often, check "
        "the network between and the server's log.",
    )


def closed(server: Server, *, established: bool) -> ConnectionFailed:
    """Return the failure if the server closed the connection without a reason."""
    if established:
        sentence = f"The server at {_peer(server)} closed the connection; its log may say why."
    else:
        sentence = (
            f"{_peer(server)} closed the connection before the handshake was done: check that this"
            f" is the port of the {server.listener}, {_with_tls(server)} TLS."
        )
    return ConnectionFailed("closed", sentence)


def handshake_timed_out(server: Server) -> ConnectionFailed:
    """Return the failure if the server accepts the connection but does not answer."""
    return ConnectionFailed(
        "handshake-timeout",
        f"{_peer(server)} did not finish the handshake within {server.connect_timeout_s:g} s: "
        f"check that this is the port of the {server.listener}, "
        f"{_with_tls(server)} TLS, and that the server is not overloaded.",
    )


def silent(server: Server) -> ConnectionFailed:
    """Return the failure of a half-open connection: nothing arrives, not even our own probe."""
    if server.component_number > 1:
        return ConnectionFailed(
            "silent",
            f"Nothing came from {_peer(server)}, nor within {server.probe_timeout_s:g} s after"
            f" probes: it balances no stanzas to this connection. If that goes on, compare"
            " component_number in [server] with that of domain_balancing in ejabberd.yml, and look"
            f" for connections of other programs for {server.address}.",
        )
    return ConnectionFailed(
        "silent",
        f"Nothing came from {_peer(server)} for {server.read_timeout_s:g} s, nor within "
        f"{server.probe_timeout_s:g} s after a probe: the connection is closed and opened again.",
    )


def not_reading(server: Server, bound_bytes: int) -> ConnectionFailed:
    """Return the failure if too much output is waiting."""
    return ConnectionFailed(
        "not-reading",
        f"The server at {_peer(server)} is not reading: more than {bound_bytes} bytes are"
        " waiting to be sent. The connection is reset; check the server's load.",
    )


def no_loop_back(server: Server) -> ConnectionFailed:
    """Return the failure if the handshake succeeded, but an IQ to oneself is not returned."""
    return ConnectionFailed(
        "silent",
        f"The server at {_peer(server)} accepted {server.address} but did not return an IQ that was"
        f" sent to this address within {server.probe_timeout_s:g} s: it does not route this"
        f" {server.mode}'s stanzas; check its privilege and firewall modules.",
    )


def refused_by_server(server: Server, error: StreamError) -> ConnectionFailed:
    """Return the failure for a ``<stream:error/>``."""
    domain = server.address
    if server.mode == "client" and error.condition in _OF_CLIENTS:
        return ConnectionFailed(*_of_client(server, error.condition))
    said = f" and says {error.text!r}" if error.text else ""
    match error.condition:
        case "host-unknown":
            code: FailureCode = "host-unknown"
            sentence = (
                f"The server at {_peer(server)} has no component {domain}: add it to the "
                "server's configuration, or correct the component's domain."
            )
        case "not-authorized":
            code = "not-authorized"
            sentence = (
                f"The server at {_peer(server)} refused the handshake for {domain}: the "
                "component's secret differs from the server's, or, as ejabberd answers both "
                f"alike, {domain} is not a host of the listener on port {server.port}."
            )
        case "conflict":
            code = "conflict"
            sentence = (
                f"Another process is connected to {_peer(server)} as {domain}: this one"
                " waits and takes over when the other disconnects. If that is not intended, stop"
                " the other process, or use a different domain for this one."
            )
        case "system-shutdown":
            code = "system-shutdown"
            sentence = (
                f"The server at {_peer(server)} is shutting down{said}; the agent"
                " reconnects when it is back."
            )
        case condition:
            code = "stream-error"
            sentence = f"The server at {_peer(server)} ended the stream with {condition}{said}."
    return ConnectionFailed(code, sentence)


_OF_CLIENTS = ("conflict", "host-unknown", "not-authorized")


def _of_client(server: Server, condition: str) -> tuple[FailureCode, str]:
    if condition == "conflict":
        return "conflict", (
            f"Another client has logged in as {server.address} with the same resource"
            f"{f' ({server.resource})' if server.resource else ''}, and this one was "
            "disconnected: stop the other one, or give each a resource of its own."
        )
    if condition == "host-unknown":
        return "host-unknown", (
            f"The server at {_peer(server)} does not serve the domain of {server.address}: "
            "correct the account's address, or the server's host."
        )
    return "not-authorized", (
        f"The server at {_peer(server)} ended the stream of {server.address} before the login "
        "was done; its log may say why."
    )


def bad_xml(server: Server, error: StreamError, *, established: bool) -> ConnectionFailed:
    """What the server sent is not a stream, or not any more."""
    if established:
        sentence = (
            f"The server at {_peer(server)} sent invalid XML ({error}): the stream is"
            " opened again; if this happens repeatedly, report it to the developers of the server."
        )
    else:
        sentence = (
            f"{_peer(server)} did not answer with an XMPP {server.mode} stream ({error}): check"
            f" that this is the port of the {server.listener}, {_with_tls(server)} TLS."
        )
    return ConnectionFailed("bad-xml", sentence)


_NOT_TLS = (
    "WRONG_VERSION_NUMBER",
    "PACKET_LENGTH_TOO_LONG",
    "HTTP_REQUEST",
    "RECORD_LAYER_FAILURE",
)


def _peer(server: Server) -> str:
    host = f"[{server.host}]" if ":" in server.host else server.host
    return f"{host}:{server.port}"


def _with_tls(server: Server) -> str:
    if server.tls:
        return "with"
    return "without direct" if server.uses_tls else "without"


def _why(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "it ended early").replace("_", " ").lower()
    return os.strerror(error.errno) if error.errno else str(error) or type(error).__name__
