"""A source whose skills somebody else describes, and the approvals of its descriptions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
from anyio.abc import TaskStatus

from component.features.installed_skills.descriptions import Descriptions, PinnedSource
from component.skills import Registry, Skill
from component.skills.inputs import schema_inputs
from component.skills.sources import Offer, SkillSource, SkillSources
from component.store import Storage
from tests.component.audit.book import Book

ADMIN = "admin@example.com"
SOURCE = "mcp.clock"


def described(
    name: str,
    description: str = "Return the time.",
    *,
    says: str = "Name of a time zone.",
    parameter: str = "zone",
    **more: Any,
) -> Skill:
    """Return a skill that a stranger has described."""
    properties = {parameter: {"type": "string", "description": says}}
    schema = {"type": "object", "properties": properties}
    fields: dict[str, Any] = {"described_by": "web", "claims": {"readOnlyHint": True}, **more}
    return Skill(
        name=name,
        description=description,
        input_schema=schema,
        inputs=schema_inputs(schema),
        kind="inline",
        wants_context=False,
        invoke=lambda arguments, _context: str(arguments),
        source="the MCP server clock",
        **fields,
    )


class Changing:
    """A source that offers what a test says."""

    name = SOURCE

    def __init__(self, skills: Sequence[Skill]) -> None:
        self.offer: Offer = lambda _skills: ()
        self._skills = skills

    async def run(self, offer: Offer, *, task_status: TaskStatus[None]) -> None:
        self.offer = offer
        offer(self._skills)
        task_status.started()
        await anyio.sleep_forever()


class World:
    """A pinned source that runs; `told` is what the admins were sent."""

    def __init__(self, storage: Storage, source: str, *, hold_first: bool = False) -> None:
        self.registry = Registry()
        self.told: list[str] = []
        self.book = Book()
        self.descriptions = Descriptions(
            storage,
            [source],
            self.book,
            self.told.append,
            hold_first=hold_first,
        )
        self._changed = anyio.Event()
        self.registry.listen(self._note)

    def _note(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def until(self, *texts: str) -> None:
        """Wait until skills with these descriptions are offered, and no others."""
        with anyio.fail_after(60):
            while sorted(one.description for one in self.registry) != sorted(texts):
                await self._changed.wait()

    async def digest(self, name: str) -> str:
        """Return the digest of what `show` shows."""
        return (await self.descriptions.show(name)).digest


@asynccontextmanager
async def serving(
    storage: Storage, source: SkillSource, *, hold_first: bool = False
) -> AsyncIterator[World]:
    """Run a source until the block ends."""
    world = World(storage, source.name, hold_first=hold_first)
    async with anyio.create_task_group() as group:
        pinned = PinnedSource(source, world.descriptions)
        await group.start(SkillSources(world.registry, [pinned]).run)
        yield world
        group.cancel_scope.cancel()
