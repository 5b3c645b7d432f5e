"""The sample skill in Python as a component, built once for this environment.

It has 18 MB, so it is not in the repository. Building takes about 10 seconds of one core, compiling
it 20 (once in a child, once in the service); both are kept in the environment, as the servers are.

    python -m tests.component.sandbox.python_guest

does both in advance.
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
_SAMPLE = _ROOT / "examples" / "skills" / "statistics"
_KEPT = Path(sys.prefix) / "guests"


def statistics() -> bytes:
    """Return the component."""
    digest = hashlib.sha256(version("componentize-py").encode())
    for source in ("app.py", "world.wit", "build.sh"):
        digest.update((_SAMPLE / source).read_bytes())
    digest.update((_ROOT / "protocol_schemas" / "skill.wit").read_bytes())
    _KEPT.mkdir(exist_ok=True)
    path = _KEPT / f"statistics-{digest.hexdigest()[:16]}.wasm"
    with _Lock(_KEPT / "lock"):
        if not path.exists():
            part = path.with_suffix(".part")
            tool = Path(sys.executable).with_name("componentize-py")
            subprocess.run(
                [_SAMPLE / "build.sh"],
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


if __name__ == "__main__":
    anyio.run(skill(kept_runtime(), statistics()).prepare)
