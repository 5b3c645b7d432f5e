"""People who talk with the agent."""

import re
from collections.abc import Callable
from random import Random
from typing import Any, ClassVar, Final
from xml.etree import ElementTree as ET

from tests.simulation.area import Area
from tests.simulation.history import Effect, Entry, Fault, KeptOut, Prompt, Stanza
from tests.simulation.life import PEOPLE, REACTIONS, Action, Reaction
from tests.simulation.rules import LABEL, Rule, Violation

_AROUND_S: Final = 70.0
"""Seconds around an answer in which a fault may cause that it is sent again."""
_ILL_S: Final = 1800.0
"""Seconds after which what was wrong with the model or the disk has no consequences."""
_AWAY_S: Final = 3600.0
"""Seconds within which the answer to somebody who has gone may be lost."""
_ON_ITS_WAY_S: Final = 2.0
"""Seconds within which a message is stored, also after others and where threads are slow."""
RECEIVED: Final = "{urn:xmpp:receipts}received"
_KNOWS_NOT: Final = "I see."
"""What the model answers if it does not find what was asked, such as when other turns came between.
"""
_WHICH: Final = "I have several questions open with you."
"""What somebody hears who has not said which one a message is to answer."""
BUDGET: Final = "daily budget"
"""In a message that says that a person or an agent can have no more answers today."""
_SECRET: Final = re.compile(r"secret-([a-z]+)-\d+")


class Say(Action, frozen=True, kw_only=True):
    """A person writes to the agent: `wish` is what the model makes of it."""

    who: str
    wish: str
    reaction: Reaction = "approve"


def _say(chance: Random, at: float, number: int) -> Say:
    wish = chance.choice(("talk", "talk", "note", "work", "pay", "ask", "lie"))
    who, reaction = chance.choice(PEOPLE), chance.choice(REACTIONS)
    return Say(at=at, number=number, who=who, wish=wish, reaction=reaction)


class Replies(Rule):
    """Every message of a person is answered, bounced or reported, unless it was lost on its way.

    Attributes:
        letter: with which the labels of these messages begin.
    """

    letter = "m"

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], tuple[str, float]] = {}
        self._lies: set[tuple[str, str]] = set()
        self._taken: set[tuple[str, str]] = set()
        """Messages that a model was asked about, or that were confirmed: they are stored."""
        self._ill_at = -_ILL_S
        """When something was wrong with the model or the disk."""

    def saw(self, entry: Entry, stanza: ET.Element | None) -> None:
        if isinstance(entry, Fault):
            self._fault(entry)
        elif isinstance(entry, Prompt):
            self._taken.update(key for key in self._open if f"{key[1]} " in entry.text)
        elif isinstance(entry, Effect) and entry.step.startswith("after "):
            # A message while a question is open is the answer to that.
            word = self.name(entry.step.split()[1])
            self._open = {key: value for key, value in self._open.items() if key[1] != word}
        elif isinstance(entry, KeptOut):
            self._told(entry.who, ET.fromstring(entry.xml).findtext("{*}body", ""), entry.at)
        if stanza is None or not stanza.tag.endswith("}message"):
            return
        assert isinstance(entry, Stanza)
        who, body = entry.session.partition("/")[0], stanza.findtext("{*}body", "")
        if entry.way == "sent":
            label = body.partition(" ")[0]
            if re.match(r"m\d+ lie\b", body):
                self._lies.add((who, label))
            if body.startswith(self.letter) and LABEL.fullmatch(label):
                self._open[who, self.name(label)] = stanza.get("id", ""), entry.at
            return
        if stanza.get("type") == "error":
            self._forget(lambda _, id_, __: id_ == stanza.get("id"))
            return
        receipt = stanza.find(RECEIVED)
        if receipt is not None:
            id_ = receipt.get("id")
            self._taken.update(key for key, (one, _) in self._open.items() if one == id_)
        self._told(who, body, entry.at)
        if body == _KNOWS_NOT and stanza.get("id", "").endswith(".answer"):
            self._forget(lambda one, _, __: one == who)

    def _told(self, who: str, body: str, at: float) -> None:
        for label in LABEL.findall(body):
            self._open.pop((who, self.name(label)), None)
        if body:
            if body.startswith(_WHICH):
                self._forget(lambda one, _, sent: one == who and at - sent < _ON_ITS_WAY_S)
            # An answer that says that there is none is about all messages of its turn, as is one
            # of a model that lies.
            is_ill = at < self._ill_at + _ILL_S
            mine = [one for one in self._open if one[0] == who]
            if BUDGET in body or is_ill or not self._lies.isdisjoint(mine):
                self._forget(lambda one, _, __: one == who)

    def name(self, label: str) -> str:
        """Return the name of the message with this label."""
        return label

    def _fault(self, fault: Fault) -> None:
        if fault.kind in ("full", "error", "healthy"):
            self._ill_at = fault.at
        elif fault.kind == "away":
            self._forget(lambda one, _, at: one == fault.about and at > fault.at - _AWAY_S)
        elif fault.kind in ("kill", "crash", "cut", "stop"):
            for key, (_, at) in list(self._open.items()):
                if at > fault.at - _ON_ITS_WAY_S and key not in self._taken:
                    del self._open[key]

    def _forget(self, is_over: Callable[[str, str, float], bool]) -> None:
        for (who, label), (id_, at) in list(self._open.items()):
            if is_over(who, id_, at):
                del self._open[who, label]

    def at_rest(self) -> None:
        if self._open:
            raise Violation(f"nobody has answered {list(self._open)}")


