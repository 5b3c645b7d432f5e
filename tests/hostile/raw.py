"""Streams that send any bytes: of a client (RFC 6120) and of a component (XEP-0114).

They read all that comes, or the server would stop reading from them, and keep nothing of it but
what the stanzas to come need: identifiers of tasks, confirmations and command sessions.
"""

import base64
import contextlib
import hashlib
import re
import socket
import threading
from abc import ABC, abstractmethod
from typing import Final
from xml.sax.saxutils import quoteattr

from tests.hostile.grammar import STREAM_PREFIX

TIMEOUT: Final = 60.0  # seconds; a bound for a busy machine, not an expectation
_FENCE_S: Final = 5.0
_KEPT: Final = 4096  # bytes of what came last, which are looked at with what comes next

_HEADER: Final = (
    "<?xml version='1.0'?><stream:stream xmlns='{namespace}' to={to} version='1.0'"
    f" xmlns:{STREAM_PREFIX}='urn:hostile' xmlns:stream='http://etherx.jabber.org/streams'>"
)
_FENCE: Final = re.compile(rb"id=['\"]fence-(\d+)['\"]")
_SEEN: Final = {
    b"@TASK@": re.compile(rb" task=['\"]([\w.:-]{1,80})['\"]"),
    b"@CONFIRM@": re.compile(rb"#confirm['\"] id=['\"]([\w.:-]{1,80})['\"]"),
    b"@SESSION@": re.compile(rb" sessionid=['\"]([\w.:-]{1,80})['\"]"),
}


class RawStream(ABC):
    """One connection, from its login to its end; for another try, make another.

    Raises ConnectionError when the server ends it during the login.
    """

    def __init__(self, address: str, port: int) -> None:
        self._socket = socket.create_connection((address, port), TIMEOUT)
        self._changed = threading.Condition()
        self._ended = False
        self._fence = 0
        self._text = b""
        self.seen = dict.fromkeys(_SEEN, b"x")
        """What the placeholders in stanzas stand for: the identifier that came last."""
        try:
            self._login()
        except BaseException:
            self._socket.close()
            raise
        self._socket.settimeout(None)
        threading.Thread(target=self._read, daemon=True).start()

    @abstractmethod
    def _login(self) -> None:
        """Exchange what it takes until stanzas may be sent."""

    @abstractmethod
    def fence(self, number: int) -> bytes:
        """The request to the agent whose answer says that all before it has reached it."""

    @property
    def ended(self) -> bool:
        """Whether the server has ended the stream."""
        with self._changed:
            return self._ended

    def send(self, data: bytes) -> None:
        """Send bytes, with placeholders filled in. That the stream is gone is no error."""
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

    def _exchange(self, data: str, until: bytes) -> bytes:
        """During the login: send, and return what comes, which ends in a match of `until`."""
        self._socket.sendall(data.encode())
        came = b""
        while re.search(until, came) is None:
            part = self._socket.recv(65536)
            if not part:
                raise ConnectionError(f"the server ended the login: {came[-500:]!r}")
            came += part
        return came

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
    """A client that has logged in without TLS and is available, with carbons if there are any."""

    def __init__(
        self, address: str, port: int, host: str, account: str, password: str, agent: str
    ) -> None:
        self._host, self._account, self._password, self._agent = host, account, password, agent
        super().__init__(address, port)
        self.send(
            b"<iq type='set' id='carbons'><enable xmlns='urn:xmpp:carbons:2'/></iq>"
            b"<enable xmlns='urn:xmpp:sm:3'/><inactive xmlns='urn:xmpp:csi:0'/><presence/>"
        )

    def _login(self) -> None:
        header = _HEADER.format(namespace="jabber:client", to=quoteattr(self._host))
        self._exchange(header, b"</stream:features>")
        secret = base64.b64encode(f"\0{self._account}\0{self._password}".encode()).decode()
        self._exchange(
            "<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'>"
            + secret
            + "</auth>",
            b"<success[^>]*>",
        )
        self._exchange(header, b"</stream:features>")
        bind = "<bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/>"
        self._exchange(f"<iq type='set' id='bind'>{bind}</iq>", b"<jid>[^<]*</jid>")

    def fence(self, number: int) -> bytes:
        ping = "<ping xmlns='urn:xmpp:ping'/>"
        return f"<iq type='get' id='fence-{number}' to='{self._agent}'>{ping}</iq>".encode()


class RawComponent(RawStream):
    """A component of the same server, whose domain is `domain`."""

    def __init__(self, address: str, port: int, domain: str, secret: str, agent: str) -> None:
        self._domain, self._secret, self._agent = domain, secret, agent
        super().__init__(address, port)

    def _login(self) -> None:
        header = _HEADER.format(namespace="jabber:component:accept", to=quoteattr(self._domain))
        came = self._exchange(header, rb"<stream:stream[^>]* id=['\"][^'\"]*['\"][^>]*>")
        found = re.search(rb" id=['\"]([^'\"]*)['\"]", came)
        assert found is not None
        proof = hashlib.sha1(found[1] + self._secret.encode(), usedforsecurity=False).hexdigest()
        self._exchange(f"<handshake>{proof}</handshake>", b"<handshake")

    def fence(self, number: int) -> bytes:
        ping = "<ping xmlns='urn:xmpp:ping'/>"
        where = f"from='{self._domain}' to='{self._agent}'"
        return f"<iq type='get' id='fence-{number}' {where}>{ping}</iq>".encode()
