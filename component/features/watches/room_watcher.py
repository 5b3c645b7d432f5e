"""Observes who is in a room (XEP-0045): joins it, stays in it, and records who comes and goes.

Only the room knows its occupants. After each join they are compared with those that were recorded
last. So an agent that was away detects who has come or gone in the meantime, but not who has done
both. `Room` is a state machine without I/O: it is given the presence that the room sends.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import Final, Literal, TypeAlias

import anyio
import msgspec

from component.features.watches.events import OfferedEvent
from component.features.watches.rows import SourceRows, item_key
from component.features.watches.sources import Result, SourcePorts, SourceWatcher, is_set_within
from component.features.watches.watch import Observed, Source, Watch
from component.link.messages.signals import Show
from component.pubsub.client import IQCall
from xep import muc
from xep.binding.escaping import escape_attribute, escape_text
from xep.disco import InfoQuery
from xep.jid import JID
from xep.ping import Ping
from xep.stanza import Presence
from xep.stanza_error import StanzaError

What: TypeAlias = Literal["joined", "changed", "renamed", "left"]
"""What an occupant has done."""
Return: TypeAlias = Literal["soon", "later", "next session"]
"""When the agent joins a room again that it is not in."""

LEFT: Final = "left"
"""The version of an occupant who is not in the room."""

_REFUSALS: Final = {
    "conflict": "another occupant has the nickname {nick}: give the watch another one",
    "forbidden": "the agent is banned from the room",
    "item-not-found": "there is no such room, or it is locked",
    "jid-malformed": "the room does not accept the nickname {nick}",
    "not-acceptable": "the nickname {nick} must not be used there",
    "not-allowed": "the agent may not create the room",
    "not-authorized": "the room has a password",
    "registration-required": "only members may join: make the agent one",
    "service-unavailable": "the room is full or is not available",
}


class RoomOccupant(msgspec.Struct, frozen=True, kw_only=True):
    """An occupant. `jid` is the bare real JID, empty where the room does not show it."""

    nick: str
    jid: str = ""
    affiliation: str = "none"
    role: str = "none"
    show: Show = "online"
    status: str = ""
    previous: str = ""

    @property
    def version(self) -> str:
        """A digest of everything but the text of the status."""
        parts = (self.nick, self.jid, self.affiliation, self.role, self.show)
        return sha256("\n".join(parts).encode()).hexdigest()[:32]


class RoomPresence(msgspec.Struct, frozen=True, kw_only=True):
    """A presence that a room has sent. `nick` is the nickname of the occupant whose it is; empty
    for that of the room itself. `error` says why the agent could not join.
    """

    nick: str
    user: muc.User = muc.User()
    show: Show = "online"
    status: str = ""
    error: StanzaError | None = None


class Moved(msgspec.Struct, frozen=True):
    """An occupant has entered, changed or left."""

    what: What
    occupant: RoomOccupant


class Joined(msgspec.Struct, frozen=True):
    """The agent is in the room with these occupants. `created` says that the room is new."""

    occupants: tuple[RoomOccupant, ...]
    created: bool = False


class Out(msgspec.Struct, frozen=True):
    """The agent is not in the room: why, as part of a sentence, and when it joins again."""

    reason: str
    again: Return
    refused: bool = False


Change: TypeAlias = Moved | Joined | Out


class Room:
    """What the agent sees of a room. `nick` is the nickname of the agent. `occupants` are the other
    occupants by nickname.
    """

    def __init__(self) -> None:
        self.nick = ""
        self.is_in = False
        self.occupants: dict[str, RoomOccupant] = {}
        self._renamed: dict[str, str] = {}

    def join(self, nick: str) -> None:
        """Start joining under a nickname, and forget the previous state."""
        self.nick, self.is_in = nick, False
        self.occupants.clear()
        self._renamed.clear()

    def take(self, presence: RoomPresence) -> Sequence[Change]:
        """Process a presence, and return the resulting changes, in order."""
        if presence.error is not None:
            return () if self.is_in else (_refusal(presence.error, self.nick),)
        codes = presence.user.codes
        if muc.SELF in codes or (presence.nick == self.nick and self.is_in):
            return self._own(presence, codes)
        if presence.show == "offline":
            return self._gone(presence, codes)
        occupant = _occupant(presence, self._renamed.pop(presence.nick, ""))
        before = self.occupants.get(presence.nick)
        self.occupants[presence.nick] = occupant
        if not self.is_in:  # one of those who are there when the agent joins
            return ()
        if before is None:
            return (Moved("renamed" if occupant.previous else "joined", occupant),)
        return (Moved("changed", occupant),) if occupant.version != before.version else ()

    def _own(self, presence: RoomPresence, codes: frozenset[int]) -> Sequence[Change]:
        if presence.show != "offline":
            self.nick = presence.nick  # the room may have chosen another one (status 210)
            self.occupants.pop(presence.nick, None)
            if self.is_in:
                return ()
            self.is_in = True
            return (Joined(tuple(self.occupants.values()), muc.CREATED in codes),)
        if muc.RENAMED in codes:
            self.nick = next((each.nick for each in presence.user.items if each.nick), self.nick)
            return ()
        self.is_in = False
        self.occupants.clear()
        return (_removal(presence.user, codes),)

    def _gone(self, presence: RoomPresence, codes: frozenset[int]) -> Sequence[Change]:
        before = self.occupants.pop(presence.nick, None)
        if muc.RENAMED in codes:
            for item in presence.user.items:
                if item.nick:
                    self._renamed[item.nick] = presence.nick
            return ()
        if not self.is_in:
            return ()
        found = before or _occupant(presence, "")
        return (Moved("left", msgspec.structs.replace(found, show="offline")),)


def observed(what: What, occupant: RoomOccupant, room: str) -> Observed:
    """Return an event of a room as a watch handles it: its item is the nickname."""
    members = {"event": what, **msgspec.structs.asdict(occupant)}
    shown = {name: value for name, value in members.items() if value and name != "status"}
    attributes = "".join(f" {name}='{escape_attribute(value)}'" for name, value in shown.items())
    return Observed(
        item=occupant.nick,
        version=LEFT if what == "left" else occupant.version,
        payload=(
            f"<presence xmlns='jabber:client' from='{escape_attribute(room)}'{attributes}>"
            f"{escape_text(occupant.status)}</presence>"
        ),
        publisher=occupant.jid,
        json=msgspec.Raw(msgspec.json.encode(members)),
    )


def _occupant(presence: RoomPresence, previous: str) -> RoomOccupant:
    item = presence.user.items[0] if presence.user.items else muc.Item()
    return RoomOccupant(
        nick=presence.nick,
        jid="" if item.jid is None else str(item.jid.bare),
        affiliation=item.affiliation or "none",
        role=item.role or "none",
        show=presence.show,
        status=presence.status,
        previous=previous,
    )


def _refusal(error: StanzaError, nick: str) -> Out:
    known = _REFUSALS.get(error.condition, f"the room refused it ({error.condition})")
    reason = known.format(nick=nick)
    if error.text:
        reason = f"{reason} ({error.text})"
    is_over_soon = error.condition in ("remote-server-timeout", "remote-server-not-found")
    return Out(reason, "soon" if is_over_soon else "later", refused=not is_over_soon)


def _removal(user: muc.User, codes: frozenset[int]) -> Out:
    """Return why the room has removed the agent (XEP-0045 §8.2, §9.1, §9.4, §10.9)."""
    item = user.items[0] if user.items else muc.Item()
    by, said = "", ""
    if item.actor is not None:
        by = f" by {item.actor.nick or item.actor.jid or 'a moderator'}"
    if item.reason:
        said = f": {item.reason}"
    if user.destroy is not None:
        instead = f"; it is replaced by {user.destroy.jid}" if user.destroy.jid else ""
        why = f": {user.destroy.reason}" if user.destroy.reason else ""
        return Out(f"the room was destroyed{why}{instead}", "later")
    if muc.BANNED in codes:
        return Out(f"the agent was banned{by}{said}", "next session", refused=True)
    if muc.TECHNICAL in codes:
        return Out("the server removed the agent because of an error", "soon")
    if muc.KICKED in codes:
        return Out(f"the agent was kicked{by}{said}", "next session", refused=True)
    if codes & {muc.AFFILIATION_LOST, muc.MEMBERS_ONLY}:
        return Out("only members may be in the room, and the agent is none", "later", refused=True)
    if muc.SHUTDOWN in codes:
        return Out("the service of the room is shut down", "soon")
    return Out("the agent has left the room", "soon")


JOIN_S: Final = 30.0
"""Seconds in which a room has to answer."""
_BATCH: Final = 500
_IN_THE_ROOM: Final = frozenset(("service-unavailable", "feature-not-implemented"))
_UNKNOWN: Final = frozenset(("remote-server-timeout", "remote-server-not-found"))
"""Answers to a ping to oneself (XEP-0410 §3.3): the agent is still there, or nobody can tell."""


class RoomClient:
    """Enters rooms, and checks whether an agent is still in them. `occupant` is the address by
    which one of our addresses enters rooms. It is a full JID, as XEP-0045 §7.2 demands, where we
    choose our resources ourselves. `has_others` says whether another instance serves the same
    addresses.
    """

    def __init__(
        self,
        call: IQCall,
        send: Callable[[Presence], object],
        occupant: Callable[[JID], JID],
        has_others: Callable[[], bool],
    ) -> None:
        self._call = call
        self._send = send
        self._occupant = occupant
        self._has_others = has_others

    async def find(self, source: Source) -> None:
        """Check that there is such a room. Raises StanzaError. Entering a room that does not exist
        creates it, which the agent must not do.
        """
        info = await self._call(
            "get", source.service, InfoQuery(), InfoQuery, from_=self._occupant(source.subscriber)
        )
        if info is None or all(feature.var != muc.NAMESPACE for feature in info.features):
            raise StanzaError("feature-not-implemented", "the address is not that of a room")

    def join(self, source: Source, nick: str) -> None:
        """Ask to enter the room, without its history (XEP-0045 §7.2.14)."""
        from_, to = self._occupant(source.subscriber), source.service.with_resource(nick)
        join = muc.Join(history=muc.History(max_stanzas=0))
        self._send(Presence(from_=from_, to=to, payloads=(join,)))

    def leave(self, source: Source, nick: str) -> None:
        """Leave the room (XEP-0045 §7.14)."""
        from_, to = self._occupant(source.subscriber), source.service.with_resource(nick)
        self._send(Presence(type="unavailable", from_=from_, to=to))

    async def ping(self, source: Source, nick: str) -> None:
        """Ping oneself through the room (XEP-0410 §3.2). Raises StanzaError."""
        at = source.service.with_resource(nick)
        await self._call("get", at, Ping(), Ping, from_=self._occupant(source.subscriber))

    async def is_elsewhere(self, source: Source, nick: str) -> bool:
        """Return whether another instance is in the room: all are the same occupant, and the server
        sends what comes from one room to one of them.
        """
        if not self._has_others():
            return False
        try:
            await self.ping(source, nick)
        except StanzaError as error:
            return error.condition in _IN_THE_ROOM
        return True


class RoomWatcher(SourceWatcher[Moved | Joined]):
    """Observes the occupants of a room."""

    _after_overflow = "due"

    def __init__(self, source: Source, ports: SourcePorts, client: RoomClient) -> None:
        super().__init__(source, ports)
        self._client = client
        self._room = Room()
        self._nick = ""
        self._stays_out = False

    def set_watches(self, watches: Mapping[str, Watch]) -> None:
        """Offer events to these watches from now on. Raises FilterError. All watches of a room
        share one occupant, with the nickname of the first of them by id.
        """
        super().set_watches(watches)
        named = [watch.nick for _, watch in sorted(watches.items()) if watch.nick]
        nick = named[0] if named else next((one.agent for one in watches.values()), "")
        if len(set(named)) > 1:
            self._log.warning("watches of one room name several nicknames; one is used", nick=nick)
        is_new, self._nick = nick != self._nick, nick
        if is_new and self._room.nick:
            self._advance("due")

    def connected(self) -> None:
        """Enter the room in a new session. Never waits."""
        self._stays_out, self._said = False, ""
        super().connected()

    def received(self, presence: RoomPresence) -> None:
        """Handle a presence that the room has sent. Never waits."""
        if self._subscription.state == "offline":
            return
        for change in self._room.take(presence):
            self._take(change)

    def leave(self) -> None:
        """Leave the room, because the service stops. Never waits."""
        if self._room.is_in:
            self._client.leave(self.source, self._room.nick)
        self._room.join("")
        self._advance("disconnected")

    async def _step(self) -> None:
        state = self._subscription.state
        if self._waiting and state != "offline":
            await self._record_waiting()
        elif state == "subscribing":
            await self._join()
        elif await is_set_within(self._wake, self._delay_s):
            return
        elif not await self._is_still_in():
            self._advance("due")

    @property
    def _delay_s(self) -> float | None:
        return None if self._stays_out else self._subscription.delay_s

    async def unsubscribe(self) -> None:
        """Leave the room, because no watch needs it any more."""
        self.leave()

    def _take(self, change: Change) -> None:
        if isinstance(change, Out):
            self._out(change)
            return
        if isinstance(change, Joined):
            if change.created:  # it was destroyed since it was looked for
                self._client.leave(self.source, self._room.nick)
                self._room.join("")
                self._out(Out("there is no such room", "later"))
                return
            self._waiting.clear()
            self._log.info("joined a room", nick=self._room.nick, occupants=len(change.occupants))
            self._advance("joined")
        self._put(change)

    def _out(self, out: Out) -> None:
        self._reason = out.reason
        self._stays_out = out.again == "next session"
        self._warn_once("not in a room")
        result: Result = "failed" if out.again == "soon" else "missing"
        self._advance("refused" if out.refused else result)

    async def _join(self) -> None:
        try:
            await self._client.find(self.source)
        except StanzaError as error:
            if self._subscription.state == "subscribing":
                is_missing = error.condition in ("item-not-found", "gone")
                text = "there is no such room" if is_missing else error.text or error.condition
                self._out(Out(text, "later" if is_missing else "soon"))
            return
        if self._subscription.state != "subscribing":
            return
        self._room.join(self._nick)
        self._wake = anyio.Event()
        self._client.join(self.source, self._nick)
        if not await is_set_within(self._wake, JOIN_S):
            is_elsewhere = await self._client.is_elsewhere(self.source, self._nick)
            self._unanswered(is_elsewhere=is_elsewhere)

    def _unanswered(self, *, is_elsewhere: bool) -> None:
        """Note that the room has not answered to this instance."""
        if self._subscription.state != "subscribing":
            return
        if is_elsewhere:
            self._reason = "another instance of this service is in the room"
            self._advance("elsewhere")
        else:
            self._out(Out("the room does not answer", "soon"))

    async def _is_still_in(self) -> bool:
        """Return whether this or another instance is in the room, as far as anybody knows."""
        if self._subscription.state == "elsewhere":
            return await self._client.is_elsewhere(self.source, self._nick)
        if self._subscription.state != "live":
            return False
        try:
            await self._client.ping(self.source, self._room.nick)
        except StanzaError as error:
            if error.condition not in _IN_THE_ROOM | _UNKNOWN:
                self._log.info("the agent is not in a room any more; joining again")
                return self._subscription.state != "live"
        return True

    async def _record_waiting(self) -> None:
        first = self._waiting.popleft()
        if isinstance(first, Joined):
            await self._record(partial(self._compared, first.occupants))
            return
        offered = self._offered(first)
        while self._waiting and len(offered) < _BATCH and isinstance(self._waiting[0], Moved):
            offered += self._offered(self._waiting.popleft())
        await self._record(offered)

    def _compared(
        self, occupants: Sequence[RoomOccupant], rows: SourceRows
    ) -> Sequence[OfferedEvent] | None:
        """Return the events by which those who are there now differ from those who were recorded
        last. None, if nothing was recorded before: then it is recorded who is there.
        """
        if not rows.is_known():
            room = str(self.source.service)
            rows.mark_known([observed("joined", each, room) for each in occupants])
            return None
        before = rows.versions()
        there = {item_key(each.nick): each for each in occupants}
        gone = [nick for nick, was in before.items() if was != LEFT and nick not in there]
        moves = [Moved("left", RoomOccupant(nick=nick, show="offline")) for nick in gone]
        for nick, each in there.items():
            was_away = before.get(nick, LEFT) == LEFT
            moves.append(Moved("joined" if was_away else "changed", each))
        rows.prune([*there, *gone])
        return [self._offer(move) for move in moves]

    def _offer(self, move: Moved) -> OfferedEvent:
        return self._interests.offer(observed(move.what, move.occupant, str(self.source.service)))

    def _offered(self, move: Moved | Joined) -> list[OfferedEvent]:
        """Return the event of a move, after the mark that the previous nickname of the occupant is
        not in use any more, which is not an event.
        """
        assert isinstance(move, Moved)
        if not move.occupant.previous:
            return [self._offer(move)]
        left = RoomOccupant(nick=move.occupant.previous)
        mark = OfferedEvent(observed("left", left, str(self.source.service)), (), b"")
        return [mark, self._offer(move)]
