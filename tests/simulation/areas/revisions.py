"""People who correct their messages, or retract them."""

from random import Random
from typing import Any, ClassVar, Final
from xml.etree import ElementTree as ET

import anyio

from tests.simulation.area import Area
from tests.simulation.areas.chat import RECEIVED
from tests.simulation.areas.revision_rules import OneAnswer, Revised, RevisedReplies
from tests.simulation.history import Entry, Stanza
from tests.simulation.life import PEOPLE, REACTIONS, Action, Reaction
from tests.simulation.people import Resident

_WISHES: Final = ("talk", "note", "work", "pay", "ask")
_REQUEST: Final = "<request xmlns='urn:xmpp:receipts'/>"
_CORRECTS: Final = "<replace xmlns='urn:xmpp:message-correct:0' id='{id}'/>"
_RETRACTS: Final = "<retract xmlns='urn:xmpp:message-retract:1' id='{id}'/>"
_WAITS_S: Final = 30.0
"""Seconds after which a client sends a revision again that nobody has received."""
_ATTEMPTS: Final = 6


class Revise(Action, frozen=True, kw_only=True):
    """A person writes to the agent, and revises the message.

    Attributes:
        wishes: what the versions of the message ask for; None retracts it.
        after: seconds until each revision.
        before: messages that wait in front of it.
        behind: messages between it and its revision.
        names_last: revisions name the one before, as some clients do, and not the first version.
    """

    who: str
    wishes: tuple[str | None, ...]
    after: tuple[float, ...]
    before: int
    behind: int
    names_last: bool
    reaction: Reaction


def _revise(chance: Random, at: float, number: int) -> Revise:
    revisions = chance.choice((1, 1, 1, 2))
    wishes = [chance.choice((*_WISHES, None)) for _ in range(revisions)]
    if None in wishes:
        wishes = wishes[: wishes.index(None) + 1]
    pauses = (0.0, 0.01, 0.3, 0.3, 3.0, 20.0, 600.0)
    return Revise(
        at=at,
        number=number,
        who=chance.choice(PEOPLE),
        wishes=(chance.choice(_WISHES), *wishes),
        after=tuple(chance.choice(pauses) * chance.random() for _ in wishes),
        before=chance.choice((0, 0, 1, 2)),
        behind=chance.choice((0, 0, 0, 1)),
        names_last=chance.random() < 0.3,
        reaction=chance.choice(REACTIONS),
    )


class Revisions(Area):
    """People who correct and retract messages."""

    draws: ClassVar = {_revise: 8}
    actions = (Revise,)
    rules = (Revised, RevisedReplies, OneAnswer)

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self._receipts: dict[str, anyio.Event] = {}
        world.history.observers.append(self._look)

    async def perform(self, action: Any) -> None:
        """Write a message, and revise it."""
        assert isinstance(action, Revise)
        name, who = f"c{action.number}", self.world.residents[action.who]
        self.world.reactions[name] = action.reaction
        for number in range(action.before):
            await self._say(who, f"{name}.p{number}", "talk")
        id_ = f"{who.jid.local}-{name}"
        await self._say(who, f"{name}.v0", action.wishes[0] or "talk")
        for number in range(action.behind):
            await self._say(who, f"{name}.q{number}", "talk")
        for version, (wish, after) in enumerate(
            zip(action.wishes[1:], action.after, strict=True), start=1
        ):
            await anyio.sleep(after)
            await self._revise(who, f"{name}.v{version}", wish, id_)
            if action.names_last:
                id_ = f"{who.jid.local}-{name}-revision-{version}"

    async def _say(self, who: Resident, label: str, wish: str) -> None:
        text = _text(who, label, wish)
        who.wants(text)
        id_ = f"{who.jid.local}-{label.removesuffix('.v0')}"
        await who.say(text, id_, _REQUEST)

    async def _revise(self, who: Resident, label: str, wish: str | None, named: str) -> None:
        """Revise a message; send that again while nobody has received it."""
        name, _, version = label.partition(".v")
        id_ = f"{who.jid.local}-{name}-revision-{version}"
        if wish is None:
            text, inside = "This person has retracted a message.", _RETRACTS.format(id=named)
        else:
            text, inside = _text(who, label, wish), _CORRECTS.format(id=named)
        who.wants(f"to revise {name}: {text}")
        for _ in range(_ATTEMPTS):
            await who.say(text, id_, inside + _REQUEST)
            with anyio.move_on_after(_WAITS_S):
                await self._receipts.setdefault(id_, anyio.Event()).wait()
                return

    def _look(self, entry: Entry) -> None:
        """Note the receipts of revisions."""
        if isinstance(entry, Stanza) and entry.way == "received" and RECEIVED[1:18] in entry.xml:
            received = ET.fromstring(entry.xml).find(RECEIVED)
            id_ = "" if received is None else received.get("id", "")
            self._receipts.setdefault(id_, anyio.Event()).set()


def _text(who: Resident, label: str, wish: str) -> str:
    mark = label.removeprefix("c").replace(".v", "-")
    return f"{label} {wish}, please. My secret is secret-{who.jid.local}-{mark}."
