"""All rooms that agents are in: makes memberships, and gives them what the rooms send."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Literal, TypeAlias

import anyio
import structlog
from anyio.abc import TaskGroup, TaskStatus

from component.kernel.rooms.membership import Membership, RoomPorts, Stay
from component.kernel.rooms.occupants import RoomPresence, identity
from component.link.messages.inbound import InboundMessage, ReplyAddress
from component.link.messages.signals import shown_by
from component.link.router.addresses import IN_ROOMS
from component.link.router.table import Request, StanzaRoute
from component.metrics.counters import Gauge
from xep import disco
from xep.binding import ContentError, Name, Payload
from xep.caps import Caps
from xep.hats import Hats
from xep.jid import JID
from xep.muc import User
from xep.occupant_ids import OccupantId
from xep.stanza import NAMESPACE as STANZAS

_log = structlog.get_logger("component.rooms")

_MOST_HATS: Final = 20


class _Error(Payload, frozen=True, kw_only=True):
    """The error of a stanza (RFC 6120 §8.3). Some rooms send nothing else."""

    xml = Name(STANZAS, "error")


IsVote: TypeAlias = Callable[[Membership, InboundMessage], bool]


class Rooms:
    """The memberships of all agents, by agent and room, both bare.

    Args:
        chooses_resources: whether we choose the resources of our addresses ourselves; a server
            chooses that of an account.
        changed: called when there are other rooms than before.

    Attributes:
        votes: return whether a message to all is a vote. Features add theirs.
    """

    def __init__(
        self,
        ports: RoomPorts,
        *,
        chooses_resources: bool,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.votes: list[IsVote] = []
        self._changed = changed
        self._ports = ports
        self._chooses_resources = chooses_resources
        self._memberships: dict[tuple[JID, JID], Membership] = {}
        self._scopes: dict[tuple[JID, JID], anyio.CancelScope] = {}
        self._by_room: dict[JID, list[Membership]] = {}
        self._group: TaskGroup | None = None
        self._is_connected = False

    def __iter__(self) -> Iterator[Membership]:
        """Iterate over the memberships."""
        return iter(list(self._memberships.values()))

    def get(self, agent: JID, room: JID) -> Membership | None:
        """Return the membership of an agent in a room; None if it has none."""
        return self._memberships.get((agent.bare, room.bare))

    def may_speak(self, to: ReplyAddress) -> Literal["speaks", "silent", "joins"]:
        """Return whether an agent can write to a room, or to an occupant, now: it is there and has
        voice, and nobody else has the nickname of the occupant. `joins` says that it is on its way
        into the room.
        """
        address = JID.parse(to.to)
        found = self.get(to.from_, address)
        if found is None or found.state == "out":
            return "silent"
        if found.state in ("offline", "joining"):
            return "joins"
        if to.occupant:
            other = found.view.occupants.get(address.resource or "")
            return "speaks" if other and identity(other) == to.occupant else "silent"
        own = found.view.own
        return "silent" if own is not None and own.role == "visitor" else "speaks"

    def is_vote(self, membership: Membership, message: InboundMessage) -> bool:
        """Return whether a message to all is a vote, and so not meant for a conversation."""
        return any(is_vote(membership, message) for is_vote in self.votes)

    def is_room(self, address: JID) -> bool:
        """Return whether an agent is, or is to be, in the room with this address."""
        return address.bare in self._by_room

    def is_own_agent(self, room: JID, nick: str) -> bool:
        """Return whether the occupant of a room with a nickname is an agent of this service."""
        return any(one.is_in and one.view.nick == nick for one in self._by_room.get(room, ()))

    def enter(self, agent: JID, room: JID, user: str, stay: Stay, title: str = "") -> Membership:
        """Have an agent in a room for one user, whose former wishes it replaces. Never waits.

        `user` is a name that this user alone has. `title` is the nickname if nobody wants one.
        """
        key = agent.bare, room.bare
        found = self._memberships.get(key)
        if found is not None:
            found.stays[user] = stay
            found.changed()
            return found
        address = agent.bare.with_resource(IN_ROOMS) if self._chooses_resources else agent.bare
        nick = title or agent.local or "agent"
        made = Membership(address, room.bare, nick, self._ports, self.is_own_agent)
        made.stays[user] = stay
        self._memberships[key] = made
        self._index()
        self._start(key, made)
        if self._is_connected:
            made.connected()
        return made

    def leave(self, agent: JID, room: JID, user: str) -> None:
        """End what one user wants; the agent leaves the room with the last one. Never waits."""
        key = agent.bare, room.bare
        found = self._memberships.get(key)
        if found is None or found.stays.pop(user, None) is None:
            return
        if found.stays:
            if found.is_in:
                found.changed()  # the others may want another nickname
            return
        found.leave()
        del self._memberships[key]
        self._index()
        scope = self._scopes.pop(key, None)
        if scope is not None:
            scope.cancel()

    def _index(self) -> None:
        before = self._by_room.keys()
        self._by_room = {}
        for one in self:
            self._by_room.setdefault(one.room, []).append(one)
        if self._by_room.keys() != before:
            self._changed()

    def warnings(self) -> Sequence[str]:
        """Return why agents are not in rooms of the settings, and what an admin can do."""
        return [one.sentence for one in self if one.state == "out" and one.tells_admins]

    def gauges(self) -> Iterable[Gauge]:
        """Return the number of rooms by state."""
        states = Counter[tuple[str, ...]]((one.state,) for one in self)
        if states:
            yield Gauge("rooms", "Rooms that agents are to be in, by state.", states, ("state",))

    # The lifecycle.

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Join and stay until cancelled."""
        async with anyio.create_task_group() as self._group:
            for key, one in self._memberships.items():
                self._start(key, one)
            task_status.started()
            await anyio.sleep_forever()

    def _start(self, key: tuple[JID, JID], membership: Membership) -> None:
        if self._group is None:
            return
        scope = self._scopes[key] = anyio.CancelScope()

        async def run() -> None:
            with scope:
                await membership.run()

        self._group.start_soon(run)

    def connected(self) -> None:
        """Join the rooms in a new session. Never waits."""
        self._is_connected = True
        for one in self:
            one.connected()

    def disconnected(self) -> None:
        """Note that the session has ended. Never waits."""
        self._is_connected = False
        for one in self:
            one.disconnected()

    def missed(self) -> None:
        """Join again, because stanzas may have been lost. Never waits."""
        for one in self:
            one.missed()

    def show(self) -> None:
        """Send the presence of the agents again: their capabilities have changed. Never waits."""
        for one in self:
            one.show()

    def leaving(self) -> None:
        """Leave all rooms, because the service stops. Never waits."""
        if not self._ports.has_others():  # another instance is there as the same occupant
            for one in self:
                one.leave()

    # Which instance a room is sent to: see `Membership`.

    def info(self, request: Request[disco.InfoQuery]) -> disco.InfoQuery | None:
        """Return the tag of this instance, if it is asked for."""
        if request.payload.node != self._ports.instance_node:
            return None
        identity = disco.Identity(category="client", type="bot", name=self._ports.tag())
        return disco.InfoQuery(node=request.payload.node, identities=(identity,))

    def items(self, _request: Request[disco.ItemsQuery]) -> None:
        """Return nothing: no node has items."""

    # Stanzas.

    def routes(self) -> tuple[StanzaRoute, ...]:
        """Return the routes for what rooms send to all, and for refusals."""
        available = frozenset(("available", "unavailable"))
        return (
            StanzaRoute("message", frozenset(("groupchat",)), self._said, admits=self.is_room),
            StanzaRoute("presence", available, self._occupant, payload=User, admits=self.is_room),
            StanzaRoute(
                "presence",
                frozenset(("error",)),
                self._refusal,
                payload=_Error,
                admits=self.is_room,
                falls_back=True,
            ),
        )

    def _said(self, request: Request[None]) -> None:
        """Handle a message to all (XEP-0045 §7.4)."""
        found = self.get(request.to, request.principal)
        if found is not None:
            found.said(request)

    def _occupant(self, request: Request[None]) -> None:
        """Handle the presence of an occupant (XEP-0045 §7.2.2)."""
        stanza, room = request.stanza, request.principal
        try:
            user = stanza.require(User)
        except ContentError as error:
            _log.warning("ignored a bad presence of a room", room=str(room), reason=str(error))
            return
        occupant_id, hats = stanza.payload(OccupantId), stanza.payload(Hats)
        presence = RoomPresence(
            nick=request.sender.resource or "",
            user=user,
            show=shown_by(stanza),
            status=stanza.text_of("status") or "",
            occupant_id="" if occupant_id is None else occupant_id.id,
            hats=() if hats is None else tuple(each.uri for each in hats.hats[:_MOST_HATS]),
            caps=stanza.payload(Caps),
        )
        self._received(request, presence)

    def _refusal(self, request: Request[None]) -> None:
        """Handle the refusal of a room to let the agent enter (XEP-0045 §7.2)."""
        nick, error = request.sender.resource or "", request.stanza.error()
        self._received(request, RoomPresence(nick=nick, error=error, show="offline"))

    def _received(self, request: Request[None], presence: RoomPresence) -> None:
        found = self.get(request.to, request.principal)
        if found is not None:
            found.received(presence)
