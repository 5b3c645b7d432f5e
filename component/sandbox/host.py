"""What code in a sandbox can ask of the service: the same for WebAssembly and for processes.

A function that the manifest of a skill does not declare, or that nobody has approved, is None in
`HostFunctions`: a module that imports it is not instantiated, and a process that calls it is
stopped with CapabilityMissing. Each implementation checks its arguments as coming from an enemy,
and has time limits of its own.
"""

from __future__ import annotations

from typing import Final, Literal, Protocol, TypeAlias

import msgspec

LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]

LOG_LEVELS: Final[tuple[LogLevel, ...]] = ("debug", "info", "warning", "error")


class HostError(Exception):
    """A host function failed. The code in the sandbox gets the message, and may go on."""


class HttpRequest(msgspec.Struct, frozen=True):
    """A request that the service makes for the code.

    `credential` names a credential that the service adds; its value never enters the sandbox.
    """

    method: str
    url: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    credential: str = ""


class HttpResponse(msgspec.Struct, frozen=True):
    """The response to a request."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


class Progress(Protocol):
    """Reports progress."""

    async def __call__(self, fraction: float, text: str) -> None:
        """Report a fraction from 0 to 1 and a short text. Raises HostError."""


class Log(Protocol):
    """Writes to the log of the service."""

    def __call__(self, level: LogLevel, text: str) -> None:
        """Write a line. It is shortened, and lines above a rate are dropped."""


class Http(Protocol):
    """Makes HTTP requests to the hosts that are declared."""

    async def __call__(self, request: HttpRequest) -> HttpResponse:
        """Make a request. Raises HostError, and CapabilityMissing for a host not declared."""


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

    async def __call__(self, prompt: str, schema: str, max_tokens: int) -> str:
        """Return a JSON object that fits a JSON Schema (as JSON). Raises HostError."""


class HostFunctions(msgspec.Struct, frozen=True, kw_only=True):
    """The functions of one call. None is one that the code must not use."""

    log: Log
    progress: Progress
    http: Http | None = None
    memory: Memory | None = None
    credentials: Credentials | None = None
    llm: Llm | None = None
