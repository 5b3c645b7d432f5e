"""Skills in WebAssembly: components (`protocol_schemas/skill.wit`) and commands of WASI preview 1.

Each call runs in a store of its own, in a thread of its own, within `WasmLimits`; so no call sees
the memory of another one, not even of the same skill. What goes wrong becomes SkillTimeout,
CapabilityMissing, or SkillFailed with a sentence; nothing that wasmtime raises leaves this module.

New code is first compiled in a child process with limits of time and memory, whose result is thrown
away (`wasm_probe`): a fault of the compiler ends the process in which it happens. What passes is
compiled here, in one thread of low priority: wasmtime runs whatever it deserialises, so only this
process makes what it deserialises. Only code that an admin approved comes so far.

wasmtime is the extra `wasm`, and imported before the first compilation.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import anyio
import anyio.to_thread
import msgspec

from component.sandbox.wasm_cache import WasmCache
from component.sandbox.wasm_call import Stopped, WasmCall, current
from component.sandbox.wasm_limits import IMPORTS, Import, WasmLimits
from component.sandbox.wasm_probe import probe
from component.skills.calling import in_thread
from component.skills.context import Context
from component.skills.errors import (
    CapabilityMissing,
    InvalidParam,
    SkillError,
    SkillFailed,
    SkillLoadError,
    SkillTimeout,
    printable,
)
from component.skills.host import HostFunctions
from component.skills.outputs import SkillResult, result_of
from component.skills.threads import Threads
from xep.binding.json_bounds import decoded_json

if TYPE_CHECKING:
    from wasmtime import Module
    from wasmtime.component import Component

    from component.sandbox.wasm_command import Command

__all__ = ["IMPORTS", "Import", "WasmLimits", "WasmRuntime", "WasmSkill"]

T = TypeVar("T")
Probe: TypeAlias = Callable[[bytes, float, int], Awaitable[str]]
"""Takes the code, and at most so many seconds and bytes of memory."""
MakeHost: TypeAlias = Callable[[Context], HostFunctions]
"""Returns the functions of the service for one call; those that the skill lacks are None."""

_PATIENCE: Final = 2
_FIRST_WAIT_S: Final = 0.02
_LONGEST_WAIT_S: Final = 1.0
_PRINCIPALS: Final = 1_000
_MAGIC: Final = b"\0asm"
_NICE: Final = 10
_DEEP: Final = "its functions are nested too deeply."
_UNREACHABLE: Final = "it reached unreachable code, as when memory ends or an assertion fails."
_TRAP_CODES: Final = {"STACK_OVERFLOW": _DEEP, "UNREACHABLE": _UNREACHABLE}
_TRAPS: Final = (
    ("call stack exhausted", _DEEP),
    ("unreachable", _UNREACHABLE),
    ("out of bounds memory", "it accessed memory outside its own."),
    ("undefined element", "it accessed a table outside its bounds."),
    ("uninitialized element", "it called a function that does not exist."),
    ("indirect call type mismatch", "it called a function with another type."),
    ("integer divide by zero", "it divided by zero."),
    ("integer overflow", "it computed a number that is too large."),
    ("invalid conversion to integer", "it converted a number that is no integer."),
    ("hostcalls has been exhausted", "it passed too much data to the host at once."),
    ("exceeds memory limits", "it needs more memory than it may use."),
    ("exceeds table limits", "it needs larger tables than it may use."),
    ("exceeds limits", "it needs larger memories or tables than it may use."),
    ("resource limit exceeded", "it needs more instances, memories or tables than it may use."),
    ("not utf-8", "it returned text that is not UTF-8."),
    ("utf-8", "it returned text that is not UTF-8."),
)
_STUBS: Final = (
    (re.compile(r"random_get_random|insecure_seed"), "random"),
    (re.compile(r"(wall|monotonic)_clock_"), "clock"),
    (re.compile(r"filesystem_"), "filesystem"),
    (re.compile(r"(tcp|udp|sockets?|ip_name_lookup)_"), "network"),
)
"""Functions of WASI that builds with `--stub-wasi` replace by traps, in backtraces."""


class WasmRuntime:
    """Compiles and runs the skills of a service.

    Args:
        threads: counts the threads in which calls run, for each principal.
        directory: keeps compiled code; None compiles it in every process.
        probe: compiles code in a child process, and returns why it cannot be compiled.
    """

    def __init__(
        self, threads: Threads, directory: Path | None = None, probe: Probe = probe
    ) -> None:
        self.threads = threads
        self._directory = directory
        self._cache: WasmCache | None = None
        self._probe = probe
        self._compiling = anyio.Lock()

    async def compiled(
        self, skill: str, wasm: bytes, granted: frozenset[Import], limits: WasmLimits
    ) -> Component | Command:
        """Compile code, or load its compiled form, and check its imports and exports.

        Raises SkillLoadError and CapabilityMissing.
        """
        if len(wasm) > limits.code_bytes:
            raise SkillLoadError(
                f"The code of the skill {skill} has {len(wasm):,} bytes, more than the permitted"
                f" {limits.code_bytes:,}."
            )
        if wasm[:4] != _MAGIC or len(wasm) < 8:
            raise SkillLoadError(f"The code of the skill {skill} is not WebAssembly.")
        if find_spec("wasmtime") is None:
            raise SkillLoadError(
                "Skills in WebAssembly need wasmtime: pip install 'xmpp-agent-component[wasm]'."
            )
        async with self._compiling:
            return await self._compile(skill, wasm, granted, limits)

    async def _compile(
        self, skill: str, wasm: bytes, granted: frozenset[Import], limits: WasmLimits
    ) -> Component | Command:
        digest = hashlib.sha256(wasm).digest()
        if self._directory is not None and self._cache is None:
            self._cache = WasmCache(self._directory, f"wasmtime {version('wasmtime')}")
        found = await self._in_thread(self._cache.get, digest) if self._cache else None
        if found is not None:
            restored = await self._in_thread(_restored, skill, wasm, granted, found)
            if restored is not None:
                return restored
        reason = await self._probe(wasm, limits.compile_s, limits.compile_bytes)
        if reason:
            raise SkillLoadError(
                f"The code of the skill {skill} cannot be compiled: {printable(reason, 200)}"
            )
        loaded, serialized = await self._in_thread(_loaded, skill, wasm, granted)
        if self._cache is not None:
            await self._in_thread(self._cache.put, digest, serialized)
        return loaded

    @staticmethod
    async def _in_thread(work: Callable[..., T], *arguments: Any) -> T:
        """Run work in a thread of low priority. Cancelling leaves it to itself."""
        result: Future[T] = Future()

        def run() -> None:
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
            try:
                result.set_result(work(*arguments))
            except BaseException as error:  # noqa: BLE001 - raised by whoever waits
                result.set_exception(error)

        # Not one of anyio's threads: those go on to do other work, with the low priority.
        threading.Thread(target=run, name="wasm-compile", daemon=True).start()
        return await anyio.to_thread.run_sync(result.result, abandon_on_cancel=True)


def _loaded(
    skill: str, wasm: bytes, granted: frozenset[Import]
) -> tuple[Component | Command, bytes]:
    """Compile code, and check it; return also its compiled form.

    Raises SkillLoadError and CapabilityMissing.
    """
    from wasmtime import Module, WasmtimeError  # noqa: PLC0415 - of an extra
    from wasmtime.component import Component  # noqa: PLC0415

    from component.sandbox.wasm_config import is_component  # noqa: PLC0415
    from component.sandbox.wasm_engine import engine  # noqa: PLC0415

    try:
        made = (Component if is_component(wasm) else Module)(engine(), wasm)
        return _checked(skill, made, granted), bytes(made.serialize())
    except WasmtimeError as error:
        reason = printable(" ".join(str(error).split()), 200)
        raise SkillLoadError(f"The code of the skill {skill} cannot be loaded: {reason}") from error


def _restored(
    skill: str, wasm: bytes, granted: frozenset[Import], compiled: bytes
) -> Component | Command | None:
    """Load code in the form that this service compiled it to, and check it.

    Return None if it was compiled for another processor. Raises as `_loaded`.
    """
    from wasmtime import Module, WasmtimeError  # noqa: PLC0415 - of an extra
    from wasmtime.component import Component  # noqa: PLC0415

    from component.sandbox.wasm_config import is_component  # noqa: PLC0415
    from component.sandbox.wasm_engine import engine  # noqa: PLC0415

    kind = Component if is_component(wasm) else Module
    try:
        made = kind.deserialize(engine(), compiled)
    except WasmtimeError:
        return None
    return _checked(skill, made, granted)


def _checked(
    skill: str, made: Module | Component, granted: frozenset[Import]
) -> Component | Command:
    """Check imports and exports. Raises SkillLoadError and CapabilityMissing."""
    from wasmtime import Module  # noqa: PLC0415 - loaded by now

    from component.sandbox.wasm_command import Command  # noqa: PLC0415
    from component.sandbox.wasm_component import check_component  # noqa: PLC0415

    if isinstance(made, Module):
        return Command(skill, made, granted)
    check_component(skill, made, granted)
    return made


class WasmSkill:
    """The code of one skill.

    Args:
        runtime: compiles and runs it.
        name: of the skill.
        wasm: the code, a component or a command module.
        granted: the imports that its manifest declares and an admin approved.
        host: makes the functions of the service for a call.
        limits: of its calls.
    """

    def __init__(
        self,
        runtime: WasmRuntime,
        name: str,
        wasm: bytes,
        *,
        granted: frozenset[Import],
        host: MakeHost,
        limits: WasmLimits | None = None,
    ) -> None:
        self.name = name
        self._runtime = runtime
        self._wasm = wasm
        self._granted = granted
        self._host = host
        self._limits = limits or WasmLimits()
        self._loaded: Component | Command | None = None
        self._loading = anyio.Lock()
        self._stops: dict[str, int] = {}

    async def prepare(self) -> None:
        """Compile the code and check its imports; otherwise the first call does.

        Raises SkillLoadError for code that is no skill, and CapabilityMissing for an import that is
        not granted.
        """
        await self._prepared()

    async def _prepared(self) -> Component | Command:
        async with self._loading:
            if self._loaded is None:
                self._loaded = await self._runtime.compiled(
                    self.name, self._wasm, self._granted, self._limits
                )
                self._wasm = b""
            return self._loaded

    async def execute(self, arguments: Mapping[str, Any], context: Context) -> SkillResult:
        """Execute the skill, for as long as the context permits.

        Raises SkillError and InvalidParam as the skill says, SkillTimeout, CapabilityMissing, and
        SkillFailed with the reason for which it was stopped. Cancelling stops the guest.

        A principal whose calls were stopped several times in a row waits before the next one, up to
        a second: stopping costs more than answering, and others need the processor too.
        """
        started = perf_counter()
        stops = self._stops.get(context.principal, 0)
        if stops > _PATIENCE:
            await anyio.sleep(min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2 ** (stops - _PATIENCE)))
        try:
            loaded = self._loaded or await self._prepared()
        except SkillLoadError as error:
            raise SkillFailed(self.name, str(error)) from error
        remaining = context.remaining()
        seconds = self._limits.seconds if remaining is None else round(remaining, 2)
        text = msgspec.json.encode(arguments).decode()
        async with anyio.create_task_group() as group:
            call = WasmCall(self.name, text, self._host(context), self._limits, seconds, group)
            try:
                value = await in_thread(
                    partial(self._run, loaded, call), self._runtime.threads.share(context.principal)
                )
            finally:
                call.cancel()
        if isinstance(value, SkillFailed | SkillTimeout | CapabilityMissing):
            self._stopped(context.principal)
        else:
            self._stops.pop(context.principal, None)
        if isinstance(value, Exception):
            raise value
        return result_of(value, perf_counter() - started)

    def _stopped(self, principal: str) -> None:
        if len(self._stops) >= _PRINCIPALS:
            self._stops.clear()
        self._stops[principal] = self._stops.get(principal, 0) + 1

    def _run(self, loaded: Component | Command, call: WasmCall) -> Any:
        """Run a call in its thread; return its value, or the exception that it ends with."""
        from component.sandbox.wasm_command import Command  # noqa: PLC0415 - loaded by now
        from component.sandbox.wasm_component import run_component  # noqa: PLC0415
        from component.sandbox.wasm_engine import ticker  # noqa: PLC0415

        current.call = call
        ticker().enter()
        try:
            if isinstance(loaded, Command):
                ended = loaded.run(call)
                return _value_of_command(call, bytes(ended.output), ended.exit_code or 0)
            outcome = run_component(call, loaded, self._granted)
            return _value_of_component(call, outcome.tag, outcome.payload)
        except Stopped:
            return call.failure
        except (SkillError, InvalidParam) as error:
            return error
        except Exception as error:  # noqa: BLE001 - wasmtime's, for traps; see wasm_call
            return call.failure or _trapped(call, error)
        finally:
            ticker().leave()
            current.call = None


def _value_of_component(call: WasmCall, tag: str, payload: Any) -> Any:
    """Return the value of an outcome. Raises SkillError, InvalidParam and Stopped."""
    texts = payload if isinstance(payload, tuple) else (payload,)
    if sum(map(len, texts)) > call.limits.output_bytes:
        raise call.failed(f"it returned more than {call.limits.output_bytes:,} bytes.")
    match tag:
        case "text":
            return payload
        case "json":
            return _json(call, payload)
        case "refused":
            raise SkillError(payload)
    raise InvalidParam(*payload)


def _value_of_command(call: WasmCall, output: bytes, exit_code: int) -> Any:
    """Return the value that a command wrote. Raises SkillError, InvalidParam and Stopped."""
    if not exit_code:
        return _json(call, output)
    try:
        refusal = msgspec.json.decode(output, type=_Refusal)
    except (msgspec.DecodeError, RecursionError):
        raise call.failed(f"it ended with the exit code {exit_code}.") from None
    if refusal.parameter is not None:
        raise InvalidParam(refusal.parameter, refusal.error)
    raise SkillError(refusal.error)


class _Refusal(msgspec.Struct):
    """What a command writes that ends with another exit code than 0."""

    error: str
    parameter: str | None = None


def _json(call: WasmCall, text: str | bytes) -> Any:
    try:
        return decoded_json(text)
    except ValueError as error:
        raise call.failed(f"its result is not JSON that can be read: {error}.") from None


def _trapped(call: WasmCall, error: Exception) -> Exception:
    """Return the failure for what wasmtime raised."""
    from wasmtime import Trap  # noqa: PLC0415 - loaded by now

    # The text of a trap has a backtrace, which takes long after deep recursion.
    code = error.trap_code if isinstance(error, Trap) else None
    if code is not None and code.name in _TRAP_CODES:
        return SkillFailed(call.skill, _TRAP_CODES[code.name])
    text = str(error)
    for pattern, capability in _STUBS:
        if pattern.search(text):
            return CapabilityMissing(call.skill, capability)
    # The names of a guest's functions are in the backtrace, so only the end is read.
    cause = text.rpartition("Caused by:")[2] or text
    reasons = (reason for words, reason in _TRAPS if words in cause)
    reason = next(reasons, "it ended with a trap.")
    failure = SkillFailed(call.skill, reason)
    failure.__cause__ = error
    return failure
