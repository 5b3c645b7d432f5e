"""People and programs of a simulated life: what they send, and how they react."""

import base64
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final
from xml.etree import ElementTree as ET

import anyio
import msgspec

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


class Choice(msgspec.Struct, frozen=True):
    """What somebody does about a question for a confirmation.

    Attributes:
        reason: why it is denied.
        always: accept an offer to be asked no more.
    """

    reaction: Reaction
    reason: str = ""
    always: bool = False


Decide = Callable[[str, ET.Element], Choice]
"""Returns what somebody does about a question, by its label."""
Answer = Callable[[str, str], str]
"""Returns the answer to a question for a value, by its label and its text."""


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

    async def ask(  # type: ignore[override]
        self, type_: str, payload: str, id_: str, to: str = ""
    ) -> ET.Element | None:
        """Send an IQ, to the agent unless `to` is given; return the answer, or None if there is
        none in time.
        """
        self._answers[id_] = event = anyio.Event()
        to = escape_attribute(to or self._agent)
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
        self._hearing: list[tuple[re.Pattern[str], anyio.Event, list[re.Match[str]]]] = []
        self.come()

    def come(self) -> None:
        """Connect."""
        if self.account is None:
            world = self._world
            self.account = Account(world.xmpp, self.jid, self._agent, self._history, self._heard)
            self.returned.set()
            self._history.fault("back", str(self.jid.bare))

    async def go(self) -> None:
        """Disconnect."""
        if self.account is not None:
            account, self.account = self.account, None
            self.returned = anyio.Event()
            self._history.fault("away", str(self.jid.bare))
            await account.leave()

    async def present(self) -> Account:
        """Return the client, as soon as it is connected."""
        while self.account is None:
            await self.returned.wait()
        return self.account

    def wants(self, text: str) -> None:
        """Record a wish."""
        self._history.add(Wish(self._history.now(), str(self.jid.bare), text))

    async def say(self, text: str, id_: str, inside: str = "") -> None:
        """Write to the agent, with more elements in the message."""
        account = await self.present()
        to = escape_attribute(self._agent)
        await account.send(
            f"<message to='{to}' type='chat' id='{id_}'><body>{escape_text(text)}</body>{inside}"
            "</message>"
        )

    async def iq(self, type_: str, payload: str, name: str, to: str = "") -> ET.Element | None:
        """Send a request, to the agent unless `to` is given."""
        self._number += 1
        id_ = f"{name}-{self._number}"  # others may ask while this one waits
        account = await self.present()
        return await account.ask(type_, payload, id_, to)

    async def ask(self, text: str, id_: str, pattern: str, within_s: float) -> re.Match[str] | None:
        """Write to the agent; return where the next text that matches does so, None if there is
        none in time.
        """
        event, found = anyio.Event(), list[re.Match[str]]()
        one = re.compile(pattern), event, found
        self._hearing.append(one)
        with anyio.move_on_after(within_s):
            await self.say(text, id_)
            await event.wait()
        self._hearing.remove(one)
        return found[0] if found else None

    async def execute(
        self,
        label: str,
        skill: str,
        mode: str,
        values: Mapping[str, Any] | None = None,
        more: str = "",
    ) -> ET.Element | None:
        """Execute a skill: send the same request until it is answered; return the last answer.
        `more` are other attributes of the request.
        """
        params = escape_text(json.dumps({"label": label} if values is None else values))
        payload = (
            f"<execute xmlns='{EXECUTE[1:-1]}' skill='{skill}' mode='{mode}'"
            f" request='{label}'{more}>"
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
        for pattern, event, found in self._hearing:
            if (match := pattern.search(message.findtext("{*}body", ""))) is not None:
                found.append(match)
                event.set()
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
            self._group.start_soon(
                self._answer_in_chat, message.findtext("{*}body", ""), message.get("id", "")
            )

    def _reaction(self, text: str) -> tuple[str, Reaction]:
        label = label_in(text)
        return label, self._world.reactions.get(label.partition(".")[0], "approve")

    async def _decide(self, confirm: ET.Element, text: str) -> None:
        action = confirm.find(f"{CONFIRM}action")
        said = text if action is None else " ".join(action.itertext())
        label, reaction = self._reaction(said)
        decide = self._world.decides.get(label[:1])
        choice = Choice(reaction) if decide is None else decide(label, confirm)
        reaction = choice.reaction
        offer = confirm.find(f"{CONFIRM}standing") if choice.always else None
        asked = confirm if offer is None else offer
        id_, hash_ = confirm.get("id", ""), asked.find("{urn:xmpp:hashes:2}hash")
        shown = "" if hash_ is None else ET.tostring(hash_, "unicode")
        if reaction == "ignore":
            return
        await anyio.sleep(_LATE_S if reaction == "late" else 20 * self._chance.random())
        if reaction == "other" and self.bystander is not None:
            await self.bystander.decide(id_, "approve", shown)
        if reaction == "forged":
            await self.decide(id_, "approve", _another(hash_))
            return
        if reaction == "deny":
            reason = f"<reason>{choice.reason}</reason>" if choice.reason else ""
            await self.decide(id_, "deny", reason + shown)
        else:
            await self.decide(id_, "approve", shown, always=offer is not None)
        if reaction == "twice":
            await self.decide(id_, "approve", shown)

    async def decide(self, id_: str, value: str, inside: str, *, always: bool = False) -> None:
        """Send a decision, until it is answered."""
        standing = " standing='true'" if always else ""
        payload = (
            f"<decision xmlns='{CONFIRM[1:-1]}' id='{id_}' value='{value}'{standing}>"
            f"{inside}</decision>"
        )
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
        answer = self._world.answers.get(label[:1])
        values = {"word": f"word-{label}"}
        if answer is not None:
            values = {"answer": answer(label, " ".join(asked.itertext()))}
        word = json.dumps(values)
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

    async def _answer_in_chat(self, text: str, id_: str) -> None:
        label, reaction = self._reaction(text)
        if reaction == "ignore":
            return
        await anyio.sleep(_LATE_S if reaction == "late" else 20 * self._chance.random())
        self._number += 1
        answer = self._world.answers.get(label[:1])
        word = f"word-{label}" if answer is None else answer(label, text)
        reply = "" if answer is None else f"<reply xmlns='urn:xmpp:reply:0' id='{id_}'/>"
        await self.say(word, f"{self.jid.local}-a{self._number}", reply)


def _another(hash_: ET.Element | None) -> str:
    """Return the digest of another action."""
    digest = base64.b64encode(hashlib.sha256(b"another action").digest()).decode()
    algo = "sha-256" if hash_ is None else hash_.get("algo", "")
    return f"<hash xmlns='urn:xmpp:hashes:2' algo='{algo}'>{digest}</hash>"


def label_in(text: str) -> str:
    """Return the first label of a text, such as `x17` or `m3.work`; empty without one."""
    for word in text.replace("?", " ").replace(",", " ").replace('"', " ").split():
        bare = word.strip(".:;!()'{}")
        if bare[:1] in tuple("xmsrwpgc") and bare[1:].partition(".")[0].isdigit():
            return bare
    return ""


def _is_passing(answer: ET.Element) -> bool:
    """Return whether an error says that the same may work later."""
    error = answer.find("{*}error")
    return error is not None and error.get("type") == "wait"
