"""Runs Python skills in confined children, which an admin need not trust."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio
from anyio.abc import TaskGroup, TaskStatus

from component.sandbox.process_skills import Children, ProcessSkills
from component.skill_directories.host_functions import (
    Services,
    check_grantable,
    functions_of,
)
from component.skill_directories.profiles import profile_of
from component.skill_directories.runners import Artefact
from component.skills.context import Context
from component.skills.description import read, written
from component.skills.errors import SkillLoadError
from component.skills.outputs import SkillResult


class ConfinedPython:
    """Implements `component.skill_directories.runners.Runner`.

    Args:
        services: what the service has for skills.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._children = Children()
        self._skills: dict[str, ProcessSkills] = {}
        self._group: TaskGroup | None = None

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """See `Runner`."""
        async with anyio.create_task_group() as group:
            self._group = group
            await group.start(self._children.run)
            task_status.started()

    async def describe(self, artefact: Artefact) -> Mapping[str, Any]:
        """See `Runner`."""
        check_grantable(artefact)
        found = await self._of(artefact).describe()
        for skill in found:
            if skill.name == artefact.name:
                return read(written(skill))
        names = ", ".join(skill.name for skill in found) or "none"
        raise SkillLoadError(
            f"{artefact.entry.name} declares no skill called {artefact.name}, but {names}: call one"
            " of them like the manifest."
        )

    async def call(
        self, artefact: Artefact, arguments: dict[str, Any], context: Context
    ) -> SkillResult:
        """See `Runner`."""
        return await self._of(artefact).call(artefact.name, arguments, context)

    def forget(self, digest: str) -> None:
        """See `Runner`."""
        found = self._skills.pop(digest, None)
        if found is not None and self._group is not None:
            self._group.start_soon(found.close)

    def _of(self, artefact: Artefact) -> ProcessSkills:
        found = self._skills.get(artefact.digest)
        if found is None:
            found = self._skills[artefact.digest] = ProcessSkills(
                self._children,
                profile_of(artefact),
                str(artefact.entry),
                version=artefact.digest,
                functions=functions_of(artefact, self._services),
            )
        return found
