"""Dates and times that somebody wrote, in the form in which skills take them."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.policy.provenance import SourceTexts
from component.policy.times import Times, is_time

MOMENTS = st.integers(-(10**7), 6 * 10**7).map(
    lambda minutes: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(minutes=minutes)
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("lunch on 2024-05-19 at 12:00", "2024-05-19 12:00"),
        ("lunch on 2024-05-19 at 12:00", "2024-05-19T12:00:00"),
        ("2024-05-19, 12:00, for one hour", "2024-05-19 13:00"),
        ("a 1-hour long event on 2024-05-19 at 23:30", "2024-05-20 00:30"),
        ("from January 11th to January 15th 2025", "2025-01-11"),
        ("from January 11th to January 15th 2025", "2025-01-15"),
        ("the 3rd of Sept 2026 at 9 am, 90 minutes", "2026-09-03 10:30"),
        ("May 1, 2026, 12:15 p.m.", "2026-05-01 12:15"),
        ("1 May 2026 at noon", "2026-05-01 12:00"),
        ("12am on 2026-05-01", "2026-05-01 00:00"),
    ],
)
def test_a_time_in_another_form_is_found(text: str, value: str) -> None:
    assert Times(text).contain(value)
    assert SourceTexts([text]).contain(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("lunch on 2024-05-19 at 12:00", "2024-05-19 12:01"),
        ("lunch on 2024-05-19 at 12:00", "2024-05-20 12:00"),
        ("lunch on 2024-05-19 at 12:00", "2024-05-19 12:00:07"),
        ("lunch on 2024-05-19 at 12:00", "2024-05-19 12:00+07:00"),
        ("lunch on 2024-05-19 at 12:00 for one hour", "2024-05-19 11:00"),
        ("lunch on 2024-05-19 at 12:00 for one hour", "2024-05-19 14:00"),
        ("January 11th", "2025-01-11"),
        ("February 30 2025", "2025-02-30"),
        ("February 30 2025", "2025-03-02"),
        ("2024-05-19", "2024-05-19 00:00"),
        ("12:00", "2024-05-19 12:00"),
        ("version 1.2024-05-19", "19"),
    ],
)
def test_another_time_is_not_found(text: str, value: str) -> None:
    assert not Times(text).contain(value)


def test_a_date_and_a_time_of_two_messages_are_not_one_time() -> None:
    assert not SourceTexts(["on 2024-05-19", "at 12:00"]).contain("2024-05-19 12:00")


@given(MOMENTS, st.integers(1, 300), MOMENTS)
def test_start_and_end_are_found_and_nothing_else(
    start: datetime, minutes: int, other: datetime
) -> None:
    end = start + timedelta(minutes=minutes)
    times = Times(f"on {start:%B} {start.day} {start.year:04} at {start:%H:%M}, {minutes} minutes")
    assert times.contain(f"{start:%Y-%m-%d %H:%M}")
    assert times.contain(f"{end:%Y-%m-%dT%H:%M:00}")
    assert times.contain(f"{other:%Y-%m-%d %H:%M}") == (other in (start, end))


@given(st.text(), st.text())
def test_any_text_has_times_or_none(text: str, value: str) -> None:
    assert not Times(text).contain(value) or is_time(value)
