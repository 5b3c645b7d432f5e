"""Renders times for people: in their own time zone, or as a duration.

A client answers queries for its time zone (XEP-0202) if it wants to.
"""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta, timezone
from typing import Final

import anyio
from cachebox import LRUCache

from xep.disco import InfoQuery
from xep.entity_time import NAMESPACE, Time
from xep.jid import JID
from xep.stanza_error import StanzaError

_REMEMBERED_S: Final = 6 * 3600.0
_MOST_REMEMBERED: Final = 10_000
_PATIENCE_S: Final = 0.5
"""Seconds that a client has to answer with its time."""


class TimeZones:
    """Remembers the time zones of people for some hours.

    Args:
        ask: queries a client (a full JID) from one of the component's addresses for its time.
        clock: monotonic seconds; the event loop's by default.
    """

    def __init__(
        self,
        ask: Callable[[JID, JID], Awaitable[Time]],
        clock: Callable[[], float] = anyio.current_time,
    ) -> None:
        self._learned: list[Callable[[JID, timezone], None]] = []
        self._ask = ask
        self._clock = clock
        self._zones: LRUCache[JID, tuple[timezone, float]] = LRUCache(_MOST_REMEMBERED)
        """Each zone, and the time until which it is remembered."""

    def on_learned(self, call: Callable[[JID, timezone], None]) -> None:
        """Call a function with the bare JID of a person and the time zone that a client reports."""
        self._learned.append(call)

    def of(self, person: JID) -> timezone | None:
        """Return the time zone of the client that a person last used, if it reported one."""
        found = self._zones.get(person.bare, None)
        return found[0] if found is not None and self._clock() < found[1] else None

    async def learn(self, client: JID, at: JID, info: InfoQuery) -> None:
        """Query a client for its time, if `info` says that it supports that. Takes at most half a
        second; does nothing if the client does not answer.
        """
        if not client.resource or not any(each.var == NAMESPACE for each in info.features):
            return
        with anyio.move_on_after(_PATIENCE_S):
            try:
                found = await self._ask(client, at)
            except StanzaError:
                return
            self._zones[client.bare] = found.tzo, self._clock() + _REMEMBERED_S
            for call in self._learned:
                call(client.bare, found.tzo)


def in_local_time(time: datetime, now: datetime, zone: timezone) -> str:
    """Return a time in that time zone: `10:15 (UTC+01:00)`, with the date if it is not today."""
    local = time.astimezone(zone)
    seconds = f":{local:%S}" if local.second else ""
    date = "" if local.date() == now.astimezone(zone).date() else f"{local:%Y-%m-%d} "
    return f"{date}{local:%H:%M}{seconds} ({zone})"


def duration(time: timedelta) -> str:
    """Return a duration in one unit, rounded down: `2 hours`, `45 minutes`.

    Up to half a minute is added to hours and days before rounding, because a message was in transit
    for some time.
    """
    seconds = max(0, int(time.total_seconds()))
    if seconds < 120:
        return _counted(seconds, "second")
    minutes = (seconds + 30) // 60
    if minutes < 120:
        return _counted(minutes, "minute")
    hours = minutes // 60
    return _counted(hours, "hour") if hours < 48 else _counted(hours // 24, "day")


def _counted(count: int, unit: str) -> str:
    return f"{count} {unit}" if count == 1 else f"{count} {unit}s"
