"""Runs skills in WebAssembly for tests, with a host that a test describes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from component.sandbox.wasm import Probe, WasmRuntime, WasmSkill
from component.sandbox.wasm_call import IMPORTS, Import, WasmLimits
from component.sandbox.wasm_probe import probe
from component.skills.calling import Threads
from component.skills.context import Context
from component.skills.host import HostFunctions, LogLevel

ALL: frozenset[Import] = frozenset(IMPORTS)


class Told:
    """What a skill logs and reports."""

    def __init__(self) -> None:
        self.lines: list[tuple[LogLevel, str]] = []
        self.progress: list[tuple[float, str]] = []

    def log(self, level: LogLevel, text: str) -> None:
        self.lines.append((level, text))

    async def report(self, fraction: float, text: str) -> None:
        self.progress.append((fraction, text))


async def trusted(_wasm: bytes, _seconds: float, _most_bytes: int) -> str:
    """Take the place of `probe` where the child that compiles code first is not the subject."""
    return ""


def runtime(directory: Path | None = None, threads: int = 8, probe: Probe = probe) -> WasmRuntime:
    return WasmRuntime(Threads(threads, threads), directory, probe)


def skill(
    where: WasmRuntime,
    wasm: bytes,
    *,
    granted: Iterable[Import] = (),
    limits: WasmLimits | None = None,
    told: Told | None = None,
    name: str = "guest",
    **functions: Any,
) -> WasmSkill:
    """A skill; `functions` are those of its host besides `log` and `progress`."""
    heard = told or Told()
    host = HostFunctions(log=heard.log, progress=heard.report, **functions)
    allowed = msgspec.structs.replace(limits or WasmLimits(), imports=frozenset(granted))
    return WasmSkill(where, name, wasm, lambda _: host, allowed)


def context(seconds: float | None = None, principal: str = "romeo@example.com") -> Context:
    made = Context(principal=principal, sender=f"{principal}/a", skill="guest")
    if seconds is not None:
        made.shorten(seconds)
    return made
