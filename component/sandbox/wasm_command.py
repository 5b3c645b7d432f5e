"""Skills that are command modules of WASI preview 1: JSON on standard input and output.

The functions of WASI are implemented here, not by wasmtime: the module has standard input, output
and error, and nothing else: no arguments, no environment, no files, no sockets. Random numbers and
the clock are the host's if granted. A function that would need more stops the call.

These functions raise nothing; see `wasm_call`. To stop the guest they take its fuel away, so that
it traps when it goes on.
"""

from __future__ import annotations

import os
import struct
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
import wasmtime

from component import system
from component.sandbox.messages import refusal_in
from component.sandbox.wasm_call import GuestStopped, Import, WasmCall
from component.sandbox.wasm_engine import engine, store_for
from component.skills.errors import CapabilityMissing, SkillLoadError, printable

MODULE: Final = "wasi_snapshot_preview1"
_SUCCESS, _BADF, _FAULT, _INVAL, _SPIPE, _NOTSUP = 0, 8, 21, 28, 70, 58
_STDIN, _STDOUT, _STDERR = 0, 1, 2
_SIZE: Final = struct.Struct("<I")
_IOVEC: Final = struct.Struct("<II")
_U64: Final = struct.Struct("<Q")
_IOVECS: Final = 1_024
_RANDOM_BYTES: Final = 65_536
_RIGHTS: Final = {_STDIN: 1 << 1, _STDOUT: 1 << 6, _STDERR: 1 << 6}
_linking = threading.Lock()


class CommandState:
    """The standard streams and the exit code of a command."""

    def __init__(self, call: WasmCall, store: wasmtime.Store) -> None:
        self.call = call
        self.store = store
        self.memory: wasmtime.Memory | None = None
        self.input = memoryview(call.arguments.encode())
        self.output = bytearray()
        self.exit_code: int | None = None
        self._errors = bytearray()
        self._error_bytes = 0

    def read(self, start: int, length: int) -> bytes:
        """Read the guest's memory. Raises IndexError."""
        start &= 0xFFFFFFFF
        assert self.memory is not None
        if start + length > self.memory.data_len(self.store):
            raise IndexError
        return bytes(self.memory.read(self.store, start, start + length))

    def write(self, start: int, data: bytes) -> None:
        """Write to the guest's memory. Raises IndexError."""
        assert self.memory is not None
        self.memory.write(self.store, bytearray(data), start & 0xFFFFFFFF)

    def iovecs(self, start: int, count: int) -> list[tuple[int, int]]:
        """Read a list of buffers: where each begins, and its length. Raises IndexError."""
        if not 0 <= count <= _IOVECS:
            raise IndexError
        return list(_IOVEC.iter_unpack(self.read(start, count * _IOVEC.size)))

    def log(self, data: bytes) -> None:
        """Write standard error to the log, by lines."""
        left = self.call.limits.log_bytes - self._error_bytes
        self._error_bytes += len(data)
        self._errors += data[: max(0, left)]
        *lines, rest = self._errors.split(b"\n")
        for line in filter(None, lines):
            self.call.log("info", line.decode("utf-8", "replace"))
        self._errors = rest

    def flush(self) -> None:
        """Write an unfinished line to the log."""
        if self._errors:
            self.log(b"\n")


class _State(threading.local):
    state: CommandState | None = None


_state = _State()


