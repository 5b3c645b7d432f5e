"""The interfaces that components import: each function, with what the host answers."""

from __future__ import annotations

import anyio
import pytest

from component.sandbox.wasm import WasmRuntime
from component.skills.errors import CapabilityMissing, SkillError, SkillFailed
from component.skills.host import Handlers, HasCredential, HostError, ReadMemory, SendMessage
from component.skills.operations import AskModel
from tests.component.sandbox import wat
from tests.component.sandbox.running import ALL, Notes, Told, context, skill

pytestmark = pytest.mark.anyio

FUNCTIONS = {
    "progress.report": '(func (param "fraction" f64) (param "text" string))',
    "memory.get": '(func (param "key" string) (result (result (option string) (error string))))',
    "memory.put": (
        '(func (param "key" string) (param "value" string) (result (result (error string))))'
    ),
    "memory.delete": '(func (param "key" string) (result (result (error string))))',
    "memory.keys": '(func (param "prefix" string) (result (result (list string) (error string))))',
    "credentials.available": '(func (param "name" string) (result bool))',
    "llm.ask": (
        '(func (param "prompt" string) (param "schema" string) (param "max-tokens" u32)'
        " (result (result string (error string))))"
    ),
    "xmpp.send": (
        '(func (param "to" string) (param "text" string) (result (result (error string))))'
    ),
    "clock.now": "(func (result u64))",
    "clock.monotonic": "(func (result u64))",
    "random.bytes": '(func (param "length" u32) (result (list u8)))',
    "random.number": "(func (result u64))",
}
TEXT = "(i32.const 1024) (i32.const {})"
RESULT = "(i32.const 256)"


def calling(function: str, signature: str, body: str, data: str = "key") -> bytes:
    """A component that runs `body`, in which `$f` is a function with a signature of core types."""
    interface, name = function.split(".")
    return wat.component(
        body,
        imports=f'(import "xmpp-agent:skill/{interface}@0.1.0" (instance $n'
        f' (export "{name}" {FUNCTIONS[function]})))',
        lowered=f'(core func $lowered (canon lower (func $n "{name}") (memory $mem)'
        " (realloc $realloc)))",
        functions=f'(import "h" "f" (func $f {signature}))',
        linked='(with "h" (instance (export "f" (func $lowered))))',
        data=f'(data (i32.const 1024) "{data}")',
    )


def returning(case: str, at: str, length: str) -> str:
    return f"""(i32.store8 (i32.const 16) {case}) (i32.store (i32.const 20) {at})
        (i32.store (i32.const 24) {length}) (i32.const 16)"""


def after(call: str, text_at: int) -> str:
    """Call a function, and return its text, or refuse with its error."""
    return f"""{call}
        (if (result i32) (i32.load8_u (i32.const 256))
          (then {returning("(i32.const 2)", "(i32.load (i32.const 260))", "(i32.load (i32.const 264))")})
          (else {returning("(i32.const 0)", f"(i32.load (i32.const {text_at}))", f"(i32.load (i32.const {text_at + 4}))")}))"""  # noqa: E501


async def text_of(wasm: WasmRuntime, code: bytes, functions: Handlers | None = None) -> str:
    one = skill(wasm, code, granted=ALL, functions=functions)
    outputs = (await one.execute({}, context())).outputs
    return outputs[0].text if outputs else ""


