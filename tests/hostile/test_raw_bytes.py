"""A server that sends anything but a proper stream: the real service on a real socket.

After each attack the service is asked something and answers. What breaks the framing costs the
stream, which is opened again; everything else costs the stanza. Meanwhile memory stays level.
"""

import gc
import os
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import anyio
import pytest
from structlog.testing import capture_logs

from component.app.features import make_settings
from component.app.service import Service
from component.config import Agent, Server, Storage
from tests.component.link.connection.acceptor import DOMAIN, SECRET, Acceptor, Link
from tests.profiles import SEED, THOROUGH
from tests.waiting import LIMIT_S
from tests.xep.stream.hostile import HOSTILE
from tests.xep.stream.streams import HEADER as EXAMPLE
from xep.component_states import State
from xep.stanza import Incoming
from xep.stanza_stream import StanzaReceived
from xep.stream import STREAM_CLOSE, encode_header

pytestmark = pytest.mark.anyio

CALLER = "ann@home.test/desk"
ASSISTANT = f"assistant@{DOMAIN}"
HEADER = encode_header("jabber:component:accept", from_=DOMAIN, id_="stream-id")
ROUNDS = 2_000 if THOROUGH else 30
"""Random sessions."""
ENDLESS_BYTES = 16 << 20
LEVEL = 12 << 20
"""Bytes by which a process that is warm may grow for other reasons than an attack."""
WARM_UP = 3
"""Rounds until caches, queues and the allocator have what they need."""

_ids = count(1)


def iq(content: str | bytes, id_: str, type_: str = "get", **more: str) -> bytes:
    content = content.encode() if isinstance(content, str) else content
    extra = "".join(f" {name}='{value}'" for name, value in more.items())
    head = f"<iq type='{type_}' id='{id_}' from='{CALLER}' to='{ASSISTANT}'{extra}>"
    return head.encode() + content + b"</iq>"


PING = "<ping xmlns='urn:xmpp:ping'/>"
EXECUTE = "<execute xmlns='urn:fluux:agent:0#execute' skill='echo'>"
ECHO = EXECUTE + "<param name='text'>{}</param></execute>"


