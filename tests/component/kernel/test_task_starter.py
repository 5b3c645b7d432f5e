"""Work is recorded once, judged by the rights of the moment, and its result is told once."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from types import SimpleNamespace
from typing import Any

import anyio
import msgspec
import pytest

from component.agent.requests import Outcome, TurnRequest
from component.features.notifications import notifier as results_module
from component.features.notifications.notifier import Ended, Results
from component.kernel import started_work
from component.kernel.goals import GOAL, goal_skill
from component.kernel.task_starter import TaskStarter
from component.kernel.triggers import Trigger, Work
from component.memory_directory.layout import SessionKey
from component.policy.flows import AgentLimits, Flow, Flows
from component.skills import Registry, Skill, View, skill
from component.store import Storage
from component.store.database import Database
from component.store.notifications import Notification, Subject
from component.tasks.gate import Gate, arguments_of
from component.tasks.request import OnAccepted, Request, key_of
from tests.component.features.schedules.year import JULIET, ROMEO
from tests.waiting import eventually
from xep.fluux_agent.execute import Accepted, Output, Result
from xep.fluux_agent.task import Failure, Task
from xep.jid import JID
from xep.stanza_error import StanzaError

pytestmark = pytest.mark.anyio

WORK = Work(agent="assistant", principal=JULIET, skill="report", params=msgspec.Raw(b'{"a":1}'))
GOAL_WORK = Work(agent="assistant", principal=JULIET, goal="Look.")


def trigger(key: str = "1", **more: Any) -> Trigger:
    return Trigger(source="schedule", name="s", key=key, **more)


def address_of(agent: str, _person: JID | None = None, asked_at: JID | None = None) -> JID:
    return asked_at or JID(agent, "agent.example")


@skill
def report(a: int) -> str:
    """Report."""
    return str(a)


class Killed(Exception):  # noqa: N818 - it is not an error of the service
    """The process has ended."""


class Backend:
    """The rest of the service: who may do what, and the tasks that were made."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.admitted = {JULIET, ROMEO}
        self.paused = False
        self.requests: list[Request] = []
        self.internal: list[tuple[Request, Skill]] = []
        self.gate = Gate(self.view, Flows())
        self.tasks: dict[str, Task] = {}
        self.error: StanzaError | None = None
        self.telling: list[tuple[str, str, Work]] = []
        self.told: list[tuple[str, str, Work]] = []
        self.stopped: list[str] = []
        self.ends = False
        self.fails_to_tell = 0
        self.hangs_at: str | None = None
        self.is_hanging = False
        self.registry = Registry((report,))
        self.late: list[str] = []
        conversations: Any = self
        self.goal: Skill | None = goal_skill(conversations, address_of)

    # Who may do what.

    def admits(self, principal: JID) -> bool:
        return principal in self.admitted

    def check(self, principal: JID) -> None:
        if self.paused:
            raise StanzaError("resource-constraint", "Paused.")

    def view(self, principal: JID) -> View:
        return self.registry.view("all", lambda _: True)

    # The tasks.

    async def execute(
        self,
        request: Request,
        _on_result: object = None,
        internal: Skill | None = None,
        *,
        also: OnAccepted,
    ) -> Accepted:
        await anyio.lowlevel.checkpoint()
        if self.error is not None:
            raise self.error
        if internal is not None:
            self.internal.append((request, internal))
        else:
            request = self.gate.passed(request, self.gate.visible(request))
        self.check(request.principal)
        self.requests.append(request)
        task = key_of(request).text[:32]
        if task not in self.tasks:
            self.tasks[task] = Task(id=task, state="running")
            await self.storage.write(lambda database: also(database, task))
        if self.ends:
            raise Killed
        return Accepted(
            task=task,
            state="accepted",
            retain_until=datetime(2030, 1, 1, tzinfo=UTC),
            poll_after=5,
        )

    async def get(self, who: JID, at: JID, task: str) -> Task:
        return self.tasks[task]

    # The notifier, and the conversations.

    def notifications_of(
        self, work: Work, trigger: Trigger, ended: Ended, subject: Subject
    ) -> Sequence[Notification]:
        if self.fails_to_tell:
            self.fails_to_tell -= 1
            raise OSError("a fault of the notifier")
        self.telling.append((ended.outcome, ended.text, work))
        return ()

    async def record(
        self, notifications: Sequence[Notification], also: Callable[[Database], object]
    ) -> None:
        telling, self.telling = self.telling, []
        if any(text == self.hangs_at for _, text, _ in telling):
            self.is_hanging = True
            await anyio.sleep_forever()
        self.told += telling
        await self.storage.write(also)

    async def cancel(self, key: SessionKey, turn: str) -> None:
        self.stopped.append(turn)

    async def perform(self, request: TurnRequest) -> Outcome | None:
        raise AssertionError

    def starter(self, *flows: Flow) -> TaskStarter:
        environment: Any = SimpleNamespace(
            storage=self.storage,
            catalog=self,
        )
        self.gate = Gate(self.view, Flows(flows))
        return TaskStarter(environment, self.tasks_of_kernel(), self.goal, address_of)

    def tasks_of_kernel(self) -> Any:
        return SimpleNamespace(
            service=self, pause_gate=self, late_sources=lambda: self.late, taint_of=lambda _: None
        )

    def results(self) -> Results:
        notifier: Any = self
        kernel: Any = SimpleNamespace(
            storage=self.storage,
            tasks=self.tasks_of_kernel(),
            stream=SimpleNamespace(
                addresses=SimpleNamespace(address_of=address_of),
                messenger=SimpleNamespace(ready=anyio.lowlevel.checkpoint),
            ),
            agents=SimpleNamespace(conversations=self),
        )
        return Results(kernel, notifier)

    async def tells(self, count: int) -> None:
        """Tell results until so many were told and none is left."""
        async with anyio.create_task_group() as group:
            await group.start(self.results().run)

            async def is_over() -> bool:
                left = await self.storage.read(
                    lambda db: db.execute(
                        "SELECT count(*) FROM started_work WHERE told = 0"
                    ).fetchone()
                )
                return left == (0,)

            await eventually(is_over)
            group.cancel_scope.cancel()
        assert len(self.told) == count, self.told


