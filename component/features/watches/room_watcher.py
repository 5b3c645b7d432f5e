"""Observes who is in a room (XEP-0045), and records who comes and goes.

Only the room knows its occupants. After each join they are compared with those that were recorded
last. So an agent that was away detects who has come or gone in the meantime, but not who has done
both.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import msgspec
from anyio.lowlevel import checkpoint

from component.features.watches.events import OfferedEvent
from component.features.watches.rows import SourceRows, item_key
from component.features.watches.sources import Result, SourcePorts, SourceWatcher
from component.features.watches.watch import Observed, Source, Watch
from component.kernel.rooms.membership import Change, Elsewhere, Membership, Stay
from component.kernel.rooms.occupants import Joined, Moved, Out, RoomOccupant, What
from component.kernel.rooms.rooms import Rooms
from xep.binding.escaping import escape_attribute, escape_text

USER: Final = "watches"
"""The name of the watches among the users of a membership."""
LEFT: Final = "left"
"""The version of an occupant who is not in the room."""


def observed(what: What, occupant: RoomOccupant, room: str) -> Observed:
    """Return an event of a room as a watch handles it: its item is the nickname."""
    members = {"event": what, **{name: getattr(occupant, name) for name in _SHOWN}}
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


_BATCH: Final = 500
_SHOWN: Final = ("nick", "jid", "affiliation", "role", "show", "status", "previous")
"""The attributes of an occupant that work gets."""


class RoomWatcher(SourceWatcher[Moved | Joined]):
    """Observes the occupants of a room. All watches of a room share one occupant, with the nickname
    of the first of them by id.
    """

    _after_overflow = "due"

    def __init__(self, source: Source, ports: SourcePorts, rooms: Rooms) -> None:
        super().__init__(source, ports)
        self._rooms = rooms
        self._stay: Stay | None = None

    def set_watches(self, watches: Mapping[str, Watch]) -> None:
        """Offer events to these watches from now on. Raises FilterError."""
        super().set_watches(watches)
        named = [watch.nick for _, watch in sorted(watches.items()) if watch.nick]
        if len(set(named)) > 1:
            self._log.warning("watches of one room name several nicknames; one is used")
        title = next((one.agent for one in watches.values()), "")
        stay = Stay(
            self._changed,
            nick=named[0] if named else "",
            check_s=self._ports.check_s,
            tells_admins=any(not watch.owner for watch in watches.values()),
        )
        if stay != self._stay:  # a room that has removed the agent is not tried again for nothing
            self._stay = stay
            self._rooms.enter(self.source.subscriber, self.source.service, USER, stay, title)

    async def unsubscribe(self) -> None:
        """Leave the room, because no watch needs it any more."""
        self._rooms.leave(self.source.subscriber, self.source.service, USER)
        await checkpoint()

    def _changed(self, membership: Membership, change: Change) -> None:
        if self._subscription.state == "offline":
            return
        if isinstance(change, Elsewhere):
            self._reason = membership.reason
            self._advance("elsewhere")
            return
        if isinstance(change, Out):
            self._reason = change.reason
            result: Result = "failed" if change.again == "soon" else "missing"
            self._advance("refused" if change.refused else result)
            return
        if isinstance(change, Joined):
            self._waiting.clear()
            self._advance("joined")
        if isinstance(change, Joined | Moved):
            self._put(change)

    async def _step(self) -> None:
        found = self._rooms.get(self.source.subscriber, self.source.service)
        state = self._subscription.state
        if self._waiting and state != "offline":
            await self._record_waiting()
        elif state == "subscribing" and found is not None and found.is_in:
            self._changed(found, Joined(tuple(found.view.occupants.values())))
        else:
            await self._wake.wait()

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
