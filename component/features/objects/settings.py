"""The sections about objects."""

from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field

from component.config.kinds import Count, Section, different_names, refusal
from component.config.sections import Top, list_of_tables, table

TYPE_PATTERN: Final = r"^[a-z][a-z0-9_-]{0,63}$"
"""How the names of types are written."""


def check_schema(schema: dict[str, Any]) -> None:
    """Raise DeclarationError if data cannot be validated against a schema."""
    from component.skills.errors import DeclarationError  # noqa: PLC0415 - only for a schema
    from component.skills.validation import SchemaValidator  # noqa: PLC0415

    if schema.get("type", "object") != "object":
        raise DeclarationError('The schema is not one of an object: write "type": "object".')
    SchemaValidator(schema)


def _schema(value: dict[str, Any]) -> dict[str, Any]:
    try:
        check_schema(value)
    except TypeError as error:  # DeclarationError is one
        raise refusal(f"cannot be used. {error}") from None
    return value


class ObjectLimits(Section):
    """Objects of people, rooms and scopes. See docs/how-to/objects.md."""

    per_owner: Count = 10000
    """Maximum number of objects of one owner with one agent: a person, a room or a scope."""
    bytes_per_owner: Count = 16777216
    """Maximum size of the objects of one owner with one agent, in bytes of JSON. The version before
    the latest one of each object does not count.
    """
    types_per_owner: Count = 100
    """Maximum number of types of one owner with one agent."""
    object_bytes: Annotated[int, Field(ge=256, le=98304)] = 65536
    """Maximum size of one object in bytes of JSON."""
    cache_bytes: Annotated[int, Field(ge=0)] = 33554432
    """Size of the objects that are kept in memory for queries, in bytes of JSON. Decoded, they take
    several times as much. Those that were not used for the longest time are removed.
    """


class ObjectTypeEntry(Section):
    """A type of objects whose data must fit a schema. It holds for everybody who stores them."""

    name: Annotated[str, Field(pattern=TYPE_PATTERN)] = Field(examples=["task"])
    """Name of the type: lower-case letters, digits, - and _."""
    json_schema: Annotated[dict[str, Any], AfterValidator(_schema)] = Field(
        examples=[{"required": ["title"], "properties": {"title": {"type": "string"}}}]
    )
    """JSON Schema (2020-12) of the data. Nobody can replace it by a skill."""


LIMITS: Final = table("objects", ObjectLimits)
ENTRIES: Final = list_of_tables("object_type", ObjectTypeEntry, different_names("types"))
SECTIONS: Final[tuple[Top[Any], ...]] = (LIMITS, ENTRIES)
