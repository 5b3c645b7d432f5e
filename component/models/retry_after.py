"""When a server wants to be asked again: in the headers (RFC 9110 §10.2.3), or in the body."""

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

_DAY_S = 86_400.0
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": _DAY_S}
_AMOUNT: Final = (
    r"(\d{1,9}(?:\.\d{1,9})?) ?"
    r"(ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hours?|d|days?)(?![a-z])"
)
_AMOUNTS: Final = re.compile(_AMOUNT, re.IGNORECASE)
_DURATION: Final = re.compile(rf"(?:{_AMOUNT} ?){{1,4}}", re.IGNORECASE)
# OpenAI, Groq: "try again in 6m23.04s"; Azure: "retry after 20 seconds"; Gemini: "retry in 38.2s",
# "quota will reset after 5h12m3s".
_WAIT: Final = re.compile(
    rf"\b(?:(?:try again|retry|resets?|available again) (?:again )?(?:in|after)|please wait)"
    rf" ((?:{_AMOUNT}(?: and |, | )?){{1,4}})",
    re.IGNORECASE,
)
_TIMESTAMP: Final = 1_000_000_000.0
"""A delay this long is a time in seconds since 1970."""


def retry_after_s(headers: Mapping[str, str], now: datetime) -> float | None:
    """Give the seconds that a response asks to wait, or None if it does not say.

    Reads `retry-after-ms`, which OpenAI sends, and `retry-after` in seconds or as a date, and as
    some gateways write it: as a duration such as `1m30s`, a timestamp, or a date of ISO 8601. What
    cannot be read does not count; more than a day is a day. `headers` has lower-case names; `now`
    has a time zone.
    """
    ms = _number(headers.get("retry-after-ms"))
    if ms is not None:
        return min(ms / 1000, _DAY_S)
    said = headers.get("retry-after")
    seconds = _number(said)
    if seconds is None and said is not None:
        if _DURATION.fullmatch(said.strip()):
            return _duration_s(said)
        when = _date(said)
        seconds = None if when is None else max(0.0, (when - now).total_seconds())
    elif seconds is not None and seconds > _TIMESTAMP:
        seconds = max(0.0, seconds - now.timestamp())
    return None if seconds is None else min(seconds, _DAY_S)


def _date(said: str) -> datetime | None:
    for read in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            when = read(said.strip())
        except (ValueError, OverflowError):
            continue
        return when if when.tzinfo is not None else when.replace(tzinfo=UTC)
    return None


def _number(said: str | None) -> float | None:
    try:
        number = float(said or "")
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def text_wait_s(message: str) -> float | None:
    """Give the seconds that the text of an error asks to wait, or None if it does not say."""
    found = _WAIT.search(message)
    return None if found is None else _duration_s(found[1])


def body_wait_s(error: Mapping[str, Any]) -> float | None:
    """Give the seconds that the fields of an error ask to wait, or None if they do not say.

    Reads `retryDelay` of google.rpc.RetryInfo (a duration as in "38s"), and `retry_after` and the
    like of others, in seconds.
    """
    delay = error.get("retryDelay")
    if isinstance(delay, str):
        return _duration_s(delay)
    if isinstance(delay, Mapping):  # a google.protobuf.Duration as an object
        delay = delay.get("seconds")
    delays = [error.get(key) for key in ("retry_after", "retryAfter", "retry_after_seconds")]
    for value in (delay, *delays):
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            seconds = _number(str(value)[:40])
            if seconds is not None:
                return min(seconds, _DAY_S)
    return None


def _duration_s(text: str) -> float | None:
    """Add up the parts of a duration such as `1m2.5s`; None if there are none."""
    parts = _AMOUNTS.findall(text[:80])
    if not parts:
        return None
    total = sum(float(number) * _UNITS[_unit(unit)] for number, unit in parts)
    return min(total, _DAY_S)


def _unit(name: str) -> str:
    name = name.lower()
    return "ms" if name.startswith(("ms", "mill")) else name[0]
