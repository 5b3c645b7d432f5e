"""Runs skills in WebAssembly: components, and commands of WASI preview 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from component import system
from component.sandbox.wasm import WasmRuntime, WasmSkill
from component.sandbox.wasm_call import Import, WasmLimits
from component.skill_directories.host_functions import Services, check_grantable, functions_of
from component.skill_directories.version import Artefact, SkillRunner
from component.skills.calling import Threads
from component.skills.capabilities import Capabilities
from component.skills.context import Context
from component.skills.errors import CapabilityMissing, SkillLoadError
from component.skills.outputs import SkillResult

_THREADS = 16


class WebAssembly(SkillRunner[WasmSkill]):
    """Runs code in WebAssembly."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._runtime = WasmRuntime(Threads(_THREADS, _THREADS // 2), services.compiled)

    async def describe(self, artefact: Artefact) -> Mapping[str, Any]:
        """See `SkillRunner`. The manifest says everything; the code is compiled and checked."""
        check_grantable(artefact)
        said = artefact.manifest.skill.capabilities
        if said.filesystem_read or said.filesystem_write or said.shell:
            raise SkillLoadError(
                "WebAssembly has no files and no programs: remove filesystem_read, filesystem_write"
                " and shell."
            )
        try:
            await (await self._of(artefact)).prepare()
        except CapabilityMissing as error:
            raise SkillLoadError(
                f"The code imports {error.capability}, which the manifest does not declare."
            ) from error
        return {}

    async def call(
        self, artefact: Artefact, arguments: dict[str, Any], context: Context
    ) -> SkillResult:
        """See `SkillRunner`."""
        return await (await self._of(artefact)).execute(arguments, context)

    async def _load(self, artefact: Artefact) -> WasmSkill:
        code = await system.in_thread(artefact.entry.read_bytes)
        functions = functions_of(artefact, self._services)
        return WasmSkill(self._runtime, artefact.name, code, functions, _limits(artefact))


def _imports(said: Capabilities) -> frozenset[Import]:
    declared: dict[Import, object] = {
        "http": said.network,
        "memory": said.memory_read or said.memory_write,
        "credentials": said.credential,
        "llm": said.llm,
        "xmpp": said.xmpp,
        "clock": said.clock,
        "random": said.random,
    }
    return frozenset(name for name, declares in declared.items() if declares)


def _limits(artefact: Artefact) -> WasmLimits:
    runs = artefact.manifest.skill.execution
    limits = WasmLimits(
        imports=_imports(artefact.manifest.skill.capabilities),
        seconds=runs.timeout_s,
        memory_bytes=runs.memory_bytes,
        output_bytes=runs.output_bytes,
    )
    return limits if runs.fuel is None else msgspec.structs.replace(limits, fuel=runs.fuel)
