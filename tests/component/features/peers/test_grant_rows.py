"""The keys and the grants in the database, on both kinds of it."""

from decimal import Decimal

import pytest

from component.features.peers import grant_rows, rows
from component.features.peers.rows import Call
from component.features.peers.trace import find_work
from component.grants import Budget, Grant, SigningKey
from component.grants.receipt import Receipt, write_receipt
from component.store import Storage
from component.store.database import Database
from tests.component.features.task_commands.stored import complete, insert
from xep.binding import encode
from xep.fluux_agent.delegation import Delegation
from xep.fluux_agent.execute import Execute, Result
from xep.jid import JID

pytestmark = [pytest.mark.anyio, pytest.mark.ports]

AGENT = "assistant@agent.a.example"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
GRANT = Grant(
    iss=AGENT,
    sub="romeo@a.example",
    aud="agent.b.example",
    skills=("report", "sources.*"),
    depth=1,
    exp=4_000_000_000,
    iat=1,
    jti="g1",
    budget=Budget(usd=Decimal("0.50"), tokens=100),
)
EXECUTE = Execute(
    skill="report",
    delegation=Delegation(
        origin=JID.parse("romeo@a.example"),
        max_hops=4,
        trace=f"00-{TRACE}-00f067aa0ba902b7-01",
        via=(JID.parse(AGENT),),
    ),
)
CALL = Call(
    id="c-1",
    task="t-1",
    peer="b",
    address="agent.b.example",
    sender=AGENT,
    request=encode(EXECUTE),
    deadline=1,
    owner="i-1",
)


def issue(database: Database, grant: Grant = GRANT) -> str:
    key = grant_rows.current_key(database, AGENT)
    insert(database, "t-1")
    rows.add(database, CALL)
    grant_rows.issue(database, grant, key, AGENT, "c-1", "t-1")
    return grant_rows.issued(database)[0].digest


async def test_a_grant_is_active_until_its_call_has_ended_or_it_is_revoked(
    storage: Storage,
) -> None:
    digest = await storage.write(issue)

    async def state() -> str:
        found = await storage.read(lambda db: grant_rows.state_of(db, digest))
        assert found is not None
        assert found[0].budget == GRANT.budget
        return found[1]

    assert await state() == "active"
    await storage.write(lambda db: rows.change(db, "c-1", state="ended"))
    assert await state() == "ended"
    assert await storage.write(lambda db: grant_rows.revoke(db, "g1"))
    assert await state() == "revoked"
    assert not await storage.write(lambda db: grant_rows.revoke(db, "g2"))
    assert await storage.read(lambda db: grant_rows.state_of(db, "x")) is None


@pytest.mark.parametrize("cancelled", ["t-0", "t-1"])
@pytest.mark.parametrize("state", ["cancelling", "cancelled"])
async def test_a_grant_ends_as_soon_as_its_task_or_one_above_it_is_cancelled(
    storage: Storage, cancelled: str, state: str
) -> None:
    digest = await storage.write(issue)
    await storage.write(lambda db: insert(db, "t-0"))
    await storage.change("UPDATE tasks SET parent = 't-0' WHERE id = 't-1'")
    found = await storage.read(lambda db: grant_rows.state_of(db, digest))
    assert found is not None
    assert found[1] == "active"
    await storage.change(f"UPDATE tasks SET state = '{state}' WHERE id = '{cancelled}'")
    found = await storage.read(lambda db: grant_rows.state_of(db, digest))
    assert found is not None
    assert found[1] == "ended"


async def test_a_revocation_can_keep_the_call(storage: Storage) -> None:
    await storage.write(issue)

    async def is_wanted() -> bool:
        return await storage.read(lambda db: rows.is_wanted(db, CALL))

    await storage.write(lambda db: grant_rows.revoke(db, "g1", cancels=False))
    assert await is_wanted()
    await storage.write(lambda db: grant_rows.revoke(db, "g1"))
    assert not await is_wanted()
    await storage.write(lambda db: grant_rows.revoke(db, "g1", cancels=False))
    assert not await is_wanted()


async def test_an_old_key_stays_until_its_last_grant_has_ended(storage: Storage) -> None:
    def op(database: Database) -> tuple[list[str], list[str]]:
        issue(database)
        (old,) = grant_rows.keys(database, AGENT)
        new = grant_rows.current_key(database, AGENT, roll=True)
        assert grant_rows.current_key(database, AGENT) == new
        stored = grant_rows.key_named(database, AGENT, old.kid)
        assert stored is not None
        assert stored.ends == (GRANT.exp + 30) * 1000
        assert grant_rows.keys(database, "assistant@agent.other.example") == []
        return [old.kid, new.kid], [one.kid for one in grant_rows.keys(database, AGENT)]

    made, found = await storage.write(op)
    assert set(found) == set(made)


async def test_a_trace_has_the_tasks_the_calls_and_what_receipts_say(storage: Storage) -> None:
    inner = Receipt(
        iss="c.example", aud="b.example", sub="r@a.example", iat=1, jti="2", skill="s",
        state="failed",
    )  # fmt: skip
    key = SigningKey.of(bytes(32))
    outer = Receipt(
        iss="b.example", aud=AGENT, sub="r@a.example", iat=1, jti="1", skill="report",
        state="completed", receipts=(write_receipt(inner, key), "not a receipt"),
    )  # fmt: skip

    def op(database: Database) -> None:
        complete(database, insert(database, "t-1"))
        rows.add(database, CALL)
        rows.change(
            *(database, "c-1"),
            state="ended",
            receipt=write_receipt(outer, key),
            outcome=encode(Result(skill="report")),
        )

    await storage.write(op)
    (work,) = await storage.read(lambda db: find_work(db, "t-1"))
    assert await storage.read(lambda db: find_work(db, TRACE)) == [work]
    (of_b,) = work.parts
    assert (of_b.agent, of_b.said_by, of_b.state) == ("b.example", "b.example", "completed")
    (of_c,) = of_b.parts
    assert (of_c.agent, of_c.said_by, of_c.state) == ("c.example", "b.example", "failed")
