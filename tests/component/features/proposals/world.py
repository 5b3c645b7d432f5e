"""Proposals of skills: texts as people and models write them, and the service around them."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from component.app.schema import SCHEMA
from component.config.skills import Proposals
from component.features.proposals.proposing import Known, Proposing
from component.features.proposals.skills import create_skill_skill
from component.policy.taint import Taint
from component.skill_directories.proposals import ProposalFolder
from component.skills.fake_context import FakeContext, called
from component.skills.outputs import SkillResult
from component.store import Storage
from tests.component.features.installed_skills import world as directories

ADMIN = "admin@example.com"
JULIET = "juliet@example.com"
MANIFEST = """\
[skill]
name = "tip.split"
version = "1.0.0"
description = "Say what each person pays for a bill."
[skill.annotations]
read_only = true
open_world = false
[skill.capabilities]
[skill.execution]
kind = "python"
entry = "main.py"
"""
CODE = '''\
from xmpp_agent import SkillError, skill

@skill(name="tip.split", read_only=True, open_world=False)
def split(bill: float, people: int) -> str:
    """Say what each person pays for a bill."""
    if people < 1:
        raise SkillError("Somebody has to pay.")
    return f"{bill / people:.2f} euros each"
'''
TESTS = """\
[[case]]
name = "splits a bill"
params = { bill = 90, people = 3 }
text = "30.00 euros each"
[[case]]
name = "refuses nobody"
params = { bill = 90, people = 0 }
error = "has to pay"
"""
REST = """\
[skill]
name = "weather"
version = "1.0.0"
description = "Return the weather of a city."
[skill.input_schema]
type = "object"
required = ["city"]
properties.city = { type = "string" }
[skill.request]
url = "https://api.example.com/cities/{city}"
[skill.response]
output = "It is {temperature} degrees."
[skill.capabilities]
network = ["https://api.example.com"]
[skill.execution]
kind = "rest"
"""
REST_TESTS = """\
[[case]]
name = "says how warm it is"
params = { city = "Verona" }
contains = "It is 21 degrees."
http = [{ url = "https://api.example.com/cities/Verona", json = { temperature = 21 } }]
"""
SPLIT = {"manifest": MANIFEST, "code": CODE, "tests": TESTS}
WEATHER = {"manifest": REST, "code": "", "tests": REST_TESTS}


def renamed(name: str) -> dict[str, str]:
    """A request under another name; its tests need no process."""
    return {**WEATHER, "manifest": REST.replace('"weather"', f'"{name}"')}


class World:
    """The skill `create_skill`, and the source that offers what is approved."""

    def __init__(self, world: directories.World, folder: ProposalFolder) -> None:
        self.installed = world.directories
        self.events = world.events
        self.folder = folder
        self.offered = world
        self.told: list[str] = []

    # The rest of the service: `ServiceView`.

    async def known(self) -> Known:
        found = {one.name: one.directory for one in await self.installed.list()}
        return Known(found | dict.fromkeys((*self.offered.names(), "echo"), ""))

    def is_admin(self, principal: str) -> bool:
        return principal == ADMIN

    def announce(self, sentence: str) -> None:
        self.told.append(sentence)

    # What a test does.

    def use(self, settings: Proposals) -> None:
        recorder = _Recorder(self.events)
        proposing = Proposing(settings, self.folder, self, recorder)  # type: ignore[arg-type]
        self.skill = create_skill_skill(proposing)

    async def propose(
        self,
        draft: Mapping[str, str] | None = None,
        *,
        model: tuple[object, ...] = (),
        taints: tuple[Taint, ...] = (),
        principal: str = JULIET,
        **arguments: Any,
    ) -> SkillResult:
        context = FakeContext(principal=principal, model=model)
        context.taints = taints
        self.context = context
        given = {"description": "Split a bill.", **(draft or {}), **arguments}
        return await called(self.skill, given, context)

    async def refused(self, draft: Mapping[str, str], **more: Any) -> str:
        """Why a proposal is refused; nothing is kept of it."""
        before = sorted(self.folder.all())
        result = await self.propose(draft, **more)
        assert result.is_error, result
        assert sorted(self.folder.all()) == before
        assert self.events[-1].outcome == "refused"
        return text_of(result)

    async def approve(self, name: str) -> None:
        shown = await self.installed.show(name)
        await self.installed.approve(name, ADMIN, digest=shown.digest)

    async def states(self) -> dict[str, str]:
        return {one.name: one.state for one in await self.installed.list()}


class _Recorder(directories.Events):
    def __init__(self, events: list[Any]) -> None:
        self.events = events


def text_of(result: SkillResult) -> str:
    (part,) = result.outputs
    return re.sub(r"\s+", " ", part.text)  # type: ignore[union-attr] # a skill of texts


@asynccontextmanager
async def living(path: Path, **settings: Any) -> AsyncIterator[World]:
    """Run a source of directories over a directory of proposals."""
    folder = ProposalFolder(path / "proposed")
    folder.recover()
    async with (
        Storage.open(SCHEMA, path / "data") as storage,
        directories.opened(storage, path / "proposed") as world,
    ):
        made = World(world, folder)
        made.use(Proposals(**settings))
        yield made
