"""The state of one call of a skill in WebAssembly, shared by its thread and the event loop.

A host function raises nothing into wasmtime: wasmtime-py keeps such an exception in a variable of
the module until the guest has ended, so each of two threads may raise what happened in the other.
A host function records the failure here and makes the guest trap; then the record says why.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import Any, Final, Literal, TypeAlias, TypeVar, get_args

import anyio
import anyio.from_thread
import msgspec
import structlog
from anyio.abc import TaskGroup

from component import system
from component.skills.errors import (
    CapabilityMissing,
    SkillFailed,
    SkillTimeout,
    SkillUnavailable,
    printable,
)
from component.skills.host import HostError, HostFunction, HostFunctions, LogLevel
from component.skills.operations import ModelFailed
from xep.binding.json_bounds import decoded_json

Import: TypeAlias = Literal["http", "memory", "credentials", "llm", "xmpp", "clock", "random"]
"""Interfaces of `protocol_schemas/skill.wit` that a skill may import only if its manifest declares
them and an admin approved it. It may always import `log` and `progress`."""

IMPORTS: Final[tuple[Import, ...]] = get_args(Import)
T = TypeVar("T")

_log = structlog.get_logger("component.sandbox")

_LOG_LINES: Final = 100
_LOG_TEXT: Final = 2_000


class WasmLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What a skill may use: the imports that it may have, and limits of one call and of the code.
    Sizes are in bytes, times in seconds.

    `fuel` is the number of instructions that are executed at most, `seconds` the time if the
    context of the call sets none. `table_elements` holds for each table. `memory_bytes` holds for
    each memory, of which a module has one and a component `memories` at most. `host_calls` is the
    number of calls of imported functions, `host_s` the time of one of them, `llm_s` that of one
    that asks a model. `compile_s` and `compile_bytes` are what compiling the code may take.
    """

    imports: frozenset[Import] = frozenset()
    seconds: float = 120.0
    fuel: int = 20_000_000_000
    memory_bytes: int = 64 << 20
    memories: int = 4
    table_elements: int = 20_000
    tables: int = 16
    instances: int = 100
    output_bytes: int = 1 << 20
    log_bytes: int = 64 << 10
    host_calls: int = 1_000
    host_s: float = 30.0
    llm_s: float = 120.0
    code_bytes: int = 32 << 20
    compile_s: float = 300.0
    compile_bytes: int = 4 << 30


class GuestStopped(Exception):  # noqa: N818 - it says what happened
    """The call was stopped: `WasmCall.failure` says why. It never leaves the sandbox."""


