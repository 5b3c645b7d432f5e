"""Skills in WebAssembly: components (`protocol_schemas/skill.wit`) and commands of WASI preview 1.

Each call runs in a store of its own, in a thread of its own, within `WasmLimits`; so no call sees
the memory of another one, not even of the same skill.

New code is first compiled in a child process with limits of time and memory, whose result is thrown
away (`wasm_probe`): a fault of the compiler ends the process in which it happens. What passes is
compiled here, in one thread of low priority: wasmtime runs whatever it deserialises, so only this
process makes what it deserialises. Only code that an admin approved comes so far.

wasmtime is the extra `wasm`, and imported (with `wasm_code`) before the first compilation.
"""

from __future__ import annotations

import hashlib
import hmac
import importlib
import os
import stat
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import anyio
import anyio.to_thread
import msgspec
import structlog

from component import system
from component.private import make_directory, open_private
from component.sandbox.wasm_call import WasmCall, WasmLimits
from component.sandbox.wasm_probe import probe
from component.skills.calling import Threads, in_own_thread
from component.skills.context import Context
from component.skills.errors import (
    CapabilityMissing,
    SkillFailed,
    SkillLoadError,
    SkillTimeout,
    printable,
)
from component.skills.host import HostFunctions
from component.skills.outputs import SkillResult, as_result
from component.system import perf_counter

if TYPE_CHECKING:
    from component.sandbox.wasm_code import Code

_log = structlog.get_logger("component.sandbox")

T = TypeVar("T")
Probe: TypeAlias = Callable[[bytes, float, int], Awaitable[str]]
"""Takes the code, and at most so many seconds and bytes of memory."""
MakeHost: TypeAlias = Callable[[Context], HostFunctions]
"""Returns the functions of the service for one call; those that the skill lacks are None."""

_STOPS_WITHOUT_WAIT: Final = 2
_FIRST_WAIT_S: Final = 0.02
_LONGEST_WAIT_S: Final = 1.0
_PRINCIPALS: Final = 1_000
_MAGIC: Final = b"\0asm"
_NICE: Final = 10
_HASH_BYTES: Final = 32
_KEY_BYTES: Final = 32
_OTHERS: Final = 0o077
MOST_CACHE_BYTES: Final = 1 << 30
"""The size of all entries of compiled code; the least recently used ones are removed."""


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

    async def compiled(self, skill: str, wasm: bytes, limits: WasmLimits) -> Code:
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
            return await self._compile(skill, wasm, limits)

    async def _compile(self, skill: str, wasm: bytes, limits: WasmLimits) -> Code:
        digest = hashlib.sha256(wasm).digest()
        if self._directory is not None and self._cache is None:
            self._cache = WasmCache(self._directory, f"wasmtime {version('wasmtime')}")
        found = await self._in_thread(self._cache.get, digest) if self._cache else None
        if found is not None:
            restored: Code | None = await self._in_thread(
                _in_code, "restored_code", skill, wasm, limits, found
            )
            if restored is not None:
                return restored
        reason = await self._probe(wasm, limits.compile_s, limits.compile_bytes)
        if reason:
            raise SkillLoadError(
                f"The code of the skill {skill} cannot be compiled: {printable(reason, 200)}"
            )
        loaded: Code
        loaded, serialized = await self._in_thread(_in_code, "compiled_code", skill, wasm, limits)
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
            except BaseException as error:  # noqa: BLE001 - raised in the caller
                result.set_exception(error)

        # Not one of anyio's threads: those go on to do other work, with the low priority.
        threading.Thread(target=run, name="wasm-compile", daemon=True).start()
        return await system.in_thread(result.result, abandon_on_cancel=True)


def _in_code(function: str, *arguments: Any) -> Any:
    """Call a function of `wasm_code`, whose import takes long, and is done in the thread, too."""
    return getattr(importlib.import_module("component.sandbox.wasm_code"), function)(*arguments)


class WasmSkill:
    """The code of one skill.

    Args:
        wasm: the code, a component or a command module.
        host: makes the functions of the service for a call.
        limits: of its calls, with the imports that its manifest declares and an admin approved.
    """

    def __init__(
        self, runtime: WasmRuntime, name: str, wasm: bytes, host: MakeHost, limits: WasmLimits
    ) -> None:
        self.name = name
        self._runtime = runtime
        self._wasm = wasm
        self._host = host
        self._limits = limits
        self._loaded: Code | None = None
        self._loading = anyio.Lock()
        self._stops: dict[str, int] = {}

    async def prepare(self) -> Code:
        """Compile the code and check its imports; otherwise the first call does.

        Raises SkillLoadError for code that is not a skill, and CapabilityMissing for an import that
        is not granted.
        """
        async with self._loading:
            if self._loaded is None:
                self._loaded = await self._runtime.compiled(self.name, self._wasm, self._limits)
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
        if stops > _STOPS_WITHOUT_WAIT:
            await anyio.sleep(
                min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2 ** (stops - _STOPS_WITHOUT_WAIT))
            )
        try:
            loaded = self._loaded or await self.prepare()
        except SkillLoadError as error:
            raise SkillFailed(self.name, str(error)) from error
        limits, remaining = self._limits, context.remaining()
        if remaining is not None:
            limits = msgspec.structs.replace(limits, seconds=round(remaining, 2))
        text = msgspec.json.encode(arguments).decode()
        async with anyio.create_task_group() as group:
            call = WasmCall(self.name, text, self._host(context), limits, group)
            try:
                share = self._runtime.threads.share(context.principal)
                value = await in_own_thread(partial(_in_code, "run_code", loaded, call), share)
            finally:
                call.cancel()
        if isinstance(value, SkillFailed | SkillTimeout | CapabilityMissing):
            self._stopped(context.principal)
        else:
            self._stops.pop(context.principal, None)
        if isinstance(value, Exception):
            raise value
        return as_result(value, perf_counter() - started)

    def _stopped(self, principal: str) -> None:
        if len(self._stops) >= _PRINCIPALS:
            self._stops.clear()
        self._stops[principal] = self._stops.get(principal, 0) + 1


