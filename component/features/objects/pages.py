"""The order of objects, pages of them, and the members that are selected.

A page begins after the place of the last object of the page before, which is in its cursor. So an
object that is added or deleted meanwhile neither repeats nor hides another one.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from component.features.objects.filters import is_number, path_of, quoted
from component.features.objects.stored import ObjectError, StoredObject

Key: TypeAlias = tuple[int, int | float | str] | None
"""The place of a value in an order: numbers come before texts. None for other values, which come
last in both directions.
"""

_COMPARED: Final = 200
"""Texts are ordered by so many characters, so that a cursor is not long."""
_LONGEST_CURSOR: Final = 4_000
_DATA: Final = "data."
_OWN: Final[dict[str, Callable[[StoredObject], Key]]] = {
    "created": lambda one: (0, one.content.created),
    "updated": lambda one: (0, one.content.updated),
    "id": lambda one: (1, one.id),
}


class Order(NamedTuple):
    """An order of objects; `text` is how it was written. Objects with the same key are ordered by
    their types and ids.
    """

    text: str
    key: Callable[[StoredObject], Key]
    descends: bool


class _Place(msgspec.Struct, frozen=True, array_like=True):
    order: str
    key: Key
    type: str
    id: str


def order_of(text: str) -> Order:
    """Return an order: `created`, `updated`, `id` or `data.` and a path, with `-` before it for the
    opposite direction. Raises ObjectError.
    """
    name = text.removeprefix("-")
    own = _OWN.get(name)
    if own is not None:
        return Order(text, own, text.startswith("-"))
    if not name.startswith(_DATA):
        raise ObjectError(
            f"{quoted(text)} is no order: write created, updated, id or data. and the path of a"
            " member, such as data.due, with - before it for the opposite direction.",
            "order",
        )
    path = path_of(name.removeprefix(_DATA), "order")

    def key(one: StoredObject) -> Key:
        value: Any = one.content.data
        for each in path:
            value = value.get(each) if type(value) is dict else None
        if type(value) is str:
            return 1, value[:_COMPARED]
        return (0, value) if is_number(value) else None

    return Order(text, key, text.startswith("-"))


def page_of(
    found: Iterable[StoredObject], order: Order, cursor: str, fits: Callable[[StoredObject], bool]
) -> tuple[list[StoredObject], str]:
    """Return the objects that follow a cursor, or the first ones, as long as they fit; and the
    cursor for the next page, which is empty after the last one. Raises ObjectError: the cursor is
    not one of this order.
    """
    keyed = sorted([(order.key(one), one.type, one.id, one) for one in found], key=_by_id)
    with_key = [each for each in keyed if each[0] is not None]
    with_key.sort(key=_by_key, reverse=order.descends)  # keeps the order of equal ones
    ordered = [*with_key, *[each for each in keyed if each[0] is None]]
    start = 0 if not cursor else _position(ordered, order, _read(cursor, order))
    chosen: list[StoredObject] = []
    for *_, one in ordered[start:]:
        if not fits(one):
            break
        chosen.append(one)
    end = start + len(chosen)
    if not chosen or end == len(ordered):
        return chosen, ""
    key, type_, id_, _ = ordered[end - 1]
    place = msgspec.json.encode(_Place(order.text, key, type_, id_))
    return chosen, urlsafe_b64encode(place).rstrip(b"=").decode()


_Keyed: TypeAlias = tuple[Key, str, str, StoredObject]


def _by_id(each: _Keyed) -> tuple[str, str]:
    return each[1], each[2]


def _by_key(each: _Keyed) -> Any:
    return each[0]


def _position(ordered: Sequence[_Keyed], order: Order, last: _Place) -> int:
    """Return the number of the first object after a place."""
    for at, (key, type_, id_, _) in enumerate(ordered):
        if key == last.key:
            if (type_, id_) > (last.type, last.id):
                return at
        elif last.key is not None and (
            key is None or (key < last.key if order.descends else key > last.key)
        ):
            return at
    return len(ordered)


def _read(cursor: str, order: Order) -> _Place:
    padded = cursor[:_LONGEST_CURSOR].encode() + b"=" * (-len(cursor) % 4)
    try:
        place = msgspec.json.decode(urlsafe_b64decode(padded), type=_Place)
    except ValueError:
        raise ObjectError("The cursor is not one that a query has returned.", "cursor") from None
    if place.order != order.text:
        raise ObjectError(
            f"The cursor is of a query with the order {quoted(place.order)}: give the same order"
            " with it.",
            "cursor",
        )
    return place


def selected(data: dict[str, Any], paths: Sequence[tuple[str, ...]]) -> dict[str, Any]:
    """Return a copy of the data with the members at these paths only. A path leads into the objects
    of arrays, too.
    """
    found: dict[str, Any] = _selected(data, paths)
    return found


def _selected(value: Any, paths: Sequence[tuple[str, ...]]) -> Any:
    if () in paths:
        return value
    if type(value) is list:
        return [_selected(each, paths) for each in value if type(each) is dict]
    below: dict[str, list[tuple[str, ...]]] = {}
    for path in paths:
        below.setdefault(path[0], []).append(path[1:])
    return {
        name: _selected(value[name], rest)
        for name, rest in below.items()
        if name in value and (() in rest or type(value[name]) in (dict, list))
    }
