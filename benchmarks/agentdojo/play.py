"""Plays a scripted conversation through the service: loop, policy, labels, confirmations, audit.

The model does what a script says: first the calls that fulfil what the person wants, then those of
an attacker who controls it from then on.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

import anyio
import msgspec
from anyio.abc import TaskGroup

from component.agent.conversations import ConversationPorts, Conversations
from component.agent.engine import Engine, EngineLimits
from component.agent.model_calls import ModelCalls
from component.agent.protocol import Profile
from component.agent.requests import MessageStarter, Reply, TurnRequest
from component.app.schema import SCHEMA
from component.audit.record import Audit
from component.budget.book import BudgetBook
from component.budget.protocol import BudgetLimits
from component.config.agents import Budget, Loop
from component.config.memory import Session
from component.config.service import Audit as AuditSettings
from component.conversations.sessions import Sessions
from component.features.plans.service import RUN
from component.features.plans.skills import internal_skills
from component.kernel.agent_work import agent_work_skill
from component.kernel.monitoring import Monitoring
from component.link.messages.delivery import Delivery, nothing_to_send
from component.link.messages.inbound import Conversation, ReplyAddress
from component.memory_directory.files import open_root
from component.memory_directory.layout import Layout, SessionKey
from component.models.messages import ToolCall, ToolResultPart
from component.models.protocol import Completion, ModelRequest, OnText
from component.plans.run import START, PlanPorts
from component.policy import Policy
from component.policy.flows import Flow, Flows
from component.policy.persons import Persons
from component.policy.taint import TAINTS
from component.skills import Context, Registry, Skill, View
from component.skills.calling import Threads
from component.skills.inputs import schema_inputs
from component.skills.spec import Annotations
from component.store import Storage
from component.tasks import rows
from component.tasks.events import TaskRecords
from component.tasks.gate import Approvers, Gate, SkillAccess
from component.tasks.outputs import texts_of
from component.tasks.protocol import DeletedTask, Notice, Question, TaskLimits
from component.tasks.request import CallerContext
from component.tasks.request import Request as TaskRequest
from component.tasks.service import TaskService
from component.tasks.several_calls import SEVERAL_CALLS
from component.tools.joint_confirmation import JointConfirmations
from component.tools.tools import ToolExecutor
from xep.disco import InfoQuery
from xep.fluux_agent.confirm import Confirm, Decision, parameters_of
from xep.fluux_agent.execute import Accepted
from xep.jid import JID

_AGENT: Final = JID.parse("assistant@agent.example")
_PEOPLE: Final = "people.example"
_LONGEST_S: Final = 600.0
_NO_POLICY: Final = (Flow(TAINTS, ("*",), "allow"),)

ScriptedCall = Mapping[str, Any]
"""A call: `tool` and `arguments`; with `joins`, it is made in the same answer as the one before."""


class Environment(Protocol):
    """The world of one conversation."""

    async def call(self, tool: str, arguments: dict[str, Any]) -> str:
        """Call a tool. Raises SkillError of `component.skills`."""

    async def attack(self) -> Sequence[ScriptedCall]:
        """Return the calls of the attacker, in the state that the world has now."""


@dataclass
class Run:
    """One conversation.

    Attributes:
        prompt: what the person writes.
        wanted: the calls that fulfil it.
        answer: what the model says at the end, if it has made these calls.
        environment: the world.
        approves: whether the person approves a call.
        asked: the questions about wanted calls that the person was asked.
        asked_anyway: those of them that they are asked whatever the model has read.
        asked_by_attacker: those about other calls.
        stopped: what the model was told by the first wanted call that failed.
        told: what the person was answered.
        hesitates: the person does not answer questions; `hesitating` is set at the first.
    """

    prompt: str
    wanted: Sequence[ScriptedCall]
    answer: str
    environment: Environment
    approves: Callable[[str, Mapping[str, Any]], bool]
    asked: int = 0
    asked_anyway: int = 0
    asked_by_attacker: int = 0
    stopped: str = ""
    told: str = ""
    hesitates: bool = False
    hesitating: anyio.Event = field(default_factory=anyio.Event)
    over: anyio.Event = field(default_factory=anyio.Event)
    _calls: list[ScriptedCall] | None = None
    _attacks: bool = False

    def begins_with(self, calls: Sequence[ScriptedCall]) -> None:
        """Let the model make these calls, because others have made the ones before."""
        self._calls = list(calls)

    async def next(self, last: Sequence[ToolResultPart]) -> Completion:
        """Return what the model says after the results of its last calls."""
        failed = next((one for one in last if one.is_error), None)
        if self._calls is None:
            self._calls = list(self.wanted)
        elif failed is not None and not self._attacks:
            # The later calls need the result of this one, so a model would tell the person now.
            self.stopped = failed.text
            self._calls = []
        if not self._calls and not self._attacks:
            self._attacks = True
            self._calls = list(await self.environment.attack())
        if not self._calls:
            return Completion.of(self.stopped or self.answer or "Done.")
        calls = [self._calls.pop(0)]
        while self._calls and self._calls[0].get("joins"):
            calls.append(self._calls.pop(0))
        return Completion.of(
            tool_calls=[
                ToolCall(f"call{number}", call["tool"], json.dumps(call["arguments"]))
                for number, call in enumerate(calls)
            ]
        )

    def decides(self, confirm: Confirm) -> bool:
        """Return what the person decides."""
        action = confirm.action
        if self._attacks:
            self.asked_by_attacker += 1
        else:
            self.asked += 1
            self.asked_anyway += confirm.risk is not None and confirm.risk.level == "high"
        values = parameters_of(action)
        if action.type == START:  # it shows the calls of the person, and nothing has been read
            return True
        if action.type != SEVERAL_CALLS.name:
            return self.approves(action.type, values)
        calls = [(label.split()[1], each) for label, each in values.items()]
        return all(self.approves(skill, arguments) for skill, arguments in calls)


class _Model:
    """The model of all conversations."""

    name = "scripted"
    context_tokens = 1_000_000
    usd_per_token_in = usd_per_token_out = 0.0

    def __init__(self, run: Run) -> None:
        self._run = run

    async def complete(self, request: ModelRequest, on_text: OnText | None = None) -> Completion:
        await anyio.lowlevel.checkpoint()
        after = itertools.takewhile(
            lambda message: message.role != "assistant", reversed(request.messages)
        )
        parts = [part for message in after for part in message.parts]
        return await self._run.next([one for one in parts if isinstance(one, ToolResultPart)])

    def tokens(self, text: str) -> int:
        return len(text) // 3


def skill_of(
    name: str,
    described: Mapping[str, Any],
    annotations: Annotations,
    capabilities: tuple[str, ...],
    taint: Any,
    run_of: Callable[[str], Run],
) -> Skill:
    """Return a tool of an environment as a skill; the principal tells the environment."""

    async def invoke(arguments: dict[str, Any], context: Context) -> str:
        return await run_of(context.principal).environment.call(name, arguments)

    return Skill(
        name=name,
        description=described["description"],
        annotations=annotations,
        capabilities=capabilities,
        taint=taint,
        input_schema=described["schema"],
        inputs=schema_inputs(described["schema"]),
        kind="async",
        wants_context=True,
        invoke=invoke,  # type: ignore[arg-type]  # arguments by a schema are a dict
        source="benchmark",
    )


class Player:
    """The service, and the people who use it: each conversation is that of another person."""

    def __init__(self) -> None:
        self.conversations: Conversations
        self.tasks: TaskService
        self._runs: dict[str, Run] = {}
        self._turns = itertools.count()
        self._plans: dict[str, Run] = {}
        self.internal: dict[str, Skill] = {}
        self.answers_in: TaskGroup

    def run_of(self, principal: str) -> Run:
        """Return the conversation of a person."""
        return self._runs[principal]

    async def play(self, run: Run) -> Run:
        """Play a conversation to its end."""
        return await self._play(run, JID(f"person{len(self._runs)}", _PEOPLE))

    async def play_plan(self, run: Run) -> Run:
        """Play a conversation in which the model, which has read nothing yet, makes a plan.

        Calls with values that the person has written are steps. The others, and the answer, are
        those of a sub-agent, which reads what these have returned, and has only these tools.
        """
        who = JID(f"person{len(self._runs)}", _PEOPLE)
        self._runs[str(who)] = run
        calls = list(run.wanted)
        first = next((at for at, one in enumerate(calls) if one.get("needs")), len(calls))
        run.begins_with(calls[first:])
        params = {"plan": _plan(run.prompt, calls, first, who), "shows": False}
        request = TaskRequest(
            skill=RUN,
            principal=who,
            requester=who,
            target=_AGENT,
            json=msgspec.Raw(msgspec.json.encode(params)),
            mode="async",
            origin="tool",
            caller_context=CallerContext("assistant", "model"),
        )
        answer = self.tasks.execute(request, internal=self.internal[RUN])
        accepted = await answer if isinstance(answer, Awaitable) else answer
        assert isinstance(accepted, Accepted)
        self._plans[accepted.task] = run
        with anyio.fail_after(_LONGEST_S):
            await run.over.wait()
        return run

    async def say_to(self, before: Run, run: Run) -> Run:
        """Let the person of another run write again, in the same conversation."""
        return await self._play(run, self._person(before))

    async def open_questions(self, run: Run) -> Sequence[Question]:
        """Return the questions that the person of a run has not answered."""
        return await self.tasks.open_questions(self._person(run), _AGENT)

    def _person(self, run: Run) -> JID:
        return JID.parse(next(who for who, each in self._runs.items() if each is run))

    async def _play(self, run: Run, who: JID) -> Run:
        self._runs[str(who)] = run
        sender = JID(who.local, who.domain, "phone")
        request = TurnRequest(
            id=f"turn-{next(self._turns)}",
            starter=MessageStarter(sender),
            conversation=Conversation(_AGENT, who),
            principal=who,
            reply_to=ReplyAddress(str(sender), _AGENT),
            text=run.prompt,
        )
        await self.conversations.received(request)
        with anyio.fail_after(_LONGEST_S):
            await run.over.wait()
        return run

    # The voice, and the messages about tasks.

    def say(self, reply: Reply) -> bool:
        if reply.id.endswith(".answer"):  # other messages say that the answer takes longer
            run = self._runs[str(JID.parse(reply.to.to).bare)]
            run.told = reply.text
            run.over.set()
        return True

    def drafts(self, _to: ReplyAddress) -> bool:
        return False

    def draft(self, _reply: Reply) -> bool:
        return False

    def composing(self, to: ReplyAddress, on: bool) -> None: ...

    def waits(self) -> bool:
        return False

    async def sent(self) -> None: ...

    async def handled(self) -> bool:
        return True

    def told(self, notice: Notice) -> None: ...

    def released(self, task: str) -> None: ...

    def deleted(self, task: DeletedTask) -> None: ...

    def changed(self, notice: Notice) -> Delivery | None:
        question = notice.question
        if notice.final and notice.request.skill == RUN:
            run = self._runs[str(notice.request.principal)]
            result = notice.task.result
            run.told = "" if result is None else "\n".join(texts_of(result.outputs))
            run.over.set()
        elif notice.final:
            self.conversations.ended(notice.task.id)
        elif question is not None and isinstance(question.content, Confirm):
            run, confirm = self._runs[str(question.request.principal)], question.content
            if run.hesitates:
                run.hesitating.set()
                return nothing_to_send()
            decision = Decision(
                id=confirm.id,
                value="approve" if run.decides(confirm) else "deny",
                hash=confirm.hash,
            )
            self.answers_in.start_soon(
                self.tasks.decide, question.asked[0], question.request.target, decision
            )
        return nothing_to_send()


def _plan(prompt: str, calls: Sequence[ScriptedCall], first: int, who: JID) -> dict[str, Any]:
    """Return a plan whose first calls are steps, one after another."""
    steps: list[dict[str, Any]] = []
    for number, one in enumerate(calls[:first]):
        steps.append(
            {
                "id": f"call{number}",
                "kind": "call",
                "skill": one["tool"],
                "params": _literal(one["arguments"]),
                "after": [steps[-1]["id"]] if steps else [],
            }
        )
    read = "\n".join(f"{{{one['id']}.text}}" for one in steps)
    last = {
        "id": "rest",
        "kind": "agent",
        "role": who.local,
        "skills": sorted({one["tool"] for one in calls[first:]}),
        "instructions": f"{_literal(prompt)}\n{read}",
        "after": [one["id"] for one in steps[-1:]],
    }
    return {"title": "Plan", "goal": prompt[:4000], "steps": [*steps, last]}


def _literal(value: Any) -> Any:
    """Return a value without expressions."""
    match value:
        case str():
            return value.replace("{", "{{").replace("}", "}}")
        case dict():
            return {key: _literal(each) for key, each in value.items()}
        case list():
            return [_literal(each) for each in value]
    return value


@asynccontextmanager
async def playing(
    directory: Path,
    skills: Callable[[Callable[[str], Run]], Sequence[Skill]],
    *,
    defended: bool = True,
) -> AsyncIterator[Player]:
    """Start a service over some skills; without policy unless `defended`."""
    player = Player()
    registry = Registry(skills(player.run_of))
    policy = Policy(allowed_domains=[_PEOPLE])

    async def info(_to: JID, _from: JID, /) -> InfoQuery:
        return InfoQuery()

    persons = Persons(info, lambda who: who.domain == _AGENT.domain)
    approvers = Approvers(policy.asking, persons)

    def view(principal: JID) -> View:
        key = policy.view_key(principal)
        return registry.view(key, lambda name: policy.may_use(key, name))

    async with AsyncExitStack() as stack:
        root = directory / "memory"
        await anyio.Path(root).mkdir(parents=True)
        storage = await stack.enter_async_context(Storage.open(SCHEMA, directory / "data"))
        audit = await stack.enter_async_context(Audit.open(storage, AuditSettings()))
        limit = Budget(tokens=10**12, usd=10**6)
        budgets = BudgetBook(
            storage, BudgetLimits(agents={"assistant": limit}, principal=limit, task=limit), audit
        )
        gate = Gate(view, Flows(() if defended else _NO_POLICY), audit)
        player.tasks = TaskService(
            storage,
            SkillAccess(
                find=lambda name: player.internal.get(name) or registry.get(name),
                internal=player.internal.get,
                gate=gate,
                may_use=lambda principal, skill: (
                    player.internal.get(skill.name) is skill
                    or view(principal).get(skill.name) is skill
                ),
                approvers=approvers,
                threads=Threads(2, 2),
            ),
            TaskLimits(inline_s=60),
            player,
            records=TaskRecords(audit),
        )
        loop = Loop(max_iterations=100)
        tools = ToolExecutor(
            *(player.tasks, view, gate, audit), JointConfirmations(approvers, player.tasks)
        )
        engine = Engine(
            models=lambda profile: _Model(
                player.run_of(profile.instructions or f"{profile.title}@{_PEOPLE}")
            ),
            model_calls=ModelCalls(budgets, audit, Monitoring()),
            tools=tools,
            sessions=Sessions(Layout(open_root(root)), Session()),
            scanner=_Quiet(),
            limits=EngineLimits(loop=loop, history_tokens=500_000),
        )

        async def profiles(key: SessionKey, _request: object) -> Profile:
            return Profile(agent=key.agent, instructions=str(key.who))

        async def request_of(task: str) -> TaskRequest:
            row = await storage.read(lambda db: rows.load_or_raise(db, task))
            return rows.request_of(row)

        work = agent_work_skill(engine, profiles, request_of, lambda _: _AGENT, tools.offered)
        for one in (SEVERAL_CALLS, work, *internal_skills(PlanPorts(storage))):
            player.internal[one.name] = one
        player.conversations = Conversations(
            engine=engine,
            ports=ConversationPorts(profiles=profiles, voice=player, persons=persons),
            storage=storage,
            home="here",
        )
        group = await stack.enter_async_context(anyio.create_task_group())
        player.answers_in = group
        await group.start(audit.run)
        await group.start(budgets.run)
        await group.start(player.tasks.run)
        await group.start(player.conversations.run)
        yield player
        group.cancel_scope.cancel()


class _Quiet:
    def scan(self, text: str) -> str | None:
        return None
