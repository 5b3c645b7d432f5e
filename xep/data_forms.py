"""XEP-0004 Data Forms."""

import re
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Final, Literal, TypeAlias, TypeVar

from xep.binding import Attr, Child, ContentError, Flag, Name, Payload, TextChild
from xep.binding.conversion import conversion_for
from xep.form_validation import Validate
from xep.jid import JID
from xep.media_element import Media

NAMESPACE: Final = "jabber:x:data"
FORM_TYPE: Final = "FORM_TYPE"
"""The hidden field that identifies the type of a form (XEP-0068 §3)."""

FieldType = Literal[
    "boolean",
    "fixed",
    "hidden",
    "jid-multi",
    "jid-single",
    "list-multi",
    "list-single",
    "text-multi",
    "text-private",
    "text-single",
]
Value = str | bool | int | float | Decimal | datetime | JID
V = TypeVar("V", bound=Value)
ValueType: TypeAlias = type[V]
_NEWLINE = re.compile("\r\n|\r|\n")


class Option(Payload, frozen=True, kw_only=True):
    """One choice of a list (XEP-0004 §3.2)."""

    xml = Name(NAMESPACE, "option")

    label: Annotated[str | None, Attr()] = None
    value: Annotated[str, TextChild()]


class Field(Payload, frozen=True, kw_only=True):
    """A question, a default, an answer or a result (XEP-0004 §3.2).

    ``type`` is a FieldType; None, or one that is unknown, counts as ``text-single`` (§3.3).
    Only a field of type ``fixed`` may be without ``var``.
    """

    xml = Name(NAMESPACE, "field")

    var: Annotated[str | None, Attr()] = None
    type: Annotated[str | None, Attr()] = None
    label: Annotated[str | None, Attr()] = None
    desc: Annotated[str | None, TextChild()] = None
    required: Annotated[bool, Flag()] = False
    values: Annotated[tuple[str, ...], TextChild("value")] = ()
    options: Annotated[tuple[Option, ...], Child()] = ()
    validate: Annotated[Validate | None, Child()] = None
    media: Annotated[Media | None, Child(malformed="drop")] = None

    def read(self, kind: ValueType[V]) -> V | None:
        """Return the only value as ``kind``: str, bool, int, float, Decimal, datetime or JID.

        None when there is no value, and for all but str when it is empty: both mean that nothing
        was chosen (XEP-0004 §3.6).

        Raises:
            ContentError: there are several values, or the value is not a ``kind``.
        """
        if len(self.values) > 1:
            raise ContentError("field", f"{self.var}: expected one value")
        found = self.read_all(kind)
        return found[0] if found else None

    def read_all(self, kind: ValueType[V]) -> tuple[V, ...]:
        """Return every value as ``kind``, in order; for all but str empty ones are left out.

        Raises:
            ContentError: one of them is not a ``kind``.
        """
        conversion = conversion_for(kind)
        assert conversion is not None, kind
        convert = conversion.decode
        if convert is None:
            return self.values  # type: ignore[return-value] # kind is str
        try:
            return tuple([convert(value) for value in self.values if value.strip()])
        except ValueError as error:
            raise ContentError("field", f"{self.var}: {error}") from error


class Reported(Payload, frozen=True, kw_only=True):
    """The head of a table: the fields of each item (XEP-0004 §3.4)."""

    xml = Name(NAMESPACE, "reported")

    fields: Annotated[tuple[Field, ...], Child()] = ()


class Item(Payload, frozen=True, kw_only=True):
    """One row of a table (XEP-0004 §3.4)."""

    xml = Name(NAMESPACE, "item")

    fields: Annotated[tuple[Field, ...], Child()] = ()


class Form(Payload, frozen=True, kw_only=True):
    """A form to fill in, a submitted or cancelled form, or a result (XEP-0004 §3.1).

    Some clients leave out the type of a form that they submit, and expect that it is understood.
    """

    xml = Name(NAMESPACE, "x")

    type: Annotated[Literal["form", "submit", "cancel", "result"], Attr(always=True)] = "submit"
    title: Annotated[str | None, TextChild()] = None
    instructions: Annotated[tuple[str, ...], TextChild()] = ()
    fields: Annotated[tuple[Field, ...], Child()] = ()
    reported: Annotated[Reported | None, Child()] = None
    items: Annotated[tuple[Item, ...], Child()] = ()

    def field(self, var: str) -> Field | None:
        """Return the first field of that name."""
        return next((field for field in self.fields if field.var == var), None)

    @property
    def form_type(self) -> str | None:
        """The type of the form (XEP-0068 §3); None if it has none, or an empty one."""
        types = [
            text.strip() for each in self.fields if each.var == FORM_TYPE for text in each.values
        ]
        return next(filter(None, types), None)

    def read(self, var: str, kind: ValueType[V]) -> V | None:
        """Return the value of the field ``var`` as ``kind``; None when there is none.

        Raises:
            ContentError: it has several values, or the value is not a ``kind``.
        """
        field = self.field(var)
        return None if field is None else field.read(kind)


def form_type_field(form_type: str) -> Field:
    """Return the field with the type of a form (XEP-0068 §3)."""
    return Field(var=FORM_TYPE, type="hidden", values=(form_type,))


def field(
    var: str,
    value: Value | Sequence[Value] | None = None,
    *,
    type: FieldType | None = None,  # noqa: A002 - the XEP's own name for it
    label: str | None = None,
) -> Field:
    """Return a field with a typed value, or with several of them.

    A text of several lines becomes one value per line if ``type`` is ``text-multi`` (§3.3).

    Raises:
        ValueError: a value has no text, such as NaN or a datetime without a time zone.
    """
    if value is None:
        values: Sequence[Value] = ()
    elif isinstance(value, str):
        values = _NEWLINE.split(value) if type == "text-multi" else (value,)
    elif isinstance(value, Sequence):
        values = value
    else:
        values = (value,)
    return Field(var=var, type=type, label=label, values=tuple(map(_text, values)))


def _text(value: Value) -> str:
    conversion = conversion_for(value.__class__)
    if conversion is None:
        raise ValueError(f"a form has no text for a {value.__class__.__name__}")
    return value if isinstance(value, str) else conversion.encode(value)  # type: ignore[misc]
