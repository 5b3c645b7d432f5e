"""Fields of a form: converts a value to the texts of a field, and back.

`schema_properties` decides which field a property of a JSON Schema gets.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from component.skills.readers import read_boolean, read_integer, read_number
from xep.binding.escaping import without_forbidden
from xep.binding.json_bounds import MOST_VALUES, checked_json

Schema = Mapping[str, Any]
FieldKind = Literal["boolean", "choice", "choices", "integer", "number", "text", "lines", "json"]
"""How a value is written: `choices` and `lines` are arrays, `json` is any value that no other kind
can express.
"""

ABSENT: Final = msgspec.UNSET
"""The value of a property that was not given."""

NEWLINE: Final = re.compile("\r\n|\r|\n")
_SPACE = " \t\r\n"
_MOST_CHOICES = 20
_EXPECTED: Final[Mapping[str, str]] = {
    "boolean": "true or false",
    "integer": "an integer",
    "number": "a number",
}


class Choice(msgspec.Struct, frozen=True):
    """One value of an enumeration, and the text that stands for it."""

    text: str
    value: Any
    label: str | None = None


class Property(msgspec.Struct, frozen=True, kw_only=True):
    """One property of a schema as a field.

    `item` is the kind of each item of `lines`. `datatype`, `least` and `greatest` are the
    validation of a value or an item, as written in XEP-0122. `several_lines` is for a text that may
    have line feeds. `default` is ABSENT if there is none.
    """

    name: str
    kind: FieldKind
    item: FieldKind = "text"
    required: bool = False
    nullable: bool = False
    choices: tuple[Choice, ...] = ()
    several_lines: bool = False
    datatype: str | None = None
    least: str | None = None
    greatest: str | None = None
    title: str | None = None
    description: str | None = None
    default: Any = ABSENT

    def texts(self, value: Any) -> tuple[str, ...] | None:
        """Return the texts of a value in this field; None if the field cannot express it."""
        if value is None:
            return () if self.nullable else None
        if self.kind == "json":
            return (msgspec.json.encode(value).decode(),)
        if self.kind in ("lines", "choices"):
            if not isinstance(value, list | tuple):
                return None
            texts = [self._text(item) for item in value]
            if None in texts or (self.kind == "lines" and not all(map(_is_line, texts))):
                return None
            return tuple(text for text in texts if text is not None)
        text = self._text(value)
        if text is None:
            return None
        return tuple(NEWLINE.split(text)) if self.kind == "text" else (text,)

    def read(self, texts: Sequence[str]) -> Any:
        """Return the value of the texts of this field; ABSENT if they give none.

        A field that was shown with a default and is returned empty was emptied on purpose: that is
        null, no items or no text, whichever the property allows.

        Raises ValueError with the reason, an unfinished sentence.
        """
        whole = "\n".join(texts)
        empty = not any(texts) if self.kind == "text" else not whole.strip(_SPACE)
        if empty and not (texts and self.kind == "choice" and self._has_empty()):
            return self._empty()
        if self.kind == "json":
            return _json(whole)
        if self.kind == "text":
            return whole
        if self.kind == "lines":
            if 1 + whole.count("\n") + whole.count("\r") > MOST_VALUES:
                raise ValueError(f"expected at most {MOST_VALUES} lines")
            lines = NEWLINE.split(whole)
            if self.item == "text":
                return [line for line in lines if line]
            return [self._scalar(self.item, line) for line in lines if line.strip(_SPACE)]
        if self.kind == "choices":
            return [self._choice(text) for text in texts if text or self._has_empty()]
        if len(texts) > 1:
            raise ValueError("expected one value")
        return (
            self._choice(texts[0]) if self.kind == "choice" else self._scalar(self.kind, texts[0])
        )

    def shown_default(self) -> tuple[str, ...]:
        """Return the texts of the field in an empty form; none for a default that a form cannot
        show.

        The default applies even if such a field is left empty.
        """
        texts = None if self.default is ABSENT else self.texts(self.default)
        if texts is None or any(text != without_forbidden(text) for text in texts):
            return ()
        return texts

    def _empty(self) -> Any:
        emptied = any(self.shown_default())
        if self.required or emptied:
            if self.nullable:
                return None
            if self.kind in ("lines", "choices"):
                return []
            if self.kind == "boolean" and self.required:
                return False  # the meaning of an empty one (XEP-0004 §3.3)
            if self.required:
                raise ValueError("is required")
            if self.kind == "text":
                return ""
        return ABSENT

    def _text(self, value: Any) -> str | None:
        """Return the text of a scalar, or of an item of an array."""
        if self.choices:
            said = identity(value)
            return next((each.text for each in self.choices if identity(each.value) == said), None)
        kind = self.item if self.kind == "lines" else self.kind
        if kind == "text":
            return value if isinstance(value, str) else None
        if isinstance(value, bool):
            return str(value).lower() if kind == "boolean" else None
        if kind == "integer" and isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, int) and kind in ("integer", "number"):
            return digits(value)
        if isinstance(value, float) and kind == "number" and math.isfinite(value):
            return repr(value)
        return None

    def _scalar(self, kind: FieldKind, text: str) -> Any:
        if kind == "text":
            return text
        try:
            if kind == "boolean":
                return read_boolean(text)
            try:
                return read_integer(text)
            except ValueError:
                if kind == "integer":
                    raise
                return read_number(text)
        except ValueError:
            raise ValueError(f"expected {_EXPECTED[kind]}") from None

    def _choice(self, text: str) -> Any:
        for choice in self.choices:
            if choice.text == text:
                return choice.value
        named = self.titled(text)
        if named is not None:
            return named.value
        listed = ", ".join(choice.label or choice.text for choice in self.choices[:_MOST_CHOICES])
        more = ", …" if len(self.choices) > _MOST_CHOICES else ""
        raise ValueError(f"expected one of {listed}{more}")

    def titled(self, text: str) -> Choice | None:
        """Return the choice with this title, in any case; None if there is none, or several."""
        said = text.strip(_SPACE).casefold()
        found = [each for each in self.choices if each.label and each.label.casefold() == said]
        return found[0] if len(found) == 1 else None

    def _has_empty(self) -> bool:
        return any(not choice.text for choice in self.choices)


def digits(value: float | None) -> str | None:
    """Return a number in digits; None for None, or if there are too many."""
    try:
        return None if value is None else repr(value)
    except ValueError:
        return None  # Python converts no integer of more than 4300 digits


def identity(value: object) -> tuple[bool, bool, object]:
    """Return a key that distinguishes JSON values: true is not 1, and 1 is 1.0."""
    return isinstance(value, bool), isinstance(value, str), value


def _json(text: str) -> Any:
    raw = checked_json(text.encode("utf-8", "surrogatepass"))
    try:
        return msgspec.json.decode(raw)
    except ValueError as error:
        raise ValueError(f"expected JSON: {error}") from None


def _is_line(text: str | None) -> bool:
    return bool(text) and NEWLINE.search(text or "") is None
