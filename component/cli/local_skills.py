"""Skills on this machine, for their authors: no server is needed, and mostly no configuration."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from component.cli.frame import Fault, load_settings
from component.skills.errors import DuplicateSkillError, SkillLoadError
from component.skills.loading import load_module, skills_of
from component.skills.manifest import FILE, ManifestError

if TYPE_CHECKING:
    from component.settings import Settings
    from component.skill_directories.host_functions import Services
    from component.skills.skill import Skill


@asynccontextmanager
async def opened(name: str, config: Path, *, trusted: bool) -> AsyncIterator[Skill]:
    """Yield the skill of a file (`menu.py`, or `menu.py:lunch` if it has several), of a directory,
    or of the configuration, ready to be called. Raises Fault.
    """
    try:
        if await anyio.Path(name).is_dir():
            async with directory_skill(Path(name), trusted=trusted) as skill:
                yield skill
            return
        file, _, wanted = name.rpartition(":") if ".py:" in name else (name, "", "")
        if file.endswith(".py"):
            yield _one(skills_of(load_module(Path(file))), wanted, file)
            return
        directory, configured = await anyio.to_thread.run_sync(_configured, name, config)
        if directory is not None:
            async with directory_skill(directory, trusted=trusted) as skill:
                yield skill
        else:
            yield _one([one for one in configured if one.name == name], name, "the configuration")
    except (SkillLoadError, ManifestError, DuplicateSkillError) as error:
        raise Fault(str(error)) from error


@asynccontextmanager
async def directory_skill(
    directory: Path, *, trusted: bool, services: Services | None = None
) -> AsyncIterator[Skill]:
    """Yield the skill of a directory, as the service runs it when it is approved.

    `services` is what the service has for it; by default no credentials and no memory. Raises
    SkillLoadError, ManifestError.
    """
    from component.skill_directories.host_functions import Services  # noqa: PLC0415
    from component.skill_directories.version import opened_skill  # noqa: PLC0415

    if not await anyio.Path(directory / FILE).is_file():
        raise SkillLoadError(f"{directory} has no {FILE}: name the directory of one skill.")
    with tempfile.TemporaryDirectory(prefix="xmpp-agent-skill-") as temporary:
        where = Path.cwd() / directory
        async with opened_skill(
            where, Path(temporary), services or Services(), trusted=trusted
        ) as skill:
            yield skill


def _configured(name: str, config: Path) -> tuple[Path | None, Iterable[Skill]]:
    """Return the directory of an installed skill, or else all skills that are configured. Without a
    configuration these are the built-in ones.
    """
    if not config.exists():
        from component.skills.builtin import builtin_skills  # noqa: PLC0415

        return None, builtin_skills()
    from component.app.skills import load_skills  # noqa: PLC0415

    settings = load_settings(config)
    return _installed(name, settings), load_skills(settings)


def _installed(name: str, settings: Settings) -> Path | None:
    from component.skill_directories.content import read_roots  # noqa: PLC0415

    found, _ = read_roots([root.absolute() for root in settings.skill_roots], {})
    return next((one.directory for one in found.values() if one.name == name), None)


def _one(found: Sequence[Skill], wanted: str, where: str) -> Skill:
    named = [one for one in found if not wanted or one.name == wanted]
    if not named:
        raise Fault(f"There is no skill called {wanted!r} in {where}.")
    if len(named) > 1:
        names = ", ".join(one.name for one in named)
        raise Fault(f"{where} has several skills ({names}): write {where}:{named[0].name}.")
    return named[0]
