"""What a skill can ask of the service: the same for WebAssembly, for processes and in the service.

A function that the manifest of a skill does not declare, or that nobody has approved, is None in
`HostFunctions`: a module that imports it is not instantiated, and a process that calls it is
stopped with CapabilityMissing. Each implementation checks its arguments as coming from an enemy,
and has time limits of its own. Authors of Python skills use them through their `Context`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Annotated, Any, Final, Literal, Protocol, TypeAlias, TypeVar, overload

import msgspec

from component.skills.errors import SkillError
from xep.binding.json_bounds import decoded_json

T = TypeVar("T")

_MOST_HEADERS: Final = 256

LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]

LOG_LEVELS: Final[tuple[LogLevel, ...]] = ("debug", "info", "warning", "error")


class HostError(SkillError):
    """The service could not do what a skill asked of it; the message says why.

    The skill may handle it and go on. Otherwise it is a SkillError: its message is for the caller.
    """


class HttpRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request that the service makes for the code.

    `credential` names a credential that the service adds; its value never enters the sandbox.
    """

    method: str
    url: str
    headers: Annotated[tuple[tuple[str, str], ...], msgspec.Meta(max_length=_MOST_HEADERS)] = ()
    body: bytes = b""
    credential: str = ""


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


Progress: TypeAlias = Callable[[float, str], Coroutine[Any, Any, None]]
"""Reports a fraction from 0 to 1 and a short text. Raises HostError."""


Log: TypeAlias = Callable[[LogLevel, str], None]
"""Writes a line to the log of the service. It is shortened, and lines above a rate are dropped."""


Http: TypeAlias = Callable[[HttpRequest], Coroutine[Any, Any, HttpResponse]]
"""Makes an HTTP request. Raises HostError, and CapabilityMissing for a host not declared."""


class Memory(Protocol):
    """Reads and writes the memories of the declared scope."""

    async def get(self, key: str) -> str | None:
        """Return a value. Raises HostError, and CapabilityMissing outside the scope."""

    async def put(self, key: str, value: str) -> None:
        """Write a value. Raises as `get`."""

    async def delete(self, key: str) -> None:
        """Delete a value. Raises as `get`."""

    async def keys(self, prefix: str) -> list[str]:
        """Return the keys with a prefix. Raises as `get`."""


class Credentials(Protocol):
    """Says which credentials a request can name."""

    async def available(self, name: str) -> bool:
        """Return whether a declared credential is set. Raises CapabilityMissing otherwise."""


class Llm(Protocol):
    """Asks the agent's model."""

    async def __call__(
        self, prompt: str, schema: str, max_tokens: int, key: str | int | None = None
    ) -> str:
        """Return a JSON object that fits a JSON Schema (as JSON); `key` is that of `Context.llm`.

        Raises HostError, ModelFailed, and CapabilityMissing for more than is approved.
        """


class Xmpp(Protocol):
    """Sends messages to the addresses that are declared."""

    async def send(self, to: str, text: str, key: str | None = None) -> None:
        """Send a message to a bare JID. Those with one key are one message, which clients show
        once; those of a call without a key are counted.

        Raises HostError, and CapabilityMissing for an address that is not declared.
        """


class HostFunctions(msgspec.Struct, frozen=True, kw_only=True):
    """The functions of one call. None is one that the code must not use."""

    log: Log
    progress: Progress
    http: Http | None = None
    memory: Memory | None = None
    credentials: Credentials | None = None
    llm: Llm | None = None
    xmpp: Xmpp | None = None


FUNCTION_KINDS: Final = {
    "http": "network",
    "memory": "memory",
    "credentials": "credential",
    "llm": "llm",
    "xmpp": "xmpp",
}
"""The functions that need a capability, with its kind."""
