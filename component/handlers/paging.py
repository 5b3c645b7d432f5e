"""One page of a list: at most fifty entries and 64 KiB, whatever was asked for (XEP-0059)."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from xep.binding import ContentError
from xep.fluux_agent import errors
from xep.result_sets import ResultSet, page_answer, page_bounds

T = TypeVar("T")

MOST_PER_PAGE = 50
_PAGE_BYTES = 65_536
_ROOM_FOR_THE_REST = 4_096
"""Bytes of a page that are not entries: what holds them, and the set at their end."""


def page(
    names: Sequence[str], request: ResultSet | None, entry: Callable[[str], tuple[T, int]]
) -> tuple[tuple[T, ...], ResultSet]:
    """The entries of the page that was asked for, and the set that says which page it is.

    A page ends early rather than hold more bytes than anybody has to take, but never empty: the
    next one is asked for by its last name all the same.

    Args:
        names: all names, sorted by code point.
        request: which page; None for the first.
        entry: the entry of a name, and its size in bytes.

    Raises:
        StanzaError: ``bad-request`` when no such page can be meant.
    """
    try:
        start, stop = page_bounds(names, request, MOST_PER_PAGE)
    except ContentError as error:
        raise errors.malformed(str(error)) from error
    # Going backwards, the page holds what stands right before the name that was given.
    backwards = request is not None and request.before is not None
    chosen: list[T] = []
    room = _PAGE_BYTES - _ROOM_FOR_THE_REST
    for name in reversed(names[start:stop]) if backwards else names[start:stop]:
        made, size = entry(name)
        room -= size
        if room < 0 and chosen:
            break
        chosen.append(made)
    if backwards:
        chosen.reverse()
        start = stop - len(chosen)
    return tuple(chosen), page_answer(names, start, start + len(chosen))
