"""Converts the schemas of an OpenAPI document to JSON Schemas that contain all they refer to.

OpenAPI 3.0 has a dialect of its own (`nullable`, boolean `exclusiveMinimum`). Of the keywords only
those are kept that say something about a value, so that no schema refers to anything outside.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from component.features.apis.openapi.document import Document, Unusable, text
from component.skills.spec import Schema

_OF_SCHEMAS: Final = frozenset({"properties", "patternProperties", "dependentSchemas"})
_LISTS: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_SCHEMAS: Final = frozenset(
    {"items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else"}
)
_PLAIN: Final = frozenset(
    {"type", "enum", "const", "format", "pattern", "default", "multipleOf", "uniqueItems"}
    | {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength"}
    | {"minItems", "maxItems", "minProperties", "maxProperties", "minContains", "maxContains"}
)
_LIMITS: Final = (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum"))
_DEEPEST: Final = 100
_MOST: Final = 2_000
_LONGEST_TEXT: Final = 400


class SchemaConverter:
    """Converts the schemas of one operation, which share their definitions.

    Attributes:
        definitions: the schemas that others refer to, for `$defs`.
    """

    def __init__(self, document: Document) -> None:
        self._document = document
        self._names: dict[str, str] = {}
        self._count = 0
        self.definitions: dict[str, Schema] = {}

    def convert(self, node: object, depth: int = 0) -> Any:
        """Return the JSON Schema. Raises Unusable if it is too large or cannot be resolved."""
        self._count += 1
        if depth > _DEEPEST or self._count > _MOST:
            raise Unusable("has a schema that is too large")
        if isinstance(node, bool):
            return node
        if not isinstance(node, Mapping):
            raise Unusable("has a schema that is not an object")
        reference = node.get("$ref")
        found: Schema = {}
        if isinstance(reference, str):
            found["$ref"] = f"#/$defs/{self._defined(reference, depth + 1)}"
        for key, value in node.items():
            if key in _PLAIN:
                found[key] = value
            elif key in ("title", "description"):
                if shown := text(value, _LONGEST_TEXT):
                    found[key] = shown
            elif key in _OF_SCHEMAS and isinstance(value, Mapping):
                found[key] = {
                    each: self.convert(schema, depth + 1)
                    for each, schema in value.items()
                    if not _read_only(schema)
                }
            elif key in _LISTS and isinstance(value, list):
                found[key] = [self.convert(each, depth + 1) for each in value]
            elif key in _SCHEMAS:
                found[key] = self.convert(value, depth + 1)
        if isinstance(required := node.get("required"), list):
            properties = node.get("properties")
            hidden = {
                name
                for name, schema in (properties if isinstance(properties, Mapping) else {}).items()
                if _read_only(schema)
            }
            found["required"] = [
                name for name in required if isinstance(name, str) and name not in hidden
            ]
        return _modern(found, nullable=node.get("nullable") is True)

    def resolved(self, schema: Schema) -> Schema:
        """Return a converted schema, or the definition that it refers to."""
        for _ in range(_DEEPEST):
            reference = schema.get("$ref")
            if not isinstance(reference, str):
                return schema
            schema = self.definitions[reference.removeprefix("#/$defs/")]
        raise Unusable("has schemas that refer to each other")

    def _defined(self, reference: str, depth: int) -> str:
        """Return the name of a definition, which is made if it is new."""
        name = self._names.get(reference)
        if name is None:
            last = re.sub(r"[^A-Za-z0-9_.-]+", "_", reference.rpartition("/")[2])[:60] or "schema"
            name = last
            while name in self._names.values():
                name = f"{last}-{len(self._names)}"
            self._names[reference] = name  # before its content, which may refer to it
            converted = self.convert(self._document.target(reference), depth)
            self.definitions[name] = converted if isinstance(converted, dict) else {}
        return name


def _read_only(schema: object) -> bool:
    return isinstance(schema, Mapping) and schema.get("readOnly") is True


def _modern(schema: Schema, *, nullable: bool) -> Schema:
    """Convert what OpenAPI 3.0 says differently."""
    for exclusive, limit in _LIMITS:
        said = schema.get(exclusive)
        if isinstance(said, bool):
            del schema[exclusive]
            if said and limit in schema:
                schema[exclusive] = schema.pop(limit)
    if not nullable:
        return schema
    if isinstance(schema.get("enum"), list) and None not in schema["enum"]:
        schema["enum"] = [*schema["enum"], None]
    if isinstance(schema.get("type"), str):
        schema["type"] = [schema["type"], "null"]
        return schema
    return {"anyOf": [schema, {"type": "null"}]}
