"""What is kept of a principal's ended tasks is bounded, and nothing runs twice for it."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.skills import Context, skill
from component.tasks.changes import change
from component.tasks.expiry import principals_over_limits, remove
from component.tasks.protocol import Bounds, TaskLimits
from component.tasks.request import key_of
from component.tasks.rows import ENDED, OpenBound, kept_of
from tests.component.tasks.ledger import ALICE, BOB, NOON, Ledger, question
from tests.component.tasks.world import ANN, Open, World, living
from tests.waiting import eventually
from xep.fluux_agent import errors
from xep.fluux_agent.execute import Accepted, Output, Result, State
from xep.fluux_agent.task import Progress, Tasks
from xep.jid import JID
from xep.stanza_error import StanzaError

NewLedger = Callable[[], Ledger]

DAY = 86_400_000
OPEN = "'accepted', 'running', 'input-required', 'cancelling'"


def ended(
    database: Ledger,
    task: str,
    *,
    who: JID = ALICE,
    text: str = "",
    told: bool = True,
    to: State = "completed",
) -> None:
    """A task that has ended a second after the one before it."""
    database.now += 1_000
    row = database.add(task, principal=who, state="running")
    result = Result(skill="report", outputs=(Output(name="o", text=text),))
    change(database, row, to, result if to == "completed" else None)
    if told:
        database.execute("UPDATE tasks SET unsent_revision = NULL WHERE id = ?", (task,))


def ids(database: Ledger) -> list[str]:
    return [id_ for (id_,) in database.execute("SELECT id FROM tasks ORDER BY id").fetchall()]


@pytest.mark.ports
def test_the_tasks_that_ended_first_go(new_ledger: NewLedger) -> None:
    database = new_ledger()
    for number in range(10):
        ended(database, f"t-{number}", to="failed" if number % 2 else "completed")
    assert remove(database, str(ALICE), Bounds(tasks=10), DAY).tasks == 0
    removed = remove(database, str(ALICE), Bounds(tasks=6), DAY)
    # To nine tenths, so that it is not done again at each end.
    assert (removed.tasks, removed.left_tasks, removed.more) == (5, 5, False)
    assert ids(database) == [f"t-{number}" for number in range(5, 10)]
    tables = ("events", "parts", "journal", "inputs")
    for table in tables:
        kept = database.execute(f"SELECT DISTINCT task FROM {table}").fetchall()
        assert {task for (task,) in kept} <= set(ids(database))


@pytest.mark.ports
def test_too_many_bytes_are_as_much_a_reason_as_too_many_tasks(new_ledger: NewLedger) -> None:
    database = new_ledger()
    ended(database, "t-1", text="x" * 10_000)
    ended(database, "t-2", text="x" * 100)
    _, size = kept_of(database, str(ALICE))
    assert 20_000 < size < 25_000  # the result stands in the row and in the last event
    assert remove(database, str(ALICE), Bounds(bytes=size), DAY).tasks == 0
    removed = remove(database, str(ALICE), Bounds(bytes=size - 1), DAY)
    assert (removed.tasks, removed.left_bytes) == (1, kept_of(database, str(ALICE))[1])
    assert ids(database) == ["t-2"]


@pytest.mark.ports
def test_what_is_open_or_not_sent_stays(new_ledger: NewLedger) -> None:
    database = new_ledger()
    for number, state in enumerate(("accepted", "running", "input-required", "cancelling")):
        database.add(f"open-{number}", state=state)
    ended(database, "unsent", told=False)
    ended(database, "sent")
    ended(database, "hers", who=BOB)
    assert remove(database, str(ALICE), Bounds(tasks=0, bytes=0), DAY).tasks == 1
    assert ids(database) == ["hers", *(f"open-{number}" for number in range(4)), "unsent"]
    assert remove(database, str(ALICE), Bounds(tasks=0, bytes=0), DAY).tasks == 0


def test_each_transaction_removes_a_portion(new_ledger: NewLedger) -> None:
    database = new_ledger()
    for number in range(150):
        ended(database, f"t-{number:03}")
    first = remove(database, str(ALICE), Bounds(tasks=0), DAY)
    assert (first.tasks, first.left_tasks, first.more) == (100, 50, True)
    second = remove(database, str(ALICE), Bounds(tasks=0), DAY)
    assert (second.tasks, second.left_tasks, second.more) == (50, 0, False)


def test_a_portion_is_counted_once(new_ledger: NewLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting after each removal takes quadratic time on a backlog."""
    database = new_ledger()
    for number in range(100):
        ended(database, f"t-{number:03}")
    statements: list[str] = []
    execute = database.execute

    def counted(sql: str, *parameters: Any) -> Any:
        statements.append(sql)
        return execute(sql, *parameters)

    monkeypatch.setattr(database, "execute", counted)
    assert remove(database, str(ALICE), Bounds(tasks=0), DAY).tasks == 100
    assert len([sql for sql in statements if sql.startswith("SELECT")]) == 3


