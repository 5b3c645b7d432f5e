"""Reads an OpenAPI document: JSON or YAML, the references in it, and its schemas.

Documents come from others. References lead nowhere but into the document, and what is read from it
has a bounded size.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

import msgspec

from component.skills.errors import SkillLoadError
from component.skills.spec import Schema
from component.skills.validation import pointed_to
from xep.characters import without_forbidden

JsonObject: TypeAlias = Mapping[str, Any]

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
_DEEPEST_SCHEMA: Final = 100
_MOST: Final = 2_000
_LONGEST_TEXT: Final = 400
_DEEPEST: Final = 200
_LONGEST_CHAIN: Final = 16
_LONGEST_REFERENCE: Final = 1_000


class Unusable(Exception):  # noqa: N818 - says what the operation is
    """An operation cannot be a skill. The message completes "is not offered: it "."""


class OpenApiDocument:
    """An OpenAPI document."""

    def __init__(self, root: JsonObject) -> None:
        self.root = root

    @classmethod
    def parse(cls, data: bytes) -> OpenApiDocument:
        """Read a document. Raises SkillLoadError."""
        root = _json(data) if data.lstrip()[:1] == b"{" else _yaml(data)
        version = root.get("openapi") if isinstance(root, dict) else None
        if not isinstance(version, str) or not version.startswith(("3.0", "3.1", "3.2")):
            raise SkillLoadError("It is not a description in OpenAPI 3.")
        if not isinstance(root.get("paths"), dict):
            raise SkillLoadError("It has no paths.")
        return cls(root)

    def node(self, node: object) -> JsonObject:
        """Return an object, or the one that it refers to. Raises Unusable."""
        for _ in range(_LONGEST_CHAIN):
            if not isinstance(node, Mapping):
                raise Unusable("has a part that is not an object")
            reference = node.get("$ref")
            if not isinstance(reference, str):
                return node
            node = self.target(reference)
        raise Unusable("has references that lead to each other")

    def target(self, reference: str) -> object:
        """Return what a reference points to (RFC 6901 §6). Raises Unusable."""
        shown = ascii(reference[:100])
        if not reference.startswith("#/"):
            raise Unusable(f"refers to {shown}, which is outside the document")
        if len(reference) > _LONGEST_REFERENCE:
            raise Unusable(f"refers to {shown}, which is too long")
        try:
            parts = [unquote(part).replace("/", "~1") for part in reference[1:].split("/")]
            return pointed_to(self.root, "/".join(parts))
        except LookupError:
            raise Unusable(f"refers to {shown}, which does not exist") from None


def mapping(value: object) -> JsonObject:
    """Return an object, or an empty one instead of anything else."""
    return value if isinstance(value, Mapping) else {}


def array(value: object) -> list[Any]:
    """Return an array, or an empty one instead of anything else."""
    return value if isinstance(value, list) else []


def bounded_text(value: object, longest: int) -> str:
    """Return a text, shortened and without what XML forbids; empty for anything else."""
    if not isinstance(value, str):
        return ""
    value = value.strip()
    return without_forbidden(value if len(value) <= longest else value[: longest - 1] + "…")


def _json(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (ValueError, RecursionError) as error:
        raise SkillLoadError(f"It is not JSON: {error}.") from None


def _yaml(data: bytes) -> Any:
    try:
        import yaml  # noqa: PLC0415 - of an extra
    except ImportError:
        raise SkillLoadError(
            "It is not JSON, and reading YAML needs the extra:"
            " pip install 'xmpp-agent-component[openapi]'."
        ) from None
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        depth = 0
        for event in yaml.parse(data, loader):
            # Aliases can make a short document a huge one, and parsing takes time that is quadratic
            # in the depth.
            if isinstance(event, yaml.AliasEvent):
                raise SkillLoadError("It has aliases (*name): write it without them.")
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > _DEEPEST:
                raise SkillLoadError(f"It is nested more than {_DEEPEST} levels deep.")
        # Dates become texts, and numbers as keys, such as those of responses, too.
        return msgspec.to_builtins(yaml.load(data, loader), str_keys=True)  # noqa: S506 - a safe one
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        reason = str(error).partition("\n")[0]
        raise SkillLoadError(f"It is neither JSON nor YAML: {reason}.") from None


class SchemaConverter:
    """Converts the schemas of one operation, which share their definitions, to JSON Schemas.

    OpenAPI 3.0 has a dialect of its own (`nullable`, boolean `exclusiveMinimum`). Of the keywords
    only those are kept that say something about a value, so that no schema refers to anything
    outside.

    Attributes:
        definitions: the schemas that others refer to, for `$defs`.
    """

    def __init__(self, document: OpenApiDocument) -> None:
        self._document = document
        self._names: dict[str, str] = {}
        self._count = 0
        self.definitions: dict[str, Schema] = {}

    def convert(self, node: object, depth: int = 0) -> Any:
        """Return the JSON Schema. Raises Unusable if it is too large or cannot be resolved."""
        self._count += 1
        if depth > _DEEPEST_SCHEMA or self._count > _MOST:
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
                if shown := bounded_text(value, _LONGEST_TEXT):
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
        for _ in range(_DEEPEST_SCHEMA):
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
