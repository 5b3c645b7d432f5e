"""Notifications of nodes with many subscribers, beside those of others."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import anyio
import pytest

from component.link.messages.delivery import Delivery
from component.link.messages.outbound import OutboundMessage
from component.pubsub import rows
from component.pubsub.changes import NodeChange, ViewChange, retractions_event
from component.pubsub.config import NodeConfig
from component.pubsub.notifier import SLICE_BYTES, NodeNotifier
from component.pubsub.rows import NodeSubscription, StoredItem
from component.store import Storage
from component.store.database import Database

pytestmark = pytest.mark.anyio

SERVICE = "agent.example.com"
OPEN = NodeConfig(access_model="open")


class Watched(Delivery):
    """A delivery that says when somebody waits for it."""

    def __init__(self, server: "Server") -> None:
        super().__init__()
        self.server = server

    async def settled(self) -> bool:
        self.server.waited_for.set()
        return await super().settled()


class Server:
    """Takes messages, a slice at a time when the test says so."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.sent_from: list[str] = []
        self.waiting: list[Delivery] = []
        self.waited_for = anyio.Event()

    def send(self, message: OutboundMessage) -> Delivery:
        delivery = Watched(self)
        self.waiting.append(delivery)
        self.sent.append(message.to.to)
        self.sent_from.append(str(message.to.from_))
        return delivery

    async def ready(self) -> None:
        await anyio.lowlevel.checkpoint()

    def resources(self, service: str, node: str, before: float) -> Sequence[tuple[str, str]]:
        return ()

    async def slice_of(self) -> int:
        """Wait until the notifier waits; return how many messages are on their way."""
        await self.waited_for.wait()
        return len(self.waiting)

    def take(self) -> None:
        """Take the messages that are on their way."""
        self.waited_for = anyio.Event()
        for delivery in self.waiting:
            delivery.conclude()
        self.waiting.clear()


def published(node: str, size: int) -> NodeChange:
    item = StoredItem(
        id="1",
        payload=f"<x xmlns='urn:x'>{'x' * size}</x>",
        publisher=SERVICE,
        published=rows.at(0),
    )
    return NodeChange(
        service=SERVICE,
        node=node,
        kind="published",
        items=(item,),
        config=OPEN,
        publisher=SERVICE,
        number=1,
    )


@asynccontextmanager
async def notifying(storage: Storage, server: Server) -> AsyncIterator[NodeNotifier]:
    """A notifier with a node that has a thousand subscribers, and one that has one."""

    def op(database: Database) -> None:
        many, one = (rows.NodeRows(database, SERVICE, node) for node in ("many", "one"))
        for node in (many, one):
            node.add(OPEN, SERVICE)
        for number in range(1000):
            jid = f"s{number:04}@a.example"
            made = NodeSubscription(node="many", jid=jid, subid=jid, state="subscribed")
            many.put_subscription(jid, made)
        made = NodeSubscription(node="one", jid="o@a.example", subid="o", state="subscribed")
        one.put_subscription("o@a.example", made)

    await storage.write(op)
    notifier = NodeNotifier(storage, server, server, lambda _, __: True, pause_s=0)
    async with anyio.create_task_group() as group:
        group.start_soon(notifier.run)
        yield notifier
        group.cancel_scope.cancel()


async def test_a_node_with_many_subscribers_holds_up_no_other(storage: Storage) -> None:
    server = Server()
    async with notifying(storage, server) as notifier:
        notifier.put(published("many", 60_000))
        await server.slice_of()
        notifier.put(published("one", 100))
        server.take()
        await server.slice_of()
    assert "o@a.example" in server.sent
    assert len(server.sent) <= 2 * (SLICE_BYTES // 60_000 + 1) + 1


async def test_a_slice_is_limited_in_bytes(storage: Storage) -> None:
    server = Server()
    async with notifying(storage, server) as notifier:
        notifier.put(published("many", 20_000))
        for _ in range(1000 // 4):
            assert await server.slice_of() == 4  # of 20 KB each
            server.take()
    assert len(set(server.sent)) == 1000


async def test_a_change_of_a_view_is_sent_from_each_address_to_its_principal(
    storage: Storage,
) -> None:
    assistant = f"assistant@{SERVICE}"
    subscribed = [(SERVICE, "ann@a.example"), (SERVICE, "bob@a.example")]
    subscribed.append((assistant, "ann@a.example/phone"))

    def op(database: Database) -> None:
        for service, jid in subscribed:
            made = NodeSubscription(node="tasks", jid=jid, subid=jid, state="subscribed")
            at = rows.NodeRows(database, service, "tasks")
            at.put_subscription(jid.partition("/")[0], made)

    await storage.write(op)
    server = Server()
    change = ViewChange(
        services=(SERVICE, assistant),
        node="tasks",
        principal="ann@a.example",
        event=retractions_event("tasks", ("1",)),
        size=SLICE_BYTES,
        type="headline",
    )
    async with notifying(storage, server) as notifier:
        notifier.put(change)
        for _ in range(2):
            assert await server.slice_of() == 1
            server.take()
    assert server.sent == ["ann@a.example", "ann@a.example/phone"]
    assert server.sent_from == [SERVICE, assistant]
