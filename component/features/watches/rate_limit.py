"""Decides for each event of a watch whether it starts work, joins a later start or is dropped.

A rate counts starts in windows. The first event opens a window. When a window is full, an event
above the rate makes one start that is due when the window ends, which is the first start of the
next window; until then further events join it (`digest`), replace what it has (`latest`), or, by
the policy `drop`, there is no such start. A watch that starts work too often in an hour is stopped
by the breaker, because two programs that trigger each other would never stop.
"""

from typing import Final, Literal, TypeAlias

import msgspec

from component.features.watches.watch import Rate, Thinning

HOUR_MS: Final = 3_600_000

Verdict: TypeAlias = Literal["start", "join", "drop", "trip"]
"""Start work (at `Counters.due`), join the start `Counters.waiting`, drop, or stop the watch."""


class Counters(msgspec.Struct):
    """The counters on which the decisions for one watch depend; stored in its row.

    Attributes:
        last_number: the number of its newest start.
        waiting: the number of the start that events above the rate join; 0 if there is none.
        window_at: when the current window begins, in milliseconds; in the future while a start
            waits for it.
        window_starts: starts in the current window.
        hour_at: when the hour of the breaker began, in milliseconds.
        hour_starts: starts in it.
    """

    last_number: int = 0
    waiting: int = 0
    window_at: int = 0
    window_starts: int = 0
    hour_at: int = 0
    hour_starts: int = 0


class Bounds(msgspec.Struct, frozen=True):
    """The bounds of one watch."""

    rate: Rate
    thinning: Thinning
    starts_per_hour: int


def decide(counters: Counters, bounds: Bounds, now: int, *, has_room: bool) -> tuple[Verdict, int]:
    """Decide on one event and change the counters.

    Args:
        counters: those of the watch.
        bounds: its bounds.
        now: milliseconds on a clock that does not jump.
        has_room: whether another start may wait now; if not, the event is above the rate.

    Returns:
        The verdict, and for a start when it is due.
    """
    window_ms = int(bounds.rate.seconds * 1000)
    if now < counters.window_at:  # a start waits for the window
        return _above(counters, bounds, counters.window_at)
    if now >= counters.window_at + window_ms:
        counters.window_at, counters.window_starts, counters.waiting = now, 0, 0
    if counters.window_starts < bounds.rate.events and has_room:
        counters.waiting = 0
        return _start(counters, bounds, now, now)
    if bounds.thinning == "drop":
        return "drop", 0
    due = counters.window_at + window_ms
    verdict = _start(counters, bounds, now, due)
    if verdict[0] == "start":
        counters.window_at, counters.window_starts = due, 1
        counters.waiting = counters.last_number
    return verdict


def _above(counters: Counters, bounds: Bounds, due: int) -> tuple[Verdict, int]:
    if bounds.thinning == "drop" or not counters.waiting:
        return "drop", 0
    return "join", due


def _start(counters: Counters, bounds: Bounds, now: int, due: int) -> tuple[Verdict, int]:
    if now >= counters.hour_at + HOUR_MS:
        counters.hour_at, counters.hour_starts = now, 0
    if counters.hour_starts >= bounds.starts_per_hour:
        return "trip", 0
    counters.hour_starts += 1
    counters.window_starts += 1
    counters.last_number += 1
    return "start", due
