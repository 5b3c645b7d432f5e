"""Calls of peers in the database, on SQLite and PostgreSQL."""

from functools import partial
from typing import Any

import anyio
import msgspec
import pytest

from component.config.peers import Peer
from component.features.peers import rows
from component.features.peers.requests import Left, allotted
from component.features.peers.rows import Call
from component.skills.errors import RemoteError
from component.store import Storage, waiters
from tests.component.agent.world import begun
from tests.component.tasks.world import Open
from xep.binding import encode
from xep.fluux_agent.delegation import Delegation
from xep.fluux_agent.execute import Execute, Result
from xep.jid import JID

pytestmark = [pytest.mark.anyio, pytest.mark.ports]

EXECUTE = Execute(
    skill="x",
    request="r",
    delegation=Delegation(
        origin=JID.parse("romeo@a.example"), max_hops=4, via=(JID.parse("agent.a.example"),)
    ),
)


def call(id_: str, **more: Any) -> Call:
    return Call(
        id=id_,
        task=more.pop("task", "one"),
        peer="b",
        address="agent.b.example",
        sender="agent.a.example",
        request=encode(EXECUTE),
        deadline=0,
        owner="me",
        paid_by="root",
        **more,
    )


async def waits(storage: Storage) -> int:
    ((count,),) = await storage.select("SELECT waits FROM tasks WHERE id = 'one'")
    return int(count)


async def test_the_answer_of_a_peer_wakes_the_task_that_waits(open_storage: Open) -> None:
    async with open_storage() as storage:

        def begin(database: Any) -> None:
            begun(database, "one")
            rows.add(database, call("c1"))
            pending = partial(rows.is_pending, call="c1")
            count = waiters.wait_for_event(database, "one", "c1", pending)
            database.execute("UPDATE tasks SET waits = ? WHERE id = 'one'", (count,))

        await storage.write(begin)
        assert await waits(storage) == 1
        outcome = encode(Result(skill="x"))
        changed = partial(rows.change, call="c1", state="ended", outcome=outcome)
        assert await storage.write(changed) != ()
        assert await waits(storage) == 0
        # What comes later changes nothing.
        later = partial(rows.change, call="c1", outcome=None)
        assert await storage.write(later) == ()
        found = await storage.read(lambda db: rows.load(db, "c1"))
        assert found is not None
        assert found.result() == Result(skill="x")


async def test_a_call_is_stored_once(open_storage: Open) -> None:
    async with open_storage() as storage:
        await storage.write(lambda db: begun(db, "one"))
        first = await storage.write(lambda db: rows.add(db, call("c1")))
        other = msgspec.structs.replace(first, request="<other/>")
        assert await storage.write(lambda db: rows.add(db, other)) == first


async def test_calls_of_an_instance_that_has_ended_are_taken_over(open_storage: Open) -> None:
    async with open_storage() as storage:

        def put(database: Any) -> None:
            begun(database, "one")
            rows.add(database, call("c1"))
            rows.add(database, call("c2", state="ended"))
            database.execute("INSERT INTO instances (id, heartbeat, idle) VALUES ('me', 0, 0)")

        await storage.write(put)
        assert await storage.write(lambda db: rows.open_calls(db, "other")) == []
        await storage.change("DELETE FROM instances")
        taken = await storage.write(lambda db: rows.open_calls(db, "other"))
        assert [(one.id, one.owner) for one in taken] == [("c1", "other")]


async def test_another_instance_is_told_of_what_it_has_to_look_at(open_storage: Open) -> None:
    async with open_storage() as storage:

        def put(database: Any) -> None:
            begun(database, "one")
            rows.add(database, call("c1"))
            rows.add(database, call("c2", state="ended"))

        async def nudges() -> list[int]:
            found = await storage.select("SELECT nudges FROM peer_calls ORDER BY id")
            return [int(row[0]) for row in found]

        await storage.write(put)
        there = {"call": "c1", "address": "agent.b.example"}
        await storage.write(lambda db: rows.nudge(db, "other", **there))
        await storage.write(lambda db: rows.nudge(db, "other", task="one"))
        assert await nudges() == [2, 0]
        await storage.write(lambda db: rows.nudge(db, "me", **there))
        await storage.write(lambda db: rows.nudge(db, "other", call="c1", address="c.example"))
        assert await nudges() == [2, 0]
        if await storage.read(lambda db: db.dialect) == "postgresql":
            told = await storage.select("SELECT topic, subject FROM shared_changes")
            assert told == [("peer_calls", "c1")] * 2


async def test_calls_that_begin_together_do_not_spend_the_same_rest(open_storage: Open) -> None:
    peer = Peer(name="b", jid="agent.b.example", call_usd=0.4)
    async with open_storage() as storage:
        await storage.write(lambda db: begun(db, "one"))
        given: list[float | None] = []

        async def begin(id_: str) -> None:
            def op(database: Any) -> Call:
                made = allotted(database, peer, call(id_), EXECUTE, Left(usd=1.0))
                return rows.add(database, made)

            try:
                given.append((await storage.write(op)).usd)
            except RemoteError:
                given.append(None)

        async with anyio.create_task_group() as group:
            for number in range(5):
                group.start_soon(begin, f"c{number}")
        assert sorted(each for each in given if each is not None) == pytest.approx([0.2, 0.4, 0.4])
        assert given.count(None) == 2
