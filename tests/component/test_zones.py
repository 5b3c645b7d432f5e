"""Times in words, in the time zone of a person."""

from datetime import UTC, datetime, timedelta

import pytest

from component.zones import spoken_time

NOW = datetime(2026, 12, 30, 23, 30, tzinfo=UTC)  # in Paris it is the 31st already


@pytest.mark.parametrize(
    ("moment", "zone", "words"),
    [
        (NOW, "Europe/Paris", "today at 0:30"),
        (NOW - timedelta(hours=1), "Europe/Paris", "yesterday at 23:30"),
        (NOW + timedelta(days=1), "Europe/Paris", "tomorrow at 0:30"),
        (NOW + timedelta(days=2), "Europe/Paris", "on Saturday, 2 January 2027 at 0:30"),
        (NOW - timedelta(days=7), "Europe/Paris", "on Thursday, 24 December at 0:30"),
        (NOW, "UTC", "today at 23:30 UTC"),
        (NOW, "no zone", "today at 23:30 UTC"),
        (NOW, "UTC+09:00", "today at 8:30"),
    ],
)
def test_a_time_is_said_as_people_say_it(moment: datetime, zone: str, words: str) -> None:
    assert spoken_time(moment, NOW, zone) == words