def done(task: str, text: str, *, is_error: bool = False) -> Task:
    result = Result(skill="report", is_error=is_error, outputs=(Output(name="o", text=text),))
    return Task(id=task, state="completed", result=result)


@pytest.mark.ports
async def test_a_trigger_starts_one_task(storage: Storage) -> None:
    backend = Backend(storage)
    starter = backend.starter()
    task = await starter.start(trigger(), WORK)
    assert task in backend.tasks
    assert await starter.start(trigger(), WORK) is None
    assert await backend.starter().start(trigger(), WORK) is None, "another process"
    assert await starter.start(trigger("2"), WORK) not in (None, task)
    (request, _) = backend.requests
    assert (request.principal, str(request.target)) == (JULIET, "assistant@agent.example")
    assert (request.skill, request.mode, request.origin) == (
        "report",
        "async",
        "trigger",
    )
    assert request.caller_context.asker == "caller"


async def test_a_task_is_recorded_as_started_in_the_transaction_that_makes_it(
    storage: Storage,
) -> None:
    backend = Backend(storage)
    backend.ends = True
    with pytest.raises(Killed):
        await backend.starter().start(trigger(), WORK)
    backend.ends = False
    (task,) = backend.tasks
    assert await storage.read(partial(started_work.task_of, trigger=trigger())) == task
    assert await backend.starter().start(trigger(), WORK) is None
    assert len(backend.tasks) == 1


@pytest.mark.ports
async def test_of_many_at_a_time_one_starts_it(storage: Storage) -> None:
    backend, found = Backend(storage), list[str | None]()

    async def start() -> None:
        found.append(await backend.starter().start(trigger(), WORK))

    async with anyio.create_task_group() as group:
        for _ in range(10):
            group.start_soon(start)
    assert len(backend.tasks) == 1
    assert len([one for one in found if one is not None]) == 1


async def test_a_goal_is_a_task_of_the_hidden_skill(storage: Storage) -> None:
    backend = Backend(storage)
    task = await backend.starter().start(trigger(), GOAL_WORK)
    assert task in backend.tasks
    ((request, skill),) = backend.internal
    assert (skill.name, request.caller_context.agent) == (GOAL, "assistant")
    assert skill.hidden
    assert "Look." in arguments_of(request, skill).goal.text  # type: ignore[union-attr]
    backend.paused = True
    with pytest.raises(StanzaError) as refused:
        await backend.starter().start(trigger("2"), GOAL_WORK)
    assert refused.value.type == "wait"
    backend.paused = False
    assert await backend.starter().start(trigger("2"), GOAL_WORK) is not None


