"""Lists the settings: the source of `init` and of the reference page."""

import ast
import functools
import inspect
import json
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from component.config.model import Settings
from component.config.problems import env_name, section_of

_KINDS = {bool: "true or false", int: "whole number", float: "number", str: "string", Path: "path"}


@dataclass(frozen=True, slots=True)
class Key:
    """One key. `default` and `example` are TOML, or None if there is none."""

    name: str
    description: str
    kind: str
    required: bool
    default: str | None
    example: str | None
    variable: str


@dataclass(frozen=True, slots=True)
class Table:
    """One section with its keys. `name` is empty for the keys above all sections.

    `optional` says that the presence of the section has a meaning. `like` is a section described
    earlier, with the same keys.
    """

    name: str
    description: str
    repeated: bool
    optional: bool
    like: str | None
    keys: tuple[Key, ...]

    @property
    def header(self) -> str:
        """Return `[server]` or `[[policy.rules]]`."""
        return f"[[{self.name}]]" if self.repeated else f"[{self.name}]"


def tables(model: type[Settings]) -> Iterator[Table]:
    """Yield every section in the order of the file; keys above all sections come first."""
    yield from _tables(model, Table("", "", False, False, None, ()), {})


def toml(value: Any) -> str:
    """Return `value` as TOML, on one line.

    Raises TypeError for a type that no setting has.
    """
    if isinstance(value, SecretStr):
        value = value.get_secret_value()  # a default, which is not secret
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(int(value)) if value.is_integer() else repr(value)
    if isinstance(value, int):
        return repr(value)
    if isinstance(value, Path):
        # `Path("./data")` drops the `./`.
        return toml(str(value) if value.is_absolute() else f"./{value}")
    if isinstance(value, str):
        # JSON's strings are TOML's, except for DEL, which JSON does not escape.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        members = ", ".join(f"{toml(key)} = {toml(each)}" for key, each in value.items())
        return f"{{ {members} }}" if members else "{}"
    if isinstance(value, Sequence):
        return f"[{', '.join(map(toml, value))}]"
    raise TypeError(f"no setting holds a {type(value).__name__}")


def _tables(
    section: type[BaseModel], head: Table, known: dict[type[BaseModel], str]
) -> Iterator[Table]:
    """Yield the tables of a section, whose own is `head` without its keys."""
    path = tuple(filter(None, head.name.split(".")))
    inner: list[tuple[str, FieldInfo, type[BaseModel]]] = []
    keys: list[Key] = []
    for name, field in section.model_fields.items():
        if (table := section_of(field)) is not None:
            inner.append((name, field, table))
        else:
            keys.append(_key(path, name, field, _description(section, name)))
    if keys:
        about = (head.description or inspect.cleandoc(section.__doc__ or "")) if path else ""
        yield replace(head, description=about, keys=tuple(keys))
    for name, field, table in inner:
        kind = get_origin(field.annotation)
        if issubclass(section, table):  # the same again: a choice beside the first one
            known[table] = head.name
        here = ".".join((*path, name, *(("…",) if kind is dict else ())))
        about = _description(section, name)
        optional = (
            table in known
            or head.optional
            or head.repeated
            or kind in (dict, types.UnionType, Union)
        )
        found = Table(here, about, kind is tuple, optional, known.get(table), ())
        if table in known:
            yield found
        else:
            yield from _tables(table, found, known)


def _description(section: type[BaseModel], name: str) -> str:
    """Return the description of a field, or the string below it in the source."""
    if description := section.model_fields[name].description:
        return description
    sections = (cls for cls in section.__mro__ if issubclass(cls, BaseModel))
    found = (_strings_below(cls.__module__).get((cls.__name__, name)) for cls in sections)
    return next(filter(None, found), "")


@functools.cache
def _strings_below(module: str) -> Mapping[tuple[str, str], str]:
    """Return the strings below fields in a module, by the names of the class and the field."""
    found: dict[tuple[str, str], str] = {}
    for cls in ast.parse(inspect.getsource(sys.modules[module])).body:
        for pair in pairwise(cls.body if isinstance(cls, ast.ClassDef) else ()):
            match (cls, *pair):
                case (
                    ast.ClassDef(name=section),
                    ast.AnnAssign(target=ast.Name(id=field)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    found[section, field] = " ".join(text.split())
    return found


def _key(path: tuple[str, ...], name: str, field: FieldInfo, description: str) -> Key:
    unset = field.default is PydanticUndefined or field.default is None
    return Key(
        name=name,
        description=description,
        kind=_kind(field.annotation),
        required=field.is_required(),
        default=None if unset else toml(field.default),
        example=toml(field.examples[0]) if field.examples else None,
        variable=env_name((*path, name)),
    )


def _kind(annotation: Any) -> str:
    if annotation is SecretStr:
        return "string (secret)"
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " or ".join(map(toml, arguments))
    if origin in (types.UnionType, Union):
        return _kind(next(a for a in arguments if a is not types.NoneType))
    if origin is Annotated:
        return _kind(arguments[0])
    if origin is tuple:
        return "list of strings"
    if origin is dict:
        return "table"
    return _KINDS[annotation]
