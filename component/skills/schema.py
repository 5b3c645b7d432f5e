"""From a function's signature to what it takes and gives: types, JSON Schemas, readers.

The type hints are the single source. msgspec builds a struct from them, which validates, and the
JSON Schema (2020-12) of that struct is what callers are shown.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import inspect as types

from component.skills.context import Context
from component.skills.errors import DeclarationError, UsageError
from component.skills.hints import constrained_union
from component.skills.outputs import JSON, TEXT, Output, SkillResult
from component.skills.patterns import unfit
from component.skills.readers import Reader, reader_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Schema = dict[str, Any]

_BINARY = (bytes, bytearray, memoryview)
# Hints that msgspec would take and that have no honest form for a caller: Decimal lets NaN through
# as text, the others are no data at all.
_REFUSED = (types.CustomType, types.RawType, types.ExtType, types.DecimalType, types.ByteArrayType,
            types.MemoryViewType)  # fmt: skip


class Param(msgspec.Struct, frozen=True):
    """One parameter as discovery lists it. `type` is a JSON Schema type, or `any`."""

    name: str
    type: str
    required: bool
    description: str = ""


class Inputs(msgspec.Struct, frozen=True):
    """What a skill takes.

    `struct` is the class that validated arguments are instances of, `context` the name of the
    parameter that the call's Context is passed as, if there is one. `verbatim` names the parameters
    whose text is their value.
    """

    struct: type[msgspec.Struct]
    schema: Schema
    params: tuple[Param, ...]
    readers: Mapping[str, Reader]
    verbatim: frozenset[str]
    context: str | None
    positional: bool


class Outputs(msgspec.Struct, frozen=True):
    """What a skill gives: the JSON Schema of its value where it says so, and the media types."""

    schema: Schema | None
    media_types: tuple[str, ...]


def inputs_of(function: Callable[..., Any], docs: Mapping[str, str]) -> Inputs:
    """Read a function's parameters; `docs` describes those whose hints do not.

    Raises DeclarationError, naming function and parameter, for what callers could not send.
    """
    title = function.__qualname__
    hints = _hints(function)
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    readers: dict[str, Reader] = {}
    context: str | None = None
    positional = True
    for param in inspect.signature(function).parameters.values():
        where = f"The parameter {param.name!r} of the skill function {title}"
        if param.kind in {param.VAR_POSITIONAL, param.VAR_KEYWORD, param.POSITIONAL_ONLY}:
            raise DeclarationError(f"{where} has no name for callers: declare it as a plain one.")
        if param.name not in hints:
            raise DeclarationError(f"{where} has no type hint: add one, such as {param.name}: str.")
        hint = hints[param.name]
        if isinstance(hint, type) and issubclass(hint, Context):
            if context is not None:
                raise DeclarationError(f"{where} is a second Context: one is enough.")
            context = param.name
            continue
        if param.name.startswith("_"):
            raise DeclarationError(f"{where} starts with an underscore: callers see this name.")
        if param.name == "FORM_TYPE":
            raise DeclarationError(f"{where} has the name of a field that every form has already.")
        positional = positional and param.kind is not param.KEYWORD_ONLY
        readers[param.name] = reader_of(_checked(hint, where))
        if param.default is param.empty:
            fields.append((param.name, hint))
        else:
            _check_default(param.default, hint, where)
            fields.append((param.name, hint, param.default))
    try:
        struct = msgspec.defstruct(
            "Arguments", fields, forbid_unknown_fields=True, frozen=True, kw_only=True
        )
        schema = _schema_of(struct)
    except (TypeError, ValueError) as exc:
        raise DeclarationError(f"The skill function {title} cannot be described: {exc}.") from exc
    for name, _, *default in fields:
        if default:
            # In one order in every process, or the hash over what callers see would not be either.
            schema["properties"][name]["default"] = msgspec.to_builtins(
                default[0], str_keys=True, order="deterministic"
            )
    for name, text in docs.items():
        if name in schema["properties"]:
            schema["properties"][name].setdefault("description", text)
    return Inputs(
        struct=struct,
        schema=schema,
        params=_params_of(schema),
        readers=readers,
        verbatim=frozenset(name for name, reader in readers.items() if reader.verbatim),
        context=context,
        positional=positional and context is None,
    )


def outputs_of(function: Callable[..., Any]) -> Outputs:
    """Read what a function returns. Raises DeclarationError for what no reply can carry."""
    hint = _hints(function).get("return", Any)
    if hint is type(None):
        return Outputs(None, ())
    if hint is Any or _gives_outputs(hint):
        return Outputs(None, (TEXT, JSON))
    where = f"What the skill function {function.__qualname__} returns"
    if hint in _BINARY:
        raise DeclarationError(f"{where} is bytes: return text, a value for JSON, or an Output.")
    _checked(hint, where)
    return Outputs(_schema_of(hint), (TEXT,) if hint is str else (JSON,))


def object_schema(hint: Any) -> Schema:
    """The JSON Schema of a type whose values are objects, for a question. Raises UsageError."""
    where = "What a skill asks for"
    try:
        _checked(hint, where)
    except DeclarationError as exc:
        raise UsageError(str(exc)) from exc
    schema = _schema_of(hint)
    if schema.get("type") != "object":
        raise UsageError(f"{where} is {_spoken(hint)}: ask for a Struct or a dataclass of fields.")
    return schema


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except (NameError, AttributeError, TypeError, SyntaxError) as exc:
        raise DeclarationError(
            f"The type hints of the skill function {function.__qualname__} cannot be resolved "
            f"({exc}): what they name must be importable at run time, at the top of its module."
        ) from exc


def _gives_outputs(hint: Any) -> bool:
    parts = typing.get_args(hint) or (hint,)
    return any(isinstance(part, type) and issubclass(part, Output | SkillResult) for part in parts)


def _checked(hint: Any, where: str) -> types.Type:
    """Return what msgspec knows of a hint. Raises DeclarationError when it cannot serve."""
    union = _union_in(hint, where)
    if union is not None:
        raise DeclarationError(
            f"{where} joins several types of which one has a constraint ({_spoken(union)}): leave "
            f"the constraint out and check it in the function, or take one type."
        )
    try:
        declared = types.type_info(hint)
        msgspec.json.Decoder(hint)
        msgspec.json.schema(hint)
    except (TypeError, ValueError) as exc:
        raise DeclarationError(
            f"{where} has the type {_spoken(hint)}, which JSON cannot carry: use str, int, float, "
            f"bool, an enumeration, list, dict, a dataclass or a msgspec.Struct."
        ) from exc
    if any(isinstance(part, _REFUSED) for part in _parts(declared)):
        raise DeclarationError(
            f"{where} has the type {_spoken(hint)}, which has no plain form in JSON: use str, int "
            f"or float."
        )
    for text in _texts_in(declared, set()):
        if text.pattern is not None and (why := unfit(text.pattern, text.max_length)):
            raise DeclarationError(f"{where} has the pattern {text.pattern!r}: {why}.")
    return declared


def _union_in(hint: Any, where: str) -> Any | None:
    try:
        return constrained_union(hint)
    except (NameError, AttributeError, TypeError) as exc:
        raise DeclarationError(
            f"{where} has the type {_spoken(hint)}, whose own type hints cannot be resolved: {exc}."
        ) from exc


def _parts(declared: types.Type) -> list[types.Type]:
    """Return a type and what it directly holds. What lies in objects is theirs to answer for."""
    found = [declared]
    for attribute in ("type", "item_type", "key_type", "value_type"):
        if isinstance(part := getattr(declared, attribute, None), types.Type):
            found += _parts(part)
    for attribute in ("types", "item_types"):
        for part in getattr(declared, attribute, ()):
            found += _parts(part)
    return found


def _texts_in(declared: types.Type, seen: set[int]) -> Iterator[types.StrType]:
    """The texts that a value of a type holds, at every depth."""
    if id(declared) in seen:
        return
    seen.add(id(declared))
    if isinstance(declared, types.StrType):
        yield declared
    for attribute in ("type", "item_type", "key_type", "value_type"):
        if isinstance(part := getattr(declared, attribute, None), types.Type):
            yield from _texts_in(part, seen)
    for attribute in ("types", "item_types"):
        for part in getattr(declared, attribute, ()):
            yield from _texts_in(part, seen)
    for field in getattr(declared, "fields", ()):
        yield from _texts_in(field.type, seen)


def _spoken(hint: Any) -> str:
    return hint.__qualname__ if isinstance(hint, type) else str(hint)


def _check_default(default: Any, hint: Any, where: str) -> None:
    try:
        msgspec.convert(msgspec.to_builtins(default), hint)
    except (TypeError, ValueError) as exc:
        raise DeclarationError(
            f"{where} has the default {default!r}, which does not fit its type: {exc}."
        ) from exc


def _schema_of(hint: Any) -> Schema:
    """Return a JSON Schema whose top is the type itself and not a reference to it."""
    schema = msgspec.json.schema(hint)
    definitions: dict[str, Schema] = schema.pop("$defs", {})
    name = schema.get("$ref", "").removeprefix("#/$defs/")
    # A type that holds itself is still referred to by name, and stays where it is.
    if name in definitions and msgspec.json.encode(schema) not in _encoded(definitions):
        schema = definitions.pop(name)
    if definitions:
        schema["$defs"] = definitions
    if schema.get("title") == "Arguments":
        del schema["title"]
    return schema


def _encoded(definitions: dict[str, Schema]) -> bytes:
    return msgspec.json.encode(definitions)


def _params_of(schema: Schema) -> tuple[Param, ...]:
    required = set(schema.get("required", ()))
    return tuple(
        Param(
            name=name,
            type=_type_of(prop, schema.get("$defs", {})),
            required=name in required,
            description=prop.get("description", ""),
        )
        for name, prop in schema["properties"].items()
    )


def _type_of(prop: Schema, definitions: Mapping[str, Schema]) -> str:
    """Return the one JSON type that a property has besides null, or `any`."""
    if "$ref" in prop:
        return _type_of(definitions[prop["$ref"].removeprefix("#/$defs/")], definitions)
    if "type" in prop:
        return str(prop["type"])
    if "enum" in prop:
        values = [value for value in prop["enum"] if value is not None]
        found = {"string" if isinstance(value, str) else "integer" for value in values}
    else:
        found = {_type_of(part, definitions) for part in prop.get("anyOf", ())} - {"null"}
    return found.pop() if len(found) == 1 else "any"
