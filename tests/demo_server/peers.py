"""A server under test, and peers that show every byte: a raw client, a component of our own."""

import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import ByteStream
from anyio.streams.tls import TLSStream

from demo_server import DemoServer
from tests.demo_server.test_c2s import HEADER, STARTTLS, plain
from xep.component_stream import ComponentStream, HandshakeAccepted
from xep.stanza import Incoming
from xep.stanza_stream import StanzaReceived, StreamErrorReceived
from xep.stream import StreamOpened

AGENT = "agent.localhost"
LIMIT = 60.0  # seconds; a bound for a busy machine, not an expectation


def new_server(**changes: object) -> DemoServer:
    settings: dict[str, object] = {
        "accounts": {"juliet": "pässword", "romeo": "r"},
        "components": {AGENT: "secret"},
    }
    return DemoServer(**(settings | changes))  # type: ignore[arg-type]


class Raw:
    """A connection that writes bytes and waits for bytes."""

    def __init__(self, stream: ByteStream) -> None:
        self.stream = stream
        self.text = ""

    async def says(self, data: bytes | str, *, until: str = "") -> str:
        """Send, then return what comes up to a match of `until`."""
        await self.stream.send(data if isinstance(data, bytes) else data.encode())
        return await self.hears(until) if until else ""

    async def hears(self, until: str) -> str:
        with anyio.fail_after(LIMIT):
            while (found := re.search(until, self.text, re.DOTALL)) is None:
                self.text += (await self.stream.receive()).decode()
        text, self.text = self.text[: found.end()], self.text[found.end() :]
        return text

    async def rest(self) -> str:
        """Return what comes until the server closes the connection."""
        with anyio.fail_after(LIMIT):
            try:
                while True:
                    self.text += (await self.stream.receive()).decode()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return self.text

    async def start_tls(self, ca_file: str) -> None:
        await self.says(HEADER, until="</stream:features>")
        await self.says(STARTTLS, until="<proceed[^>]*/>")
        context = ssl.create_default_context(cafile=ca_file)
        self.stream = await TLSStream.wrap(
            self.stream, hostname="localhost", ssl_context=context, standard_compatible=False
        )

    async def log_in(self, server: DemoServer, account: str, password: str, resource: str) -> None:
        await self.start_tls(str(server.ca_file))
        await self.says(HEADER, until="</stream:features>")
        await self.says(plain(f"\0{account}\0{password}"), until="<success[^>]*>(</success>)?")
        await self.says(HEADER, until="</stream:features>")
        await self.says(
            "<iq type='set' id='bind'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'>"
            f"<resource>{resource}</resource></bind></iq>",
            until=f"<jid>{account}@localhost/{resource}</jid></bind></iq>",
        )


@asynccontextmanager
async def connect(port: int) -> AsyncIterator[Raw]:
    raw = Raw(await anyio.connect_tcp("127.0.0.1", port))
    try:
        yield raw
    finally:
        await anyio.aclose_forcefully(raw.stream)


class Component:
    """A component made of the other half of the same specification."""

    def __init__(self, stream: ByteStream, domain: str = AGENT, secret: str = "secret") -> None:
        self.stream = stream
        self.xmpp = ComponentStream(domain, secret)
        self.events: list[object] = []

    async def log_in(self) -> object:
        """Return `HandshakeAccepted`, or the error that came instead."""
        await self.stream.send(self.xmpp.open())
        await self.next(StreamOpened)
        if self.events and isinstance(self.events[0], StreamErrorReceived):
            return self.events[0]
        await self.stream.send(self.xmpp.handshake())
        return await self.next(HandshakeAccepted, StreamErrorReceived)

    async def says(self, xml: str) -> None:
        await self.stream.send(self.xmpp.send(xml.encode()))

    async def stanza(self) -> Incoming:
        event = await self.next(StanzaReceived)
        assert isinstance(event, StanzaReceived)
        return event.stanza

    async def next(self, *kinds: type) -> object:
        with anyio.fail_after(LIMIT):
            while True:
                while self.events:
                    event = self.events.pop(0)
                    if isinstance(event, kinds):
                        return event
                self.events += self.xmpp.receive(await self.stream.receive())


@asynccontextmanager
async def connect_component(
    server: DemoServer, domain: str = AGENT, secret: str = "secret"
) -> AsyncIterator[Component]:
    async with connect(server.component_port) as raw:
        yield Component(raw.stream, domain, secret)
