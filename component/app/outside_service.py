"""The skills of a service that does not run, those of APIs, MCP servers and workers too."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import chain

import anyio

from component import system
from component.app.features import load_skills, make_features
from component.config import Settings
from component.kernel.options import AGENT_CREATE, CREATE_SKILL
from component.kernel.policy_advice import unknown_skills
from component.skills import Registry
from component.skills.sources import START_S, SkillSources


@asynccontextmanager
async def open_skills(settings: Settings) -> AsyncIterator[tuple[Registry, Mapping[str, str]]]:
    """Yield the skills, which can be called for the duration of the context, and the sources that
    have not offered any within ten seconds, with the reasons as far as they are known.

    Skills in directories are missing: approvals are in the database. Raises SkillLoadError,
    DuplicateSkillError.
    """
    registry = load_skills(settings)
    features = make_features(settings)
    found = chain.from_iterable(
        (*each.sources(), *each.remote_sources()) for each in features.values()
    )
    sources = SkillSources(registry, tuple(found))
    async with anyio.create_task_group() as group:
        await group.start(sources.run)
        yield registry, {name: sources.failures.get(name, "") for name in sources.late()}
        group.cancel_scope.cancel()


def not_ready(source: str, reason: str) -> str:
    """Return a sentence about a source without skills."""
    why = f": {reason}" if reason else f" within {START_S:g} seconds."
    return f"The skills of {source} are missing, because it did not offer any{why}"


async def find_unknown_skills(
    settings: Settings, known: Collection[str], late: Collection[str] | None = None
) -> Sequence[str]:
    """Return sentences about rules and agents that name skills which nobody offers; none while
    sources are `late`. `known` are the names of skills in a service, or, if `late` is None, those
    of the settings without a service.
    """
    if not any(unknown_skills(settings, known)):
        return ()
    known = {*known, *await system.in_thread(_names_in_directories, settings)}
    if late is None and any(unknown_skills(settings, known)):
        async with open_skills(settings) as (registry, missing):
            known |= {*registry.names()}
            late = missing
    return () if late else tuple(unknown_skills(settings, known))


def _names_in_directories(settings: Settings) -> Sequence[str]:
    """Return the names of skills that are offered when an admin has approved them."""
    from component.skill_directories.content import read_roots  # noqa: PLC0415 - rarely needed

    found, _ = read_roots([root.absolute() for root in settings.skill_roots], {})
    return (CREATE_SKILL, AGENT_CREATE, *(one.name for one in found.values()))
