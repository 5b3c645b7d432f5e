"""Provenance: whether the values of a call were written by the person, or chosen by the model.

A model that has read what strangers wrote may have chosen a value because they told it to. A value
that the person has written was not chosen that way. Comparing is exact, apart from a few spellings
of the same value, so that a model cannot hide data in how it spells something.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

from component.policy.times import Times, is_time

_SCHEME: Final = r"\b(?:https?://|mailto:|xmpp:)"
_NO_WORD_BEFORE: Final = r"(?<![\w@./:%+~=&?#-])"
_NO_WORD_AFTER: Final = r"(?![\w@%+~]|[./:?#=&,-]\w)"
_FEW: Final = 32
"""A list of values is short up to this length: one of them carries five bits."""
_MOST_HARMLESS: Final = 8
"""The maximum number of harmless values in a call: hundreds of them could carry a text."""
_NUMBER: Final = r"(?a)(?<![\w./:,-])-?\d+(?:,\d{3})*(?:\.\d+)?(?![\w:/]|[.,-]\d)"

_LINK: Final = (
    r"(?i)\b[a-z][a-z0-9+.-]*://[^\s<>\"']+|\bwww\.[^\s<>\"']+"
    r"|(?<![\w@.-])(?:[\w-]+\.)+[a-z]{2,}(?::\d+)?/[^\s<>\"']*"
)
_AFTER_LINK: Final = ".,;:!?)]}"
_ADDRESS: Final = r"[^\s<>\"'(),;:@]{1,64}@[\w-]+(?:\.[\w-]+)*"
_HOST: Final = r"(?i)(?:(?:[\w-]+\.)+[^\W\d][\w-]+|\d+(?:\.\d+){3}|\[[\da-f:.]+\])\.?(?:[:/?#]\S*)?"
"""A text that is the name or the address of a host, with what may follow it in a URL."""
_SHORTEST_ID: Final = 6


class SourceTexts:
    """Texts that somebody wrote or returned, in which values are looked for."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._whole = tuple(texts)
        self._texts = [
            spelling
            for text in self._whole
            for plain in (re.sub(_SCHEME, " ", text),)
            for spelling in dict.fromkeys((text, plain, " ".join(plain.split())))
        ]
        self._lower: list[str] | None = None
        self._numbers: set[str] | None = None
        self._times: list[Times] | None = None

    def contain(self, value: object) -> bool:
        """Return whether one of the texts contains a value as a whole: a number, or whole words.

        A URL may lack or have its scheme, and a slash at its end. A text in lower case is also
        found where it is written with capitals, and a date and time in other forms
        (`component.policy.times`).
        """
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            return False
        if not isinstance(value, str):
            return self._has_number(value)
        scheme = re.match(_SCHEME, value)
        plain = value[scheme.end() if scheme else 0 :].removesuffix("/")
        if not plain:
            return False
        words = re.compile(f"{_NO_WORD_BEFORE}{re.escape(plain)}{_NO_WORD_AFTER}")
        if any(words.search(text) for text in self._texts) or self._has_time(value):
            return True
        if plain != plain.lower():
            return False
        if self._lower is None:
            self._lower = [text.lower() for text in self._texts]
        return any(words.search(text) for text in self._lower)

    def _has_time(self, value: str) -> bool:
        if not is_time(value):
            return False
        if self._times is None:
            self._times = [Times(text) for text in self._whole]
        return any(one.contain(value) for one in self._times)

    def _has_number(self, value: float) -> bool:
        if self._numbers is None:
            self._numbers = {
                found.replace(",", "")
                for text in self._texts
                for found in re.findall(_NUMBER, text)
            }
        return any(Decimal(one) == value or float(one) == value for one in self._numbers)


def chosen_by_model(
    arguments: Mapping[str, Any],
    schema: Mapping[str, Any],
    texts: Sequence[SourceTexts],
    *,
    few_are_free: bool,
) -> tuple[str, ...]:
    """Return the names of the arguments with a value that none of the texts contains.

    Null, empty values, and defaults of the schema are harmless. With `few_are_free` this also
    applies to true and false, and to values from a short list in the schema (`enum`). A few of them
    carry little, so only so many are harmless.

    `texts` are what the person wrote, and what else the model has not chosen; `few_are_free` is
    for a skill that only reads.
    """
    names, listed, defaults = _declared(schema)
    left = _MOST_HARMLESS

    def harmless() -> bool:
        nonlocal left
        left -= 1
        return left >= 0

    def free(value: Any) -> bool:
        if value is None or value in ("", [], {}):
            return harmless()
        if isinstance(value, Mapping):
            keys = all(key in names or any(one.contain(key) for one in texts) for key in value)
            return keys and all(map(free, value.values()))
        if isinstance(value, list):
            return all(map(free, value))
        if any(one.contain(value) for one in texts):
            return True
        return few_are_free and (isinstance(value, bool) or _same(value, listed)) and harmless()

    return tuple(
        name
        for name, value in arguments.items()
        if name not in names
        or not ((_same(value, defaults.get(name, ())) and harmless()) or free(value))
    )


