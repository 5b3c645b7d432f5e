"""Validates values against JSON Schemas, those of strangers too.

A schema may describe nothing that lies outside it, and validating takes a bounded time: see
`component.skills.schema_bounds`; patterns are matched in linear time, or given up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any, Final, NoReturn
from uuid import UUID

import msgspec

from component.skills.errors import DeclarationError, printable
from component.skills.schema_bounds import check_bounds

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
        return written(self.path)


class SchemaValidator:
    """Validates values against a schema.

    Args:
        schema: the schema; JSON Schema 2020-12 unless it names another draft.

    Raises:
        DeclarationError: it is no JSON Schema, or cannot be used.
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


def written(path: tuple[str | int, ...]) -> str:
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
    return Mismatch(path, printable(error.message, _LONGEST_REASON), member)
