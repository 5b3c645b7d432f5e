"""The messages between the service and a confined child, and how they are written to pipes.

Each is a MessagePack value after its length in four bytes, most significant first (MessagePack
1.0). A child takes one call at a time. What it writes is not trusted, so each message of a child
has a type for every value, a maximum number of everything that can be repeated, and no unknown
fields: the length of a message then bounds what decoding it costs. JSON inside is decoded with
bounds where it is used.
"""

from __future__ import annotations

import struct
import traceback
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar, cast

import msgspec
from msgspec import Meta

from component.policy.taint import Taint
from component.skills.errors import (
    CapabilityMissing,
    Denied,
    InvalidParam,
    SkillError,
    SkillTimeout,
    StepFailed,
    UsageError,
    printable,
)
from component.skills.host import Function, HostError, LogLevel
from component.skills.operations import (
    AskModel,
    AskPrincipal,
    ModelFailed,
    Problem,
    PublishPart,
    ReportProgress,
    RunStep,
    Sleep,
)
from component.skills.outputs import Part, SkillResult

MOST_SKILLS: Final = 1_000
"""The maximum number of skills that a child can describe."""
MOST_PARTS: Final = 10_000
"""The maximum number of parts of a result."""
LONGEST_LINE: Final = 1000
"""The maximum length of a line for the log, and of a reason."""
_TRACE: Final = 4000
T = TypeVar("T")


class Describe(msgspec.Struct, frozen=True, tag="describe"):
    """Asks for the descriptions of the child's skills."""


class Call(msgspec.Struct, frozen=True, tag="call"):
    """Calls a skill.

    `arguments` are a JSON object; `seconds` are left until the deadline; `declared` are the tags of
    the host functions that the skill may use; the others are those of the call's Context.
    """

    skill: str
    arguments: bytes
    seconds: float
    principal: str
    sender: str
    agent: str
    key: str
    taints: tuple[str, ...] = ()
    declared: tuple[str, ...] = ()


class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    """Cancels the current call. The child answers it with a failure, and may get the next one."""


ErrorKind: TypeAlias = (
    Literal["host", "refused", "declined", "step", "usage", "value", "model"] | Problem
)
"""Which exception a host function raised: one of `_ERRORS`, or else a ModelFailed with this
problem, where `model` stands for `refused`."""
_ERRORS: Final[Mapping[ErrorKind, type[Exception]]] = {
    "host": HostError,
    "refused": SkillError,
    "declined": Denied,
    "step": StepFailed,
    "usage": UsageError,
    "value": ValueError,
}


class Reply(msgspec.Struct, frozen=True, tag="reply"):
    """The outcome of a host function: its value (as MessagePack), or its error."""

    id: int
    value: msgspec.Raw = msgspec.Raw(b"\xc0")
    error: str | None = None
    kind: ErrorKind = "host"

    @classmethod
    def of_error(cls, number: int, error: Exception) -> Reply:
        """Return the message of an exception for the skill."""
        if isinstance(error, ModelFailed):
            kind: ErrorKind = "model" if error.problem == "refused" else error.problem
        else:
            kind = next(kind for kind, made in _ERRORS.items() if isinstance(error, made))
        reason = error.reason if isinstance(error, Denied) else str(error)
        return cls(number, error=printable(reason, LONGEST_LINE), kind=kind)

    def result(self, type: type[T]) -> T:  # noqa: A002 - it is one
        """Return the value, of a type. Raises the exception of a message that has one."""
        if self.error is None:
            return msgspec.msgpack.decode(self.value, type=type)
        if self.kind in _ERRORS:
            raise _ERRORS[self.kind](self.error)
        problem = "refused" if self.kind == "model" else cast("Problem", self.kind)
        raise ModelFailed(problem, self.error)


class Begin(msgspec.Struct, frozen=True, tag="begin"):
    """Has the child do the work of a step, with its idempotency key. StepEnded answers it."""

    id: int
    key: str


class Described(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="described"):
    """The descriptions of the child's skills, as JSON (`component.skills.spec`)."""

    skills: Annotated[tuple[bytes, ...], Meta(max_length=MOST_SKILLS)]


class Result(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="result"):
    """A completed call."""

    parts: Annotated[tuple[Part, ...], Meta(max_length=MOST_PARTS)]
    is_error: bool = False
    taints: Annotated[tuple[Taint, ...], Meta(max_length=MOST_PARTS)] | None = None

    @classmethod
    def of(cls, result: SkillResult) -> Result:
        """Return the message of a result."""
        return cls(result.outputs, result.is_error, result.taints)

    def result(self) -> SkillResult:
        """Return the result of the message."""
        return SkillResult(self.parts, self.is_error, taints=self.taints)


