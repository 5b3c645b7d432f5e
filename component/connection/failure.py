"""Why there is no connection: one code for programs, one sentence for the admin."""

import errno
import os
import socket
import ssl
from typing import Literal

from component.connection.options import ConnectionOptions
from xep.stream.errors import StreamError

FailureCode = Literal[
    "bad-xml",  # what came is no XML stream, or breaks XEP-0114
    "closed",  # the server closed the stream or the connection
    "conflict",  # another process is connected as this component
    "handshake-timeout",  # connected, but the handshake was never answered
    "host-unknown",  # the server has no such component
    "lost",  # the connection broke
    "not-authorized",  # wrong secret (or, on ejabberd, wrong domain)
    "not-reading",  # the server takes nothing of what is sent
    "refused",  # nobody listens there
    "silent",  # the server sends nothing, not even what it should loop back
    "stream-error",  # any other <stream:error/>
    "system-shutdown",  # the server is going down
    "timeout",  # no TCP or TLS connection in time
    "tls",  # the certificate was not accepted, or there is no TLS at all
    "unreachable",  # no route, network down, …
    "unresolved",  # the host's name has no address
]


class ConnectionFailed(Exception):  # noqa: N818 - what it says, not what it is
    """There is no connection, or no longer.

    Its text is one sentence that says what is wrong and what to do about it. It is the same as
    long as the reason is the same, and never holds the secret.

    Attributes:
        code: the reason, for programs.
    """

    def __init__(self, code: FailureCode, sentence: str) -> None:
        super().__init__(sentence)
        self.code: FailureCode = code


def unresolved(options: ConnectionOptions, error: Exception) -> ConnectionFailed:
    """The name has no address."""
    why = error.strerror if isinstance(error, socket.gaierror) else str(error)
    return ConnectionFailed(
        "unresolved",
        f"The name {options.host!r} does not resolve ({why}): correct the server's host, or add "
        "the name to DNS or /etc/hosts.",
    )


def connect_failed(options: ConnectionOptions, error: OSError) -> ConnectionFailed:
    """No address of the host took a TCP connection; ``error`` is what the last one said."""
    if error.errno == errno.ECONNREFUSED:
        return ConnectionFailed(
            "refused",
            f"{_peer(options)} refuses connections: start the XMPP server, and check that its "
            "component listener is enabled on that address and port.",
        )
    if error.errno == errno.ETIMEDOUT:
        return connect_timed_out(options)
    return ConnectionFailed(
        "unreachable",
        f"{_peer(options)} cannot be reached ({_why(error)}): check the server's host and the "
        "network between.",
    )


def connect_timed_out(options: ConnectionOptions) -> ConnectionFailed:
    """Nothing answered in time."""
    return ConnectionFailed(
        "timeout",
        f"{_peer(options)} gave no connection within {options.connect_timeout_s:g} s: check the "
        "server's host and port, and that no firewall drops the packets.",
    )


def tls_failed(options: ConnectionOptions, error: OSError) -> ConnectionFailed:
    """TLS could not be set up; a certificate that is not accepted included."""
    tls = options.tls
    name = (tls and tls.server_name) or options.host
    if isinstance(error, ssl.SSLCertVerificationError):
        sentence = (
            f"The certificate of {_peer(options)} is not accepted ({error.verify_message}): "
            f"name the authority that signed it as the CA file, and see that it is issued for "
            f"{name!r} and in date."
        )
    elif isinstance(error, ssl.SSLError) and error.reason in _NOT_TLS:
        sentence = (
            f"{_peer(options)} does not speak TLS: turn TLS off for this connection, or give the "
            "port of the server's component listener with TLS."
        )
    elif isinstance(error, FileNotFoundError | PermissionError):
        sentence = f"The CA file {tls and tls.ca_file} cannot be read ({_why(error)})."
    else:
        sentence = (
            f"TLS with {_peer(options)} failed ({_why(error)}): check that the port is the "
            "server's component listener with TLS, of version 1.2 or later."
        )
    return ConnectionFailed("tls", sentence)


