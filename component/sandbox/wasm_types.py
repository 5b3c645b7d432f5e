"""The types of components, written as in WIT, and how they are compared with the interface.

A component declares the types of what it imports itself, and wasmtime-py converts values as it
says. So every declared type must be exactly that of `skill.wit`: with a list of lists where the
interface has a text, a guest could have the host copy many times the memory that it may use.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import wasmtime
from wasmtime import component as wc

PACKAGE: Final = "xmpp-agent:skill"
VERSION: Final = "0.1.0"
_NAMES: Final = {
    wc.Bool: "bool",
    wc.S8: "s8",
    wc.S16: "s16",
    wc.S32: "s32",
    wc.S64: "s64",
    wc.U8: "u8",
    wc.U16: "u16",
    wc.U32: "u32",
    wc.U64: "u64",
    wc.F32: "f32",
    wc.F64: "f64",
    wc.Char: "char",
    wc.String: "string",
}
_DEEPEST: Final = 8


def import_name(interface: str) -> str:
    """Return the name by which a component imports an interface of the package."""
    return f"{PACKAGE}/{interface}@{VERSION}"


def interface_of(name: str) -> str:
    """Return the interface that a component imports, or an empty text if it is not of the package.

    A later patch version is the same interface.
    """
    found = re.fullmatch(rf"{re.escape(PACKAGE)}/([a-z-]+)@0\.1\.\d{{1,9}}", name)
    return found[1] if found else ""


def function_text(function: wc.FuncType) -> str:
    """Return the type of a function, as in `(level: enum{debug,info}) -> string`."""
    params = ", ".join(f"{name}: {type_text(each)}" for name, each in function.params)
    result = function.result
    return f"({params})" + ("" if result is None else f" -> {type_text(result)}")


def type_text(value: wc.ValType | None, depth: int = 0) -> str:
    """Return a type. One that no skill's interface uses, or that is nested deeply, is `?`."""
    if value is None:
        return "_"
    if type(value) in _NAMES:
        return _NAMES[type(value)]
    if depth == _DEEPEST:
        return "?"

    def inner(part: wc.ValType | None) -> str:
        return type_text(part, depth + 1)

    match value:
        case wc.ListType():
            return f"list<{inner(value.element)}>"
        case wc.OptionType():
            return f"option<{inner(value.payload)}>"
        case wc.ResultType():
            return f"result<{inner(value.ok)}, {inner(value.err)}>"
        case wc.TupleType():
            return f"tuple<{', '.join(map(inner, value.elements))}>"
        case wc.EnumType():
            return f"enum{{{', '.join(value.names)}}}"
        case wc.RecordType():
            return f"record{{{', '.join(f'{n}: {inner(t)}' for n, t in value.fields)}}}"
        case wc.VariantType():
            return f"variant{{{', '.join(f'{n}: {inner(t)}' for n, t in value.cases)}}}"
    return "?"


def imports_of(component: wc.Component, engine: wasmtime.Engine) -> dict[str, dict[str, str]]:
    """Return what a component imports: the functions of each interface, with their types.

    Something other than an interface of functions has the type `?`.
    """
    found: dict[str, dict[str, str]] = {}
    for name, extern in component.type.imports(engine).items():
        item = extern.ty
        if isinstance(item, wc.ComponentInstanceType):
            found[name] = {
                inner: _item_text(each.ty) for inner, each in item.exports(engine).items()
            }
        else:
            found[name] = {"": "?"}
    return found


def export_of(component: wc.Component, engine: wasmtime.Engine, name: str) -> str:
    """Return the type of an exported function, or an empty text if there is none."""
    extern = component.type.exports(engine).get(name)
    item = None if extern is None else extern.ty
    return function_text(item) if isinstance(item, wc.FuncType) else ""


def _item_text(item: object) -> str:
    if isinstance(item, wc.FuncType):
        return function_text(item)
    # The types that an interface declares come with it; they do nothing.
    return "type" if isinstance(item, wc.ValType) else "?"


_BODY = "variant{text: string, base64: string}"
_REQUEST = (
    "record{method: string, url: string, headers: string,"
    f" body: option<{_BODY}>, credential: option<string>}}"
)
INTERFACES: Final[Mapping[str, Mapping[str, str]]] = {
    "log": {"write": "(level: enum{debug, info, warning, error}, text: string)"},
    "progress": {"report": "(fraction: f64, text: string)"},
    "http": {
        "send": f"(request: {_REQUEST}) -> result<record{{status: u16, headers: string,"
        f" body: {_BODY}}}, string>"
    },
    "memory": {
        "get": "(key: string) -> result<option<string>, string>",
        "put": "(key: string, value: string) -> result<_, string>",
        "delete": "(key: string) -> result<_, string>",
        "keys": "(prefix: string) -> result<list<string>, string>",
    },
    "credentials": {"available": "(name: string) -> bool"},
    "llm": {"ask": "(prompt: string, schema: string, max-tokens: u32) -> result<string, string>"},
    "xmpp": {"send": "(to: string, text: string) -> result<_, string>"},
    "clock": {"now": "() -> u64", "monotonic": "() -> u64"},
    "random": {"bytes": "(length: u32) -> list<u8>", "number": "() -> u64"},
}
"""The functions of each interface in `skill.wit`; a test compares them with the file."""

EXECUTE: Final = (
    "(arguments: string) -> variant{text: string, json: string, refused: string,"
    " invalid-parameter: tuple<string, string>}"
)
