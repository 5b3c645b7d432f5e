"""Whatever people, processes and clocks do while tasks run side by side on several instances.

Hypothesis draws letters, and how many steps each wait takes; each letter begins while those before
it are still under way. After each letter, and at the end, what there is is held against a small
model: what a script returns, and what may have ended it before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import anyio
import msgspec
import pytest
import structlog
from anyio.lowlevel import checkpoint
from hypothesis import given
from hypothesis import strategies as st

from component.store.errors import StorageError
from component.store.sqlite import SQLite
from component.tasks.admin import RefusedError, TaskAdmin
from component.tasks.expiry import forget
from component.tasks.leases import SUSPECT_ATTEMPTS
from component.tasks.protocol import QueueLimits, TaskLimits
from component.tasks.request import Confirmation
from component.tasks.rows import COLUMNS, QUEUED, TERMINAL, Row
from tests.component.agent.interleaved import in_order_of
from tests.component.tasks.interleaved import (
    Cluster,
    Instance,
    a_database,
    empty,
    without_chance,
)
from tests.component.tasks.interleaved_skills import SLEEP_S, Script, answer_to, result_of
from tests.component.tasks.machine_model import WAYS
from tests.component.tasks.world import AGENT, ANN, BOB
from tests.profiles import examples
from xep.binding import read
from xep.fluux_agent.confirm import Decision
from xep.fluux_agent.execute import Accepted, Result
from xep.fluux_agent.task import AnswerParams, Cancel, Failure, InputAnswer
from xep.jid import JID
from xep.stanza_error import StanzaError

WEEK_S: Final = 7 * 86_400.0
DAY_MS: Final = 86_400_000
SKILLS: Final = ("play", "calm", "queued", "retried")

Letter = tuple[Any, ...]


@dataclass
class Request:
    """What somebody asked for, and asks for again until it is answered."""

    label: str
    skill: str
    script: Script
    by: JID
    mode: str
    guarded: bool
    slow: int
    task: str = ""
    over: bool = False
    """It was answered without a task, or with an error for good."""
    retries: list[str] = field(default_factory=list)


class Model:
    """Plays letters, and knows what may come of them."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.requests: list[Request] = []
        self.of: dict[str, Request] = {}
        self.cancelled: set[str] = set()
        self.denied: set[str] = set()
        self.crashed: set[str] = set()
        """Tasks that an execution may have been torn from."""
        self.torn = False
        """Whether a request may have been torn apart, which is not a task yet."""
        self.ended: dict[str, tuple[str, int]] = {}
        self.released = False

    # Letters.

    async def play(self, letter: Letter) -> None:
        kind, *rest = letter
        await getattr(self, f"_{kind}")(*rest)

    def _alive(self, pick: int) -> Instance | None:
        alive = self.cluster.alive
        return alive[pick % len(alive)] if alive else None

    def _soon(self, one: Instance, work: Callable[[], Any]) -> None:
        """Ask an instance for something, while other things happen."""

        async def asked() -> None:
            try:
                await work()
            except StanzaError:
                pass  # another one was first
            except StorageError:
                pass

        self.cluster.group.start_soon(one.client, asked)

    async def _begin(
        self, pick: int, skill: str, script: Script, who: JID, mode: str, guarded: bool, slow: int
    ) -> None:
        label = f"l{len(self.requests)}"
        request = Request(label, skill, script, who, mode, guarded, slow)
        if _can_fail(script):
            self.cluster.stage.broken.add(label)
        self.requests.append(request)
        await self._send(request, pick)

    async def _again(self, pick: int, number: int) -> None:
        if self.requests:
            await self._send(self.requests[number % len(self.requests)], pick)

    async def _send(self, request: Request, pick: int) -> None:
        able = [one for one in self.cluster.alive if request.skill in one.world.skills]
        if not able:
            return
        one = able[pick % len(able)]
        call = one.world.call(
            request.skill,
            by=request.by,
            mode=request.mode,
            request=request.label,
            confirm=Confirmation((request.by.bare,), expires_s=WEEK_S) if request.guarded else None,
            json={
                "label": request.label,
                "script": msgspec.json.encode(request.script).decode(),
                "slow": request.slow,
            },
        )

        async def execute() -> None:
            try:
                answer = await one.world.execute(call)
            except StanzaError as error:
                self._refused(request, error)
            else:
                self._answered(request, answer)

        self._soon(one, execute)

    def _answered(self, request: Request, answer: Result | Accepted) -> None:
        # The record of what may run twice is in the memory of one instance (RPL-015).
        once = request.skill != "calm"
        if isinstance(answer, Accepted):
            assert request.task in ("", answer.task) or not once, "a repetition began another task"
            assert not (request.over and once), "a repetition began a task"
            request.task = answer.task
            self.of[answer.task] = request
        else:
            assert not (request.task and once), "a repetition was done at once"
            assert answer.outputs[-1].text == result_of(request.label, request.script)
            request.over = True

    def _refused(self, request: Request, error: StanzaError) -> None:
        condition = type(error.application[0]).xml.local if error.application else error.condition
        if condition == "retry":  # busy: it may pass
            return
        assert not request.task, f"a repetition of a task was answered with {condition}"
        assert request.mode == "auto", condition
        if condition == "internal":
            assert _can_fail(request.script)
        else:
            assert condition == "outcome-unknown", condition
            assert request.skill != "calm"
            assert self.torn, "nothing was killed"
        request.over = True

    async def _answer(self, pick: int, number: int, approve: bool) -> None:
        one = self._alive(pick)
        asked = self._tasks("state = 'input-required'")
        if one is None or not asked:
            return
        row = asked[number % len(asked)]
        self._soon(one, partial(self._say, one, row, approve))

    async def _say(self, one: Instance, row: Row, approve: bool) -> None:
        who = JID.parse(row.principal)
        task = await one.service.get(who, AGENT, row.id)
        if task.confirm is not None:
            if not approve:
                self.denied.add(row.id)
            value: Any = "approve" if approve else "deny"
            await one.service.decide(who, AGENT, Decision(id=task.confirm.id, value=value))
        elif task.input is not None:
            values = {"colour": answer_to(task.input.questions[0].text)}
            params = AnswerParams(json=msgspec.Raw(msgspec.json.encode(values)))
            await one.service.answer(
                *(who, AGENT),
                InputAnswer(
                    task=row.id, input=task.input.id, revision=task.input.revision, params=params
                ),
            )

    async def _cancel(self, pick: int, number: int) -> None:
        one, tasks = self._alive(pick), self._tasks("state NOT IN ('completed', 'failed')")
        if one is None or not tasks:
            return
        row = tasks[number % len(tasks)]
        self.cancelled.add(row.id)
        query = Cancel(id=row.id)
        self._soon(one, lambda: one.service.cancel(JID.parse(row.principal), AGENT, query))

    async def _retry(self, pick: int, number: int, repaired: bool) -> None:
        one, failed = self._alive(pick), self._tasks("state = 'failed' AND parent IS NULL")
        failed = [row for row in failed if row.id in self.of]
        if one is None or not failed:
            return
        row = failed[number % len(failed)]
        request = self.of[row.id]
        if repaired:
            self.cluster.stage.broken.discard(request.label)

        async def retry() -> None:
            try:
                held = await self._ledger(one).retry(row.id)
            except (RefusedError, StorageError):
                return
            if held is not None and held.task.id is not None:
                self.of[held.task.id] = request
                request.retries.append(held.task.id)

        # Two at a time would do the same work twice, which is the operator's to know.
        busy = [self._row(task) for task in request.retries]
        if (
            all(one.state == "failed" for one in busy)
            and row.id == [request.task, *request.retries][-1]
        ):
            await one.client(retry)

    def _ledger(self, one: Instance) -> TaskAdmin:
        return TaskAdmin(
            one.storage, TaskLimits(retention_s=1), requeued=lambda _: one.service.requeued()
        )

    async def _let(self) -> None:
        self.cluster.stage.let_on()

    async def _kill(self, number: int) -> None:
        one = self.cluster.all[number % len(self.cluster.all)]
        if one.alive:
            with self._tearing(certainly=True):
                await one.kill()

    async def _start(self, number: int) -> None:
        one = self.cluster.all[number % len(self.cluster.all)]
        if not one.alive:
            with self._tearing():
                await one.start()

    async def _drain(self, number: int) -> None:
        """A restart in good order."""
        one = self.cluster.all[number % len(self.cluster.all)]
        if one.alive:
            apart = any(other.apart for other in self.cluster.all)
            one.storage.draining = True
            self.cluster.stage.let_on()
            await one.client(one.service.drain)
            with self._tearing(certainly=True) if apart else nullcontext():
                await one.kill()
                await one.start()

    async def _evict(self, number: int) -> None:
        """The heartbeat of one stops."""
        one = self.cluster.all[number % len(self.cluster.all)]
        with self._tearing():
            await self.cluster.watch(but=one)

    async def _beat(self, number: int) -> None:
        with self._tearing():
            await self.cluster.beat(self.cluster.all[number % len(self.cluster.all)])

    async def _refuse(self, number: int, times: int) -> None:
        one = self._alive(number)
        if one is not None:
            one.storage.refuses += times

    async def _jump(self, ms: int, pick: int) -> None:
        self.cluster.clock.wall += ms
        self._look(pick)

    async def _pass(self, seconds: int, pick: int) -> None:
        self.cluster.clock.passes(seconds * 1000)
        self._look(pick)

    def _look(self, pick: int) -> None:
        """The first one notices it."""
        one = self._alive(pick)
        if one is not None:
            one.service._timer.wake()

    async def _forget(self, pick: int) -> None:
        one = self._alive(pick)
        if one is not None:
            self._soon(one, lambda: one.storage.write(forget))

    async def _rest(self) -> None:
        """Nothing happens for a while: every task that can run does."""
        await self.cluster.quiet()
        # That another instance has the skill, or is dead, is seen at a heartbeat only.
        unheard = any(row.skill == "newer" for row in self._tasks(QUEUED))
        if unheard or self.cluster.corpses or any(one.apart for one in self.cluster.alive):
            for one in self.cluster.alive:
                one.storage.refuses = 0  # a heartbeat that is refused is followed by another one
                await self._beat(one.number)
        await self.cluster.quiet()
        self.check()
        self.idle()

    # What has to hold.

    @contextmanager
    def _tearing(self, *, certainly: bool = False) -> Iterator[None]:
        """Where instances come or go, an execution may be torn from what has not ended before."""
        over = {row.id for row in self._tasks("1 = 1") if row.state in TERMINAL}
        before = self.cluster.rows("SELECT id FROM instances ORDER BY id")
        yield
        if certainly or before != self.cluster.rows("SELECT id FROM instances ORDER BY id"):
            self.crashed |= {row.id for row in self._tasks("1 = 1")} - over
            self.torn = True

    def _tasks(self, condition: str) -> list[Row]:
        sql = f"SELECT {COLUMNS} FROM tasks WHERE {condition} ORDER BY created, id"
        return [Row(*row) for row in self.cluster.rows(sql)]

    def _row(self, task: str) -> Row:
        (row,) = self._tasks(f"id = '{task}'")
        return row

    def check(self) -> None:
        """What holds at any time."""
        cluster = self.cluster
        assert not cluster.stage.wrong, cluster.stage.wrong
        rows = {row.id: row for row in self._tasks("1 = 1")}
        events: dict[str, list[tuple[int, str]]] = {}
        for task, revision, state in cluster.rows(
            "SELECT task, revision, state FROM events ORDER BY task, revision"
        ):
            events.setdefault(task, []).append((revision, state))
        for row in rows.values():
            self._one(row, events.get(row.id, []))
        assert self.ended.keys() <= rows.keys(), "a task was deleted too early"
        fences: set[tuple[str, int]] = set()
        for one in cluster.alive:
            worker = one.service._worker
            assert worker.slots._sum >= 0
            for execution in worker._runs.values():
                row_ = execution.row
                if row_ is None or execution._parked or execution._over:
                    continue
                fence = (row_.id, row_.fence)
                assert fence not in fences, "two executions of one fence"
                fences.add(fence)
        queued = [row for row in rows.values() if row.queue == "q" and row.owner is not None]
        assert len(queued) <= 1, "the queue has one place"

    def _one(self, row: Row, events: list[tuple[int, str]]) -> None:
        assert [revision for revision, _ in events] == list(range(1, row.revision + 1))
        before = "accepted"
        for _, state in events:
            assert state in WAYS.get(before, ()), f"{state} after {before}"
            before = state
        assert not events or before == row.state
        if row.state not in TERMINAL:
            return
        end = (row.state, row.revision)
        assert self.ended.setdefault(row.id, end) == end, "it ended twice"

    def idle(self) -> None:
        """What holds when nothing moves: nobody waits who could run, and no slot is lost."""
        cluster = self.cluster
        running = set()
        for one in cluster.alive:
            worker = one.service._worker
            held = [each for each in worker._runs.values() if each.slot is not None]
            assert worker.slots._sum == len(held), "a slot was lost"
            running |= {(one.service.instance, task) for task in worker._runs}
        known = {name for (name,) in cluster.rows("SELECT id FROM instances")}
        for row in self._tasks("owner IS NOT NULL"):
            dead = row.owner not in {one.service.instance for one in cluster.alive}
            apart = row.owner not in known
            assert dead or apart or (row.owner, row.id) in running, f"nobody runs {row}"
        suspects = [row for row in self._tasks("1 = 1") if row.attempts >= SUSPECT_ATTEMPTS]
        full = bool(self._tasks("queue = 'q' AND owner IS NOT NULL"))
        for row in self._tasks(QUEUED):
            if (full and row.queue == "q") or row in suspects:
                continue
            for one in cluster.alive:
                slots = one.service._worker.slots
                assert (
                    one.apart or row.skill not in one.world.skills or not slots.has(row.principal)
                ), f"{row} waits beside {one.number}"
        for row in self._tasks("waits > 0"):
            (count,) = cluster.rows(
                "SELECT count(*) FROM waiters JOIN tasks ON tasks.id = task WHERE waiter = ?"
                " AND state NOT IN ('completed', 'failed', 'rejected', 'cancelled')",
                row.id,
            )[0]
            assert count, f"{row} waits for nothing"

    # The end.

    async def end(self) -> None:
        """Repair everything, and see all tasks end."""
        cluster = self.cluster
        cluster.stage.all_open = True
        cluster.stage.let_on()
        for one in cluster.all:
            if not one.alive:
                await self._start(one.number)
        for _ in range(80):
            for one in cluster.alive:
                one.storage.refuses = 0
                await self._beat(one.number)
            await cluster.quiet()
            self.check()
            if self._over():
                break
            await self._help()
            await self._pass(int(SLEEP_S) + 1, 0)
        else:
            left = [row for row in self._tasks("1 = 1") if row.state not in TERMINAL]
            raise AssertionError(f"it never ends: {left} {self.requests}")
        self.idle()
        for one in cluster.alive:
            assert not one.service._worker.slots.running, "a slot was lost"
        for row in self._tasks("1 = 1"):
            self._ended_as_it_should(row)

    def _over(self) -> bool:
        asked = all(request.task or request.over for request in self.requests)
        return asked and all(row.state in TERMINAL for row in self._tasks("1 = 1"))

    async def _help(self) -> None:
        """What people and operators do who want to see the end of it."""
        one = self.cluster.alive[0]
        for row in self._tasks("state = 'input-required'"):
            self._soon(one, partial(self._say, one, row, True))
        for row in self._tasks("set_aside IS NOT NULL"):
            self._soon(one, partial(self._ledger(one).release, row.id))
        for request in self.requests:
            if not (request.task or request.over):
                await self._send(request, 0)

    def _ended_as_it_should(self, row: Row) -> None:
        request, script, label = self._script_of(row)
        torn = row.id in self.crashed and row.skill != "calm"
        parent = None if row.parent is None else self._row(row.parent)
        stopped = row.id in self.cancelled or (parent is not None and self._stopped(parent))
        if row.state == "completed":
            assert row.result is not None
            text = read(row.result, Result).outputs[-1].text
            whole = all(one.state == "completed" for one in self._children(row))
            if whole:
                assert text == result_of(label, script), text
            return
        if row.state == "cancelled":
            assert stopped, f"nobody cancelled {row}"
            return
        assert row.state == "failed", row
        assert row.failure is not None
        (condition,) = [one.xml.local for one in read(row.failure, Failure).conditions]
        match condition:
            case "denied":
                assert row.id in self.denied
            case "internal":
                assert _can_fail(script)
                assert request is not None
            case "outcome-unknown":
                assert torn or (stopped and row.skill != "calm"), f"unknown without reason: {row}"
            case _:
                raise AssertionError(condition)

    def _stopped(self, row: Row) -> bool:
        """Whether its children may be cancelled."""
        return row.state != "completed" or row.id in self.cancelled

    def _children(self, row: Row) -> Sequence[Row]:
        """A retried task keeps the children of the task that failed."""
        request = self.of.get(row.id)
        tasks = [row.id] if request is None else [request.task, *request.retries]
        parents = ", ".join(f"'{task}'" for task in tasks)
        return self._tasks(f"parent IN ({parents})")

    def _script_of(self, row: Row) -> tuple[Request | None, Script, str]:
        request = self.of.get(row.id)
        if request is not None:
            return request, request.script, request.label
        arguments = msgspec.json.decode(row.request)["json"]
        return None, msgspec.json.decode(arguments["script"]), arguments["label"]


