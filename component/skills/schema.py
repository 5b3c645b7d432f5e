"""Derives the inputs and outputs of a skill from a function: types, JSON Schemas, readers, texts.

The type hints are the single source. msgspec builds a struct from them, which validates, and
callers see the JSON Schema (2020-12) of that struct. The docstring describes the function and its
parameters.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import re
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from types import UnionType
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import inspect as types

from component.skills.context import Context
from component.skills.errors import DeclarationError, UsageError
from component.skills.inputs import Inputs, StructInputs
from component.skills.outputs import JSON, TEXT, Part, SkillResult
from component.skills.params import Reader, reader_of
from component.skills.spec import Schema

_BINARY = (bytes, bytearray, memoryview)
# Hints that msgspec accepts but that have no correct form for a caller: Decimal accepts NaN as
# text, the others are not data.
_REFUSED = (types.CustomType, types.RawType, types.ExtType, types.DecimalType, types.ByteArrayType,
            types.MemoryViewType)  # fmt: skip


class Signature(msgspec.Struct, frozen=True):
    """A function's parameters: those of its callers with their JSON Schema, and the name of the one
    for the call's Context, if there is one.

    `positional` says that the arguments can be passed by position, `as_struct` that the function
    takes all of them as one Struct.
    """

    inputs: Inputs
    schema: Schema
    context: str | None
    positional: bool
    as_struct: bool = False


class Outputs(msgspec.Struct, frozen=True):
    """The JSON Schema of what a skill returns, if it declares one, and the media types."""

    schema: Schema | None
    media_types: tuple[str, ...]


def signature_of(function: Callable[..., Any], docs: Mapping[str, str]) -> Signature:
    """Read a function's parameters; `docs` describes those without a description in their hints.

    Raises DeclarationError with the function and the parameter, for types that callers could not
    send.
    """
    title = function.__qualname__
    hints = _hints(function)
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    readers: dict[str, Reader] = {}
    context: str | None = None
    positional = True
    base: type[msgspec.Struct] | None = None
    for param in inspect.signature(function).parameters.values():
        where = f"The parameter {param.name!r} of the skill function {title}"
        hint = hints.get(param.name)
        of_struct = isinstance(hint, type) and issubclass(hint, msgspec.Struct)
        if param.kind is param.POSITIONAL_ONLY and of_struct:
            base = hints[param.name]
            readers |= _readers_of(base, title)
            continue
        if param.kind in {param.VAR_POSITIONAL, param.VAR_KEYWORD, param.POSITIONAL_ONLY}:
            raise DeclarationError(f"{where} has no name for callers: declare it as a plain one.")
        if param.name not in hints:
            raise DeclarationError(f"{where} has no type hint: add one, such as {param.name}: str.")
        if isinstance(hint, type) and issubclass(hint, Context):
            if context is not None:
                raise DeclarationError(f"{where} is a second Context: one is enough.")
            context = param.name
            continue
        if base is not None:
            raise DeclarationError(f"{where} is beside a Struct of all parameters: move it there.")
        _check_name(param.name, where)
        positional = positional and param.kind is not param.KEYWORD_ONLY
        readers[param.name] = reader_of(_checked(hint, where))
        if param.default is param.empty:
            fields.append((param.name, hint))
        else:
            _check_default(param.default, hint, where)
            fields.append((param.name, hint, param.default))
    try:
        struct = msgspec.defstruct(
            "Arguments",
            fields,
            bases=None if base is None else (base,),
            forbid_unknown_fields=True,
            frozen=True,
            kw_only=True,
        )
        schema = _schema_of(struct)
    except (TypeError, ValueError) as exc:
        raise DeclarationError(f"The skill function {title} cannot be described: {exc}.") from exc
    for name, _, *default in fields:
        if default:
            # In one fixed order, so that the hash over the schema is the same in every process.
            schema["properties"][name]["default"] = msgspec.to_builtins(
                default[0], str_keys=True, order="deterministic"
            )
    for name, text in docs.items():
        if name in schema["properties"]:
            schema["properties"][name].setdefault("description", text)
    _add_field_texts(schema["properties"], base)
    inputs = StructInputs(struct, schema, readers)
    inputs.plain = positional and base is None and all(reader.plain for reader in readers.values())
    as_struct = base is not None
    return Signature(inputs, schema, context, positional and context is None, as_struct)


def outputs_of(function: Callable[..., Any]) -> Outputs:
    """Read what a function returns. Raises DeclarationError for an impossible type.

    `Annotated[SkillResult, T]` says that one part of the result is JSON of the type T.
    """
    hint = _hints(function).get("return", Any)
    if typing.get_origin(hint) is Annotated and hint.__origin__ is SkillResult:
        return Outputs(_schema_of(hint.__metadata__[0]), (TEXT, JSON))
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
    """Return the JSON Schema of an object type, for a question. Raises UsageError."""
    where = "What a skill asks for"
    try:
        _checked(hint, where)
    except DeclarationError as exc:
        raise UsageError(str(exc)) from exc
    schema = _schema_of(hint)
    if schema.get("type") != "object":
        raise UsageError(f"{where} is {_spoken(hint)}: ask for a Struct or a dataclass of fields.")
    return schema


def _add_field_texts(properties: dict[str, Schema], struct: type[msgspec.Struct] | None) -> None:
    for name, text in ({} if struct is None else field_texts(struct)).items():
        properties[name] = {"description": text, **properties[name]}


def _readers_of(struct: type[msgspec.Struct], title: str) -> dict[str, Reader]:
    readers = {}
    for name, hint in _hints(struct).items():
        where = f"The parameter {name!r} of the skill function {title}"
        _check_name(name, where)
        readers[name] = reader_of(_checked(hint, where))
    return readers


def _check_name(name: str, where: str) -> None:
    if name.startswith("_"):
        raise DeclarationError(f"{where} starts with an underscore: callers see this name.")
    if name == "FORM_TYPE":
        raise DeclarationError(f"{where} has the name of a field that every form has already.")


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
    return any(isinstance(part, type) and issubclass(part, Part | SkillResult) for part in parts)


def _checked(hint: Any, where: str) -> types.Type:
    """Return msgspec's information about a hint. Raises DeclarationError if it is not supported."""
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
        if text.pattern is None:
            continue
        from component.skills.patterns import unfit  # noqa: PLC0415 - few texts have a pattern

        if why := unfit(text.pattern, text.max_length):
            raise DeclarationError(f"{where} has the pattern {text.pattern!r}: {why}.")
    return declared


