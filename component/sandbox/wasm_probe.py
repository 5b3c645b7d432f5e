"""Tries to compile code in a child process, whose result is thrown away.

A fault of the compiler (a panic of wasmtime) ends the process in which it happens, and compiling
may take any time and memory. So code is compiled here first, with limits that the kernel enforces;
what passes is compiled again by the service, which takes the same steps. The service never
deserialises what this process made.

    python -m component.sandbox.wasm_probe SECONDS BYTES < CODE

The exit code is 0 if the code can be compiled, 1 if not, with the reason on standard output.
"""

from __future__ import annotations

import math
import resource
import subprocess
import sys
from typing import Final

import anyio

_REASON: Final = 300


async def probe(wasm: bytes, seconds: float, most_bytes: int) -> str:
    """Compile code in a child. Return why it cannot be compiled, or an empty text."""
    command = [sys.executable, "-I", "-m", __name__, str(math.ceil(seconds)), str(most_bytes)]
    with anyio.move_on_after(seconds):
        ended = await anyio.run_process(
            command,
            input=wasm,
            stderr=subprocess.DEVNULL,
            check=False,
            env={"LC_ALL": "C.UTF-8"},
            cwd="/",
        )
        if ended.returncode == 0:
            return ""
        if ended.returncode == 1 and ended.stdout:
            return ended.stdout[:_REASON].decode("utf-8", "replace")
        return (
            f"the compiler did not survive it, with at most {most_bytes >> 20:,} MiB of memory and"
            f" {seconds:g} seconds"
        )
    return f"it was not compiled within {seconds:g} seconds"


def main() -> None:
    """Compile the code on standard input."""
    seconds, most_bytes = int(sys.argv[1]), int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_AS, (most_bytes, most_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16))
    wasm = sys.stdin.buffer.read()
    from wasmtime import Module, WasmtimeError  # noqa: PLC0415 - under the limits
    from wasmtime.component import Component  # noqa: PLC0415

    from component.sandbox.wasm_config import is_component, make_engine  # noqa: PLC0415

    try:
        (Component if is_component(wasm) else Module)(make_engine(), wasm)
    except WasmtimeError as error:
        sys.stdout.write(" ".join(str(error).split())[:_REASON])
        sys.exit(1)


if __name__ == "__main__":
    main()
