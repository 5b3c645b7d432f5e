"""Hostile modules and components: each is stopped, and the failure says why.

Beside every one a neighbour, another principal's skill, goes on to answer. `python -m benchmarks
--only sandbox` measures by how much it is slowed.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import anyio
import pytest

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
from component.skills.host import HttpRequest, HttpResponse
from tests.component.sandbox import wat
from tests.component.sandbox.running import ALL, Told, context, runtime, skill
from tests.component.sandbox.test_wasm import HTTP, sending
from tests.profiles import THOROUGH

pytestmark = pytest.mark.anyio
SAMPLES = Path(__file__).parents[3] / "examples" / "skills"
LOOP = "(loop $l (br $l))"
LIMITS = WasmLimits(
    memory_bytes=4 << 20, output_bytes=10_000, host_calls=50, host_s=0.2, table_elements=1_000
)


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("wasm") / "compiled"


@pytest.fixture
def wasm(compiled: Path) -> WasmRuntime:
    return runtime(compiled)


@pytest.fixture
def unprobed(wasm: WasmRuntime) -> WasmRuntime:
    """Compiles without a child first: what that is for is `test_compiling_is_limited`."""

    async def compiles(_code: bytes, _seconds: float, _most_bytes: int) -> str:
        return ""

    wasm._probe = compiles
    return wasm


class Attack(NamedTuple):
    """Hostile code, and what its failure says. `seconds` is the time that its call has."""

    code: bytes
    words: str
    error: type[Exception] | tuple[type[Exception], ...] = SkillFailed
    seconds: float = 20.0


def wasi(name: str, params: str, result: str = "(result i32)") -> str:
    return f'(import "wasi_snapshot_preview1" "{name}" (func ${name} (param {params}) {result}))'


def module(text: str) -> bytes:
    return wat.binary(f"(module {text})")


EMPTY = '(memory (export "memory") 1) (func (export "_start"))'
CALLING_INDIRECTLY = """
  (type $f (func)) (table 2 2 funcref) (elem (i32.const 0) $a $b)
  (func $a (call_indirect (type $f) (i32.const 1)))
  (func $b (call_indirect (type $f) (i32.const 0)))