async def test_a_component_reads_stores_lists_and_deletes_values(wasm: WasmRuntime) -> None:
    """Values are read, stored, listed and deleted; an error is the component's to handle."""
    notes = Notes()
    key = TEXT.format(3)
    get = after(f"(call $f {key} {RESULT})", 264)
    read = calling("memory.get", "(param i32 i32 i32)", get)
    assert await text_of(wasm, read, notes.handlers) == "a value ? of \u00e9"
    bad = calling("memory.get", "(param i32 i32 i32)", get, data="bad")
    with pytest.raises(SkillError, match="memory is full"):
        await text_of(wasm, bad, notes.handlers)
    put = after(f"(call $f {key} (i32.const 1027) (i32.const 3) {RESULT})", 256)
    signature = "(param i32 i32 i32 i32 i32)"
    await text_of(wasm, calling("memory.put", signature, put, "newold"), notes.handlers)
    assert notes.values["new"] == "old"
    with pytest.raises(SkillError, match="memory is full"):
        await text_of(wasm, calling("memory.put", signature, put, "badold"), notes.handlers)
    first = f"""(call $f {TEXT.format(1)} {RESULT})
        {
        returning(
            "(i32.const 0)",
            "(i32.load (i32.load (i32.const 260)))",
            "(i32.load offset=4 (i32.load (i32.const 260)))",
        )
    }"""
    listed = calling("memory.keys", "(param i32 i32 i32)", first, "n")
    assert await text_of(wasm, listed, notes.handlers) == "new"
    delete = after(f"(call $f {key} {RESULT})", 256)
    await text_of(
        wasm, calling("memory.delete", "(param i32 i32 i32)", delete, "new"), notes.handlers
    )
    assert "new" not in notes.values


async def test_a_component_learns_only_whether_a_credential_has_a_value(wasm: WasmRuntime) -> None:
    """A component learns whether a credential has a value, and not the value."""

    async def available(wanted: HasCredential) -> bool:
        if wanted.name == "own":
            raise CapabilityMissing("guest", "credential:own")
        return wanted.name == "key"

    body = f"""(if (i32.eqz (call $f {TEXT.format(3)})) (then unreachable))
        {returning("(i32.const 0)", "(i32.const 1024)", "(i32.const 3)")}"""
    code = calling("credentials.available", "(param i32 i32) (result i32)", body)
    assert await text_of(wasm, code, {HasCredential: available}) == "key"
    other = calling("credentials.available", "(param i32 i32) (result i32)", body, data="own")
    with pytest.raises(CapabilityMissing, match="credential:own"):
        await text_of(wasm, other, {HasCredential: available})


async def test_a_component_asks_the_model_with_a_schema(wasm: WasmRuntime) -> None:
    """A component asks the model, with the schema of the answer."""
    asked: list[tuple[str, bytes, int]] = []

    async def llm(wanted: AskModel) -> str:
        asked.append((wanted.prompt, wanted.schema, wanted.max_tokens))
        if len(asked) > 1:
            raise HostError("The budget is spent.")
        return '{"answer": 42}'

    ask = f"(call $f {TEXT.format(3)} (i32.const 1027) (i32.const 2) (i32.const 99) {RESULT})"
    code = calling("llm.ask", "(param i32 i32 i32 i32 i32 i32)", after(ask, 260), "why{}")
    assert await text_of(wasm, code, {AskModel: llm}) == '{"answer": 42}'
    assert asked == [("why", b"{}", 99)]
    with pytest.raises(SkillError, match="budget is spent"):
        await text_of(wasm, code, {AskModel: llm})


async def test_a_component_sends_messages_to_permitted_addresses_only(wasm: WasmRuntime) -> None:
    """A component sends messages; a recipient that is not declared ends the call."""

    sent: list[tuple[str, str]] = []

    async def send_message(message: SendMessage) -> None:
        if message.to == "not":
            raise CapabilityMissing("guest", "xmpp:not")
        sent.append((message.to, message.text))

    send = after(f"(call $f {TEXT.format(3)} (i32.const 1027) (i32.const 3) {RESULT})", 256)
    signature = "(param i32 i32 i32 i32 i32)"
    await text_of(
        wasm, calling("xmpp.send", signature, send, "youold"), {SendMessage: send_message}
    )
    assert sent == [("you", "old")]
    with pytest.raises(CapabilityMissing, match="xmpp:not"):
        await text_of(
            wasm, calling("xmpp.send", signature, send, "notold"), {SendMessage: send_message}
        )


