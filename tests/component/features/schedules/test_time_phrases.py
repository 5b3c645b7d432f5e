"""Times in words are understood whole, by the clock of the person, or refused with the reason."""

from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.features.schedules.timing import (
    Cron,
    Every,
    Once,
    Timing,
    TimingError,
    instants_after,
    next_after,
)
from component.features.schedules.when import read_timing, split_timing, split_zone, timing_text
from component.zones import zone_named

NOW = datetime(2026, 11, 23, 0, 0, 30, tzinfo=UTC)
"""A Monday, 9:00:30 in Tokyo."""
TOKYO = "Asia/Tokyo"
EAST = "UTC+09:00"
NAMES = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def local(timing: Timing, count: int, zone: str = TOKYO) -> list[str]:
    """The first instants of a timing, on the clock of the person."""
    found: list[str] = []
    for instant in instants_after(timing, NOW):
        found.append(f"{instant.astimezone(ZoneInfo(zone)):%a %d %H:%M}")
        if len(found) == count:
            break
    return found


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("every day at 9, 12 and 18", ["Mon 23 12:00", "Mon 23 18:00", "Tue 24 09:00"]),
        ("every day at 9:30 and 18:00", ["Mon 23 09:30", "Mon 23 18:00", "Tue 24 09:30"]),
        ("twice a day at 8 am and 8 pm", ["Mon 23 20:00", "Tue 24 08:00", "Tue 24 20:00"]),
        ("at 9 and 18 on weekends", ["Sat 28 09:00", "Sat 28 18:00", "Sun 29 09:00"]),
        ("every day at noon except Tuesday", ["Mon 23 12:00", "Wed 25 12:00", "Thu 26 12:00"]),
        ("every day except on tuesdays at 12", ["Mon 23 12:00", "Wed 25 12:00", "Thu 26 12:00"]),
        ("every weekday but Tuesday at 10", ["Mon 23 10:00", "Wed 25 10:00", "Thu 26 10:00"]),
        ("every second Friday at 9", ["Fri 27 09:00", "Fri 11 09:00", "Fri 25 09:00"]),
        ("every 2 weeks on mon and wed at 10", ["Mon 23 10:00", "Wed 25 10:00", "Mon 07 10:00"]),
        ("every other day at 8", ["Tue 24 08:00", "Thu 26 08:00", "Sat 28 08:00"]),
        ("every 2 weeks starting friday at 9", ["Fri 27 09:00", "Fri 11 09:00", "Fri 25 09:00"]),
        ("on weekdays at half past nine", ["Mon 23 09:30", "Tue 24 09:30", "Wed 25 09:30"]),
        ("every mon-wed at quarter to ten", ["Mon 23 09:45", "Tue 24 09:45", "Wed 25 09:45"]),
        ("every evening at 8", ["Mon 23 20:00", "Tue 24 20:00", "Wed 25 20:00"]),
        ("monday evenings at 8", ["Mon 23 20:00", "Mon 30 20:00", "Mon 07 20:00"]),
        ("mon and wed mornings at 10", ["Mon 23 10:00", "Wed 25 10:00", "Mon 30 10:00"]),
        ("every night at midnight", ["Tue 24 00:00", "Wed 25 00:00", "Thu 26 00:00"]),
        ("in seventy-five minutes", ["Mon 23 10:15"]),
        ("9am on mondays", ["Mon 30 09:00", "Mon 07 09:00", "Mon 14 09:00"]),
        ("daily at nine thirty", ["Mon 23 09:30", "Tue 24 09:30", "Wed 25 09:30"]),
        ("every day at 10 until Wednesday", ["Mon 23 10:00", "Tue 24 10:00", "Wed 25 10:00"]),
        ("every day at 10 from tomorrow", ["Tue 24 10:00", "Wed 25 10:00", "Thu 26 10:00"]),
        ("every 60 minutes until noon", ["Mon 23 10:00", "Mon 23 11:00"]),
        ("every hour and a half", ["Mon 23 10:30", "Mon 23 12:00", "Mon 23 13:30"]),
        ("on the 15th of every month at 9", ["Tue 15 09:00", "Fri 15 09:00", "Mon 15 09:00"]),
        ("every first monday of the month at 9", ["Mon 07 09:00", "Mon 04 09:00", "Mon 01 09:00"]),
        ("monthly on the last day at 18", ["Mon 30 18:00", "Thu 31 18:00", "Sun 31 18:00"]),
        ("in an hour and a half", ["Mon 23 10:30"]),
        ("in half an hour", ["Mon 23 09:30"]),
        ("in 1h30m", ["Mon 23 10:30"]),
        ("in two and a half hours", ["Mon 23 11:30"]),
        ("20 minutes from now", ["Mon 23 09:20"]),
        ("in 3 days at 9", ["Thu 26 09:00"]),
        ("at noon", ["Mon 23 12:00"]),
        ("9am", ["Tue 24 09:00"]),
        ("tonight at 8", ["Mon 23 20:00"]),
        ("friday at 9", ["Fri 27 09:00"]),
        ("tomorrow evening at half past seven", ["Tue 24 19:30"]),
        ("24 December at 18", ["Thu 24 18:00"]),
        ("December 24, 2026 at 6 p.m.", ["Thu 24 18:00"]),
        ("every monday at 9 Europe/Paris", ["Mon 23 17:00", "Mon 30 17:00", "Mon 07 17:00"]),
        ("every day at 0:00 UTC", ["Tue 24 09:00", "Wed 25 09:00", "Thu 26 09:00"]),
    ],
)
def test_a_time_in_words_is_by_the_clock_of_the_person(text: str, wanted: list[str]) -> None:
    timing = read_timing(text, TOKYO, NOW)
    assert local(timing, 3) == wanted[:3]
    assert split_timing(f"{text}: measure") == (" ".join(text.split()), "measure")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("every day at 9, 12 and lunch", "only 'every day at 9, 12' is understood.*'and lunch'"),
        ("every day at 9 for two weeks", "only 'every day at 9' is understood.*'for two weeks'"),
        ("every day at 9 except 24 December", "'except 24 December' is not"),
        ("every hour from 9 to 17", "'from 9 to 17' is not"),
        ("every day at 9 to 17", "'to 17' is not"),
        ("every day at 9 and on friday at 10", "'and on friday at 10' is not"),
        ("in an hour and a bit", "only 'in an hour' is understood.*'and a bit' is not"),
        ("every day at 9 and 6pm", "am or pm for some"),
        ("every day at 9 CET", "'CET' is not"),
        ("every day at 9 Mars/Base", "no time zone 'Mars/Base'"),
        ("twice a day", "does not say at which times"),
        ("three times a day at 9 and 18", "has 2 times of the day and says 3"),
        ("every third friday at 9", "may mean every 3 weeks, or once a month"),
        ("every monday", "'every monday' is understood, and does not say at which times"),
        ("every week at 9", "an interval with times of the day"),
        ("tomorrow morning", "does not say at which time of the day"),
        ("tomorrow at 9 and 12", "2 times on one date"),
        ("at 8 every evening", "part of the day after the time"),
        ("friday night at midnight", "does not say which day: write 0:00"),
        ("every friday evening at midnight", "does not say which day: write 0:00"),
        ("tonight at midnight", "does not say which day: write 0:00"),
        ("next friday at 9", "does not say which day"),
        ("in 2 months", "no fixed length"),
        ("every few hours", "'few' is not a day of the week"),
        ("every day at quarter past nine:15", "is not understood|not clearly|and ':15'"),
        ("every day at 9:30:15", "':15' is not"),
        ("every weekday except weekdays at 9", "leaves no day"),
        ("mon-wed at quarter to ten", "only 'mon' is understood, and '-wed at"),
    ],
)
def test_a_time_that_is_not_understood_whole_is_refused_with_what_was(
    text: str, reason: str
) -> None:
    with pytest.raises(TimingError, match=reason):
        read_timing(text, TOKYO, NOW)
    with pytest.raises(TimingError):
        split_timing(f"{text}: measure")