"""
GROWING = "(loop $l (br_if $l (i32.ne (memory.grow (i32.const 16)) (i32.const -1)))) unreachable"

COMMANDS = {
    "an endless loop": Attack(wat.command(LOOP), "did not finish", SkillTimeout, 0.2),
    "an endless loop before the start": Attack(
        module(f'{EMPTY} (func $early {LOOP}) (start $early)'), "did not finish", SkillTimeout, 0.2
    ),
    "a loop over bulk operations": Attack(
        wat.command(
            "(loop $l (memory.fill (i32.const 0) (i32.const 1) (i32.const 4000000)) (br $l))",
            memory=64,
        ),
        "did not finish|instructions",  # a byte counts as an instruction
        (SkillTimeout, SkillFailed),
        0.2,
    ),
    "a loop of host calls": Attack(
        wat.command("(loop $l (call $say (i32.const 1) (i32.const 64) (i32.const 1)) (br $l))"),
        "50 host functions",
    ),
    "a memory bomb": Attack(wat.command(GROWING), "memory ends"),
    "a memory that begins too large": Attack(wat.command("", memory=65_536), "more memory"),
    "two memories": Attack(
        module(f"{EMPTY} (memory 1)"), "more instances, memories|larger memories"
    ),
    "a table that begins too large": Attack(
        wat.command("", rest="(table 10000000 funcref)"), "larger tables"
    ),
    "a table that grows": Attack(
        wat.command(
            "(loop $l (br_if $l (i32.ne (table.grow $t (ref.null func) (i32.const 100))"
            " (i32.const -1)))) unreachable",
            rest="(table $t 1 funcref)",
        ),
        "unreachable",
    ),
    "recursion": Attack(wat.command("(call $start)"), "nested too deeply"),
    "recursion through a table": Attack(
        wat.command("(call $a)", rest=CALLING_INDIRECTLY), "nested too deeply"
    ),
    "a call of no function": Attack(
        wat.command("(call_indirect (type $f) (i32.const 0))",
                    rest="(type $f (func)) (table 1 funcref)"),
        "does not exist",
    ),
    "memory beyond the end": Attack(
        wat.command("(drop (i32.load (i32.const 0x7fffffff)))"), "outside its own"
    ),
    "division by zero": Attack(
        wat.command("(drop (i32.div_s (i32.const 1) (i32.const 0)))"), "divided by zero"
    ),
    "too much output": Attack(
        wat.command("(call $say (i32.const 1) (i32.const 0) (i32.const 20000))"), "10,000 bytes"
    ),
    "one buffer many times": Attack(
        wat.command(
            """(local $i i32)
            (loop $l
              (i32.store (i32.add (i32.const 1024) (i32.mul (local.get $i) (i32.const 8)))
                (i32.const 0))
              (i32.store (i32.add (i32.const 1028) (i32.mul (local.get $i) (i32.const 8)))
                (i32.const 65536))
              (local.set $i (i32.add (local.get $i) (i32.const 1)))
              (br_if $l (i32.lt_u (local.get $i) (i32.const 1000))))
            (drop (call $fd_write (i32.const 1) (i32.const 1024) (i32.const 1000) (i32.const 8)))"""
        ),
        "10,000 bytes",
    ),
    "output that is not JSON": Attack(wat.saying("hello"), "not JSON"),
    "output that is not UTF-8": Attack(
        wat.command("(call $say (i32.const 1) (i32.const 64) (i32.const 4))",
                    data='(data (i32.const 64) "\\22\\ff\\fe\\22")'),
        "not JSON",
    ),
    "JSON that is nested deeply": Attack(wat.saying("[" * 5_000), "not JSON"),
    "no output": Attack(wat.command(""), "not JSON"),
    "random numbers without the capability": Attack(
        wat.command("(drop (call $random_get (i32.const 0) (i32.const 8)))",
                    imports=wasi("random_get", "i32 i32")),
        "random",
        CapabilityMissing,
    ),
    "the clock without the capability": Attack(
        wat.command("", imports=wasi("clock_time_get", "i32 i64 i32")), "clock", CapabilityMissing
    ),
    "opening a file": Attack(
        wat.command(
            "(drop (call $path_open (i32.const 3) (i32.const 1) (i32.const 64) (i32.const 13)"
            " (i32.const 0) (i64.const -1) (i64.const -1) (i32.const 0) (i32.const 8)))",
            imports=wasi("path_open", "i32 i32 i32 i32 i32 i64 i64 i32 i32"),
            data='(data (i32.const 64) "../etc/passwd")',
        ),
        "filesystem",
        CapabilityMissing,
    ),
    "listing a directory": Attack(
        wat.command(
            "(drop (call $fd_readdir (i32.const 3) (i32.const 0) (i32.const 9) (i64.const 0)"
            " (i32.const 8)))",
            imports=wasi("fd_readdir", "i32 i32 i32 i64 i32"),
        ),
        "filesystem",
        CapabilityMissing,
    ),
    "a socket": Attack(
        wat.command("(drop (call $sock_accept (i32.const 3) (i32.const 0) (i32.const 8)))",
                    imports=wasi("sock_accept", "i32 i32 i32")),
        "network",
        CapabilityMissing,
    ),
    "a signal": Attack(
        wat.command("(drop (call $proc_raise (i32.const 9)))", imports=wasi("proc_raise", "i32")),
        "signals",
        CapabilityMissing,
    ),
    "sleeping past the end of the time": Attack(
        wat.command(
            "(loop $l (drop (call $poll_oneoff (i32.const 0) (i32.const 0) (i32.const 1)"
            " (i32.const 8))) (br $l))",
            imports=wasi("poll_oneoff", "i32 i32 i32 i32"),
        ),
        "50 host functions",
    ),
    "going on after the end": Attack(
        wat.command(
            f"(call $proc_exit (i32.const 7)) {LOOP}",
            imports=wasi("proc_exit", "i32", ""),
        ),
        "exit code 7",
    ),
    "an exit code out of range": Attack(
        wat.command("(call $proc_exit (i32.const -1))", imports=wasi("proc_exit", "i32", "")),
        "exit code 4294967295",
    ),
    "a function of the system": Attack(
        module(f'(import "env" "system" (func (param i32))) {EMPTY}'), "env system"
    ),
    "a memory of the host": Attack(
        module('(import "env" "memory" (memory 1)) (func (export "_start"))'), "no memory|env"
    ),
    "a function of WASI with another type": Attack(
        module(f'(import "wasi_snapshot_preview1" "fd_write" (func (param i64))) {EMPTY}'),
        "with a type",
    ),
    "a function that WASI does not have": Attack(
        module(f'(import "wasi_snapshot_preview1" "fd_secret" (func)) {EMPTY}'), "does not have"
    ),
    "another version of WASI": Attack(
        module(f'(import "wasi_unstable" "fd_write" (func)) {EMPTY}'), "wasi_unstable"
    ),
    "shared memory": Attack(
        wat.binary(
            '(module (memory (export "memory") 1 1 shared) (func (export "_start")'
            " (drop (memory.atomic.wait32 (i32.const 0) (i32.const 0) (i64.const -1)))))"
        ),
        "cannot be loaded: failed to parse",
    ),
    "a memory of 64 bits": Attack(
        wat.binary('(module (memory (export "memory") i64 1) (func (export "_start")))'),
        "cannot be loaded: failed to parse",
    ),
    "no start": Attack(module('(memory (export "memory") 1)'), "_start"),
    "a start with parameters": Attack(
        module('(memory (export "memory") 1) (func (export "_start") (param i32))'), "_start"
    ),
}  # fmt: skip

INSTANCES = "".join("(core instance (instantiate $empty))" for _ in range(150))


def returning(case: int, at: int, length: int, memory: int = 1, data: str = "") -> bytes:
    body = f"""(i32.store8 (i32.const 16) (i32.const {case}))
        (i32.store (i32.const 20) (i32.const {at}))
        (i32.store (i32.const 24) (i32.const {length})) (i32.const 16)"""
    return wat.component(body, memory=memory, data=data)


def importing(name: str, inside: str) -> bytes:
    return wat.component("unreachable", imports=f'(import "{name}" (instance {inside}))')


COMPONENTS = {
    "an endless loop": Attack(
        wat.component(f"{LOOP} unreachable"), "did not finish", SkillTimeout, 0.2
    ),
    "a memory bomb": Attack(wat.component(GROWING), "memory ends"),
    "a memory that begins too large": Attack(wat.component("unreachable", memory=1000), "memory"),
    "many instances": Attack(
        wat.component("unreachable", more=f"(core module $empty) {INSTANCES}"), "instances"
    ),
    "recursion": Attack(
        wat.component(
            "(call $deep) unreachable", functions='(func $deep (call $deep))'
        ),
        "nested too deeply",
    ),
    "a result outside its memory": Attack(returning(0, 60_000, 60_000), "trap|outside|memory"),
    "a result that is not UTF-8": Attack(
        returning(0, 1024, 2, data='(data (i32.const 1024) "\\ff\\fe")'), "UTF-8|trap"
    ),
    "a case that does not exist": Attack(returning(9, 0, 0), "trap"),
    "a huge result": Attack(returning(0, 1024, 60_000), "10,000 bytes"),
    "a huge error": Attack(returning(2, 1024, 60_000), "10,000 bytes"),
    "JSON that is nested deeply": Attack(wat.answering(1, "[" * 5_000), "not JSON"),
    "HTTP of WASI": Attack(importing("wasi:http/outgoing-handler@0.2.0", ""), "wasi:http"),
    "the environment of WASI": Attack(
        importing("wasi:cli/environment@0.2.0",
                  '(export "get-environment" (func (result (list (tuple string string)))))'),
        "wasi:cli/environment",
    ),
    "sockets of WASI": Attack(importing("wasi:sockets/tcp@0.2.0", ""), "wasi:sockets"),
    "an interface of another version": Attack(
        importing("xmpp-agent:skill/http@0.2.0", ""), "http@0.2.0"
    ),
    "an interface that does not exist": Attack(
        importing("xmpp-agent:skill/shell@0.1.0", ""), "shell"
    ),
    "an interface that is not declared": Attack(
        wat.component("unreachable", imports=HTTP), "http", CapabilityMissing
    ),
    "an import whose type amplifies": Attack(
        importing("xmpp-agent:skill/log@0.1.0",
                  '(export "write" (func (param "text" (list (list string)))))'),
        "log.write",
    ),
    "an import with a resource": Attack(
        importing("xmpp-agent:skill/log@0.1.0", '(export "write" (type (sub resource)))'),
        "log.write",
    ),
    "a function that the interface does not have": Attack(
        importing("xmpp-agent:skill/log@0.1.0", '(export "read" (func (result string)))'),
        "log.read",
    ),
    "an import that is a function": Attack(
        wat.component("unreachable", imports='(import "system" (func (param "c" string)))'),
        "system",
    ),
    "an execute of another type": Attack(
        wat.binary(
            '(component (core module $m (func (export "f") (result i32) i32.const 0))'
            '(core instance $i (instantiate $m))'
            '(func (export "execute") (result u32) (canon lift (core func $i "f"))))'
        ),
        "execute",
    ),
    "no execute": Attack(wat.binary("(component)"), "execute"),
}  # fmt: skip


@pytest.mark.parametrize("attack", COMMANDS.values(), ids=COMMANDS)
async def test_a_hostile_command_is_stopped(unprobed: WasmRuntime, attack: Attack) -> None:
    await stopped(unprobed, attack)


@pytest.mark.parametrize("attack", COMPONENTS.values(), ids=COMPONENTS)
async def test_a_hostile_component_is_stopped(unprobed: WasmRuntime, attack: Attack) -> None:
    await stopped(unprobed, attack)


async def stopped(wasm: WasmRuntime, attack: Attack) -> None:
    """The attack fails as it says, and a neighbour's calls are answered meanwhile."""
    hostile = skill(wasm, attack.code, limits=LIMITS, name="hostile")
    neighbour = skill(wasm, wat.ECHO)
    await neighbour.prepare()
    with suppress(SkillLoadError, CapabilityMissing):  # its call says so again
        await hostile.prepare()
    async with anyio.create_task_group() as group:
        group.start_soon(_answers, neighbour)
        with pytest.raises(attack.error, match=attack.words) as failed:
            await hostile.execute({"a": 1}, context(attack.seconds, "mallory@example.com"))
    assert "hostile" in str(failed.value)
    assert not type(failed.value).__module__.startswith("wasmtime")


