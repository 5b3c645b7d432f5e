"""Any sequence of requests, answers, jumps of the clock, and kills, against a model of the text.

After each step every task is what the model says, every revision has exactly one event, what has
ended has not changed, no step that was done has been done again, and nobody sees a stranger's task.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, ClassVar, TypeVar

import anyio
import msgspec
import pytest
import structlog
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from structlog.typing import EventDict, WrappedLogger

from component.store.clock import TOLERANCE_MS
from component.store.database import Database
from component.tasks import queries
from component.tasks.expiry import forget
from component.tasks.request import UNNAMED_WINDOW_S
from component.tasks.rows import milliseconds
from tests.component.tasks.machine_model import (
    WAYS,
    ModelTask,
    Put,
    Record,
    Script,
    first_answers,
    leaves_nothing,
)
from tests.component.tasks.machine_world import (
    ANN,
    BOB,
    CAROL,
    REPLAY_S,
    RETENTION_S,
    Life,
    condition,
    text,
)
from tests.component.tasks.world import AGENT
from tests.profiles import THOROUGH
from tests.servers.postgres import Postgres
from xep.binding import encode
from xep.data_forms import Form
from xep.fluux_agent.confirm import Decision
from xep.fluux_agent.execute import Accepted, Execute, Param, Result
from xep.fluux_agent.task import AnswerParams, Cancel, Events, InputAnswer, Task, Tasks
from xep.hashes import Hash
from xep.jid import JID
from xep.stanza_error import StanzaError

T = TypeVar("T")

OTHER = JID.parse("other@agent.example")
_ENDS = st.sampled_from(("", "", "", "n", "x"))
_SCRIPTS = st.one_of(
    st.builds(
        lambda kind, text, end, guarded: Script(kind, text + end, guarded),
        st.sampled_from(("durable", "durable", "repeatable")),
        st.text("gsSoa", max_size=4),
        _ENDS,
        st.sampled_from((False, False, True)),
    ),
    st.builds(
        lambda text, end, guarded: Script("atomic", text + end, guarded),
        st.text("go", max_size=2),
        _ENDS,
        st.booleans(),
    ),
    st.builds(lambda kind, guarded: Script(kind, "", guarded), st.sampled_from(("quick", "count")),
              st.sampled_from((False, False, False, True))),
)  # fmt: skip
_WHO = st.sampled_from((ANN, ANN, BOB))
_PICK = st.integers(0, 2**16)


@dataclass(frozen=True)
class Sent:
    """A request that can be sent again."""

    who: JID
    script: Script
    label: str
    mode: str
    request: str | None
    deadline: int | None
    stanza: str
    priority: Any = "normal"

    @property
    def key(self) -> tuple[str, str]:
        """By what it is recognised: without a name its content counts, too (RPL-005, RPL-006)."""
        if self.request:
            return str(self.who.bare), self.request
        return str(self.who), f"iq {self.stanza} {self.priority}"

    @property
    def window_ms(self) -> int:
        return round((REPLAY_S if self.request else UNNAMED_WINDOW_S) * 1000)

    @property
    def execute(self) -> Execute:
        mode: Any = self.mode
        deadline = None
        if self.deadline is not None:
            deadline = datetime.fromtimestamp(self.deadline / 1000, UTC)
        return Execute(
            skill=self.script.kind + (".guarded" if self.script.guarded else ""),
            mode=mode,
            request=self.request,
            deadline=deadline,
            priority=self.priority,
            context=self.label,
            params=(
                Param(name="label", text=self.label),
                Param(name="script", text=self.script.text),
            ),
        )


class Machine(RuleBasedStateMachine):
    """One agent, its callers, and those who kill it."""

    portal: ClassVar[BlockingPortal]
    new_database: ClassVar[Any] = None

    def __init__(self) -> None:
        super().__init__()
        self.life: Life | None = None
        self.tasks: dict[str, ModelTask] = {}
        self.records: dict[tuple[str, str], Record] = {}
        self.requests: dict[tuple[str, str], Sent] = {}
        self.seen_events: dict[str, dict[int, str]] = {}
        self.seen_ends: dict[str, str] = {}
        self.retained: dict[str, int] = {}
        self.kept: dict[str, int] = {}
        """Until when those that have ended are kept, by the steady clock."""
        self.updated: dict[str, int] = {}
        self.done: dict[tuple[str, int], tuple[int, int]] = {}
        """Steps done for good: how often they had begun by then, and in how many works."""
        self.scripts: dict[str, Script] = {}
        self.works: Counter[str] = Counter()
        """How often the work of a label was admitted."""
        self.drift = 0
        """Milliseconds by which the steady clock may have followed small steps of the other."""
        self.hashes: dict[str, Any] = {}
        """Of every question there was, by its identifier."""

    @initialize()
    def begin(self) -> None:
        made = self.new_database
        self.life = Life(self.portal, made() if made else "")

    def teardown(self) -> None:
        if self.life is not None:
            self.life.close()

    @property
    def now(self) -> int:
        if self.new_database:
            return self.read(lambda db: db.now)
        return self.at.clock.now

    @property
    def steady(self) -> int:
        """The time by which something lapses or is forgotten after a while."""
        if self.new_database:
            return self.read(lambda db: db.steady)
        return self.at.clock.steady

    @property
    def at(self) -> Life:
        assert self.life is not None
        return self.life

    def read(self, op: Callable[[Database], T]) -> T:
        return self.at.do(lambda: self.at.world.storage.read(op))

    # Requests.

    @rule(
        who=_WHO,
        script=_SCRIPTS,
        mode=st.sampled_from(("auto", "async", "inline")),
        named=st.booleans(),
        deadline_s=st.sampled_from((None, None, None, -1, 600, 1800, 7200)),
        within_limit=st.booleans(),
        times=st.sampled_from((1, 1, 2)),
    )
    def execute(
        self,
        who: JID,
        script: Script,
        mode: str,
        named: bool,
        deadline_s: int | None,
        within_limit: bool,
        times: int,
    ) -> None:
        self.at.clock.passes(1000)
        number = len(self.scripts)
        sent = Sent(
            *(who, script, f"l{number}", mode, f"r{number}" if named else None),
            None if deadline_s is None else self.now // 1000 * 1000 + deadline_s * 1000,
            f"i{number}",
        )
        self.scripts[sent.label] = script
        self.send(sent, within_limit, times)

    @rule(pick=_PICK, other=st.sampled_from((False, False, True)), times=st.sampled_from((1, 2)))
    def again(self, pick: int, other: bool, times: int) -> None:
        if not self.requests:
            return
        sent = list(self.requests.values())[pick % len(self.requests)]
        if other:
            sent = replace(sent, priority="high" if sent.priority == "normal" else "normal")
        if not self.is_clear(sent):
            return
        self.send(sent, True, times)

    def is_clear(self, sent: Sent) -> bool:
        """Whether it can be told what a request without a name is: not about a minute after the
        first, for small steps of the clock are followed; and two tasks would share their gates.
        """
        if sent.request is not None:
            return True
        known = self.records.get(sent.key)
        if known is not None and abs(known.expires - self.steady) <= self.drift:
            return False
        repeated = known is not None and self.steady < known.expires
        open_ = any(task.label == sent.label and not task.over for task in self.tasks.values())
        return repeated or not (open_ or sent.label in self.at.stage.all_open)

    def send(self, sent: Sent, within_limit: bool, times: int) -> None:
        """Send a request, and hold the answer against what the text allows."""
        key, known = sent.key, self.records.get(sent.key)
        kept = False if known is None else known.is_kept(self.steady, self.at.number)
        before = self.requests.get(key)
        waits = self.ahead(sent).waits
        within_limit = within_limit and not waits
        self.at.set_inline_limit(LONG if within_limit else 0)
        answers = self.at.do(self.at.execute, sent.who, sent.execute, sent.stanza, times)
        assert len({text(answer) for answer in answers}) == 1, answers
        answer = answers[0]
        self.requests.setdefault(key, sent)
        if known is not None and kept is not False:
            assert before is not None
            if before != sent:
                if kept or condition_of(answer) == "conflict":
                    assert condition_of(answer) == "conflict", answer
                    return
            elif known.answer is not None:
                if kept or text(answer) == known.answer:
                    assert text(answer) == known.answer
                    known.life = self.at.number
                    return
            else:
                self.learn(sent, known, answer)
                return
        self.requests[key] = sent
        self.begun(sent, answer, within_limit)

    def begun(self, sent: Sent, answer: Any, within_limit: bool) -> None:
        """New work has been answered with that."""
        now, script = self.now, self.ahead(sent)
        self.works[sent.label] += 1
        expires = self.steady + sent.window_ms
        if sent.deadline is not None and now >= sent.deadline:
            assert condition_of(answer) == "deadline-expired", answer
            self.leaves_nothing(sent)
            return
        allowed = first_answers(script, sent.mode, within_limit)
        got = kind_of(answer)
        assert got in allowed, (got, allowed, answer)
        if leaves_nothing(script, sent.mode):
            self.leaves_nothing(sent)
            return
        task = None
        if isinstance(answer, Accepted):
            assert answer.state == ("input-required" if script.guarded else "accepted")
            task = self.accept(sent, answer)
        elif isinstance(answer, Result):
            assert answer.is_error == script.text.endswith("n")
            assert answer.is_error or answer.outputs[-1].text == sent.label
        self.records[sent.key] = Record(
            *(str(sent.who.bare), text(answer), task is not None or not script.repeatable),
            *(self.at.number, expires, task, sent.request is not None),
        )

    def accept(self, sent: Sent, answer: Accepted) -> ModelTask:
        assert answer.task not in self.tasks, "a task of its own"
        task = ModelTask(answer.task, str(sent.who.bare), sent.label, sent.script, sent.deadline)
        task.opened = {
            place
            for place in range(len(sent.script.text))
            if sent.label in self.at.stage.all_open or (sent.label, place) in self.at.stage.open
        }
        self.tasks[task.id] = task
        if sent.script.guarded:
            task.state = "input-required"
        else:
            task.run()
        return task

    def ahead(self, sent: Sent) -> Script:
        """Its script without the gates that are open already."""
        stage, script = self.at.stage, sent.script
        letters = [
            {"g": ".", "S": "s"}.get(letter, letter)
            if sent.label in stage.all_open or (sent.label, place) in stage.open
            else letter
            for place, letter in enumerate(script.text)
        ]
        return replace(script, text="".join(letters))

    def leaves_nothing(self, sent: Sent) -> None:
        """RPL-003."""
        self.requests.pop(sent.key)
        self.records.pop(sent.key, None)

    def learn(self, sent: Sent, known: Record, answer: Any) -> None:
        """What came of a request whose first answer was lost with the process."""
        got = kind_of(answer)
        assert got in ("accepted", "result", "outcome-unknown", "timeout", "internal",
                       "confirmation-unavailable"), answer  # fmt: skip
        known.answer = text(answer)
        if isinstance(answer, Accepted):
            if answer.task not in self.tasks:
                self.accept(sent, answer)
                self.resolve(self.tasks[answer.task], crashed=True)
            known.task = self.tasks[answer.task]

    # Time.

    @precondition(lambda self: self.new_database is None)
    @rule(seconds=st.sampled_from((1, 30, 58, 600, 1801, 3600, 7200, 5 * 3600)))
    def pass_time(self, seconds: int) -> None:
        self.at.pass_time(seconds)
        for task in self.tasks.values():
            task.pass_time(self.now, self.steady)

    @precondition(lambda self: self.new_database is None)
    @rule(seconds=st.sampled_from((1, 600, 7200, 90 * 86400, -1, -600, -7200, -90 * 86400)))
    def set_clock(self, seconds: int) -> None:
        self.drift += abs(seconds) * 1000 if abs(seconds) * 1000 <= TOLERANCE_MS else 0
        self.at.set_clock(seconds)
        for task in self.tasks.values():
            task.pass_time(self.now, self.steady)

    @rule()
    def forget(self) -> None:
        self.at.do(lambda: self.at.world.storage.write(forget))
        for task in self.tasks.values():
            if (
                task.id in self.seen_ends
                and self.kept[task.id] < self.steady
                and task.expires < self.steady
            ):
                task.forgotten = True

    # People.

    @rule(pick=_PICK)
    def cancel(self, pick: int) -> None:
        task = self.pick(pick)
        if task is None:
            return
        gone = not self.is_seen(task)
        over = task.over
        query = Cancel(id=task.id)
        answer, error = self.ask(task.owner, lambda who: self.service.cancel(who, AGENT, query))
        if gone:
            assert condition(error) == "unknown-task"
            return
        assert error is None
        if over:
            assert encode(answer) == self.seen_ends[task.id]
        task.cancel()
        assert answer.state in (task.state, "cancelling")

    @rule(pick=_PICK, who=st.sampled_from((ANN, BOB, CAROL)), wrong_address=st.booleans())
    def meddle(self, pick: int, who: JID, wrong_address: bool) -> None:
        """TSK-010: what is not one's own is not there."""
        task, at = self.pick(pick), OTHER if wrong_address else AGENT
        if task is None:
            return
        if str(who.bare) == task.owner and not wrong_address:
            return
        service, me = self.service, who.bare
        works = [
            service.get(me, at, task.id),
            service.events(me, at, Events(id=task.id, since=0)),
            service.cancel(me, at, Cancel(id=task.id)),
        ]
        for put in task.questions:
            given = answer_of(task, put.id, put.revision, {"colour": "red"})
            works.append(service.answer(me, at, given))
        for work in works:
            assert condition(self.refusal(work)) == "unknown-task"
        if who is BOB or wrong_address:
            for put in task.questions:
                decision = Decision(id=put.id, value="approve")
                refused = self.refusal(service.decide(me, at, decision))
                assert condition(refused) == "unknown-confirmation"

    @rule(
        pick=_PICK,
        who=st.sampled_from(("owner", "owner", "carol")),
        value=st.sampled_from(("approve", "approve", "deny")),
        digest=st.sampled_from((None, "right", "wrong")),
    )
    def decide(self, pick: int, who: str, value: Any, digest: str | None) -> None:
        found = self.question(pick)
        if found is None:
            return
        task, put = found
        me = CAROL if who == "carol" else JID.parse(task.owner)
        hashed = None
        if digest == "wrong":
            hashed = Hash(algo="sha-256", digest=b"x" * 32)
        elif digest == "right":
            hashed = self.hashes.get(put.id)
        decision = Decision(id=put.id, value=value, hash=hashed)
        error = self.refusal(self.service.decide(me.bare, AGENT, decision))
        if not put.confirms or not self.is_seen(task):
            assert condition(error) == "unknown-confirmation"
            return
        expected = task.decide(put, value, wrong_hash=digest == "wrong", now=self.steady)
        assert condition(error) in (expected, self.at_the_deadline(task, expected))

    @rule(
        pick=_PICK,
        value=st.sampled_from(({"colour": "red"}, {"colour": "blue"}, {"colour": 1}, None)),
        wrong_revision=st.sampled_from((False, False, True)),
    )
    def answer(self, pick: int, value: Any, wrong_revision: bool) -> None:
        found = self.question(pick)
        if found is None:
            return
        task, put = found
        revision = put.revision + wrong_revision
        given = answer_of(task, put.id, revision, value)
        _, error = self.ask(task.owner, lambda who: self.service.answer(who, AGENT, given))
        if not self.is_seen(task):
            assert condition(error) == "unknown-task"
            return
        if put.confirms:
            assert condition(error) == "unknown-input"
            return
        fits = value is None or isinstance(value["colour"], str)
        expected = task.answer(
            put, value, fits=fits, wrong_revision=wrong_revision, now=self.steady
        )
        assert condition(error) in (expected, self.at_the_deadline(task, expected))

    def at_the_deadline(self, task: Any, expected: str | None) -> str | None:
        """At its deadline a task ends and its question expires, whichever is found out first."""
        over = task.deadline is not None and self.steady >= task.deadline
        return "expired" if over and expected == "conflict" else expected

    # The work itself, and its end by force.

    @rule(pick=_PICK)
    def let_on(self, pick: int) -> None:
        gates = self.at_gates()
        if not gates:
            return
        task = gates[pick % len(gates)]
        self.open_gate(task)
        task.run()

    @rule(pick=_PICK)
    def let_on_and_kill(self, pick: int) -> None:
        gates = self.at_gates()
        if not gates:
            return
        task = gates[pick % len(gates)]
        inside = task.inside
        self.open_gate(task)
        self.restart(but=task)
        effects = inside or any(
            place > task.at for place in task.script.steps() if not task.script.repeatable
        )
        task.run()
        self.resolve(task, crashed=effects)

    @rule()
    def kill(self) -> None:
        self.restart()

    @rule(
        who=_WHO,
        kind=st.sampled_from(("durable", "repeatable", "atomic")),
        letters=st.text("gsSo", max_size=3),
        mode=st.sampled_from(("auto", "inline")),
        named=st.booleans(),
    )
    def execute_and_kill(self, who: JID, kind: Any, letters: str, mode: str, named: bool) -> None:
        """The caller never hears of it; its task, if there was one by then, goes on unseen."""
        if kind == "atomic":
            letters = letters.replace("s", "").replace("S", "")
        number = len(self.scripts)
        script = self.scripts[f"l{number}"] = Script(kind, letters + "g")
        name = f"r{number}" if named else None
        sent = Sent(*(who, script, f"l{number}", mode, name, None, f"i{number}"))
        self.at.set_inline_limit(LONG)
        caller = self.portal.start_task_soon(self.at.execute, sent.who, sent.execute, sent.stanza)
        self.at.do(self.until_it_waits, sent.label)
        caller.cancel()
        self.works[sent.label] += 1
        self.at.stage.all_open.add(sent.label)
        self.requests[sent.key] = sent
        if not script.repeatable:
            expires = self.steady + sent.window_ms
            self.records[sent.key] = Record(str(who.bare), None, True, 0, expires, named=named)
        self.restart()
        # Its end has a time, which is to be this one: before the clock is set.
        self.at.do(self.until_the_unseen_ended)

    async def until_the_unseen_ended(self) -> None:
        unseen = (
            "SELECT count(*) FROM tasks WHERE promoted = 0"
            " AND state IN ('accepted', 'running', 'cancelling')"
        )
        while await self.at.world.scalar(unseen):  # noqa: ASYNC110
            await anyio.sleep(0.001)

    async def until_it_waits(self, label: str) -> None:
        while not any(one == label for one, _ in self.at.stage.waiting):  # noqa: ASYNC110
            await anyio.sleep(0.001)

    def restart(self, but: ModelTask | None = None) -> None:
        self.at.kill()
        for task in self.tasks.values():
            if task is not but:
                task.die()
        self.at.start()

    def at_gates(self) -> list[ModelTask]:
        return [task for task in self.tasks.values() if task.state == "running"]

    def open_gate(self, task: ModelTask) -> None:
        task.opened.add(task.at)
        self.portal.call(self.at.stage.let_on, task.label, task.at)

    def resolve(self, task: ModelTask, *, crashed: bool) -> None:
        """See which of the two ends it has come to that a kill at an unknown moment can have."""

        async def look() -> bool:
            while True:
                found = await self.look_at(task)
                if crashed and found.state == "failed" and why(found) == "outcome-unknown":
                    return True
                if self.is_like(task, found):
                    return False
                await anyio.sleep(0.002)

        if self.at.do(look):
            task.end("failed", "outcome-unknown")

    async def look_at(self, task: ModelTask) -> Task:
        found: Task = await self.service.get(JID.parse(task.owner), AGENT, task.id)
        return found

    # What has to hold.

    @invariant()
    def agrees(self) -> None:
        if self.life is None:
            return
        for task in self.tasks.values():
            self.compare(task)
        self.no_revision_without_event()
        for label, place in self.at.stage.began:
            self.nothing_twice(label, place)
        assert not self.at.ear.wrong

    def compare(self, task: ModelTask) -> None:
        if task.forgotten or not self.is_seen(task):
            work = self.service.get(JID.parse(task.owner), AGENT, task.id)
            assert condition(self.refusal(work)) == "unknown-task"
            return
        if task.id in self.seen_ends:
            now = self.at.do(self.look_at, task)
            assert encode(now) == self.seen_ends[task.id], "what has ended never changes"
            return
        found, events = self.at.do(self.settled, task)
        assert found.retain_until is not None
        assert found.updated is not None
        retained, updated = milliseconds(found.retain_until), milliseconds(found.updated)
        assert retained >= self.retained.get(task.id, 0)  # TSK-014
        assert updated >= self.updated.get(task.id, 0)  # TSK-005
        self.retained[task.id], self.updated[task.id] = retained, updated
        self.hold(task, found, events)
        if task.over:
            self.seen_ends[task.id] = encode(found)
            ago = self.now - updated if self.new_database else 0
            self.kept[task.id] = self.steady - ago + round(RETENTION_S * 1000)
            for record in self.records.values():
                if record.task is task and record.named:
                    record.expires = max(record.expires, self.kept[task.id])
                    task.expires = record.expires
        for place in task.script.steps():
            if place < task.at and (place >= 0 or task.state == "completed"):
                here = (task.label, place)
                self.done.setdefault(here, (self.at.stage.began[here], self.works[task.label]))

    async def settled(self, task: ModelTask) -> tuple[Task, Events]:
        """The task once it is as the model says."""
        who = JID.parse(task.owner)

        def op(db: Database) -> tuple[Task | None, Events | None]:
            query = Events(id=task.id, since=0)
            return queries.get(db, who, AGENT, task.id), queries.events(db, who, AGENT, query)

        found: Task | None = None
        with anyio.move_on_after(LONG):
            while True:
                # Looked at before: what it did on its way there is in what is read then.
                there = task.state != "running" or (task.label, task.at) in self.at.stage.waiting
                found, events = await self.at.world.storage.read(op)
                both = found is not None and events is not None
                if there and both and self.is_like(task, found):
                    ended = self.at.ear.ends.get(task.id)
                    if not task.over or ended == found.revision:
                        return found, events
                await anyio.sleep(0.002)
        raise AssertionError(f"the model says {task}, and there is {found}")

    def is_like(self, task: ModelTask, found: Task) -> bool:
        if found.state != task.state:
            return False
        if found.state == "running" and (task.label, task.at) not in self.at.stage.waiting:
            return False
        return found.failure is None or why(found) == task.why

    def hold(self, task: ModelTask, found: Task, events: Events) -> None:
        """The events are those of the task, each there once and as it was (EVT-001)."""
        assert found.revision is not None
        told = list(events.tasks)
        assert not events.gaps
        assert [one.revision for one in told] == list(range(1, found.revision + 1))
        before = "accepted"
        seen = self.seen_events.setdefault(task.id, {})
        for one in told:
            assert one.state in WAYS[before]
            before = one.state
            assert one.revision is not None
            assert seen.setdefault(one.revision, encode(one)) == encode(one)
        assert before == found.state
        shown = [output.name for one in told for output in one.outputs]
        assert len(set(shown)) == len(shown)
        if task.state in ("running", "input-required", "completed") and self.ran(task):
            text, at = task.script.text, task.at + (task.state == "completed")
            assert shown == [f"o{place}" for place in range(at) if text[place : place + 1] == "o"]
        if task.state == "completed":
            assert found.result is not None
            assert found.result.is_error == task.script.text.endswith("n")
        self.ask_seen(task, found)
        asked = [one for one in told if one.state == "input-required"]
        assert [one.revision for one in asked] == [put.revision for put in task.questions]

    def ran(self, task: ModelTask) -> bool:
        return not task.script.guarded or task.approved

    def ask_seen(self, task: ModelTask, found: Task) -> None:
        """A question that is there is known, or new and all that the text asks for."""
        content = found.confirm or found.input
        assert (content is not None) == (found.state == "input-required")
        if content is None:
            return
        assert content.expires is not None
        assert (found.confirm is not None) != self.ran(task)
        open_ = task.open
        if open_ is not None:
            assert open_.id == content.id
            return
        assert content.id not in self.hashes, "no identifier is used again"
        expires = milliseconds(content.expires)
        assert task.deadline is None or expires <= task.deadline  # CNF-015, INP-014
        self.hashes[content.id] = None if found.confirm is None else found.confirm.hash
        assert found.revision is not None
        until = expires - self.now + self.steady
        put = Put(content.id, found.revision, task.at, until, found.confirm is not None)
        task.questions.append(put)

    def no_revision_without_event(self) -> None:
        odd = self.read(
            lambda db: db.execute(
                "SELECT id FROM tasks WHERE revision <> (SELECT count(*) FROM events"
                " WHERE task = tasks.id)"
            ).fetchall()
        )
        assert not odd

    def nothing_twice(self, label: str, place: int) -> None:
        """RPL-018, and RPL-009 for what must not run twice."""
        stage, works = self.at.stage, self.works[label]
        began = stage.began[label, place]
        script = self.scripts[label]
        if not script.repeatable:
            assert began <= works, (label, place)
            assert script.kind == "count" or began == len(stage.keys[label, place])
        then, by = self.done.get((label, place), (began, works))
        assert began <= then + works - by, "a step that was done has been done again"

    @rule(who=_WHO, state=st.sampled_from((None, "running", "completed", "input-required")))
    def list_(self, who: JID, state: Any) -> None:
        """TSK-015: one's own, all of them, and no others."""
        page = self.at.do(lambda: self.service.list(who.bare, AGENT, Tasks(state=state)))
        mine = {
            task.id
            for task in self.tasks.values()
            if task.owner == str(who.bare) and self.is_seen(task) and state in (None, task.state)
        }
        listed = [task.id for task in page.tasks if task.context not in self.at.stage.all_open]
        assert set(listed) == mine - {
            task.id for task in self.tasks.values() if task.label in self.at.stage.all_open
        }
        assert len(listed) == len(set(listed))
        created = [task.created for task in page.tasks if task.created]
        assert created == sorted(created, reverse=True)

    # Small help.

    @property
    def service(self) -> Any:
        return self.at.world.service

    # No rule has a precondition: what there is depends on what answered first.

    def pick(self, number: int) -> ModelTask | None:
        """Any task, the last ones first."""
        tasks = list(self.tasks.values())
        if not tasks:
            return None
        return tasks[-1 - number % len(tasks)]

    def question(self, number: int) -> tuple[ModelTask, Put] | None:
        puts = [(task, put) for task in self.tasks.values() for put in task.questions]
        open_ = [(task, put) for task, put in puts if put.state == "open"]
        # More often those that can still be answered.
        puts = open_ if open_ and number % 3 else puts
        return puts[number % len(puts)] if puts else None

    def is_seen(self, task: ModelTask) -> bool:
        if task.forgotten:
            return False
        # What has just ended is kept from now on.
        return task.id not in self.seen_ends or self.kept[task.id] >= self.steady

    def ask(self, who: str, work: Callable[[JID], Any]) -> tuple[Any, StanzaError | None]:
        return self.at.do(lambda: self.at.refused(work(JID.parse(who))))

    def refusal(self, work: Awaitable[Any]) -> StanzaError | None:
        return self.at.do(lambda: self.at.refused(work))[1]


