"""When a server wants to be asked again (RFC 9110 §10.2.3)."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

_DAY_S = 86_400.0


def retry_after_s(headers: Mapping[str, str], now: datetime) -> float | None:
    """Give the seconds that a response asks to wait, or None if it does not say.

    Reads `retry-after-ms`, which OpenAI sends, and `retry-after` in seconds or as a date. What
    cannot be read does not count; more than a day is a day. `headers` has lower-case names; `now`
    has a time zone.
    """
    ms = _number(headers.get("retry-after-ms"))
    if ms is not None:
        return min(ms / 1000, _DAY_S)
    said = headers.get("retry-after")
    seconds = _number(said)
    if seconds is None and said is not None:
        try:
            when = parsedate_to_datetime(said)
        except (ValueError, OverflowError):
            return None
        if when.tzinfo is None:
            when = when.replace(tzinfo=UTC)
        seconds = max(0.0, (when - now).total_seconds())
    return None if seconds is None else min(seconds, _DAY_S)


def _number(said: str | None) -> float | None:
    try:
        number = float(said or "")
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None
