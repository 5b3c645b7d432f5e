"""Quiet hours: the hours of the day, in a person's time zone, without notifications."""

from datetime import UTC, datetime, time, timedelta, timezone, tzinfo

import msgspec

from component.settings.work import quiet_hours, time_zone
from component.storage.notifications import Preferences


class QuietHours(msgspec.Struct, frozen=True):
    """Hours of every day, by the clock on the wall: they may pass midnight.

    When the clock is put forward or back (DST), the clock on the wall decides: hours that end at
    2:30 end at 3:00 if there is no 2:30 that day, and come twice if there are two.
    """

    begin: time
    end: time
    zone: tzinfo

    def covers(self, at: datetime) -> bool:
        """Whether an instant (aware) is in the quiet hours."""
        local = at.astimezone(self.zone).time()
        if self.begin < self.end:
            return self.begin <= local < self.end
        return local >= self.begin or local < self.end

    def left(self, at: datetime) -> timedelta:
        """How long quiet hours that cover `at` last, if the clock is not put forward or back."""
        local = at.astimezone(self.zone).replace(tzinfo=None)
        end = datetime.combine(local.date(), self.end)
        return (end if end > local else end + timedelta(days=1)) - local


def effective(preferences: Preferences, default: str, default_zone: str) -> QuietHours | None:
    """The quiet hours of a person; None if there are none.

    `default` and `default_zone` are those of the settings, for people who have chosen none.
    """
    hours = quiet_hours(default if preferences.quiet is None else preferences.quiet)
    if hours is None:
        return None
    return QuietHours(*hours, zone_of(preferences, default_zone))


def zone_of(preferences: Preferences, default_zone: str) -> tzinfo:
    """The time zone of a person: the one they chose, that of their client, or the default."""
    chosen = None if preferences.zone is None else time_zone(preferences.zone)
    if chosen is not None:
        return chosen
    if preferences.utc_offset is not None:
        return timezone(timedelta(seconds=preferences.utc_offset))
    return time_zone(default_zone) or UTC
