"""What a service tries on a full disk, and the errors that it gets.

`python -m tests.kit.full_disk DIRECTORY` mounts a small disk at the directory, which needs a mount
namespace of its own, lets it happen there, and writes the results to standard output.
"""

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from component.audit.files import LogWriter
from component.memory_directory import files
from component.store.sqlite import SQLite
from tests.kit.disk_script import left, note, opened, write

_OPTIONS: Final = "size=1m,nr_inodes=64,mode=0700"
_PAGE: Final = 4096
LARGE: Final = b"x" * 3 * _PAGE
"""More than fits into a page of a file that has been begun."""


class Tried(msgspec.Struct, frozen=True):
    """How something has ended: what it has raised, and what was the cause of that.

    `number` is the errno of an OSError, or the code of an error of SQLite.
    """

    name: str
    raised: str = ""
    said: str = ""
    cause: str = ""
    number: int | None = None
    why: str = ""


def tried(name: str, data: Path, call: Callable[[], Any]) -> Tried:
    """Call, and say how it has ended."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - which one it is is compared
        # One of the system says the name of a file only if it was called with it.
        said = "" if isinstance(error, OSError) else str(error).replace(str(data), "DATA")
        cause = error if error.__cause__ is None else error.__cause__
        number, why = None, str(cause)
        if isinstance(cause, OSError):
            number, why = cause.errno, cause.strerror or ""
        elif isinstance(cause, sqlite3.Error):
            number = cause.sqlite_errorcode
        return Tried(name, type(error).__name__, said, type(cause).__name__, number, why)
    return Tried(name)


def attempts(data: Path, database: SQLite, log: LogWriter) -> list[Tried]:
    """Try what needs the disk, and what does not."""

    def reads() -> None:
        with database.reading() as rows:
            assert rows.execute("SELECT n FROM notes").fetchall() == [(1,)]

    def starts(directory: Path) -> None:
        with opened(directory):
            pass

    what: list[tuple[str, Callable[[], Any]]] = [
        ("a small commit", lambda: write(database, note(2))),
        ("a large commit", lambda: write(database, note(2, LARGE.decode()))),
        ("a commit that changes nothing", lambda: write(database, _nothing)),
        ("a read", reads),
        ("lines of the audit log", lambda: log.append(LARGE + b"\n", 2, "2026-11-20")),
        ("a new file of the audit log", lambda: log.append(b"later\n", 3, "2026-11-21")),
        ("a line of a memory", lambda: files.append(data / "history", LARGE + b"\n")),
        ("a file that is replaced", lambda: files.replace(data / "summary", LARGE)),
        ("a new directory", lambda: files.make_folder(data, data / "memory")),
        ("a file that is there", lambda: os.close(os.open(data / "history", os.O_RDWR))),
        ("a start", lambda: starts(data / "other")),
        ("a first start", lambda: starts(data / "new")),
        ("a removal", lambda: files.remove(data / "removed")),
    ]
    return [tried(name, data, call) for name, call in what]


def _nothing(_: object) -> None:
    pass


def run(data: Path, fill: Callable[[], None], free: Callable[[], None]) -> Any:
    """Begin, let the disk be full and free again; return the results, and what is there then."""
    with opened(data) as database:
        write(database, note(1))
        log = LogWriter(data, max_bytes=1_000_000)
        log.append(b"first\n", 1, "2026-11-20")
        files.append(data / "history", b"first\n")
        files.replace(data / "summary", b"first")
        files.replace(data / "removed", b"first")
        with opened(data / "other"):
            pass
        fill()
        full = attempts(data, database, log)
        free()
        write(database, note(3))
        log.append(LARGE + b"\n", 2, "2026-11-20")
        log.close()
    return msgspec.to_builtins((full, left(data)))


def main(place: Path) -> None:
    """Run on a real disk."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", _OPTIONS, "tmpfs", str(place)], check=True)
    data, filler = place / "data", place / "filler"
    data.mkdir()
    filler.mkdir()

    def fill() -> None:
        with contextlib.suppress(OSError):
            for number in range(1000):
                (filler / str(number)).touch()
        with contextlib.suppress(OSError), (filler / "0").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(_PAGE))
        disk = os.statvfs(place)
        assert (disk.f_bavail, disk.f_ffree) == (0, 0)

    def free() -> None:
        for path in filler.iterdir():
            path.unlink()

    print(json.dumps(run(data, fill, free)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
