"""Values held against JSON Schemas. `jsonschema` is loaded by whoever first needs it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jsonschema import ValidationError
    from jsonschema.protocols import Validator


@cache
def validator_class() -> type[Validator]:
    """The validator of JSON Schema 2020-12.

    It searches no text for a pattern that is longer than the schema says: how long a search takes
    depends on that (see `component.skills.patterns`), and the text is refused all the same.
    """
    from jsonschema import Draft202012Validator  # noqa: PLC0415 - slow to load, seldom needed
    from jsonschema.validators import extend  # noqa: PLC0415

    made: type[Validator] = extend(  # type: ignore[no-untyped-call]  # the stubs leave it open
        Draft202012Validator, {"pattern": _pattern}
    )
    return made


def _pattern(
    _validator: Validator, pattern: str, instance: object, schema: Mapping[str, Any]
) -> Iterator[ValidationError]:
    from jsonschema import ValidationError  # noqa: PLC0415

    if not isinstance(instance, str) or len(instance) > schema.get("maxLength", len(instance)):
        return
    if not re.search(pattern, instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")
