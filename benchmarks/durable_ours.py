"""Our side of the durable work benchmark: the packages of tasks and storage, without a stream.

    python -m benchmarks.durable_ours DIRECTORY [--postgres URL] [--profile FILE]

Every event is encoded as the `<task/>` of its message, as in the service.
"""

from __future__ import annotations

import argparse
import json
import secrets
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import structlog

from benchmarks.durable_side import crowd, serve
from component.app.schema import SCHEMA
from component.features.plans.service import RUN
from component.features.plans.skills import internal_skills
from component.link.messages.delivery import Delivery, nothing_to_send
from component.plans.run import PlanPorts
from component.policy import Policy
from component.policy.flows import Flows
from component.policy.persons import Persons
from component.skills import Context, Registry, Skill, skill
from component.skills.calling import Threads
from component.store import Storage
from component.tasks.gate import Approvers, Gate, SkillAccess
from component.tasks.protocol import DeletedTask, Notice, TaskLimits
from component.tasks.request import CallerContext, Confirmation, Request
from component.tasks.service import TaskService
from xep.binding import encode
from xep.disco import InfoQuery
from xep.fluux_agent.execute import Accepted
from xep.fluux_agent.task import AnswerParams, InputAnswer, Task
from xep.jid import JID

ANN = JID.parse("ann@a.example/desk")
AGENT = JID.parse("assistant@agent.localhost")


class Choice(msgspec.Struct):
    """The options of a run."""

    colour: str


class Ear:
    """Receives every event, like the sender of messages, and notices when a task has stopped."""

    def __init__(self) -> None:
        self._stopped: dict[str, Task] = {}
        self._awaited: dict[str, anyio.Event] = {}

    async def handled(self) -> bool:
        """Return at once."""
        return True

    def told(self, notice: Notice) -> None: ...

    def released(self, task: str) -> None: ...

    def deleted(self, task: DeletedTask) -> None: ...

    def changed(self, notice: Notice) -> Delivery:
        task = notice.task
        encode(task)
        if notice.final or notice.question is not None:
            self._stopped[task.id] = task
            if (awaited := self._awaited.pop(task.id, None)) is not None:
                awaited.set()
        return nothing_to_send()

    async def stopped(self, task: str) -> Task:
        """Return the event with which a task has ended or asks; each is returned once."""
        if task not in self._stopped:
            awaited = self._awaited[task] = anyio.Event()
            await awaited.wait()
        return self._stopped.pop(task)


