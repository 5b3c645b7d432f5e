"""Skills that are components (`protocol_schemas/skill.wit`): what they import, and how they run.

WASI is never linked. The functions of the host are the same for all skills; they find the call that
runs in their thread, so one linker serves all skills with the same imports.
"""

from __future__ import annotations

import base64
import binascii
import math
import secrets
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from functools import cache, partial
from typing import Any, Final, cast

import wasmtime
from wasmtime import component as wc

from component.sandbox.wasm_call import Stopped, WasmCall, current
from component.sandbox.wasm_engine import engine, store_for
from component.sandbox.wasm_limits import IMPORTS, Import
from component.sandbox.wasm_types import (
    EXECUTE,
    INTERFACES,
    export_of,
    import_name,
    imports_of,
    interface_of,
)
from component.skills.errors import CapabilityMissing, SkillLoadError
from component.skills.host import HostError, HttpRequest, HttpResponse, LogLevel, Memory
from component.skills.model_answers import ModelFailed

Imports = frozenset[Import]
HostFunction = Callable[..., Any]

_RANDOM_BYTES: Final = 1_024
_HEADERS: Final = 100
_KEYS: Final = 1_000
_FREE: Final = frozenset({"log", "progress"})
_linking = threading.Lock()


def check_component(skill: str, component: wc.Component, granted: Imports) -> None:
    """Check that a component exports `execute`, and imports only what is granted.

    Raises CapabilityMissing for an interface that is not granted, and SkillLoadError for a
    component that is no skill.
    """
    for name, functions in imports_of(component, engine()).items():
        interface = interface_of(name)
        if interface not in INTERFACES:
            raise SkillLoadError(
                f"The skill {skill} imports {name}, which skills cannot have; they import the"
                " interfaces of skill.wit, and nothing of WASI."
            )
        if name != import_name(interface):
            raise SkillLoadError(
                f"The skill {skill} imports {name}: build it again for version 0.1.0."
            )
        for function, declared in functions.items():
            if declared not in ("type", INTERFACES[interface].get(function)):
                raise SkillLoadError(
                    f"The skill {skill} imports {interface}.{function} with the type {declared},"
                    " which is not the one of skill.wit."
                )
        if interface not in _FREE and interface not in granted:
            raise CapabilityMissing(skill, interface)
    declared = export_of(component, engine(), "execute")
    if declared != EXECUTE:
        raise SkillLoadError(
            f"The skill {skill} exports no function execute{EXECUTE}"
            + (f", but execute{declared}." if declared else ".")
        )


def run_component(call: WasmCall, component: wc.Component, granted: Imports) -> wc.Variant:
    """Instantiate a component in a store of its own, and call `execute`.

    Raises Stopped with `call.failure` set, and what wasmtime raises for traps.
    """
    store = store_for(call, call.limits.memories)
    try:
        instance = linker(granted).instantiate(store, component)
        execute = instance.get_func(store, "execute")
        assert execute is not None, "it has been checked"
        return cast("wc.Variant", execute(store, call.arguments))
    finally:
        if call.failure is None and store.get_fuel() == 0:
            call.failed(f"it executed more than {call.limits.fuel:,} instructions.")
        store.close()


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


def _guarded(function: HostFunction) -> HostFunction:
    """Wrap a host function so that it raises nothing but WasmtimeError; see `wasm_call`."""

    def run(_: object, *arguments: Any) -> Any:
        call = current.get()
        try:
            call.count()
            return function(call, *arguments)
        except Stopped:
            pass
        except Exception as error:  # noqa: BLE001 - a fault of the host, for the log
            call.broken(error)
        raise wasmtime.WasmtimeError("stopped") from None

    return run


def _log(call: WasmCall, level: LogLevel, text: str) -> None:
    call.log(level, text)


