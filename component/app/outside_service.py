"""The skills of a service that does not run, those of APIs, MCP servers and workers too."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import chain

import anyio

from component.app.features import load_skills, make_features
from component.config import Settings
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
    found = chain.from_iterable((*each.sources(), *each.remote_sources()) for each in features)
    sources = SkillSources(registry, tuple(found))
    async with anyio.create_task_group() as group:
        await group.start(sources.run)
        yield registry, {name: sources.failures.get(name, "") for name in sources.late()}
        group.cancel_scope.cancel()


def not_ready(source: str, reason: str) -> str:
    """Return a sentence about a source without skills."""
    why = f": {reason}" if reason else f" within {START_S:g} seconds."
    return f"The skills of {source} are missing, because it did not offer any{why}"