@pytest.mark.ports
def test_the_record_of_a_removed_task_stays_for_its_window(new_ledger: NewLedger) -> None:
    database = new_ledger()
    database.replay("k", NOON + 30 * DAY, "t-1")
    ended(database, "t-1")
    remove(database, str(ALICE), Bounds(tasks=0), DAY)
    assert database.execute("SELECT task, expires FROM replay").fetchall() == [
        ("t-1", database.now + DAY)
    ]


@pytest.mark.ports
def test_those_who_exceed_a_bound_are_found(new_ledger: NewLedger) -> None:
    database = new_ledger()
    ended(database, "a-1")
    ended(database, "b-1", who=BOB)
    ended(database, "b-2", who=BOB)
    assert principals_over_limits(database, Bounds(tasks=2)) == []
    assert principals_over_limits(database, Bounds(tasks=1)) == [str(BOB)]
    assert principals_over_limits(database, Bounds(bytes=0)) == [str(ALICE), str(BOB)]


TEXT = st.text("aé\u2603", max_size=50)


@given(progress=st.lists(TEXT, max_size=3), parts=st.lists(TEXT, max_size=3), result=TEXT)
def test_a_task_has_the_bytes_of_all_its_texts(
    progress: list[str], parts: list[str], result: str
) -> None:
    database = Ledger()
    row = database.add(state="running")
    for text in progress:
        change(database, row, "running", Progress(text=text))
    for number, text in enumerate(parts):
        database.part("t-1", Output(name="p", part=number, text=text))
    database.ask("t-1", question("q-1", 1), 1)
    database.execute("INSERT INTO journal VALUES ('t-1', 'a', 0, 1, ?, NULL)", (result,))
    outcome = Result(skill="report", outputs=(Output(name="o", text=result),))
    change(database, row, "completed", outcome)
    columns = (
        *(("tasks", one) for one in ("request", "progress", "result", "failure")),
        *(("events", "detail"), ("parts", "output"), ("journal", "result")),
        *(("inputs", "question"), ("inputs", "answer")),
    )
    size = 512 + 96 * sum(map(database.count, ("events", "parts", "journal", "inputs")))
    for table, column in columns:
        found = database.execute(f"SELECT {column} FROM {table}").fetchall()
        size += sum(len((text or "").encode()) for (text,) in found)
    assert database.execute("SELECT bytes FROM tasks").fetchall() == [(size,)]


@pytest.mark.parametrize(
    ("sql", "index"),
    [
        (
            f"SELECT count(*), sum(bytes) FROM tasks WHERE principal = 'a' AND {ENDED}",
            "COVERING INDEX tasks_kept",
        ),
        (
            f"SELECT bytes FROM tasks WHERE share = 'a' AND state IN ({OPEN})",
            "COVERING INDEX tasks_open_bytes",
        ),
        (
            "SELECT sum(bytes) FROM replay WHERE principal = 'a' AND bytes > 0",
            "COVERING INDEX replay_kept",
        ),
    ],
)
def test_counting_reads_no_task(sql: str, index: str) -> None:
    (plan,) = Ledger().execute(f"EXPLAIN QUERY PLAN {sql}").fetchall()
    assert index in plan[3]


# In a service that runs.


@skill(name="say", read_only=True)
async def say(text: str) -> str:
    return text


RUNS: list[str] = []


@skill(name="deed")
async def deed(text: str) -> str:
    RUNS.append(text)
    return text


class Word(msgspec.Struct):
    word: str


@skill(name="wait", read_only=True, durable=True)
async def wait(context: Context, text: str) -> str:
    return (await context.ask("Which word?", Word)).word


@pytest.fixture(autouse=True)
def _no_runs() -> None:
    RUNS.clear()


async def gone(world: World, task: str) -> None:
    async def is_gone() -> bool:
        return await world.scalar("SELECT 1 FROM tasks WHERE id = ?", task) is None

    await eventually(is_gone)


