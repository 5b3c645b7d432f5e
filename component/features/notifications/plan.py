"""Decides which notifications a person gets now, and in which messages.

These rules are applied in this order:

1. A message that may have been sent by a process that was killed is sent again, under its id.
2. Notifications that are held until the person is online wait. In quiet hours, the hours of the
   day in the person's time zone without notifications, all wait, except those that the person has
   set for that time, and those of high priority if the person allows that.
3. In each window a person gets only so many messages from one agent. If all due notifications fit,
   each is a message of its own. Otherwise the last message of the window is a digest of the rest;
   after it, all wait until the window permits another message.
4. A message without a receipt is sent once more after a while: of high priority always, of normal
   priority if a client of the person has sent receipts before, of low priority never.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, time, timedelta, tzinfo
from hashlib import sha256
from typing import Final

import msgspec

from component.config.work import Notifications, quiet_hours
from component.store.notifications import (
    PRIORITIES,
    Notification,
    Plan,
    PlannedMessage,
    Preferences,
    Recipient,
)
from component.zones import person_zone, zone_named

MESSAGE_PREFIX: Final = "notification-"
"""The prefix of the ids of all messages with notifications."""

MOST_IN_DIGEST: Final = 50

_LOOK_AGAIN_MS: Final = 15 * 60_000
"""Maximum interval between two checks of a recipient in quiet hours, since clocks may change."""
_REPEAT_WITHIN_MS: Final = 24 * 3_600_000
"""A notification that is older than this is not sent once more."""
_ON_TIME_MS: Final = 3_600_000
"""A notification that is older than this is no longer on time, so quiet hours delay it."""
_NEVER: Final = 2**62


class QuietHours(msgspec.Struct, frozen=True):
    """Hours of every day, by the clock on the wall: they may pass midnight. When the clock is put
    forward or back (DST), the clock on the wall decides: hours that end at 2:30 end at 3:00 if
    there is no 2:30 that day, and come twice if there are two.
    """

    begin: time
    end: time
    zone: tzinfo

    def covers(self, at: datetime) -> bool:
        """Return whether an instant (aware) is in the quiet hours."""
        local = at.astimezone(self.zone).time()
        if self.begin < self.end:
            return self.begin <= local < self.end
        return local >= self.begin or local < self.end

    def left(self, at: datetime) -> timedelta:
        """How long quiet hours that cover `at` last, if the clock is not put forward or back."""
        local = at.astimezone(self.zone).replace(tzinfo=None)
        end = datetime.combine(local.date(), self.end)
        return (end if end > local else end + timedelta(days=1)) - local


def effective(
    preferences: Preferences, settings: Notifications, default_zone: str, now: datetime
) -> QuietHours | None:
    """Return the quiet hours of a person, or those of the settings; None if there are none.
    `default_zone` is the time zone of people whose own is not known.
    """
    hours = quiet_hours(settings.quiet if preferences.quiet is None else preferences.quiet)
    if hours is None:
        return None
    return QuietHours(*hours, zone_of(preferences, default_zone, now))


def zone_of(preferences: Preferences, default_zone: str, now: datetime) -> tzinfo:
    """Return the time zone of a person; see `component.zones.person_zone`."""
    name = person_zone(preferences.zone, preferences.client_offset, default_zone, now)
    return zone_named(name) or UTC


def plan(recipient: Recipient, settings: Notifications, default_zone: str) -> Plan:
    """Decide what a recipient gets now. This is a pure function."""
    decision = _Decision(recipient, settings, default_zone)
    messages = tuple(decision.messages())
    if messages:
        return Plan(messages)
    looks = [look for look in decision.looks if look < _NEVER]
    return Plan((), max(1, min(looks)) if looks else None)


class _Decision:
    """One decision. `looks` are the milliseconds after which to decide again."""

    def __init__(self, recipient: Recipient, settings: Notifications, default_zone: str) -> None:
        self._recipient = recipient
        self._settings = settings
        self.looks: list[int] = []
        preferences = recipient.preferences
        now = datetime.fromtimestamp(recipient.now / 1000, UTC)
        hours = effective(preferences, settings, default_zone, now)
        self._is_quiet = hours is not None and hours.covers(now)
        if hours is not None and self._is_quiet:
            left = hours.left(now) // timedelta(milliseconds=1)
            self._quiet_look = min(left + 1, _LOOK_AGAIN_MS)

    def messages(self) -> Iterator[PlannedMessage]:
        unsent = [one for one in self._recipient.notifications if one.sent is None]
        begun = _by_message(unsent)
        again = [group for group in begun if self._may_go(group)]
        for group in again:
            yield PlannedMessage(str(group[0].message), _ids(group))
        ready = [
            one
            for one in unsent
            if one.message is None and not one.waits_online and self._may_go([one])
        ]
        yield from self._new(ready, len(again))
        yield from self._repeats()

    def _may_go(self, group: Sequence[Notification]) -> bool:
        if not self._is_quiet or all(map(self._passes, group)):
            return True
        self.looks.append(self._quiet_look)
        return False

    def _passes(self, one: Notification) -> bool:
        """Whether quiet hours do not delay a notification. They always delay its repetition."""
        if one.priority == "high" and self._recipient.preferences.urgent:
            return True
        age = self._recipient.now - one.created
        return one.on_time and one.sent is None and age <= _ON_TIME_MS

    def _new(self, ready: list[Notification], on_their_way: int) -> Iterator[PlannedMessage]:
        if not ready:
            return
        room = self._room() - on_their_way
        if room <= 0:
            return
        # The most urgent first; the oldest of these first.
        ready.sort(key=lambda one: -PRIORITIES.index(one.priority))
        alone = len(ready) if len(ready) <= room else room - 1
        for one in ready[:alone]:
            yield PlannedMessage(f"{MESSAGE_PREFIX}{one.id}", (one.id,))
        rest = ready[alone : alone + MOST_IN_DIGEST]
        if rest:
            digest = sha256(" ".join(_ids(rest)).encode()).hexdigest()[:32]
            yield PlannedMessage(f"{MESSAGE_PREFIX}{digest}", _ids(rest))

    def _room(self) -> int:
        since = self._recipient.steady - _ms(self._settings.window_s)
        times = {
            one.message: one.sent
            for one in self._recipient.notifications
            if one.sent is not None and one.sent > since
        }
        if times:
            self.looks.append(min(times.values()) - since)
        return self._settings.per_window - len(times)

    def _repeats(self) -> Iterator[PlannedMessage]:
        sent = [one for one in self._recipient.notifications if one.sent is not None]
        for group in _by_message(sent):
            after = self._repeat_after(group)
            age = self._recipient.steady - max(one.sent or 0 for one in group)
            if age >= _REPEAT_WITHIN_MS or after == _NEVER:
                continue
            if age < after:
                self.looks.append(after - age)
            elif self._may_go(group):
                yield PlannedMessage(str(group[0].message), _ids(group), is_repeat=True)

    def _repeat_after(self, group: Sequence[Notification]) -> int:
        if any(one.received or one.repeated for one in group):
            return _NEVER
        priority = max(group, key=lambda one: PRIORITIES.index(one.priority)).priority
        if priority == "high":
            return _ms(self._settings.repeat_high_s)
        receipts = self._recipient.preferences.sends_receipts
        return _ms(self._settings.repeat_s) if priority == "normal" and receipts else _NEVER


def _ms(seconds: float) -> int:
    return int(seconds * 1000)


def _by_message(notifications: Iterable[Notification]) -> list[list[Notification]]:
    groups: dict[str, list[Notification]] = {}
    for one in notifications:
        if one.message is not None:
            groups.setdefault(one.message, []).append(one)
    return list(groups.values())


def _ids(group: Iterable[Notification]) -> tuple[str, ...]:
    return tuple(one.id for one in group)
