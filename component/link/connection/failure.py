"""Why there is no connection: one code for programs, one sentence for the admin."""

import errno
import os
import socket
import ssl
from typing import Literal

from component.link.connection.options import ConnectionOptions
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


def unresolved(options: ConnectionOptions, error: Exception) -> ConnectionFailed:
    """Return the failure of a name that does not resolve."""
    why = error.strerror if isinstance(error, socket.gaierror) else str(error)
    return ConnectionFailed(
        "unresolved",
        f"The name {options.host!r} does not resolve ({why}): correct the server's host, or add "
        "the name to DNS or /etc/hosts.",
    )


def not_offered(domain: str) -> ConnectionFailed:
    """The domain's SRV records say that it has no server for clients."""
    return ConnectionFailed(
        "unresolved",
        f"{domain} says in DNS that it has no server for clients: correct server.jid, or set"
        " server.host and server.port.",
    )


def connect_failed(options: ConnectionOptions, error: OSError) -> ConnectionFailed:
    """Return the failure if no address accepted a TCP connection; ``error`` is that of the last
    one.
    """
    if error.errno == errno.ECONNREFUSED:
        return ConnectionFailed(
            "refused",
            f"{_peer(options)} refuses connections: start the XMPP server, and check that its "
            f"{options.listener} is enabled on that address and port.",
        )
    if error.errno == errno.ETIMEDOUT:
        return connect_timed_out(options)
    return ConnectionFailed(
        "unreachable",
        f"{_peer(options)} cannot be reached ({_why(error)}): check the server's host and the "
        "network between.",
    )


def connect_timed_out(options: ConnectionOptions) -> ConnectionFailed:
    """Return the failure if nothing answered in time."""
    return ConnectionFailed(
        "timeout",
        f"{_peer(options)} did not accept a connection within"
        f" {options.connect_timeout_s:g} s: check the server's host and port, and that no firewall"
        " drops the packets.",
    )


def tls_failed(options: ConnectionOptions, error: OSError) -> ConnectionFailed:
    """Return the failure of TLS, including a certificate that is not accepted."""
    tls = options.tls
    name = (tls and tls.server_name) or (
        options.host if options.mode == "component" else options.address.partition("@")[2]
    )
    if isinstance(error, ssl.SSLCertVerificationError):
        sentence = (
            f"The certificate of {_peer(options)} is not accepted ({error.verify_message}): "
            "set the CA file to the authority that signed it, and check that it was issued for "
            f"{name!r} and has not expired."
        )
    elif isinstance(error, ssl.SSLError) and error.reason in _NOT_TLS:
        sentence = (
            f"{_peer(options)} does not speak TLS: turn TLS off for this connection, or give the "
            f"port of the server's {options.listener} with TLS."
        )
    elif isinstance(error, FileNotFoundError | PermissionError):
        sentence = f"The CA file {tls and tls.ca_file} cannot be read ({_why(error)})."
    else:
        sentence = (
            f"TLS with {_peer(options)} failed ({_why(error)}): check that the port is the "
            f"server's {options.listener} with TLS, of version 1.2 or later."
        )
    return ConnectionFailed("tls", sentence)


def lost(options: ConnectionOptions, error: OSError) -> ConnectionFailed:
    """Return the failure of a connection that broke while it was in use."""
    return ConnectionFailed(
        "lost",
        f"The connection to {_peer(options)} broke ({_why(error)}): if that happens often, check "
        "the network between and the server's log.",
    )


def closed(options: ConnectionOptions, *, established: bool) -> ConnectionFailed:
    """Return the failure if the server closed the connection without a reason."""
    if established:
        sentence = f"The server at {_peer(options)} closed the connection; its log may say why."
    else:
        sentence = (
            f"{_peer(options)} closed the connection before the handshake was done: check that "
            f"this is the port of the {options.listener}, "
            f"{_with_tls(options)} TLS."
        )
    return ConnectionFailed("closed", sentence)


def handshake_timed_out(options: ConnectionOptions) -> ConnectionFailed:
    """Return the failure if the server accepts the connection but does not answer."""
    return ConnectionFailed(
        "handshake-timeout",
        f"{_peer(options)} did not finish the handshake within {options.handshake_timeout_s:g} s: "
        f"check that this is the port of the {options.listener}, "
        f"{_with_tls(options)} TLS, and that the server is not overloaded.",
    )