def _can_fail(script: Script) -> bool:
    return any(part in str(script) for part in ("broken", "shaky", "flaky"))


# What is drawn.

_PICK = st.integers(0, 11)
_LEAVES = st.one_of(
    st.just(["step"]),
    st.tuples(st.just("fan"), st.integers(2, 4), st.sampled_from(("key", "input"))).map(list),
    st.tuples(st.just("both"), st.integers(1, 3)).map(list),
    st.just(["ask"]),
    st.just(["sleep"]),
    st.just(["hold"]),
)
_SHORT = st.lists(_LEAVES, min_size=1, max_size=2)
_PARTS = st.one_of(
    _LEAVES,
    _LEAVES,
    st.tuples(st.just("tree"), st.lists(_SHORT, min_size=1, max_size=3)).map(list),
    st.just(["broken"]),
    st.just(["shaky"]),
)
_SCRIPTS = st.lists(_PARTS, min_size=1, max_size=5)
_BEGIN = st.tuples(
    st.just("begin"),
    _PICK,
    st.sampled_from(("play", "play", "calm", "queued", "retried", "newer")),
    _SCRIPTS,
    st.sampled_from((ANN, BOB)),
    st.sampled_from(("async", "async", "auto")),
    st.sampled_from((False, False, False, True)),
    st.sampled_from((0, 0, 8, 80)),
).map(lambda drawn: _flaky(drawn) if drawn[2] == "retried" else drawn)