LONG = 10.0


def answer_of(task: ModelTask, question: str, revision: int, value: Any) -> InputAnswer:
    if value is None:
        form = Form(type="cancel")
        return InputAnswer(task=task.id, input=question, revision=revision, form=form)
    params = AnswerParams(json=msgspec.Raw(msgspec.json.encode(value)))
    return InputAnswer(task=task.id, input=question, revision=revision, params=params)


def kind_of(answer: Any) -> str | None:
    if isinstance(answer, Accepted):
        return "accepted"
    return "result" if isinstance(answer, Result) else condition(answer)


def condition_of(answer: Any) -> str | None:
    return condition(answer) if isinstance(answer, StanzaError) else None


def why(task: Task) -> str | None:
    assert task.failure is not None
    return type(task.failure.conditions[0]).xml.local


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> Iterator[None]:
    def drop(_logger: WrappedLogger, _name: str, _event: EventDict) -> EventDict:
        raise structlog.DropEvent

    before = structlog.get_config()["processors"]
    structlog.configure(processors=[drop])
    yield
    structlog.configure(processors=before)


def run(backend: str, postgres: Callable[[], str] | None = None, *, lives: int = 15) -> None:
    with start_blocking_portal(backend) as portal:

        class Here(Machine):
            pass

        Here.portal = portal
        Here.new_database = staticmethod(postgres) if postgres else None
        run_state_machine_as_test(
            Here,
            settings=settings(
                max_examples=2000 if THOROUGH else lives,
                stateful_step_count=50 if THOROUGH else 25,
                deadline=None,
            ),
        )


@pytest.mark.parametrize(("backend", "lives"), [("trio", 15), ("asyncio", 5)])
def test_any_life_of_tasks(backend: str, lives: int) -> None:
    run(backend, lives=lives)


@pytest.mark.thorough
@pytest.mark.parametrize("backend", ["trio", "asyncio"])
def test_any_life_of_tasks_on_postgresql(backend: str, postgres_server: Postgres) -> None:
    run(backend, postgres_server.new_database)
