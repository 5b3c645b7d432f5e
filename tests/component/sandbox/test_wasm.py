"""Skills in WebAssembly: what they get and return, and the functions of the host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from hypothesis import given, strategies

from component.sandbox.wasm import WasmRuntime
from component.sandbox.wasm_call import WasmLimits
from component.skills.errors import (
    CapabilityMissing,
    InvalidParam,
    SkillError,
    SkillFailed,
    SkillLoadError,
    SkillTimeout,
)
from component.skills.host import HostError, HttpRequest, HttpResponse
from component.skills.outputs import JSON, TEXT
from tests.component.sandbox import wat
from tests.component.sandbox.running import ALL, Told, context, runtime, skill, trusted

pytestmark = pytest.mark.anyio

LOOP = "(loop $l (br $l))"


@pytest.mark.parametrize("code", [wat.ECHO, wat.COMPONENT_ECHO], ids=["command", "component"])
async def test_arguments_are_json_and_so_is_the_result(wasm: WasmRuntime, code: bytes) -> None:
    """A skill gets its arguments as JSON, and its JSON becomes a result."""
    given_ = {"text": "é\u2028\U0001f600", "numbers": [1, 2.5, None, True], "nested": {"a": {}}}
    result = await skill(wasm, code).execute(given_, context())
    assert [output.media_type for output in result.outputs] == [JSON]
    assert msgspec.json.decode(result.outputs[0].text) == given_


def test_any_json_passes_unchanged() -> None:
    """Whatever the arguments are, the skill reads them as they were."""
    where = runtime(probe=trusted)
    skills = [skill(where, code) for code in (wat.ECHO, wat.COMPONENT_ECHO)]
    text = strategies.text(strategies.characters(exclude_categories=["Cs", "Cc"]))
    values = strategies.recursive(
        strategies.none()
        | strategies.booleans()
        | text
        | strategies.integers(-(2**53), 2**53)
        | strategies.floats(allow_nan=False, allow_infinity=False),
        lambda inner: strategies.lists(inner, max_size=4) | strategies.dictionaries(text, inner),
        max_leaves=12,
    )

    @given(strategies.dictionaries(text, values, max_size=4))
    def passes(arguments: dict[str, Any]) -> None:
        async def run() -> None:
            for one in skills:
                one._loading = anyio.Lock()  # of another event loop
                result = await one.execute(arguments, context())
                assert msgspec.json.decode(result.outputs[0].text) == arguments

        if len(msgspec.json.encode(arguments)) < 60_000:
            anyio.run(run)

    passes()


async def test_outcomes_of_a_component(wasm: WasmRuntime) -> None:
    """Text, a refusal and an invalid parameter are what the interface says."""
    result = await skill(wasm, wat.answering(0, "hello")).execute({}, context())
    assert [(each.text, each.media_type) for each in result.outputs] == [("hello", TEXT)]
    with pytest.raises(SkillError, match="not today"):
        await skill(wasm, wat.answering(2, "not today")).execute({}, context())
    with pytest.raises(SkillFailed, match="not JSON"):
        await skill(wasm, wat.answering(1, "{")).execute({}, context())


async def test_a_result_of_too_many_values_fails(wasm: WasmRuntime) -> None:
    data, operands = wat.text(f"[{'0,' * 100_000}0]")
    code = wat.command(f"(call $say (i32.const 1) {operands})", data=data, memory=4)
    with pytest.raises(SkillFailed, match="at most 100000 values"):
        await skill(wasm, code).execute({}, context())


async def test_exit_codes_of_a_command(wasm: WasmRuntime) -> None:
    """A command that ends with another code than 0 refuses, with its reason."""
    exit_ = '(import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))'

    def ending(code: int, said: str) -> bytes:
        data, operands = wat.text(said)
        body = f"(call $say (i32.const 1) {operands}) (call $exit (i32.const {code}))"
        return wat.command(body, imports=exit_, data=data)

    result = await skill(wasm, ending(0, '"ok"')).execute({}, context())
    assert result.outputs[0].text == "ok"
    with pytest.raises(SkillError, match="no ticket"):
        await skill(wasm, ending(1, '{"error": "no ticket"}')).execute({}, context())
    with pytest.raises(InvalidParam, match="too long") as refused:
        await skill(wasm, ending(1, '{"error": "too long", "parameter": "text"}')).execute(
            {}, context()
        )
    assert refused.value.name == "text"
    with pytest.raises(SkillFailed, match="exit code 3"):
        await skill(wasm, ending(3, "oops")).execute({}, context())


async def test_standard_error_is_the_log(wasm: WasmRuntime) -> None:
    """What a command writes to standard error is in the log, line by line."""
    data, operands = wat.text("one\ntwo")
    told = Told()
    code = wat.command(
        f"(call $say (i32.const 2) {operands}) (call $say (i32.const 1) (i32.const 2000)"
        " (i32.const 4))",
        data=data + '(data (i32.const 2000) "null")',
    )
    result = await skill(wasm, code, told=told).execute({}, context())
    assert result.outputs == ()
    assert told.lines == [("info", "one"), ("info", "two")]


async def test_a_command_has_no_environment_and_no_files(wasm: WasmRuntime) -> None:
    """There are no arguments, no environment and no directories."""
    imports = "".join(
        f'(import "wasi_snapshot_preview1" "{name}" (func ${name} (param i32 i32) (result i32)))'
        for name in ("args_sizes_get", "environ_sizes_get", "fd_prestat_get")
    )
    body = """
        (i32.store (i32.const 64) (i32.const 7)) (i32.store (i32.const 68) (i32.const 7))
        (drop (call $args_sizes_get (i32.const 64) (i32.const 68)))
        (drop (call $environ_sizes_get (i32.const 72) (i32.const 76)))
        (if (i32.or (i32.load (i32.const 64)) (i32.load (i32.const 72))) (then unreachable))
        (if (i32.ne (call $fd_prestat_get (i32.const 3) (i32.const 80)) (i32.const 8))
          (then unreachable))
        (call $say (i32.const 1) (i32.const 1024) (i32.const 4))"""
    code = wat.command(body, imports=imports, data='(data (i32.const 1024) "true")')
    result = await skill(wasm, code).execute({}, context())
    assert result.outputs[0].text == "true"


async def test_random_numbers_and_the_clock_are_the_hosts(wasm: WasmRuntime) -> None:
    """With the grants, two calls get different bytes; without them, the module is refused."""
    imports = (
        '(import "wasi_snapshot_preview1" "random_get" (func $random (param i32 i32) (result i32)))'
        '(import "wasi_snapshot_preview1" "clock_time_get"'
        " (func $clock (param i32 i64 i32) (result i32)))"
    )
    body = """
        (drop (call $clock (i32.const 0) (i64.const 1) (i32.const 64)))
        (if (i64.lt_u (i64.load (i32.const 64)) (i64.const 1700000000000000000))
          (then unreachable))
        (drop (call $random (i32.const 72) (i32.const 8)))
        (i64.store (i32.const 80)
          (i64.and (i64.load (i32.const 72)) (i64.const 0x0707070707070707)))
        (i64.store (i32.const 80)
          (i64.or (i64.load (i32.const 80)) (i64.const 0x3030303030303030)))
        (i64.store8 (i32.const 80) (i64.const 0x31))
        (call $say (i32.const 1) (i32.const 80) (i32.const 8))"""
    code = wat.command(body, imports=imports)
    one = skill(wasm, code, granted=("random", "clock"))
    found = {(await one.execute({}, context())).outputs[0].text for _ in range(4)}
    assert len(found) > 1
    with pytest.raises(CapabilityMissing, match="random"):
        await skill(wasm, code, granted=("clock",)).execute({}, context())
    with pytest.raises(CapabilityMissing, match="clock"):
        await skill(wasm, code, granted=("random",)).prepare()


HTTP = """
  (import "xmpp-agent:skill/http@0.1.0" (instance $http
    (type $body (variant (case "text" string) (case "base64" string)))
    (export "body" (type $b (eq $body)))
    (type $request (record (field "method" string) (field "url" string) (field "headers" string)
      (field "body" (option $b)) (field "credential" (option string))))
    (export "request" (type $q (eq $request)))
    (type $response (record (field "status" u16) (field "headers" string) (field "body" $b)))
    (export "response" (type $r (eq $response)))
    (export "send" (func (param "request" $q) (result (result $r (error string)))))))
