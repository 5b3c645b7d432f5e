"""Two releases of the program: this one, and a newer one whose database has one more column."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
EPOCH = "1700000000"
SOURCES = (
    *("component", "conformance", "demo_server", "protocol_schemas", "xep"),
    *("xmpp_agent", "xmpp_agent_client"),
    *(
        "packaging",
        "docs",
        "examples",
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
        ".gitignore",
    ),
)
NEWER = "99.0.0"
_CHANGES = {
    "component/__init__.py": ('VERSION = "', f'VERSION = "{NEWER}"\n_OLDER = "'),
    "component/store/tables.py": (
        "            value INTEGER NOT NULL,\n            changed BIGINT NOT NULL\n",
        (
            "            value INTEGER NOT NULL,\n            changed BIGINT NOT NULL,\n"
            "            reason TEXT NOT NULL DEFAULT ''\n"
        ),
    ),
    "component/app/migrations.py": (
        "= ()\n",
        """= (
    Migration(
        about="adds the reason of a switch",
        statements=("ALTER TABLE switches ADD COLUMN reason TEXT NOT NULL DEFAULT ''",),
    ),
)
""",
    ),
}


def copy_sources(target: Path) -> Path:
    """Copy what the packages are built from, and nothing that a build has left."""
    left = shutil.ignore_patterns("__pycache__", "*.pyc")
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=left)
        else:
            target.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target / name)
    return target


def newer_sources(target: Path) -> Path:
    """Copy the sources, and make the newer release of them."""
    copy_sources(target)
    for name, (old, new) in _CHANGES.items():
        file = target / name
        text = file.read_text()
        assert text.count(old) == 1, f"{name} has {old!r} once"
        file.write_text(text.replace(old, new))
    return target


def build(sources: Path, *formats: str) -> list[Path]:
    """Build packages into `dist`; return them in the order of the formats."""
    chosen = [argument for each in formats for argument in ("-t", each)]
    run("hatchling", "build", *chosen, "-d", "dist", cwd=sources)
    suffixes = {"wheel": "*.whl", "sdist": "*.tar.gz"}
    return [next((sources / "dist").glob(suffixes[each])) for each in formats]


def run(program: str, *arguments: str | Path, cwd: Path, **environment: str) -> str:
    """Run a program, of the environment of the tests if it is there; return its output."""
    own = BIN / program
    done = subprocess.run(
        [str(own) if own.exists() else program, *map(str, arguments)],
        cwd=cwd,
        env=os.environ | {"SOURCE_DATE_EPOCH": EPOCH} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