@pytest.mark.anyio
async def test_one_principal_cannot_fill_the_disk(open_storage: Open) -> None:
    bounds = Bounds(tasks=100, bytes=200_000)
    async with living(open_storage, say, kept=bounds) as world:
        tasks = []
        for _ in range(40):
            tasks.append(await world.task("say", params={"text": "x" * 10_000}))
            await world.ear.ended(tasks[-1])
        await gone(world, tasks[0])

        async def within() -> bool:
            # A tenth may be added before it is looked at.
            size = await world.scalar("SELECT coalesce(sum(bytes), 0) FROM tasks")
            return int(size) <= bounds.bytes * 1.1

        await eventually(within)
        with pytest.raises(StanzaError) as caught:
            await world.get(tasks[0])
        assert caught.value.application == (errors.UnknownTask(),)
        assert (await world.get(tasks[-1])).state == "completed"


@pytest.mark.anyio
async def test_a_repetition_after_its_task_was_removed_runs_nothing(open_storage: Open) -> None:
    async with living(open_storage, deed, kept=Bounds(tasks=0)) as world:
        call = world.call("deed", request="r-1", mode="async", params={"text": "once"})
        first = await world.execute(call)
        assert isinstance(first, Accepted)
        await world.ear.ended(first.task)
        await gone(world, first.task)
    async with living(open_storage, deed) as world:
        assert await world.execute(call) == first
        assert RUNS == ["once"]


@pytest.mark.ports
@pytest.mark.anyio
async def test_a_repetition_whose_answer_was_dropped_runs_nothing(open_storage: Open) -> None:
    async with living(open_storage, deed, kept=Bounds(bytes=5_000)) as world:
        calls = [
            world.call("deed", request=f"r-{number}", params={"text": str(number) * 3_000})
            for number in range(3)
        ]
        for call in calls:
            assert isinstance(await world.execute(call), Result)

        async def bounded() -> bool:
            size = await world.scalar("SELECT coalesce(sum(length(answer)), 0) FROM replay")
            return int(size) < 8_000

        await eventually(bounded)
    async with living(open_storage, deed) as world:
        with pytest.raises(StanzaError) as caught:
            await world.execute(calls[0])
        assert caught.value.condition == "internal-server-error"
        assert caught.value.application == (errors.OutcomeUnknown(),)
        assert isinstance(await world.execute(calls[-1]), Result)
        assert len(RUNS) == 3


@pytest.mark.anyio
async def test_what_is_too_much_already_goes_at_the_start(open_storage: Open) -> None:
    async with living(open_storage, say) as world:
        tasks = [await world.task("say", params={"text": "x"}) for _ in range(5)]
        for task in tasks:
            await world.ear.ended(task)

        async def told() -> bool:
            return not await world.scalar(
                "SELECT count(*) FROM tasks WHERE unsent_revision IS NOT NULL"
            )

        await eventually(told)
    async with living(open_storage, say, kept=Bounds(tasks=0)) as world:
        await world.task("say", params={"text": "x"})  # the engine starts with the first work
        for task in tasks:
            await gone(world, task)


@pytest.mark.ports
@pytest.mark.anyio
async def test_requests_of_open_tasks_are_bounded_in_bytes(open_storage: Open) -> None:
    async with living(open_storage, wait, open_bytes=25_000) as world:
        for _ in range(2):
            await world.task("wait", params={"text": "x" * 10_000})
        with pytest.raises(StanzaError) as caught:
            await world.task("wait", params={"text": "x" * 10_000})
        assert caught.value.condition == "resource-constraint"
        await world.task("wait", params={"text": "x"})
        # Somebody else's do not count, nor is one refused that is alone.
        await world.task("wait", by=JID.parse("eve@b.example/x"), params={"text": "x" * 40_000})


@pytest.mark.ports
@pytest.mark.anyio
async def test_the_list_says_what_is_kept(open_storage: Open) -> None:
    async with living(open_storage, say) as world:
        task = await world.task("say", params={"text": "x" * 1_000})
        await world.ear.ended(task)

        async def listed() -> bool:
            return (await world.service.list(ANN.bare, ANN.bare, Tasks())).ended == 1

        await eventually(listed)
        found = await world.service.list(ANN.bare, ANN.bare, Tasks(state="running"))
        assert found.ended_bytes is not None
        assert 2_000 < found.ended_bytes < 6_000