FailureKind: TypeAlias = Literal[
    "load", "parameter", "failed", "capability", "memory", "timeout", "cancelled"
]


class Failure(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="failure"):
    """A call, or the loading of the skills, that failed.

    `name` and `path` are those of a parameter, or the missing capability; `text` is for the caller,
    and `trace` for the log.
    """

    kind: FailureKind
    text: str = ""
    name: str | None = None
    path: str | None = None
    trace: str = ""

    @classmethod
    def of(cls, error: Exception) -> Failure:
        """Return the message of an error that a call of a skill raises (`CALL_ERRORS`)."""
        match error:
            case InvalidParam():
                return cls("parameter", error.reason, error.name, error.path)
            case CapabilityMissing():
                return cls("capability", str(error), error.capability)
            case SkillTimeout():
                return cls("timeout", str(error))
        cause = error.__cause__ or error
        kind: FailureKind = "memory" if isinstance(cause, MemoryError) else "failed"
        return cls(kind, str(error), trace=trace_of(cause))


def trace_of(error: BaseException) -> str:
    """Return the end of the traceback of an exception."""
    return "".join(traceback.format_exception(error))[-_TRACE:]


RecordedFunction: TypeAlias = AskModel | AskPrincipal | Sleep | RunStep
"""What is recorded, so that the order of those that are not in a branch identifies them."""
Wanted: TypeAlias = Function | ReportProgress | PublishPart | RecordedFunction


class Ask(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="ask"):
    """Asks the service for something. `branch` says that the skill asks in a branch beside others.

    A Reply answers it; a Begin comes first if the work of a step is to be done.
    """

    id: int
    what: Wanted
    branch: bool = True


class StepEnded(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="step-ended"):
    """How the work of a step ended: with a value (as JSON), or an error.

    `refused` is for the caller (SkillError); `usage` and `failed` are mistakes of the skill.
    """

    id: int
    value: bytes = b""
    error: str | None = None
    kind: Literal["refused", "usage", "failed"] = "failed"


class Withdraw(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="withdraw"):
    """Cancels a host function. There is no reply."""

    id: int


class LogLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="log"):
    """A line for the log. There is no reply."""

    level: LogLevel
    text: str


ToChild: TypeAlias = Describe | Call | Cancel | Reply | Begin
FromChild: TypeAlias = Described | Result | Failure | LogLine | StepEnded | Withdraw | Ask

_LENGTH: Final = struct.Struct(">I")
_encode: Final = msgspec.msgpack.Encoder().encode


class FrameError(ValueError):
    """What was read is not a message: too long, or not one of these."""


def frame(message: ToChild | FromChild) -> bytes:
    """Return a message as it is written."""
    body = _encode(message)
    return _LENGTH.pack(len(body)) + body


class Frames:
    """Splits what is read from a pipe into messages."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._data = bytearray()

    def feed(self, data: bytes) -> None:
        """Add what was read."""
        self._data += data

    def next(self) -> bytes | None:
        """Return the next message, encoded, or None if it is not complete. Raises FrameError."""
        if len(self._data) < _LENGTH.size:
            return None
        (size,) = _LENGTH.unpack_from(self._data)
        if size > self._most:
            raise FrameError(f"a message has {size:,} bytes, and at most {self._most:,} are read")
        end = _LENGTH.size + size
        if len(self._data) < end:
            return None
        body = bytes(self._data[_LENGTH.size : end])
        del self._data[:end]
        return body

    @property
    def empty(self) -> bool:
        """Whether nothing is left."""
        return not self._data


_to_child: Final = msgspec.msgpack.Decoder(ToChild)
_from_child: Final = msgspec.msgpack.Decoder(FromChild)


def read_to_child(body: bytes) -> ToChild:
    """Decode a message of the service. Raises FrameError."""
    message: ToChild = _decoded(_to_child, body)
    return message


def read_from_child(body: bytes) -> FromChild:
    """Decode a message of a child. Raises FrameError."""
    message: FromChild = _decoded(_from_child, body)
    return message


def _decoded(decoder: msgspec.msgpack.Decoder[Any], body: bytes) -> Any:
    try:
        return decoder.decode(body)
    except (ValueError, TypeError, RecursionError) as error:
        raise FrameError(f"a message is not valid: {error}") from error


class _Refusal(msgspec.Struct):
    """What a program, or a command in WebAssembly, writes that ends with another code than 0."""

    error: str
    parameter: str | None = None


def refusal_in(output: bytes | bytearray) -> SkillError | InvalidParam:
    """Return the error that a program reports. Raises ValueError or RecursionError without one."""
    refusal = msgspec.json.decode(output, type=_Refusal)
    if refusal.parameter is not None:
        return InvalidParam(refusal.parameter, refusal.error)
    return SkillError(refusal.error)
