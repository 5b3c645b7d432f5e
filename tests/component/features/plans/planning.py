"""A service with skills for plans, and what they have done."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio

from component.skills.context import Context
from component.skills.declare import skill
from component.skills.errors import SkillError
from component.skills.outputs import Output, SkillResult
from component.skills.skill import Skill
from tests.kit.model import Script, Step
from tests.kit.service import Kit, service
from tests.kit.xmpp import Peer

JULIET: Final = "juliet@capulet.example/balcony"
QUICK_S: Final = 5.0
"""Seconds after a question in which an answer may be meant for something else."""


class Deeds:
    """What the skills have done, in order, and what holds them.

    Attributes:
        done: a line for each.
        failing: texts for which `do` fails.
        held: texts for which `do` waits until `release` is called.
        most: the number of calls of `do` that ran at the same time.
    """

    def __init__(self) -> None:
        self.done: list[str] = []
        self.failing: set[str] = set()
        self.held: set[str] = set()
        self.most = 0
        self._now = 0
        self._released = anyio.Event()

    def release(self) -> None:
        """Let everything go on that is held."""
        self.held.clear()
        self._released.set()
        self._released = anyio.Event()

    def skills(self) -> Sequence[Skill]:
        """Return the skills."""

        @skill(name="do", open_world=False, destructive=False)
        async def do(text: str) -> str:
            """Do something once."""
            self._now += 1
            self.most = max(self.most, self._now)
            try:
                self.done.append(text)
                while text in self.held:
                    await self._released.wait()
            finally:
                self._now -= 1
            if text in self.failing:
                raise SkillError(f"{text} cannot be done.")
            return f"did {text}"

        @skill(name="look", open_world=False, read_only=True)
        async def look(text: str) -> str:
            """Look something up."""
            self.done.append(f"look {text}")
            if text in self.failing:
                raise SkillError(f"{text} cannot be seen.")
            return f"saw {text}"

        @skill(name="look_outside", read_only=True)
        async def look_outside(text: str) -> str:
            """Look something up at another service."""
            return await look(text)

        @skill(name="send", open_world=True, destructive=True)
        async def send(to: str, text: str) -> str:
            """Send a text to somebody."""
            self.done.append(f"to {to}: {text}")
            return "sent"

        @skill(name="fetch", open_world=True, read_only=True)
        async def fetch(url: str) -> SkillResult:
            """Fetch a page, which anybody may have written."""
            self.done.append(f"fetch {url}")
            return SkillResult((Output("mallory@evil.example"),), taints=("web",))

        @skill(name="think", capabilities=["llm"], durable=True, destructive=False)
        async def think(context: Context, about: str) -> str:
            """Ask a model."""
            found = await context.llm(about, {"type": "object", "properties": {}})
            self.done.append(f"think {about}")
            return str(found)

        @skill(name="slow", destructive=False, durable=True, open_world=False)
        async def slow(context: Context, text: str) -> str:
            """Do something after a minute."""

            async def work(_key: str) -> str:
                self.done.append(text)
                return f"slow {text}"

            await context.sleep(60)
            return await context.step("work", work, str)

        return do, look, look_outside, send, fetch, think, slow


def plan(*steps: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Return the document of a plan. Steps are calls of `do` with their id, or what they say."""
    made = []
    for one in steps:
        step = dict(one)
        if "kind" not in step:
            step = {"kind": "call", "skill": "do", "params": {"text": step["id"]}} | step
        made.append(step)
    return {"title": "The plan", "goal": "Do it", "steps": made, **more}


@asynccontextmanager
async def planning(
    directory: Path, *steps: Step, settings: str = "", deeds: Deeds | None = None, **more: Any
) -> AsyncIterator[tuple[Kit, Peer, Deeds]]:
    """Run a service whose model says these; yield it, a person, and what the skills do."""
    deeds = deeds or Deeds()
    model = Script(*steps, **more)
    async with service(directory, settings, model=model, skills=deeds.skills()) as kit:
        yield kit, kit.peer(JULIET), deeds


def says(kit: Kit, document: Mapping[str, Any]) -> None:
    """Let the model answer next with this plan."""
    assert kit.model is not None
    kit.model.add(json.dumps(document))


def asked(kit: Kit) -> str:
    """Return what the model was asked last."""
    assert kit.model is not None
    return kit.model.asked


async def answer(kit: Kit, person: Peer, text: str) -> None:
    """Answer the last question, when an answer cannot be meant for anything else."""
    await kit.advance(QUICK_S)
    await person.say(text)


async def started(person: Peer, document: Mapping[str, Any]) -> str:
    """Let a person start a plan; return the first characters of its id."""
    import json

    said = await person.ask(f"/plan start {json.dumps(document)}", "Started")
    return said.rpartition("(")[2].rstrip(").")
