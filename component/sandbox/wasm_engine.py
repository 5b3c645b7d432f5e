"""The one engine of wasmtime in the process, and how long code runs.

It uses a part of wasmtime-py which is not public: the callback when the epoch ends, because only it
can stop a guest whose caller no longer waits.

Limits hold for every store: `store_for` makes one for a call. A thread increments the epoch every
10 ms while calls run; then each guest asks whether its call has expired.
"""

from __future__ import annotations

import ctypes
import threading
from functools import cache
from typing import Any, Final

import wasmtime
from wasmtime import _ffi

from component.sandbox.wasm_call import WasmCall, current
from component.sandbox.wasm_probe import make_engine

_TICK_S: Final = 0.01
_IDLE_TICKS: Final = 100


class _Ticker:
    def __init__(self, engine: wasmtime.Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._active = 0
        self._parked = True
        self._wake = threading.Event()
        threading.Thread(target=self._run, name="wasm-epoch", daemon=True).start()

    def enter(self) -> None:
        """Count a call that begins."""
        with self._lock:
            self._active += 1
            if self._parked:
                self._parked = False
                self._wake.set()

    def leave(self) -> None:
        """Count a call that has ended."""
        with self._lock:
            self._active -= 1

    def _run(self) -> None:
        idle = 0
        pause = threading.Event()
        while True:
            pause.wait(_TICK_S)
            self._engine.increment_epoch()
            idle = 0 if self._active else idle + 1
            if idle < _IDLE_TICKS:
                continue
            with self._lock:
                if self._active:
                    continue
                self._parked = True
                self._wake.clear()
            self._wake.wait()


@cache
def engine() -> wasmtime.Engine:
    """Return the engine."""
    return make_engine()


@cache
def ticker() -> _Ticker:
    """Return the thread that increments the epoch."""
    return _Ticker(engine())


def store_for(call: WasmCall, memories: int) -> wasmtime.Store:
    """Make a store with the limits of a call, which belongs to the calling thread. Close it."""
    limits = call.limits
    store = wasmtime.Store(engine())
    store.set_limits(
        memory_size=limits.memory_bytes,
        table_elements=limits.table_elements,
        instances=limits.instances,
        tables=limits.tables,
        memories=memories,
    )
    store.set_fuel(limits.fuel)
    _ffi.wasmtime_store_epoch_deadline_callback(store.ptr(), _on_epoch, None, _NO_FINALIZER)
    store.set_epoch_deadline(1)
    return store


_Callback = ctypes.CFUNCTYPE(
    ctypes.c_size_t,
    ctypes.POINTER(_ffi.wasmtime_context_t),
    ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_uint64),
    ctypes.POINTER(ctypes.c_uint8),
)
_NO_FINALIZER = ctypes.cast(0, ctypes.CFUNCTYPE(None, ctypes.c_void_p))


@_Callback  # type: ignore[untyped-decorator] # of ctypes
def _on_epoch(context: Any, data: Any, delta: Any, kind: Any) -> int:
    """Go on for another tick, or trap."""
    call = current.call
    if call is None or call.expired():
        error = wasmtime.WasmtimeError("stopped")._consume()  # noqa: SLF001 - see above
        return ctypes.cast(error, ctypes.c_void_p).value or 0
    delta[0] = 1
    kind[0] = 0
    return 0
