"""One page of a list (XEP-0059): at most fifty entries, and no more than fit into a stanza.

A client that requests no page may not know how to request the next one. It gets all entries that
fit into a stanza, except where the specification bounds the first page, too (COM-024).
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from component.link.router.faults import PayloadError
from component.link.router.table import Request
from xep import disco
from xep.binding import ContentError, encode
from xep.binding.escaping import escape_text
from xep.jid import JID
from xep.result_sets import PAGE_ROOM, ResultSet, page_answer, page_bounds

T = TypeVar("T")

MOST_PER_PAGE = 50


def check_page(request: ResultSet | None) -> None:
    """Raise PayloadError if the request describes no page, before anything is looked up."""
    try:
        page_bounds((), request, MOST_PER_PAGE)
    except ContentError as error:
        raise PayloadError(str(error)) from error


def page(
    names: Sequence[str],
    request: ResultSet | None,
    entry: Callable[[str], tuple[T, int]],
    room: int = PAGE_ROOM,
    *,
    always_paged: bool = False,
) -> tuple[tuple[T, ...], ResultSet]:
    """Return the entries of the requested page, and the set that describes it.

    A page ends early rather than be too large to be sent, but is never empty: the next one is
    requested by its last name all the same.

    Args:
        names: all names, sorted by code point.
        request: which page; None if none is requested.
        entry: the entry of a name, and its size in bytes.
        room: the bytes that entries and the two names in the set may take (`page_room`).
        always_paged: the first page has at most fifty entries even if no page is requested.

    Raises:
        PayloadError: the request describes no page.
    """
    most = len(names) if request is None and not always_paged else MOST_PER_PAGE
    try:
        start, stop = page_bounds(names, request, most)
    except ContentError as error:
        raise PayloadError(str(error)) from error
    # Backwards, the page contains the entries right before the given name.
    backwards = request is not None and request.before is not None
    chosen: list[T] = []
    for name in reversed(names[start:stop]) if backwards else names[start:stop]:
        made, size = entry(name)
        key = len(escape_text(name).encode())  # the first one and the last one are in the set
        room -= size if chosen else size + key
        if room < key and chosen:
            break
        chosen.append(made)
    if backwards:
        chosen.reverse()
        start = stop - len(chosen)
    return tuple(chosen), page_answer(names, start, start + len(chosen))


def address_asked(request: Request[disco.ItemsQuery]) -> JID:
    """Return the address of this service that the requester can send the next query to: a client's
    full address, because its server answers IQs to the bare one.
    """
    return request.to if request.stanza.to is None else JID.parse_delivered(request.stanza.to)


def sized(item: disco.Item) -> tuple[disco.Item, int]:
    """Return an item, and its size in bytes on the stream."""
    return item, len(encode(item, disco.ITEMS).encode())


def items_page(
    query: disco.ItemsQuery,
    keys: Sequence[str],
    item: Callable[[str], tuple[disco.Item, int]],
    room: int,
) -> disco.ItemsQuery:
    """Return the page that is asked for of the items with these keys. Raises as `page`."""
    items, which = page(keys, query.page, item, room)
    return disco.ItemsQuery(node=query.node, items=items, page=which)
