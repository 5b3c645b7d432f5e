"""Measures calls of skills in WebAssembly: the cost of limits, and what hostile ones do to others.

The peer of a function and of a command module is wasmtime-py alone, as its documentation shows it:
a fresh store without limits, and for the command WASI of wasmtime, with standard input from a file.
The peer of a neighbour beside hostile skills is the same neighbour beside none.
"""

# ruff: noqa: SLF001 - calls are measured without the way to their threads, too.

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import anyio
import msgspec
import wasmtime

from benchmarks.report import Line, Target
from component.sandbox.wasm import WasmRuntime, WasmSkill
from component.sandbox.wasm_call import IMPORTS, WasmCall, WasmLimits, current
from component.sandbox.wasm_code import run_code
from component.sandbox.wasm_engine import engine, store_for, ticker
from component.skills.errors import SkillFailed, SkillTimeout
from component.skills.host import HostFunctions
from component.skills.operations import ReportProgress
from tests.component.sandbox import guests, wat
from tests.component.sandbox.running import Told, context, runtime, skill

_SAMPLES = Path(__file__).parents[1] / "examples" / "skills"
_CALLS = 300
_HOSTILE = 4
_SMALL, _LARGE = "a few words of text", "many words of text " * 5_000


def measure(runs: int) -> Iterator[Line]:
    """Yield the time of calls of a command, of components, and beside hostile skills."""
    yield _function(runs)
    with tempfile.TemporaryDirectory() as directory:
        where = runtime(Path(directory) / "compiled")
        yield from _commands(where, Path(directory), runs)
    yield from anyio.run(_components, runs)
    yield from anyio.run(_neighbours, runs)


def _function(runs: int) -> Line:
    """The function of a module that imports nothing: what a store with all limits costs."""
    code = bytes(
        wasmtime.wat2wasm(
            """(module (memory (export "memory") 1) (func (export "run") (result i32) (local $i i32)
        (loop $l (local.set $i (i32.add (local.get $i) (i32.const 1)))
          (br_if $l (i32.lt_u (local.get $i) (i32.const 1000))))
        (local.get $i)))"""
        )
    )
    state = WasmCall("run", "", _host(), WasmLimits(seconds=3600.0), None)  # type: ignore[arg-type]

    def limited(linked: wasmtime.InstancePre) -> Any:
        current.call = state
        ticker().enter()
        store = store_for(state, 1)
        try:
            return _called(linked, store)
        finally:
            store.close()
            ticker().leave()

    def bare(linked: wasmtime.InstancePre, engine: wasmtime.Engine) -> Any:
        store = wasmtime.Store(engine)
        try:
            return _called(linked, store)
        finally:
            store.close()

    plain = wasmtime.Engine()
    ours = wasmtime.Linker(engine()).instantiate_pre(wasmtime.Module(engine(), code))
    peers = wasmtime.Linker(plain).instantiate_pre(wasmtime.Module(plain, code))
    costs = _in_turns(lambda: limited(ours), lambda: bare(peers, plain), runs, _CALLS)
    return Line(
        "a function of a core module with all limits", "µs", *costs, target=Target(1.3, "at most")
    )


def _host() -> HostFunctions:
    """Return the functions that every skill has."""
    told = Told()
    return HostFunctions("guest", told.log, {ReportProgress: told.report})


def _called(linked: wasmtime.InstancePre, store: wasmtime.Store) -> Any:
    run = linked.instantiate(store).exports(store)["run"]
    assert isinstance(run, wasmtime.Func)
    return run(store)


def _in_turns(
    ours: Callable[[], object], peer: Callable[[], object], runs: int, calls: int
) -> tuple[list[float], list[float]]:
    """Return the median times of calls in µs, run by run. Taking turns, other load meets both."""
    costs: tuple[list[float], list[float]] = ([], [])
    for _ in range(runs):
        pairs = [(_once(ours), _once(peer)) for _ in range(calls)]
        for cost, side in zip(costs, zip(*pairs, strict=True), strict=True):
            cost.append(median(side) * 1e6)
    return costs


