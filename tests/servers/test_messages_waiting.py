"""Messages that wait when the connection is lost: what must be said arrives once, on the next."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from pydantic import SecretStr

from component import config
from component.kernel.errors import AgentErrors
from component.link.connection.connection import Connection
from component.link.connection.live import Receiver
from component.link.messages.inbound import ReplyAddress
from component.link.messages.messenger import Messenger
from component.link.messages.outbound import OutboundMessage, Text, conversation_with
from component.link.messages.outbox import Outbox
from component.link.router.addresses import ComponentAddresses
from component.link.router.route_resolver import Senders
from component.link.router.router import Router, RouterOptions
from tests.servers.base import Server
from tests.servers.dam import Dam
from tests.servers.talk import login
from xep.fluux_agent.execute import Result
from xep.jid import JID
from xep.ping import Ping
from xep.stanza_error import StanzaError

pytestmark = [pytest.mark.servers, pytest.mark.anyio]

TIMEOUT_S = 60.0
LIMIT = 8_000_000
SLACK = 2_000_000
"""Bytes before the messages: more than the kernel takes of a connection that is not read."""


class Desk(Receiver):
    """A component of a real server that does nothing but send."""

    def __init__(self, server: Server, port: int, limit_bytes: int) -> None:
        self.domain = JID.parse(server.component_domain)
        self.juliet = JID.parse(server.jid("juliet"))
        self.outbox = Outbox(limit_bytes)
        self.messenger = Messenger(self.outbox)
        senders = Senders(lambda _: True, ComponentAddresses(self.domain, frozenset()))
        self.router = Router(RouterOptions(), senders, AgentErrors(), (), self.outbox)
        self.received = self.router.received  # type: ignore[method-assign]
        self.connects = 0
        self.changed = anyio.Event()
        self.connection = Connection(
            config.Server(
                host="127.0.0.1",
                port=port,
                component_domain=server.component_domain,
                component_secret=SecretStr(server.secret),
                reconnect_min_s=0.1,
                reconnect_max_s=0.2,
            ),
            self.outbox,
            self,
        )

    def connected(self) -> None:
        self.connects += 1
        self.changed.set()
        self.changed = anyio.Event()

    def disconnected(self, reason: str) -> None:
        self.router.disconnected(reason)

    async def connected_times(self, count: int) -> None:
        while self.connects < count:
            await self.changed.wait()

    def message(self, id_: str, *, must_arrive: bool = True) -> OutboundMessage:
        return OutboundMessage(
            id=id_,
            conversation=conversation_with(self.domain, self.juliet),
            to=ReplyAddress(str(self.juliet), self.domain),
            parts=(Text(f"This is {id_}."),),
            must_arrive=must_arrive,
        )

    def fill(self, count: int = 1) -> None:
        """Send what the server drops: a result that nobody waits for."""
        nobody = f"{self.juliet}/nobody"
        filling = f"<x xmlns='urn:test'>{'x' * 65_000}</x>"
        for _ in range(count):
            self.outbox.put(
                f"<iq type='result' id='f' from='{self.domain}' to='{nobody}'>{filling}</iq>",
                to=nobody,
            )


@asynccontextmanager
async def sending(server: Server, way: Dam, limit_bytes: int = LIMIT) -> AsyncIterator[Desk]:
    """Have a component connected for as long as the context."""
    desk = Desk(server, way.port, limit_bytes)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(desk.connection.run)
        with anyio.fail_after(TIMEOUT_S):
            await desk.connected_times(1)
            yield desk
        tasks.cancel_scope.cancel()


async def held(desk: Desk, way: Dam) -> None:
    """Stop the way, and wait until so much waits that nothing more leaves."""
    way.hold()
    while desk.outbox.waiting_bytes < SLACK:
        desk.fill()
        desk.outbox.send_now()
        await anyio.lowlevel.checkpoint()


async def test_what_waits_arrives_once_on_the_next_stream(xmpp_server: Server) -> None:
    with Dam(xmpp_server.address, xmpp_server.component_port) as way, login(xmpp_server) as client:
        await client.anext_presence()  # the server knows that it is available
        async with sending(xmpp_server, way) as desk:
            send = desk.messenger.send
            assert await send(desk.message("before")).settled()
            assert (await client.anext_message()).get("id") == "before"
            await held(desk, way)
            deliveries = {f"m{n}": send(desk.message(f"m{n}")) for n in range(20)}
            assert deliveries["m7"].withdraw()
            way.cut()
            await desk.connected_times(2)
            for id_, delivery in deliveries.items():
                assert await delivery.settled() == (id_ != "m7")
            assert await send(desk.message("last")).settled()
            came = [(await client.anext_message()).get("id") for _ in range(20)]
    assert came == [*(id_ for id_ in deliveries if id_ != "m7"), "last"]


async def test_when_too_much_waits_what_must_be_said_is_spared(xmpp_server: Server) -> None:
    """The agent gives up a server that does not read, and drops what need not arrive."""
    with Dam(xmpp_server.address, xmpp_server.component_port) as way, login(xmpp_server) as client:
        await client.anext_presence()  # the server knows that it is available
        async with sending(xmpp_server, way, SLACK) as desk:
            await held(desk, way)
            must = [desk.messenger.send(desk.message(f"m{n}")) for n in range(5)]
            may = [
                desk.messenger.send(desk.message(f"may{n}", must_arrive=False)) for n in range(5)
            ]
            while not desk.outbox.dropped or may[-1].state == "queued":
                desk.fill()
            way.cut()
            await desk.connected_times(2)
            assert [await delivery.settled() for delivery in (*must, *may)] == [True] * 5 + [
                False
            ] * 5
            assert await desk.messenger.send(desk.message("last")).settled()
            came = [(await client.anext_message()).get("id") for _ in range(6)]
    assert came == ["m0", "m1", "m2", "m3", "m4", "last"]


async def test_a_call_that_failed_is_not_made_on_the_next_stream(xmpp_server: Server) -> None:
    with Dam(xmpp_server.address, xmpp_server.component_port) as way, login(xmpp_server) as client:
        await client.anext_presence()  # the server knows that it is available
        async with sending(xmpp_server, way) as desk:
            await held(desk, way)
            with pytest.raises(StanzaError):
                await desk.router.call("get", JID.parse(client.jid), Ping(), Result, timeout_s=0)
            way.cut()
            await desk.connected_times(2)
            assert await desk.messenger.send(desk.message("last")).settled()
            assert (await client.anext_message()).get("id") == "last"
        way.wait_for("id='last'", to_server=True)
        assert b"urn:xmpp:ping" not in way.passed(to_server=True)
