"""The time zone of a person: the one they chose, that of their client, or that of the settings."""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta, timezone

from component.storage.notifications import Preferences
from component.zones import zone_named
from xep.jid import JID


class PersonZones:
    """Finds the names of time zones; see `component.zones.zone_named`.

    A client reports only an offset from UTC (XEP-0202). If that is the current offset of the zone
    of the settings, the person is taken to be in that zone, so that summer time is right. Otherwise
    the zone is that offset, as `UTC+09:00`.

    Args:
        preferences: what a person (a bare JID) has chosen, and the offset that a client last
            reported. Raises StorageError.
        reported: the offset that a client of the person has reported lately.
        ask: queries a client (a full JID) from an address of this service, if it can tell its time.
        default: the zone of the settings.
        now: the time.
    """

    def __init__(
        self,
        preferences: Callable[[JID], Awaitable[Preferences]],
        reported: Callable[[JID], timezone | None],
        ask: Callable[[JID, JID], Awaitable[None]],
        default: str,
        now: Callable[[], datetime],
    ) -> None:
        self._preferences = preferences
        self._reported = reported
        self._ask = ask
        self._default = default
        self._now = now

    async def of(self, person: JID, at: JID | None = None) -> str:
        """Return the name of the time zone of a person. Raises StorageError.

        With a full JID and an address of this service, that client is queried first if no client
        has reported its time lately.
        """
        preferences = await self._preferences(person.bare)
        if preferences.zone is not None and zone_named(preferences.zone) is not None:
            return preferences.zone
        if self._reported(person) is None and person.resource is not None and at is not None:
            await self._ask(person, at)
        offset = self._reported(person)
        if offset is None and preferences.utc_offset is not None:
            offset = timezone(timedelta(seconds=preferences.utc_offset))
        local = self._now().astimezone(zone_named(self._default))
        if offset is None or offset.utcoffset(None) == local.utcoffset():
            return self._default
        return str(offset)