async def test_work_waits_while_the_source_of_its_skill_may_be_late(storage: Storage) -> None:
    backend = Backend(storage)
    backend.registry = Registry(())
    backend.late = ["billing"]
    starter = backend.starter()
    with pytest.raises(StanzaError, match=r"no skill called report yet.*billing") as refused:
        await starter.start(trigger(), WORK)
    assert refused.value.type == "wait"
    backend.registry = Registry((report,))
    assert await starter.start(trigger(), WORK) is not None, "nothing was recorded before"
    backend.registry = Registry(())
    backend.late.clear()
    with pytest.raises(StanzaError, match="no skill called report that"):
        await starter.start(trigger("2"), WORK)


@pytest.mark.ports
@pytest.mark.parametrize(
    ("change", "work", "text"),
    [
        ({"admitted": set()}, WORK, "may not use this service any more"),
        ({"registry": Registry(())}, WORK, "no skill called report that juliet@example.org"),
        ({"goal": None}, GOAL_WORK, "no"),
        ({"error": StanzaError("forbidden", "Not you.")}, WORK, "Not you."),
    ],
)
async def test_what_is_refused_is_told_once(
    storage: Storage, change: dict[str, Any], work: Work, text: str
) -> None:
    backend = Backend(storage)
    before = {name: getattr(backend, name) for name in change}
    for name, value in change.items():
        setattr(backend, name, value)
    work = msgspec.structs.replace(work, silent=True, tell=(ROMEO,))
    for key in ("1", "2", "3"):
        with pytest.raises(StanzaError, match=text):
            await backend.starter().start(trigger(key), work)
        assert await backend.starter().start(trigger(key), work) is None, "it is over"
    await backend.tells(1)
    ((outcome, said, told),) = backend.told
    assert outcome == "failed"
    assert said.startswith("The schedule s failed: ")
    assert (told.tell, told.silent) == ((), False), "the owner is told, and nobody else"
    # When it works again and fails again, it is told again.
    for name, value in before.items():
        setattr(backend, name, value)
    task = await backend.starter().start(trigger("4"), work)
    assert task is not None
    backend.tasks[task] = done(task, "It works.")
    await storage.write(lambda db: db.execute("DELETE FROM tasks"))
    await backend.tells(1)
    for name, value in change.items():
        setattr(backend, name, value)
    with pytest.raises(StanzaError):
        await backend.starter().start(trigger("5"), work)
    await backend.tells(2)


@pytest.mark.parametrize(
    ("flows", "taint", "asker"),
    [
        ((), None, "caller"),
        ((), "person", "caller"),
        ((), "web", "misled model"),
        ((Flow(("web",), ("*",), "allow"),), "web", "caller"),
        ((Flow(("web",), ("*",), "refuse"),), "web", None),
    ],
)
async def test_data_of_strangers_is_judged_as_for_a_model(
    storage: Storage, flows: tuple[Flow, ...], taint: Any, asker: str | None
) -> None:
    backend = Backend(storage)
    starting = backend.starter(*flows).start(trigger(taint=taint), WORK)
    if asker is None:
        with pytest.raises(StanzaError, match="strangers wrote"):
            await starting
        return
    await starting
    (request,) = backend.requests
    assert request.caller_context.asker == asker
    assert request.caller_context.taints == (() if taint is None else (taint,))
    assert request.caller_context.unrequested


@pytest.mark.parametrize(
    ("what", "how", "is_own"),
    [
        ({}, {"at": address_of("assistant")}, True),
        ({}, {}, False),
        ({"source": "watch"}, {"at": address_of("assistant")}, False),
        ({}, {"at": address_of("assistant"), "filled": True}, False),
    ],
    ids=["made by the person", "made by the settings", "a watch", "with data of the event"],
)
async def test_only_a_schedule_that_a_person_has_made_is_her_own_request(
    storage: Storage, what: dict[str, Any], how: dict[str, Any], is_own: bool
) -> None:
    backend = Backend(storage)
    work = msgspec.structs.replace(WORK, **how)
    await backend.starter().start(msgspec.structs.replace(trigger(), **what), work)
    (request,) = backend.requests
    assert request.caller_context.own_schedule is is_own
    assert request.caller_context.unrequested


@pytest.mark.parametrize("filled", [False, True])
async def test_a_skill_that_only_reads_is_refused_what_strangers_wrote(
    storage: Storage, filled: bool
) -> None:
    @skill(name="report", read_only=True)
    def reads() -> str:
        return ""

    backend = Backend(storage)
    backend.registry = Registry((reads,))
    starting = backend.starter().start(
        trigger(taint="web"), msgspec.structs.replace(WORK, filled=filled)
    )
    if filled:
        with pytest.raises(StanzaError, match="strangers wrote"):
            await starting
    else:
        await starting
        assert backend.requests[0].caller_context.asker == "caller"