@asynccontextmanager
async def attacked(directory: Path) -> AsyncIterator[Acceptor]:
    """A service that runs, and the server that attacks it."""
    with Acceptor() as server:
        service = Service(
            make_settings(
                server=Server(
                    host=server.host,
                    port=server.port,
                    component_domain=DOMAIN,
                    component_secret=SECRET,  # type: ignore[arg-type]  # pydantic hides it
                    reconnect_min_s=0.001,
                    reconnect_max_s=0.001,
                    max_stanza_bytes=20_000,
                ),
                agent=Agent(allowed_domains=("home.test",)),
                storage=Storage(path=directory / "data"),
            )
        )
        with anyio.fail_after(10 * LIMIT_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(service.run)
                yield server
                server.deafen()
                for link in server.links:
                    link.close()
                service.stop()


async def answer(link: Link, id_: str) -> Incoming:
    """The answer with that id; whatever else the service sends is passed over."""
    while True:
        event = await link.event()
        if isinstance(event, StanzaReceived) and event.stanza.id == id_:
            return event.stanza


async def is_served(link: Link) -> None:
    """Ask what anybody may, and wait for both answers."""
    number = next(_ids)
    await link.send(iq(PING, f"p{number}") + iq(ECHO.format(f"t{number}"), f"e{number}", "set"))
    assert (await answer(link, f"p{number}")).type == "result"
    echo = await answer(link, f"e{number}")
    assert echo.type == "result"
    assert f"t{number}" in echo.forward()


def resident() -> int:
    """Bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Attack:
    """What a server sends on an established stream; `ends` says that the stream cannot go on.

    None means that it could, but that the server hangs up instead.
    """

    name: str
    data: bytes
    ends: bool | None = True
    again: bytes = b""
    """What comes behind it, again and again."""

    def chunks(self, size: int) -> Iterator[bytes]:
        """All of it, what has no end for as long as about `size` bytes."""
        yield self.data
        if self.again:
            for _ in range(size // 65536):
                yield self.again * (65536 // len(self.again))


def _of_parser() -> Iterator[Attack]:
    """The streams of the parser's own tests, with their stanzas behind a handshake."""
    for hostile in HOSTILE:
        # One with limits of its own, or without an end, may just go on here.
        if hostile.data.startswith(EXAMPLE) and hostile.limits is None and not hostile.closed:
            ends = hostile.condition is not None
            yield Attack(hostile.name, hostile.data.removeprefix(EXAMPLE), ends)


ATTACKS: list[Attack] = [
    *_of_parser(),
    Attack("a flood of what cannot be parsed", b"<message><a:b/>\0</message>" * 1_000, ends=False),
    Attack("a flood of requests", b"".join(iq("<a:b/>", f"f{i}") for i in range(300)), ends=False),
    Attack("too deep", b"<iq>" + b"<a>" * 5_000 + b"</a>" * 5_000 + b"</iq>", ends=False),
    Attack("too wide", b"<iq>" + b"<a/>" * 5_000 + b"</iq>", ends=False),
    Attack("too long", iq(b"\xff" * 500_000, "big"), ends=False),
    Attack("unknown element", b"<x xmlns='urn:x'/>"),
    Attack("unknown element with a long name", b"<" + b"x" * 10_000 + b"/>"),
    Attack("another header", HEADER),
    Attack("another handshake", b"<handshake/>"),
    Attack(
        "an error",
        b"<stream:error><reset xmlns='urn:ietf:params:xml:ns:xmpp-streams'/></stream:error>",
    ),
    Attack(
        "an error of many words",
        b"<stream:error><text>" + b"x" * 15_000 + b"</text></stream:error>",
    ),
    Attack("the end", STREAM_CLOSE),
    Attack("HTTP", b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    Attack("TLS", bytes.fromhex("15030100020228")),
    Attack("half a stanza", iq(PING, "half")[:50], ends=None),
    Attack("half a character", b"<message><body>\xe2\x98", ends=None),
    Attack("endless space", b"", False, b" \n"),
    Attack("endless start tags", b"<iq>", None, b"<a b='" + b"x" * 50 + b"'>"),
    Attack("endless names", b"<iq>", None, b"<a" + b"b" * 90 + b">"),
    Attack("endless name", b"<iq", None, b"x"),
    Attack("endless attribute", b"<iq id='", None, b"x>"),
    Attack("endless attributes", b"<iq", None, b" a='/>'"),
    Attack("endless text", b"<iq>", None, b"x&amp;"),
    Attack("endless CDATA", b"<iq><![CDATA[", None, b"]]<>"),
    Attack("endless zeros", b"<iq>", None, b"\0"),
    Attack("endless end tag", STREAM_CLOSE[:-1], True, b" "),
]

AT_ONCE: dict[str, bytes] = {
    "nothing": b"",
    "HTTP": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "TLS": bytes.fromhex("15030100020228"),
    "zeros": b"\0" * 100_000,
    "no id": encode_header("jabber:component:accept", from_=DOMAIN),
    "another namespace": encode_header("jabber:client", from_=DOMAIN, id_="1"),
    "an endless header": HEADER[:-1] + b" a='" + b"x" * 300_000,
    "a DTD": b"<?xml version='1.0'?><!DOCTYPE s [<!ENTITY a 'ha'>]>" + HEADER,
    "a stanza": HEADER + iq(PING, "early"),
    "what cannot be parsed": HEADER + b"<iq>\0</iq>",
    "a brace": HEADER + b"<message xmlns='urn:}'/>",
    "an error": HEADER
    + b"<stream:error><host-unknown xmlns='urn:ietf:params:xml:ns:xmpp-streams'/></stream:error>",
    "the end": HEADER + STREAM_CLOSE,
}
"""What a server sends in place of a handshake."""


async def attack(server: Acceptor, link: Link, how: Attack, size: int, level: int) -> Link:
    """Attack on an established stream; the stream on which the service can be asked afterwards."""
    for chunk in how.chunks(size):
        assert not level or resident() < level + LEVEL, f"{how.name} fills the memory"
        try:
            await link.send(chunk)
        except ConnectionError:
            assert how.ends, f"{how.name}: it hung up"
            break
    if how.ends is False:
        return link
    if how.ends:
        await link.ended()
    link.close()
    return await server.component()


async def attack_with_each(server: Acceptor, link: Link, size: int, level: int = 0) -> Link:
    """Attack in every way on an established stream; after each the service answers."""
    for how in ATTACKS:
        link = await attack(server, link, how, size, level)
        try:
            await is_served(link)
        except (AssertionError, EOFError) as error:
            raise AssertionError(f"after: {how.name}") from error
        server.links[:] = [link]
    return link


async def test_nothing_on_an_established_stream_stops_the_service(tmp_path: Path) -> None:
    async with attacked(tmp_path) as server:
        await attack_with_each(server, await server.component(), 1 << 17)


@pytest.mark.thorough
async def test_what_has_no_end_does_not_fill_the_memory(tmp_path: Path) -> None:
    async with attacked(tmp_path) as server:
        link = await server.component()
        for _ in range(WARM_UP):
            link = await attack_with_each(server, link, 1 << 18)
        gc.collect()
        level = resident()
        await attack_with_each(server, link, ENDLESS_BYTES, level)
        gc.collect()
        assert resident() < level + LEVEL


async def test_each_request_that_cannot_be_parsed_is_answered_once(tmp_path: Path) -> None:
    contents = ["<a:b/>", "\0", "<a b='' b=''/>", "&", "<a xml:b='' xmlns:xml='urn:x'/>", "<1/>"]
    async with attacked(tmp_path) as server:
        link = await server.component()
        for number, content in enumerate(contents * 20):
            await link.send(iq(content, f"bad{number}") + iq(PING, f"good{number}"))
        await link.send(iq(PING, "last"))
        found: dict[str | None, list[str]] = {}
        while "last" not in found:
            event = await link.event()
            assert isinstance(event, StanzaReceived)
            found.setdefault(event.stanza.id, []).append(event.stanza.type)
        for number in range(len(contents) * 20):
            assert found[f"bad{number}"] == ["error"]
            assert found[f"good{number}"] == ["result"]


async def test_what_comes_in_place_of_a_handshake_costs_that_connection_only(
    tmp_path: Path,
) -> None:
    async with attacked(tmp_path) as server:
        for data in AT_ONCE.values():
            link = await server.accept()
            await link.event()
            await link.send(data)
            link.close()
        await is_served(await server.component())


async def test_a_session_that_is_cut_anywhere_is_opened_again(tmp_path: Path) -> None:
    session = HEADER + b"<handshake/>" + iq(ECHO.format("x"), "cut", "set")
    async with attacked(tmp_path) as server:
        # An odd distance, so that every other one is reset.
        for end in range(0, len(session), 1 if THOROUGH else 3):
            link = await server.accept()
            await link.send(session[:end])
            if end % 2:
                link.reset()
            else:
                link.close()
        await is_served(await server.component())


async def test_a_session_that_anything_has_happened_to_is_opened_again(tmp_path: Path) -> None:
    die = random.Random(SEED)
    session = HEADER + b"<handshake/>" + iq(ECHO.format("x"), "1", "set") + iq(PING, "2")
    pieces = [
        b"<",
        b">",
        b"/>",
        b"</",
        b"'",
        b"&",
        b"\0",
        b"\xff",
        b"]]>",
        b"<!--",
        b"<a>",
        b"</iq>",
    ]
    async with attacked(tmp_path) as server:
        for _ in range(ROUNDS):
            data = bytearray(session * die.randint(1, 3))
            for _ in range(die.randint(1, 6)):
                at = die.randrange(len(data))
                data[at : at + die.randint(0, 30)] = die.choice([*pieces, die.randbytes(20)])
            link = await server.accept()
            while data:
                step = die.randint(1, len(data))
                try:
                    await link.send(data[:step])
                except ConnectionError:
                    break
                del data[:step]
            link.close()
        await is_served(await server.component())


async def test_a_flood_of_attacks_is_no_flood_of_log_lines(tmp_path: Path) -> None:
    async with attacked(tmp_path) as server:
        link = await server.component()
        await is_served(link)
        with capture_logs() as lines:
            bad = f"<message id='{'x' * 5_000}' from='{'x' * 3_000}'><a:b/></message>".encode()
            await link.send(bad * 100)
            await is_served(link)
        assert len(lines) < 10
        assert max(len(str(line)) for line in lines) < 1000


async def test_the_stream_is_told_why(tmp_path: Path) -> None:
    async with attacked(tmp_path) as server:
        link = await server.component()
        await is_served(link)
        await link.send(b"<message><body></message></body>")
        await link.ended()
        assert b"<not-well-formed" in link.received
        assert link.stream.state is State.READY  # it was not closed by anything we said
