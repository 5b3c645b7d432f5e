"""People who block the agent at their server, and end the subscription to its presence."""

from random import Random
from typing import Any, ClassVar, Final, Literal

import anyio

from tests.kit.blocking import Cause
from tests.simulation.area import Area
from tests.simulation.areas.block_rules import (
    BLOCK,
    PING,
    UNBLOCK,
    Presences,
    Reached,
    Repetitions,
)
from tests.simulation.history import KeptOut
from tests.simulation.life import PEOPLE, Action
from tests.simulation.people import Resident
from tests.simulation.task_rules import NOT_SEE, SEE

_FOR_GOOD: Final = ("romeo", "tybalt")
"""Who may block the agent for the rest of a life; others are needed at its end."""


class Shut(Action, frozen=True, kw_only=True):
    """A person blocks the agent for some time, None for the rest of the life; then they, and
    meanwhile somebody else, ask whether it is there.
    """

    who: str
    seconds: float | None
    other: str


class Contact(Action, frozen=True, kw_only=True):
    """A person subscribes to the presence of the agent, or ends that."""

    who: str
    how: Literal["subscribe", "unsubscribe"]


def _shut(chance: Random, at: float, number: int) -> Shut:
    who = chance.choice(PEOPLE)
    other = chance.choice([one for one in PEOPLE if one != who])
    seconds = chance.choice((1.0, 30.0, 600.0, 2 * 3600.0, 40 * 3600.0)) * chance.random()
    for_good = who in _FOR_GOOD and chance.random() < 0.05
    return Shut(at=at, number=number, who=who, seconds=None if for_good else seconds, other=other)


def _contact(chance: Random, at: float, number: int) -> Contact:
    how: Literal["subscribe", "unsubscribe"]
    how = chance.choice(("subscribe", "subscribe", "unsubscribe"))
    return Contact(at=at, number=number, who=chance.choice(PEOPLE), how=how)


class Blocks(Area):
    """People who block the agent."""

    draws: ClassVar = {_shut: 2, _contact: 2}
    actions = (Shut, Contact)
    rules = (Reached, Repetitions, Presences)

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self._shut: dict[str, int] = {}
        """How many actions let each person block the agent now."""
        self._for_good: set[str] = set()

    async def begin(self) -> None:
        """Record what servers keep out."""
        history = self.world.history

        def note(account: Any, xml: str, cause: Cause) -> None:
            history.add(KeptOut(history.now(), str(account), xml, cause))

        self.world.xmpp.kept_out = note

    async def perform(self, action: Any) -> None:
        """Let a person block the agent, or see whether it is there."""
        who = self.world.residents[action.who]
        if isinstance(action, Contact):
            await self._contact(who, action)
            return
        assert isinstance(action, Shut)
        self._shut[action.who] = self._shut.get(action.who, 0) + 1
        await self._change(who, "block")
        await self._ping(action.other)
        if action.seconds is None:
            self._for_good.add(action.who)
        else:
            await anyio.sleep(action.seconds)
            await self._open(action.who)

    async def _open(self, name: str) -> None:
        """End a block, unless another one goes on."""
        self._shut[name] = max(0, self._shut[name] - 1)
        if not self._shut[name]:
            await self._change(self.world.residents[name], "unblock")
            await anyio.sleep(1.0)
            await self._ping(name)

    def heal(self) -> None:
        """End all blocks that are not for good."""
        for name in [one for one in self._shut if one not in self._for_good]:
            if self._shut[name]:
                self._shut[name] = 1
                self.world.group.start_soon(self._open, name)

    async def _change(self, who: Resident, what: str) -> None:
        account, agent, history = await who.present(), self.world.kit.agent, self.world.history
        who.wants(BLOCK if what == "block" else UNBLOCK)
        # For everybody else it is as if they were away.
        history.fault("away" if what == "block" else "back", str(who.jid.bare))
        item = f"<item jid='{agent}'/>"
        xml = f"<{what} xmlns='urn:xmpp:blocking'>{item}</{what}>"
        await account.ask("set", xml, f"{what}-{history.now():.3f}", str(who.jid.bare))

    async def _ping(self, name: str) -> None:
        who = self.world.residents[name]
        if who.account is not None and not self._shut.get(name):
            await who.say(PING, f"{name}-ping-{self.world.history.now():.3f}")

    async def _contact(self, who: Resident, action: Contact) -> None:
        account = await who.present()
        if self._shut.get(action.who):
            return
        who.wants(SEE if action.how == "subscribe" else NOT_SEE)
        await account.send(f"<presence to='{self.world.kit.agent}' type='{action.how}'/>")