@pytest.mark.ports
@pytest.mark.anyio
async def test_a_principal_with_too_many_records_is_refused_until_the_oldest_expires(
    open_storage: Open,
) -> None:
    """RPL-026; repetitions are answered all the same, and nobody else is refused."""
    async with living(open_storage, deed, records_per_principal=3) as world:
        first = world.call("deed", request="r-0", params={"text": "0"})
        answer = await world.execute(first)
        for number in (1, 2):
            await world.run("deed", request=f"r-{number}", params={"text": str(number)})
        for mode in ("auto", "async"):
            with pytest.raises(StanzaError) as caught:
                await world.run("deed", request="r-3", mode=mode, params={"text": "3"})
            (retry,) = caught.value.application
            assert isinstance(retry, errors.Retry)
            assert 86_000 < retry.after <= 86_400
        assert RUNS == ["0", "1", "2"]
        assert await world.execute(first) == answer
        await world.run("deed", by=BOB, request="r-3", params={"text": "bob"})
        await world.storage.write(
            lambda db: db.execute(
                "UPDATE replay SET expires = 1 WHERE key = ?", (key_of(first).text,)
            )
        )
        await world.run("deed", request="r-3", params={"text": "3"})
    assert RUNS == ["0", "1", "2", "bob", "3"]


@pytest.mark.anyio
async def test_records_of_a_minute_make_room_when_they_expire(open_storage: Open) -> None:
    async with living(open_storage, deed, records_per_principal=3) as world:
        for number in range(9):
            await world.run("deed", params={"text": str(number)})
            if number % 3 == 2:
                with pytest.raises(StanzaError) as caught:
                    await world.run("deed", params={"text": "too many"})
                (retry,) = caught.value.application
                assert isinstance(retry, errors.Retry)
                assert retry.after <= 60
                await world.storage.write(lambda db: db.execute("UPDATE replay SET expires = 1"))
        assert await world.scalar("SELECT count(*) FROM replay") == 3
    assert [str(number) for number in range(9)] == RUNS


@pytest.mark.ports
def test_open_tasks_are_counted_only_when_the_room_is_used_up(
    new_ledger: Callable[[], Ledger],
) -> None:
    ledger, bob = new_ledger(), str(BOB)
    bound = OpenBound(TaskLimits(tasks_per_principal=30))
    for number in range(30):
        bound.check(ledger, bob, "{}")
        ledger.add(f"t-{number}", principal=BOB)
    with pytest.raises(StanzaError):
        bound.check(ledger, bob, "{}")
    counted = [sql for sql in ledger.asked if sql.startswith("SELECT count(*)")]
    # On PostgreSQL other instances may have used the room, of which a tenth is used unseen.
    assert len(counted) == 2 if ledger.dialect == "sqlite" else len(counted) < 30
    bound.check(ledger, "carol@example.com", "{}")
    ledger.execute("UPDATE tasks SET state = 'completed' WHERE id IN ('t-3', 't-4')")
    bound.check(ledger, bob, "{}")


@pytest.mark.ports
def test_an_agent_has_a_limit_for_all_that_it_asks_for(new_ledger: Callable[[], Ledger]) -> None:
    ledger = new_ledger()
    limits = TaskLimits(tasks_per_principal=3, open_bytes=9_000)
    bound = OpenBound(limits, {"bot@a.example": 6, "bo@a.example": 1}.__getitem__)

    def add(number: int, share: str) -> None:
        bound.check(ledger, share, "{}")
        ledger.add(f"t-{number}", principal=BOB)
        ledger.execute(f"UPDATE tasks SET share = '{share}' WHERE id = 't-{number}'")

    for number in range(6):
        add(number, f"bot@a.example p{number}@a.example")
    with pytest.raises(StanzaError):
        add(6, "bot@a.example p6@a.example")
    with pytest.raises(StanzaError):
        add(6, "bot@a.example p0@a.example")
    # Others, whose names are similar, have limits of their own, and so has its own work.
    for number, share in enumerate(("bo@a.example p@a.example", "bot@a.examples", "bot@a.example")):
        add(10 + number, share)
    ledger.execute("UPDATE tasks SET state = 'completed', bytes = 2000 WHERE id = 't-3'")
    add(20, "bot@a.example p0@a.example")
    ledger.execute("UPDATE tasks SET bytes = 4000 WHERE share LIKE 'bot@a.example p%'")
    ledger.execute("UPDATE tasks SET state = 'completed' WHERE id = 't-4'")
    with pytest.raises(StanzaError):  # their requests together are too large
        add(21, "bot@a.example p8@a.example")


def test_the_requests_of_open_tasks_have_limited_bytes_together() -> None:
    ledger, bob = Ledger(), str(BOB)
    bound = OpenBound(TaskLimits(open_bytes=5_000))
    bound.check(ledger, bob, "x" * 8_000)  # the first one may be of any size
    ledger.add(principal=BOB)
    ledger.execute("UPDATE tasks SET bytes = 4000")
    with pytest.raises(StanzaError):
        bound.check(ledger, bob, "x" * 4_000)
    bound.check(ledger, bob, "{}")
