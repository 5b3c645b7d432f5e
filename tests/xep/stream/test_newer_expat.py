"""Stanzas come in time also where expat defers half a token (2.6 and later).

The interpreter that runs the tests may have an older expat, so another one is looked for.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parents[3]
FETCHED = ROOT / ".venv" / "expat"
MEND = """No Python with expat 2.6 or later was found. On Debian run tests/tools/newer-expat.sh,
which fetches one into .venv/expat without installing it; elsewhere put a Python 3.13 on PATH."""


def _candidates() -> list[tuple[str, dict[str, str]]]:
    names = ("python3.14", "python3.13", "python3.12", "python3", "/usr/bin/python3")
    found = [sys.executable, *filter(None, map(shutil.which, names))]
    preloaded = (
        [("/usr/bin/python3", {"LD_LIBRARY_PATH": str(FETCHED)})] if FETCHED.exists() else []
    )
    return [*preloaded, *((python, {}) for python in found)]


def _run(python: str, extra: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, *arguments],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": sysconfig.get_path("platlib"),  # msgspec, for the same version of Python
            **extra,
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_every_split_with_reparse_deferral() -> None:
    probe = (
        "import msgspec, pyexpat, sys;"
        "sys.exit(pyexpat.version_info < (2, 6) or sys.version_info < (3, 11))"
    )
    for python, extra in _candidates():
        if _run(python, extra, "-c", probe).returncode == 0:
            break
    else:
        raise AssertionError(MEND)
    result = _run(python, extra, "-m", "tests.xep.stream.every_split")
    assert result.returncode == 0, result.stderr
    assert tuple(map(int, result.stdout.split("."))) >= (2, 6)
