"""Loads the code of skills in WebAssembly, and runs calls of it.

What goes wrong becomes SkillTimeout, CapabilityMissing, or SkillFailed with a sentence; nothing
that wasmtime raises leaves this module.
"""

from __future__ import annotations

import re
from typing import Any, Final, TypeAlias

import wasmtime
from wasmtime import component as wc

from component.sandbox.wasm_call import GuestStopped, WasmCall, WasmLimits, current
from component.sandbox.wasm_command import CommandCode
from component.sandbox.wasm_component import ComponentCode
from component.sandbox.wasm_engine import engine, ticker
from component.sandbox.wasm_probe import is_component
from component.skills.errors import (
    CapabilityMissing,
    InvalidParam,
    SkillError,
    SkillFailed,
    SkillLoadError,
    printable,
)

Code: TypeAlias = ComponentCode | CommandCode

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


def compiled_code(skill: str, wasm: bytes, limits: WasmLimits) -> tuple[Code, bytes]:
    """Compile code, and check its imports and exports; return also its compiled form.

    Raises SkillLoadError and CapabilityMissing.
    """
    try:
        made = (wc.Component if is_component(wasm) else wasmtime.Module)(engine(), wasm)
        return _checked(skill, made, limits), bytes(made.serialize())
    except wasmtime.WasmtimeError as error:
        reason = printable(" ".join(str(error).split()), 200)
        raise SkillLoadError(f"The code of the skill {skill} cannot be loaded: {reason}") from error


def restored_code(skill: str, wasm: bytes, limits: WasmLimits, compiled: bytes) -> Code | None:
    """Load code in the form that this service compiled it to, and check it.

    Return None if it was compiled for another processor. Raises as `compiled_code`.
    """
    kind = wc.Component if is_component(wasm) else wasmtime.Module
    try:
        made = kind.deserialize(engine(), compiled)
    except wasmtime.WasmtimeError:
        return None
    return _checked(skill, made, limits)


def _checked(skill: str, made: wasmtime.Module | wc.Component, limits: WasmLimits) -> Code:
    kind = CommandCode if isinstance(made, wasmtime.Module) else ComponentCode
    return kind(skill, made, limits.imports)  # type: ignore[arg-type]  # each with its own


def run_code(code: Code, call: WasmCall) -> Any:
    """Run a call in this thread; return its value, or the exception that it ends with."""
    current.call = call
    ticker().enter()
    try:
        return code.run(call)
    except GuestStopped:
        return call.failure
    except (SkillError, InvalidParam) as error:
        return error
    except Exception as error:  # noqa: BLE001 - wasmtime's, for traps; see wasm_call
        return call.failure or _trapped(call, error)
    finally:
        ticker().leave()
        current.call = None


def _trapped(call: WasmCall, error: Exception) -> Exception:
    # The text of a trap has a backtrace, which takes long after deep recursion.
    code = error.trap_code if isinstance(error, wasmtime.Trap) else None
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
