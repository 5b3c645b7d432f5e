"""What a disk loses when the power fails: what was written, and not synced.

A sync of a file makes its content durable, and not its name: that takes a sync of its directory.
What is older than the kernel keeps it in memory is durable, too.
"""

import itertools
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Final, Literal

import msgspec

from component.private import make_directory

WRITTEN_BACK_S: Final = 35.0
"""Seconds after which the kernel has written everything: Linux does so after 30, in steps of 5."""
_KEPT: Final = 0.75
"""How probable it is that a change of a directory is on the disk without a sync."""
_BLOCK: Final = 512

_Key = tuple[int, int]
"""Identifies a file, whatever its name is: its device and inode."""


class _Content(msgspec.Struct):
    """What is durable of a file.

    Attributes:
        synced: the size of its beginning that is durable, unless it is overwritten.
        before: its durable content, if that may be overwritten.
        written: when it was written, and its size then; empty if all is durable.
    """

    synced: int
    before: bytes | None = None
    written: list[tuple[float, int]] = msgspec.field(default_factory=list)


class _Change(msgspec.Struct, frozen=True):
    """A change of directories that is not durable.

    Attributes:
        kept: a link to the file that `path` was before, or `to`.
    """

    at: float
    kind: Literal["make", "remove", "rename", "rmdir"]
    path: str
    to: str = ""
    kept: str = ""

    def directories(self) -> set[str]:
        """Return the directories that it changes."""
        return {os.path.dirname(path) for path in (self.path, self.to) if path}  # noqa: PTH120


