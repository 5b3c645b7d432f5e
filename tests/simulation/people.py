"""People and programs of a simulated life: what they send, and how they react."""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree as ET

import anyio

from tests.kit.xmpp import Peer, Xmpp, parse
from tests.simulation.history import History, Stanza, Wish
from tests.simulation.life import CALLERS, Reaction
from tests.simulation.rules import CONFIRM, EXECUTE, TASK
from xep.binding.escaping import escape_attribute, escape_text
from xep.jid import JID

if TYPE_CHECKING:
    from tests.simulation.world import World

ANSWER_S: Final = 60.0
"""Seconds that a program waits for the answer to an IQ before it sends another one."""
GIVES_UP_S: Final = 12 * 3600.0
"""Seconds after which a program no longer repeats a request."""
_LATE_S: Final = 5 * 3600.0


class Account(Peer):
    """A client that records what it sends and receives."""

    def __init__(
        self,
        xmpp: Xmpp,
        jid: JID,
        agent: str,
        history: History,
        heard: Callable[[ET.Element], None] = lambda _: None,
    ) -> None:
        self._history = history
        self._answers: dict[str, anyio.Event] = {}
        self.answered: dict[str, ET.Element] = {}
        self.heard = heard
        super().__init__(xmpp, jid, agent)

    async def send(self, xml: str) -> None:
        self._history.add(Stanza(self._history.now(), str(self.jid), "sent", xml))
        await super().send(xml)

    def deliver(self, xml: str) -> None:
        stanza = ET.fromstring(xml)
        if stanza.get("from") != str(self.jid):
            self._history.add(Stanza(self._history.now(), str(self.jid), "received", xml))
        super().deliver(xml)
        self.take()
        kind = stanza.tag.rpartition("}")[2]
        if kind == "iq" and stanza.get("type") in ("result", "error"):
            event = self._answers.pop(stanza.get("id", ""), None)
            if event is not None:
                self.answered[stanza.get("id", "")] = stanza
                event.set()
        elif kind == "message":
            self.heard(stanza)
        elif kind == "presence" and stanza.get("type") == "subscribe":
            self._let_see(stanza.get("from", ""))

    def _let_see(self, who: str) -> None:
        """Let somebody see the presence of the account."""
        xml = f"<presence to='{escape_attribute(who)}' type='subscribed'/>"
        self._history.add(Stanza(self._history.now(), str(self.jid), "sent", xml))
        self._router.from_client(self._session, parse(xml))

    async def ask(self, type_: str, payload: str, id_: str) -> ET.Element | None:  # type: ignore[override]
        """Send an IQ; return the answer, or None if there is none in time."""
        self._answers[id_] = event = anyio.Event()
        to = escape_attribute(self._agent)
        await self.send(f"<iq to='{to}' type='{type_}' id='{id_}'>{payload}</iq>")
        with anyio.move_on_after(ANSWER_S):
            await event.wait()
        self._answers.pop(id_, None)
        return self.answered.pop(id_, None)