class WasmCall:
    """One call.

    Args:
        limits: of the call; `seconds` is the time that it may take.
        group: runs host functions, on the event loop.
    """

    def __init__(
        self, skill: str, arguments: str, host: HostFunctions, limits: WasmLimits, group: TaskGroup
    ) -> None:
        self.skill = skill
        self.arguments = arguments
        self.host = host
        self.limits = limits
        self.failure: Exception | None = None
        self.cancelled = False
        self._deadline = system.monotonic() + limits.seconds
        self._group = group
        self._host_calls = 0
        self._lines = 0
        self._waiting: Future[Any] | None = None
        self._lock = threading.Lock()

    def remaining(self) -> float:
        """Return the seconds that are left."""
        return max(0.0, self._deadline - system.monotonic())

    def expired(self) -> bool:
        """Record that the time is over, or that nobody waits for the call any more, if so. Called
        in the thread, every few milliseconds while the guest runs.
        """
        if self.cancelled:
            self.stop(GuestStopped())
        elif system.monotonic() >= self._deadline:
            self.stop(SkillTimeout(self.skill, self.limits.seconds))
        return self.failure is not None

    def stop(self, failure: Exception) -> None:
        """Record why the call is stopped, if nothing has stopped it yet."""
        if self.failure is None:
            self.failure = failure

    def failed(self, reason: str) -> GuestStopped:
        """Stop the call for a reason, a sentence; return the exception to raise."""
        self.stop(SkillFailed(self.skill, reason))
        return GuestStopped()

    def broken(self, error: Exception) -> None:
        """Stop the call because of a fault in a host function, for the log."""
        failure = SkillFailed(self.skill)
        failure.__cause__ = error
        self.stop(failure)

    def json(self, text: str | bytes) -> Any:
        """Return the value in a result of the skill. Raises Stopped if it is not JSON."""
        try:
            return decoded_json(text)
        except ValueError as error:
            raise self.failed(f"its result is not JSON that can be read: {error}.") from None

    def missing(self, capability: str) -> GuestStopped:
        """Stop the call because it lacks a capability; return the exception to raise."""
        self.stop(CapabilityMissing(self.skill, capability))
        return GuestStopped()

    def cancel(self) -> None:
        """Let the guest and the host function that it waits for end soon. Called on the loop."""
        self.cancelled = True
        with self._lock:
            waiting = self._waiting
        if waiting is not None:
            waiting.cancel()

    def count(self) -> None:
        """Count a call of a host function. Raises Stopped."""
        if self.failure is not None or self.expired():
            raise GuestStopped
        self._host_calls += 1
        if self._host_calls > self.limits.host_calls:
            raise self.failed(f"it called more than {self.limits.host_calls:,} host functions.")

    def ask(self, what: str, function: HostFunction[T], seconds: float | None = None) -> T:
        """Perform a host function on the event loop, and return its result. Called in the thread.

        `what` names it in failures. Raises HostError, which is for the guest, and Stopped.
        """
        most = self.limits.host_s if seconds is None else seconds
        remaining = self.remaining()
        work = partial(self.host.perform, function)
        future: Future[T] = Future()
        with self._lock:
            self._waiting = future
        try:
            if not self.cancelled:
                anyio.from_thread.run_sync(
                    self._group.start_soon, _run, work, future, min(most, remaining)
                )
                return future.result()
            self.stop(GuestStopped())
        except HostError:
            raise
        except ModelFailed as error:
            raise HostError(str(error)) from None
        except (CapabilityMissing, SkillUnavailable) as error:
            self.stop(error)
        except TimeoutError:
            late = f"{what} did not answer within {most:g} seconds."
            self.stop(
                SkillFailed(self.skill, late)
                if most < remaining
                else SkillTimeout(self.skill, self.limits.seconds)
            )
        except CancelledError:
            self.stop(GuestStopped())
        except Exception as error:  # noqa: BLE001 - a fault of the host, for the log
            self.broken(error)
        except BaseException:  # noqa: BLE001 - the event loop ends, or the call was cancelled
            self.stop(GuestStopped())
        finally:
            with self._lock:
                self._waiting = None
        raise GuestStopped

    def log(self, level: LogLevel, text: str) -> None:
        """Write a line to the log, at most 100 in a call."""
        self._lines += 1
        if self._lines <= _LOG_LINES:
            self.host.log(level, printable(text[:_LOG_TEXT], _LOG_TEXT))
        elif self._lines == _LOG_LINES + 1:
            _log.warning("a skill logs too much", skill=self.skill, lines=_LOG_LINES)


async def _run(work: Callable[[], Coroutine[Any, Any, T]], future: Future[T], limit: float) -> None:
    """Run a host function; its result, or what it raised, becomes that of the future."""
    value: T
    try:
        with anyio.fail_after(limit):
            value = await work()
    except Exception as error:  # noqa: BLE001 - raised in the thread
        if not future.done():
            future.set_exception(error)
    except BaseException:
        future.cancel()
        raise
    else:
        if not future.done():
            future.set_result(value)


class Current(threading.local):
    """The call that runs in this thread; a thread runs one at a time."""

    call: WasmCall | None = None

    def get(self) -> WasmCall:
        """Return the call."""
        assert self.call is not None, "host functions run only during a call"
        return self.call


current = Current()
