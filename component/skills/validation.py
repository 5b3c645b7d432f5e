"""Validates values against JSON Schemas, those of strangers too.

A schema may describe nothing that lies outside it, and validating takes a bounded time: see
`component.skills.validation`; patterns are matched in linear time, or given up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias
from uuid import UUID

import msgspec

from component.skills.errors import DeclarationError, printable
from xep.binding.json_bounds import MOST_DEPTH

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError

MOST_BYTES: Final = 65_536
"""The maximum size of a schema, as JSON."""
_BACKTRACKING: Final = 1_000
_PATTERN_BYTES: Final = 1 << 20
_LONGEST_REASON: Final = 300
_FORMATS: Final[Mapping[str, type[Any]]] = {
    "date-time": datetime,
    "date": date,
    "time": time,
    "duration": timedelta,
    "uuid": UUID,
}
EXAMPLES: Final[Mapping[str, str]] = {
    "date-time": "a date and time with its zone, such as 2026-12-24T19:30:00+01:00",
    "date": "a date such as 2026-12-24",
    "time": "a time such as 19:30:00",
    "duration": "a duration such as PT90M",
}
"""How dates and times are written, by their formats."""


class Mismatch(msgspec.Struct, frozen=True):
    """Why a value does not fit: the path of the part, and the reason, an unfinished sentence.

    `member` is the member of the whole value that the mismatch is about, if it is about one.
    """

    path: tuple[str | int, ...]
    reason: str
    member: str | None = None

    @property
    def place(self) -> str:
        """The path as it is written in errors: `point.x`, `items[3]`."""
        return path_text(self.path)


class SchemaValidator:
    """Validates values against a schema.

    Args:
        schema: the schema; JSON Schema 2020-12 unless it names another draft.

    Raises:
        DeclarationError: it is not a JSON Schema, or cannot be used.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        import jsonschema_rs  # noqa: PLC0415 - loaded by those who need it

        if len(msgspec.json.encode(schema)) > MOST_BYTES:
            raise DeclarationError(f"The schema has over {MOST_BYTES} bytes.")
        check_bounds(schema)
        try:
            self._validator = jsonschema_rs.validator_for(
                dict(schema),
                retriever=_refuse_to_fetch,
                validate_formats=True,
                ignore_unknown_formats=True,
                formats={name: _reader(type_) for name, type_ in _FORMATS.items()},
                pattern_options=jsonschema_rs.FancyRegexOptions(
                    backtrack_limit=_BACKTRACKING,
                    size_limit=_PATTERN_BYTES,
                    dfa_size_limit=_PATTERN_BYTES,
                ),
            )
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
            reason = printable(str(error).partition("\n")[0], _LONGEST_REASON)
            raise DeclarationError(f"The schema cannot be used: {reason}") from error

    def mismatches(self, value: Any) -> Iterator[Mismatch]:
        """Yield every mismatch of a value."""
        for error in self._validator.iter_errors(value):
            yield _mismatch(_relevant(error))

    def mismatch(self, value: Any) -> Mismatch | None:
        """Return the first mismatch of a value; None if it fits."""
        return next(self.mismatches(value), None)


class TextPattern:
    """A regular expression, in the syntax of RE2, which texts are searched for.

    A search takes time that is linear in the length of the text, whatever the expression is. So
    there are no references to groups, and no lookahead or lookbehind.

    Raises DeclarationError: it is not such an expression, or needs too much memory.

    Attributes:
        found_in: returns whether a text has a part that it matches.
    """

    def __init__(self, expression: str) -> None:
        import jsonschema_rs  # noqa: PLC0415 - loaded by those who need it

        linear = jsonschema_rs.RegexOptions(
            size_limit=_PATTERN_BYTES, dfa_size_limit=_PATTERN_BYTES
        )
        try:
            validator = jsonschema_rs.validator_for({"pattern": expression}, pattern_options=linear)
        except (jsonschema_rs.ValidationError, ValueError):
            raise DeclarationError(
                "it is not a regular expression, or has lookaround or references to groups, which"
                " are not possible here"
            ) from None
        self.found_in: Callable[[str], bool] = validator.is_valid


def path_text(path: tuple[str | int, ...]) -> str:
    """Return a path as it is written in errors."""
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in path]
    return "".join(parts).removeprefix(".")


def _refuse_to_fetch(uri: str) -> NoReturn:
    raise ValueError(f"{uri} is outside the schema")


def _reader(type_: type[Any]) -> Callable[[str], bool]:
    def reads(text: str) -> bool:
        try:
            msgspec.convert(text, type_)
        except msgspec.ValidationError:
            return False
        return True

    return reads


def _relevant(error: ValidationError) -> ValidationError:
    """Return the error of the one alternative of `anyOf` or `oneOf` that has the type of the value,
    if there is one: it says more.
    """
    context: list[list[ValidationError]] = getattr(error.kind, "context", None) or []
    near = [
        branch
        for branch in context
        if not any(
            type(one.kind).__name__ in ("Type", "Constant", "Enum")
            and len(one.instance_path) == len(error.instance_path)
            for one in branch
        )
    ]
    return _relevant(near[0][0]) if len(near) == 1 and near[0] else error


def _mismatch(error: ValidationError) -> Mismatch:
    path = tuple(error.instance_path)
    member: str | None = None
    if path:
        member = str(path[0])
    else:
        unexpected = getattr(error.kind, "unexpected", None) or [None]
        member = getattr(error.kind, "property", unexpected[0])
    example = EXAMPLES.get(getattr(error.kind, "format", ""))
    reason = f"expected {example}" if example else printable(error.message, _LONGEST_REASON)
    return Mismatch(path, reason, member)


