"""Texts that people edit, and results made of them, kept in memory until a file has changed."""

import os
import stat
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

import structlog

from component import system
from component.memory_directory import files
from component.memory_directory.files import MemoryStoreError

T = TypeVar("T")

log = structlog.get_logger("component.memory")

MAX_TEXT = 1 << 18  # bytes of one file

_RESULTS = 512  # results in memory
_KEPT = 1 << 23  # characters of texts in memory

_State: TypeAlias = tuple[int, ...] | None
"""The state of a file or directory, which differs after each change; None if it does not exist."""


class _Observed(NamedTuple):
    path: str
    follow: bool
    state: _State


class TextReader:
    """Reads files, and records their states. Waits for the disk."""

    def __init__(self, texts: "Texts") -> None:
        self._texts = texts
        self.observed: list[_Observed] = []

    def has_folder(self, folder: Path) -> bool:
        """Whether this directory exists below the root. Raises MemoryStoreError for a symbolic
        link.
        """
        for step in files.steps(self._texts.root, folder):
            self.observed.append(_Observed(str(step), False, _state(str(step), follow=False)))
        return files.check_folder(self._texts.root, folder)

    def text(self, path: Path, *, linked: bool = False) -> str | None:
        """Return the text of a file, or None if it does not exist.

        With `linked` a symbolic link is followed if it ends within the root. Raises
        MemoryStoreError for any other link, and if the file cannot be read or is too long.
        """
        state = _state(str(path), follow=linked)
        self.observed.append(_Observed(str(path), linked, state))
        return None if state is None else self._texts.text(path, state, linked=linked)


class Texts:
    """The texts below one root. A file that cannot be read is a MemoryStoreError and is not
    ignored: an agent does not work without rules that were written for it.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._results: OrderedDict[Hashable, tuple[list[_Observed], Any]] = OrderedDict()
        self._texts: dict[str, tuple[_State, str]] = {}
        self._size = 0
        self._lock = threading.Lock()

    async def cached(self, name: Hashable, build: Callable[[TextReader], T]) -> T:
        """Return what `build` makes of the files that it reads, in a worker thread.

        The result is kept under `name`. While the files are unchanged, it is returned after a call
        of `stat` for each. Raises MemoryStoreError.
        """
        known = self._results.get(name)
        if known is not None and _are_unchanged(known[0]):
            self._results.move_to_end(name)
            return cast("T", known[1])
        reader = TextReader(self)
        result = await system.in_thread(build, reader)
        self._results[name] = reader.observed, result
        if len(self._results) > _RESULTS:
            self._results.popitem(last=False)
        return result

    def text(self, path: Path, state: tuple[int, ...], *, linked: bool) -> str | None:
        """Return the text of a file that is in this state, for `TextReader`."""
        known = self._texts.get(str(path))
        if known is not None and known[0] == state:
            return known[1]
        found = files.read(self._within(path) if linked else path, MAX_TEXT)
        if found is None:
            return None
        data, seen = found
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            text = data.decode("utf-8-sig", "replace")
            log.warning(
                "a file is not UTF-8, and what cannot be read is shown as U+FFFD",
                file=str(path),
                line=data.count(b"\n", 0, error.start) + 1,
            )
        if (seen.inode, seen.mtime, seen.ctime, seen.size) == (state[0], *state[2:]):
            self._keep(str(path), state, text)
        return text

    def _within(self, path: Path) -> Path:
        with files.explained(path, "read"):
            target, root = path.resolve(), self.root.resolve()
        if not target.is_relative_to(root):
            raise MemoryStoreError(
                f"{path} leads to {target}, outside of {root}, and is not followed. Put the"
                " file itself there."
            )
        return target

    def _keep(self, path: str, state: _State, text: str) -> None:
        with self._lock:
            before = self._texts.pop(path, None)
            self._size += len(text) - (len(before[1]) if before else 0)
            self._texts[path] = state, text
            while self._size > _KEPT:
                _, oldest = self._texts.pop(next(iter(self._texts)))
                self._size -= len(oldest)


def _are_unchanged(observed: list[_Observed]) -> bool:
    # This runs for every turn, so it creates no objects without need.
    for path, follow, state in observed:
        try:
            found = os.stat(path, follow_symlinks=follow)  # noqa: PTH116
        except (FileNotFoundError, NotADirectoryError):
            if state is None:
                continue
            return False
        except OSError:
            return False  # the next reader reports the error
        if state is None or (found.st_ino, found.st_mode) != state[:2]:
            return False
        if state[2:] and (found.st_mtime_ns, found.st_ctime_ns, found.st_size) != state[2:]:
            return False
    return True


def _state(path: str, *, follow: bool) -> _State:
    try:
        found = os.stat(path, follow_symlinks=follow)  # noqa: PTH116 - half the time of a Path's
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise files.disk_error(Path(path), "looked at", error) from error
    if stat.S_ISDIR(found.st_mode):
        return found.st_ino, found.st_mode  # its times change with every file in it
    times = found.st_mtime_ns, found.st_ctime_ns
    return found.st_ino, found.st_mode, *times, found.st_size
