"""The time at which a server permits a retry."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.models.faults import retry_after_s

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "0"}, 0),
        ({"retry-after-ms": "250", "retry-after": "7"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "7"}, 7),
        ({"retry-after": "-7"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "99999999"}, 86_400),
        ({"retry-after": "5s"}, 5),
        ({"retry-after": "1m30s"}, 90),
        ({"retry-after": f"{NOW.timestamp() + 40:.0f}"}, 40),
        ({"retry-after": "1000000001"}, 0),
        ({"retry-after": "2026-11-22T12:00:30Z"}, 30),
        ({"retry-after": "5, 7"}, None),
        ({"retry-after": "Sun, 22 Nov 2026 12:00:30 GMT"}, 30),
        ({"retry-after": "Sun, 22 Nov 2026 12:00:30 -0000"}, 30),
        ({"retry-after": "Sun, 22 Nov 2026 13:00:30 +0100"}, 30),
        ({"retry-after": "Sun, 22 Nov 2026 11:00:00 GMT"}, 0),
        ({"retry-after": "Sun, 32 Nov 2026 11:00:00 GMT"}, None),
    ],
)
def test_retry_after_headers_are_read(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_s(headers, NOW) == seconds


@given(st.integers(0, 86_400))
def test_a_date_in_retry_after_gives_the_seconds_until_then(seconds: int) -> None:
    when = format_datetime(NOW + timedelta(seconds=seconds), usegmt=True)
    assert retry_after_s({"retry-after": when}, NOW) == seconds


@given(
    st.text()
    | st.lists(st.sampled_from(["Sun,", "Nov", "22", "99", "2026", "0", "12:00:30", "25:61", "GMT",
                                "+9999", "-0000", "9" * 30])).map(" ".join)
)  # fmt: skip
def test_any_retry_after_header_gives_at_most_a_day_or_none(text: str) -> None:
    seconds = retry_after_s({"retry-after": text, "retry-after-ms": text}, NOW)
    assert seconds is None or 0 <= seconds <= 86_400
