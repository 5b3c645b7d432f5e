"""What a skill can ask of the service: the same for WebAssembly, for processes and in the service.

Each host function is declared once, as a message with the type of its result. Authors of Python
skills make it by a method of their `Context` (`component.skills.ports`), a confined process sends
it to the service as it is, and WebAssembly makes it from the values of `skill.wit`. So a new one is
a Struct here and in `Function`, a method for authors, and a handler in the service
(`component.skill_directories.host_functions`) and in `component.skills.fake_context`.

A function that the manifest of a skill does not declare, or that nobody has approved, has no
handler in `HostFunctions`: a module that imports it is not instantiated, and a process that calls
it is stopped with CapabilityMissing. Each handler checks the message as coming from an enemy, and
has time limits of its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    Generic,
    Literal,
    TypeAlias,
    TypeVar,
    get_args,
    overload,
)

import msgspec

from component.skills.errors import CapabilityMissing, SkillError
from xep.binding.json_bounds import decoded_json

T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)

_MOST_HEADERS: Final = 256

LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]

LOG_LEVELS: Final[tuple[LogLevel, ...]] = ("debug", "info", "warning", "error")


class HostError(SkillError):
    """The service could not do what a skill asked of it; the message says why.

    The skill may handle it and go on. Otherwise it is a SkillError: its message is for the caller.
    """


class HostFunction(msgspec.Struct, Generic[R_co], frozen=True, forbid_unknown_fields=True):
    """A message that asks for something whose result has the type `R_co`.

    A skill needs a capability of the kind `capability`; of an empty one, none.
    """

    capability: ClassVar[str] = ""

    @classmethod
    def result_type(cls) -> Any:
        """Return the type of the result."""
        return get_args(cls.__orig_bases__[0])[0]  # type: ignore[attr-defined]  # PEP 560

    @classmethod
    def tag(cls) -> str:
        """Return the name of the function in messages."""
        return str(cls.__struct_config__.tag)


class HttpResponse(msgspec.Struct, frozen=True):
    """The response to a request.

    Attributes:
        status: the status code (RFC 9110 §15).
        headers: names and values, in order.
        body: the content.
    """

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""

    @property
    def ok(self) -> bool:
        """Whether the status is one of success: 200 to 299."""
        return 200 <= self.status < 300

    @property
    def text(self) -> str:
        """The content as UTF-8; what is not is replaced by U+FFFD."""
        return self.body.decode(errors="replace")

    @overload
    def json(self) -> Any: ...

    @overload
    def json(self, type: type[T]) -> T: ...

    def json(self, type: Any = Any) -> Any:  # noqa: A002 - as msgspec calls it
        """Return the content, which is JSON, as a value of a type.

        Without a type, it may have 100,000 values. Raises HostError if it is not JSON, has more, or
        does not fit the type.
        """
        try:
            if type is Any:
                return decoded_json(self.body)
            return msgspec.json.decode(self.body, type=type)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise HostError(
                f"The server answered with something else than expected: {error}"
            ) from (None)

    def header(self, name: str) -> str | None:
        """Return the first value of a header, or None. Names differ in no case."""
        wanted = name.lower()
        return next((value for key, value in self.headers if key.lower() == wanted), None)


class HttpRequest(HostFunction[HttpResponse], frozen=True, tag="http"):
    """Make an HTTP request. Raises HostError, and CapabilityMissing for a host not declared.

    `credential` names a credential that the service adds; its value never enters the sandbox.
    """

    capability = "network"

    method: str
    url: str
    headers: Annotated[tuple[tuple[str, str], ...], msgspec.Meta(max_length=_MOST_HEADERS)] = ()
    body: bytes = b""
    credential: str = ""


class ReadMemory(HostFunction[str | None], frozen=True, tag="memory-read"):
    """Return what a key has. Raises HostError; CapabilityMissing outside the declared scope."""

    capability = "memory"

    key: str


class WriteMemory(HostFunction[None], frozen=True, tag="memory-write"):
    """Store a value under a key. Raises as `ReadMemory`."""

    capability = "memory"

    key: str
    value: str


class DeleteMemory(HostFunction[None], frozen=True, tag="memory-delete"):
    """Delete what is stored under a key, if anything. Raises as `ReadMemory`."""

    capability = "memory"

    key: str


class ListMemory(HostFunction[list[str]], frozen=True, tag="memory-list"):
    """Return the keys with a prefix, in order. Raises as `ReadMemory`."""

    capability = "memory"

    prefix: str


class HasCredential(HostFunction[bool], frozen=True, tag="credential"):
    """Return whether a declared credential is set. Raises CapabilityMissing for another one."""

    capability = "credential"

    name: str


class SendMessage(HostFunction[None], frozen=True, tag="xmpp"):
    """Send a message to a bare JID. Those with one key are one message, which clients show once;
    those of a call without a key are counted.

    Raises HostError, and CapabilityMissing for an address that is not declared.
    """

    capability = "xmpp"

    to: str
    text: str
    key: str | None = None


Function: TypeAlias = (
    HttpRequest | ReadMemory | WriteMemory | DeleteMemory | ListMemory | HasCredential | SendMessage
)

Log: TypeAlias = Callable[[LogLevel, str], None]
"""Writes a line to the log of the service. It is shortened, and lines above a rate are dropped."""

Handlers: TypeAlias = Mapping[type[HostFunction[Any]], Callable[[Any], Awaitable[Any]]]


class HostFunctions(msgspec.Struct, frozen=True):
    """The functions of one call of a skill: a handler for each that its code may use."""

    skill: str
    log: Log
    handlers: Handlers

    async def perform(self, function: HostFunction[T]) -> T:
        """Perform a function. Raises what it says, and CapabilityMissing if it may not be used."""
        handler = self.handlers.get(type(function))
        if handler is None:
            raise CapabilityMissing(self.skill, function.capability)
        result: T = await handler(function)
        return result
