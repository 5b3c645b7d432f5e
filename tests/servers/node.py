"""Node.js and the libraries from npm that `tests/tools/javascript.sh` installs."""

import os
import shutil
import sys
from pathlib import Path


def node_program() -> str:
    """Return the path of `node`. Fails if it is not installed."""
    found = shutil.which("node", path=os.pathsep.join((f"{sys.prefix}/bin", os.environ["PATH"])))
    assert found is not None, "node is missing: run tests/tools/javascript.sh"
    return found


def node_modules(name: str) -> Path:
    """Return the installed libraries of one set. Fails if they are missing."""
    path = Path(sys.prefix) / "javascript" / name / "node_modules"
    assert path.exists(), f"{path} is missing: run tests/tools/javascript.sh"
    return path
