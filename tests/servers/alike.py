"""A caller who executes skills of a service that is killed at named points, and what comes of it.

The script is played with a real process on a real server, and in the simulation
(`alike_sides.py`). A history is what the caller receives, in its order, and the effects of skills.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.servers.agent_process import UNDISTURBED
from tests.servers.clients import Element
from tests.servers.histories import History
from tests.servers.talk import execute
from tests.servers.tasking import (
    CONFIRM,
    SKILLS,
    TASK,
    TERMINAL,
    accepted,
    answer,
    cancel,
    decision,
    event,
    get,
    params,
)

GATED: Final = '''

@skill(name="raze", durable=True)
async def raze(run: str, context: Context) -> str:
    """Take something down in two steps, and wait for a file between them."""

    async def fence(key: str) -> str:
        effect(f"{run} fence")
        return "fence"

    async def house(key: str) -> str:
        effect(f"{run} house")
        return "house"

    done = await context.step("fence", fence, str)
    await context.progress(0.5, "between")
    await gate(f"{run}.go")
    return f"{done}, {await context.step('house', house, str)}"
'''
SETTINGS: Final[dict[str, Any]] = {**UNDISTURBED, "limits__inline_s": 60}
"""Those of the service, on both sides."""
_DELAY: Final = "{urn:xmpp:delay}delay"


class Side(ABC):
    """A caller, and a service that can be killed."""

    home: Path
    """Where the skills have their files."""

    def __init__(self) -> None:
        self.history = History()
        self._known = set[str | None]()

    @abstractmethod
    async def ask(self, type_: str, payload: str) -> Element:
        """Send a request to the agent; return its answer."""

    @abstractmethod
    async def wait(self, where: Callable[[Element], bool]) -> Element:
        """Take the first message like this, whenever it comes."""

    @abstractmethod
    async def kill(self) -> None:
        """Kill the service at once, and start it again."""

    @abstractmethod
    async def left(self) -> list[Element]:
        """Return the messages that were not taken, and that are there."""

    # What the script does.

    async def set(self, label: str, payload: str) -> Element:
        """Ask the agent for something, and note its answer."""
        found = await self.ask("set", payload)
        self.history.stanza(label, found)
        return found

    async def begin(self, label: str, skill: str, /, **given: object) -> str:
        """Execute a skill as a task; return its id."""
        attributes = f"mode='async' request='{label}'"
        return accepted(await self.set(label, execute(skill, attributes=attributes, **given)))

    async def message(self, label: str, where: Callable[[Element], bool]) -> Element:
        """Wait for a message, and note it."""
        found = await self.wait(where)
        self._known.add(found.get("id"))
        self.history.stanza(label, found)
        return found

    async def halfway(self, run: str, task: str) -> None:
        """Wait until a skill has come to its gate."""
        await self.message(run, lambda stanza: _in(stanza, task, "progress") is not None)

    async def ended(self, run: str, task: str) -> None:
        """Wait for the end of a task."""
        await self.message(run, event(task, *TERMINAL))

    def open_gate(self, run: str) -> None:
        """Let the skill that waits for this file go on."""
        (self.home / f"{run}.go").touch()

    async def finish(self) -> list[str]:
        """Return the history."""
        known, besides = {*self._known}, []
        for stanza in await self.left():
            # It may be sent again under the same id; one that is delayed is of an earlier test.
            if stanza.get("id") not in known and stanza.find(_DELAY) is None:
                known.add(stanza.get("id"))
                besides.append(stanza)
        self.history.besides(besides)
        for line in (self.home / "effects").read_text().splitlines():
            self.history.line("effect", line)
        return self.history.lines


def _in(stanza: Element, task: str, name: str) -> Element | None:
    return stanza.find(f"{{{TASK}}}task[@id='{task}']/{{{TASK}}}{name}")


async def after_the_first_effect(side: Side) -> None:
    """It is killed between two steps, twice; in between the caller asks the same again."""
    task = await side.begin("first", "steps", run="first")
    await side.halfway("first", task)
    await side.kill()
    assert await side.begin("first", "steps", run="first") == task
    await side.halfway("first", task)
    await side.kill()
    side.open_gate("first")
    await side.ended("first", task)


async def within_an_effect(side: Side) -> None:
    """It is killed in a step that may not run twice."""
    task = await side.begin("stuck", "stuck", run="stuck")
    await side.halfway("stuck", task)
    await side.kill()
    side.open_gate("stuck")
    await side.ended("stuck", task)


async def while_the_question_waits(side: Side) -> None:
    """It is killed while a skill waits for an answer, and when it has it."""
    task = await side.begin("trip", "trip")
    message = await side.message("trip", event(task, "input-required"))
    await side.kill()
    asked = _in(message, task, "input")
    assert asked is not None
    await side.set("trip", answer(asked, task, params({"city": "Verona", "nights": 2})))
    await side.ended("trip", task)
    await side.kill()
    side.history.stanza("trip", await side.ask("get", get(task)))


async def around_a_confirmation(side: Side) -> None:
    """It is killed while it waits for a yes, and after the yes."""
    task = await side.begin("raze", "raze", run="raze")

    def asks(stanza: Element) -> bool:
        return stanza.find(f"{{{CONFIRM}}}confirm[@task='{task}']") is not None

    asked = (await side.message("raze", asks)).find(f"{{{CONFIRM}}}confirm")
    await side.message("raze", event(task, "input-required"))
    await side.kill()
    assert asked is not None
    await side.set("raze", decision(asked.attrib["id"], "approve"))
    await side.halfway("raze", task)
    await side.kill()
    await side.set("raze", decision(asked.attrib["id"], "deny"))
    side.open_gate("raze")
    await side.ended("raze", task)


async def after_a_cancel(side: Side) -> None:
    """It is killed when a task was cancelled."""
    task = await side.begin("slow", "slow", run="slow")
    await side.message("slow", event(task, "running"))
    await side.set("slow", cancel(task))
    await side.ended("slow", task)
    await side.kill()
    await side.set("slow", cancel(task))
    side.open_gate("slow")
    side.history.stanza("slow", await side.ask("get", get(task)))


async def play(side: Side) -> list[str]:
    """Play all scenes; return the history."""
    await after_the_first_effect(side)
    await within_an_effect(side)
    await while_the_question_waits(side)
    await around_a_confirmation(side)
    await after_a_cancel(side)
    return await side.finish()


def write_skills(home: Path) -> None:
    """Write the skills of the script, and no effects yet."""
    home.mkdir(parents=True, exist_ok=True)
    (home / "own.py").write_text(SKILLS + GATED)
    (home / "effects").touch()