class Once(Rule):
    """A message is sent once, and again only if it was refused, or after a fault."""

    def __init__(self) -> None:
        self._at: dict[tuple[str, ...], float] = {}
        self._faults: list[float] = []

    def saw(self, entry: Entry, stanza: ET.Element | None) -> None:
        if isinstance(entry, Fault):
            self._faults.append(entry.at)
        if stanza is None or not isinstance(entry, Stanza):
            return
        id_ = stanza.get("id", "")
        if entry.way == "sent":
            if stanza.get("type") == "error":  # a room has refused it
                self._at = {
                    key: at for key, at in self._at.items() if key[::3] != (entry.session, id_)
                }
            return
        if not stanza.tag.endswith("}message") or stanza.get("type") == "error" or not id_:
            return
        if stanza.find("{urn:xmpp:delay}delay") is not None:
            return  # both were sent while this person was away
        key = entry.session, stanza.get("from", ""), stanza.get("type", ""), id_
        at = self._at.get(key)
        if at is not None and not any(
            at - _AROUND_S < one < at + _AROUND_S for one in self._faults
        ):
            raise Violation(f"the message {id_} was sent again, {entry.at - at:.0f} s later")
        self._at[key] = entry.at


class Privacy(Rule):
    """No text of one person is in another one's prompt or stanzas."""

    def saw(self, entry: Entry, stanza: ET.Element | None) -> None:
        if isinstance(entry, Prompt):
            people = set(_SECRET.findall(entry.text))
            if len(people) > 1:
                raise Violation(f"a prompt has secrets of {sorted(people)}")
        elif isinstance(entry, Stanza) and entry.way == "received":
            mine = entry.session.partition("@")[0]
            others = set(_SECRET.findall(entry.xml)) - {mine}
            if others:
                raise Violation(f"{entry.session} has received a secret of {sorted(others)}")


class Chat(Area):
    """People who write to the agent."""

    draws: ClassVar = {_say: 27}
    actions = (Say,)
    rules = (Replies, Once, Privacy)

    async def perform(self, action: Any) -> None:
        """Write a message."""
        assert isinstance(action, Say)
        label = f"m{action.number}"
        self.world.reactions[label] = action.reaction
        text = f"{label} {action.wish}, please. My secret is secret-{action.who}-{action.number}."
        person = self.world.residents[action.who]
        person.wants(text)
        await person.say(text, f"{action.who}-{label}")
