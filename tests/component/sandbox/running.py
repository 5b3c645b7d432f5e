"""Runs skills in WebAssembly for tests, with a host that a test describes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from component.sandbox.wasm import Probe, WasmRuntime, WasmSkill
from component.sandbox.wasm_call import IMPORTS, Import, WasmLimits
from component.sandbox.wasm_probe import probe
from component.skills.calling import Threads
from component.skills.context import Context
from component.skills.host import (
    DeleteMemory,
    Handlers,
    HostError,
    HostFunctions,
    ListMemory,
    LogLevel,
    ReadMemory,
    WriteMemory,
)
from component.skills.operations import ReportProgress

ALL: frozenset[Import] = frozenset(IMPORTS)


class Told:
    """What a skill logs and reports."""

    def __init__(self) -> None:
        self.lines: list[tuple[LogLevel, str]] = []
        self.progress: list[tuple[float, str]] = []

    def log(self, level: LogLevel, text: str) -> None:
        self.lines.append((level, text))

    async def report(self, progress: ReportProgress) -> None:
        self.progress.append((progress.fraction, progress.text))


class Notes:
    """A memory of one agent, in which the key `bad` is never stored."""

    def __init__(self) -> None:
        self.values = {"key": "a value \ud800 of \u00e9"}
        self.handlers: Handlers = {
            ReadMemory: self.get,
            WriteMemory: self.put,
            DeleteMemory: self.delete,
            ListMemory: self.keys,
        }

    async def get(self, wanted: ReadMemory) -> str | None:
        if wanted.key == "bad":
            raise HostError("The memory is full.")
        return self.values.get(wanted.key)

    async def put(self, wanted: WriteMemory) -> None:
        if wanted.key == "bad":
            raise HostError("The memory is full.")
        self.values[wanted.key] = wanted.value

    async def delete(self, wanted: DeleteMemory) -> None:
        self.values.pop(wanted.key, None)

    async def keys(self, wanted: ListMemory) -> list[str]:
        return [each for each in self.values if each.startswith(wanted.prefix)]


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
    functions: Handlers | None = None,
) -> WasmSkill:
    """A skill; `functions` are those of its host besides progress and the log."""
    heard = told or Told()
    host = HostFunctions(name, heard.log, {ReportProgress: heard.report, **(functions or {})})
    allowed = msgspec.structs.replace(limits or WasmLimits(), imports=frozenset(granted))
    return WasmSkill(where, name, wasm, lambda _: host, allowed)


def context(seconds: float | None = None, principal: str = "romeo@example.com") -> Context:
    made = Context(principal=principal, sender=f"{principal}/a", skill="guest")
    if seconds is not None:
        made.shorten(seconds)
    return made
