"""Runs a skill that nobody has approved: for its author, and for its tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from component import system
from component.skill_directories.approvals import Approval
from component.skill_directories.content import ContentStore
from component.skill_directories.description import describe
from component.skill_directories.host_functions import Services
from component.skill_directories.kinds import makers
from component.skill_directories.runners import Artefact, Runners
from component.skill_directories.version import Version
from component.skills.skill import Skill


@asynccontextmanager
async def opened_skill(
    directory: Path, temporary: Path, services: Services, *, trusted: bool = False
) -> AsyncIterator[Skill]:
    """Yield the skill of a directory, as the service runs it when it is approved; nothing of it
    runs after the block.

    Args:
        directory: an absolute path.
        temporary: a directory for its copy.
        services: what it may use of the service, as far as its manifest declares it.
        trusted: whether it runs without confinement.

    Raises SkillLoadError, ManifestError.
    """
    runners = Runners(makers(services))
    store = ContentStore(temporary / "copies")
    content = await system.in_thread(store.add, directory)
    artefact = Artefact(
        directory=store.path(content.digest), digest=content.digest, manifest=content.manifest
    )
    async with runners.opened():
        runner = await runners.of(content.manifest, trusted=trusted)
        approval = Approval(
            name=artefact.name,
            digest=content.digest,
            directory=str(directory),
            text=content.text,
            description=await describe(artefact, runner),
            trusted=trusted,
            approved_by="",
        )
        yield Version(approval, store, runners).skill