async def _answers(neighbour: object) -> None:
    for number in range(5):
        result = await neighbour.execute({"n": number}, context())  # type: ignore[attr-defined]
        assert result.outputs[0].text == f'{{"n":{number}}}'


async def test_instructions_are_limited(unprobed: WasmRuntime) -> None:
    """Fuel ends a loop before the time does."""
    for code in (wat.command(LOOP), wat.component(f"{LOOP} unreachable")):
        with pytest.raises(SkillFailed, match="1,000,000 instructions"):
            await skill(unprobed, code, limits=WasmLimits(fuel=1_000_000)).execute({}, context())


async def test_a_storm_of_traps(unprobed: WasmRuntime) -> None:
    """Many calls that trap at once each fail by themselves."""
    one = skill(unprobed, wat.command("unreachable"), name="hostile")
    await one.prepare()

    async def trap() -> None:
        with pytest.raises(SkillFailed, match="unreachable"):
            await one.execute({}, context(principal="mallory@example.com"))

    async with anyio.create_task_group() as group:
        group.start_soon(_answers, skill(unprobed, wat.ECHO))
        for _ in range(200):
            group.start_soon(trap)


async def test_who_is_stopped_again_and_again_waits(unprobed: WasmRuntime) -> None:
    """Stopping a guest takes longer than answering, so a storm is slowed; a success ends that."""
    one = skill(unprobed, wat.command("unreachable"), name="hostile")
    for _ in range(6):
        with pytest.raises(SkillFailed):
            await one.execute({}, context(principal="mallory@example.com"))
    began = anyio.current_time()
    with pytest.raises(SkillFailed):
        await one.execute({}, context(principal="mallory@example.com"))
    assert anyio.current_time() - began >= 0.3
    assert one._stops == {"mallory@example.com": 7}
    echo = skill(unprobed, wat.ECHO)
    echo._stops["romeo@example.com"] = 5
    await echo.execute({}, context())
    assert not echo._stops


