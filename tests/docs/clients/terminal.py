"""A terminal in tmux: types lines, waits for what is shown, and takes pictures of the screen."""

import io
import re
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

LIMIT_S = 30.0
COLUMNS, LINES = 100, 16
_HTML = """<!doctype html><meta charset="utf-8"><style>
{stylesheet} body {{ margin: 0; padding: 8px; background: {background}; color: {foreground} }}
pre {{ margin: 0; font: 15px/19px "DejaVu Sans Mono", monospace }}
</style><pre>{code}</pre>"""


class Terminal:
    """A program in a terminal of its own, for the time of the context."""

    def __init__(self, command: str, directory: Path, environment: Mapping[str, str]) -> None:
        self._socket = str(directory / "tmux")
        size = ("-x", str(COLUMNS), "-y", str(LINES))
        variables = [
            part for name, value in environment.items() for part in ("-e", f"{name}={value}")
        ]
        self._start = ("new-session", "-d", *size, *variables, "-c", str(directory), command)

    def __enter__(self) -> Self:
        self._tmux("-f", "/dev/null", *self._start)
        self._tmux("set", "status", "off")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._tmux("kill-server")

    def types(self, line: str, until: str = "") -> None:
        """Type a line; if asked to, wait until the screen shows a match of `until`."""
        self._tmux("send-keys", "-l", line)
        self._tmux("send-keys", "Enter")
        if until:
            self.shows(until)

    def completes(self, begin: str, whole: str) -> None:
        """Type the beginning of a text, and have it completed with Tab."""
        self._tmux("send-keys", "-l", begin)
        self._tmux("send-keys", "Tab")
        self.shows(re.escape(whole))

    def shows(self, pattern: str) -> None:
        """Wait until the screen shows a match. Raises AssertionError if it takes too long."""
        deadline = time.monotonic() + LIMIT_S
        while not re.search(pattern, screen := self._tmux("capture-pane", "-p")):
            assert time.monotonic() < deadline, f"no {pattern!r} in:\n{screen}"
            time.sleep(0.1)

    def picture(self, file: Path) -> None:
        """Write the screen as a PNG, by Chromium."""
        console = Console(record=True, width=COLUMNS, file=io.StringIO())
        shown = self._tmux("capture-pane", "-e", "-p")
        console.print(Text.from_ansi(shown), end="")
        page = file.with_suffix(".html")
        page.write_text(console.export_html(theme=DIMMED_MONOKAI, code_format=_HTML))
        take_page(page, file, (COLUMNS * 9 + 12, LINES * 19 + 16))
        page.unlink()

    def _tmux(self, *arguments: str) -> str:
        command = ["tmux", "-S", self._socket, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def take_page(page: Path, file: Path, size: tuple[int, int]) -> None:
    """Write a picture of a page."""
    program = shutil.which("chromium")
    assert program is not None
    width, height = size
    command = [
        *(program, "--headless", "--no-sandbox", "--hide-scrollbars", "--disable-gpu"),
        *("--force-device-scale-factor=2", f"--window-size={width},{height}"),
        *(f"--screenshot={file}", page.as_uri()),
    ]
    subprocess.run(command, check=True, capture_output=True)
