"""Runs skills in confined processes: Python in children, and programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import anyio
import msgspec
import structlog
from anyio.abc import TaskGroup, TaskStatus

from component.sandbox.launch import NOT_CONFINED, confined_command
from component.sandbox.messages import refusal_in
from component.sandbox.process_skills import ChildPool, ProcessSkills
from component.sandbox.profile import ConfinementError, Limits, Profile
from component.sandbox.program import Ended, run_program
from component.skill_directories.host_functions import Services, check_grantable, functions_of
from component.skill_directories.version import Artefact, SkillRunner
from component.skills.context import Context
from component.skills.errors import SkillLoadError, SkillUnavailable
from component.skills.outputs import SkillResult
from component.skills.spec import spec_fields, spec_json
from xep.binding.json_bounds import decoded_json

_log = structlog.get_logger("component.skills")

_OF_THE_SERVICE: Final = ("credential", "llm", "memory_read", "memory_write", "xmpp")


def skill_profile(artefact: Artefact) -> Profile:
    """Return the profile of a skill. It has no network: requests go through the service, which
    alone can tell one host from another. Raises SkillLoadError.
    """
    said, runs = artefact.manifest.skill.capabilities, artefact.manifest.skill.execution
    try:
        return Profile(
            read=(str(artefact.directory), *map(str, said.filesystem_read)),
            write=tuple(map(str, said.filesystem_write)),
            processes=said.shell,
            limits=Limits(
                memory=runs.memory_bytes, output_bytes=runs.output_bytes, wall_s=runs.timeout_s
            ),
        )
    except ConfinementError as error:
        raise SkillLoadError(str(error)) from error


class ConfinedPython(SkillRunner[ProcessSkills]):
    """Runs Python in confined children, so that an admin need not trust its authors."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._children = ChildPool()
        self._group: TaskGroup | None = None

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """See `SkillRunner`."""
        async with anyio.create_task_group() as group:
            self._group = group
            await group.start(self._children.run)
            task_status.started()

    async def describe(self, artefact: Artefact) -> Mapping[str, Any]:
        """See `SkillRunner`."""
        check_grantable(artefact)
        found = await (await self._of(artefact)).describe()
        for skill in found:
            if skill.name == artefact.name:
                return spec_fields(spec_json(skill))
        names = ", ".join(skill.name for skill in found) or "none"
        raise SkillLoadError(
            f"{artefact.entry.name} declares no skill called {artefact.name}, but {names}: call one"
            " of them like the manifest."
        )

    async def call(
        self, artefact: Artefact, arguments: dict[str, Any], context: Context
    ) -> SkillResult:
        """See `SkillRunner`."""
        return await (await self._of(artefact)).call(artefact.name, arguments, context)

    def forget(self, digest: str) -> None:
        """See `SkillRunner`."""
        found = self._loaded.pop(digest, None)
        if found is not None and self._group is not None:
            self._group.start_soon(found.close)

    async def _load(self, artefact: Artefact) -> ProcessSkills:
        return ProcessSkills(
            self._children,
            skill_profile(artefact),
            str(artefact.entry),
            functions_of(artefact, self._services),
            artefact.digest,
        )


class Programs(SkillRunner[list[str]]):
    """Runs programs, each call in a process of its own.

    The parameters are JSON on standard input and the result is JSON on standard output, as for
    commands in WebAssembly. With another exit code than 0 the output is `{"error": "…"}`, and with
    `parameter` the parameter that is wrong.
    """

    async def describe(self, artefact: Artefact) -> Mapping[str, Any]:
        """See `SkillRunner`. The manifest says everything."""
        check_grantable(artefact)
        said = artefact.manifest.skill
        if said.capabilities.network:
            raise SkillLoadError("A program cannot connect: nothing could limit it to its hosts.")
        unusable = [name for name in _OF_THE_SERVICE if getattr(said.capabilities, name)]
        if unusable:
            raise SkillLoadError(
                f"A program cannot use {', '.join(unusable)}: these are functions of the service,"
                " which only Python and WebAssembly have. Remove them."
            )
        if said.execution.durable:
            raise SkillLoadError("A program cannot be durable: remove durable.")
        await self._of(artefact)
        return {}

    async def call(self, artefact: Artefact, arguments: dict[str, Any], context: Context) -> Any:
        """See `SkillRunner`."""
        most = artefact.manifest.skill.execution.output_bytes
        ended = await run_program(
            await self._of(artefact), msgspec.json.encode(arguments), most=most
        )
        if ended.code is None:
            raise SkillUnavailable(f"The skill {artefact.name} returned over {most:,} bytes.")
        return _value(artefact.name, ended)

    async def _load(self, artefact: Artefact) -> list[str]:
        runs = artefact.manifest.skill.execution
        try:
            return confined_command(skill_profile(artefact), [str(artefact.entry), *runs.args])
        except ConfinementError as error:
            raise SkillLoadError(f"{runs.entry} cannot run: {error}; is it executable?") from error


def _value(name: str, ended: Ended) -> Any:
    """Return the result of a program. Raises SkillError, InvalidParam, SkillUnavailable."""
    why = ended.errors.decode(errors="replace").strip().rpartition("\n")[2]
    if ended.code == NOT_CONFINED:
        _log.error("a skill cannot be confined", skill=name, reason=why)
        raise SkillUnavailable(
            f"The skill {name} cannot be confined here: see `xmpp-agent doctor`.", begun=False
        )
    try:
        if ended.code == 0:
            return decoded_json(ended.output)
        refusal = refusal_in(ended.output)
    except (ValueError, RecursionError) as error:
        unread = f"its output is not JSON that can be read: {error}"
        what = unread if ended.code == 0 else f"it ended with status {ended.code}"
        raise SkillUnavailable(f"The skill {name} failed: {what}. {why}".rstrip()) from None
    raise refusal
