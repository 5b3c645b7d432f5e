"""A room without a server, for tests of memberships."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec

from component.kernel.rooms.client_kinds import ClientKinds
from component.kernel.rooms.membership import Change, Membership, RoomPorts, Stay
from component.kernel.rooms.occupants import RoomPresence
from component.kernel.rooms.rooms import Rooms
from tests.waiting import eventually
from xep import muc
from xep.disco import Feature, Identity, InfoQuery
from xep.jid import JID
from xep.muc import Item, Status, User
from xep.ping import Ping
from xep.stanza import Presence
from xep.stanza_error import Condition, StanzaError

AGENT = JID.parse("assistant@agent.example")
ROOM = JID.parse("lab@rooms.example")
INSTANCE = "urn:example:software#instance"


def presence(of: str, /, *codes: int, show: Any = "online", **item: Any) -> RoomPresence:
    """A presence of an occupant, with status codes and the attributes of its item."""
    statuses = tuple(Status(code=code) for code in codes)
    return RoomPresence(nick=of, user=User(items=(Item(**item),), statuses=statuses), show=show)


def refusal(nick: str, condition: Condition) -> RoomPresence:
    """The refusal to let the agent enter under a nickname."""
    return RoomPresence(nick=nick, error=StanzaError(condition), show="offline")


class RoomWorld:
    """A room, and the rooms of a service that may be in it.

    Attributes:
        there: the presence of the other occupants, by nickname.
        missing: the error of service discovery.
        refusals: the errors with which nicknames are refused, by nickname; under "" that of all.
        has_others: whether there are other instances.
        instance: the nickname under which instances are in the room.
        tag: that of the instance to which the server sends the room.
        pong: the error of a ping to the agent itself.
        silent: whether the room does not answer to a join.
        codes: the status codes of the agent's own presence.
        pinged: called before a ping is answered.
        joins: what the agent has sent to join.
        sent: what the agent has sent, each as a word and the nickname.
    """

    def __init__(self) -> None:
        self.there: dict[str, RoomPresence] = {}
        self.features = [muc.NAMESPACE]
        self.missing: Condition | None = None
        self.refusals: dict[str, Condition] = {}
        self.has_others = False
        self.pong: Condition | None = None
        self.silent = False
        self.instance = ""
        self.tag = "other"
        self.codes: tuple[int, ...] = (110,)
        self.own: dict[str, Any] = {"role": "participant", "affiliation": "none"}
        self.joins: list[muc.Join] = []
        self.sent: list[str] = []
        self.said: list[str] = []
        self.pings = 0
        self.pinged: Callable[[], None] = lambda: None
        self.clients: dict[str, InfoQuery] = {}
        self.asked: list[str] = []
        ports = RoomPorts(
            call=self._call,
            send=self._send,
            payloads=lambda _: (),
            has_others=lambda: self.has_others,
            tag=lambda: "own",
            instance_node=INSTANCE,
            tell_admins=self.said.append,
            kinds=ClientKinds(),
        )
        self.rooms = Rooms(ports, chooses_resources=True)
        self.changes: list[Change] = []

    @property
    def membership(self) -> Membership:
        """The membership of the agent."""
        found = self.rooms.get(AGENT, ROOM)
        assert found is not None
        return found

    def stay(self, **more: Any) -> Stay:
        """The wishes of a user who takes note of all changes."""
        given = {"nick": "Agent", "check_s": 0.01} | more
        return Stay(lambda _, change: self.changes.append(change), **given)

    def enter(self, user: str = "test", **more: Any) -> Membership:
        """Have the agent in the room for a user."""
        return self.rooms.enter(AGENT, ROOM, user, self.stay(**more))

    @asynccontextmanager
    async def running(self, **more: Any) -> AsyncIterator[Membership]:
        """Have the agent in the room as long as the context lasts."""
        membership = self.enter(**more)
        async with anyio.create_task_group() as group:
            await group.start(self.rooms.run)
            self.rooms.connected()
            yield membership
            group.cancel_scope.cancel()

    async def until(self, reached: Callable[[], object]) -> None:
        """Wait until something is so."""
        await eventually(lambda: bool(reached()))

    async def is_in(self, state: str) -> None:
        """Wait for a state."""
        await self.until(lambda: self.membership.state == state)

    # What a test does.

    def receive(self, *presences: RoomPresence) -> None:
        """Have the room send presences."""
        for each in presences:
            self.membership.received(each)

    def comes(self, nick: str, *, live: bool = True, **item: Any) -> None:
        """Have an occupant enter, or change."""
        self.there[nick] = presence(nick, **item)
        if live:
            self.receive(self.there[nick])

    def goes(self, nick: str, *, live: bool = True) -> None:
        """Have an occupant leave."""
        del self.there[nick]
        if live:
            self.receive(presence(nick, show="offline"))

    def removes(self, *codes: int, **user: Any) -> None:
        """Have the room remove the agent."""
        statuses = tuple(Status(code=code) for code in (110, *codes))
        of = self.membership.view.nick
        self.receive(RoomPresence(nick=of, user=User(statuses=statuses, **user), show="offline"))

    # What the service uses.

    async def _call(self, _type: str, to: JID, payload: Any, *_: Any, **__: Any) -> Any:
        await anyio.lowlevel.checkpoint()
        if isinstance(payload, Ping):
            self.pings += 1
            self.pinged()
            if self.pong is not None:
                raise StanzaError(self.pong)
            return None
        if isinstance(payload, muc.OwnerQuery):
            self.sent.append("destroy")
            return None
        if to.resource and payload.node == INSTANCE:
            self.pings += 1
            self.pinged()
            if to.resource != self.instance:
                raise StanzaError(self.pong or "item-not-found")
            tag = Identity(category="client", type="bot", name=self.tag)
            return InfoQuery(node=payload.node, identities=(tag,))
        if to.resource:
            self.asked.append(to.resource)
            if to.resource not in self.clients:
                raise StanzaError("service-unavailable")
            return self.clients[to.resource]
        if self.missing is not None:
            raise StanzaError(self.missing)
        features = tuple(Feature(var=var) for var in self.features)
        identity = Identity(category="conference", type="text", name="The lab")
        return InfoQuery(identities=(identity,), features=features)

    def _send(self, stanza: Presence) -> None:
        assert isinstance(stanza.to, JID)
        nick = stanza.to.resource or ""
        if stanza.type == "unavailable":
            self.sent.append(f"leave {nick}")
            return
        joins = [each for each in stanza.payloads if isinstance(each, muc.Join)]
        self.joins += joins
        self.sent.append(f"{'join' if joins else 'show'} {nick}")
        if not self.silent:
            self.answer(nick, is_join=bool(joins))

    def answer(self, nick: str, *, is_join: bool = True) -> None:
        """Answer to the presence of the agent."""
        condition = self.refusals.get(nick) or self.refusals.get("")
        if nick in self.there:
            condition = "conflict"
        if condition is not None:
            self.receive(refusal(nick, condition))
        elif is_join:
            self.receive(*self.there.values(), presence(nick, *self.codes, **self.own))
        elif nick != self.membership.view.nick:
            before = self.membership.view.nick
            self.receive(
                presence(before, 110, 303, show="offline", nick=nick),
                presence(nick, 110, **self.own),
            )


def with_caps(of: str, caps: Any, **more: Any) -> RoomPresence:
    """A presence of an occupant whose client announces capabilities."""
    return msgspec.structs.replace(presence(of, **more), caps=caps)
