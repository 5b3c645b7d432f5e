"""A message is taken in or comes back, and never both, wherever the service stops."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import anyio
import pytest
from anyio.lowlevel import checkpoint

from component.agent.requests import TurnRequest
from component.commands import Commands
from component.link.messages.delivery import Delivery
from component.link.messages.inbound import InboundMessage
from component.memory_directory.layout import SessionKey
from component.store import Storage
from component.store.database import Database
from tests.component.features.chat.handler import message_handler
from tests.component.link.router.wire import AGENT, Bench, element, until
from tests.component.sent import Sent
from xep.stanza import Message, Presence

pytestmark = [pytest.mark.anyio, pytest.mark.ports]

Open = Callable[..., AbstractAsyncContextManager[Storage]]
ALICE = "alice@a.example/phone"
MESSAGES = 6


class Listener:
    """Takes messages in as the conversations do: in one write."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    async def received(self, request: TurnRequest) -> None:
        def insert(database: Database) -> None:
            database.execute("INSERT INTO taken VALUES (?)", (request.text,))

        await self._storage.write(insert)

    async def revised(self, key: SessionKey, msg_id: str, body: str | None) -> bool:
        return False


@pytest.mark.parametrize("checkpoints", [0, 2, 5, None])
@pytest.mark.parametrize("stops_by", ["drain", "time limit"])
async def test_a_message_is_taken_in_or_comes_back(
    open_storage: Open, checkpoints: int | None, stops_by: str
) -> None:
    async with open_storage() as storage:
        await storage.write(lambda database: database.execute("CREATE TABLE taken (body TEXT)"))
        sent: list[Message | Presence] = []
        handler = message_handler(Sent(sent), Commands(()), agents=Listener(storage))
        limit_s = 3600.0 if stops_by == "drain" else 0.0005 * (checkpoints or 0)
        bench = Bench(handler.routes(), request_timeout_s=limit_s)
        async with bench.running():
            for number in range(MESSAGES):
                body = element("body", str(number))
                bench.receive(
                    element("message", body, type="chat", id=str(number), from_=ALICE, to=AGENT)
                )
            if checkpoints is None:
                await bench.settled()
            for _ in range(checkpoints or 0):
                await checkpoint()
            if stops_by == "drain":
                await bench.router.drain(0)
            await until(lambda: not bench.router.under_way)
        found = await storage.read(
            lambda database: database.execute("SELECT body FROM taken").fetchall()
        )
    taken = [body for (body,) in found]
    bounced = [reply.get("id") for reply in bench.replies]
    assert sorted([*taken, *bounced]) == [str(number) for number in range(MESSAGES)]
    assert sent == []


class Notices:
    """A notice that is due, and that the server never takes."""

    async def due(self, _message: InboundMessage) -> str | None:
        return "I am a machine."

    async def sent(self, _message: InboundMessage, _delivery: Delivery) -> None:
        await anyio.sleep_forever()


async def test_a_message_that_was_answered_does_not_come_back() -> None:
    """Only the notice before the answer is still waited for when the service stops."""
    sent: list[Message | Presence] = []
    handler = message_handler(Sent(sent), Commands(()), notices=Notices())
    bench = Bench(handler.routes())
    async with bench.running():
        body = element("body", "/nosuch")
        bench.receive(element("message", body, type="chat", id="1", from_=ALICE, to=AGENT))
        await until(lambda: len(sent) == 2)
        assert await bench.router.drain(0) == 1
    assert bench.replies == []
