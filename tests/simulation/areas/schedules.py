"""Schedules that people make."""

import re
from collections import Counter
from random import Random
from typing import Any, ClassVar
from xml.etree import ElementTree as ET

from tests.simulation.area import Area
from tests.simulation.history import Entry, Stanza, Wish
from tests.simulation.life import PEOPLE, Action
from tests.simulation.rules import Rule, Violation


class Schedule(Action, frozen=True, kw_only=True):
    """A person makes a schedule: `when` is as people write it."""

    who: str
    when: str


def _schedule(chance: Random, at: float, number: int) -> Schedule:
    when = chance.choice(("in 2 minutes", "in 3 hours", "tomorrow at 9:00", "every day at 8:30"))
    return Schedule(at=at, number=number, who=chance.choice(PEOPLE), when=when)


class Firings(Rule):
    """What is to happen once happens once."""

    def __init__(self) -> None:
        self._once: dict[str, str] = {}
        self._messages: set[tuple[str, str]] = set()
        self._fired: Counter[str] = Counter()

    def saw(self, entry: Entry, stanza: ET.Element | None) -> None:
        if isinstance(entry, Wish):
            match = re.fullmatch(r"/schedule add (.*): remember (s\d+)", entry.text)
            if match is not None and not match[1].startswith("every"):
                self._once[match[2]] = entry.who
        if stanza is None or not isinstance(entry, Stanza) or entry.way != "received":
            return
        body = stanza.findtext("{*}body", "")
        for label in re.findall(r"Time for (s\d+)", body):
            if (label, stanza.get("id", "")) in self._messages:
                continue  # it was sent again
            self._messages.add((label, stanza.get("id", "")))
            self._fired[label] += 1
            if label in self._once and self._fired[label] > 1:
                raise Violation(f"the schedule {label} has fired {self._fired[label]} times")


class Schedules(Area):
    """Schedules that people make."""

    draws: ClassVar = {_schedule: 6}
    actions = (Schedule,)
    rules = (Firings,)

    async def perform(self, action: Any) -> None:
        """Make a schedule."""
        assert isinstance(action, Schedule)
        person = self.world.residents[action.who]
        text = f"/schedule add {action.when}: remember s{action.number}"
        person.wants(text)
        await person.say(text, f"{action.who}-s{action.number}")