async def test_another_skills_memory(unprobed: WasmRuntime) -> None:
    """Memory that one skill filled is zero for the next one, at every address."""
    fills = wat.command(
        "(memory.fill (i32.const 64) (i32.const 0x5a) (i32.const 4000000))"
        "(call $say (i32.const 1) (i32.const 32) (i32.const 4))",
        memory=64,
        data='(data (i32.const 32) "null")',
    )
    searches = wat.command(
        """(local $i i32) (local.set $i (i32.const 64))
        (loop $l
          (if (i64.ne (i64.load (local.get $i)) (i64.const 0)) (then unreachable))
          (local.set $i (i32.add (local.get $i) (i32.const 8)))
          (br_if $l (i32.lt_u (local.get $i) (i32.const 4194304))))
        (call $say (i32.const 1) (i32.const 32) (i32.const 4))""",
        memory=64,
        data='(data (i32.const 32) "null")',
    )
    one, other = skill(unprobed, fills), skill(unprobed, searches)
    for _ in range(3):
        await one.execute({}, context())
        assert (await other.execute({}, context())).outputs == ()


async def test_addresses_for_the_host_outside_of_memory(unprobed: WasmRuntime) -> None:
    """Host functions get addresses beyond the end of memory, and return an error."""
    checks = "".join(
        f"(if (i32.ne (call ${name} {arguments}) (i32.const 21)) (then unreachable))"
        for name, arguments in (
            ("fd_write", "(i32.const 1) (i32.const -8) (i32.const 1) (i32.const 8)"),
            ("fd_write", "(i32.const 1) (i32.const 0) (i32.const -1) (i32.const 8)"),
            ("fd_write", "(i32.const 1) (i32.const 65532) (i32.const 1) (i32.const 8)"),
            ("fd_read", "(i32.const 0) (i32.const 0) (i32.const 1) (i32.const 65535)"),
            ("random_get", "(i32.const 65535) (i32.const 8)"),
            ("random_get", "(i32.const -1) (i32.const 8)"),
        )
    )
    code = wat.command(
        f"{checks} (call $say (i32.const 1) (i32.const 32) (i32.const 4))",
        imports=wasi("random_get", "i32 i32"),
        data='(data (i32.const 32) "null")',
    )
    assert (await skill(unprobed, code, granted=ALL).execute({}, context())).outputs == ()