class Unsynced:
    """Knows what is durable of the files below a directory.

    Args:
        keep: a directory for removed files, on the same file system.
        now: returns the simulated seconds.
    """

    def __init__(self, keep: Path, now: Callable[[], float]) -> None:
        self._keep, self._now = keep, now
        self._contents: dict[_Key, _Content] = {}
        self._changes: list[_Change] = []
        self._numbers = itertools.count()

    # What happens to contents.

    def opens(self, path: str, flags: int) -> None:
        """Note that a file is about to be opened for writing."""
        try:
            found = Path(path).stat()
        except FileNotFoundError:
            self._note(_Change(self._now(), "make", path))
            return
        if not stat.S_ISREG(found.st_mode):
            return
        content = self._contents.setdefault(_key(found), _Content(found.st_size))
        if not flags & os.O_APPEND and content.before is None:
            content.before = Path(path).read_bytes()[: content.synced]
            if flags & os.O_TRUNC:
                content.written.append((self._now(), 0))

    def opened(self, descriptor: int) -> None:
        """Note that a file was opened; it is a new one if it is not known."""
        self._contents.setdefault(_key(os.fstat(descriptor)), _Content(0))

    def knows(self, descriptor: int) -> bool:
        """Return whether this is a file that was opened for writing."""
        return _key(os.fstat(descriptor)) in self._contents

    def wrote(self, descriptor: int) -> None:
        """Note that a file was written."""
        found = os.fstat(descriptor)
        self._contents[_key(found)].written.append((self._now(), found.st_size))

    def synced(self, descriptor: int) -> None:
        """Note that a file, or a directory, was synced."""
        found = os.fstat(descriptor)
        if stat.S_ISDIR(found.st_mode):
            self.synced_directory(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        elif (content := self._contents.get(_key(found))) is not None:
            content.synced, content.before = found.st_size, None
            content.written.clear()

    def forget(self, path: str) -> None:
        """Take a file for durable: SQLite syncs its own, and so do people."""
        try:
            self._contents.pop(_key(Path(path).stat()), None)
        except FileNotFoundError:
            return

    # What happens to directories.

    def made(self, path: str) -> None:
        """Note that a directory was made."""
        self._note(_Change(self._now(), "make", path))

    def removes(self, path: str) -> None:
        """Note that a file is about to be removed."""
        if kept := self._link(path):
            self._note(_Change(self._now(), "remove", path, kept=kept))

    def removed_directory(self, path: str) -> None:
        """Note that a directory was removed."""
        self._note(_Change(self._now(), "rmdir", path))

    def renames(self, path: str, to: str) -> None:
        """Note that a file or a directory is about to be renamed."""
        if os.path.lexists(path):
            self._note(_Change(self._now(), "rename", path, to, self._link(to)))

    def synced_directory(self, path: str) -> None:
        """Note that a directory was synced: its changes are durable, and all that led to them."""
        directories, left = {path}, []
        for change in reversed(self._changes):
            if directories.isdisjoint(change.directories()):
                left.append(change)
            else:
                directories |= change.directories()
                self._settle(change)
        self._changes = left[::-1]

    def _note(self, change: _Change) -> None:
        self._write_back()
        self._changes.append(change)

    def _write_back(self) -> None:
        old = self._now() - WRITTEN_BACK_S
        while self._changes and self._changes[0].at < old:
            self._settle(self._changes.pop(0))

    def _link(self, path: str) -> str:
        """Keep a file that gets another name, or none; return the name under which it is kept."""
        if not os.path.isfile(path) or os.path.islink(path):  # noqa: PTH113, PTH114
            return ""
        self._keep.mkdir(exist_ok=True)
        kept = self._keep / str(next(self._numbers))
        os.link(path, kept)
        return str(kept)

    def _settle(self, change: _Change) -> None:
        if change.kept:
            found = Path(change.kept).stat()
            if found.st_nlink == 1:
                self._contents.pop(_key(found), None)
            os.unlink(change.kept)  # noqa: PTH108

    # What is left.

    def moved(self, path: Path, copy: Path) -> None:
        """Note that a copy takes the place of a directory: what is durable of it is the same."""
        for original, copied in _pairs(path, copy):
            content = self._contents.pop(_key(original.stat()), None)
            if content is not None:
                self._contents[_key(copied.stat())] = content

    def lose(self, path: Path, copy: Path, chance: Random) -> list[str]:
        """Make a copy of a directory what is left of the directory after the power has failed.

        Everything that is left is durable then. Returns what was lost, for people.
        """
        self._write_back()
        said = []
        for original, copied in _pairs(path, copy):
            content = self._contents.pop(_key(original.stat()), None)
            if content is not None:
                said += self._tear(content, copied, chance)
        mine = [one for one in self._changes if Path(one.path).is_relative_to(path)]
        self._changes = [one for one in self._changes if one not in mine]
        lost = _lost(mine, chance)
        for change in reversed(lost):
            said.append(f"{change.kind} {Path(change.to or change.path).relative_to(path)}")
            self._undo(change, path, copy, chance)
        for change in mine:
            self._settle(change)
        return said

    def _tear(self, content: _Content, file: Path, chance: Random) -> list[str]:
        """Leave of a file what was synced, what was written, or something between them."""
        old = self._now() - WRITTEN_BACK_S
        while content.written and content.written[0][0] < old:
            content.synced, content.before = content.written.pop(0)[1], None
        written = file.read_bytes()
        synced = written[: content.synced] if content.before is None else content.before
        if not content.written or written == synced:
            return []
        left = chance.choice((synced, written, _torn(synced, written, chance)))
        file.write_bytes(left)
        return [] if left == written else [f"{file.name}, {len(written) - len(left)} bytes"]

    def _undo(self, change: _Change, path: Path, copy: Path, chance: Random) -> None:
        def place(name: str) -> Path:
            return copy / Path(name).relative_to(path)

        here = place(change.path)
        match change.kind:
            case "make" if here.is_dir():
                shutil.rmtree(here)
            case "make":
                here.unlink(missing_ok=True)
            case "rmdir":
                make_directory(here)
            case "rename" if place(change.to).exists():
                make_directory(here.parent)
                place(change.to).replace(here)
        if change.kept:
            back = place(change.to or change.path)
            make_directory(back.parent)
            shutil.copyfile(change.kept, back)
            content = self._contents.get(_key(Path(change.kept).stat()))
            if content is not None:
                self._tear(content, back, chance)


def _key(found: os.stat_result) -> _Key:
    return found.st_dev, found.st_ino


def _pairs(path: Path, copy: Path) -> Iterator[tuple[Path, Path]]:
    """Yield the files of a directory, each with the same one of its copy, in order of names."""
    for where, folders, names in os.walk(path):
        folders.sort()
        for name in sorted(names):
            original = Path(where, name)
            copied = copy / original.relative_to(path)
            if copied.is_file() and not copied.is_symlink():
                yield original, copied


def _lost(changes: list[_Change], chance: Random) -> list[_Change]:
    """Return the changes that are not on the disk: in each directory all from some change on."""
    lost, ended = [], set[str]()
    for change in changes:
        if not ended.isdisjoint(change.directories()) or chance.random() > _KEPT:
            ended |= change.directories()
            lost.append(change)
    return lost


def _torn(synced: bytes, written: bytes, chance: Random) -> bytes:
    begun = len(synced) if written.startswith(synced) else 0
    cut = chance.randint(begun, len(written))
    end = b""
    if chance.random() < 0.5:  # the size was written, and the last block was not
        length = min(_BLOCK, len(written) - cut)
        end = chance.choice((bytes(length), chance.randbytes(length)))
    return written[:cut] + end
