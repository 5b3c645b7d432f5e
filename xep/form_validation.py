"""XEP-0122 Data Forms Validation."""

from typing import Annotated, Final

from xep.binding import Attr, Child, Flag, Name, Payload, TextChild

NAMESPACE: Final = "http://jabber.org/protocol/xdata-validate"


class Range(Payload, frozen=True, kw_only=True):
    """The least and the greatest value, as the datatype writes them (XEP-0122 §3.2.3)."""

    xml = Name(NAMESPACE, "range")

    min: Annotated[str | None, Attr()] = None
    max: Annotated[str | None, Attr()] = None


class ListRange(Payload, frozen=True, kw_only=True):
    """How many options of a ``list-multi`` may be chosen (XEP-0122 §3.3)."""

    xml = Name(NAMESPACE, "list-range")

    min: Annotated[int | None, Attr()] = None
    max: Annotated[int | None, Attr()] = None


class Validate(Payload, frozen=True, kw_only=True):
    """The datatype of a field's values, such as ``xs:integer`` (XEP-0122 §3.1).

    At most one of ``basic``, ``open``, ``range`` and ``regex`` is set; none means ``basic``.
    """

    xml = Name(NAMESPACE, "validate")

    datatype: Annotated[str, Attr(always=True)] = "xs:string"
    basic: Annotated[bool, Flag()] = False
    open: Annotated[bool, Flag()] = False
    range: Annotated[Range | None, Child()] = None
    regex: Annotated[str | None, TextChild()] = None
    list_range: Annotated[ListRange | None, Child()] = None
