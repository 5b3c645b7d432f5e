"""The membership of one agent in one room: joins it, stays in it, and joins it again.

An agent is in a room once, whatever it does there: watches observe the same occupants whom a
conversation talks with. Each user of a membership has a `Stay` in it; the agent leaves the room
with the last one.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final, Literal, TypeAlias

import anyio
import msgspec
import structlog

from component import system
from component.kernel.rooms.client_kinds import ClientKinds
from component.kernel.rooms.occupants import Change as ViewChange
from component.kernel.rooms.occupants import (
    Joined,
    Moved,
    Out,
    OwnChanged,
    RoomOccupant,
    RoomPresence,
    RoomView,
    identity,
    missing,
)
from component.link.router.table import Request
from component.pubsub.client import IQCall
from xep import muc
from xep.binding import Payload
from xep.disco import InfoQuery
from xep.jid import JID, JIDError
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
OTHERS_S: Final = 3.0
"""Seconds after which an agent asks whether another instance has got the answer of the room."""
_ASK_S: Final = 3.0
"""Seconds in which that instance has to answer."""
_STABLE_S: Final = 60.0
"""Seconds in a room after which the next failure is the first of its kind."""
_OVERLAP: Final = timedelta(minutes=1)
"""By how much the clocks of the room and of this service may differ, and the time for which a lost
connection may not have been noticed.
"""
_NICKS: Final = 9
"""Nicknames that are tried one after the other: Bot, Bot_2, Bot_3 and so on."""
_CONFIGURED: Final = frozenset((muc.CONFIGURED, muc.NON_ANONYMOUS, muc.SEMI_ANONYMOUS))
_IN_THE_ROOM: Final = frozenset(("service-unavailable", "feature-not-implemented"))
_UNKNOWN: Final = frozenset(("remote-server-timeout", "remote-server-not-found"))
"""Answers to a ping to oneself (XEP-0410 §3.3): the agent is still there, or nobody can tell."""

State: TypeAlias = Literal["offline", "joining", "in", "out", "elsewhere"]
"""`offline`: there is no session. `out`: the agent is not in the room; `Membership.reason` says
why. `elsewhere`: another instance of this service is in the room.
"""


Found: TypeAlias = Literal["own", "other", "none", "unknown"]
"""Which instance a room is sent to; `none`: the agent is not in the room."""


class Configured(msgspec.Struct, frozen=True):
    """The room has other features: see `Membership.features`."""


class Elsewhere(msgspec.Struct, frozen=True):
    """Another instance of this service is in the room."""


Change: TypeAlias = ViewChange | Configured | Elsewhere


class Stay(msgspec.Struct, frozen=True):
    """What one user of a membership wants.

    Attributes:
        changed: called with each change, in order. Never waits.
        nick: the nickname of the agent in the room; empty if any will do.
        history: the number of messages of the discussion so far that the room is asked for
            (XEP-0045 §7.2.14), at each join. After a loss these are the messages since, and some
            that were received before come again.
        password: that of the room; empty for none.
        check_s: seconds between two checks whether the agent is in the room.
        said: called with each message that the room sends to all. Never waits.
        tells_admins: whether admins get a message if the agent cannot enter the room.
    """

    changed: "Callable[[Membership, Change], None]"
    nick: str = ""
    history: int = 0
    password: str = ""
    check_s: float = CHECK_S
    said: "Callable[[Membership, Request[None]], None] | None" = None
    tells_admins: bool = True


class RoomPorts(msgspec.Struct, frozen=True, kw_only=True):
    """What memberships use.

    Attributes:
        call: sends an IQ, and returns its result.
        send: sends a presence.
        payloads: returns what the presence of an agent has besides the wish to join, by its bare
            address: capabilities and the avatar.
        has_others: whether another instance serves the same addresses.
        tag: returns what identifies this instance.
        instance_node: the node of service discovery at which an instance says its tag.
        tell_admins: sends a sentence to the admins.
        kinds: knows which clients are programs.
    """

    call: IQCall
    send: Callable[[Presence], object]
    payloads: Callable[[JID], tuple[Payload, ...]]
    has_others: Callable[[], bool]
    tag: Callable[[], str]
    instance_node: str
    tell_admins: Callable[[str], object]
    kinds: ClientKinds


class Membership:
    """The membership of one agent in one room.

    Args:
        address: the address by which the agent is in the room: a full JID, as XEP-0045 §7.2
            demands, where we choose our resources ourselves.
        room: the bare address of the room.
        title: the nickname if no user of the membership wants another one.
        is_own_agent: whether the occupant of a room with a nickname is another agent of this
            service.

    Attributes:
        stays: what its users want, by the name of each.
        view: what the agent sees of the room: its own nickname, and the other occupants.
        state: whether it is in the room.
        reason: why it is not, as part of a sentence.
        advice: what an admin can do about it, as a sentence; empty for nothing.
        features: what the room supports, as its service discovery says; empty before a join.
        name: the name of the room, as its service discovery says.
    """

    def __init__(
        self,
        address: JID,
        room: JID,
        title: str,
        ports: RoomPorts,
        is_own_agent: Callable[[JID, str], bool] = lambda _room, _nick: False,
    ) -> None:
        self.address = address
        self.room = room
        self.stays: dict[str, Stay] = {}
        # The first number is random, so that no visit of a process before has had it.
        first_visit = int.from_bytes(system.current().token_bytes(6))
        self.view = RoomView(first_visit)
        self.state: State = "offline"
        self.reason = ""
        self.advice = ""
        self.features: frozenset[str] = frozenset()
        self.name = ""
        self._title = title
        self._ports = ports
        self._is_own_agent = is_own_agent
        self._wake = anyio.Event()
        self._failures = 0
        self._stays_out = False
        self._told = ""
        self._since = 0.0  # when the agent came into the room
        self._seen: datetime | None = None  # when it was certainly there last
        self._asked = ""  # the nickname that was asked for last
        self._is_assigned = False  # the room has given the agent another nickname
        self._conflicts: list[Out] = []  # of the nicknames that were tried
        self._created = False
        self._is_outdated = False  # the features have changed
        self._history = 0  # the number of messages that the room was asked for
        self._log = _log.bind(room=str(room), agent=str(address.bare))

    # What it knows.

    @property
    def is_in(self) -> bool:
        """Whether the agent is in the room."""
        return self.state == "in"

    @property
    def nick(self) -> str:
        """The nickname that the agent wants; `view.nick` is the one that it has."""
        named = (stay.nick for _, stay in sorted(self.stays.items()) if stay.nick)
        return next(named, self._title)

    @property
    def is_muted(self) -> bool:
        """Whether the agent is in the room and has no voice (XEP-0045 §5.1)."""
        return self.view.own is not None and self.view.own.role == "visitor"

    @property
    def shows_accounts(self) -> bool:
        """Whether every occupant sees the real JIDs of all."""
        return "muc_nonanonymous" in self.features

    def occupant(self, nick: str) -> RoomOccupant | None:
        """Return the occupant with a nickname; None if there is none, or it is the agent.

        A message is from the occupant with the nickname in its `from`; nothing else in it proves
        who has sent it. `identity` of the occupant tells it from all others.
        """
        found = self.view.occupants.get(nick)
        if found is None or found.is_agent:
            return found
        if self._ports.kinds.is_program(found.caps) or self._is_own_agent(self.room, nick):
            return msgspec.structs.replace(found, is_agent=True)
        return found

    def by_id(self, occupant_id: str) -> RoomOccupant | None:
        """Return the occupant with an id (XEP-0421)."""
        if not occupant_id:
            return None
        each = self.view.occupants.values()
        return next((one for one in each if one.occupant_id == occupant_id), None)

    async def ask_is_agent(self, occupant: RoomOccupant) -> bool:
        """Return whether an occupant is a program, as far as its client says.

        The client is asked if that is not known yet; one that does not answer counts as that of a
        person.
        """
        known = self.occupant(occupant.nick)
        if known is None or known.visit != occupant.visit or known.is_agent:
            return occupant.is_agent if known is None else known.is_agent
        at = self.room.with_resource(occupant.nick)
        is_agent = await self._ports.kinds.ask(self._ports.call, self.address, at, occupant.caps)
        if is_agent:
            self.view.mark_agent(occupant)
        return is_agent

    # What happens. None of these waits.

    def connected(self) -> None:
        """Join the room in a new session."""
        self._failures, self._stays_out = 0, False
        self._set("joining")

    def disconnected(self) -> None:
        """Note that the session has ended."""
        self._created = False
        self.view.join("")
        self._set("offline")

    def missed(self) -> None:
        """Join again, because what the room has sent may have been lost: it sends all again."""
        if self.state in ("in", "elsewhere"):
            self._set("joining")

    def changed(self) -> None:
        """Note that a user wants something else: a room that the agent is not in is tried again."""
        self._is_assigned = False
        if self.state == "in" and self._most_history <= self._history:
            self._take_nick()
        elif self.state != "offline":
            self._set("joining")

    def received(self, presence: RoomPresence) -> None:
        """Handle a presence that the room has sent."""
        if self.state == "offline" or self._created:
            return
        if self.state == "elsewhere":
            self._set("joining")  # the server sends to this instance now what the room sends
        if presence.error is not None and self.state == "in":
            self._log.info("the agent keeps its nickname", reason=presence.error.condition)
            self._asked = self.view.nick
        for change in self.view.take(presence):
            self._take(change)
        if self.state == "in":
            self._seen = system.now()

    def said(self, request: Request[None]) -> None:
        """Handle a message that the room has sent to all."""
        if self.state == "elsewhere":
            self._set("joining")
        if self.state != "in":
            return
        self._seen = system.now()
        if request.sender.resource is None and muc.User.xml.tag in request.stanza.child_names:
            user = request.stanza.payload(muc.User)
            if user is not None and user.codes & _CONFIGURED:
                self._is_outdated = True
                self._wake.set()
            if user is not None and muc.NON_ANONYMOUS in user.codes:
                self._ask_for_occupants()
        for stay in list(self.stays.values()):
            if stay.said is not None:
                stay.said(self, request)

    def _ask_for_occupants(self) -> None:
        """Join again without leaving: the room sends all occupants, with their accounts now."""
        at = self.room.with_resource(self.view.nick)
        self._send(at, muc.Join(history=muc.History(max_stanzas=0)))

    def show(self) -> None:
        """Send the presence of the agent again, because its capabilities have changed."""
        if self.state == "in":
            self._send(self.room.with_resource(self.view.nick))

    def leave(self) -> None:
        """Leave the room (XEP-0045 §7.14)."""
        if self.view.nick and self.state in ("joining", "in"):
            to = self.room.with_resource(self.view.nick)
            self._ports.send(Presence(type="unavailable", from_=self.address, to=to))
        self.disconnected()

    def _take(self, change: ViewChange) -> None:
        if isinstance(change, Joined):
            if change.created:  # it was destroyed since it was looked for
                self._created = True
                self._wake.set()
                return
            self.reason = self.advice = self._told = ""
            self._since = system.monotonic()
            self._is_assigned = self.view.nick != self._asked
            self._log.info("joined a room", nick=self.view.nick, occupants=len(change.occupants))
            self._set("in")
        elif isinstance(change, Out):
            if change.conflict and self.state == "joining":
                self._conflicts.append(change)
                self._wake.set()
            else:
                self._out(change)
            return
        elif isinstance(change, OwnChanged):
            self._is_assigned = self._is_assigned or change.own.nick != self._asked
            self._log.info("changed in a room", nick=change.own.nick, role=change.own.role)
        self._report(change)
        if isinstance(change, Moved):
            who = change.occupant
            self._log.debug(
                "an occupant moved",
                what=change.what,
                nick=who.nick,
                identity=identity(who),
                affiliation=who.affiliation,
                role=who.role,
                hats=who.hats,
            )
            if self.nick == _given_up(change):
                self._take_nick()

    def _take_nick(self) -> None:
        """Ask for the nickname that the agent wants, if it has another one and nobody has that."""
        wanted = self.nick
        if wanted in (self.view.nick, self._asked) or self._is_assigned:
            return
        if wanted in self.view.occupants:
            return
        with suppress(JIDError):
            to = self.room.with_resource(wanted)
            self._asked = wanted
            self._send(to)

    def _out(self, out: Out) -> None:
        if self.state == "in" and system.monotonic() - self._since >= _STABLE_S:
            self._failures = 0
        if self.reason != out.reason:
            self._log.warning("not in a room", reason=out.reason, joins_again=out.again)
        self.reason, self.advice = out.reason, out.advice
        self._failures += 1
        self._stays_out = out.again == "next session"
        self._set("out")
        if out.advice and self.tells_admins and self._told != out.reason:
            self._told = out.reason
            self._ports.tell_admins(self.sentence)
        self._report(out)

    @property
    def tells_admins(self) -> bool:
        """Whether admins get a message if the agent cannot enter the room."""
        return any(stay.tells_admins for stay in self.stays.values())

    @property
    def sentence(self) -> str:
        """Why the agent is not in the room, and what an admin can do."""
        said = f"{self.address.bare} is not in the room {self.room}: {self.reason}"
        return f"{said.rstrip('.')}. {self.advice}".rstrip()

    def _report(self, change: Change) -> None:
        for stay in list(self.stays.values()):
            stay.changed(self, change)

    def _set(self, state: State) -> None:
        self.state = state
        self._wake.set()

    def _send(self, to: JID, *more: Payload) -> None:
        payloads = (*more, *self._ports.payloads(self.address.bare))
        self._ports.send(Presence(from_=self.address, to=to, payloads=payloads))

    # The work.

    async def run(self) -> None:
        """Join and stay until cancelled."""
        while True:
            self._wake = anyio.Event()
            if self._created:
                await self._destroy()
            elif self.state == "joining":
                await self._join()
            elif self.state == "in" and self._is_outdated:
                await self._look()
            elif not await self._woken(self._delay_s):
                await self._check()

    @property
    def _check_s(self) -> float:
        return min((stay.check_s for stay in self.stays.values()), default=CHECK_S)

    @property
    def _delay_s(self) -> float | None:
        if self.state == "offline" or (self.state == "out" and self._stays_out):
            return None
        if self.state == "out":
            return min(self._check_s, float(1 << min(self._failures - 1, 16)))
        return self._check_s

    async def _woken(self, seconds: float | None) -> bool:
        # An event that is set while the time ends is set: so the scope is not asked.
        with anyio.move_on_after(seconds):
            await self._wake.wait()
        return self._wake.is_set()

    async def _join(self) -> None:
        """Join the room under the first nickname that is free."""
        if not await self._look():
            return
        self._conflicts.clear()
        for number, nick in enumerate(list(self._nicks()), 1):
            await self._enter(nick)
            if self.state != "joining" or len(self._conflicts) < number:
                return
        self._out(self._conflicts[0])

    def _nicks(self) -> Iterator[str]:
        if self.view.is_in:  # it joins again: with another nickname, it would not get the occupants
            yield self.view.nick
            return
        wanted = self.nick
        yield wanted
        for number in range(2, _NICKS + 1):
            yield f"{wanted}_{number}"

    async def _look(self) -> bool:
        """Look at the room, and return whether there is one that the agent can join: a room that
        does not exist would be created.
        """
        self._is_outdated = False
        state = self.state
        try:
            info = await self._ports.call(
                "get", self.room, InfoQuery(), InfoQuery, from_=self.address
            )
        except StanzaError as error:
            if self.state == state == "joining":
                is_missing = error.condition in ("item-not-found", "gone")
                unknown = Out(f"the room cannot be asked ({error.text or error.condition})", "soon")
                self._out(missing() if is_missing else unknown)
            return False
        if self.state != state:
            return False
        known = self.features
        self.features = frozenset(each.var for each in info.features) if info else frozenset()
        self.name = next((each.name or "" for each in info.identities), "") if info else ""
        self.view.supports(self.features)
        if state == "joining" and muc.NAMESPACE not in self.features:
            self._out(missing("the address is not that of a room"))
            return False
        if state == "in" and known != self.features:
            added, removed = self.features - known, known - self.features
            self._log.info(
                "a room has other features", added=sorted(added), removed=sorted(removed)
            )
            self._report(Configured())
        return True

    @property
    def _most_history(self) -> int:
        return max((stay.history for stay in self.stays.values()), default=0)

    async def _enter(self, nick: str) -> None:
        """Ask to join under a nickname, and wait for the answer."""
        try:
            to = self.room.with_resource(nick)
        except JIDError as error:
            reason = f"the nickname {nick} is not allowed: {error}"
            self._out(Out(reason, "later", refused=True, advice="Choose another nickname."))
            return
        self.view.join(nick)
        self._asked = nick
        self._history = most = self._most_history
        since = None if self._seen is None or not most else self._seen - _OVERLAP
        if since is not None:
            since = since.replace(microsecond=0)
        passwords = (stay.password for _, stay in sorted(self.stays.items()) if stay.password)
        self._wake = anyio.Event()
        self._send(
            to,
            muc.Join(
                history=muc.History(max_stanzas=most, since=since), password=next(passwords, None)
            ),
        )
        if self._ports.has_others() and not await self._woken(OTHERS_S):
            found = await self._which_instance()
            if found == "other" and self.state == "joining":
                self._be_elsewhere()
        if self.state == "joining" and not await self._woken(JOIN_S) and self.state == "joining":
            self._out(Out("the room does not answer", "soon"))

    async def _destroy(self) -> None:
        """Destroy a room that the agent has created by joining it, and leave it."""
        with suppress(StanzaError):
            query = muc.OwnerQuery(destroy=muc.OwnerDestroy())
            await self._ports.call("set", self.room, query, muc.OwnerQuery, from_=self.address)
        self._created = False
        if self.state != "offline":
            self.leave()
            self._out(missing())

    async def _check(self) -> None:
        """Check whether the agent is still in the room, and which instance the room is sent to."""
        state, nick = self.state, self.view.nick
        found = "unknown"
        if state == "elsewhere" or (state == "in" and self._ports.has_others()):
            found = await self._which_instance()
        elif state == "in":
            found = await self._ping(nick)
        if self.state != state:
            return
        if state == "out" or found == "none":
            # A nickname that is not found was changed in the meantime, or the room is gone.
            if state == "in" and nick == self.view.nick:
                self._log.info("the agent is not in a room any more; joining again")
            if state != "in" or nick == self.view.nick:
                self._set("joining")
        elif found == "other" and state == "in":
            self._be_elsewhere()
        elif found == "own" and state == "elsewhere":
            self._set("joining")  # the server sends to this instance now what the room sends
        elif state == "in" and found == "own":
            self._seen = system.now()
            self._asked = self.view.nick
            self._take_nick()

    async def _ping(self, nick: str) -> Found:
        """Ping oneself through the room (XEP-0410 §3.3)."""
        at = self.room.with_resource(nick)
        try:
            await self._ports.call("get", at, Ping(), Ping, from_=self.address)
        except StanzaError as error:
            if error.condition in _UNKNOWN:
                return "unknown"
            return "own" if error.condition in _IN_THE_ROOM else "none"
        return "own"

    async def _which_instance(self) -> Found:
        """Ask the agent through the room which instance it is.

        All instances are the same occupant, so a room answers the ping of each, and the server
        sends what comes from one room to one of them. The nickname may be that of somebody else,
        who does not answer with a tag.
        """
        if not self._ports.has_others():
            return "none"
        query = InfoQuery(node=self._ports.instance_node)
        for nick in [self.view.nick] if self.state == "in" else self._nicks():
            at = self.room.with_resource(nick)
            info, is_over = None, True
            with anyio.move_on_after(_ASK_S):
                try:
                    info = await self._ports.call("get", at, query, InfoQuery, from_=self.address)
                    is_over = False
                except StanzaError as error:
                    is_over = error.condition in _UNKNOWN
            if is_over:
                return "unknown"
            if info is not None and info.node == query.node and info.identities:
                return "own" if info.identities[0].name == self._ports.tag() else "other"
        return "none"

    def _be_elsewhere(self) -> None:
        self.view.join("")
        self.reason, self.advice = "another instance of this service is in the room", ""
        self._set("elsewhere")
        self._report(Elsewhere())


def _given_up(move: Moved) -> str:
    """Return the nickname that nobody has any more; empty for none."""
    return move.occupant.nick if move.what == "left" else move.occupant.previous