def _flaky(letter: Letter) -> Letter:
    kind, pick, skill, script, *rest = letter
    return (kind, pick, skill, [*script, ["flaky", 2]], *rest)


_LETTERS = st.one_of(
    _BEGIN,
    _BEGIN,
    _BEGIN,
    st.tuples(st.just("answer"), _PICK, _PICK, st.sampled_from((True, True, True, False))),
    st.tuples(st.just("answer"), _PICK, _PICK, st.just(True)),
    st.tuples(st.just("again"), _PICK, _PICK),
    st.tuples(st.just("cancel"), _PICK, _PICK),
    st.tuples(st.just("retry"), _PICK, _PICK, st.booleans()),
    st.tuples(st.just("kill"), _PICK),
    st.tuples(st.just("start"), _PICK),
    st.tuples(st.just("drain"), _PICK),
    st.tuples(st.just("evict"), _PICK),
    st.tuples(st.just("beat"), _PICK),
    st.tuples(st.just("refuse"), _PICK, st.integers(1, 2)),
    st.tuples(
        st.just("jump"),
        st.sampled_from((-2, 2, -18_000, 18_000, 1 / 24)).map(lambda days: int(days * DAY_MS)),
        _PICK,
    ),
    st.tuples(st.just("pass"), st.sampled_from((1, 61, 61, 3600)), _PICK),
    st.tuples(st.just("forget"), _PICK),
    st.tuples(st.just("let")),
    st.tuples(st.just("rest")),
    st.tuples(st.just("rest")),
)
_STEPS = st.lists(st.integers(0, 5), min_size=3, max_size=30)
_GAPS = st.sampled_from((0, 0, 3, 10, 30, 100))
_STORIES = st.builds(
    lambda first, then: first + then,
    st.lists(st.tuples(_BEGIN, _GAPS), min_size=1, max_size=4),
    st.lists(st.tuples(_LETTERS, _GAPS), min_size=4, max_size=20),
)
_SLOTS = st.lists(st.sampled_from((1, 2, 4)), min_size=2, max_size=3)


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SQLite]:
    with a_database(tmp_path_factory.mktemp("interleaved")) as database:
        yield database