"""


def sending(url: str) -> bytes:
    """A component that sends a request, and returns the body of the response, or the error."""
    data, operands = wat.text(url, 2048)
    at, length = operands.replace("(i32.const ", "").replace(")", "").split()
    return wat.component(
        f"""
        (call $send
          (i32.const 1024) (i32.const 3) (i32.const {at}) (i32.const {length})
          (i32.const 1030) (i32.const 9)
          (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)
          (i32.const 1) (i32.const 1040) (i32.const 4)
          (i32.const 256))
        (if (result i32) (i32.load8_u (i32.const 256))
          (then
            (i32.store8 (i32.const 16) (i32.const 2))
            (i32.store (i32.const 20) (i32.load (i32.const 260)))
            (i32.store (i32.const 24) (i32.load (i32.const 264)))
            (i32.const 16))
          (else
            (i32.store8 (i32.const 16) (i32.const 0))
            (i32.store (i32.const 20) (i32.load (i32.const 276)))
            (i32.store (i32.const 24) (i32.load (i32.const 280)))
            (i32.const 16)))""",
        imports=HTTP,
        lowered='(core func $lowered (canon lower (func $http "send") (memory $mem)'
        " (realloc $realloc) string-encoding=utf8))",
        functions='(import "h" "send" (func $send (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32'
        " i32 i32 i32 i32)))",
        linked='(with "h" (instance (export "send" (func $lowered))))',
        data=data + '(data (i32.const 1024) "GET") (data (i32.const 1030) "Accept: x")'
        '(data (i32.const 1040) "shop")',
    )


async def test_a_component_sends_requests_through_the_host(wasm: WasmRuntime) -> None:
    """The host gets the request as a whole, and the component its response, or the error."""
    seen: list[HttpRequest] = []

    async def http(request: HttpRequest) -> HttpResponse:
        seen.append(request)
        if "broken" in request.url:
            raise HostError("The server is down.")
        return HttpResponse(200, (("Content-Type", "text/plain"),), b"it rains")

    one = skill(wasm, sending("https://a.example/"), granted=ALL, functions={HttpRequest: http})
    assert (await one.execute({}, context())).outputs[0].text == "it rains"
    assert seen == [
        HttpRequest("GET", "https://a.example/", (("Accept", "x"),), b"", credential="shop")
    ]
    with pytest.raises(SkillError, match="The server is down"):
        await skill(
            wasm, sending("https://broken.example/"), granted=ALL, functions={HttpRequest: http}
        ).execute({}, context())


async def test_an_import_that_is_not_granted_is_named(wasm: WasmRuntime) -> None:
    """A component is not instantiated if it lacks a capability."""
    one = skill(wasm, sending("https://a.example/"), granted=ALL - {"http"})
    with pytest.raises(CapabilityMissing) as refused:
        await one.execute({}, context())
    assert (refused.value.skill, refused.value.capability) == ("guest", "http")
    with pytest.raises(CapabilityMissing):
        await one.prepare()


async def test_a_request_that_the_manifest_does_not_declare_stops_the_call(
    wasm: WasmRuntime,
) -> None:
    """What the host refuses with CapabilityMissing the guest cannot catch."""

    async def http(request: HttpRequest) -> HttpResponse:
        raise CapabilityMissing("guest", "network:https://evil.example:443")

    one = skill(wasm, sending("https://evil.example/"), granted=ALL, functions={HttpRequest: http})
    with pytest.raises(CapabilityMissing, match=r"evil\.example"):
        await one.execute({}, context())


async def test_a_fault_of_the_host_is_a_failure_with_its_cause(wasm: WasmRuntime) -> None:
    """An unexpected exception of the host reaches the log, not the caller, and not the guest."""

    async def http(request: HttpRequest) -> HttpResponse:
        raise ZeroDivisionError("secret")

    one = skill(wasm, sending("https://a.example/"), granted=ALL, functions={HttpRequest: http})
    with pytest.raises(SkillFailed) as failed:
        await one.execute({}, context())
    assert "secret" not in str(failed.value)
    assert isinstance(failed.value.__cause__, ZeroDivisionError)


async def test_cancelling_stops_a_guest_that_computes(compiled: Path) -> None:
    """A thread is free soon after its call was cancelled, however long the guest would run."""
    where = runtime(compiled, threads=1, probe=trusted)
    loop = skill(where, wat.command(LOOP))
    await loop.prepare()
    with anyio.move_on_after(0.05):
        await loop.execute({}, context())
    with anyio.fail_after(60):  # the only thread; the guest's own limit is 120 seconds
        await skill(where, wat.ECHO).execute({}, context())


async def test_cancelling_stops_a_guest_that_waits_for_the_host(compiled: Path) -> None:
    """The host's function is cancelled, and the thread is free."""
    where = runtime(compiled, threads=1, probe=trusted)
    waiting, ended = anyio.Event(), anyio.Event()

    async def http(request: HttpRequest) -> HttpResponse:
        waiting.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    one = skill(where, sending("https://a.example/"), granted=ALL, functions={HttpRequest: http})
    async with anyio.create_task_group() as group:
        group.start_soon(one.execute, {}, context())
        await waiting.wait()
        group.cancel_scope.cancel()
    assert ended.is_set()
    with anyio.fail_after(60):
        await skill(where, wat.ECHO).execute({}, context())


