"""The context of a skill's call: what the skill can know and do while it runs."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal, NoReturn, TypeVar, overload

import msgspec

from component import system
from component.policy.flows import AgentLimits
from component.policy.taint import Taint
from component.skills.capabilities import Capabilities, ModelUse
from component.skills.child_tasks import ChildTasks
from component.skills.errors import CapabilityMissing, UsageError
from component.skills.host import (
    HasCredential,
    HostFunction,
    HostFunctions,
    HttpRequest,
    LogLevel,
    ReadMemory,
    SendMessage,
)
from component.skills.operations import (
    AskModel,
    AskPrincipal,
    ChildFailed,
    ChildResult,
    ConfirmTasks,
    Host,
    KeepRecord,
    PlainHost,
    PublishPart,
    ReadRecord,
    RelayQuestion,
    ReportProgress,
    RunStep,
    Sleep,
    StartTask,
    Until,
    WaitForEvent,
    WaitForFirst,
    WaitForTasks,
    Work,
    answer_schema,
    question,
)
from component.skills.outputs import TEXT
from component.skills.ports import ContextHttp, ContextMemory, ContextXmpp
from xep.fluux_agent.delegation import Delegation

T = TypeVar("T")
_NO_LIMITS: Final = AgentLimits()


@dataclasses.dataclass(kw_only=True, eq=False, slots=True)
class Context:
    """The context of one call, for the skill.

    A skill requests it by annotating a parameter with this class; it is passed in and is not part
    of the skill's schema. It belongs to one call and must not be used after it.

    All async methods can also be used in a plain function:
    `anyio.from_thread.run(context.progress, 0.5, "half way")`, and with arguments by name
    `anyio.from_thread.run(functools.partial(context.step, "pay", pay, str, repeatable=True))`.

    `principal` is the bare JID to which the policy applies, `sender` the full address that sent the
    call, `skill` the name by which the skill was called, `agent` the agent that was asked or that
    calls it itself: its localpart, or `parent/id` for a sub-agent. `address` is the bare address
    at which the agent was asked, `task` the id of the task if there is one, `paid_by` that of the
    task or turn whose budget pays, `delegation` what an agent that asks for somebody else has said,
    `lang` the language of the request, `deadline` when the result becomes useless; they are empty
    outside the service. `client` is the full JID of the client that has asked for this call, empty
    if a model, an event or another task has. `is_stored` says whether the task was stored before
    this run, so that an earlier run may have done something. `taints` are the sources of the texts
    that the agent's model has read, if a model calls the skill, `limits` what that agent may use,
    and `trace` links the audit events of its turn. `room` is the room in which the agent was asked,
    or the occupant who asked in private; empty elsewhere.

    `http`, `memory`, `xmpp`, `llm` and `has_credential` need a capability that the manifest of the
    skill (or `@skill(capabilities=…)` of a module) declares. CapabilityMissing names the one that
    is missing. What a skill can do is the same in a confined process, in the service and in tests.
    """

    principal: str
    sender: str
    skill: str
    agent: str = ""
    taints: tuple[Taint, ...] = ()
    limits: AgentLimits = _NO_LIMITS
    trace: str = ""
    address: str = ""
    task: str = ""
    paid_by: str = ""
    delegation: Delegation | None = None
    lang: str = ""
    deadline: datetime | None = None
    is_stored: bool = True
    room: str = ""
    client: str = ""
    host: dataclasses.InitVar[Host | None] = None
    _host: Host = dataclasses.field(init=False)
    _functions: HostFunctions | None = dataclasses.field(init=False, default=None)
    _model_use: ModelUse | Literal["any"] | None = dataclasses.field(init=False, default="any")
    """What is approved of the models; "any" where nothing limits it but the policy."""
    _deadline: float | None = dataclasses.field(init=False, default=None)

    def __post_init__(self, host: Host | None) -> None:
        """Use the host, which performs what the skill asks for; by default a `PlainHost`."""
        self._host = host or PlainHost()

    @property
    def key(self) -> str:
        """The idempotency key of this call: the same if it is run again after an interruption."""
        return self._host.key

    @property
    def owner(self) -> str:
        """Whose memory and files the call uses: those of the principal, or those of a room, which
        has nothing of anybody's own.
        """
        return self.room or self.principal

    def limited(self, capabilities: Capabilities) -> Context:
        """Return the context of the same call with the use of models that is approved. For what
        runs the skill.
        """
        limited = copy.copy(self)
        limited._model_use = capabilities.llm  # noqa: SLF001 - of this class
        return limited

    def provide(self, functions: HostFunctions) -> None:
        """Set the functions of the service that the skill may use. For what runs the skill."""
        self._functions = functions

    @property
    def functions(self) -> HostFunctions | None:
        """The functions of the service that were provided."""
        return self._functions

    @property
    def http(self) -> ContextHttp:
        """HTTP requests: `await context.http.get(url, credential="weather-key")`.

        Raises CapabilityMissing if the skill declares no `network`.
        """
        return ContextHttp(self._functions_with(HttpRequest, "network"))

    @property
    def memory(self) -> ContextMemory:
        """What the skill remembers of its caller: `await context.memory.put("city", "Verona")`.

        Raises CapabilityMissing if the skill declares neither `memory_read` nor `memory_write`.
        """
        return ContextMemory(self._functions_with(ReadMemory, "memory"))

    @property
    def xmpp(self) -> ContextXmpp:
        """Messages: `await context.xmpp.send("romeo@example.com", "The tide is high.")`.

        Raises CapabilityMissing if the skill declares no `xmpp`.
        """
        return ContextXmpp(self._functions_with(SendMessage, "xmpp"))

    @property
    def child_tasks(self) -> ChildTasks:
        """More that can be done with child tasks. For skills of the service itself."""
        return ChildTasks(self._host)

    def log(self, text: str, level: LogLevel = "info") -> None:
        """Write a line to the log of the service, where admins see it."""
        if self._functions is not None:
            self._functions.log(level, text)
            return
        # Imported here, because confined children, which log through the service, start faster
        # without it.
        import structlog  # noqa: PLC0415

        getattr(structlog.get_logger("component.skills"), level)(
            "a skill logs", skill=self.skill, text=text
        )

    async def has_credential(self, name: str) -> bool:
        """Return whether a declared credential has a value; requests use it by its name.

        Raises CapabilityMissing if the skill does not declare it.
        """
        functions = self._functions_with(HasCredential, f"credential:{name}")
        return await functions.perform(HasCredential(name))

    def _functions_with(self, function: type[HostFunction[Any]], capability: str) -> HostFunctions:
        """Return the functions of the service. Raises CapabilityMissing without this one."""
        if self._functions is None or function not in self._functions.handlers:
            raise CapabilityMissing(self.skill, capability)
        return self._functions

    def now(self) -> datetime:
        """Return the time, in UTC. A durable skill reads it in a step, so that it stays the same
        when the skill runs again.
        """
        return system.now()

    def random(self, length: int = 16) -> bytes:
        """Return unpredictable bytes. A durable skill uses it in a step, as `now`."""
        return system.token_bytes(length)

    @property
    def resumes(self) -> bool:
        """Whether another execution continues the call if this one is cancelled now: the service
        stops, or another instance has taken the task over. False if the caller cancels.

        For a skill whose work goes on elsewhere meanwhile, such as on a worker. The time-out of the
        call does not count; see `remaining`.
        """
        return self._host.resumes

    async def progress(self, fraction: float, text: str = "") -> None:
        """Report progress as a fraction from 0 to 1, with a short text for people.

        Callers of a task get at most one report per second; faster ones are combined. Raises
        ValueError if the fraction is not between 0 and 1.
        """
        if not 0 <= fraction <= 1:
            raise ValueError(f"progress goes from 0 to 1, not {fraction}")
        await self._host.perform(ReportProgress(float(fraction), text))

    async def output(
        self, name: str, text: str, media_type: str = TEXT, *, last: bool = False
    ) -> None:
        """Publish the next part of an artifact while it grows; the artifact is its parts in order.

        `last` says that no more parts follow. The result contains every artifact published this
        way, so it need not be returned again. All parts of one artifact have one media type.

        Raises ValueError for a part after the last one, another media type, or more text than one
        answer can contain.
        """
        await self._host.perform(PublishPart(name, text, media_type, last))

    async def step(
        self,
        name: str,
        work: Work[T],
        type: type[T],  # noqa: A002 - it is one
        *,
        repeatable: bool = False,
        key: str | int | None = None,
        input: object = None,  # noqa: A002 - the name that the author of a skill writes
    ) -> T:
        """Run `work(idempotency_key)` once; later calls return its recorded result, as `type`.

        A call that is run again, after an interruption or an answer, skips the steps that it has
        completed. The idempotency key stays the same when the step runs again, and in a retry of
        the task.

        A step is identified by its name. Where the skill's steps follow one another, a second use
        of a name is another step. In branches that run concurrently (a task group) the order means
        nothing, so a step needs a `key` there, a string or a number that is the same whenever the
        skill runs again and differs between the branches. `input` is any JSON-encodable value that
        the step's result depends on: it is compared with the recorded input, and in a branch it can
        replace the key.

        The beginning of a step is recorded too, unless it is `repeatable` or the skill is: a step
        that was interrupted ends the task with `outcome-unknown` instead of running a second time.

        Raises SkillError as the work raised it; StepFailed when it raised anything else (the cause
        is available in the first execution only); and UsageError in a skill that is neither
        `durable=True` nor read-only or idempotent, for a step in a branch that nothing identifies,
        for a key that is used twice, and for a recorded step that is used with another input.
        """
        encoded = b"" if input is None else _input_json(input, f"step {name!r}")

        async def encoded_work(idempotency_key: str) -> bytes:
            return msgspec.json.encode(await work(idempotency_key))

        made = await self._host.perform(RunStep(name, repeatable, encoded, key), encoded_work)
        return msgspec.json.decode(made, type=type)

    @overload
    async def ask(
        self,
        question: str,
        schema: type[T],
        *,
        expires_s: float | None = None,
        key: str | int | None = None,
    ) -> T: ...

    @overload
    async def ask(
        self,
        question: str,
        schema: Mapping[str, Any],
        *,
        expires_s: float | None = None,
        key: str | int | None = None,
    ) -> dict[str, Any]: ...

    async def ask(
        self,
        question: str,
        schema: type[T] | Mapping[str, Any],
        *,
        expires_s: float | None = None,
        key: str | int | None = None,
    ) -> T | dict[str, Any]:
        """Ask the principal, and return the answer.

        `schema` is a Struct, a dataclass or another type whose JSON Schema is an object, or such a
        schema itself; the answer then is a dict. Its fields become those of a form. The question
        expires after `expires_s` seconds (a day unless the settings say otherwise), and the task
        fails with it. `key` identifies a question in a concurrent branch, like that of a step.
        Never ask for secrets.

        Nothing runs in the meantime: steps in progress in other branches end and are recorded, the
        function is interrupted here (by `Parked`, which it must not catch), and it runs again from
        its beginning when the answer has arrived.

        Raises Denied when the principal declines, and UsageError in a skill that is neither
        `durable=True` nor read-only or idempotent, inside a step, after too many questions, or
        where nobody can be asked.
        """
        encoded, validator = answer_schema(schema, "person")
        asked = AskPrincipal(question, encoded, expires_s, key)
        answer: Any = msgspec.json.decode(
            await self._host.perform(asked), type=dict[str, Any] if validator else schema
        )
        return answer  # type: ignore[no-any-return]  # it fits the schema

    async def relay(self, question: str, key: str) -> Any:
        """Ask the principal what another agent asks, and return the answer: a dict, or `approve` or
        `deny` for a confirmation.

        For skills of other agents, whose questions travel up (DLG-017, DLG-018). `question` is the
        XML of an `Input` or a `Confirm`. Raises Denied and UsageError as `ask`.
        """
        return msgspec.json.decode(await self._host.perform(RelayQuestion(question, key)))

    async def sleep(self, seconds: float, *, key: str | int | None = None) -> None:
        """Wait for a time, up to days, without using an execution, a thread or a timer.

        The function is interrupted here and runs again from its beginning afterwards, as for a
        question; a restart in the meantime changes nothing. Raises UsageError as `ask` does.
        """
        await self._host.perform(Sleep(float(seconds), key))

    async def start(
        self,
        skill: str,
        params: Mapping[str, Any] | None = None,
        *,
        delay_s: float = 0.0,
        key: str | int | None = None,
        shown_as: str = "",
    ) -> str:
        """Start a task that runs `skill` for the same principal, once; return its id.

        The child task does not begin before `delay_s` seconds have passed. It is cancelled if this
        task ends before it does. `wait` returns its outcome. `key` is used as for a step.

        With `shown_as`, the progress of the child task is reported as that of this task, and the
        parts of its artifacts as parts of artifacts of this task, whose names begin with
        `shown_as` and a slash. Each child task needs another one.

        Raises SkillError if the principal has no such skill, if the parameters are invalid, or if
        the principal has too many tasks, and UsageError as `step` does, and for a `shown_as` that
        is used already.
        """
        encoded = _input_json(params or {}, f"start {skill}")
        started: str = await self._host.perform(
            StartTask(skill, encoded, float(delay_s), key, shown_as)
        )
        return started

    async def confirm_tasks(self, calls: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        """Ask the principal in one question about those of some child tasks that need her
        confirmation, each a skill with its parameters, before `start` starts them.

        One that she approves is not asked about again, and the start of one that she declines
        raises SkillError. Those that cannot be asked about together are asked about alone, when
        they are started. Raises UsageError as `ask` does.
        """
        starts = [
            StartTask(skill, _input_json(params, f"start {skill}"), 0.0, None)
            for skill, params in calls
        ]
        await self._host.perform(ConfirmTasks(tuple(starts)))

    async def wait(
        self,
        tasks: Sequence[str],
        *,
        on_failure: Literal["return", "raise"] = "raise",
        key: str | int | None = None,
    ) -> list[ChildResult]:
        """Wait until child tasks have ended, and return the outcome of each, in their order.

        Nothing runs in the meantime: the function is interrupted here, and runs again when they
        have ended. With `on_failure="raise"` it does not wait for the others once one has failed.

        Raises ChildFailed, a SkillError, for a child that did not succeed, with
        `on_failure="raise"`, and UsageError as `step`.
        """
        until: Until = "failure" if on_failure == "raise" else "ended"
        results = await self._wait(tasks, until, key)
        if until == "failure":
            for result in results:
                which = f"The child task {result.task} ({result.skill})"
                if result.is_error:
                    raise ChildFailed(f"{which} was refused: {result.text}", results)
                if result.state in ("failed", "rejected", "cancelled", "unknown"):
                    raise ChildFailed(f"{which} is {result.state}: {result.reason}", results)
        return results

    async def wait_first(
        self, tasks: Sequence[str], *, key: str | int | None = None
    ) -> list[ChildResult]:
        """Wait until one of the child tasks has succeeded, cancel the others, and return the
        outcome of each, in their order. If none succeeds, all have ended.

        Nothing runs in the meantime, as in `wait`. The others are cancelled in the commit that
        records the outcome. What has failed until then is in the result; of several that succeeded
        at the same time take the first one. Raises UsageError as `step`.
        """
        return await self._wait(tasks, "success", key)

    async def _wait(
        self, tasks: Sequence[str], until: Until, key: str | int | None
    ) -> list[ChildResult]:
        found = await self._host.perform(WaitForTasks(tuple(tasks), until, key))
        return msgspec.json.decode(found, type=list[ChildResult])

    async def wait_for_event(self, event: str, is_pending: Callable[[Any], bool]) -> NoReturn:
        """Leave the function at this place, and run it again when something has happened.

        For skills of the service itself. The code that commits what they wait for calls
        `component.store.waiters.wake_tasks` with the name of the event. `is_pending` is called with
        the database in the commit that lets the task wait, and returns whether it has not happened
        yet; if it has, the function runs again at once.
        """
        await self._host.perform(WaitForEvent(event), is_pending)
        raise AssertionError("The function is left before.")

    async def wait_for_first(self, tasks: Sequence[str]) -> NoReturn:
        """Leave the function at this place, and run it again when one of these tasks has ended.

        For skills of the service itself. They need not be child tasks, and nothing is recorded.
        """
        await self._host.perform(WaitForFirst(tuple(tasks)))
        raise AssertionError("The function is left before.")

    async def record(self, entry: bytes, *, acts: bool = False) -> None:
        """Add an entry, which is JSON, to the record of the task, from which it continues.

        For skills of the service itself, which lead to other entries whenever they run. `acts` says
        that something was done that cannot be withdrawn.
        """
        await self._host.perform(KeepRecord(entry, acts))

    async def recorded(self) -> Sequence[bytes]:
        """Return the entries of the record of the task, in order."""
        entries: Sequence[bytes] = await self._host.perform(ReadRecord())
        return entries

    @overload
    async def llm(
        self, prompt: str, schema: type[T], *, max_tokens: int = 1024, key: str | int | None = None
    ) -> T: ...

    @overload
    async def llm(
        self,
        prompt: str,
        schema: Mapping[str, Any],
        *,
        max_tokens: int = 1024,
        key: str | int | None = None,
    ) -> dict[str, Any]: ...

    async def llm(
        self,
        prompt: str,
        schema: type[T] | Mapping[str, Any],
        *,
        max_tokens: int = 1024,
        key: str | int | None = None,
    ) -> T | dict[str, Any]:
        """Ask the agent's model, and return its answer as a value.

        `schema` is a Struct, a dataclass or another type whose JSON Schema is an object, or such a
        schema itself; the answer then is a dict. `max_tokens` bounds the answer. The model sees the
        prompt and nothing else, and can call no tools.

        The skill must declare the capability `llm`, so policies decide about it as about any other.
        The call is paid by the budgets of the principal and the agent. It is a step: its answer, or
        what went wrong, is recorded, and a skill that runs again is given that. The rules of a step
        hold for `key`. A skill that is neither durable nor read-only or idempotent may ask too; it
        never runs again.

        Raises ModelFailed, whose `problem` says why there is no answer; CapabilityMissing if the
        capability is not declared, or not for so long an answer; and UsageError if the schema is
        not one of an object, and as `step` does.
        """
        allowed, model = self._model_use, ""
        if allowed is None:
            raise CapabilityMissing(self.skill, "llm")
        if allowed != "any":
            model = allowed.model or ""
            if max_tokens > allowed.max_tokens:
                raise CapabilityMissing(self.skill, f"llm with {max_tokens} tokens")
        asked = question(prompt, schema, max_tokens, model)
        message = AskModel(prompt, bytes(asked.schema), max_tokens, model, key)
        answer: Any = asked.check(await self._host.perform(message, asked.check))
        return answer  # type: ignore[no-any-return]  # it has been checked against the schema

    def remaining(self) -> float | None:
        """Return the seconds until the call times out (0 when over), None for no limit."""
        if self._deadline is None:
            return None
        return max(0.0, self._deadline - system.monotonic())

    def shorten(self, seconds: float) -> None:
        """Shorten the time limit of the call to at most `seconds` from now. For the executor."""
        # The monotonic clock and not the event loop's: a worker thread has no event loop.
        deadline = system.monotonic() + seconds
        if self._deadline is None or deadline < self._deadline:
            self._deadline = deadline


def _input_json(value: object, what: str) -> bytes:
    """Return the JSON of the input of an operation, the same for equal ones. Raises UsageError."""
    try:
        return msgspec.json.encode(value, order="deterministic")
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(
            f"The input of the {what} cannot be written as JSON, so it cannot be compared when the"
            f" skill runs again: {error}."
        ) from error