def reserved(
    arguments: Mapping[str, Any],
    schema: Mapping[str, Any],
    texts: Sequence[SourceTexts],
    *,
    links: bool,
) -> tuple[str, ...]:
    """Return the names of the arguments with a value that must be the person's own, and is not.

    These are secrets that the call would set, which the schema declares with `"writeOnly": true` or
    `"format": "password"`, and with `links` all links, alone or within a text: a stranger would let
    the person vouch for them. `texts` are what the person wrote; `links` says whether others see
    the values.
    """
    declared = schema.get("properties")
    properties = declared if isinstance(declared, Mapping) else {}

    def written(value: str) -> bool:
        return any(one.contain(value) for one in texts)

    def is_secret(name: str) -> bool:
        one = properties.get(name)
        return isinstance(one, Mapping) and (
            one.get("writeOnly") is True or one.get("format") == "password"
        )

    return tuple(
        name
        for name, value in arguments.items()
        if (is_secret(name) and not all(map(written, texts_in(value))))
        or (links and not all(map(written, _links(value))))
    )


def may_be_planted(
    arguments: Mapping[str, Any],
    schema: Mapping[str, Any],
    descriptions: Sequence[str],
    written: SourceTexts,
) -> bool:
    """Return whether the author of some descriptions of tools may have chosen where a call goes.

    That is so if a value has a link, an address, a host or a secret (as in `reserved`) that is not
    in the texts of the person and the operator, even if no description has it: a description can
    tell a model how to compose one. It is also so if a value of at least six characters with a
    digit, such as the number of an account, is in a description and not in these texts. `written`
    is what the person and the operator have written.
    """
    if reserved(arguments, schema, [written], links=True):
        return True
    for text in texts_in(arguments):
        places = re.findall(_ADDRESS, text)
        if re.fullmatch(_HOST, text) or (
            _is_identifier(text) and any(text in each for each in descriptions)
        ):
            places.append(text)
        if not all(map(written.contain, places)):
            return True
    return False


def _is_identifier(text: str) -> bool:
    return len(text) >= _SHORTEST_ID and any(map(str.isdigit, text)) and len(text.split()) == 1


def _links(value: Any) -> Iterator[str]:
    for text in texts_in(value):
        for found in re.finditer(_LINK, text):
            yield found[0].rstrip(_AFTER_LINK)


def texts_in(value: object) -> Iterator[str]:
    """Yield all texts in a value, keys of mappings too, without a limit on its depth."""
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, Mapping):
            left += [*one.keys(), *one.values()]
        elif isinstance(one, list | tuple):
            left += one


def _declared(schema: Mapping[str, Any]) -> tuple[set[str], list[Any], dict[str, tuple[Any, ...]]]:
    """Return the names of all properties, all listed values, and the defaults of arguments."""
    names: set[str] = set()
    listed: list[Any] = []
    left: list[Any] = [schema]
    while left:
        one = left.pop()
        if isinstance(one, list):
            left += one
        elif isinstance(one, Mapping):
            properties = one.get("properties")
            if isinstance(properties, Mapping):
                names.update(properties)
            enum = one.get("enum")
            listed += enum if isinstance(enum, list) and len(enum) <= _FEW else []
            listed += [one["const"]] if "const" in one else []
            left += one.values()
    arguments = schema.get("properties")
    defaults = {
        name: (each["default"],)
        for name, each in (arguments.items() if isinstance(arguments, Mapping) else ())
        if isinstance(each, Mapping) and "default" in each
    }
    return names, listed, defaults


def _same(value: Any, among: Iterable[Any]) -> bool:
    """Return whether a value is among others; unlike in Python, 1 is not true."""
    return any(type(value) is type(one) and value == one for one in among)
