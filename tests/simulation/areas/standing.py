"""People who approve the same so often that they allow it for a while."""

import re
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from random import Random
from typing import Annotated, Any, ClassVar, Final
from xml.etree import ElementTree as ET

import anyio
import msgspec

from component.skills import FREE_TEXT, Context, Skill, skill
from tests.simulation.area import Area
from tests.simulation.history import Effect, Entry, Fault, Stanza, Wish
from tests.simulation.life import REACTIONS, Action, Reaction
from tests.simulation.people import Choice
from tests.simulation.rules import CONFIRM, Rule, Violation

_WHO: Final = ("juliet", "romeo")
_DAYS: Final = 5
_USES: Final = 4
_EQUAL: Final = 3
"""Approvals after which the question offers a standing one."""
_UNDER_WAY_S: Final = 10.0
"""Seconds for which an effect may be under way that was begun before."""


class Greet(Action, frozen=True, kw_only=True):
    """A person has somebody greeted, several times at once.

    Attributes:
        always: whether they accept an offer to be asked no more.
        revoke: whether they revoke that some seconds later.
    """

    who: str
    times: int
    reaction: Reaction
    always: bool
    revoke: bool


def _greet(chance: Random, at: float, number: int) -> Greet:
    reaction = chance.choice((*REACTIONS, "approve", "approve", "approve", "approve"))
    return Greet(
        at=at,
        number=number,
        who=chance.choice(_WHO),
        times=chance.choice((1, 1, 2, 3)),
        reaction=reaction,
        always=chance.random() < 0.7,
        revoke=chance.random() < 0.1,
    )


class _Grant(msgspec.Struct):
    """What somebody has allowed."""

    at: float
    uses: int
    ended: float | None = None


class Standing(Rule):
    """Nobody is greeted without an approval, or more often than one that stands allows."""

    def __init__(self) -> None:
        self._who: dict[str, str] = {}
        """Who has wanted each greeting."""
        self._asked: dict[str, tuple[str, str, int]] = {}
        """By the id of a question: who was asked, about which greeting, and the uses on offer."""
        self._decisions: dict[tuple[str, str], tuple[str, str]] = {}
        """By the session and id of a request: the question, and the decision."""
        self._approved: set[str] = set()
        self._approvals: Counter[str] = Counter()
        self._grants: dict[str, list[_Grant]] = {}
        self._greeted: set[str] = set()
        self._jumped = 0.0

    def saw(self, entry: Entry, stanza: ET.Element | None) -> None:
        match entry:
            case Wish(who=who, text=text) if text.startswith("greet "):
                self._who[text.removeprefix("greet ")] = who
            case Fault(kind="clock", about=about):
                self._jumped += sum(map(abs, map(float, re.findall(r"-?\d+", about))))
            case Effect(label=label) if label in self._who:
                self._check(entry)
            case Stanza(way="sent") if stanza is not None and self._who:
                self._sent(entry, stanza)
            case Stanza() if stanza is not None and self._who:
                self._received(entry, stanza)

    def _sent(self, entry: Stanza, stanza: ET.Element) -> None:
        for decision in stanza.iter(f"{CONFIRM}decision"):
            id_, value = decision.get("id", ""), decision.get("value", "")
            who, label, uses = self._asked.get(id_, ("", "", 0))
            if who != entry.session.partition("/")[0]:
                continue
            self._decisions[entry.session, stanza.get("id", "")] = who, value
            if value == "approve":
                if label not in self._approved:
                    self._approvals[who] += 1
                self._approved.add(label)
                if decision.get("standing") == "true":
                    self._grants.setdefault(who, []).append(_Grant(entry.at, uses))

    def _received(self, entry: Stanza, stanza: ET.Element) -> None:
        who = entry.session.partition("/")[0]
        for confirm in stanza.iter(f"{CONFIRM}confirm"):
            action = confirm.find(f"{CONFIRM}action")
            found = set() if action is None else self._who.keys() & set(action.itertext())
            if not found:
                continue
            offer = confirm.find(f"{CONFIRM}standing")
            uses = 0 if offer is None else int(offer.get("uses", "0"))
            if offer is not None and self._approvals[who] < _EQUAL:
                raise Violation(f"{who} is offered what they have approved {self._approvals[who]}x")
            self._asked.setdefault(confirm.get("id", ""), (who, found.pop(), uses))
        decided = self._decisions.pop((entry.session, stanza.get("id", "")), None)
        is_denied = decided is not None and decided[1] == "deny" and stanza.get("type") == "result"
        if is_denied or re.search(r"revoked\b", stanza.findtext("{*}body", "").lower()):
            for grant in self._grants.get(who, ()):
                grant.ended = entry.at if grant.ended is None else grant.ended

    def _check(self, effect: Effect) -> None:
        label, who = effect.label, self._who[effect.label]
        if label in self._greeted:
            raise Violation(f"{label} was greeted twice")
        self._greeted.add(label)
        if label in self._approved:
            return
        for grant in self._grants.get(who, ()):
            until = grant.at + timedelta(days=_DAYS).total_seconds() + self._jumped
            ended = until if grant.ended is None else min(until, grant.ended)
            if grant.uses > 0 and effect.at <= ended + _UNDER_WAY_S:
                grant.uses -= 1
                return
        raise Violation(f"{label} was greeted, and {who} has not allowed it")


class StandingApprovals(Area):
    """Standing approvals."""

    draws: ClassVar = {_greet: 3}
    actions = (Greet,)
    rules = (Standing,)
    settings: ClassVar = {"policy": {"standing_days": _DAYS, "standing_uses": _USES}}

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        world.decides["g"] = self._decide
        self._greetings: dict[str, Greet] = {}

    def skills(self) -> Sequence[Skill]:
        """Return the skill that people allow."""
        outside = self.world.outside

        @skill(question="May I greet {to} with {text}?", destructive=True)
        async def greet(to: str, text: Annotated[str, FREE_TEXT], context: Context) -> str:
            """Greet somebody."""
            await outside.do(text, f"greeted {to}", context.key)
            return "greeted"

        return [greet]

    async def perform(self, action: Any) -> None:
        """Have somebody greeted."""
        assert isinstance(action, Greet)
        who = self.world.residents[action.who]
        async with anyio.create_task_group() as group:
            for time in range(action.times):
                label = f"g{action.number}.{time}"
                self._greetings[label] = action
                who.wants(f"greet {label}")
                values = {"to": "nurse", "text": label}
                group.start_soon(who.execute, label, "greet", "async", values)
        if action.revoke:
            await anyio.sleep(60)
            await who.say("/approvals revoke all", f"{action.who}-g{action.number}")

    def _decide(self, label: str, _confirm: ET.Element) -> Choice:
        greeting = self._greetings[label]
        return Choice(greeting.reaction, always=greeting.always)
