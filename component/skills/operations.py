"""What a skill asks for through its `Context`: each operation is declared once, as a message.

`Context` makes the message and reads its result; a `Host` performs it. So a new operation is one
Struct here, one method of `Context`, and one handler in each host that supports it:
`component.tasks.run` in the service, `component.features.workers` on a worker,
`component.sandbox.guest` in a confined process, which sends the message to the service as it is,
and others for tests and terminals.

JSON inside a message is bytes. What cannot be sent to another process is passed beside the message:
the work of a step, and the check of a model's answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from functools import partial
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeVar, get_args

import anyio
import msgspec

from component import system
from component.policy.taint import Taint
from component.skills.errors import DeclarationError, SkillError, UsageError
from component.skills.host import HostFunction
from component.skills.validation import SchemaValidator

CAPABILITY = "llm"
"""What a skill declares that asks a model."""

Problem: TypeAlias = Literal["unavailable", "refused", "budget", "invalid"]


class ModelFailed(SkillError):  # noqa: N818 - the name says what happened to the skill
    """A model did not give the answer that a skill asked for. Raised by `Context.llm`.

    `problem` is `unavailable` if no model can be reached now, `refused` if none is set up or its
    provider rejects the request, `budget` if a budget does not suffice, and `invalid` if the answer
    does not fit the schema. `later` says that a budget is renewed, so the question may be possible
    then.
    """

    def __init__(self, problem: Problem, message: str, *, later: bool = False) -> None:
        self.problem: Problem = problem
        self.later = later
        super().__init__(message)


class ModelOutcome(msgspec.Struct, frozen=True):
    """The record of a question to a model: the answer, or a problem with a sentence."""

    text: str
    problem: Problem | None = None
    later: bool = False

    def answer(self) -> str:
        """Return the answer. Raises ModelFailed."""
        if self.problem is not None:
            raise ModelFailed(self.problem, self.text, later=self.later)
        return self.text


class ModelQuestion(msgspec.Struct, frozen=True):
    """A question to a model. `schema` is the JSON Schema of the answer, an object.

    Attributes:
        check: reads an answer. Raises ValueError, which says what is wrong with it.
        model: the only model that may answer; empty for that of the agent, whichever it is.
    """

    prompt: str
    schema: msgspec.Raw
    max_tokens: int
    check: Callable[[str], object]
    model: str = ""


def question(
    prompt: str, schema: type[Any] | Mapping[str, Any], max_tokens: int, model: str = ""
) -> ModelQuestion:
    """Make a question; `schema` is a type of fields or a JSON Schema. Raises UsageError."""
    if max_tokens < 1:
        raise UsageError(f"An answer of {max_tokens} tokens cannot be asked for.")
    encoded, validator = answer_schema(schema, "model")
    if validator is None:
        check: Callable[[str], object] = msgspec.json.Decoder(schema).decode
    else:
        check = partial(_checked, validator)
    return ModelQuestion(prompt, msgspec.Raw(encoded), max_tokens, check, model)


def answer_schema(
    schema: type[Any] | Mapping[str, Any], who: Literal["model", "person"]
) -> tuple[bytes, SchemaValidator | None]:
    """Return the JSON Schema of an answer, and what validates against it if it was one already.

    Raises UsageError for one that is not of an object, or that cannot be validated in bounded work.
    """
    if not isinstance(schema, Mapping):
        from component.skills.schema import object_schema  # noqa: PLC0415 - it imports Context

        return msgspec.json.encode(object_schema(schema)), None
    if schema.get("type") != "object":
        raise UsageError(f"A {who} is asked for an object: write 'type': 'object' in the schema.")
    try:
        return msgspec.json.encode(schema), SchemaValidator(schema)
    except DeclarationError as error:
        raise UsageError(f"What a {who} is asked for: {error}") from None


def _checked(validator: SchemaValidator, text: str) -> object:
    value = msgspec.json.decode(text)
    wrong = validator.mismatch(value)
    if wrong is not None:
        raise ValueError(wrong.reason)
    return value


T = TypeVar("T")

Work: TypeAlias = Callable[[str], Awaitable[T]]
"""The work of a step, called with its idempotency key."""


class Parked(BaseException):
    """The call waits for a person: its function is interrupted, and runs again with the answer.

    It is not an `Exception`, so that `except Exception` in a skill does not catch it. Never catch
    it.
    """


class ChildResult(msgspec.Struct, frozen=True):
    """The outcome of a child task.

    `state` is `completed`, `failed`, `rejected`, `cancelled`, `unknown`, or that of a task that
    need not be waited for any more. `text` is what a completed one returned, `is_error` whether it
    raised SkillError, `reason` why another one failed, and `condition` the name of the application
    condition of that failure, such as `outcome-unknown`. `skill` is the name of its skill. `json`
    is its artifact of JSON, if it has exactly one. `taints` are the possible authors of these
    texts.
    """

    task: str
    state: str
    text: str = ""
    is_error: bool = False
    reason: str = ""
    skill: str = ""
    condition: str = ""
    json: str = ""
    taints: tuple[Taint, ...] = ()

    @property
    def success(self) -> bool:
        """Whether it completed and raised no SkillError."""
        return self.state == "completed" and not self.is_error


class ChildFailed(SkillError):  # noqa: N818 - the name says what happened
    """A child task did not succeed. Raised by `Context.wait`; `results` are those of all tasks that
    it waited for.
    """

    def __init__(self, message: str, results: Sequence[ChildResult]) -> None:
        self.results = results
        super().__init__(message)


Until: TypeAlias = Literal["ended", "failure", "success"]
"""What ends a wait for child tasks: that all have ended, or before that one without success, or one
with success.
"""

Key: TypeAlias = str | int | None
"""Identifies an operation in a branch beside others; None where its order does."""


class ReportProgress(HostFunction[None], frozen=True, tag="progress"):
    """Report progress. There is no result."""

    fraction: float
    text: str


class PublishPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="output"):
    """Publish the next part of an artifact. There is no result. Raises ValueError."""

    name: str
    text: str
    media_type: str
    last: bool


class RunStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="step"):
    """Run a step once; its work is passed beside it. The result is that of the work, as JSON.

    `input` is JSON, with its members in order; empty for none. Raises what the work raises that is
    for the caller, StepFailed and UsageError.
    """

    name: str
    repeatable: bool
    input: bytes
    key: Key


class AskPrincipal(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="ask"):
    """Ask the principal. `schema` is a JSON Schema of an object; the result is the answer, as JSON.

    Raises Denied and UsageError.
    """

    question: str
    schema: bytes
    expires_s: float | None
    key: Key


class RelayQuestion(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="relay"):
    """Ask the principal what another agent asks. `question` is the XML of a `Confirm` or an
    `Input`; the result is the decision, `approve` or `deny`, or the answer, as JSON.

    Raises Denied and UsageError.
    """

    question: str
    key: Key


class Sleep(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="sleep"):
    """Wait for a time. There is no result. Raises UsageError."""

    seconds: float
    key: Key


class StartTask(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="start"):
    """Start a child task; `params` is a JSON object. The result is its id. With `shown_as`, what
    it reports is reported by this task, too.

    Raises SkillError and UsageError.
    """

    skill: str
    params: bytes
    delay_s: float
    key: Key
    shown_as: str = ""


class ConfirmTasks(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="confirm_tasks"):
    """Ask the principal about several child tasks that are started next. There is no result.

    Raises UsageError.
    """

    calls: tuple[StartTask, ...]


class WaitForTasks(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="wait"):
    """Wait for child tasks. The result are ChildResults, as JSON. When one has succeeded, a wait
    for that cancels the others.

    Raises UsageError.
    """

    tasks: tuple[str, ...]
    until: Until
    key: Key


class WaitForEvent(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="wait_for_event"):
    """Leave the skill until something has happened elsewhere, or one of these child tasks has
    ended: it raises Parked.

    A function that takes the database, and returns whether it has not happened yet, is passed
    beside it. `plan` and `progress` are as in `Commit`.
    """

    event: str
    tasks: tuple[str, ...] = ()
    plan: str | None = None
    progress: ReportProgress | None = None


class ChildTerms(msgspec.Struct, frozen=True):
    """What a skill of the service itself says about a child task that it starts.

    Attributes:
        taints: the sources of texts in its parameters, beside those of the task itself.
        said: the texts that no stranger has chosen; None if strangers may have chosen everything.
        approved: the principal has approved exactly this call.
        budget_usd: the most that this task and its children may spend together, in US dollars.
        is_internal: it is a skill that only the service itself starts.
        resumes: the id of a child task that has failed, from whose record this one continues.
        principal: the bare JID of the person whose task it is, if that is somebody else: only for
            such a skill.
    """

    taints: tuple[Taint, ...] = ()
    said: tuple[str, ...] | None = None
    approved: bool = False
    budget_usd: float | None = None
    is_internal: bool = False
    resumes: str = ""
    principal: str = ""


class JudgeTask(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="judge"):
    """Return a `Judged` about a child task that is not started yet. `params` is a JSON object; of
    the parameters named `unfilled` the values are not known yet. It is empty if nothing is known of
    the parameters.

    `ChildTerms` are passed beside it.
    """

    skill: str
    params: bytes
    unfilled: tuple[str, ...] = ()


class Judged(msgspec.Struct, frozen=True):
    """What would become of a child task.

    Attributes:
        problem: why it would not be started, as a sentence; empty if it would.
        asks: whether the principal, and nobody else, would have to confirm it.
        asks_others: whether other people would have to.
        repeatable: whether it may run twice.
        duration_s: how long its skill typically takes, in seconds, if it says so.
        cost_usd: what a call typically costs, in US dollars, if it says so.
        taint: the least trusted possible author of its result.
    """

    problem: str = ""
    asks: bool = False
    asks_others: bool = False
    repeatable: bool = False
    duration_s: float | None = None
    cost_usd: float | None = None
    taint: Taint | None = None


class AskConfirmation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="confirm"):
    """Ask for the confirmation of what a skill of the service does next; the result is a
    `Confirmed`, as JSON.

    `skill` is the name of an internal skill whose question it is, `params` a JSON object. `misled`
    says that strangers may have chosen them. Raises SkillError if nobody can confirm it.
    """

    skill: str
    params: bytes
    key: Key
    misled: bool = False


class Confirmed(msgspec.Struct, frozen=True):
    """The decision about an `AskConfirmation`, and the reason of a denial.

    `by_principal` says that the principal has decided, and nobody else had to.
    """

    approved: bool
    reason: str = ""
    by_principal: bool = False


class Commit(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="commit"):
    """Change the database in a commit of the task; a function that takes the database is passed
    beside it, and the result is what it returns. If that is False, nothing else is changed.

    Attributes:
        plan: the XML of the steps of a task that is a plan, as callers see them; None if they are
            the same.
        progress: what is reported with it.
        cancel: child tasks that are cancelled with it.
        deadline: when the task becomes useless, if that is earlier than its deadline.
    """

    plan: str | None = None
    progress: ReportProgress | None = None
    cancel: tuple[str, ...] = ()
    deadline: datetime | None = None


class ReadChildren(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="children"):
    """Return `Children`: how child tasks stand, without waiting for them."""

    tasks: tuple[str, ...]


class Children(msgspec.Struct, frozen=True):
    """How child tasks stand, in the order in which they were named, and what this task and all that
    it has started have spent, in US dollars and in tokens.
    """

    results: tuple[ChildResult, ...]
    usd: float
    tokens: int


class KeepRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="record"):
    """Add an entry, which is JSON, to the record of the task. There is no result.

    `acts` says that the skill has done something, so that it cannot be withdrawn any more.
    """

    entry: bytes
    acts: bool


class ReadRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="recorded"):
    """Read the record of the task. The result is a list of its entries, in order."""


class WaitForFirst(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="wait_for_first"):
    """Leave the skill until one of these tasks has ended, which need not be child tasks: it raises
    Parked.
    """

    tasks: tuple[str, ...]


class AskModel(HostFunction[str], frozen=True, tag="llm"):
    """Ask a model for an object that fits a JSON Schema. The result is the answer, as JSON text.

    A function that reads an answer, and raises ValueError if it does not fit, is passed beside it.
    Raises ModelFailed, CapabilityMissing and UsageError.
    """

    capability = "llm"

    prompt: str
    schema: bytes
    max_tokens: int
    model: str
    key: Key


Operation: TypeAlias = (
    ReportProgress
    | PublishPart
    | RunStep
    | AskPrincipal
    | RelayQuestion
    | Sleep
    | StartTask
    | ConfirmTasks
    | WaitForTasks
    | WaitForEvent
    | WaitForFirst
    | KeepRecord
    | ReadRecord
    | AskModel
    | JudgeTask
    | AskConfirmation
    | Commit
    | ReadChildren
)

METHODS: Final[Mapping[type[Operation], str]] = {
    kind: str(kind.__struct_config__.tag) for kind in get_args(Operation)
}
"""The method of `Context` that makes each message."""


class Host(Protocol):
    """Performs the operations of one call."""

    @property
    def key(self) -> str:
        """The idempotency key of the whole call."""

    @property
    def resumes(self) -> bool:
        """Whether another execution continues the call if this one is cancelled now."""
        ...

    async def perform(self, operation: Operation, *local: Any) -> Any:
        """Perform an operation, and return its result.

        `local` is what is passed beside the message. Raises what the operation says.
        """


in_step: Final[ContextVar[bool]] = ContextVar("in_step", default=False)
"""Whether the work of a step runs, in the hosts that do not record steps in a database."""


class PartialHost:
    """A host that supports some operations: those for which it has a method, such as `_do_step`."""

    key: str
    resumes: bool = False
    _task: int | None = None
    """The id of the event loop's task that runs the skill; None for a plain function, whose thread
    does one thing after another."""

    async def perform(self, operation: Operation, *local: Any) -> Any:
        """Perform an operation. Raises UsageError if it is not supported."""
        method = METHODS[type(operation)]
        handler = getattr(self, f"_do_{method}", None)
        if handler is None:
            raise self.unsupported(method)
        return await handler(operation, *local)

    def _in_branch(self) -> bool:
        """Whether the skill asks in a branch beside others."""
        return self._task is not None and anyio.get_current_task().id != self._task

    def unsupported(self, method: str) -> UsageError:
        """Return the error for a method of `Context` that cannot be used here."""
        return UsageError(f"A skill uses context.{method} where nothing is durable.")


class PlainHost(PartialHost):
    """Performs what needs no service: nothing is recorded, and nobody can be asked."""

    def __init__(self, report: Callable[[float, str], Awaitable[None]] | None = None) -> None:
        self.key = system.token_hex(16)
        self._report = report

    async def _do_progress(self, operation: ReportProgress) -> None:
        if self._report is not None:
            await self._report(operation.fraction, operation.text)

    async def _do_output(self, operation: PublishPart) -> None:
        pass

    async def _do_step(self, _operation: RunStep, work: Work[bytes]) -> bytes:
        return await work(self.key)

    async def _do_sleep(self, operation: Sleep) -> None:
        await anyio.sleep(operation.seconds)