class CommandCode:
    """A compiled command module, linked.

    Raises CapabilityMissing for an import that is not granted, and SkillLoadError for a module that
    is not a command.
    """

    def __init__(self, skill: str, module: wasmtime.Module, granted: frozenset[Import]) -> None:
        exports = {each.name: each.type for each in module.exports}
        start = exports.get("_start")
        if not isinstance(start, wasmtime.FuncType) or start.params or start.results:
            raise SkillLoadError(
                f"The skill {skill} is a module without a function _start, so it is not a command"
                " of WASI preview 1."
            )
        if not isinstance(exports.get("memory"), wasmtime.MemoryType):
            raise SkillLoadError(f"The skill {skill} is a module that exports no memory.")
        for each in module.imports:
            _check_import(skill, each, granted)
        with _linking:
            linker = _linker(module)
            self._linked = linker.instantiate_pre(module)

    def run(self, call: WasmCall) -> Any:
        """Run the command in a store of its own, and return its value.

        Raises SkillError and InvalidParam as it says, Stopped with `call.failure` set, and what
        wasmtime raises for traps.
        """
        ended = self._ended(call)
        if not ended.exit_code:
            return call.json(bytes(ended.output))
        try:
            raise refusal_in(ended.output)
        except (msgspec.DecodeError, RecursionError):
            raise call.failed(f"it ended with the exit code {ended.exit_code}.") from None

    def _ended(self, call: WasmCall) -> CommandState:
        store = store_for(call, 1)
        state = _state.state = CommandState(call, store)
        try:
            exports = self._linked.instantiate(store).exports(store)
            memory, start = exports["memory"], exports["_start"]
            assert isinstance(memory, wasmtime.Memory)
            assert isinstance(start, wasmtime.Func)
            state.memory = memory
            try:
                start(store)
            except (wasmtime.Trap, wasmtime.WasmtimeError):
                if state.exit_code is None:
                    raise
            if call.failure is not None:
                raise GuestStopped
            return state
        finally:
            if call.failure is None and state.exit_code is None and store.get_fuel() == 0:
                call.failed(f"it executed more than {call.limits.fuel:,} instructions.")
            state.flush()
            _state.state = None
            store.close()


def _check_import(skill: str, each: wasmtime.ImportType, granted: frozenset[Import]) -> None:
    name = each.name or ""
    if each.module != MODULE or not isinstance(each.type, wasmtime.FuncType):
        where = printable(f"{each.module} {name}", 100)
        raise SkillLoadError(
            f"The skill {skill} imports {where}, which skills cannot have; a command imports"
            f" functions of {MODULE}."
        )
    if name not in _FUNCTIONS and _capability(name) is None:
        shown = printable(name, 100)
        raise SkillLoadError(f"The skill {skill} imports {shown}, which {MODULE} does not have.")
    for functions, capability in ((_RANDOM, "random"), (_CLOCK, "clock")):
        if name in functions and capability not in granted:
            raise CapabilityMissing(skill, capability)


def _capability(name: str) -> str | None:
    """Return the capability that a function would need which commands never have."""
    if name.startswith("path_") or name in _FILES:
        return "filesystem"
    if name.startswith("sock_"):
        return "network"
    return "signals" if name == "proc_raise" else None


def _linker(module: wasmtime.Module) -> wasmtime.Linker:
    linker = wasmtime.Linker(engine())
    for each in module.imports:
        assert isinstance(each.type, wasmtime.FuncType)
        name = each.name or ""
        results = [str(result) for result in each.type.results]
        if name in _FUNCTIONS:
            function, expected = _FUNCTIONS[name]
            declared = "".join(_LETTERS.get(str(one), "?") for one in each.type.params)
            if declared != expected or results != ([] if name == "proc_exit" else ["i32"]):
                raise SkillLoadError(
                    f"A command imports {name} with a type that is not the one of {MODULE}."
                )
            linker.define_func(MODULE, name, each.type, _guarded(function, bool(results)))
        else:
            if results != ["i32"]:
                raise SkillLoadError(
                    f"A command imports {name} with a type that is not the one of {MODULE}."
                )
            stop = _stopping(_capability(name) or name)
            linker.define_func(MODULE, name, each.type, _guarded(stop, True))
    return linker


def _guarded(function: Callable[..., int], has_result: bool) -> Callable[..., int | None]:
    """Wrap a function so that it raises nothing, and stops the guest if the call is stopped."""

    def run(*arguments: int) -> int | None:
        state = _state.state
        assert state is not None, "these functions run only during a call"
        call, code = state.call, _FAULT
        try:
            call.count()
            if state.memory is not None and state.exit_code is None:
                code = function(state, *arguments)
        except GuestStopped:
            pass
        except (IndexError, OverflowError, struct.error):
            code = _FAULT
        except Exception as error:  # noqa: BLE001 - a fault of the host, for the log
            call.broken(error)
        if call.failure is not None or state.exit_code is not None:
            state.store.set_fuel(0)
        return code if has_result else None

    return run


def _stopping(capability: str) -> Callable[..., int]:
    def stop(state: CommandState, *_: object) -> int:
        raise state.call.missing(capability)

    return stop


def _nothing(state: CommandState, count: int, size: int) -> int:
    """No arguments, or no environment."""
    state.write(count, _SIZE.pack(0))
    state.write(size, _SIZE.pack(0))
    return _SUCCESS