def silent(options: ConnectionOptions) -> ConnectionFailed:
    """Return the failure of a half-open connection: nothing arrives, not even our own probe."""
    return ConnectionFailed(
        "silent",
        f"Nothing came from {_peer(options)} for {options.read_timeout_s:g} s, nor within "
        f"{options.probe_timeout_s:g} s after a probe: the connection is closed and opened again.",
    )


def not_reading(options: ConnectionOptions, bound_bytes: int) -> ConnectionFailed:
    """Return the failure if too much output is waiting."""
    return ConnectionFailed(
        "not-reading",
        f"The server at {_peer(options)} is not reading: more than {bound_bytes} bytes are"
        " waiting to be sent. The connection is reset; check the server's load.",
    )


def no_loop_back(options: ConnectionOptions) -> ConnectionFailed:
    """Return the failure if the handshake succeeded, but an IQ to oneself is not returned."""
    return ConnectionFailed(
        "silent",
        f"The server at {_peer(options)} accepted {options.address} but did not return an IQ that"
        f" was sent to this address within {options.probe_timeout_s:g} s: it does not route this"
        f" {options.mode}'s "
        "stanzas; check its privilege and firewall modules.",
    )


def refused_by_server(options: ConnectionOptions, error: StreamError) -> ConnectionFailed:
    """Return the failure for a ``<stream:error/>``."""
    domain = options.address
    if options.mode == "client" and error.condition in _OF_CLIENTS:
        return ConnectionFailed(*_of_client(options, error.condition))
    said = f" and says {error.text!r}" if error.text else ""
    match error.condition:
        case "host-unknown":
            code: FailureCode = "host-unknown"
            sentence = (
                f"The server at {_peer(options)} has no component {domain}: add it to the "
                "server's configuration, or correct the component's domain."
            )
        case "not-authorized":
            code = "not-authorized"
            sentence = (
                f"The server at {_peer(options)} refused the handshake for {domain}: the "
                "component's secret differs from the server's, or, as ejabberd answers both "
                f"alike, {domain} is not a host of the listener on port {options.port}."
            )
        case "conflict":
            code = "conflict"
            sentence = (
                f"Another process is connected to {_peer(options)} as {domain}: this one"
                " waits and takes over when the other disconnects. If that is not intended, stop"
                " the other process, or use a different domain for this one."
            )
        case "system-shutdown":
            code = "system-shutdown"
            sentence = (
                f"The server at {_peer(options)} is shutting down{said}; the agent"
                " reconnects when it is back."
            )
        case condition:
            code = "stream-error"
            sentence = f"The server at {_peer(options)} ended the stream with {condition}{said}."
    return ConnectionFailed(code, sentence)


_OF_CLIENTS = ("conflict", "host-unknown", "not-authorized")


def _of_client(options: ConnectionOptions, condition: str) -> tuple[FailureCode, str]:
    if condition == "conflict":
        return "conflict", (
            f"Another client has logged in as {options.address} with the same resource"
            f"{f' ({options.resource})' if options.resource else ''}, and this one was "
            "disconnected: stop the other one, or give each a resource of its own."
        )
    if condition == "host-unknown":
        return "host-unknown", (
            f"The server at {_peer(options)} does not serve the domain of {options.address}: "
            "correct the account's address, or the server's host."
        )
    return "not-authorized", (
        f"The server at {_peer(options)} ended the stream of {options.address} before the login "
        "was done; its log may say why."
    )


def bad_xml(
    options: ConnectionOptions, error: StreamError, *, established: bool
) -> ConnectionFailed:
    """What the server sent is no stream, or no longer."""
    if established:
        sentence = (
            f"The server at {_peer(options)} sent invalid XML ({error}): the stream is"
            " opened again; if this happens repeatedly, report it to the developers of the server."
        )
    else:
        sentence = (
            f"{_peer(options)} did not answer with an XMPP {options.mode} stream ({error}): check"
            " that "
            f"this is the port of the {options.listener}, {_with_tls(options)} TLS."
        )
    return ConnectionFailed("bad-xml", sentence)


_NOT_TLS = (
    "WRONG_VERSION_NUMBER",
    "PACKET_LENGTH_TOO_LONG",
    "HTTP_REQUEST",
    "RECORD_LAYER_FAILURE",
)


def _peer(options: ConnectionOptions) -> str:
    host = f"[{options.host}]" if ":" in options.host else options.host
    return f"{host}:{options.port}"


def _with_tls(options: ConnectionOptions) -> str:
    if options.tls is None:
        return "without"
    return "with" if options.tls.direct else "without direct"


def _why(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "it ended early").replace("_", " ").lower()
    return os.strerror(error.errno) if error.errno else str(error) or type(error).__name__
