"""Says at the end of a test run how much of life was simulated."""

from typing import Any, Final

SIMULATED: Final = "simulated days and kills"
"""The property of a test that has both."""


def summarize(reporter: Any) -> None:
    """Write a line, if anything was simulated."""
    reports = [one for found in reporter.stats.values() for one in found]
    lives = [
        value
        for report in reports
        for name, value in getattr(report, "user_properties", ())
        if name == SIMULATED and report.when == "call"
    ]
    if lives:
        days, kills = (sum(one) for one in zip(*lives, strict=True))
        reporter.write_line(f"{len(lives)} lives were simulated: {days:.0f} days, {kills} kills")
