"""Runs Python skills inside the service, for an admin who trusts their authors."""

from __future__ import annotations

import importlib.util
import sys
import threading
from collections.abc import Mapping
from types import ModuleType
from typing import Any, Final

import anyio
import msgspec

from component import system
from component.skill_directories.host_functions import Services, functions_of
from component.skill_directories.version import Artefact, SkillRunner
from component.skills.context import Context
from component.skills.declare import FunctionSkill
from component.skills.errors import SkillLoadError
from component.skills.loading import skill_named
from component.skills.params import prepare
from component.skills.spec import spec_fields, spec_json

_THREADS: Final = 16
_loading = threading.Lock()
"""While a module is loaded, its directory is in `sys.path`."""


class TrustedPython(SkillRunner[FunctionSkill[Any, Any]]):
    """Loads the code of each content once."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._threads = anyio.CapacityLimiter(_THREADS)

    async def describe(self, artefact: Artefact) -> Mapping[str, Any]:
        """See `SkillRunner`."""
        return spec_fields(spec_json(await self._of(artefact)))

    async def call(self, artefact: Artefact, arguments: dict[str, Any], context: Context) -> Any:
        """See `SkillRunner`."""
        skill = await self._of(artefact)
        context.provide(functions_of(artefact, self._services)(context))
        values = prepare(skill, (), msgspec.json.encode(arguments))
        if skill.kind == "async":
            return await skill.invoke(values, context)
        return await system.in_thread(
            skill.invoke, values, context, abandon_on_cancel=True, limiter=self._threads
        )

    async def _load(self, artefact: Artefact) -> FunctionSkill[Any, Any]:
        return skill_named(await system.in_thread(_module, artefact), artefact.name)


def _module(artefact: Artefact) -> ModuleType:
    """Load a module. It and the modules beside it are found under their names only while they are
    loaded, so that two skills, or two versions of one, may have modules of one name. Blocks. Raises
    SkillLoadError.
    """
    name = f"skill_file_{artefact.digest[:16]}_{artefact.entry.stem}"
    spec = importlib.util.spec_from_file_location(name, artefact.entry)
    if spec is None or spec.loader is None:
        raise SkillLoadError(f"{artefact.entry.name} is not a Python file: its name ends in .py.")
    module = importlib.util.module_from_spec(spec)
    place = str(artefact.entry.parent)
    with _loading:
        before = dict(sys.modules)
        sys.modules[name] = module
        sys.path.insert(0, place)
        importlib.invalidate_caches()
        try:
            spec.loader.exec_module(module)
        except (Exception, SystemExit) as error:
            del sys.modules[name]
            raise SkillLoadError(
                f"{artefact.entry.name} cannot be loaded: {type(error).__name__}: {error}"
            ) from error
        finally:
            sys.path.remove(place)
            for other, made in tuple(sys.modules.items()):
                file = getattr(made, "__file__", None) or ""
                if other not in before and other != name and file.startswith(f"{place}/"):
                    del sys.modules[other]
    return module
