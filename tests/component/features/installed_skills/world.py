"""Directories of skills, and the source that offers them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
from anyio.abc import TaskStatus

from component.audit.protocol import AuditEvent
from component.features.installed_skills.directories import AutoApprove, SkillDirectories
from component.skill_directories.host_functions import Services
from component.skill_directories.version import Artefact, Runners, SkillRunner
from component.skills import Context, Registry, Skill, call
from component.skills.calling import Threads
from component.skills.outputs import SkillResult
from component.skills.params import prepare
from component.skills.sources import SkillSources
from component.store import Storage

MANIFEST = """
[skill]
name = "{name}"
version = "1.0.0"
description = "Greets."
{more}

[skill.annotations]
read_only = true
open_world = false

[skill.capabilities]
{capabilities}

[skill.execution]
kind = "python"
entry = "main.py"
"""
CODE = '''
from component.skills import skill

@skill
def greet(who: str, times: int = 1) -> str:
    """Greet somebody."""
    return "{word} " * times + who
'''


def install(
    root: Path,
    name: str = "greet",
    *,
    word: str = "Hello",
    capabilities: str = "",
    more: str = "",
    code: str = "",
) -> Path:
    """Write a skill into a directory of its own, or change it."""
    directory = root / name
    directory.mkdir(parents=True, exist_ok=True)
    manifest = MANIFEST.format(name=name, capabilities=capabilities, more=more)
    (directory / "skill.toml").write_text(manifest)
    (directory / "main.py").write_text(code or CODE.replace("{word}", word))
    return directory


class Events:
    """Records audit events."""

    def __init__(self) -> None:
        self.events: list[AuditEvent] = []

    def record(self, event: AuditEvent) -> None:
        self.events.append(event)

    async def settled(self) -> None: ...


class Prompted(SkillDirectories):
    """Watches nothing: a test says when something has changed."""

    rest_s = 0

    async def watch(self) -> None:
        await anyio.sleep_forever()


class Endless:
    """A runner whose calls wait until they are told to end, and return their content's digest."""

    def __init__(self) -> None:
        self.begun = anyio.Event()
        self.ends = anyio.Event()
        self.stopped = 0
        self.forgotten: list[str] = []

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        await anyio.sleep_forever()

    async def describe(self, artefact: Artefact) -> dict[str, Any]:
        schema = {"type": "object", "properties": {"who": {"type": "string"}}}
        return {"input_schema": schema}

    async def call(self, artefact: Artefact, arguments: dict[str, Any], context: Context) -> str:
        self.begun.set()
        try:
            await self.ends.wait()
        finally:
            self.stopped += 1
        return artefact.digest

    def forget(self, digest: str) -> None:
        self.forgotten.append(digest)


class Made(Runners):
    """Makes the runners of all kinds, or always the one of a test."""

    def __init__(self, services: Services, runner: Endless | None) -> None:
        super().__init__(services)
        self._always = runner

    def make(self, kind: str) -> SkillRunner[Any]:
        return self._always or super().make(kind)  # type: ignore[return-value]


class World:
    """A source of directories that runs, and the registry that it offers skills to."""

    def __init__(self, directories: SkillDirectories, registry: Registry, events: Events) -> None:
        self.directories = directories
        self.registry = registry
        self.events = events.events

    def names(self) -> tuple[str, ...]:
        return self.registry.names()

    async def call(self, name: str = "greet", **arguments: Any) -> SkillResult:
        skill = self.registry.get(name)
        assert skill is not None, f"{name} is not offered"
        return await run(skill, **arguments)

    async def says(self, name: str = "greet", **arguments: Any) -> str:
        result = await self.call(name, **(arguments or {"who": "Romeo"}))
        return result.outputs[0].text


async def run(skill: Skill, **arguments: Any) -> SkillResult:
    values = prepare(skill, (), msgspec.json.encode(arguments))
    context = Context(
        principal="juliet@example.com", sender="juliet@example.com/b", skill=skill.name
    )
    return await call(skill, values, context, Threads(4, 4).share("juliet"))


@asynccontextmanager
async def opened(
    storage: Storage,
    root: Path,
    *,
    registry: Registry | None = None,
    services: Services | None = None,
    runner: Endless | None = None,
    auto_approve: AutoApprove = "never",
    rest_s: float = 0,
) -> AsyncIterator[World]:
    """Run a source until the block ends."""
    events = Events()
    runners = Made(services or Services(storage=storage), runner)
    directories = Prompted([root], storage, runners, events, auto_approve)
    directories.rest_s = rest_s
    registry = registry or Registry()
    async with anyio.create_task_group() as group:
        await group.start(SkillSources(registry, [directories]).run)
        yield World(directories, registry, events)
        group.cancel_scope.cancel()