class Resident:
    """A person, or a program, whose client is connected most of the time.

    Attributes:
        account: the client; None while it is not connected.
        bystander: somebody else, who may try to answer its questions.
    """

    def __init__(self, world: "World", name: str) -> None:
        self.jid = JID.parse(f"{name}@capulet.example/home")
        self._world, self._history, self._agent = world, world.history, world.kit.agent
        self._group, self._chance = world.group, world.chance
        self._is_program = name in CALLERS
        self._number = 0
        self.account: Account | None = None
        self.returned = anyio.Event()
        self.bystander: Resident | None = None
        self.come()

    def come(self) -> None:
        """Connect."""
        if self.account is None:
            world = self._world
            self.account = Account(world.xmpp, self.jid, self._agent, self._history, self._heard)
            self.returned.set()

    async def go(self) -> None:
        """Disconnect."""
        if self.account is not None:
            account, self.account = self.account, None
            self.returned = anyio.Event()
            await account.leave()

    async def _present(self) -> Account:
        while self.account is None:
            await self.returned.wait()
        return self.account

    def wants(self, text: str) -> None:
        """Record a wish."""
        self._history.add(Wish(self._history.now(), str(self.jid.bare), text))

    async def say(self, text: str, id_: str) -> None:
        """Write to the agent."""
        account = await self._present()
        to = escape_attribute(self._agent)
        await account.send(
            f"<message to='{to}' type='chat' id='{id_}'><body>{escape_text(text)}</body></message>"
        )

    async def iq(self, type_: str, payload: str, name: str) -> ET.Element | None:
        """Send a request."""
        self._number += 1
        account = await self._present()
        return await account.ask(type_, payload, f"{name}-{self._number}")

    async def execute(self, label: str, skill: str, mode: str) -> ET.Element | None:
        """Execute a skill: send the same request until it is answered; return the last answer."""
        params = json.dumps({"label": label})
        payload = (
            f"<execute xmlns='{EXECUTE[1:-1]}' skill='{skill}' mode='{mode}' request='{label}'>"
            f"<params type='application/json'>{params}</params></execute>"
        )
        began, wait = self._history.now(), 1.0
        while self._history.now() - began < GIVES_UP_S:
            answer = await self.iq("set", payload, label)
            if answer is not None and not _is_passing(answer):
                return answer
            await anyio.sleep(wait)
            wait = min(2 * wait, 600.0)
        return None

    # What it hears.

    def _heard(self, message: ET.Element) -> None:
        if message.get("type") == "error":
            return
        confirm = message.find(f"{CONFIRM}confirm")
        asked = message.find(f"{TASK}task/{TASK}input")
        if asked is None:
            asked = message.find(f"{TASK}input")
        if confirm is not None and message.get("type") == "chat":
            self._group.start_soon(self._decide, confirm, message.findtext("{*}body", ""))
        elif asked is not None and message.find(f"{TASK}task") is not None and self._is_program:
            task = message.find(f"{TASK}task")
            assert task is not None
            self._group.start_soon(self._answer, task.get("id", ""), asked)
        elif asked is not None and message.get("type") == "chat" and not self._is_program:
            self._group.start_soon(self._answer_in_chat, message.findtext("{*}body", ""))

    def _reaction(self, text: str) -> tuple[str, Reaction]:
        label = label_in(text)
        return label, self._world.reactions.get(label.partition(".")[0], "approve")

    async def _decide(self, confirm: ET.Element, text: str) -> None:
        action = confirm.find(f"{CONFIRM}action")
        said = text if action is None else " ".join(action.itertext())
        _, reaction = self._reaction(said)
        id_, hash_ = confirm.get("id", ""), confirm.find("{urn:xmpp:hashes:2}hash")
        shown = "" if hash_ is None else ET.tostring(hash_, "unicode")
        if reaction == "ignore":
            return
        await anyio.sleep(_LATE_S if reaction == "late" else 20 * self._chance.random())
        if reaction == "other" and self.bystander is not None:
            await self.bystander.decide(id_, "approve", shown)
        await self.decide(id_, "deny" if reaction == "deny" else "approve", shown)
        if reaction == "twice":
            await self.decide(id_, "approve", shown)

    async def decide(self, id_: str, value: str, hash_: str) -> None:
        """Send a decision, until it is answered."""
        payload = f"<decision xmlns='{CONFIRM[1:-1]}' id='{id_}' value='{value}'>{hash_}</decision>"
        for _ in range(5):
            answer = await self.iq("set", payload, f"decision-{id_[:6]}")
            if answer is not None and not _is_passing(answer):
                return
            await anyio.sleep(30)

    async def _answer(self, task: str, asked: ET.Element) -> None:
        label, reaction = self._reaction(" ".join(asked.itertext()))
        if reaction == "ignore":
            return
        await anyio.sleep(_LATE_S if reaction == "late" else 20 * self._chance.random())
        word = json.dumps({"word": f"word-{label}"})
        payload = (
            f"<answer xmlns='{TASK[1:-1]}' task='{task}' input='{asked.get('id')}'"
            f" revision='{asked.get('revision')}'>"
            f"<params type='application/json'>{word}</params></answer>"
        )
        for _ in range(5):
            answer = await self.iq("set", payload, f"answer-{label}")
            if answer is not None and not _is_passing(answer):
                return
            await anyio.sleep(30)

    async def _answer_in_chat(self, text: str) -> None:
        label, reaction = self._reaction(text)
        if reaction == "ignore":
            return
        await anyio.sleep(_LATE_S if reaction == "late" else 20 * self._chance.random())
        self._number += 1
        await self.say(f"word-{label}", f"{self.jid.local}-a{self._number}")


def label_in(text: str) -> str:
    """Return the first label of a text, such as `x17` or `m3.work`; empty without one."""
    for word in text.replace("?", " ").replace(",", " ").replace('"', " ").split():
        bare = word.strip(".:;!()'{}")
        if bare[:1] in ("x", "m", "s", "r", "w") and bare[1:].partition(".")[0].isdigit():
            return bare
    return ""


def _is_passing(answer: ET.Element) -> bool:
    """Return whether an error says that the same may work later."""
    error = answer.find("{*}error")
    return error is not None and error.get("type") == "wait"