@pytest.mark.parametrize(
    "text",
    [
        "every day at 9 measure except sunday",
        "every day at 9 and then measure",
        "every day at 9 in the office measure",
        "in an hour and a bit tea",
        "every day at 9 until the rain stops: measure",
        "every monday at 9 write: hello",
        "tomorrow at 9 or 10 call",
    ],
)
def test_words_that_may_belong_to_the_time_are_not_taken_for_the_goal(text: str) -> None:
    with pytest.raises(TimingError, match=r"is not|clearly the time"):
        split_timing(text)


hours = st.integers(0, 23)
minutes = st.sampled_from((0, 5, 15, 30, 45, 59))
clocks = st.lists(st.tuples(hours, minutes), min_size=1, max_size=4, unique=True)
day_sets = st.sets(st.integers(0, 6), min_size=1, max_size=7)
zones = st.sampled_from((TOKYO, EAST, "UTC", "Europe/Berlin", "America/New_York"))


def listed(words: list[str], *, oxford: bool) -> str:
    if len(words) == 1:
        return words[0]
    return f"{', '.join(words[:-1])}{',' * oxford} and {words[-1]}"


def clock(at: tuple[int, int], style: int) -> str:
    hour, minute = at
    if style == 1 or (style == 2 and minute == 0 and hour > 12):
        return f"{hour}" if minute == 0 and style == 2 else f"{hour:02}.{minute:02}"
    if style == 2:
        half = "am" if hour < 12 else "pm"
        return f"{hour % 12 or 12}:{minute:02} {half}"
    return f"{hour}:{minute:02}"


