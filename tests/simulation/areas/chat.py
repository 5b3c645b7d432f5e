"""People who talk with the agent."""

import re
from random import Random
from typing import Any, ClassVar, Final
from xml.etree import ElementTree as ET

from tests.simulation.area import Area
from tests.simulation.history import Entry, Prompt, Stanza
from tests.simulation.life import PEOPLE, REACTIONS, Action, Reaction
from tests.simulation.rules import LABEL, Rule, Violation

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
    """Every message of a person is answered, bounced or reported."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], str] = {}

    def saw(self, entry: Entry, stanza: ET.Element | None) -> None:
        if stanza is None or not stanza.tag.endswith("}message"):
            return
        assert isinstance(entry, Stanza)
        who, body = entry.session.partition("/")[0], stanza.findtext("{*}body", "")
        if entry.way == "sent":
            if body.startswith("m"):
                self._open[who, body.partition(" ")[0]] = stanza.get("id", "")
            return
        if stanza.get("type") == "error":
            for key, id_ in list(self._open.items()):
                if id_ == stanza.get("id"):
                    del self._open[key]
            return
        for label in LABEL.findall(body):
            self._open.pop((who, label), None)
        if BUDGET in body:  # it says that about all messages that a turn is about
            self._open = {key: id_ for key, id_ in self._open.items() if key[0] != who}

    def at_rest(self) -> None:
        if self._open:
            raise Violation(f"nobody has answered {list(self._open)}")


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
    rules = (Replies, Privacy)

    async def perform(self, action: Any) -> None:
        """Write a message."""
        assert isinstance(action, Say)
        label = f"m{action.number}"
        self.world.reactions[label] = action.reaction
        text = f"{label} {action.wish}, please. My secret is secret-{action.who}-{action.number}."
        person = self.world.residents[action.who]
        person.wants(text)
        await person.say(text, f"{action.who}-{label}")