def run(
    backend: str,
    database: SQLite,
    seed: int,
    steps: Sequence[int],
    slots: Sequence[int],
    story: Sequence[tuple[Letter, int]],
) -> None:
    async def told() -> None:
        empty(database)
        older = [SKILLS] * (len(slots) - 1)
        skills = [(*SKILLS, "newer"), *older]
        limits = {
            "inline_s": 0.0,
            "drain_s": 3600.0,
            "ask_expires_s": WEEK_S,
            "queues": {"q": QueueLimits(1)},
        }
        cluster = Cluster(database, steps, slots, skills, **limits)
        model = Model(cluster)
        async with cluster.open():
            for letter, gap in story:
                await model.play(letter)
                model.check()
                for _ in range(gap):
                    await checkpoint()
            await model.end()

    with without_chance(), in_order_of(seed), structlog.testing.capture_logs() as logs:
        anyio.run(told, backend=backend)
    faults = [line for line in logs if line.get("exc_info")]
    assert not [line for line in faults if "broke" in line["event"]], faults


@pytest.mark.parametrize("backend", ["trio", "asyncio"])
@examples(15, 3000)
@given(steps=_STEPS, seed=st.integers(0, 2**32), slots=_SLOTS, story=_STORIES)
def test_any_story_of_several_instances(
    backend: str,
    database: SQLite,
    steps: list[int],
    seed: int,
    slots: list[int],
    story: list[tuple[Letter, int]],
) -> None:
    run(backend, database, seed, steps, slots, story)