MOST_WORK: Final = 2_000
"""The maximum number of subschemas that are applied on one path through a value."""
_MOST_REFERENCES: Final = 200
_LISTS: Final = ("allOf", "anyOf", "oneOf")
_SINGLE: Final = ("not", "if", "then", "else")
_NAMED: Final = ("dependentSchemas", "dependencies")
_REFUSED: Final = ("$dynamicRef", "$recursiveRef", "$anchor", "$dynamicAnchor", "$recursiveAnchor")
_MEMBERS: Final = ("additionalProperties", "unevaluatedProperties", "propertyNames")
_ITEMS: Final = ("items", "additionalItems", "unevaluatedItems", "contains")

Schema: TypeAlias = Mapping[str, Any]


def check_bounds(schema: Schema) -> None:
    """Raise DeclarationError, with the reason, for a schema that may take too long."""
    work = _Work(schema)
    if work.of_path(schema) > MOST_WORK:
        raise DeclarationError(
            "The schema cannot be used: validating a value against it may take too long."
        )


class _Work:
    """Computes the work that a schema causes."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._closures: dict[int, list[Schema]] = {}
        self._children: dict[int, list[Counter[int]]] = {}
        self._known: dict[int, Schema] = {}

    def of_path(self, schema: Schema) -> int:
        """Return the maximum work on one path of a value that is as deep as any may be."""
        reached = self._reached(schema)
        work = dict.fromkeys(reached, 0)
        for _ in range(MOST_DEPTH):
            before = work
            work = {}
            for key in reached:
                below = (
                    sum(count * before[child] for child, count in choice.items())
                    for choice in self._children[key]
                )
                most = len(self._closures[key]) + max(below, default=0)
                work[key] = min(most, MOST_WORK + 1)
            if work == before:  # most schemas end long before the deepest value
                break
        return work[id(schema)]

    def _reached(self, schema: Schema) -> list[int]:
        """Find all schemas that can apply to some part of a value."""
        self._known[id(schema)] = schema
        waiting = [id(schema)]
        while waiting:
            key = waiting.pop()
            if key in self._closures:
                continue
            self._closures[key] = closure = self._closure(self._known[key])
            self._children[key] = self._choices(closure)
            waiting += {child for choice in self._children[key] for child in choice}
        return list(self._closures)

    def _closure(self, schema: Schema) -> list[Schema]:
        """Return the schemas that apply to the same value, each as often as it is applied."""
        found: list[Schema] = []
        waiting = [schema]
        while waiting:
            one = waiting.pop()
            found.append(one)
            if len(found) > MOST_WORK:
                raise DeclarationError(
                    "The schema cannot be used: too many parts of it apply to one value, or its"
                    " references form a circle."
                )
            waiting += self._beside(one)
        return found

    def _beside(self, schema: Schema) -> Iterator[Schema]:
        if schema is not self._root and "$id" in schema:
            raise DeclarationError("The schema cannot be used: a part of it has an $id.")
        for keyword in _REFUSED:
            if keyword in schema:
                raise DeclarationError(f"The schema cannot be used: it has {keyword}.")
        for keyword in _LISTS:
            yield from _schemas(schema.get(keyword))
        for keyword in _SINGLE:
            yield from _schemas([schema.get(keyword)])
        for keyword in _NAMED:
            named = schema.get(keyword)
            yield from _schemas(list(named.values()) if isinstance(named, Mapping) else None)
        if "$ref" in schema:
            yield from _schemas([self._resolved(schema["$ref"])])

    def _resolved(self, reference: object) -> object:
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise DeclarationError("The schema cannot be used: it refers to another document.")
        try:
            return pointed_to(self._root, reference[1:])
        except LookupError:
            shown = reference[:_MOST_REFERENCES]
            raise DeclarationError(
                f"The schema cannot be used: it has no part {shown!r}."
            ) from None

    def _choices(self, closure: list[Schema]) -> list[Counter[int]]:
        """Return the schemas that apply to one child together, for each kind of child: a member
        with a name of its own, an item with a position of its own, or any other.
        """
        objects: Counter[int] = Counter()
        arrays: Counter[int] = Counter()
        members: dict[str, Counter[int]] = {}
        items: dict[int, Counter[int]] = {}
        for schema in closure:
            self._count(objects, [schema.get(keyword) for keyword in _MEMBERS])
            patterns = schema.get("patternProperties")
            self._count(objects, patterns.values() if isinstance(patterns, Mapping) else ())
            properties = schema.get("properties")
            for name, one in properties.items() if isinstance(properties, Mapping) else ():
                self._count(members.setdefault(name, Counter()), [one])
            self._count(arrays, [schema.get(keyword) for keyword in _ITEMS])
            for keyword in ("prefixItems", "items"):
                listed = schema.get(keyword)
                for at, one in enumerate(listed if isinstance(listed, list) else ()):
                    self._count(items.setdefault(at, Counter()), [one])
        return [
            objects,
            arrays,
            *(one + objects for one in members.values()),
            *(one + arrays for one in items.values()),
        ]

    def _count(self, counter: Counter[int], values: Any) -> None:
        for one in _schemas(list(values)):
            self._known[id(one)] = one
            counter[id(one)] += 1


def _schemas(values: object) -> Iterator[Schema]:
    """Yield the schemas in a list that are objects; `true` and `false` need no validation."""
    if isinstance(values, list | tuple):
        yield from (one for one in values if isinstance(one, Mapping))


def pointed_to(root: object, pointer: str) -> object:
    """Return what a JSON pointer (RFC 6901) points to. Raises LookupError."""
    found = root
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping):
            found = found[key]
        elif isinstance(found, list) and key.isdecimal():
            found = found[int(key)]
        else:
            raise LookupError(pointer)
    return found
