"""The membership of one agent in one room: joins it, stays in it, and joins it again.

An agent is in a room once, whatever it does there: watches observe the same occupants whom a
conversation talks with. Each user of a membership has a `Stay` in it; the agent leaves the room
with the last one.
"""

from collections.abc import Callable
from typing import Final, Literal, TypeAlias

import anyio
import msgspec
import structlog

from component.kernel.rooms.occupants import (
    Change,
    Joined,
    Out,
    RoomOccupant,
    RoomPresence,
    RoomView,
)
from component.pubsub.client import IQCall
from xep import muc
from xep.binding import Payload
from xep.disco import InfoQuery
from xep.jid import JID
from xep.occupant_ids import NAMESPACE as OCCUPANT_IDS
from xep.ping import Ping
from xep.stanza import Presence
from xep.stanza_error import StanzaError

_log = structlog.get_logger("component.rooms")

JOIN_S: Final = 30.0
"""Seconds in which a room has to answer."""
CHECK_S: Final = 300.0
"""Seconds after which an agent checks whether it is still in a room, and the longest time between
two attempts to join.
"""
_IN_THE_ROOM: Final = frozenset(("service-unavailable", "feature-not-implemented"))
_UNKNOWN: Final = frozenset(("remote-server-timeout", "remote-server-not-found"))
"""Answers to a ping to oneself (XEP-0410 §3.3): the agent is still there, or nobody can tell."""

State: TypeAlias = Literal["offline", "joining", "in", "out", "elsewhere"]
"""`offline`: there is no session. `out`: the agent is not in the room; `Membership.reason` says
why. `elsewhere`: another instance of this service is in the room.
"""


class Stay(msgspec.Struct, frozen=True):
    """What one user of a membership wants.

    Attributes:
        changed: called with each change, in order. Never waits.
        nick: the nickname of the agent in the room; empty if any will do.
        history: the number of messages of the discussion so far that the room is asked for
            (XEP-0045 §7.2.14).
    """

    changed: "Callable[[Membership, Change], None]"
    nick: str = ""
    history: int = 0


class RoomPorts(msgspec.Struct, frozen=True, kw_only=True):
    """What memberships use.

    Attributes:
        call: sends an IQ, and returns its result.
        send: sends a presence.
        payloads: returns what the presence of an agent has besides the wish to join, by its bare
            address: capabilities and the avatar.
        has_others: whether another instance serves the same addresses.
    """

    call: IQCall
    send: Callable[[Presence], object]
    payloads: Callable[[JID], tuple[Payload, ...]]
    has_others: Callable[[], bool]


