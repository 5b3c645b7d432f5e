"""A caller who executes skills of a service that is killed at named points, and what comes of it.

The script is played with a real process on a real server (`RealSide`), and in the simulation
(`SimulatedSide`). A history is what the caller receives, in its order, and the effects of skills.
"""

import re
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as ET

from tests.kit import Kit, Peer
from tests.servers.agent_process import UNDISTURBED
from tests.servers.base import Server
from tests.servers.clients import Element, SlixClient
from tests.servers.talk import execute
from tests.servers.tasking import (
    CONFIRM,
    SKILLS,
    TASK,
    TERMINAL,
    Desk,
    accepted,
    answer,
    cancel,
    decision,
    event,
    get,
    params,
)
from xep.jid import JID

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
_CLIENT: Final = "{jabber:client}"
_ADDED: Final = (
    "{urn:xmpp:sid:0}stanza-id",
    "{urn:xmpp:mam:tmp}archived",
    "{http://www.w3.org/XML/1998/namespace}lang",
)
"""What some servers add to a stanza."""
_HASH: Final = "{urn:xmpp:hashes:2}hash"
_DELAY: Final = "{urn:xmpp:delay}delay"
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_RESOURCE: Final = re.compile(r"(?<=juliet@localhost)/[^\"'<]+")
_ID: Final = re.compile(r"\b(?=[A-Za-z_-]*\d)[A-Za-z0-9_-]{16,}\b")
"""Ids and keys."""


class History:
    """What has happened, without what differs in each run: times, ids and resources."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._names: dict[str, str] = {}

    def stanza(self, label: str, stanza: Element) -> None:
        """Note a stanza that the caller has received."""
        self.line(label, _plain(stanza))

    def besides(self, stanzas: Iterable[Element]) -> None:
        """Note messages whose order does not matter."""
        texts = [self._named(_plain(stanza)) for stanza in stanzas]
        self.lines += [f"besides: {text}" for text in sorted(texts)]

    def line(self, label: str, text: str) -> None:
        """Note a text."""
        self.lines.append(f"{label}: {self._named(text)}")

    def _named(self, text: str) -> str:
        text = _RESOURCE.sub("/RESOURCE", _TIME.sub("TIME", text))
        return _ID.sub(lambda m: self._names.setdefault(m[0], f"#{len(self._names) + 1}"), text)


def _plain(stanza: Element) -> str:
    copy = ET.fromstring(ET.tostring(stanza))
    copy.attrib.pop("id", None)
    if copy.get("type") == "normal":
        del copy.attrib["type"]
    for element in copy.iter():
        element.attrib.pop("duration-ms", None)
        if element.tag == _HASH:
            element.text = "DIGEST"
        for name in _ADDED:
            element.attrib.pop(name, None)
            for added in element.findall(name):
                element.remove(added)
    # ejabberd changes the order of what it knows.
    copy[:] = sorted(copy, key=lambda child: child.tag)
    return ET.canonicalize(ET.tostring(copy, "unicode"))


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


class RealSide(Side):
    """A process on a real server, and slixmpp."""

    def __init__(self, desk: Desk, caller: SlixClient) -> None:
        super().__init__()
        self._desk, self._caller = desk, caller
        self.home = desk.agent.directory

    async def ask(self, type_: str, payload: str) -> Element:
        return self._caller.iq(self._desk.assistant, payload, type_)

    async def wait(self, where: Callable[[Element], bool]) -> Element:
        return self._caller.messages.take(where)

    async def kill(self) -> None:
        self._desk.agent.kill()
        self._desk.agent.start().connected()

    async def left(self) -> list[Element]:
        # What was sent before is there when this is answered.
        self._caller.iq(self._desk.assistant, "<ping xmlns='urn:xmpp:ping'/>")
        return self._caller.messages.all()


class Recording(Peer):
    """A client that keeps messages as they are."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.texts: list[str] = []
        super().__init__(*arguments, **options)

    def deliver(self, xml: str) -> None:
        self.texts.append(xml)
        super().deliver(xml)


class SimulatedSide(Side):
    """The service in this process, and a client in memory."""

    def __init__(self, kit: Kit, home: Path, jid: str) -> None:
        super().__init__()
        self._kit, self.home = kit, home
        agent = f"assistant@{kit.agent}"
        self._peer = Recording(kit.xmpp, JID.parse(jid), agent)
        self._taken = set[int]()

    async def ask(self, type_: str, payload: str) -> Element:
        found = await self._peer.iq(type_, payload)
        return next(one for one in self._all() if one.get("id") == found.id)

    async def wait(self, where: Callable[[Element], bool]) -> Element:
        while True:
            for number, stanza in enumerate(self._all()):
                if number not in self._taken and _is_message(stanza) and where(stanza):
                    self._taken.add(number)
                    return stanza
            await self._peer.receive()

    async def kill(self) -> None:
        await self._kit.restart(kill=True)

    async def left(self) -> list[Element]:
        await self._kit.settled()
        return [
            one
            for number, one in enumerate(self._all())
            if number not in self._taken and _is_message(one)
        ]

    def _all(self) -> list[Element]:
        return [
            ET.fromstring(f"<x xmlns='jabber:client'>{text}</x>")[0] for text in self._peer.texts
        ]


def _is_message(stanza: Element) -> bool:
    return stanza.tag == f"{_CLIENT}message"


def write_skills(home: Path) -> None:
    """Write the skills of the script, and no effects yet."""
    home.mkdir(parents=True, exist_ok=True)
    (home / "own.py").write_text(SKILLS + GATED)
    (home / "effects").touch()


def sections(server: Server, home: Path) -> dict[str, Any]:
    """Return the settings of the process as those of a simulated service."""
    found = tomllib.loads(server.agent_toml())
    found["server"] = {"component_domain": server.component_domain}
    found["storage"] = {}
    for name, value in SETTINGS.items():
        section, key = name.split("__")
        found.setdefault(section, {})[key] = value
    found.setdefault("skills", {})["modules"] = [str(home / "own.py")]
    return found
