"""How wasmtime compiles, for the service and for the child process that tries code out."""

from __future__ import annotations

from typing import Final

import wasmtime
from wasmtime import _ffi  # for a switch that wasmtime-py does not offer

STACK_BYTES: Final = 1 << 20
_COMPONENT_LAYER: Final = 1


def is_component(wasm: bytes) -> bool:
    """Return whether code says of itself that it is a component, not a module."""
    return int.from_bytes(wasm[6:8], "little") == _COMPONENT_LAYER


def make_engine() -> wasmtime.Engine:
    """Make an engine. It compiles in the calling thread only, not on every core.

    What no skill needs is off: code that uses it is refused.
    """
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