def _union_in(hint: Any, where: str) -> Any | None:
    try:
        return constrained_union(hint)
    except (NameError, AttributeError, TypeError) as exc:
        raise DeclarationError(
            f"{where} has the type {_spoken(hint)}, whose own type hints cannot be resolved: {exc}."
        ) from exc


def _inside(declared: types.Type) -> Iterator[types.Type]:
    """Yield the direct parts of a type, without the fields of objects."""
    for attribute in ("type", "item_type", "key_type", "value_type"):
        if isinstance(part := getattr(declared, attribute, None), types.Type):
            yield part
    for attribute in ("types", "item_types"):
        yield from getattr(declared, attribute, ())


def _parts(declared: types.Type) -> Iterator[types.Type]:
    """Yield a type and its parts, without the fields of objects."""
    yield declared
    for part in _inside(declared):
        yield from _parts(part)


def _texts_in(declared: types.Type, seen: set[int]) -> Iterator[types.StrType]:
    """Yield the text types within a type, at every depth."""
    if id(declared) in seen:
        return
    seen.add(id(declared))
    if isinstance(declared, types.StrType):
        yield declared
    for part in (*_inside(declared), *(field.type for field in getattr(declared, "fields", ()))):
        yield from _texts_in(part, seen)


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
    schema = ordered_schema(hint)
    definitions: dict[str, Schema] = schema.pop("$defs", {})
    name = schema.get("$ref", "").removeprefix("#/$defs/")
    # A recursive type is still referred to by name, and stays in the definitions.
    if name in definitions and msgspec.json.encode(schema) not in msgspec.json.encode(definitions):
        schema = definitions.pop(name)
    if definitions:
        schema["$defs"] = definitions
    if schema.get("title") == "Arguments":
        del schema["title"]
    return schema


_Key: TypeAlias = frozenset[tuple[type, Any]]


def ordered_schema(hint: Any) -> dict[str, Any]:
    """Return the JSON Schema of a type; raises what `msgspec.json.schema` does."""
    schema = msgspec.json.schema(hint)
    _translate_patterns(schema)
    orders: dict[_Key, list[Any]] = {}
    for choices in _choices_in(hint, set()):
        orders.setdefault(_key_of(choices), choices)
    if orders:
        _reorder(schema, orders)
    return schema


def _key_of(choices: list[Any]) -> _Key:
    return frozenset((type(choice), choice) for choice in choices)


def _choices_in(hint: Any, seen: set[int]) -> Iterator[list[Any]]:
    """Yield the choices of each enumeration within a type."""
    if id(hint) in seen:
        return
    seen.add(id(hint))
    if typing.get_origin(hint) is typing.Literal:
        yield [choice for choice in typing.get_args(hint) if choice is not None]
    elif isinstance(hint, type) and issubclass(hint, enum.Enum):
        yield [member.value for member in hint]
    elif isinstance(hint, type) and hint.__module__ != "builtins":
        with suppress(NameError, TypeError):  # msgspec knows such types in other ways
            for inner in typing.get_type_hints(hint, include_extras=True).values():
                yield from _choices_in(inner, seen)
    for inner in typing.get_args(hint):
        if typing.get_origin(hint) is not typing.Literal:
            yield from _choices_in(inner, seen)