class WasmCache:
    """Compiled code on disk, so that it is compiled once and not in every process.

    wasmtime runs whatever it deserialises, so an entry is trusted only if this service wrote it:
    the directory and its files are the service's own (modes 0700 and 0600), and each entry begins
    with a keyed hash over its name and content. The key lies beside the entries. An entry that
    another user owns or may write, or whose hash is not the right one, is removed, and the code
    compiled again. No child process writes here.

    Args:
        directory: is made if it is missing.
        fingerprint: of the compiler and its configuration, on which compiled code depends.
    """

    def __init__(self, directory: Path, fingerprint: str) -> None:
        self._directory = directory
        self._fingerprint = fingerprint
        self._key: bytes | None = None

    def get(self, digest: bytes) -> bytes | None:
        """Return the compiled form of code with this hash, or None if it has to be compiled."""
        path = self._path(digest)
        try:
            key = self._opened()
            content = _read_own(path)
            if content is None:
                return None
            found, compiled = content[:_HASH_BYTES], memoryview(content)[_HASH_BYTES:]
            if hmac.compare_digest(found, self._hash(key, path.name, compiled)):
                os.utime(path)
                return bytes(compiled)
            _log.warning("compiled code was changed, and is compiled again", path=str(path))
            path.unlink(missing_ok=True)
        except OSError as error:
            _log.warning("compiled code cannot be read", path=str(path), error=str(error))
        return None

    def put(self, digest: bytes, compiled: bytes) -> None:
        """Store the compiled form of code with this hash. A failure is only logged."""
        path = self._path(digest)
        part = path.with_suffix(f".{system.token_hex(8)}.part")
        try:
            key = self._opened()
            with open_private(part, "wb") as file:
                file.write(self._hash(key, path.name, compiled))
                file.write(compiled)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
            self._prune()
        except OSError as error:
            _log.warning("compiled code cannot be stored", path=str(path), error=str(error))
            part.unlink(missing_ok=True)

    def _path(self, digest: bytes) -> Path:
        name = hashlib.sha256(digest + self._fingerprint.encode()).hexdigest()
        return self._directory / f"{name}.compiled"

    @staticmethod
    def _hash(key: bytes, name: str, compiled: bytes | memoryview) -> bytes:
        # Keyed BLAKE2b is a MAC (RFC 7693 §2.9), and faster than HMAC-SHA-256 over 40 MB.
        found = hashlib.blake2b(name.encode(), key=key, digest_size=_HASH_BYTES)
        found.update(compiled)
        return found.digest()

    def _opened(self) -> bytes:
        """Return the key; make it, and the directory, if they are missing. Raises OSError."""
        if self._key is not None:
            return self._key
        make_directory(self._directory)
        mode = self._directory.stat()
        if mode.st_uid != os.geteuid() or stat.S_IMODE(mode.st_mode) & _OTHERS:
            raise PermissionError(f"{self._directory} is not the service's own, with mode 0700")
        path = self._directory / "key"
        key = _read_own(path)
        if key is None or len(key) != _KEY_BYTES:
            key = system.token_bytes(_KEY_BYTES)
            part = path.with_suffix(f".{system.token_hex(8)}.part")
            with open_private(part, "wb") as file:
                file.write(key)
            part.replace(path)
            # Of two processes that start at once, the last one's key remains.
            key = _read_own(path) or key
        self._key = key
        return key

    def _prune(self) -> None:
        """Remove the entries that were used least recently, down to `MOST_CACHE_BYTES`."""
        entries = []
        for path in self._directory.glob("*.compiled"):
            found = path.stat()
            entries.append((found.st_mtime, found.st_size, path))
        size = sum(each[1] for each in entries)
        for _, each, path in sorted(entries)[:-1]:
            if size <= MOST_CACHE_BYTES:
                return
            path.unlink(missing_ok=True)
            size -= each


def _read_own(path: Path) -> bytes | None:
    """Read a file of this user only; None if it is missing, or was another's. Raises OSError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError:
        path.unlink(missing_ok=True)
        return None
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        own = found.st_uid == os.geteuid() and not stat.S_IMODE(found.st_mode) & _OTHERS
        if own and stat.S_ISREG(found.st_mode):
            return file.read()
    _log.warning("a file of compiled code was not the service's own", path=str(path))
    path.unlink(missing_ok=True)
    return None
