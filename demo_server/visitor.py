"""A client for demonstrations: logs in to a `DemoServer` and sends messages and IQs.

It answers every request with an error (RFC 6120 §8.2.3), so it is not a client for daily use.
"""

import base64
import contextlib
import itertools
import ssl
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from xml.etree.ElementTree import Element

import anyio
from anyio.abc import ByteStream
from anyio.streams.tls import TLSStream

from demo_server.c2s import BIND
from xep.bind import Bind
from xep.binding.escaping import escape_attribute, escape_text
from xep.stanza import NAMESPACE, Incoming
from xep.stream import (
    STREAM_CLOSE,
    ElementReceived,
    ParserFailed,
    StanzaSkipped,
    StreamClosed,
    StreamParser,
    encode_header,
)

_SASL: Final = "urn:ietf:params:xml:ns:xmpp-sasl"
_TLS: Final = "urn:ietf:params:xml:ns:xmpp-tls"
_READ: Final = 65_536
_NOT_SERVED: Final = (
    "<error type='cancel'>"
    "<service-unavailable xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error>"
)
_ENDED: Final = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError)


class VisitError(Exception):
    """The login failed or the connection ended; the message says which."""


class Visitor:
    """One account, logged in over STARTTLS for the duration of the context.

    Args:
        account: the localpart.
        password: its password.
        host: the domain of the server.
        port: its port for clients, on ``address``.
        ca_file: PEM file of the authority to trust.

    Attributes:
        jid: the full JID that the server gave.

    Raises:
        VisitError: wrong password, or no connection.
    """

    def __init__(
        self, account: str, password: str, *, host: str, address: str, port: int, ca_file: Path
    ) -> None:
        self.jid = f"{account}@{host}"
        self._account = account
        self._password = password
        self._host = host
        self._address = address
        self._port = port
        self._ca_file = ca_file
        self._parser = StreamParser((NAMESPACE,))
        self._elements: deque[Element] = deque()
        self._unheard: list[Incoming] = []
        self._ids = itertools.count(1)
        self._stream: ByteStream

    async def __aenter__(self) -> Self:
        """Connect, log in, bind, and become available."""
        self._stream = await anyio.connect_tcp(self._address, self._port)
        try:
            await self._log_in()
        except BaseException:
            await anyio.aclose_forcefully(self._stream)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the stream and the connection."""
        with anyio.move_on_after(1, shield=True):
            # Wait until the server closes its stream; the client closes the connection.
            with contextlib.suppress(VisitError):
                await self._send(STREAM_CLOSE.decode())
                while True:
                    await self._element()
        await anyio.aclose_forcefully(self._stream)

    async def iq(self, type_: str, to: str, payload: str) -> tuple[str, Incoming]:
        """Send an IQ with this payload; return the sent XML and the answer."""
        id_ = f"demo-{next(self._ids)}"
        sent = f"<iq type='{type_}' to='{escape_attribute(to)}' id='{id_}'>{payload}</iq>"
        await self._send(sent)
        while True:
            stanza = await self._stanza()
            if stanza.kind == "iq" and stanza.id == id_:
                return sent, stanza
            self._unheard.append(stanza)

    async def say(self, to: str, body: str, thread: str | None = None) -> str:
        """Send a chat message; return the sent XML."""
        inside = f"<body>{escape_text(body)}</body>"
        if thread is not None:
            inside += f"<thread>{escape_text(thread)}</thread>"
        sent = f"<message type='chat' to='{escape_attribute(to)}'>{inside}</message>"
        await self._send(sent)
        return sent

    async def hear(self, wanted: Callable[[Incoming], bool]) -> Incoming:
        """Return the first matching stanza, from those received before or else from the stream."""
        for number, stanza in enumerate(self._unheard):
            if wanted(stanza):
                return self._unheard.pop(number)
        while not wanted(stanza := await self._stanza()):
            self._unheard.append(stanza)
        return stanza

    async def _log_in(self) -> None:
        await self._open()
        await self._send(f"<starttls xmlns='{_TLS}'/>")
        await self._expect(f"{{{_TLS}}}proceed")
        self._stream = await TLSStream.wrap(
            self._stream,
            hostname=self._host,
            ssl_context=ssl.create_default_context(cafile=str(self._ca_file)),
            standard_compatible=False,
        )
        await self._open()
        plain = base64.b64encode(f"\0{self._account}\0{self._password}".encode()).decode()
        await self._send(f"<auth xmlns='{_SASL}' mechanism='PLAIN'>{plain}</auth>")
        await self._expect(f"{{{_SASL}}}success")
        await self._open()
        _, bound = await self.iq("set", self._host, f"<bind xmlns='{BIND}'/>")
        if bound.type != "result":
            raise VisitError(f"the server gave {self.jid} no resource")
        self.jid = str(bound.require(Bind).jid or self.jid)
        await self._send("<presence/>")

    async def _stanza(self) -> Incoming:
        """Return the next stanza that is not a request; requests are answered."""
        while True:
            stanza = Incoming.of(await self._element(), 0)
            if stanza.kind != "iq" or stanza.type in ("result", "error"):
                return stanza
            # An agent queries the client before it asks a question, and waits for the answer.
            to, id_ = escape_attribute(stanza.sender or ""), escape_attribute(stanza.id or "")
            await self._send(f"<iq type='error' to='{to}' id='{id_}'>{_NOT_SERVED}</iq>")

    async def _open(self) -> None:
        self._parser.reset()
        self._elements.clear()
        await self._stream.send(encode_header(NAMESPACE, to=self._host, version="1.0"))
        await self._element()  # the stream features

    async def _expect(self, tag: str) -> None:
        element = await self._element()
        if element.tag != tag:
            raise VisitError(f"{self.jid} was refused: {element.tag}")

    async def _send(self, xml: str) -> None:
        try:
            await self._stream.send(xml.encode())
        except _ENDED as error:
            raise VisitError(f"the connection of {self.jid} ended") from error

    async def _element(self) -> Element:
        while not self._elements:
            try:
                data = await self._stream.receive(_READ)
            except _ENDED as error:
                raise VisitError(f"the connection of {self.jid} ended") from error
            for event in self._parser.receive(data):
                if isinstance(event, ElementReceived):
                    self._elements.append(event.element)
                elif isinstance(event, StreamClosed) and not self._elements:
                    raise VisitError(f"the connection of {self.jid} ended")
                elif isinstance(event, ParserFailed | StanzaSkipped) and event.error is not None:
                    raise VisitError(f"the server sent no XMPP: {event.error}")
        return self._elements.popleft()
