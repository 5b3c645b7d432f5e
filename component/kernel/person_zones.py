"""The time zone of a person: the one they chose, that of their client, or that of the settings."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Final

from component.kernel.contacts import ContactSubsystem
from component.storage.notifications import NotificationStore
from component.zones import zone_named
from xep.jid import JID


class PersonZones:
    """Finds the names of time zones; see `component.zones.zone_named`.

    A client reports only an offset from UTC (XEP-0202). If that is the current offset of the zone
    of the settings, the person is taken to be in that zone, so that summer time is right. Otherwise
    the zone is that offset, as `UTC+09:00`.

    Args:
        store: what people have chosen, and the offsets that their clients last reported.
        default: the name of the zone of the settings.
        contacts: asks clients for their time; None while no service runs.
        now: the time.
    """

    def __init__(
        self,
        store: NotificationStore,
        default: str,
        contacts: ContactSubsystem | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._store = store
        self.default: Final = default
        self._contacts = contacts
        self._now = now

    async def of(self, person: JID, at: JID | None = None) -> str:
        """Return the name of the time zone of a person. Raises StorageError.

        With a full JID and an address of this service, that client is queried first if no client
        has reported its time lately.
        """
        preferences = await self._store.preferences(person)
        if preferences.zone is not None and zone_named(preferences.zone) is not None:
            return preferences.zone
        offset = None
        if self._contacts is not None:
            reported = self._contacts.time_zones.of
            if reported(person) is None and person.resource is not None and at is not None:
                await self._contacts.ask_time(person, at)
            offset = reported(person)
        if offset is None and preferences.utc_offset is not None:
            offset = timezone(timedelta(seconds=preferences.utc_offset))
        local = self._now().astimezone(zone_named(self.default))
        if offset is None or offset.utcoffset(None) == local.utcoffset():
            return self.default
        return str(offset)