def begins(pick: int, *script: Any, skill: str = "play") -> tuple[Letter, int]:
    return ("begin", pick, skill, list(script), ANN, "async", False, 0), 100


@pytest.mark.parametrize(
    ("backend", "seed"),
    [
        ("trio", 0),
        ("trio", 1),
        ("asyncio", 2),
        *(
            pytest.param(backend, seed, marks=pytest.mark.thorough)
            for backend, seed in [("trio", 2), ("trio", 3), *(("asyncio", s) for s in (0, 1, 3))]
        ),
    ],
)
@pytest.mark.parametrize(
    "story",
    [
        # The one that finds a task due is full.
        [begins(0, ["sleep"]), begins(0, ["hold"]), (("pass", 61, 0), 0), (("rest",), 0)],
        # The one where a child ends is full.
        [
            begins(0, ["tree", [[["hold"]]]]),
            begins(1, ["hold"]),
            begins(0, ["hold"]),
            (("let",), 100),
            (("rest",), 0),
        ],
        # The one that takes an answer is full.
        [begins(0, ["ask"]), begins(1, ["hold"]), (("answer", 1, 0, True), 0), (("rest",), 0)],
        # A task that sleeps leaves its queue.
        [
            begins(0, ["sleep"], skill="queued"),
            begins(1, ["step"], skill="queued"),
            (("rest",), 0),
        ],
        # The clock jumps; what must not be repeated is not.
        [
            begins(0, ["step"]),
            (("rest",), 0),
            (("jump", 18_000 * DAY_MS, 0), 100),
            (("forget", 1), 100),
            (("kill", 0), 0),
            (("start", 0), 0),
            (("again", 0, 0), 100),
            (("jump", -36_000 * DAY_MS, 0), 100),
            (("forget", 0), 100),
            (("again", 1, 0), 100),
            (("rest",), 0),
        ],
        # A retry goes on from the journal, with the same idempotency keys.
        [
            begins(0, ["step"], ["shaky"], ["step"]),
            (("rest",), 0),
            (("retry", 1, 0, True), 30),
            (("rest",), 0),
        ],
        # A task is cancelled wherever it is on its way from one execution to the next.
        [begins(0, ["tree", [[["step"]]]], ["sleep"]), (("cancel", 1, 0), 10), (("rest",), 0)],
    ],
)
def test_stories_that_once_went_wrong(
    backend: str, database: SQLite, seed: int, story: list[tuple[Letter, int]]
) -> None:
    run(backend, database, seed, [0, 1, 2, 3, 1], [1, 1], story)
