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
    raised SkillError, `reason` why another one failed. `skill` is the name of its skill. `taints`
    are the possible authors of these texts.
    """

    task: str
    state: str
    text: str = ""
    is_error: bool = False
    reason: str = ""
    skill: str = ""
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
    """Leave the skill until something has happened elsewhere: it raises Parked.

    A function that takes the database, and returns whether it has not happened yet, is passed
    beside it.
    """

    event: str


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

    async def perform(self, operation: Operation, *local: Callable[[str], Any]) -> Any:
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

    async def perform(self, operation: Operation, *local: Callable[[str], Any]) -> Any:
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
