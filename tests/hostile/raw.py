"""Streams that send any bytes: of a client (RFC 6120) and of a component (XEP-0114).

They read all that comes, or the server would stop reading from them, and keep nothing of it but
what the stanzas to come need: identifiers of tasks, confirmations and command sessions.
"""

import contextlib
import hashlib
import re
import socket
import threading
from abc import ABC, abstractmethod
from typing import Final
from xml.sax.saxutils import quoteattr

from tests.hostile.grammar import STREAM_PREFIX
from tests.servers.base import Server
from tests.servers.raw_client import TlsSocket, log_in

TIMEOUT: Final = 120.0  # seconds; a bound for a busy machine, not an expectation
_FENCE_S: Final = 5.0
_KEPT: Final = 4096  # bytes of what came last, which are looked at with what comes next

_DECLARATIONS: Final = f"xmlns:{STREAM_PREFIX}='urn:hostile'"
_COMPONENT_HEADER: Final = (
    "<?xml version='1.0'?><stream:stream xmlns='jabber:component:accept' to={to} version='1.0'"
    f" {_DECLARATIONS} xmlns:stream='http://etherx.jabber.org/streams'>"
)
_FENCE: Final = re.compile(rb"id=['\"]fence-(\d+)['\"]")
_SEEN: Final = {
    b"@TASK@": re.compile(rb" task=['\"]([\w.:-]{1,80})['\"]"),
    b"@CONFIRM@": re.compile(rb"#confirm['\"] id=['\"]([\w.:-]{1,80})['\"]"),
    b"@SESSION@": re.compile(rb" sessionid=['\"]([\w.:-]{1,80})['\"]"),
}


class RawStream(ABC):
    """One connection that has logged in, to its end; for another try, make another."""

    def __init__(self, sock: socket.socket | TlsSocket) -> None:
        self._socket = sock
        self._changed = threading.Condition()
        self._ended = False
        self._fence = 0
        self._text = b""
        self.seen = dict.fromkeys(_SEEN, b"x")
        """What the placeholders in stanzas stand for: the identifier that came last."""
        self._socket.settimeout(None)
        threading.Thread(target=self._read, daemon=True).start()

    @abstractmethod
    def fence(self, number: int) -> bytes:
        """The request to the agent whose answer says that all before it has reached it."""

    @property
    def ended(self) -> bool:
        """Whether the server has ended the stream."""
        with self._changed:
            return self._ended

    def send(self, data: bytes) -> None:
        """Send bytes, with placeholders filled in. A closed stream is not an error."""
        for placeholder, value in self.seen.items():
            if placeholder in data:
                data = data.replace(placeholder, value)
        with contextlib.suppress(OSError):
            self._socket.sendall(data)

    def passed(self, number: int) -> bool | None:
        """Send a fence and wait for its answer. False if the stream has ended instead; None if
        nothing has come for a while, as when the component's stream was lost with the fence.
        """
        self.send(self.fence(number))
        with self._changed:
            self._changed.wait_for(lambda: self._fence == number or self._ended, _FENCE_S)
            return None if self._fence != number and not self._ended else self._fence == number

    def finish(self) -> None:
        """Say no more, and wait until the server has taken in all of it and ended the stream."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
        with self._changed:
            self._changed.wait_for(lambda: self._ended, TIMEOUT)
        self.close()

    def close(self) -> None:
        """Close the connection."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    # -- inside ------------------------------------------------------------------------------------

    def _read(self) -> None:
        while True:
            try:
                data = self._socket.recv(1 << 18)
            except OSError:
                data = b""
            with self._changed:
                if data:
                    self._look(data)
                else:
                    self._ended = True
                self._changed.notify_all()
            if not data:
                return

    def _look(self, data: bytes) -> None:
        text = self._text + data
        self._text = text[-_KEPT:]
        for found in _FENCE.finditer(text):
            self._fence = int(found[1])
        for placeholder, pattern in _SEEN.items():
            for found in pattern.finditer(text):
                self.seen[placeholder] = found[1]


class RawClient(RawStream):
    """A client that has logged in and is available, with carbons and stream management.

    Its account has no archive: each message costs a server more the longer the archive is, and a
    long campaign would measure that.
    """

    def __init__(self, server: Server, account: str) -> None:
        self._agent = server.component_domain
        super().__init__(log_in(server, account, declarations=_DECLARATIONS))
        self.send(
            b"<iq type='set' id='carbons'><enable xmlns='urn:xmpp:carbons:2'/></iq>"
            b"<iq type='set' id='archive'><prefs xmlns='urn:xmpp:mam:2' default='never'>"
            b"<always/><never/></prefs></iq>"
            b"<enable xmlns='urn:xmpp:sm:3'/><inactive xmlns='urn:xmpp:csi:0'/><presence/>"
        )

    def fence(self, number: int) -> bytes:
        ping = "<ping xmlns='urn:xmpp:ping'/>"
        return f"<iq type='get' id='fence-{number}' to='{self._agent}'>{ping}</iq>".encode()


class RawComponent(RawStream):
    """A component of the same server: its second one."""

    def __init__(self, server: Server) -> None:
        assert server.second is not None, "the server has a second component"
        self._domain, self._agent = server.second, server.component_domain
        sock = socket.create_connection((server.address, server.second_port), TIMEOUT)
        try:
            self._log_in(sock, server.secret)
        except BaseException:
            sock.close()
            raise
        super().__init__(sock)

    def _log_in(self, sock: socket.socket, secret: str) -> None:
        header = _COMPONENT_HEADER.format(to=quoteattr(self._domain))
        came = _exchange(sock, header, rb"<stream:stream[^>]* id=['\"][^'\"]*['\"][^>]*>")
        found = re.search(rb" id=['\"]([^'\"]*)['\"]", came)
        assert found is not None
        proof = hashlib.sha1(found[1] + secret.encode(), usedforsecurity=False).hexdigest()
        _exchange(sock, f"<handshake>{proof}</handshake>", b"<handshake")

    def fence(self, number: int) -> bytes:
        ping = "<ping xmlns='urn:xmpp:ping'/>"
        where = f"from='{self._domain}' to='{self._agent}'"
        return f"<iq type='get' id='fence-{number}' {where}>{ping}</iq>".encode()


def _exchange(sock: socket.socket, data: str, until: bytes) -> bytes:
    """Send, and return what comes, which ends in a match of `until`."""
    sock.sendall(data.encode())
    came = b""
    while re.search(until, came) is None:
        part = sock.recv(65536)
        if not part:
            raise ConnectionError(f"the server ended the login: {came[-500:]!r}")
        came += part
    return came