def _progress(call: WasmCall, fraction: float, text: str) -> None:
    if not 0 <= fraction <= 1 or math.isnan(fraction):
        raise call.failed("it reported progress that is not from 0 to 1.")
    try:
        call.ask("progress", lambda: call.host.progress(fraction, text[:1_000]))
    except HostError as error:
        raise call.failed(str(error)) from None


def _tagged(call: WasmCall, what: str, work: Callable[[], Coroutine[Any, Any, Any]]) -> wc.Variant:
    """Run a host function whose result has two cases that wasmtime-py cannot tell apart."""
    try:
        return wc.Variant("ok", _fit(call.ask(what, work)))
    except HostError as error:
        return wc.Variant("err", _fit(str(error)))


def _untagged(call: WasmCall, what: str, work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    try:
        return _fit(call.ask(what, work))
    except HostError as error:
        return _fit(str(error))


def _fit(value: Any) -> Any:
    """Return a value whose texts a component can have: without halves of surrogate pairs."""
    if isinstance(value, list):
        return [_fit(each) for each in value[:_KEYS]]
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def _send(call: WasmCall, asked: Any) -> Any:
    http = call.host.http
    if http is None:
        raise call.missing("http")
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
        return _response(call.ask("the server", lambda: http(request)))
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


def _memory(call: WasmCall) -> Memory:
    if call.host.memory is None:
        raise call.missing("memory")
    return call.host.memory


def _memory_get(call: WasmCall, key: str) -> wc.Variant:
    return _tagged(call, "the memory", partial(_memory(call).get, key))


def _memory_put(call: WasmCall, key: str, value: str) -> Any:
    return _untagged(call, "the memory", partial(_memory(call).put, key, value))


def _memory_delete(call: WasmCall, key: str) -> Any:
    return _untagged(call, "the memory", partial(_memory(call).delete, key))


def _memory_keys(call: WasmCall, prefix: str) -> Any:
    return _untagged(call, "the memory", partial(_memory(call).keys, prefix))


def _available(call: WasmCall, name: str) -> bool:
    credentials = call.host.credentials
    if credentials is None:
        raise call.missing("credentials")
    try:
        return bool(call.ask("the credentials", lambda: credentials.available(name)))
    except HostError:
        return False


def _llm(call: WasmCall, prompt: str, schema: str, max_tokens: int) -> wc.Variant:
    llm = call.host.llm
    if llm is None:
        raise call.missing("llm")

    async def asked() -> str:
        try:
            return await llm(prompt, schema, max_tokens)
        except ModelFailed as error:
            raise HostError(str(error)) from None

    try:
        answer = call.ask("the model", asked, seconds=call.limits.llm_s)
    except HostError as error:
        return wc.Variant("err", _fit(str(error)))
    return wc.Variant("ok", _fit(answer))


def _xmpp_send(call: WasmCall, to: str, text: str) -> Any:
    xmpp = call.host.xmpp
    if xmpp is None:
        raise call.missing("xmpp")
    return _untagged(call, "the message", lambda: xmpp.send(to, text))


def _bytes(call: WasmCall, length: int) -> bytes:
    if length > _RANDOM_BYTES:
        raise call.failed(f"it asked for more than {_RANDOM_BYTES:,} random bytes at once.")
    return secrets.token_bytes(length)


_FUNCTIONS: Final[Mapping[str, Mapping[str, HostFunction]]] = {
    "log": {"write": _log},
    "progress": {"report": _progress},
    "http": {"send": _send},
    "memory": {
        "get": _memory_get,
        "put": _memory_put,
        "delete": _memory_delete,
        "keys": _memory_keys,
    },
    "credentials": {"available": _available},
    "llm": {"ask": _llm},
    "xmpp": {"send": _xmpp_send},
    "clock": {
        "now": lambda _: time.time_ns() // 1_000_000,
        "monotonic": lambda _: time.monotonic_ns(),
    },
    "random": {"bytes": _bytes, "number": lambda _: secrets.randbits(64)},
}
assert _FUNCTIONS.keys() - _FREE == set(IMPORTS)