def lost(options: ConnectionOptions, error: OSError) -> ConnectionFailed:
    """A connection that was up broke."""
    return ConnectionFailed(
        "lost",
        f"The connection to {_peer(options)} broke ({_why(error)}): if that happens often, check "
        "the network between and the server's log.",
    )


def closed(options: ConnectionOptions, *, established: bool) -> ConnectionFailed:
    """The server ended it without saying why."""
    if established:
        sentence = f"The server at {_peer(options)} closed the connection; its log may say why."
    else:
        sentence = (
            f"{_peer(options)} closed the connection before the handshake was done: check that "
            f"this is the port of the component (XEP-0114) listener, "
            f"{_with_tls(options)} TLS."
        )
    return ConnectionFailed("closed", sentence)


def handshake_timed_out(options: ConnectionOptions) -> ConnectionFailed:
    """It listens, and says nothing."""
    return ConnectionFailed(
        "handshake-timeout",
        f"{_peer(options)} did not finish the handshake within {options.handshake_timeout_s:g} s: "
        f"check that this is the port of the component (XEP-0114) listener, "
        f"{_with_tls(options)} TLS, and that the server is not overloaded.",
    )


def silent(options: ConnectionOptions) -> ConnectionFailed:
    """Half open: nothing arrives, not even our own probe."""
    return ConnectionFailed(
        "silent",
        f"Nothing came from {_peer(options)} for {options.read_timeout_s:g} s, nor within "
        f"{options.probe_timeout_s:g} s after a probe: the connection is given up and made anew.",
    )


def not_reading(options: ConnectionOptions, bound_bytes: int) -> ConnectionFailed:
    """Too much waits to be sent."""
    return ConnectionFailed(
        "not-reading",
        f"The server at {_peer(options)} does not read what is sent to it, more than "
        f"{bound_bytes} bytes wait: the connection is reset; check the server's load.",
    )


def no_loop_back(options: ConnectionOptions) -> ConnectionFailed:
    """Established, but an IQ to oneself does not come back."""
    return ConnectionFailed(
        "silent",
        f"The server at {_peer(options)} accepted {options.domain} but did not bring back an IQ "
        f"sent to it within {options.probe_timeout_s:g} s: it does not route this component's "
        "stanzas; check its privilege and firewall modules.",
    )


def refused_by_server(options: ConnectionOptions, error: StreamError) -> ConnectionFailed:
    """The server sent a ``<stream:error/>``."""
    domain = options.domain
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
                f"Another process is connected to {_peer(options)} as {domain}: this one stands by "
                "and takes its place when it goes. If that is not meant, stop it, or give this one "
                "a domain of its own."
            )
        case "system-shutdown":
            code = "system-shutdown"
            sentence = (
                f"The server at {_peer(options)} is shutting down{said}; it is tried again until "
                "it is back."
            )
        case condition:
            code = "stream-error"
            sentence = f"The server at {_peer(options)} ended the stream with {condition}{said}."
    return ConnectionFailed(code, sentence)


def bad_xml(
    options: ConnectionOptions, error: StreamError, *, established: bool
) -> ConnectionFailed:
    """What the server sent is no stream, or no longer."""
    if established:
        sentence = (
            f"The server at {_peer(options)} sent what breaks the stream ({error}): the stream is "
            "made anew; if it happens again, report it to the makers of the server."
        )
    else:
        sentence = (
            f"{_peer(options)} sent what is no XMPP component stream ({error}): check that this "
            f"is the port of the component (XEP-0114) listener, {_with_tls(options)} TLS."
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
    return "with" if options.tls else "without"


def _why(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "it ended early").replace("_", " ").lower()
    return os.strerror(error.errno) if error.errno else str(error) or type(error).__name__
