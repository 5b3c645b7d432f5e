"""Quiet hours by the clock on the wall, also when it is put forward or back."""

from datetime import UTC, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.config.work import Notifications, quiet_hours, time_zone
from component.features.notifications.plan import QuietHours, effective, plan
from component.store.notifications import Notification, Preferences, Recipient
from tests.profiles import examples
from xep.jid import JID

PARIS = ZoneInfo("Europe/Paris")
ZONES = st.sampled_from(["Europe/Paris", "America/New_York", "Australia/Lord_Howe", "UTC"])
TIMES = st.times().map(lambda at: at.replace(second=0, microsecond=0))
INSTANTS = st.datetimes(datetime(2026, 1, 1), datetime(2027, 12, 31))  # noqa: DTZ001 - made aware


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("hours", "instant", "is_quiet"),
    [
        ("22:00-07:00", "2026-01-10T21:30", True),  # 22:30 in Paris
        ("22:00-07:00", "2026-01-10T20:59", False),
        ("22:00-07:00", "2026-01-10T06:00", False),
        ("22:00-07:00", "2026-07-10T20:00", True),  # DST
        ("22:00-07:00", "2026-07-10T05:00", False),
        ("22:00-02:30", "2026-03-29T00:59", True),  # 1:59, before the clock is put forward
        ("22:00-02:30", "2026-03-29T01:00", False),  # 3:00: there is no 2:30
        ("02:30-04:00", "2026-03-29T01:00", True),
        ("22:00-02:30", "2026-10-25T00:29", True),  # 2:29, the first time
        ("22:00-02:30", "2026-10-25T00:45", False),
        ("22:00-02:30", "2026-10-25T01:15", True),  # 2:15, the second time
        ("22:00-02:30", "2026-10-25T01:30", False),
        ("09:00-17:00", "2026-01-10T12:00", True),
    ],
)
def test_quiet_hours_cover_instants_by_their_local_time(
    hours: str, instant: str, is_quiet: bool
) -> None:
    found = quiet_hours(hours)
    assert found is not None
    assert QuietHours(*found, PARIS).covers(at(instant)) == is_quiet


@given(TIMES, TIMES, ZONES, INSTANTS)
def test_quiet_hours_end_after_the_time_that_is_left(
    begin: time, end: time, zone: str, naive: datetime
) -> None:
    if begin == end:
        return
    hours = QuietHours(begin, end, ZoneInfo(zone))
    now = naive.replace(tzinfo=UTC)
    if not hours.covers(now):
        return
    left = hours.left(now)
    assert timedelta(0) < left <= timedelta(days=1)
    later = now + left
    offset = now.astimezone(hours.zone).utcoffset()
    if later.astimezone(hours.zone).utcoffset() == offset:
        assert not hours.covers(later)
        assert hours.covers(later - timedelta(microseconds=1))


@examples(5)
@given(INSTANTS, ZONES)
def test_a_held_notification_is_sent_soon_after_they_end(naive: datetime, zone: str) -> None:
    """Looking again whenever the plan says so, at most a minute late, whatever the clock does."""
    preferences = Preferences(quiet="22:00-07:00", zone=zone)
    person = JID.parse("juliet@example.com")
    one = Notification(id="1", agent=person, person=person, title="", text="x")
    now = int(naive.replace(tzinfo=UTC).timestamp() * 1000)
    for _ in range(60):
        recipient = Recipient(now=now, steady=now, preferences=preferences, notifications=(one,))
        found = plan(recipient, Notifications(), "UTC")
        moment = datetime.fromtimestamp(now / 1000, UTC)
        hours = effective(preferences, Notifications(quiet=""), "UTC", moment)
        assert hours is not None
        assert bool(found.messages) != hours.covers(moment)
        if found.messages:
            return
        assert found.look_in is not None
        now += found.look_in
    raise AssertionError("it is held for more than a night")


@pytest.mark.parametrize(
    ("one", "is_sent"),
    [
        ({"on_time": True}, True),
        ({}, False),
        ({"on_time": True, "created": -3_600_001}, False),  # it is late by more than an hour
        ({"on_time": True, "waits_online": True}, False),
        ({"on_time": True, "message": "m", "sent": -3_600_000}, False),  # no repetition at night
        ({"priority": "high"}, False),
    ],
)
def test_only_what_a_person_has_set_for_a_time_comes_in_quiet_hours(
    one: dict[str, Any], is_sent: bool
) -> None:
    now = int(at("2026-01-10T23:30").timestamp() * 1000)
    person = JID.parse("juliet@example.com")
    more = {**one, "created": now + one.get("created", 0)}
    if "sent" in one:
        more["sent"] = now + one["sent"]
    found = Notification(id="1", agent=person, person=person, title="", text="x", **more)
    recipient = Recipient(
        now=now,
        steady=now,
        preferences=Preferences(sends_receipts=True),
        notifications=(found,),
    )
    assert bool(plan(recipient, Notifications(), "UTC").messages) == is_sent


def test_the_zone_that_a_client_tells_counts() -> None:
    night = at("2026-01-10T23:30")
    for hours, is_quiet in ((0, True), (9, False)):  # in Tokyo it is 8:30
        found = effective(Preferences(utc_offset=hours * 3600), Notifications(), "UTC", night)
        assert found is not None
        assert found.covers(night) == is_quiet


@pytest.mark.parametrize("text", ["", "22-7", "24:00-07:00", "7:00-7:00", "22:00", "a:bc-d:ef"])
def test_what_is_no_quiet_hours(text: str) -> None:
    assert quiet_hours(text) is None


@given(st.text(max_size=20))
def test_any_text_is_read_as_quiet_hours_or_refused(text: str) -> None:
    found = quiet_hours(text)
    assert found is None or found[0] != found[1]
    assert text == "UTC" or time_zone(text) is None or "/" in text or text.isascii()