class Membership:
    """The membership of one agent in one room.

    Args:
        address: the address by which the agent is in the room: a full JID, as XEP-0045 §7.2
            demands, where we choose our resources ourselves.
        room: the bare address of the room.
        title: the nickname if no user of the membership wants another one.

    Attributes:
        stays: what its users want, by the name of each.
        view: what the agent sees of the room: its own nickname, and the other occupants.
        state: whether it is in the room.
        reason: why it is not, as part of a sentence.
        features: what the room supports, as its service discovery says; empty before a join.
    """

    def __init__(self, address: JID, room: JID, title: str, ports: RoomPorts) -> None:
        self.address = address
        self.room = room
        self.stays: dict[str, Stay] = {}
        self.view = RoomView()
        self.state: State = "offline"
        self.reason = ""
        self.features: frozenset[str] = frozenset()
        self._title = title
        self._ports = ports
        self._wake = anyio.Event()
        self._failures = 0
        self._stays_out = False
        self._log = _log.bind(room=str(room), agent=str(address.bare))

    @property
    def is_in(self) -> bool:
        """Whether the agent is in the room."""
        return self.state == "in"

    @property
    def nick(self) -> str:
        """The nickname that the agent wants."""
        named = (stay.nick for _, stay in sorted(self.stays.items()) if stay.nick)
        return next(named, self._title)

    @property
    def has_occupant_ids(self) -> bool:
        """Whether the room gives each occupant an id (XEP-0421), and so removes forged ones."""
        return OCCUPANT_IDS in self.features

    def occupant(self, nick: str) -> RoomOccupant | None:
        """Return the occupant with a nickname; None if there is none, or it is the agent."""
        return self.view.occupants.get(nick)

    # What happens. None of these waits.

    def connected(self) -> None:
        """Join the room in a new session."""
        self._failures, self._stays_out = 0, False
        self._set("joining")

    def disconnected(self) -> None:
        """Note that the session has ended."""
        self.view.join("")
        self._set("offline")

    def changed(self) -> None:
        """Note that a user wants something else."""
        if self.state == "in" and self.nick != self.view.nick:
            self._set("joining")

    def received(self, presence: RoomPresence) -> None:
        """Handle a presence that the room has sent."""
        if self.state == "offline":
            return
        for change in self.view.take(presence):
            self._take(change)

    def leave(self) -> None:
        """Leave the room (XEP-0045 §7.14)."""
        if self.view.is_in:
            to = self.room.with_resource(self.view.nick)
            self._ports.send(Presence(type="unavailable", from_=self.address, to=to))
        self.disconnected()

    def _take(self, change: Change) -> None:
        if isinstance(change, Joined):
            if change.created:  # it was destroyed since it was looked for
                self.leave()
                change = Out("there is no such room", "later")
            else:
                self.reason, self._failures = "", 0
                self._log.info("joined", nick=self.view.nick, occupants=len(change.occupants))
                self._set("in")
        if isinstance(change, Out):
            self._out(change)
            return
        self._report(change)

    def _out(self, out: Out) -> None:
        if self.reason != out.reason:
            self._log.warning("not in a room", reason=out.reason)
        self.reason = out.reason
        self._failures += 1
        self._stays_out = out.again == "next session"
        self._set("out")
        self._report(out)

    def _report(self, change: Change) -> None:
        for stay in list(self.stays.values()):
            stay.changed(self, change)

    def _set(self, state: State) -> None:
        self.state = state
        self._wake.set()

    # The work.

    async def run(self) -> None:
        """Join and stay until cancelled."""
        while True:
            self._wake = anyio.Event()
            if self.state == "joining":
                await self._join()
            elif not await self._woken(self._delay_s) and not await self._is_still_in():
                self._set("joining")

    @property
    def _delay_s(self) -> float | None:
        if self.state == "offline" or self._stays_out:
            return None
        if self.state == "out":
            return min(CHECK_S, float(1 << min(self._failures - 1, 16)))
        return CHECK_S

    async def _woken(self, seconds: float | None) -> bool:
        with anyio.move_on_after(seconds):
            await self._wake.wait()
        return self._wake.is_set()

    async def _join(self) -> None:
        """Join the room, if there is one: a room that does not exist would be created."""
        try:
            info = await self._ports.call(
                "get", self.room, InfoQuery(), InfoQuery, from_=self.address
            )
        except StanzaError as error:
            if self.state == "joining":
                is_missing = error.condition in ("item-not-found", "gone")
                why = "there is no such room" if is_missing else error.text or error.condition
                self._out(Out(why, "later" if is_missing else "soon"))
            return
        if self.state != "joining":
            return
        self.features = frozenset(each.var for each in info.features) if info else frozenset()
        if muc.NAMESPACE not in self.features:
            self._out(Out("the address is not that of a room", "later"))
            return
        nick = self.nick
        self.view.join(nick)
        most = max((stay.history for stay in self.stays.values()), default=0)
        join = muc.Join(history=muc.History(max_stanzas=most))
        payloads = (join, *self._ports.payloads(self.address.bare))
        to = self.room.with_resource(nick)
        self._wake = anyio.Event()
        self._ports.send(Presence(from_=self.address, to=to, payloads=payloads))
        if not await self._woken(JOIN_S) and self.state == "joining":
            if await self._is_elsewhere(nick):
                self.reason = "another instance of this service is in the room"
                self._set("elsewhere")
            else:
                self._out(Out("the room does not answer", "soon"))

    async def _is_still_in(self) -> bool:
        """Ping oneself through the room (XEP-0410); return whether the agent is still in it, as far
        as anybody knows.
        """
        if self.state == "elsewhere":
            return await self._is_elsewhere(self.nick)
        if self.state != "in":
            return False
        try:
            await self._ping(self.view.nick)
        except StanzaError as error:
            if error.condition not in _IN_THE_ROOM | _UNKNOWN:
                self._log.info("the agent is not in a room any more; joining again")
                return self.state != "in"
        return True

    async def _is_elsewhere(self, nick: str) -> bool:
        if not self._ports.has_others():
            return False
        try:
            await self._ping(nick)
        except StanzaError as error:
            return error.condition in _IN_THE_ROOM
        return True

    async def _ping(self, nick: str) -> None:
        at = self.room.with_resource(nick)
        await self._ports.call("get", at, Ping(), Ping, from_=self.address)
