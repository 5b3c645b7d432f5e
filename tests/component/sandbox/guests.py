"""Sample skills in WebAssembly that take long to build or compile, kept in this environment.

The one in Python has 18 MB, so it is not in the repository. Building it takes about 10 seconds of
one core, compiling it 20 (once in a child, once in the service), and that in JavaScript nearly as
long. The results are kept in the environment, as the servers are.

    python -m tests.component.sandbox.guests

prepares them.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import anyio

from component.sandbox.wasm import WasmRuntime
from tests.component.sandbox.running import runtime, skill

_ROOT = Path(__file__).parents[3]
SAMPLES = _ROOT / "examples" / "skills"
_KEPT = Path(sys.prefix) / "guests"


def statistics() -> bytes:
    """Return the sample in Python as a component."""
    digest = hashlib.sha256(version("componentize-py").encode())
    for source in ("app.py", "world.wit", "build.sh"):
        digest.update((SAMPLES / "statistics" / source).read_bytes())
    digest.update((_ROOT / "protocol_schemas" / "skill.wit").read_bytes())
    _KEPT.mkdir(exist_ok=True)
    path = _KEPT / f"statistics-{digest.hexdigest()[:16]}.wasm"
    with _Lock(_KEPT / "lock"):
        if not path.exists():
            part = path.with_suffix(".part")
            tool = Path(sys.executable).with_name("componentize-py")
            subprocess.run(
                [SAMPLES / "statistics" / "build.sh"],
                env={**os.environ, "COMPONENTIZE": str(tool), "OUTPUT": str(part)},
                check=True,
                capture_output=True,
            )
            part.replace(path)
    return path.read_bytes()


def kept_runtime() -> WasmRuntime:
    """Return a runtime whose compiled code is kept in the environment."""
    return runtime(_KEPT / "compiled")


class _Lock:
    """Keeps other processes waiting."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        self._file = self._path.open("w")
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        self._file.close()


async def _prepare() -> None:
    dice = (SAMPLES / "dice" / "skill.wasm").read_bytes()
    await skill(kept_runtime(), statistics()).prepare()
    await skill(kept_runtime(), dice, granted=("random",)).prepare()


if __name__ == "__main__":
    anyio.run(_prepare)
