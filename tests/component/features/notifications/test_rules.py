"""The settings of notifications as rules."""

from component.features.notifications.plan import Rules, rules_of
from component.settings.work import Notifications


def test_the_times_of_the_settings_are_seconds_and_those_of_the_rules_milliseconds() -> None:
    settings = Notifications(
        quiet="23:00-06:00",
        window_s=60,
        per_window=7,
        repeat_high_s=120,
        repeat_s=900,
    )
    assert rules_of(settings, "Europe/Paris") == Rules(
        quiet="23:00-06:00",
        zone="Europe/Paris",
        window=60_000,
        per_window=7,
        repeat_high=120_000,
        repeat=900_000,
    )