async def test_too_many_random_numbers(unprobed: WasmRuntime) -> None:
    """The host does not work for a guest without limit."""
    code = wat.command(
        "(drop (call $random_get (i32.const 0) (i32.const 0x7fffffff)))",
        imports=wasi("random_get", "i32 i32"),
    )
    with pytest.raises(SkillFailed, match="random bytes"):
        await skill(unprobed, code, granted=ALL).execute({}, context())


async def test_a_flood_of_lines(unprobed: WasmRuntime) -> None:
    """What a skill logs is limited in lines, and each line in length."""
    told = Told()
    code = wat.command(
        """(local $i i32)
        (loop $l
          (call $say (i32.const 2) (i32.const 1024) (i32.const 20000))
          (local.set $i (i32.add (local.get $i) (i32.const 1)))
          (br_if $l (i32.lt_u (local.get $i) (i32.const 40))))
        (call $say (i32.const 1) (i32.const 32) (i32.const 4))""",
        data='(data (i32.const 32) "null") (data (i32.const 1024) "'
        + "\\0a" * 10_000 + "a\\0a" * 100 + "\\1b[31m" * 100 + '")',
    )  # fmt: skip
    await skill(unprobed, code, told=told).execute({}, context())
    assert len(told.lines) <= 100
    assert all(len(text) <= 2_000 and text.isprintable() for _, text in told.lines)


