"""Lives in which an agent, or each person, may spend little in a day."""

import re
from collections import defaultdict
from math import inf
from random import Random
from typing import Any, ClassVar, Final
from xml.etree import ElementTree as ET

import anyio

from tests.simulation.area import Area
from tests.simulation.history import Entry, Fault, Prompt, Wish
from tests.simulation.life import PEOPLE, Action
from tests.simulation.rules import Rule, Violation

_TALKS_WITH: Final = re.compile(r"You talk with (?:<data-\w+>)?(\w+@[\w.]+\w)")
_IN_ROOM: Final = re.compile(r"You are in the group chat .*?(\w+@rooms\.[\w.]+\w)")
_FROM_ROOM: Final = "It is one of the people in the group chat"
_SUMMARY: Final = "Sum it up for the assistant"
"""In a prompt that sums up a conversation, which may be that of a room."""
_OF_PLAN: Final = re.compile(r"You revise a plan.*\"title\":\"Plan (p\d+)\"", re.DOTALL)
_STORED_S: Final = 1.5
"""Seconds after which the cost of a call is stored, also if one write fails, or costs that wait are
once the disk is healthy. A kill before that loses them, as documented.
"""
_PER_PERSON: Final = "each person"
_AGENT: Final = "the agent"


class Binge(Action, frozen=True, kw_only=True):
    """A person writes many messages, if budgets are small in this life."""

    who: str
    messages: int
    pause: float


def _binge(chance: Random, at: float, number: int) -> Binge:
    pause = chance.choice((0.1, 1.0, 20.0))
    who, messages = chance.choice(PEOPLE), chance.randint(4, 12)
    return Binge(at=at, number=number, who=who, messages=messages, pause=pause)


class Costs(Rule):
    """No call is made that may cost more than is left of a budget of the day."""

    def __init__(self) -> None:
        self._limits: dict[str, float] = {}
        self._owners: dict[str, str] = {}
        """Who has started each plan."""
        self._calls: dict[tuple[str, str], list[Prompt]] = defaultdict(list)
        """By who pays, and the day."""
        self._disk_failed: float | None = None
        """Since when the disk has failed, until the costs since then are stored."""
        self._is_stored_at = inf

    def saw(self, entry: Entry, stanza: ET.Element | None) -> None:
        if isinstance(entry, Wish):
            self._wished(entry)
        elif not self._limits:
            return
        elif isinstance(entry, Prompt):
            self._asked(entry)
        elif isinstance(entry, Fault):
            self._failed(entry)

    def _wished(self, wish: Wish) -> None:
        words = wish.text.split(" ", 2)
        if words[0] == "budget":
            self._limits[words[2]] = float(words[1])
        elif words[0] == "plan":
            self._owners.setdefault(words[1], wish.who)

    def _failed(self, fault: Fault) -> None:
        match fault.kind:
            case "full" | "error" if fault.about.startswith("disk"):
                if fault.at >= self._is_stored_at or self._disk_failed is None:
                    self._disk_failed = fault.at
                self._is_stored_at = inf
            case "healthy" if fault.about == "disk":
                self._is_stored_at = fault.at + _STORED_S
            case "kill" | "crash":
                if fault.at >= self._is_stored_at:
                    self._disk_failed = None
                stored = fault.at if self._disk_failed is None else self._disk_failed
                for key, calls in self._calls.items():
                    self._calls[key] = [one for one in calls if one.until < stored - _STORED_S]

    def _asked(self, prompt: Prompt) -> None:
        if _FROM_ROOM in prompt.text or _SUMMARY in prompt.text:
            return  # a room or somebody else pays
        if (room := _IN_ROOM.search(prompt.text)) is not None:  # a room has the budget of a person
            self._pay(room[1], self._limits.get(_PER_PERSON), prompt)
            return
        self._pay(_AGENT, self._limits.get(_AGENT), prompt)
        found = _TALKS_WITH.search(prompt.text)
        if found is not None:
            self._pay(found[1], self._limits.get(_PER_PERSON), prompt)
        elif (plan := _OF_PLAN.search(prompt.text)) is not None:
            self._pay(self._owners[plan[1]], self._limits.get(_PER_PERSON), prompt)

    def _pay(self, who: str, limit: float | None, prompt: Prompt) -> None:
        if limit is None:
            return
        calls = self._calls[who, prompt.day]
        spent = sum(one.usd for one in calls)
        if spent + prompt.most_usd > limit:
            raise Violation(
                f"a call that may cost {prompt.most_usd:.6f} USD was made for {who}, who has spent"
                f" {spent:.6f} of {limit:g}"
            )
        calls.append(prompt)


class Budgets(Area):
    """Small budgets, in some lives."""

    draws: ClassVar = {_binge: 1}
    actions = (Binge,)
    rules = (Costs,)

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        which = world.chance.choice(("", "", "", "", _PER_PERSON, _PER_PERSON, _AGENT))
        self._which, self._usd = which, world.chance.choice((0.04, 0.08))
        if which == _PER_PERSON:
            self.settings = {"budgets": {"per_principal": {"usd": self._usd}}}
        elif which == _AGENT:
            self.settings = {"agents": [{"name": "assistant", "budget": {"usd": self._usd}}]}

    async def begin(self) -> None:
        """Let the rule know the budget."""
        if self._which:
            history = self.world.history
            text = f"budget {self._usd} {self._which}"
            history.add(Wish(history.now(), "operator", text))

    async def perform(self, action: Any) -> None:
        """Write messages, one soon after the other."""
        assert isinstance(action, Binge)
        if not self._which:
            return
        person = self.world.residents[action.who]
        for number in range(action.messages):
            await person.say(
                f"And what of the sea, for the {number}. time?", f"b{action.number}-{number}"
            )
            await anyio.sleep(action.pause)
