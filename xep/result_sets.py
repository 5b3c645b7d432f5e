"""XEP-0059 Result Set Management."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Annotated, Final

from xep.binding import Attr, Child, ContentError, Name, Payload, Text, TextChild

NAMESPACE: Final = "http://jabber.org/protocol/rsm"


PAGE_BYTES: Final = 65_536
"""Size of an answer with a page, where no limit is smaller."""
_ENVELOPE_BYTES: Final = 4_096


def page_room(max_stanza_bytes: int) -> int:
    """The bytes of entries that fit into a page, where no stanza may be larger than that.

    The rest is for what holds them: the stanza with its addresses, and the set without its keys.
    """
    return max(0, min(PAGE_BYTES, max_stanza_bytes) - _ENVELOPE_BYTES)


PAGE_ROOM: Final = page_room(PAGE_BYTES)


class First(Payload, frozen=True, kw_only=True):
    """The first key of a page, and its position in the whole set from 0 (XEP-0059 §2.2)."""

    xml = Name(NAMESPACE, "first")

    key: Annotated[str, Text()]
    index: Annotated[int | None, Attr()] = None


class ResultSet(Payload, frozen=True, kw_only=True):
    """The requested page, or the returned one (XEP-0059 §2).

    A request has ``max`` with ``after``, ``before`` or ``index``; an empty ``before`` requests the
    last page. An answer has ``first``, ``last`` and ``count``.
    """

    xml = Name(NAMESPACE, "set")

    after: Annotated[str | None, TextChild()] = None
    before: Annotated[str | None, TextChild()] = None
    count: Annotated[int | None, TextChild()] = None
    first: Annotated[First | None, Child()] = None
    index: Annotated[int | None, TextChild()] = None
    last: Annotated[str | None, TextChild()] = None
    max: Annotated[int | None, TextChild()] = None


def page_bounds(keys: Sequence[str], request: ResultSet | None, limit: int) -> tuple[int, int]:
    """Return where the requested page starts and stops in ``keys``, at a cost that does not grow
    with their number.

    A key that was deleted since the last page still says where to continue, because the keys are in
    order; so ``item-not-found`` (XEP-0059 §2.4) never happens.

    Args:
        keys: every key of the set, each once, sorted by code point.
        request: the request; None requests the first page.
        limit: the maximum number of entries in a page, regardless of the request.

    Raises:
        ContentError: ``max`` or ``index`` is negative, or ``index`` comes with a key.
    """
    if request is None:
        return 0, min(limit, len(keys))
    for name, number in (("max", request.max), ("index", request.index)):
        if number is not None and number < 0:
            raise ContentError("set", f"<{name}/>: expected a number that is not negative")
    size = limit if request.max is None else min(limit, request.max)
    if request.index is not None:
        if request.after is not None or request.before is not None:
            raise ContentError("set", "<index/> cannot stand beside <after/> or <before/>")
        start = min(request.index, len(keys))
        return start, min(start + size, len(keys))
    start = 0 if request.after is None else bisect_right(keys, request.after)
    # An empty <before/> requests the last page (§2.5), so it is no limit.
    stop = len(keys) if not request.before else bisect_left(keys, request.before)
    stop = max(start, stop)
    if request.before is not None:
        return max(start, stop - size), stop
    return start, min(start + size, stop)


def page_answer(keys: Sequence[str], start: int, stop: int) -> ResultSet:
    """Return the ``<set/>`` for the entries ``keys[start:stop]`` (XEP-0059 §2.2)."""
    if start >= stop:
        return ResultSet(count=len(keys))
    return ResultSet(
        first=First(key=keys[start], index=start), last=keys[stop - 1], count=len(keys)
    )
