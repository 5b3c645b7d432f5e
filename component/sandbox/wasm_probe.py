"""How wasmtime compiles, and a confined process that tries to; its result is thrown away.

A fault of the compiler (a panic of wasmtime) ends the process in which it happens, and compiling
may take any time and memory. So code is compiled here first, without rights and within limits that
the kernel enforces; what passes is compiled again by the service, which takes the same steps. The
service never deserialises what this process made, and this process gets nothing of the service but
the code.

    python -m component.sandbox.wasm_probe < CODE

The exit code is 0 if the code can be compiled, 1 if not, with the reason on standard output.

wasmtime is an extra, and imported only where code is compiled.
"""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Final

import anyio

from component.sandbox.launch import NOT_CONFINED, confined_command
from component.sandbox.profile import Limits, Profile
from component.sandbox.program import run_program

if TYPE_CHECKING:
    import wasmtime

STACK_BYTES: Final = 1 << 20
_COMPONENT_LAYER: Final = 1
_REASON: Final = 300
_NICE: Final = 10
_THREADS: Final = 1_024
"""The compiler uses one for each processor."""


def is_component(wasm: bytes) -> bool:
    """Return whether code says of itself that it is a component, not a module."""
    return int.from_bytes(wasm[6:8], "little") == _COMPONENT_LAYER


def make_engine() -> wasmtime.Engine:
    """Make an engine. It compiles in the calling thread only, not on every core.

    What no skill needs is off: code that uses it is refused.
    """
    import wasmtime  # noqa: PLC0415
    from wasmtime import _ffi  # noqa: PLC0415 - for a switch that wasmtime-py does not offer

    config = wasmtime.Config()
    config.consume_fuel = True
    config.epoch_interruption = True
    config.max_wasm_stack = STACK_BYTES
    config.parallel_compilation = False
    config.wasm_threads = False  # waiting on shared memory could not be interrupted
    config.wasm_memory64 = False
    config.wasm_gc = False
    config.wasm_function_references = False
    config.wasm_relaxed_simd = False
    # Asynchronous functions of components: no interface has one.
    _ffi.wasmtime_config_concurrency_support_set(config.ptr(), False)
    return wasmtime.Engine(config)


async def probe(wasm: bytes, seconds: float, most_bytes: int) -> str:
    """Compile code in a child. Return why it cannot be compiled, or an empty text."""
    profile = compiler_profile(seconds, most_bytes)
    command = confined_command(profile, [sys.executable, "-I", "-m", __name__])
    with anyio.move_on_after(seconds):
        ended = await run_program(command, wasm, most=_REASON, most_errors=0)
        if ended.code == NOT_CONFINED:
            return "the process that tries it cannot be confined: see `xmpp-agent doctor`"
        if ended.code == 0:
            return ""
        if ended.code in (1, None) and ended.output:
            return ended.output.decode("utf-8", "replace")
        return (
            f"the compiler did not survive it, with at most {most_bytes >> 20:,} MiB of memory and"
            f" {seconds:g} seconds"
        )
    return f"it was not compiled within {seconds:g} seconds"


def compiler_profile(seconds: float, most_bytes: int) -> Profile:
    """Return what the process may do: nothing, for so long and with so much memory."""
    limits = Limits(
        memory=most_bytes,
        cpu_s=math.ceil(seconds),
        tasks=_THREADS,
        file_bytes=0,
        wall_s=seconds,
        nice=_NICE,
    )
    # On a system that can confine nothing, the limits hold all the same.
    return Profile(limits=limits, weaker=True)


def _main() -> None:
    """Compile the code on standard input."""
    wasm = sys.stdin.buffer.read()
    from wasmtime import Module, WasmtimeError  # noqa: PLC0415 - under the limits
    from wasmtime.component import Component  # noqa: PLC0415

    try:
        (Component if is_component(wasm) else Module)(make_engine(), wasm)
    except WasmtimeError as error:
        sys.stdout.write(" ".join(str(error).split())[:_REASON])
        sys.exit(1)


if __name__ == "__main__":
    _main()