def _commands(where: WasmRuntime, directory: Path, runs: int) -> Iterator[Line]:
    code = (_SAMPLES / "checksum" / "skill.wasm").read_bytes()
    one = skill(where, code)
    anyio.run(one.prepare)
    for text, what, calls in ((_SMALL, "20 bytes", _CALLS), (_LARGE, "95 KB", _CALLS // 10)):
        ours, bare = _limited(one, text), _bare(code, directory, text)
        assert ours() == bare(), "both compute the same"
        costs = _in_turns(ours, bare, runs, calls)
        yield Line(
            f"a command in WebAssembly with all limits, {what}",
            "µs",
            *costs,
            target=Target(1.3, "at most"),
        )


def _limited(one: WasmSkill, text: str) -> Callable[[], Any]:
    """The call as a thread of the service makes it."""
    loaded = one._loaded
    assert loaded is not None
    arguments = _arguments(text)
    host: HostFunctions = one._host(context())

    def call() -> Any:
        # No host function of a command needs the event loop.
        state = WasmCall(one.name, arguments, host, one._limits, None)  # type: ignore[arg-type]
        return run_code(loaded, state)

    return call


def _bare(code: bytes, directory: Path, text: str) -> Callable[[], Any]:
    plain = wasmtime.Engine()
    linker = wasmtime.Linker(plain)
    linker.define_wasi()
    module = wasmtime.Module(plain, code)
    stdin = directory / "stdin"
    arguments = _arguments(text).encode()

    def call() -> Any:
        stdin.write_bytes(arguments)
        written: list[bytes] = []
        wasi = wasmtime.WasiConfig()
        wasi.stdin_file = str(stdin)
        wasi.stdout_custom = lambda data: written.append(data)  # noqa: PLW0108 - returns None
        store = wasmtime.Store(plain)
        store.set_wasi(wasi)
        start = linker.instantiate(store, module).exports(store)["_start"]
        assert isinstance(start, wasmtime.Func)
        start(store)
        store.close()
        return msgspec.json.decode(b"".join(written))

    return call


def _arguments(text: str) -> str:
    return f'{{"text":"{text}"}}'


def _once(work: Callable[[], object]) -> float:
    started = perf_counter()
    work()
    return perf_counter() - started


async def _components(runs: int) -> list[Line]:
    """A fresh store for each call, from the event loop and back."""
    where = guests.kept_runtime()
    dice = (_SAMPLES / "dice" / "skill.wasm").read_bytes()
    skills: dict[str, tuple[WasmSkill, dict[str, Any]]] = {
        "Python": (skill(where, guests.statistics()), {"numbers": [1, 2, 3.5]}),
        "JavaScript": (skill(where, dice, granted=IMPORTS), {"dice": "2d6"}),
    }
    lines = []
    for name, (one, arguments) in skills.items():
        await one.execute(arguments, context())
        costs, processor = [], []
        for _ in range(runs):
            times = []
            before = process_time()
            for _ in range(_CALLS):
                started = perf_counter()
                await one.execute(arguments, context())
                times.append(perf_counter() - started)
            costs.append(median(times) * 1e3)
            processor.append((process_time() - before) / _CALLS * 1e3)
        target = Target(3.0, "at most", of="ours") if name == "Python" else None
        # On a busy machine only the processor time says something.
        lines.append(Line(f"a component in {name}, warm, a fresh store", "ms CPU", processor))
        lines.append(
            Line(f"a component in {name}, warm, a fresh store", "ms", costs, target=target)
        )
    return lines


async def _neighbours(runs: int) -> list[Line]:
    """A skill of one principal, while another's loop, trap and fill their memory."""
    where = runtime(threads=8)
    echo = skill(where, wat.ECHO)
    hostile = [
        skill(where, code, name=f"hostile-{number}")
        for number, code in enumerate(
            (
                wat.command("(loop $l (br $l))"),
                wat.command("unreachable"),
                wat.command(
                    "(loop $l (br_if $l (i32.ne (memory.grow (i32.const 16)) (i32.const -1))))"
                    " (memory.fill (i32.const 0) (i32.const 1) (i32.const 60000000)) unreachable"
                ),
                wat.command("(call $start)"),
            )
        )
    ]
    for each in (echo, *hostile):
        await each.prepare()
    alone, beside = [], []
    for _ in range(runs):
        alone.append(await _latency(echo))
        async with anyio.create_task_group() as group:
            for number in range(_HOSTILE):
                group.start_soon(_attack, hostile[number % len(hostile)])
            await anyio.sleep(0.05)
            beside.append(await _latency(echo))
            group.cancel_scope.cancel()
    note = (
        f"{_HOSTILE} hostile skills at once: an endless loop, traps, 60 MB of memory,"
        " and recursion. They keep as many cores busy as there are."
    )
    target = Target(2.0, "at most")
    return [Line("a neighbour of hostile skills", "µs", beside, alone, target=target, note=note)]


async def _attack(one: WasmSkill) -> None:
    while True:
        try:
            await one.execute({}, context(0.5, "mallory@example.com"))
        except (SkillFailed, SkillTimeout):
            await anyio.lowlevel.checkpoint()


async def _latency(one: WasmSkill) -> float:
    times = []
    for _ in range(_CALLS):
        started = perf_counter()
        await one.execute({"a": 1}, context())
        times.append(perf_counter() - started)
    return median(times) * 1e6