async def test_a_component_reports_progress_from_0_to_1(wasm: WasmRuntime) -> None:
    """What a component reports reaches the caller; a fraction that is none ends the call."""
    said = returning("(i32.const 0)", "(i32.const 1024)", "(i32.const 3)")
    told = Told()

    def reporting(fraction: str) -> bytes:
        body = f"(call $f (f64.const {fraction}) {TEXT.format(3)}) {said}"
        return calling("progress.report", "(param f64 i32 i32)", body)

    await skill(wasm, reporting("0.5"), told=told).execute({}, context())
    assert told.progress == [(0.5, "key")]
    for wrong in ("nan", "inf", "1.5", "-0.1"):
        with pytest.raises(SkillFailed, match="from 0 to 1"):
            await skill(wasm, reporting(wrong), told=told).execute({}, context())


async def test_clock_and_random(wasm: WasmRuntime) -> None:
    """The clock is the host's, and random bytes differ from call to call."""
    said = returning("(i32.const 0)", "(i32.const 1024)", "(i32.const 3)")
    for function, least in (("clock.now", 1_700_000_000_000), ("clock.monotonic", 1)):
        body = f"(if (i64.lt_u (call $f) (i64.const {least})) (then unreachable)) {said}"
        assert await text_of(wasm, calling(function, "(result i64)", body)) == "key"
    # Sixteen letters, four bits of each byte.
    letters = """(call $f (i32.const 16) (i32.const 256))
        (i64.store (i32.const 512) (i64.load (i32.load (i32.const 256))))
        (i64.store (i32.const 520) (i64.load offset=8 (i32.load (i32.const 256))))
        """ + "".join(
        f"(i64.store (i32.const {at}) (i64.or (i64.const 0x4040404040404040)"
        f" (i64.and (i64.const 0x0f0f0f0f0f0f0f0f) (i64.load (i32.const {at})))))"
        for at in (512, 520)
    )
    code = calling(
        "random.bytes",
        "(param i32 i32)",
        letters + returning("(i32.const 0)", "(i32.const 512)", "(i32.const 16)"),
    )
    assert len({await text_of(wasm, code) for _ in range(4)}) == 4
    number = f"""(i64.store (i32.const 512) (i64.or (i64.const 0x4040404040404040)
        (i64.and (i64.const 0x0f0f0f0f0f0f0f0f) (call $f))))
        {returning("(i32.const 0)", "(i32.const 512)", "(i32.const 8)")}"""
    drawn = calling("random.number", "(result i64)", number)
    assert len({await text_of(wasm, drawn) for _ in range(4)}) == 4
    many = f"(call $f (i32.const 1025) (i32.const 256)) {said}"
    with pytest.raises(SkillFailed, match="1,024 random bytes"):
        await text_of(wasm, calling("random.bytes", "(param i32 i32)", many))


async def test_a_function_that_this_call_does_not_have(wasm: WasmRuntime) -> None:
    """If a grant has no host function behind it, the call is stopped, too."""
    body = after(f"(call $f {TEXT.format(3)} {RESULT})", 264)
    code = calling("memory.get", "(param i32 i32 i32)", body)
    with pytest.raises(CapabilityMissing, match="memory"):
        await skill(wasm, code, granted=ALL).execute({}, context())


async def test_several_host_functions_at_once(wasm: WasmRuntime) -> None:
    """Host functions of several calls run at the same time, each for its own call."""
    inside = 0
    all_inside = anyio.Event()

    class Slow(Notes):
        def __init__(self, value: str) -> None:
            super().__init__()
            self.value = value

        async def get(self, wanted: ReadMemory) -> str | None:
            nonlocal inside
            inside += 1
            if inside == 4:
                all_inside.set()
            await all_inside.wait()
            return self.value

    code = calling(
        "memory.get", "(param i32 i32 i32)", after(f"(call $f {TEXT.format(3)} {RESULT})", 264)
    )
    found: dict[str, str] = {}

    async def run(value: str) -> None:
        found[value] = await text_of(wasm, code, Slow(value).handlers)

    async with anyio.create_task_group() as group:
        for value in "abcd":
            group.start_soon(run, value)
    assert found == {each: each for each in "abcd"}
