"""Observes who is in a room (XEP-0045): joins it, stays in it, and records who comes and goes.

Only the room knows its occupants. After each join they are compared with those that were recorded
last. So an agent that was away detects who has come or gone in the meantime, but not who has done
both.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal

import anyio
import structlog

from component.features.watches import rows as watch_rows
from component.features.watches.events import Offered
from component.features.watches.room import (
    LEFT,
    Change,
    Joined,
    Moved,
    Occupant,
    Out,
    Room,
    RoomPresence,
    observed,
)
from component.features.watches.sources import (
    SourcePorts,
    SourceState,
    SourceStatus,
    SourceWatcher,
    backoff_s,
    is_set_within,
)
from component.features.watches.watch import Source, Watch
from component.pubsub.client import IQCall
from component.store.database import Database
from xep.binding import Payload
from xep.disco import InfoQuery
from xep.jid import JID
from xep.muc import NAMESPACE, History, Join
from xep.ping import Ping
from xep.stanza import Presence
from xep.stanza_error import StanzaError

_log = structlog.get_logger("component.watches")

JOIN_S: Final = 30.0
"""Seconds in which a room has to answer."""
MOST_WAITING: Final = 20_000
"""Changes that wait in memory; with more, the room is joined again instead."""
_BATCH: Final = 500
_IN_THE_ROOM: Final = frozenset(("service-unavailable", "feature-not-implemented"))
_UNKNOWN: Final = frozenset(("remote-server-timeout", "remote-server-not-found"))
"""Answers to a ping to oneself (XEP-0410 §3.3): the agent is still there, or nobody can tell."""


class RoomClient:
    """Enters rooms, and checks whether an agent is still in them.

    Args:
        call: makes requests.
        send: sends a presence.
        occupant: the address by which one of our addresses enters rooms. It is a full JID, as
            XEP-0045 §7.2 demands, where we choose our resources ourselves.
    """

    def __init__(
        self, call: IQCall, send: Callable[[Presence], object], occupant: Callable[[JID], JID]
    ) -> None:
        self._call = call
        self._send = send
        self._occupant = occupant

    async def find(self, source: Source) -> None:
        """Check that there is such a room. Raises StanzaError.

        Entering a room that does not exist creates it, which the agent must not do.
        """
        info = await self._call(
            "get", source.service, InfoQuery(), InfoQuery, from_=self._occupant(source.subscriber)
        )
        if info is None or all(feature.var != NAMESPACE for feature in info.features):
            raise StanzaError("feature-not-implemented", "the address is not that of a room")

    def join(self, source: Source, nick: str) -> None:
        """Ask to enter the room, without its history (XEP-0045 §7.2.14)."""
        self._presence(source, nick, None, (Join(history=History(max_stanzas=0)),))

    def leave(self, source: Source, nick: str) -> None:
        """Leave the room (XEP-0045 §7.14)."""
        self._presence(source, nick, "unavailable", ())

    async def ping(self, source: Source, nick: str) -> None:
        """Ping oneself through the room (XEP-0410 §3.2). Raises StanzaError."""
        at = source.service.with_resource(nick)
        await self._call("get", at, Ping(), Ping, from_=self._occupant(source.subscriber))

    def _presence(
        self,
        source: Source,
        nick: str,
        type_: Literal["unavailable"] | None,
        payloads: tuple[Payload, ...],
    ) -> None:
        self._send(
            Presence(
                type=type_,
                from_=self._occupant(source.subscriber),
                to=source.service.with_resource(nick),
                payloads=payloads,
            )
        )


class RoomWatcher(SourceWatcher):
    """Observes the occupants of a room.

    Args:
        source: the room; its node is `room`.
        ports: what it uses.
        client: talks with the room.
    """

    def __init__(self, source: Source, ports: SourcePorts, client: RoomClient) -> None:
        super().__init__(source, ports)
        self._client = client
        self._room = Room()
        self._nick = ""
        self._state: SourceState = "offline"
        self._reason = ""
        self._said = ""
        self._failures = 0
        self._stays_out = False
        self._waiting: deque[Moved | Joined] = deque()
        self._log = _log.bind(room=str(source.service))

    @property
    def status(self) -> SourceStatus:
        """The state of the source."""
        return SourceStatus(self._state, self._reason)

    def set_watches(self, watches: Mapping[str, Watch]) -> None:
        """Offer events to these watches from now on. Raises FilterError.

        All watches of a room share one occupant, with the nickname of the first of them by id.
        """
        super().set_watches(watches)
        named = [watch.nick for _, watch in sorted(watches.items()) if watch.nick]
        nick = named[0] if named else next((one.agent for one in watches.values()), "")
        if len(set(named)) > 1:
            self._log.warning("watches of one room name several nicknames; one is used", nick=nick)
        is_new, self._nick = nick != self._nick, nick
        if is_new and self._room.nick and self._state != "offline":
            self._go("subscribing")

    def connected(self) -> None:
        """Enter the room in a new session. Never waits."""
        self._waiting.clear()  # joining returns all occupants
        self._failures, self._stays_out, self._said = 0, False, ""
        self._go("subscribing")

    def disconnected(self) -> None:
        """Stop observing: the session has ended."""
        self._go("offline")

    def received(self, presence: RoomPresence) -> None:
        """Handle a presence that the room has sent. Never waits."""
        if self._state == "offline":
            return
        for change in self._room.take(presence):
            self._take(change)

    def leave(self) -> None:
        """Leave the room, because the service stops. Never waits."""
        if self._room.is_in:
            self._client.leave(self.source, self._room.nick)
        self._room.join("")
        self._go("offline")

    async def run(self) -> None:
        """Observe the source until cancelled."""
        while True:
            self._wake = anyio.Event()
            if self._state == "offline":
                await self._wake.wait()
            elif self._waiting:
                await self._record_waiting()
            elif self._state == "subscribing":
                await self._join()
            else:
                await self._rest()

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
            self._failures, self._reason, self._said = 0, "", ""
            self._waiting.clear()
            self._log.info("joined a room", nick=self._room.nick, occupants=len(change.occupants))
            self._go("live")
        if len(self._waiting) >= MOST_WAITING:
            self._waiting.clear()
            self._log.warning("too many changes are waiting; the room is joined again")
            self._go("subscribing")
            return
        self._waiting.append(change)
        self._wake.set()

    def _out(self, out: Out) -> None:
        self._reason = out.reason
        self._stays_out = out.again == "next session"
        self._failures += 1
        if self._said != out.reason:  # said once, not at each attempt
            self._log.warning("not in a room", reason=out.reason, joins_again=out.again)
        self._said = out.reason
        state: SourceState = "failed" if out.again == "soon" else "missing"
        self._go("refused" if out.refused else state)

    def _go(self, state: SourceState) -> None:
        if state != self._state:
            self._log.debug("source changed", state=state, node=self.source.node)
        self._state = state
        self._wake.set()

    async def _join(self) -> None:
        try:
            await self._client.find(self.source)
        except StanzaError as error:
            if self._state == "subscribing":
                is_missing = error.condition in ("item-not-found", "gone")
                text = "there is no such room" if is_missing else error.text or error.condition
                self._out(Out(text, "later" if is_missing else "soon"))
            return
        if self._state != "subscribing":
            return
        self._room.join(self._nick)
        self._wake = anyio.Event()
        self._client.join(self.source, self._nick)
        if not await is_set_within(self._wake, JOIN_S) and self._state == "subscribing":
            self._out(Out("the room does not answer", "soon"))

    async def _rest(self) -> None:
        if await is_set_within(self._wake, self._delay_s):
            return
        if self._state != "live":
            self._go("subscribing")
        elif not await self._is_still_in() and self._state == "live":
            self._log.info("the agent is not in a room any more; joining again")
            self._go("subscribing")

    @property
    def _delay_s(self) -> float | None:
        if self._stays_out:
            return None
        if self._state in ("missing", "failed"):
            return backoff_s(self._failures, self._ports.check_s)
        return self._ports.check_s

    async def _is_still_in(self) -> bool:
        try:
            await self._client.ping(self.source, self._room.nick)
        except StanzaError as error:
            return error.condition in _IN_THE_ROOM | _UNKNOWN
        return True

    async def _record_waiting(self) -> None:
        if isinstance(self._waiting[0], Joined):
            joined = self._waiting.popleft()
            assert isinstance(joined, Joined)
            await self._record(self._compared(joined.occupants))
            return
        moves: list[Moved] = []
        while self._waiting and len(moves) < _BATCH and isinstance(self._waiting[0], Moved):
            move = self._waiting.popleft()
            assert isinstance(move, Moved)
            moves.append(move)
        offered: list[Offered] = []
        for move in moves:
            if move.occupant.previous:
                offered.append(self._forgotten(move.occupant.previous))
            offered.append(self._offer(move))
        await self._record(offered)

    def _compared(
        self, occupants: Sequence[Occupant]
    ) -> Callable[[Database], Sequence[Offered] | None]:
        """The events by which those who are there now differ from those who were recorded last.

        The function gives None, and notes who is there, if nothing was recorded before.
        """
        room = str(self.source.service)

        def compare(database: Database) -> Sequence[Offered] | None:
            if not watch_rows.is_known(database, self._key):
                present = [observed("joined", each, room) for each in occupants]
                watch_rows.mark_known(database, self._key, present)
                return None
            before = watch_rows.versions(database, self._key)
            there = {watch_rows.item_key(each.nick): each for each in occupants}
            gone = [nick for nick, was in before.items() if was != LEFT and nick not in there]
            moves = [Moved("left", Occupant(nick=nick, show="offline")) for nick in gone]
            for nick, each in there.items():
                was_away = before.get(nick, LEFT) == LEFT
                moves.append(Moved("joined" if was_away else "changed", each))
            watch_rows.prune(database, self._key, [*there, *gone])
            return [self._offer(move) for move in moves]

        return compare

    def _offer(self, move: Moved) -> Offered:
        return self._interests.offer(observed(move.what, move.occupant, str(self.source.service)))

    def _forgotten(self, nick: str) -> Offered:
        """Return the mark that a nickname is not in use any more, which is no event."""
        return Offered(observed("left", Occupant(nick=nick), str(self.source.service)), (), b"")
