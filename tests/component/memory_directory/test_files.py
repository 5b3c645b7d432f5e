"""Files are written as a whole or not at all, also after a crash."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from component.memory_directory import files
from component.memory_directory.files import MemoryStoreError

STEPS = ("open", "write", "fsync", "replace", "close")


class KilledError(BaseException):
    """Represents the end of the process."""


def fails(error: BaseException) -> Callable[..., Any]:
    """A system call that raises."""

    def failing(*_args: Any, **_more: Any) -> Any:
        raise error

    return failing


@pytest.mark.parametrize("step", STEPS)
def test_a_kill_at_any_step_of_a_replacement_leaves_the_old_or_the_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = tmp_path / "user.md"
    files.replace(path, b"old")
    with monkeypatch.context() as patch:
        patch.setattr(os, step, fails(KilledError()))
        with pytest.raises(KilledError):
            files.replace(path, b"new content")
    assert path.read_bytes() == b"old"
    files.replace(path, b"newer")
    assert path.read_bytes() == b"newer"
    assert [each.name for each in tmp_path.iterdir()] == ["user.md"]


@pytest.mark.parametrize("step", ["open", "write", "fsync", "replace"])
@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (errno.ENOSPC, "the disk or the quota is full"),
        (errno.EACCES, "Correct the owner and permissions"),
        (errno.EROFS, "Correct the owner and permissions"),
        (errno.EIO, "Check the disk"),
    ],
)
def test_an_error_of_the_disk_is_explained_and_keeps_the_old_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, code: int, sentence: str
) -> None:
    path = tmp_path / "user.md"
    files.replace(path, b"old")
    with monkeypatch.context() as patch:
        patch.setattr(os, step, fails(OSError(code, os.strerror(code))))
        with pytest.raises(MemoryStoreError, match=f"user.md cannot be written.*{sentence}"):
            files.replace(path, b"new")
    assert path.read_bytes() == b"old"
    assert [each.name for each in tmp_path.iterdir()] == ["user.md"]


@pytest.mark.parametrize("step", ["write", "fdatasync"])
def test_a_failed_append_leaves_the_file_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = tmp_path / "history.jsonl"
    files.append(path, b"one\n")
    wrote, taken = os.write, []

    def half(descriptor: int, data: Any) -> int:
        if taken:
            raise OSError(errno.ENOSPC, "full")
        taken.append(wrote(descriptor, bytes(data)[:3]))
        return taken[0]

    broken = half if step == "write" else fails(OSError(errno.EIO, "broken"))
    with monkeypatch.context() as patch:
        patch.setattr(os, step, broken)
        with pytest.raises(MemoryStoreError, match="cannot be written"):
            files.append(path, b"two\nthree\n", sync=True)
    assert path.read_bytes() == b"one\n"


def test_partial_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrote = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda fd, data: wrote(fd, bytes(data)[:3]))
        files.append(tmp_path / "a", b"content\n")
    assert (tmp_path / "a").read_bytes() == b"content\n"


LINES = st.lists(st.binary(max_size=5).map(lambda raw: raw.replace(b"\n", b" ")), max_size=4)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(LINES, LINES.filter(bool), st.integers(0, 30))
def test_an_append_after_a_crash_starts_on_its_own_line(
    tmp_path: Path, before: list[bytes], added: list[bytes], cut: int
) -> None:
    path = tmp_path / "history.jsonl"
    path.unlink(missing_ok=True)
    whole = b"".join(line + b"\n" for line in (b"header", *before))
    path.write_bytes(whole[:cut])
    new = b"".join(line + b"\n" for line in added)
    _, seen = files.append(path, new, first=lambda: b"header\n")
    data = path.read_bytes()
    left = whole[:cut]
    assert data.startswith(left or b"header\n")
    assert data.endswith(b"\n" + new)
    assert len(data) - len(left or b"header\n") - len(new) == (bool(left) and left[-1:] != b"\n")
    assert seen == files.state_of(path)


def test_a_header_is_written_only_before_the_first_lines(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    for _ in range(2):
        files.append(path, b"line\n", first=lambda: b"header\n")
    assert path.read_bytes() == b"header\nline\nline\n"


def test_only_their_owner_can_read_files_and_directories(tmp_path: Path) -> None:
    root = files.open_root(tmp_path / "memory")
    files.make_folder(root, root / "alice@example.com" / "sessions")
    files.append(root / "alice@example.com" / "history.jsonl", b"x\n")
    files.replace(root / "alice@example.com" / "user.md", b"x")
    for path in (root, *root.rglob("*")):
        assert path.stat().st_mode & 0o077 == 0, path


@pytest.mark.parametrize("kind", ["link", "directory", "pipe"])
def test_anything_but_a_regular_file_is_refused_immediately(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "history.jsonl"
    if kind == "link":
        (tmp_path / "secret").write_text("secret")
        path.symlink_to(tmp_path / "secret")
    elif kind == "directory":
        path.mkdir()
    else:
        os.mkfifo(path)
    with pytest.raises(MemoryStoreError, match=r"history\.jsonl"):
        files.read(path, 100)
    with pytest.raises(MemoryStoreError, match=r"history\.jsonl"):
        files.append(path, b"line\n")
    if kind == "link":
        assert (tmp_path / "secret").read_text() == "secret"


def test_a_replacement_replaces_a_link_and_not_its_target(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "user.md").symlink_to(tmp_path / "secret")
    files.replace(tmp_path / "user.md", b"mine")
    assert (tmp_path / "secret").read_text() == "secret"
    assert not (tmp_path / "user.md").is_symlink()


def test_a_read_is_limited_and_returns_none_for_a_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    assert files.read(path, 3) is None
    path.write_bytes(b"abc")
    assert files.read(path, 3) == (b"abc", files.state_of(path))
    with pytest.raises(MemoryStoreError, match=r"has 3 bytes, and at most 2 are read"):
        files.read(path, 2)


def test_a_removal_returns_whether_the_file_existed(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    assert files.remove(tmp_path / "a") is True
    assert files.remove(tmp_path / "a") is False


def test_only_directories_below_the_root_can_be_created(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not below"):
        files.make_folder(tmp_path / "memory", tmp_path / "other")
