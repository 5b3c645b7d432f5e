"""Life in rooms: people and a program who talk there, and what happens to rooms and occupants.

What is said in a room has labels with an `r`, and what is said to the agent in a private message of
a room has labels with a `w`.
"""

from random import Random
from typing import Any, ClassVar, Final, Literal

import anyio

from component.kernel.rooms.membership import Membership
from tests.kit.rooms import Room
from tests.simulation.area import Area
from tests.simulation.areas.room_rules import (
    Addressed,
    Answered,
    Present,
    Private,
    Turns,
    Whispers,
)
from tests.simulation.life import PEOPLE, REACTIONS, Action, Reaction
from tests.simulation.people import Account
from tests.simulation.room_service import COUNCIL, LOBBY, Ending, RoomService
from xep import muc
from xep.binding.escaping import escape_attribute
from xep.jid import JID

NICK: Final = "Bot"
PARROT: Final = "parrot"
_PROGRAM: Final = "urn:fluux:agent:0"
_CHECK_S: Final = 3 * 3600.0
"""Seconds between two pings by which the agent makes sure that it is in a room."""
_EVERY: Final = Membership.__dict__["_check_s"]
_BACK_S: Final = 3600.0

How = Literal["name", "mention", "reply", "aside", "other", "quote"]
"""How somebody speaks in a room: to the agent in three ways, to all, to another one, or quoting."""


class RoomTalk(Action, frozen=True, kw_only=True):
    """Somebody speaks in a room, some times in a row."""

    who: str
    room: str
    how: How
    wish: str
    times: int = 1
    reaction: Reaction = "approve"


class RoomWhisper(Action, frozen=True, kw_only=True):
    """A person writes a private message to the agent in a room."""

    who: str
    room: str
    wish: str


class RoomStop(Action, frozen=True, kw_only=True):
    """A person says stop."""

    who: str
    room: str
    text: str


class RoomMove(Action, frozen=True, kw_only=True):
    """A person enters or leaves a room, or has another nickname there."""

    who: str
    room: str
    how: Literal["enter", "leave", "rename"]


class RoomParrot(Action, frozen=True, kw_only=True):
    """A program asks the agent, and answers each of its answers, for some time."""

    seconds: float


class RoomKick(Action, frozen=True, kw_only=True):
    """A moderator, or the server, removes the agent, and lets it in again; meanwhile somebody may
    take its nickname.
    """

    room: str
    code: int
    seconds: float
    impostor: str = ""


class RoomMute(Action, frozen=True, kw_only=True):
    """The agent has no voice for some time."""

    room: str
    seconds: float


class RoomsAway(Action, frozen=True, kw_only=True):
    """The service of the rooms is away for some time."""

    how: Ending
    seconds: float


def _room(chance: Random) -> str:
    return chance.choice((LOBBY, COUNCIL))


def _talk(chance: Random, at: float, number: int) -> RoomTalk:
    return RoomTalk(
        at=at,
        number=number,
        who=chance.choice(PEOPLE),
        room=_room(chance),
        how=chance.choice(("name", "name", "mention", "reply", "aside", "other", "quote")),
        wish=chance.choice(("talk", "talk", "note", "work", "pay", "lie", "grant")),
        times=chance.choice((1, 1, 1, 1, 2, 7)),
        reaction=chance.choice(REACTIONS),
    )


def _whisper(chance: Random, at: float, number: int) -> RoomWhisper:
    wish = chance.choice(("talk", "talk", "note"))
    return RoomWhisper(
        at=at, number=number, who=chance.choice(PEOPLE), room=_room(chance), wish=wish
    )


def _stop(chance: Random, at: float, number: int) -> RoomStop:
    text = chance.choice(("stop", "Stop!", f"{NICK}: stop", f"@{NICK} /stop"))
    return RoomStop(at=at, number=number, who=chance.choice(PEOPLE), room=_room(chance), text=text)


def _move(chance: Random, at: float, number: int) -> RoomMove:
    how: Literal["enter", "leave", "rename"] = chance.choice(("enter", "leave", "rename"))
    return RoomMove(at=at, number=number, who=chance.choice(PEOPLE), room=_room(chance), how=how)


def _parrot(chance: Random, at: float, number: int) -> RoomParrot:
    return RoomParrot(at=at, number=number, seconds=chance.choice((1.0, 60.0, 600.0)))


def _kick(chance: Random, at: float, number: int) -> RoomKick:
    return RoomKick(
        at=at,
        number=number,
        room=_room(chance),
        code=chance.choice((muc.KICKED, muc.KICKED, muc.TECHNICAL)),
        seconds=chance.choice((1.0, 60.0, 7200.0)) * chance.random(),
        impostor=chance.choice(("", "", *PEOPLE)),
    )


