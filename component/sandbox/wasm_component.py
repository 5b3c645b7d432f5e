"""Skills that are components (`protocol_schemas/skill.wit`): what they import, and how they run.

WASI is never linked. The functions of the host are the same for all skills; they find the call that
runs in their thread, so one linker serves all skills with the same imports.

A component declares the types of what it imports itself, and wasmtime-py converts values as it
says. So every declared type must be exactly that of `skill.wit`: with a list of lists where the
interface has a text, a guest could have the host copy many times the memory that it may use.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, cast

import wasmtime
from wasmtime import component as wc

from component import system
from component.sandbox.wasm_call import IMPORTS, GuestStopped, Import, WasmCall, current
from component.sandbox.wasm_engine import engine, store_for
from component.skills.errors import CapabilityMissing, InvalidParam, SkillError, SkillLoadError
from component.skills.host import (
    DeleteMemory,
    HasCredential,
    HostError,
    HostFunction,
    HttpRequest,
    HttpResponse,
    ListMemory,
    ReadMemory,
    SendMessage,
    WriteMemory,
)
from component.skills.operations import AskModel, ReportProgress

Imports = frozenset[Import]
Implementation = Callable[..., Any]

_RANDOM_BYTES: Final = 1_024
_HEADERS: Final = 100
_KEYS: Final = 1_000
_FREE: Final = frozenset({"log", "progress"})
_linking = threading.Lock()

PACKAGE: Final = "xmpp-agent:skill"
WIT_VERSION: Final = "0.1.0"
_PLAIN: Final = (
    *("Bool", "S8", "S16", "S32", "S64", "U8", "U16", "U32", "U64", "F32", "F64", "Char"),
    "String",
)
_NAMES: Final = {getattr(wc, name): name.lower() for name in _PLAIN}
_DEEPEST: Final = 8


def import_name(interface: str) -> str:
    """Return the name by which a component imports an interface of the package."""
    return f"{PACKAGE}/{interface}@{WIT_VERSION}"


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


class ComponentCode:
    """A component that was checked: it exports `execute`, and imports only what is granted.

    Raises CapabilityMissing for an interface that is not granted, and SkillLoadError for a
    component that is not a skill.
    """

    def __init__(self, skill: str, component: wc.Component, granted: Imports) -> None:
        self._component = component
        self._granted = granted
        for name, functions in imports_of(component, engine()).items():
            _check_import(skill, name, functions, granted)
        declared = export_of(component, engine(), "execute")
        if declared != EXECUTE:
            raise SkillLoadError(
                f"The skill {skill} exports no function execute{EXECUTE}"
                + (f", but execute{declared}." if declared else ".")
            )

    def run(self, call: WasmCall) -> Any:
        """Instantiate the component in a store of its own, call `execute`, and return its value.

        Raises SkillError and InvalidParam as it says, Stopped with `call.failure` set, and what
        wasmtime raises for traps.
        """
        outcome = self._outcome(call)
        texts = outcome.payload if isinstance(outcome.payload, tuple) else (outcome.payload,)
        if sum(map(len, texts)) > call.limits.output_bytes:
            raise call.failed(f"it returned more than {call.limits.output_bytes:,} bytes.")
        match outcome.tag:
            case "text":
                return outcome.payload
            case "json":
                return call.json(outcome.payload)
            case "refused":
                raise SkillError(outcome.payload)
        raise InvalidParam(*texts)

    def _outcome(self, call: WasmCall) -> Any:
        store = store_for(call, call.limits.memories)
        try:
            instance = linker(self._granted).instantiate(store, self._component)
            execute = instance.get_func(store, "execute")
            assert execute is not None, "it has been checked"
            return execute(store, call.arguments)
        finally:
            if call.failure is None and store.get_fuel() == 0:
                call.failed(f"it executed more than {call.limits.fuel:,} instructions.")
            store.close()


def _check_import(skill: str, name: str, functions: Mapping[str, str], granted: Imports) -> None:
    interface = interface_of(name)
    if interface not in INTERFACES:
        raise SkillLoadError(
            f"The skill {skill} imports {name}, which skills cannot have; they import the"
            " interfaces of skill.wit, and nothing of WASI."
        )
    if name != import_name(interface):
        raise SkillLoadError(f"The skill {skill} imports {name}: build it again for version 0.1.0.")
    for function, declared in functions.items():
        if declared not in ("type", INTERFACES[interface].get(function)):
            raise SkillLoadError(
                f"The skill {skill} imports {interface}.{function} with the type {declared},"
                " which is not the one of skill.wit."
            )
    if interface not in _FREE and interface not in granted:
        raise CapabilityMissing(skill, interface)


def linker(granted: Imports) -> wc.Linker:
    """Return the linker for skills with these imports. It is never freed."""
    with _linking:
        return _linker(granted)


@cache
def _linker(granted: Imports) -> wc.Linker:
    made = wc.Linker(engine())
    with made.root() as root:
        for interface, functions in _FUNCTIONS.items():
            if interface in _FREE or interface in granted:
                with root.add_instance(import_name(interface)) as instance:
                    for name, function in functions.items():
                        instance.add_func(name, _guarded(function))
    return made


def _guarded(function: Implementation) -> Implementation:
    """Wrap a host function so that it raises nothing but WasmtimeError; see `wasm_call`."""

    def run(_: object, *arguments: Any) -> Any:
        call = current.get()
        try:
            call.count()
            return function(call, *arguments)
        except GuestStopped:
            pass
        except Exception as error:  # noqa: BLE001 - a fault of the host, for the log
            call.broken(error)
        raise wasmtime.WasmtimeError("stopped") from None

    return run


def _progress(call: WasmCall, fraction: float, text: str) -> None:
    if not 0 <= fraction <= 1 or math.isnan(fraction):
        raise call.failed("it reported progress that is not from 0 to 1.")
    try:
        call.ask("progress", ReportProgress(fraction, text[:1_000]))
    except HostError as error:
        raise call.failed(str(error)) from None


def _tagged(
    call: WasmCall, what: str, function: HostFunction[Any], seconds: float | None = None
) -> wc.Variant:
    """Perform a host function whose result has two cases that wasmtime-py cannot tell apart."""
    try:
        return wc.Variant("ok", _fit(call.ask(what, function, seconds)))
    except HostError as error:
        return wc.Variant("err", _fit(str(error)))


def _untagged(call: WasmCall, what: str, function: HostFunction[Any]) -> Any:
    try:
        return _fit(call.ask(what, function))
    except HostError as error:
        return _fit(str(error))


def _fit(value: Any) -> Any:
    """Return a value whose texts a component can have: without halves of surrogate pairs."""
    if isinstance(value, list):
        return [_fit(each) for each in value[:_KEYS]]
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def _send(call: WasmCall, asked: Any) -> Any:
    try:
        headers = _headers_of(asked.headers)
        body = _bytes_of(asked.body)
    except ValueError as error:
        return str(error)
    request = HttpRequest(
        method=asked.method,
        url=asked.url,
        headers=headers,
        body=body,
        credential=asked.credential or "",
    )
    try:
        return _response(call.ask("the server", request))
    except HostError as error:
        return _fit(str(error))


def _headers_of(text: str) -> tuple[tuple[str, str], ...]:
    lines = text.split("\n", _HEADERS + 1)
    if len(lines) > _HEADERS:
        raise ValueError(f"The request has more than {_HEADERS} headers.")
    found = []
    for line in filter(None, map(str.strip, lines)):
        name, colon, value = line.partition(":")
        if not colon:
            raise ValueError(f"{line[:100]!a} is not a header: write Name: value.")
        found.append((name.strip(), value.strip()))
    return tuple(found)


def _bytes_of(body: wc.Variant | None) -> bytes:
    if body is None:
        return b""
    text = cast("str", body.payload)
    if body.tag == "text":
        return text.encode()
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("The body of the request is not base64.") from None


def _response(response: HttpResponse) -> wc.Record:
    made = wc.Record()
    try:
        body = wc.Variant("text", response.body.decode())
    except UnicodeDecodeError:
        body = wc.Variant("base64", base64.b64encode(response.body).decode())
    headers = "".join(f"{name.lower()}: {value}\n" for name, value in response.headers)
    values = {"status": response.status, "headers": headers, "body": body}
    for name, value in values.items():
        setattr(made, name, value)
    return made


def _available(call: WasmCall, name: str) -> bool:
    try:
        return call.ask("the credentials", HasCredential(name))
    except HostError:
        return False


def _llm(call: WasmCall, prompt: str, schema: str, max_tokens: int) -> wc.Variant:
    asked = AskModel(prompt, schema.encode(), max_tokens, "", None)
    return _tagged(call, "the model", asked, call.limits.llm_s)


def _bytes(call: WasmCall, length: int) -> bytes:
    if length > _RANDOM_BYTES:
        raise call.failed(f"it asked for more than {_RANDOM_BYTES:,} random bytes at once.")
    return system.token_bytes(length)


_FUNCTIONS: Final[Mapping[str, Mapping[str, Implementation]]] = {
    "log": {"write": WasmCall.log},
    "progress": {"report": _progress},
    "http": {"send": _send},
    "memory": {
        "get": lambda call, key: _tagged(call, "the memory", ReadMemory(key)),
        "put": lambda call, key, value: _untagged(call, "the memory", WriteMemory(key, value)),
        "delete": lambda call, key: _untagged(call, "the memory", DeleteMemory(key)),
        "keys": lambda call, prefix: _untagged(call, "the memory", ListMemory(prefix)),
    },
    "credentials": {"available": _available},
    "llm": {"ask": _llm},
    "xmpp": {"send": lambda call, to, text: _untagged(call, "the message", SendMessage(to, text))},
    "clock": {
        "now": lambda _: system.time_ns() // 1_000_000,
        "monotonic": lambda _: time.monotonic_ns(),
    },
    "random": {"bytes": _bytes, "number": lambda _: secrets.randbits(64)},
}
assert _FUNCTIONS.keys() - _FREE == set(IMPORTS)