async def test_time_is_that_of_the_context(wasm: WasmRuntime) -> None:
    """A call ends when its context says so."""
    with pytest.raises(SkillTimeout):
        await skill(wasm, wat.command(LOOP)).execute({}, context(0.1))


async def test_each_call_has_a_memory_of_its_own(wasm: WasmRuntime) -> None:
    """What one call wrote the next one does not see."""
    code = wat.command(
        """(if (i32.load (i32.const 4096)) (then unreachable))
        (i32.store (i32.const 4096) (i32.const 1))
        (call $say (i32.const 1) (i32.const 1024) (i32.const 4))""",
        data='(data (i32.const 1024) "true")',
    )
    one = skill(wasm, code)
    for _ in range(3):
        assert (await one.execute({}, context())).outputs[0].text == "true"


async def test_calls_run_at_the_same_time(wasm: WasmRuntime) -> None:
    """Calls of several skills do not get each other's arguments, results or failures."""
    echo, component = skill(wasm, wat.ECHO), skill(wasm, wat.COMPONENT_ECHO)
    broken = skill(wasm, wat.command("unreachable"))
    bound = skill(wasm, wat.command(LOOP), limits=WasmLimits(fuel=1_000))
    wrong: list[object] = []

    async def call(number: int) -> None:
        for one in (echo, component):
            result = await one.execute({"number": number}, context())
            if msgspec.json.decode(result.outputs[0].text) != {"number": number}:
                wrong.append(result)
        for one, words in ((broken, "unreachable"), (bound, "instructions")):
            with pytest.raises(SkillFailed, match=words):
                await one.execute({}, context())

    async with anyio.create_task_group() as group:
        for number in range(24):
            group.start_soon(call, number)
    assert not wrong


async def test_what_is_no_skill_is_refused_when_it_is_prepared(compiled: Path) -> None:
    """The reason is said before the first call."""
    wasm = runtime(compiled)
    for code, words in (
        (b"#!/bin/sh", "not WebAssembly"),
        (wat.ECHO[:-9], "cannot be compiled"),
        (b"\0asm\1\0\0\0", "no function|without a function"),
        (wat.ECHO + b"\0" * 100, "cannot be compiled|cannot be loaded"),
    ):
        with pytest.raises(SkillLoadError, match=words):
            await skill(wasm, code).prepare()
    with pytest.raises(SkillLoadError, match="more than the permitted"):
        await skill(wasm, wat.ECHO, limits=WasmLimits(code_bytes=100)).prepare()
    with pytest.raises(SkillFailed, match="not WebAssembly"):
        await skill(wasm, b"#!/bin/sh").execute({}, context())
