"""Runs skills that are plans: a document whose steps are calls of other skills."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from component import system
from component.plans.checks import PARAMS, faults
from component.plans.document import Plan, PlanError, read_plan
from component.plans.run import PlanPorts, run_plan
from component.plans.templates import names_after
from component.skill_directories.version import Artefact, SkillRunner, read_schema
from component.skills.context import Context
from component.skills.errors import SkillError, SkillLoadError
from component.skills.outputs import SkillResult
from component.skills.spec import Annotations


class PlanSkills(SkillRunner[Plan]):
    """Runs plans. What their steps do is asked about and permitted as for every plan."""

    async def describe(self, artefact: Artefact) -> Mapping[str, Any]:
        """See `SkillRunner`. The plan itself has no effects; its steps have theirs."""
        await self._of(artefact)
        return {"annotations": Annotations(destructive=False), "durable": True}

    async def call(
        self, artefact: Artefact, arguments: dict[str, Any], context: Context
    ) -> SkillResult:
        """See `SkillRunner`. It goes on as a task."""
        storage = self._services.storage
        if storage is None:
            raise SkillError("A plan runs only in a service.")
        plan = await self._of(artefact)
        return await run_plan(context, PlanPorts(storage), plan, arguments, shows=False)

    async def _load(self, artefact: Artefact) -> Plan:
        return await system.in_thread(_read, artefact)


def _read(artefact: Artefact) -> Plan:
    """Return the plan of a skill. Blocks. Raises SkillLoadError."""
    said = artefact.manifest.skill
    entry = said.execution.entry
    try:
        plan = read_plan(artefact.entry.read_bytes())
    except OSError as error:
        raise SkillLoadError(f"{entry} cannot be read: {error.strerror}") from error
    except PlanError as error:
        raise SkillLoadError(f"{entry}: {error}") from error
    found = faults(plan, has_params=True)
    if found:
        raise SkillLoadError(f"{entry}: {' '.join(found)}")
    assert said.input_schema is not None, "the manifest is checked"
    declared = read_schema(artefact, said.input_schema).get("properties", {})
    unknown = sorted(names_after(PARAMS, msgspec.to_builtins(plan)) - set(declared))
    if unknown:
        names = ", ".join(declared) or "it has none"
        raise SkillLoadError(
            f"{entry} refers to the parameter {unknown[0]}, which input_schema lacks: {names}."
        )
    return plan
