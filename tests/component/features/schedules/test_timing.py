"""When schedules fire: compared with what the calendar says, in zones with daylight saving time."""

import itertools
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from component.features.schedules.timing import (
    Cron,
    Every,
    Once,
    Timing,
    TimingError,
    checked_timing,
    due_instants,
    instants_after,
    local_instant,
    next_after,
    shortest_interval,
    zone_of,
)

ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo", "UTC")
"""Lord Howe Island sets its clocks by half an hour, Cairo at midnight."""

YEARS = datetime(2024, 1, 1), datetime(2028, 1, 1)  # noqa: DTZ001 - hypothesis wants them so
instants = st.datetimes(*YEARS, timezones=st.just(UTC)).map(
    lambda found: found.replace(microsecond=0)
)
zones = st.sampled_from(ZONES)


def field(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    return st.one_of(
        st.just("*"),
        number.map(str),
        st.integers(2, 30).map(lambda step: f"*/{step}"),
        st.lists(number, min_size=1, max_size=3).map(lambda found: ",".join(map(str, found))),
        st.tuples(number, number).map(lambda found: f"{min(found)}-{max(found)}"),
    )


expressions = st.tuples(field(0, 59), field(0, 23), field(1, 28), field(1, 12), field(0, 6)).map(
    " ".join
)
crons = st.builds(Cron, expressions, zones)
timings: st.SearchStrategy[Timing] = st.one_of(
    crons,
    st.builds(Once, instants),
    st.builds(Every, st.integers(60, 10 * 86400), instants),
)


def exists(moment: datetime, zone: ZoneInfo) -> bool:
    there = moment.replace(tzinfo=zone)
    return there.astimezone(UTC).astimezone(zone).replace(tzinfo=None) == moment


def at_local_time(day: date, hour: int, minute: int, zone: ZoneInfo) -> datetime:
    """What the documentation promises of a fixed local time, in other words than the code's."""
    moment = datetime.combine(day, time(hour, minute))
    while not exists(moment, zone):
        moment += timedelta(minutes=1)
    return moment.replace(tzinfo=zone, fold=0).astimezone(UTC)


@given(zones, st.integers(0, 23), st.integers(0, 59), st.integers(2024, 2027))
def test_a_fixed_local_time_fires_once_a_day(zone: str, hour: int, minute: int, year: int) -> None:
    where = ZoneInfo(zone)
    days = [date(year, 1, 1) + timedelta(days=number) for number in range(365)]
    wanted = [at_local_time(day, hour, minute, where) for day in days]
    timing = Cron(f"{minute} {hour} * * *", zone)
    found, instant = list[datetime](), wanted[0] - timedelta(seconds=1)
    for _ in days:
        following = next_after(timing, instant)
        assert following is not None
        found.append(following)
        instant = following
    assert found == wanted


def fires(
    expression: str, begin: datetime, end: datetime, zone: str = "Europe/Berlin"
) -> list[str]:
    found = []
    for instant in instants_after(Cron(expression, zone), begin):
        if instant > end:
            break
        found.append(f"{instant.astimezone(ZoneInfo(zone)):%H:%M%z}")
    return found


def test_a_time_in_the_gap_fires_at_its_end() -> None:
    night = datetime(2026, 3, 28, 23, tzinfo=UTC), datetime(2026, 3, 29, 4, tzinfo=UTC)
    assert fires("30 2 * * *", *night) == ["03:00+0200"]
    assert fires("0,30 2 * * *", *night) == ["03:00+0200"], "of several in the gap one remains"
    assert fires("*/30 2 * * *", *night) == [], "there is no such hour"


def test_a_time_in_the_fold_fires_once_and_a_wildcard_in_both_passes() -> None:
    night = datetime(2026, 10, 24, 23, 45, tzinfo=UTC), datetime(2026, 10, 25, 2, tzinfo=UTC)
    assert fires("30 2 * * *", *night) == ["02:30+0200"]
    assert fires("0 2 * * *", *night) == ["02:00+0200"]
    both = ["02:00+0200", "02:30+0200", "02:00+0100", "02:30+0100"]
    assert fires("*/30 * * * *", *night) == [*both, "03:00+0100"]
    assert fires("*/30 2 * * *", *night) == both


def test_a_clock_that_is_set_by_half_an_hour_loses_nothing() -> None:
    """On Lord Howe Island, 2:00 becomes 2:30 in October, and 1:30 in April."""
    zone = "Australia/Lord_Howe"
    forward = datetime(2027, 10, 2, 13, 0, tzinfo=UTC), datetime(2027, 10, 3, 2, tzinfo=UTC)
    assert fires("*/20 */12 * * *", *forward, zone=zone) == [
        *("00:00+1030", "00:20+1030", "00:40+1030"),
        *("12:00+1100", "12:20+1100", "12:40+1100"),
    ]
    back = datetime(2027, 4, 3, 12, 0, tzinfo=UTC), datetime(2027, 4, 3, 18, tzinfo=UTC)
    assert fires("*/20 */3 * * *", *back, zone=zone) == [
        *("00:00+1100", "00:20+1100", "00:40+1100"),
        *("03:00+1030", "03:20+1030", "03:40+1030"),
    ]


@example(Cron("*/10 */12 3 * */4", "Australia/Lord_Howe"), datetime(2027, 10, 2, 13, 0, tzinfo=UTC))
@given(timings, instants)
def test_instants_follow_each_other_and_are_the_same_from_wherever_one_looks(
    timing: Timing, begin: datetime
) -> None:
    found = []
    for instant in instants_after(timing, begin):
        found.append(instant)
        if len(found) == 20:
            break
    assert found == sorted(set(found))
    assert all(instant > begin and instant.tzinfo is UTC for instant in found)
    for before, after in zip([begin, *found], found, strict=False):
        assert next_after(timing, before) == after
        middle = before + (after - before) / 2
        assert next_after(timing, middle) == after, "no instant is found from the middle only"


@given(timings, instants, st.integers(1, 40 * 86400), st.integers(1, 12))
def test_what_is_due_are_the_latest_instants(
    timing: Timing, begin: datetime, seconds: int, most: int
) -> None:
    first = next_after(timing, begin)
    if first is None:
        return
    now = first + timedelta(seconds=seconds)
    wanted = [first]
    for instant in instants_after(timing, first):
        if instant > now or len(wanted) > 100_000:
            break
        wanted.append(instant)
    found, following = due_instants(timing, first, now, most)
    assert found == wanted[-most:]
    assert following == next_after(timing, now)


@given(timings, instants)
def test_nothing_is_due_before_the_first_instant(timing: Timing, begin: datetime) -> None:
    first = next_after(timing, begin)
    if first is not None:
        assert due_instants(timing, first, first - timedelta(seconds=1), 5) == ([], first)


def test_many_instants_take_no_time() -> None:
    """A schedule that was not looked at for six years has three million instants."""
    begin, now = datetime(2020, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)
    found, following = due_instants(Cron("* * * * *", "Europe/Berlin"), begin, now, 3)
    assert [f"{one:%H:%M}" for one in found] == ["23:58", "23:59", "00:00"]
    assert following == now + timedelta(minutes=1)


@given(crons, instants)
def test_no_two_instants_are_closer_than_the_shortest_interval(
    timing: Cron, begin: datetime
) -> None:
    shortest = shortest_interval(timing, begin)
    found = []
    for instant in instants_after(timing, begin):
        found.append(instant)
        if len(found) == 50 or instant - begin > timedelta(days=300):
            break
    gaps = [after - before for before, after in itertools.pairwise(found)]
    if shortest is not None:
        assert all(gap >= shortest for gap in gaps)


@pytest.mark.parametrize(
    ("expression", "seconds"),
    [("* * * * *", 60), ("*/5 * * * *", 300), ("0 9 * * *", 86400), ("0,1 9 * * *", 60)],
)
def test_the_shortest_interval_of_an_expression(expression: str, seconds: int) -> None:
    found = shortest_interval(Cron(expression), datetime(2026, 1, 1, tzinfo=UTC))
    assert found == timedelta(seconds=seconds)


@given(st.text(max_size=40))
def test_any_expression_is_valid_or_says_why_not(expression: str) -> None:
    try:
        timing = checked_timing(Cron(expression))
    except TimingError:
        return
    assert next_after(timing, datetime(2026, 1, 1, tzinfo=UTC)) is not None


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("0 9 * *", "needs five fields"),
        ("0 0 9 * * *", "needs five fields"),
        ("61 9 * * *", "Bad minute"),
        ("0 0 31 2 *", "Bad day-of-month"),
        ("* " * 300, "at most 200 characters"),
    ],
)
def test_what_is_wrong_with_an_expression(expression: str, reason: str) -> None:
    with pytest.raises(TimingError, match=reason):
        checked_timing(Cron(expression))


@pytest.mark.parametrize("name", ["", "Europe", "Mars/Olympus", "../etc/passwd", "x" * 5000])
def test_what_is_no_time_zone(name: str) -> None:
    with pytest.raises(TimingError, match="there is no time zone"):
        zone_of(name)


@given(zones, st.datetimes(*YEARS))
def test_a_local_time_is_an_instant_that_reads_the_same(zone: str, moment: datetime) -> None:
    where = ZoneInfo(zone)
    moment = moment.replace(second=0, microsecond=0)
    found = local_instant(moment, where).astimezone(where)
    if exists(moment, where):
        assert found.replace(tzinfo=None) == moment
        assert found.fold == 0
    else:
        assert timedelta() < found.replace(tzinfo=None) - moment <= timedelta(hours=1)
