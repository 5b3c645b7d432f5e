"""Pages of what a database holds (XEP-0059): what is asked for, and how much of it fits."""

from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from component.storage.database import Rows
from xep.binding import ContentError, Payload, encode
from xep.fluux_agent import errors
from xep.result_sets import First, ResultSet, page_bounds

P = TypeVar("P", bound=Payload)

MOST: Final = 50
"""Entries in a page (COM-024)."""
ROOM: Final = 65_536 - 4_096
"""Bytes of entries in a page; the rest is for what holds them, and the set at their end."""
FAR: Final = 2**53
"""Beyond any number that is counted here, and within what both databases take."""


class Window(msgspec.Struct, frozen=True):
    """Which page is asked for: `size` entries, `skip` entries from the first one in between.

    What lies between `after` and `before` is meant, both left out; None bounds nothing. A page
    that is read `backwards` ends where the others begin.
    """

    size: int
    skip: int
    after: str | None
    before: str | None
    backwards: bool


def window(request: ResultSet | None) -> Window:
    """Which page is asked for; None asks for the first.

    Raises:
        StanzaError: `malformed`; no such page can be meant (COM-026).
    """
    if request is None:
        return Window(MOST, 0, None, None, backwards=False)
    try:
        page_bounds((), request, MOST)  # what cannot be meant is the same for every set
    except ContentError as error:
        raise errors.malformed(str(error)) from error
    return Window(
        size=MOST if request.max is None else min(request.max, MOST),
        skip=min(request.index or 0, FAR),
        after=request.after,
        before=request.before or None,  # an empty one bounds nothing (XEP-0059 §2.5)
        backwards=request.before is not None,
    )


def number(key: str) -> int:
    """The number in a key that a set of ours named.

    Raises:
        StanzaError: `malformed`; none of ours did.
    """
    if not (key.isascii() and key.isdigit() and len(key) <= 16):
        raise errors.malformed("set: no answer of this agent has named such a key")
    return min(int(key), FAR)


def fill(rows: Rows, made: Callable[..., P], room: int = ROOM) -> list[P]:
    """Entries made of one row each, until they take `room` bytes; one at least if there is one."""
    page: list[P] = []
    while (row := rows.fetchone()) is not None:
        entry = made(*row)
        room -= len(encode(entry).encode())
        if room < 0 and page:
            break
        page.append(entry)
    return page


def described(keys: list[str], start: int, count: int) -> ResultSet:
    """The set that goes with a page of these keys, whose first is number `start` of `count`."""
    if not keys:
        return ResultSet(count=count)
    return ResultSet(first=First(key=keys[0], index=start), last=keys[-1], count=count)