class Ours:
    """A task service with the skills of the benchmark."""

    def __init__(self, storage: Storage) -> None:
        self.first: dict[int, float] = {}
        self.ear = Ear()
        registry = Registry(self._skills())
        internal = {one.name: one for one in internal_skills(PlanPorts(storage))}
        self._plan = internal[RUN]
        policy = Policy(allowed_domains=[ANN.domain])
        view = registry.view(policy.view_key(ANN.bare), lambda _: True)
        self.service = TaskService(
            storage,
            SkillAccess(
                find=lambda name: internal.get(name) or registry.get(name),
                internal=internal.get,
                gate=Gate(lambda _: view, Flows()),
                may_use=lambda *_: True,
                approvers=Approvers(policy.asking, Persons(_info, lambda _: False)),
                threads=Threads(8, 8),
            ),
            TaskLimits(
                tasks_per_principal=10**6, running_per_principal=64, records_per_principal=10**6
            ),
            self.ear,
        )

    def _skills(self) -> tuple[Skill, ...]:
        @skill(name="step", durable=True, destructive=False)
        async def step(number: int, context: Context) -> int:
            """Do one step with effects."""
            self.first[number] = time.perf_counter()

            async def work(key: str) -> int:
                return number

            return await context.step("one", work, int)

        @skill(name="steps", durable=True, destructive=False)
        async def steps(number: int, context: Context) -> int:
            """Do three steps with effects."""

            async def work(key: str) -> int:
                return number

            for name in ("one", "two", "three"):
                await context.step(name, work, int)
            return number

        @skill(name="emit", read_only=True)
        async def emit(number: int, context: Context) -> int:
            """Publish `number` parts."""
            for part in range(number):
                await context.output("out", f"part {part}", last=part == number - 1)
            return number

        @skill(name="ask", read_only=True)
        async def ask(number: int, context: Context) -> str:
            """Ask for a colour."""
            return (await context.ask("Which colour?", Choice)).colour

        return step, steps, emit, ask

    async def task(self, name: str, number: int, confirmation: Confirmation | None = None) -> str:
        """Start a task."""
        answer = self.service.execute(
            Request(
                skill=name,
                principal=ANN.bare,
                requester=ANN,
                target=AGENT,
                json=msgspec.Raw(json.dumps({"number": number}).encode()),
                mode="async",
                stanza_id=secrets.token_hex(8),
                confirmation=confirmation,
            )
        )
        accepted = await answer if isinstance(answer, Awaitable) else answer
        assert isinstance(accepted, Accepted), accepted
        return accepted.task

    async def accept(self, number: int) -> str:
        return await self.task("step", number)

    async def steps(self, number: int) -> str:
        return await self.task("steps", number)

    async def finished(self, handle: str) -> None:
        ended = await self.ear.stopped(handle)
        assert ended.state == "completed", ended

    async def emit(self, parts: int) -> str:
        return await self.task("emit", parts)

    async def chain(self, *, plans: int, steps: int) -> float:
        """Return the milliseconds of a step in plans whose steps follow one another."""
        return await self._plans(plans, steps, lambda at: [f"step{at - 1}"] if at else [])

    async def beside(self, *, plans: int, steps: int) -> float:
        """Return the milliseconds of a step in plans whose steps run side by side."""
        return await self._plans(plans, steps, lambda _: [])

    async def _plans(self, plans: int, steps: int, after: Callable[[int], list[str]]) -> float:
        made = [
            {
                "id": f"step{at}",
                "kind": "call",
                "skill": "step",
                "after": after(at),
                "params": {"number": at},
            }
            for at in range(steps)
        ]
        params = {"plan": {"title": "Plan", "goal": "Work", "steps": made}, "shows": False}
        began = time.perf_counter()
        for _ in range(plans):
            request = Request(
                skill=RUN,
                principal=ANN.bare,
                requester=ANN,
                target=AGENT,
                json=msgspec.Raw(json.dumps(params).encode()),
                mode="async",
                stanza_id=secrets.token_hex(8),
                caller_context=CallerContext("assistant"),
            )
            answer = self.service.execute(request, internal=self._plan)
            accepted = await answer if isinstance(answer, Awaitable) else answer
            assert isinstance(accepted, Accepted), accepted
            await self.finished(accepted.task)
        return (time.perf_counter() - began) * 1e3 / plans / steps

    async def answers(self, *, count: int) -> list[float]:
        """Return the milliseconds from an answer to the end of the task that asked, one after
        another.
        """
        taken = []
        for _ in range(count):
            task = await self.task("ask", 0)
            asking = await self.ear.stopped(task)
            assert asking.input is not None
            assert asking.revision is not None
            answer = InputAnswer(
                task=task,
                input=asking.input.id,
                revision=asking.revision,
                params=AnswerParams(json=msgspec.Raw(_COLOUR)),
            )
            given = time.perf_counter()
            await self.service.answer(ANN.bare, AGENT, answer)
            await self.finished(task)
            taken.append((time.perf_counter() - given) * 1e3)
        return taken


async def _info(_to: JID, _from: JID) -> InfoQuery:
    return InfoQuery()


_COLOUR = b'{"colour":"green"}'


@asynccontextmanager
async def working(directory: Path, postgres: str = "") -> AsyncIterator[Ours]:
    """Run our side until the context ends."""
    async with Storage.open(SCHEMA, directory, postgres=postgres) as storage:
        ours = Ours(storage)
        async with anyio.create_task_group() as group:
            await group.start(ours.service.run)
            yield ours
            await ours.service.drain()
            group.cancel_scope.cancel()


async def leave_waiting(directory: Path, count: int) -> None:
    """Create a database of tasks that each wait for a person's approval."""
    asked = Confirmation(asked=(ANN.bare,))
    async with working(directory) as ours:

        async def one(number: int) -> None:
            await ours.ear.stopped(await ours.task("step", number, asked))

        await crowd(one, count, 64)


async def _main(directory: Path, postgres: str) -> None:
    async with working(directory, postgres) as ours:
        orders: dict[str, Callable[..., Awaitable[Any]]] = {
            "answers": ours.answers,
            "chain": ours.chain,
            "beside": ours.beside,
        }
        await serve(ours, orders)


def main() -> None:
    # Stdout is used for the answers.
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--postgres", default="")
    parser.add_argument("--profile", type=Path)
    asked = parser.parse_args()

    def run() -> Any:
        anyio.run(_main, asked.directory, asked.postgres, backend="trio")

    if asked.profile is None:
        run()
    else:
        from benchmarks.ours import profiled

        profiled(run, asked.profile)


if __name__ == "__main__":
    main()
