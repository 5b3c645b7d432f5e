"""A client's connection that sends any bytes: it logs in, and the rest is for the caller.

A server as Debian ships it lets nobody log in without TLS, so the bytes go through TLS.
"""

import base64
import socket
import ssl
import threading
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape, quoteattr

from tests.servers.base import Server

TIMEOUT: Final = 120.0  # seconds; a bound for a busy machine, not an expectation
_MOST: Final = 1 << 18
_SASL: Final = "urn:ietf:params:xml:ns:xmpp-sasl"


class TlsSocket:
    """The client's side of TLS on a connected socket, for blocking reads and writes.

    One thread may read while another writes, which `ssl.SSLSocket` does not promise.
    `features` is what the server offers before TLS and after the login, as XML.

    Raises:
        ssl.SSLError: the server's certificate is not the one in `ca_file`.
    """

    def __init__(self, sock: socket.socket, host: str, ca_file: Path) -> None:
        self.features = ""
        self._socket = sock
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = ssl.create_default_context(cafile=str(ca_file))
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._state = threading.Lock()  # of the TLS object, never held while a socket waits
        self._order = threading.Lock()  # in which records go out
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._flush()
                if not self._receive():
                    raise ConnectionError("the server ended the TLS handshake") from None
            else:
                break
        self._flush()

    def sendall(self, data: bytes | memoryview) -> None:
        """Send all of it. Raises OSError if the connection is gone."""
        rest = memoryview(data)
        with self._order:
            with self._state:
                while rest:
                    rest = rest[self._tls.write(rest) :]
            self._write_out()

    def recv(self, most: int = _MOST) -> bytes:
        """Return what has come, waiting for some; nothing means that the server has ended it."""
        while True:
            with self._state:
                try:
                    return self._tls.read(most)
                except ssl.SSLWantReadError:
                    pass
                except ssl.SSLError:  # the connection ended without an end of TLS
                    return b""
            if self._outgoing.pending:
                self._flush()
            self._receive()

    def settimeout(self, seconds: float | None) -> None:
        """Bound each wait of the socket."""
        self._socket.settimeout(seconds)

    def shutdown(self, how: int) -> None:
        """Shut the connection down as `socket.shutdown` does, without an end of TLS."""
        self._socket.shutdown(how)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _receive(self) -> bool:
        data = self._socket.recv(_MOST)
        with self._state:
            if data:
                self._incoming.write(data)
            else:
                self._incoming.write_eof()
        return bool(data)

    def _flush(self) -> None:
        with self._order:
            self._write_out()

    def _write_out(self) -> None:
        with self._state:
            data = self._outgoing.read()
        self._socket.sendall(data)


def log_in(
    server: Server,
    account: str,
    *,
    resource: str = "",
    bind: bool = True,
    declarations: str = "",
) -> TlsSocket:
    """Log in to a server by STARTTLS and SASL PLAIN, and bind a resource (RFC 6120 §5, §6, §7).

    Without `resource` the server chooses one; without `bind` there is none, so that a session can
    be resumed instead (XEP-0198 §5). `declarations` are more namespaces for the header of the
    stream. What came last has been read up to the answer to the binding, and what the server
    offers is in `features`.

    Raises:
        ConnectionError: the server ended the connection or refused the login.
    """
    sock = socket.create_connection((server.address, server.c2s_port), TIMEOUT)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        secure = _authenticated(sock, server, account, declarations)
        if bind:
            wish = f"<resource>{escape(resource)}</resource>" if resource else ""
            payload = f"<bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'>{wish}</bind>"
            _exchange(secure, f"<iq type='set' id='bind'>{payload}</iq>", b"</iq>")
    except BaseException:
        sock.close()
        raise
    return secure


def _authenticated(
    sock: socket.socket, server: Server, account: str, declarations: str
) -> TlsSocket:
    header = (
        f"<?xml version='1.0'?><stream:stream to={quoteattr(server.host)} version='1.0'"
        f" xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams' {declarations}>"
    )
    end = b"</stream:features>"
    before = _exchange(sock, header, end)
    _exchange(sock, "<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>", b"<proceed")
    secure = TlsSocket(sock, server.host, server.ca_file)
    proof = base64.b64encode(f"\0{account}\0{server.accounts[account]}".encode()).decode()
    _exchange(secure, header, end)
    _exchange(secure, f"<auth xmlns='{_SASL}' mechanism='PLAIN'>{proof}</auth>", b"<success")
    secure.features = (before + _exchange(secure, header, end)).decode()
    return secure


def _exchange(sock: socket.socket | TlsSocket, data: str, until: bytes) -> bytes:
    sock.sendall(data.encode())
    came = b""
    while until not in came:
        part = sock.recv(_MOST)
        if not part:
            raise ConnectionError(f"the server ended the login: {came[-500:]!r}")
        came += part
    return came
