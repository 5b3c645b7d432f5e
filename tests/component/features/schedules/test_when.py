"""When a schedule fires, as people, models and settings write it."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.features.schedules.timing import Cron, Every, Once, Timing, TimingError, next_after
from component.features.schedules.when import read_timing, split_timing, timing_text

NOW = datetime(2026, 11, 23, 9, 0, 30, tzinfo=UTC)
BERLIN = "Europe/Berlin"


def at(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type, misc]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("0 9 * * mon", Cron("0 9 * * mon", BERLIN)),
        ("*/30 * * * *", Cron("*/30 * * * *", BERLIN)),
        ("@daily", Cron("@daily", BERLIN)),
        ("every 30 minutes", Every(1800, NOW + timedelta(minutes=30))),
        ("Every hour.", Every(3600, NOW + timedelta(hours=1))),
        ("every 2 weeks", Every(14 * 86400, NOW + timedelta(weeks=2))),
        ("every 90s", Every(90, NOW + timedelta(seconds=90))),
        ("every day at 8", Cron("0 8 * * *", BERLIN)),
        ("every weekday at 9:30", Cron("30 9 * * 1-5", BERLIN)),
        ("every monday and friday at 17.30", Cron("30 17 * * 1,5", BERLIN)),
        ("every Sunday, Tue at 9pm", Cron("0 21 * * 0,2", BERLIN)),
        ("every weekend at 12 am", Cron("0 0 * * 6,0", BERLIN)),
        ("in 20 minutes", Once(NOW + timedelta(minutes=20))),
        ("in an hour", Once(NOW + timedelta(hours=1))),
        ("today at 18", Once(at(2026, 11, 23, 17))),
        ("tomorrow at 7:15", Once(at(2026, 11, 24, 6, 15))),
        ("2026-12-24 at 18:00", Once(at(2026, 12, 24, 17))),
        ("2026-12-24T18:00", Once(at(2026, 12, 24, 17))),
        ("2026-12-24 18:00:30 +05:30", Once(at(2026, 12, 24, 12, 30, 30))),
        ("2026-12-24t18:00z", Once(at(2026, 12, 24, 18))),
        # A time in the gap, and one in the fold.
        ("2027-03-28 02:30", Once(at(2027, 3, 28, 1))),
        ("2027-10-31 02:30", Once(at(2027, 10, 31, 0, 30))),
    ],
)
def test_what_is_understood(text: str, wanted: Timing) -> None:
    found = read_timing(text, BERLIN, NOW)
    assert found == wanted
    assert timing_text(found)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "does not say when"),
        ("soon", "does not say when"),
        ("every blue moon at 9", "not a day of the week"),
        ("every t at 9", "not a day of the week"),
        ("every monday at 25", "no time 25:00"),
        ("every monday at 13 pm", "no hour 13 pm"),
        ("in 0 minutes", "between one second and ten years"),
        ("every 99999999 weeks", "between one second and ten years"),
        ("2026-02-30 at 8", "not a date"),
        ("2026-11-23 at 8", "has passed"),
        ("9998-01-01 at 8", "too far ahead"),
        ("9999-12-31T23:59-12:00", "out of range"),
        ("0001-01-01T00:00+12:00", "out of range"),
        ("x" * 300, "more than 200 characters"),
    ],
)
def test_what_is_not_understood(text: str, reason: str) -> None:
    with pytest.raises(TimingError, match=reason):
        read_timing(text, BERLIN, NOW)


words = st.sampled_from(
    ["every", "in", "at", "day", "monday", "and", "20", "9:30", "minutes", "*", "0", "2026-12-24"]
)


@given(st.one_of(st.text(max_size=60), st.lists(words, max_size=8).map(" ".join)), st.booleans())
def test_any_text_says_when_or_says_why_not(text: str, declared: bool) -> None:
    try:
        found = read_timing(text, BERLIN, NOW, declared=declared)
    except TimingError:
        return
    assert declared or next_after(found, NOW) is not None


def test_settings_may_name_what_has_passed_and_nothing_that_depends_on_when_they_are_read() -> None:
    passed = read_timing("2020-01-01 08:00", "UTC", NOW, declared=True)
    assert passed == Once(at(2020, 1, 1, 8))
    for text in ("in 20 minutes", "today at 18", "Tomorrow at 7"):
        with pytest.raises(TimingError, match="depends on when it is read"):
            read_timing(text, "UTC", NOW, declared=True)


@pytest.mark.parametrize(
    ("text", "when", "what"),
    [
        ("every monday at 9: sum up my week", "every monday at 9", "sum up my week"),
        ("every monday at 9:30 sum up", "every monday at 9:30", "sum up"),
        ("in 20 minutes remind me\nof the tea", "in 20 minutes", "remind me of the tea"),
        ("0 9 * * mon, look", "0 9 * * mon", "look"),
        ("@daily run report a=1", "@daily", "run report a=1"),
        ("2026-12-24 at 18:00: sing", "2026-12-24 at 18:00", "sing"),
    ],
)
def test_when_and_what_in_one_text(text: str, when: str, what: str) -> None:
    assert split_timing(text) == (when, what)


@given(
    st.sampled_from(["in 5 minutes", "every day at 8", "0 9 * * 1", "@weekly"]),
    st.text("abcdefgh xyz", min_size=1, max_size=400).filter(str.strip),
)
def test_a_colon_separates_any_text(when: str, what: str) -> None:
    found = split_timing(f"{when}: {what}")
    assert found[0] == when
    assert found[1].split() == what.split()


@pytest.mark.parametrize("text", ["", "tomorrow", "in 5 minutes:", "every monday at 9"])
def test_a_text_without_one_of_them(text: str) -> None:
    with pytest.raises(TimingError):
        split_timing(text)


@given(st.text(max_size=300))
def test_any_text_is_split_or_says_why_not(text: str) -> None:
    try:
        when, what = split_timing(text)
    except TimingError:
        return
    assert when
    assert what