async def test_a_host_function_that_hangs(unprobed: WasmRuntime) -> None:
    """A host function has a time of its own; the call's time may end before."""
    cancelled = 0

    async def http(request: HttpRequest) -> HttpResponse:
        nonlocal cancelled
        try:
            await anyio.sleep_forever()
        finally:
            cancelled += 1

    one = skill(
        unprobed,
        sending("https://a.example/"),
        granted=ALL,
        limits=LIMITS,
        functions={HttpRequest: http},
    )
    with pytest.raises(SkillFailed, match=r"did not answer within 0\.2 seconds"):
        await one.execute({}, context())
    with pytest.raises(SkillTimeout, match=r"0\.1 seconds"):
        await one.execute({}, context(0.1))
    assert cancelled == 2


async def test_compiling_is_limited(wasm: WasmRuntime) -> None:
    """Code whose compilation takes too long or too much memory is refused; the service lives."""
    code = (SAMPLES / "dice" / "skill.wasm").read_bytes()
    for limits, words in (
        (WasmLimits(compile_s=0.01), "within 0.01 seconds"),  # less than a process needs to start
        (WasmLimits(compile_bytes=64 << 20), "did not survive"),  # which is enough for the echo
    ):
        with pytest.raises(SkillLoadError, match=words):
            await skill(runtime(), code, granted=ALL, limits=limits, name="hostile").prepare()
    await skill(runtime(), wat.COMPONENT_ECHO, limits=WasmLimits(compile_bytes=64 << 20)).prepare()


def mutations(code: bytes, count: int) -> Iterator[bytes]:
    """Copies of code with some bytes changed, removed or repeated; the same in every run."""
    rng = random.Random(20_261_123)
    for _ in range(count):
        changed = bytearray(code)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(8, len(changed))
            match rng.randrange(4):
                case 0:
                    changed[at] = rng.randrange(256)
                case 1:
                    del changed[at : at + rng.randint(1, 8)]
                case 2:
                    changed[at:at] = changed[at : at + rng.randint(1, 16)]
                case _:
                    changed[at] ^= 1 << rng.randrange(8)
        yield bytes(changed)


@pytest.mark.parametrize("code", [wat.ECHO, wat.COMPONENT_ECHO], ids=["command", "component"])
async def test_malformed_code_is_refused_or_ends_as_calls_may(
    unprobed: WasmRuntime, code: bytes
) -> None:
    """Whatever bytes it consists of, code is refused, or its calls end as calls may."""
    refused = 0
    for changed in mutations(code, 200 if THOROUGH else 20):
        one = skill(unprobed, changed, limits=LIMITS)
        try:
            await one.prepare()
        except (SkillLoadError, CapabilityMissing):
            refused += 1
            continue
        with suppress(SkillError, SkillFailed, SkillTimeout, CapabilityMissing, InvalidParam):
            await one.execute({"a": 1}, context(2))
    assert refused > 5
