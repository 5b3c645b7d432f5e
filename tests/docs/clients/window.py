"""A client in a window: driven by the pointer and the keyboard, read from its database."""

import os
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
LIMIT_S = 60.0
SETTLED_S = 1.0
"""Seconds until what moves or fades has come to rest."""


class Window:
    """A window at the upper left of a display of its own.

    Args:
        display: the name of the display.
        database: the file in which the client stores messages.
        messages: SQL that finds a message by its text, with `LIKE ?`.
        size: width and height in pixels.
        aside: points that the pointer passes before a picture, so that nothing is highlighted.
    """

    def __init__(
        self,
        display: str,
        database: Path,
        messages: str,
        size: tuple[int, int],
        aside: tuple[tuple[int, int], ...],
    ) -> None:
        self._environment = {"PATH": os.environ["PATH"], "DISPLAY": display}
        self._database = database
        self._messages = messages
        self._size = size
        self._aside = aside

    def types(self, text: str, *, send: bool = True) -> None:
        """Type a text, and send it unless told otherwise."""
        self._xdotool("type", "--delay", "25", text)
        if send:
            self.press("Return")
        time.sleep(SETTLED_S)

    def press(self, *keys: str) -> None:
        """Press keys, by their names in X."""
        self._xdotool("key", "--delay", "25", *keys)

    def points(self, point: tuple[int, int]) -> None:
        """Move the pointer."""
        self._xdotool("mousemove", *map(str, point))
        time.sleep(SETTLED_S)

    def clicks(self, *points: tuple[int, int]) -> None:
        """Move to each point, and click on the last one."""
        for point in points:
            self.points(point)
        self._xdotool("click", "1")
        time.sleep(SETTLED_S)

    def shows(self, words: str) -> None:
        """Wait until a message has these words in it."""
        await_(lambda: self._has(words), f"no message with {words!r}")
        time.sleep(SETTLED_S)

    def count(self, query: str) -> int:
        """Return how many rows of the database a query finds."""
        return len(rows(self._database, query))

    def finds(self, query: str, value: str) -> None:
        """Wait until a query of the database has a row."""
        await_(lambda: bool(rows(self._database, query, value)), f"no row with {value!r}")
        time.sleep(SETTLED_S)

    def copies(self, file: Path, as_: str) -> None:
        """Put a file on the clipboard: its URI with `text/uri-list`, else its content."""
        given = f"{file.as_uri()}\r\n".encode() if as_ == "text/uri-list" else file.read_bytes()
        command = ("xclip", "-selection", "clipboard", "-t", as_)
        subprocess.run(command, check=True, env=self._environment, input=given)

    def confirms(self, query: str) -> None:
        """Press Return until a query of the database has more rows than now."""
        before = self.count(query)

        def done() -> bool:
            time.sleep(2 * SETTLED_S)
            self.press("Return")
            time.sleep(SETTLED_S)
            return self.count(query) > before

        await_(done, "it is not confirmed")

    def picture(self, file: Path) -> None:
        """Write its window as a PNG."""
        for point in self._aside:
            self.points(point)
        crop = ("-crop", "{}x{}+0+0".format(*self._size), "+repage", "-strip", "-quality", "95")
        self._run("import", "-window", "root", *crop, str(file))

    def column(self, x: int, height: int) -> list[str]:
        """Return the colours of a column of the window, from its upper end."""
        crop = ("-crop", f"1x{height}+{x}+0", "+repage", "-depth", "8", "txt:-")
        command = ("import", "-window", "root", *crop)
        shown = subprocess.run(
            command, check=True, env=self._environment, capture_output=True, text=True
        )
        return [line.split()[2] for line in shown.stdout.splitlines()[1:]]

    def _has(self, words: str) -> bool:
        return bool(rows(self._database, self._messages, f"%{words}%"))

    def _xdotool(self, *arguments: str) -> None:
        self._run("xdotool", *arguments)

    def _run(self, *command: str) -> None:
        subprocess.run(command, check=True, env=self._environment)


def environment(home: Path, name: str) -> dict[str, str]:
    """The environment of a client with a home directory and a display."""
    return {
        "HOME": str(home),
        "XDG_RUNTIME_DIR": str(home),
        "PATH": os.environ["PATH"],
        **{f"XDG_{kind.upper()}_HOME": f"{home}/{kind}" for kind in ("config", "data", "cache")},
        "DISPLAY": name,
        "GDK_BACKEND": "x11",
        "GSK_RENDERER": "cairo",
        "LANG": "C.UTF-8",
        "GTK_A11Y": "none",
        "NO_AT_BRIDGE": "1",
    }


def await_(condition: Callable[[], bool], failed: str) -> None:
    """Wait until a condition holds. Raises AssertionError if it takes too long."""
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, failed
        time.sleep(0.1)


def rows(database: Path, query: str, *values: object) -> list[tuple[object, ...]]:
    """The rows of a query; none while there is no such database or table."""
    try:
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as read:
            return read.execute(query, values).fetchall()
    except sqlite3.OperationalError:
        return []


@contextmanager
def display(width: int) -> Iterator[str]:
    """An X server without a screen; its name."""
    program = shutil.which("Xvfb")
    assert program is not None
    read, write = os.pipe()
    size = f"{width}x620x24"
    command = [program, "-displayfd", str(write), "-screen", "0", size]
    server = subprocess.Popen(command, pass_fds=[write], stderr=subprocess.DEVNULL)
    os.close(write)
    try:
        with os.fdopen(read) as named:
            yield f":{named.readline().strip()}"
    finally:
        server.kill()
        server.wait()


@contextmanager
def running(command: tuple[str, ...], given: dict[str, str], log: Path) -> Iterator[None]:
    """A program with its children, for the time of the context."""
    with log.open("w") as written:
        process = subprocess.Popen(
            command, env=given, stdout=written, stderr=written, start_new_session=True
        )
        try:
            yield
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            process.wait()