def _fd_read(state: CommandState, fd: int, iovecs: int, count: int, sum_at: int) -> int:
    if fd != _STDIN:
        return _BADF
    total = 0
    for start, length in state.iovecs(iovecs, count):
        piece = state.input[:length]
        if not piece:
            break
        state.write(start, bytes(piece))
        state.input = state.input[len(piece) :]
        total += len(piece)
    state.write(sum_at, _SIZE.pack(total))
    return _SUCCESS


def _fd_write(state: CommandState, fd: int, iovecs: int, count: int, sum_at: int) -> int:
    call = state.call
    if fd not in (_STDOUT, _STDERR):
        return _BADF
    total = 0
    for start, length in state.iovecs(iovecs, count):
        if fd == _STDOUT and len(state.output) + length > call.limits.output_bytes:
            raise call.failed(f"it wrote more than {call.limits.output_bytes:,} bytes.")
        if fd == _STDOUT:
            state.output += state.read(start, length)
        else:
            state.log(state.read(start, min(length, call.limits.log_bytes)))
        total += length
    state.write(sum_at, _SIZE.pack(total & 0xFFFFFFFF))
    return _SUCCESS


def _fd_fdstat_get(state: CommandState, fd: int, at: int) -> int:
    if fd not in _RIGHTS:
        return _BADF
    state.write(at, struct.pack("<BxHxxxxQQ", 0, 0, _RIGHTS[fd], 0))
    return _SUCCESS


def _for_standard(code: int) -> Callable[..., int]:
    """A function that returns a code for the standard streams, and refuses all other files."""
    return lambda _state, fd, *_: code if fd in _RIGHTS else _BADF


def _proc_exit(state: CommandState, code: int) -> int:
    state.exit_code = code & 0xFFFFFFFF
    return _SUCCESS


def _random_get(state: CommandState, at: int, length: int) -> int:
    if not 0 <= length <= _RANDOM_BYTES:
        raise state.call.failed(f"it asked for more than {_RANDOM_BYTES:,} random bytes at once.")
    state.write(at, os.urandom(length))
    return _SUCCESS


def _clock_time_get(state: CommandState, clock: int, precision: int, at: int) -> int:
    if clock not in (0, 1):
        return _INVAL
    now = system.time_ns() if clock == 0 else time.monotonic_ns()
    state.write(at, _U64.pack(now))
    return _SUCCESS


def _clock_res_get(state: CommandState, clock: int, at: int) -> int:
    if clock not in (0, 1):
        return _INVAL
    state.write(at, _U64.pack(1_000_000))
    return _SUCCESS


_LETTERS: Final = {"i32": "i", "i64": "I"}
_RANDOM: Final = frozenset({"random_get"})
_CLOCK: Final = frozenset({"clock_time_get", "clock_res_get"})
_FILES: Final = frozenset(
    {"fd_advise", "fd_allocate", "fd_datasync", "fd_fdstat_set_flags", "fd_fdstat_set_rights"}
    | {"fd_filestat_get", "fd_filestat_set_size", "fd_filestat_set_times", "fd_pread"}
    | {"fd_pwrite", "fd_readdir", "fd_renumber", "fd_sync"}
)
_FUNCTIONS: Final[Mapping[str, tuple[Callable[..., int], str]]] = {
    "args_sizes_get": (_nothing, "ii"),
    "args_get": (lambda *_: _SUCCESS, "ii"),
    "environ_sizes_get": (_nothing, "ii"),
    "environ_get": (lambda *_: _SUCCESS, "ii"),
    "fd_read": (_fd_read, "iiii"),
    "fd_write": (_fd_write, "iiii"),
    "fd_fdstat_get": (_fd_fdstat_get, "ii"),
    "fd_close": (_for_standard(_SUCCESS), "i"),
    "fd_seek": (_for_standard(_SPIPE), "iIii"),
    "fd_tell": (_for_standard(_SPIPE), "ii"),
    "fd_prestat_get": (lambda *_: _BADF, "ii"),
    "fd_prestat_dir_name": (lambda *_: _BADF, "iii"),
    "proc_exit": (_proc_exit, "i"),
    "sched_yield": (lambda *_: _SUCCESS, ""),
    "poll_oneoff": (lambda *_: _NOTSUP, "iiii"),
    "random_get": (_random_get, "ii"),
    "clock_time_get": (_clock_time_get, "iIi"),
    "clock_res_get": (_clock_res_get, "ii"),
}
"""Functions with their parameters: `i` for i32, `I` for i64. All but proc_exit return an i32."""