@given(
    day_sets,
    day_sets,
    clocks,
    st.integers(0, 1),
    st.booleans(),
    st.booleans(),
    zones,
    st.sampled_from(("", " except ", " but not on ", ", excluding ")),
)
def test_generated_phrases_fire_exactly_at_the_wall_clock_times_that_they_name(
    days: set[int],
    without: set[int],
    times: list[tuple[int, int]],
    style: int,
    oxford: bool,
    times_first: bool,
    zone: str,
    exception: str,
) -> None:
    left = days - without if exception else days
    named = listed([NAMES[one] for one in sorted(days)], oxford=oxford)
    said = "at " + listed([clock(one, style) for one in times], oxford=oxford)
    text = f"{said} every {named}" if times_first else f"every {named} {said}"
    if exception:
        text += exception + listed([NAMES[one] for one in sorted(without)], oxford=oxford)
    if not left or (exception and len(without) == 7):
        with pytest.raises(TimingError):
            read_timing(text, zone, NOW)
        return
    assert split_timing(f"{text}: measure") == (text, "measure")
    timing = read_timing(text, zone, NOW)
    where = zone_named(zone)
    assert where is not None
    end = NOW + timedelta(days=15)
    today = NOW.astimezone(where).date()
    wanted = sorted(
        instant
        for ahead in range(17)
        if (day := today + timedelta(ahead)).weekday() in left
        for at in times
        if NOW < (instant := at_wall(day, at, where)) <= end
    )
    found = []
    for instant in instants_after(timing, NOW):
        if instant > end:
            break
        found.append(instant)
    assert found == wanted
    assert zone in timing_text(timing, zone, text)


def at_wall(day: date, at: tuple[int, int], where: object) -> datetime:
    return datetime.combine(day, time(*at), tzinfo=where).astimezone(UTC)  # type: ignore[arg-type]


WORDS = (
    *("every", "each", "day", "days", "weekday", "monday", "fridays", "second", "other", "last"),
    *("at", "9", "12", "18:30", "9am", "noon", "half", "past", "nine", "quarter", "to", "ten"),
    *("and", ",", "or", "except", "but", "until", "from", "in", "an", "hour", "a", "90", "minutes"),
    *("of", "the", "month", "15th", "tomorrow", "24", "december", "morning", "UTC", "weekly"),
    *("twice", "times", "on", "2", "weeks", "starting", "for", "sharp", "o'clock"),
)


@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=9).map(" ".join))
def test_any_words_of_time_are_understood_whole_or_refused(text: str) -> None:
    try:
        timing = read_timing(text, TOKYO, NOW)
    except TimingError:
        with pytest.raises(TimingError):
            split_timing(f"{text}: measure")
        return
    assert next_after(timing, NOW) is not None
    # Another word that means nothing makes the same text invalid: no word is skipped.
    with pytest.raises(TimingError):
        read_timing(f"{text} bananas", TOKYO, NOW)
    words = text.split()
    for place in range(len(words) + 1):
        with pytest.raises(TimingError):
            read_timing(" ".join((*words[:place], "bananas", *words[place:])), TOKYO, NOW)


@given(
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=9).map(" ".join),
    st.sampled_from(("measure", "call mum", "water the plants")),
)
def test_no_word_of_the_time_is_in_the_goal(text: str, goal: str) -> None:
    try:
        when, what = split_timing(f"{text} {goal}")
    except TimingError:
        return
    assert what == goal
    assert " ".join(when.split()) == text.rstrip(" ,")


def test_a_fixed_offset_and_a_name_differ_in_summer() -> None:
    winter = datetime(2026, 11, 23, tzinfo=UTC)
    fixed = read_timing("every day at 9", "UTC+01:00", winter)
    named = read_timing("every day at 9", "Europe/Berlin", winter)
    summer = datetime(2027, 7, 1, tzinfo=UTC)
    assert next_after(fixed, winter) == next_after(named, winter)
    assert next_after(fixed, summer) == summer + timedelta(hours=8)
    assert next_after(named, summer) == summer + timedelta(hours=7)


def test_the_zone_that_a_time_names_is_used_and_shown() -> None:
    assert split_zone("every monday at 9 in Europe/Paris time", TOKYO) == (
        "every monday at 9",
        "Europe/Paris",
    )
    assert split_zone("every monday at 9 GMT+2", TOKYO) == ("every monday at 9", "UTC+02:00")
    assert split_zone("every monday at 9", TOKYO) == ("every monday at 9", TOKYO)
    text = "every monday at 9 UTC-3:30"
    timing = read_timing(text, TOKYO, NOW)
    assert timing == Cron("0 9 * * 1", "UTC-03:30")
    assert timing_text(timing, TOKYO, text) == "every monday at 9, 0 9 * * 1 (UTC-03:30)"
    once = read_timing("tomorrow at 9", EAST, NOW)
    assert once == Once(datetime(2026, 11, 24, tzinfo=UTC))
    assert timing_text(once, EAST) == "once at 2026-11-24 09:00 UTC+09:00"
    until = read_timing("every 2 hours until tomorrow at 9", EAST, NOW)
    assert isinstance(until, Every)
    assert timing_text(until, EAST) == "every 2 hours until 2026-11-24 09:00 UTC+09:00"


def test_the_settings_may_not_say_until_when_in_relative_words() -> None:
    for text in ("every day at 9 until friday", "friday at 9", "at noon", "24 december at 9"):
        with pytest.raises(TimingError, match="depends on when it is read"):
            read_timing(text, "UTC", NOW, declared=True)
    assert read_timing("every day at 9 until 2026-12-24", "UTC", NOW, declared=True)
