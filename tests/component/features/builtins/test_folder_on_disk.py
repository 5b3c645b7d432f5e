"""What a folder of files has done is on the disk, and no descriptor is left open."""

import contextlib
import os
import stat
import threading
from pathlib import Path

import pytest

from component.features.builtins.folder import Folder, FolderError, FolderLimits


def a_folder(root: Path) -> Folder:
    return Folder(root, FolderLimits(10_000, 100, 1_000), threading.Lock())


def test_a_file_and_its_directory_are_synced_and_so_is_a_deletion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []

    def fsync(descriptor: int) -> None:
        is_directory = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        synced.append("directory" if is_directory else "file")

    monkeypatch.setattr(os, "fsync", fsync)
    folder = a_folder(tmp_path / "files")
    folder.write("a/b.txt", b"text", append=False)
    assert synced == ["file", "directory"]
    folder.delete("a/b.txt")
    assert synced == ["file", "directory", "directory"]


def test_nobody_else_on_the_machine_reads_or_enters_it(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        a_folder(tmp_path / "files").write("a/b.txt", b"text", append=False)
    finally:
        os.umask(before)
    for path, mode in (("files", 0o700), ("files/a", 0o700), ("files/a/b.txt", 0o600)):
        assert stat.S_IMODE((tmp_path / path).stat().st_mode) == mode


def test_a_file_below_five_directories_is_listed_and_there_is_none_deeper(tmp_path: Path) -> None:
    folder = a_folder(tmp_path / "files")
    folder.write("a/b/c/d/e/f.txt", b"text", append=False)
    assert [entry.path for entry in folder.entries()] == ["a/b/c/d/e/f.txt"]
    with pytest.raises(FolderError, match="at most 5 directories"):
        folder.write("a/b/c/d/e/f/g.txt", b"text", append=False)


def opened_below(directory: Path) -> list[Path]:
    """The files and directories there that this process has open; other threads open others."""
    found = []
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # it is closed by now
            found.append(each.readlink())
    return [each for each in found if each.is_relative_to(directory)]


def test_no_descriptor_stays_open(tmp_path: Path) -> None:
    folder = a_folder(tmp_path / "files")
    folder.write("a/b/c.txt", b"text", append=False)
    for number in range(20):
        folder.write(f"a/b/{number}.txt", b"text", append=False)
        assert folder.read(f"a/b/{number}.txt") == b"text"
        assert len(folder.entries()) == number + 2
    assert opened_below(tmp_path) == []
