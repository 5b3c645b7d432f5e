"""Selects the items of an answer: the newest, or a page (XEP-0060 §6.5, XEP-0059)."""

from collections.abc import Sequence
from typing import Final

from component.pubsub import faults
from xep.binding.escaping import escape_attribute
from xep.result_sets import PAGE_ROOM, First, ResultSet
from xep.stanza_error import StanzaError

_ITEM_BYTES: Final = 200
"""Bytes of an item beside its payload and its id."""
MOST_ITEMS: Final = 1_000
"""Items in one answer."""

Key = tuple[str, int]
"""The id of an item, and the size of its payload in bytes."""


def choose(
    keys: Sequence[Key], request: ResultSet | None, most: int | None, room: int = PAGE_ROOM
) -> tuple[list[str], ResultSet | None]:
    """The ids of the items to return, and the set that says which part of the node they are.

    Without a page requested the newest are returned, and the set only if some are left out.

    Args:
        keys: all items, the oldest first.
        request: the page that is requested.
        most: only so many, the newest.
        room: the bytes that the items may take; a single one may be larger.

    Raises:
        StanzaError: ``item-not-found`` if the item is not there from which the page starts,
            ``bad-request`` if the request contradicts itself.
    """
    if request is None:
        wanted = len(keys) if most is None else max(0, most)
        start = _backwards(keys, 0, len(keys), min(wanted, MOST_ITEMS), room)
        whole = len(keys) - start >= min(wanted, len(keys))
        return [key for key, _ in keys[start:]], None if whole else _set(keys, start, len(keys))
    if most is not None:
        keys = keys[max(0, len(keys) - most) :]
    for number in (request.max, request.index):
        if number is not None and number < 0:
            raise StanzaError("bad-request", "<set/>: expected a number that is not negative")
    size = MOST_ITEMS if request.max is None else min(request.max, MOST_ITEMS)
    start, stop = 0, len(keys)
    if request.index is not None:
        start = min(request.index, len(keys))
    if request.after:
        start = _position(keys, request.after) + 1
    if request.before:
        stop = _position(keys, request.before)
    if request.before is not None:
        start = _backwards(keys, start, max(start, stop), size, room)
        stop = max(start, stop)
    else:
        stop = _forwards(keys, start, max(start, stop), size, room)
    return [key for key, _ in keys[start:stop]], _set(keys, start, stop)


def _position(keys: Sequence[Key], id_: str) -> int:
    for position, (key, _) in enumerate(keys):
        if key == id_:
            return position
    raise faults.no_such_item()


def _forwards(keys: Sequence[Key], start: int, stop: int, size: int, room: int) -> int:
    """Where a page from `start` on ends."""
    for position in range(start, min(stop, start + size)):
        room -= _size(keys[position])
        if room < 0 and position > start:
            return position
    return min(stop, start + size)


def _backwards(keys: Sequence[Key], start: int, stop: int, size: int, room: int) -> int:
    """Where a page that ends at `stop` starts."""
    first = max(start, stop - size)
    for position in range(stop - 1, first - 1, -1):
        room -= _size(keys[position])
        if room < 0 and position < stop - 1:
            return position + 1
    return first


def _size(key: Key) -> int:
    id_, payload = key
    return payload + len(escape_attribute(id_).encode()) + _ITEM_BYTES


def _set(keys: Sequence[Key], start: int, stop: int) -> ResultSet:
    if start >= stop:
        return ResultSet(count=len(keys))
    return ResultSet(
        first=First(key=keys[start][0], index=start), last=keys[stop - 1][0], count=len(keys)
    )