def _mute(chance: Random, at: float, number: int) -> RoomMute:
    seconds = chance.choice((1.0, 60.0, 3600.0)) * chance.random()
    return RoomMute(at=at, number=number, room=_room(chance), seconds=seconds)


def _rooms_away(chance: Random, at: float, number: int) -> RoomsAway:
    how: Ending = chance.choice(("shutdown", "crash", "unreachable"))
    seconds = chance.choice((1.0, 60.0, 3600.0)) * chance.random()
    return RoomsAway(at=at, number=number, how=how, seconds=seconds)


class Rooms(Area):
    """Life in rooms: in the lobby accounts are hidden, and in the council they are shown."""

    draws: ClassVar = {
        _talk: 8,
        _whisper: 1,
        _stop: 1,
        _move: 1,
        _parrot: 1,
        _kick: 1,
        _mute: 1,
        _rooms_away: 1,
    }
    actions = (
        *(RoomTalk, RoomWhisper, RoomStop, RoomMove),
        *(RoomParrot, RoomKick, RoomMute, RoomsAway),
    )
    rules = (Answered, Addressed, Whispers, Present, Private, Turns)
    settings: ClassVar = {
        "rooms": [
            {"jid": LOBBY, "nick": NICK, "agents": True},
            {"jid": COUNCIL, "nick": NICK},
        ]
    }
    service: RoomService

    async def begin(self) -> None:
        """Make the rooms."""
        world = self.world
        server = world.chance.choice(("prosody", "ejabberd"))
        self.service = RoomService(world.xmpp, world.history, world.kit.agent, server=server)
        self.service.create("lobby")
        council = self.service.create("council")
        council.shows_accounts = True
        # Nobody looks at an idle room for hours; a ping every five minutes would cost most of all.
        setattr(Membership, "_check_s", _CHECK_S)  # noqa: B010
        self._parrot = Account(
            world.xmpp, JID.parse(f"{PARROT}@capulet.example/x"), world.kit.agent, world.history
        )
        self._parrot._features = (_PROGRAM,)
        self._parrot_until = 0.0
        self._squawks = 0
        self._parrot.heard = self._parrot_heard

    def end(self) -> None:
        setattr(Membership, "_check_s", _EVERY)  # noqa: B010

    def room(self, address: str) -> Room:
        """Return a room by its address."""
        return self.service.rooms[JID.parse(address)]

    async def perform(self, action: Any) -> None:
        """Let somebody do something in a room, or something happen to a room."""
        match action:
            case RoomTalk():
                await self._talk(action)
            case RoomWhisper(who=who, room=address, wish=wish, number=number):
                account = await self.into(address, who)
                if account is not None:
                    text = f"w{number} {wish}, please. It is hush-{who}-{number}."
                    self.world.residents[who].wants(f"{text} (privately in {address})")
                    await self.room(address).whisper(account, self.nick(address), text)
            case RoomStop(who=who, room=address, text=text):
                account = await self.into(address, who)
                if account is not None:
                    await self.room(address).say(account, text)
            case RoomMove():
                await self._move(action)
            case RoomParrot():
                await self._squawk(action)
            case RoomKick():
                await self._kick(action)
            case RoomMute(room=address, seconds=seconds):
                await self._mute(address, seconds)
            case RoomsAway(how=how, seconds=seconds):
                if self.service.is_up:
                    self.service.go(how)
                    await anyio.sleep(seconds)
                    self.service.come()

    # People.

    async def into(self, address: str, who: str) -> Account | None:
        """Return the client of a person who is in a room; None if that is impossible now."""
        account = self.world.residents[who].account
        if account is None or not self.service.is_up:
            return None
        await self._enter(address, account, who.title())
        return account if self.room(address).of(account.jid) is not None else None

    async def _enter(self, address: str, account: Account, nick: str) -> None:
        if self.room(address).of(account.jid) is None:
            to = escape_attribute(f"{address}/{nick}")
            join = "<x xmlns='http://jabber.org/protocol/muc'><history maxstanzas='0'/></x>"
            await account.send(f"<presence to='{to}'>{join}</presence>")

    def _own(self, address: str) -> str:
        """Return the nickname that the agent has; empty if it is not there."""
        occupants = self.room(address).occupants.items()
        domain = self.world.kit.agent
        return next((nick for nick, one in occupants if one.jid.domain == domain), "")

    def nick(self, address: str) -> str:
        """Return the nickname by which people write to the agent."""
        return self._own(address) or NICK

    async def _talk(self, action: RoomTalk) -> None:
        for again in range(action.times):
            account = await self.into(action.room, action.who)
            if account is None:
                return
            label = f"r{action.number}" + (f".{again}" if again else "")
            self.world.reactions[f"r{action.number}"] = action.reaction
            self.world.residents[action.who].wants(f"{label} {action.wish} ({action.how})")
            await self._say(account, action.room, label, action.how, action.wish)
            await anyio.sleep(2 * self.world.chance.random())

    async def _say(self, account: Account, address: str, label: str, how: How, wish: str) -> None:
        room, nick = self.room(address), self.nick(address)
        text, inside = f"{label} {wish}, please. said-{room.jid.local}-{label[1:]}", ""
        match how:
            case "name":
                text = f"{nick}: {text}"
            case "mention":
                uri = escape_attribute(f"xmpp:{address}/{nick}")
                inside = f"<reference xmlns='urn:xmpp:reference:0' type='mention' uri='{uri}'/>"
            case "reply":
                to = escape_attribute(f"{address}/{nick}")
                inside = f"<reply xmlns='urn:xmpp:reply:0' id='s1' to='{to}'/>"
            case "aside":
                text = f"{label} is nice, is it not? said-{room.jid.local}-{label[1:]}"
            case "other":
                text = f"Nurse: {text}"
            case "quote":
                text = f"> {nick}: {text}\nWell said."
        await room.say(account, text, inside, id_=f"{account.jid.local}-{label}")

    async def _move(self, action: RoomMove) -> None:
        account = await self.into(action.room, action.who)
        if account is None:
            return
        room = self.room(action.room)
        if action.how == "leave":
            await room.leave(account)
        elif action.how == "rename":
            to = escape_attribute(f"{action.room}/{action.who.title()} the {action.number}th")
            await account.send(f"<presence to='{to}'/>")

    # A program.

    async def _squawk(self, action: RoomParrot) -> None:
        self._parrot_until = self.world.history.now() + action.seconds
        for _ in range(3):
            await self._parrot_says(f"r{action.number}")
            await anyio.sleep(1)

    async def _parrot_says(self, label: str) -> None:
        if not self.service.is_up:
            return
        await self._enter(LOBBY, self._parrot, "Parrot")
        if self.room(LOBBY).of(self._parrot.jid) is not None:
            self._squawks += 1
            label = f"{label}.p{self._squawks}"
            await self._say(self._parrot, LOBBY, label, "name", "talk")

    def _parrot_heard(self, message: Any) -> None:
        nick = (message.get("from") or "").partition("/")[2]
        is_answer = message.get("type") == "groupchat" and nick == self._own(LOBBY)
        if is_answer and self.world.history.now() < self._parrot_until:
            self.world.group.start_soon(self._parrot_says, "r0")

    # What happens to the agent.

    async def _kick(self, action: RoomKick) -> None:
        own = self._own(action.room)
        if not own or not self.service.is_up:
            return
        self.room(action.room).remove(own, action.code)
        impostor = self.world.residents[action.impostor] if action.impostor else None
        account = None if impostor is None else impostor.account
        if account is not None and self.room(action.room).of(account.jid) is None:
            await self._enter(action.room, account, NICK)
        await anyio.sleep(action.seconds)
        if account is not None and self.service.is_up:
            occupant = self.room(action.room).of(account.jid)
            is_there = impostor is not None and impostor.account is account
            if is_there and occupant is not None and occupant.nick == NICK:
                await self.room(action.room).leave(account)
        await self._let_in(action.room)

    async def _let_in(self, address: str) -> None:
        """Invite the agent through the room (XEP-0045 §7.8.2) until it is there."""
        while not self._own(address):
            self.service.say(
                f"<message from='{address}' to='assistant@{self.world.kit.agent}'>"
                f"<x xmlns='{muc.USER}'><invite from='nurse@capulet.example'/></x></message>"
            )
            await anyio.sleep(_BACK_S)

    async def _mute(self, address: str, seconds: float) -> None:
        room = self.room(address)
        if self.service.is_up and (own := self._own(address)):
            room.set_role(own, "visitor")
            await anyio.sleep(seconds)
            self._unmute(address)

    def _unmute(self, address: str) -> None:
        room, own = self.room(address), self._own(address)
        if self.service.is_up and own and room.occupants[own].role == "visitor":
            room.set_role(own, "participant")

    def heal(self) -> None:
        """End all faults."""
        self.service.come()
        for address in (LOBBY, COUNCIL):
            self._unmute(address)
            self.world.group.start_soon(self._let_in, address)