def _reorder(schema: Any, orders: Mapping[_Key, list[Any]]) -> None:
    if isinstance(schema, dict):
        choices = schema.get("enum")
        if isinstance(choices, list):
            order = orders.get(_key_of([choice for choice in choices if choice is not None]))
            if order is not None:
                schema["enum"] = [*order, *(each for each in choices if each is None)]
        for part in schema.values():
            _reorder(part, orders)
    elif isinstance(schema, list):
        for part in schema:
            _reorder(part, orders)


def _translate_patterns(schema: Any) -> None:
    r"""Write `$` for `\Z`: in JSON Schema, whose expressions are those of ECMA-262, `\Z` means the
    letter, and `$` the very end.
    """
    if isinstance(schema, dict):
        pattern = schema.get("pattern")
        if isinstance(pattern, str) and pattern.endswith(r"\Z"):
            schema["pattern"] = f"{pattern[:-2]}$"
        for part in schema.values():
            _translate_patterns(part)
    elif isinstance(schema, list):
        for part in schema:
            _translate_patterns(part)


_CONSTRAINTS = (
    "gt", "ge", "lt", "le", "multiple_of", "pattern", "min_length", "max_length", "tz",
)  # fmt: skip


def constrained_union(hint: Any) -> Any | None:
    """Return a union of several types besides None that contains a constraint, None if there is
    none.

    The parts of the hint are inspected as well: items, and the fields of classes.
    """
    return _search(hint, set())


def _search(hint: Any, seen: set[Any]) -> Any | None:
    hint = getattr(hint, "__supertype__", hint)  # a NewType stands for another type
    if typing.get_origin(hint) in {typing.Union, UnionType, typing.Annotated}:
        several = [member for member in _members(hint) if member is not type(None)]
        if len(several) > 1 and _constrained(hint):
            return hint
    parts: list[Any] = [
        part for part in typing.get_args(hint) if not isinstance(part, msgspec.Meta)
    ]
    # The class itself, or that of a generic alias.
    described = typing.get_origin(hint) or hint
    if _has_fields(described) and described not in seen:
        seen.add(described)
        parts += typing.get_type_hints(described, include_extras=True).values()
    for part in parts:
        found = _search(part, seen)
        if found is not None:
            return found
    return None


def _members(hint: Any) -> list[Any]:
    hint = getattr(hint, "__supertype__", hint)
    origin = typing.get_origin(hint)
    if origin is typing.Annotated:
        return _members(typing.get_args(hint)[0])
    if origin in {typing.Union, UnionType}:
        return [member for part in typing.get_args(hint) for member in _members(part)]
    return [hint]


def _constrained(hint: Any) -> bool:
    """Return whether a union or one of its members has a constraint."""
    hint = getattr(hint, "__supertype__", hint)
    origin = typing.get_origin(hint)
    if origin is typing.Annotated:
        inner, *notes = typing.get_args(hint)
        metas = [note for note in notes if isinstance(note, msgspec.Meta)]
        return _constrained(inner) or any(
            getattr(meta, name) is not None for meta in metas for name in _CONSTRAINTS
        )
    if origin in {typing.Union, UnionType}:
        return any(_constrained(part) for part in typing.get_args(hint))
    return False


def _has_fields(described: Any) -> bool:
    return isinstance(described, type) and (
        issubclass(described, msgspec.Struct)
        or dataclasses.is_dataclass(described)
        or typing.is_typeddict(described)
        or hasattr(described, "_fields")
    )


_SECTION = r"(Args|Arguments|Parameters|Returns|Return|Raises|Yields|Examples?|Notes?):\s*$"
_PARAM = r"(\w+)\s*(?:\([^)]*\))?:\s*(.*)$"


def field_texts(struct: type[msgspec.Struct]) -> dict[str, str]:
    """Return the texts of the fields of a Struct, from its docstring and those of its bases."""
    texts = dict[str, str]()
    for base in reversed(struct.__mro__):
        if issubclass(base, msgspec.Struct):
            texts |= read_docstring(base.__doc__)[1]
    return texts


def read_docstring(docstring: str | None) -> tuple[str, dict[str, str]]:
    """Return the description, and the text for each parameter named under `Args:`."""
    description: list[str] = []
    params: dict[str, list[str]] = {}
    section: str | None = None
    margin: int | None = None
    current: list[str] | None = None
    for line in inspect.cleandoc(docstring or "").splitlines():
        indent = len(line) - len(line.lstrip())
        if not indent and (found := re.match(_SECTION, line)):
            section, margin, current = found[1], None, None
        elif not indent and line and section is not None:
            section = None
            description.append(line)
        elif section is None:
            description.append(line)
        elif section in {"Args", "Arguments", "Parameters"} and line:
            margin = indent if margin is None else margin
            if indent <= margin and (param := re.match(_PARAM, line.strip())):
                current = params.setdefault(param[1], [])
                current.append(param[2])
            elif current is not None:
                current.append(line.strip())
    texts = {name: " ".join(filter(None, lines)) for name, lines in params.items()}
    return "\n".join(description).strip(), {name: text for name, text in texts.items() if text}