@pytest.mark.parametrize(
    ("ended", "outcome", "text"),
    [
        (lambda task: done(task, "42"), "completed", "42"),
        (lambda task: done(task, "No.", is_error=True), "failed", "The schedule s failed: No."),
        (lambda task: Task(id=task, state="cancelled"), "cancelled", ""),
        (
            lambda task: Task(
                id=task, state="failed", failure=Failure.of(StanzaError("gone", "It broke."))
            ),
            "failed",
            "The schedule s failed: It broke.",
        ),
    ],
)
async def test_results_are_told_when_the_task_has_ended(
    storage: Storage, ended: Callable[[str], Task], outcome: str, text: str
) -> None:
    backend = Backend(storage)
    task = await backend.starter().start(trigger(), GOAL_WORK)
    assert task is not None
    backend.tasks[task] = ended(task)
    await backend.tells(1)
    assert [one[:2] for one in backend.told] == [(outcome, text)]
    assert len(backend.stopped) == 1, "the turn of a goal ends with its task"
    await backend.tells(1)


@pytest.mark.ports
async def test_a_running_task_is_waited_for(storage: Storage) -> None:
    backend = Backend(storage)
    task = await backend.starter().start(trigger(), WORK)

    def begin(database: Any) -> None:
        database.execute(
            "INSERT INTO tasks (id, principal, requester, target, skill, version, request, state,"
            " revision, priority, fence, promoted, created, updated, retain_until, share)"
            " VALUES (?, 'j', 'r', 'a', 's', '1', '{}', 'running', 1, 0, 0, 1, 0, 0, 0, 'j')",
            (task,),
        )

    await storage.write(begin)
    running = backend.results()
    async with anyio.create_task_group() as group:
        await group.start(running.run)
        await anyio.wait_all_tasks_blocked()
        assert not backend.told
        assert task is not None
        backend.tasks[task] = done(task, "42")
        await storage.write(
            lambda db: db.execute("UPDATE tasks SET state = 'completed' WHERE id = ?", (task,))
        )
        running.wake()
        await eventually(lambda: backend.told)
        group.cancel_scope.cancel()


async def test_a_fault_with_one_result_keeps_back_no_others(storage: Storage) -> None:
    backend = Backend(storage)
    for key in ("1", "2"):
        task = await backend.starter().start(trigger(key), WORK)
        assert task is not None
        backend.tasks[task] = done(task, key)
    backend.fails_to_tell = 1
    await backend.tells(1)
    assert results_module._LOOK_S < 60, "what another instance did not tell is told by this one"


async def test_a_kill_while_results_are_told_delays_none(storage: Storage) -> None:
    """Those that were found and not told are told as soon as the instance is back."""
    backend = Backend(storage)
    for key in ("1", "2", "3"):
        task = await backend.starter().start(trigger(key), WORK)
        assert task is not None
        backend.tasks[task] = done(task, key)
    backend.hangs_at = "2"
    async with anyio.create_task_group() as group:
        await group.start(backend.results().run)
        await eventually(lambda: backend.is_hanging)
        group.cancel_scope.cancel()
    backend.hangs_at = None
    waiting = await storage.read(started_work.ended)
    assert [one.trigger.key for one in waiting] == ["2", "3"]
    await backend.tells(3)
    assert [text for _, text, _ in backend.told] == ["1", "2", "3"]


@pytest.mark.parametrize(
    ("of_model", "text"),
    [
        ({"limits": AgentLimits(skills=("schedule_*",))}, "not among the skills of this agent"),
        ({"limits": AgentLimits(capabilities=("memory",))}, "lacks the capability network"),
        ({"taints": ("web",)}, "strangers wrote"),
    ],
)
async def test_work_that_a_model_has_asked_for_keeps_to_what_the_model_may(
    storage: Storage, of_model: dict[str, Any], text: str
) -> None:
    @skill(name="report", read_only=True, capabilities=["network:api.example:443"])
    def reads() -> str:
        return ""

    backend = Backend(storage)
    backend.registry = Registry((reads,))
    with pytest.raises(StanzaError, match=text):
        await backend.starter().start(trigger("1"), msgspec.structs.replace(WORK, **of_model))
    await backend.starter().start(trigger("2"), WORK)
    (request,) = backend.requests
    assert request.caller_context.limits == AgentLimits()
