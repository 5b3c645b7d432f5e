"""Compiled code on disk is used only if the service itself wrote it."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest

from component.sandbox import wasm
from component.sandbox.wasm import WasmCache, WasmRuntime
from component.skills.calling import Threads
from tests.component.sandbox import wat
from tests.component.sandbox.running import context, skill

DIGEST = b"d" * 32


def entries(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.compiled"))


def test_what_was_stored_is_found_by_another_process(tmp_path: Path) -> None:
    """The key lies beside the entries; all belongs to the service alone."""
    directory = tmp_path / "data" / "compiled"
    WasmCache(directory, "1").put(DIGEST, b"code" * 1000)
    assert WasmCache(directory, "1").get(DIGEST) == b"code" * 1000
    assert WasmCache(directory, "1").get(b"e" * 32) is None
    assert WasmCache(directory, "2").get(DIGEST) is None, "compiled by another version"
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert {stat.S_IMODE(each.stat().st_mode) for each in directory.iterdir()} == {0o600}


def _flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


CHANGES: dict[str, Callable[[Path], object]] = {
    "changed": lambda path: _flip(path, 2000),
    "changed at the end": lambda path: _flip(path, -1),
    "another hash": lambda path: _flip(path, 0),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "empty": lambda path: path.write_bytes(b""),
    "extended": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "readable by others": lambda path: path.chmod(0o644),
    "writable by others": lambda path: path.chmod(0o622),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_changed_entry_is_not_used(tmp_path: Path, change: Callable[[Path], object]) -> None:
    """It is removed, so that the code is compiled again."""
    cache = WasmCache(tmp_path / "c", "1")
    cache.put(DIGEST, b"code" * 1000)
    (path,) = entries(tmp_path / "c")
    change(path)
    assert cache.get(DIGEST) is None
    assert not path.exists()
    cache.put(DIGEST, b"again")
    assert cache.get(DIGEST) == b"again"


def test_an_entry_under_another_name_is_not_used(tmp_path: Path) -> None:
    """The compiled code of one skill cannot stand in for that of another one."""
    cache = WasmCache(tmp_path / "c", "1")
    cache.put(DIGEST, b"one")
    (first,) = entries(tmp_path / "c")
    cache.put(b"e" * 32, b"two")
    (second,) = set(entries(tmp_path / "c")) - {first}
    second.write_bytes(first.read_bytes())
    assert cache.get(b"e" * 32) is None


def test_links_and_foreign_directories(tmp_path: Path) -> None:
    """A link is removed and not followed; a directory that others may enter is not used."""
    cache = WasmCache(tmp_path / "c", "1")
    cache.put(DIGEST, b"one")
    (path,) = entries(tmp_path / "c")
    other = tmp_path / "other"
    path.rename(other)
    path.symlink_to(other)
    assert cache.get(DIGEST) is None
    assert other.exists()
    open_ = tmp_path / "open"
    open_.mkdir(mode=0o755)
    open_.chmod(0o755)
    exposed = WasmCache(open_, "1")
    exposed.put(DIGEST, b"one")
    assert exposed.get(DIGEST) is None
    assert not list(open_.iterdir())


def test_the_least_used_entries_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory does not grow without bounds."""
    monkeypatch.setattr(wasm, "MOST_CACHE_BYTES", 3_500)
    cache = WasmCache(tmp_path / "c", "1")
    for number in range(6):
        cache.put(bytes([number]) * 32, bytes(1_000))
        for path in entries(tmp_path / "c"):
            os.utime(path, (path.stat().st_mtime - 10, path.stat().st_mtime - 10))
    assert [cache.get(bytes([number]) * 32) is not None for number in range(6)] == [False] * 3 + [
        True
    ] * 3


@pytest.mark.anyio
async def test_a_skill_is_compiled_again_when_its_entry_was_changed(
    tmp_path: Path,
) -> None:
    """A second process loads compiled code; one whose entry was changed compiles it."""
    compiled: list[bytes] = []

    async def probe(wasm: bytes, *_: object) -> str:
        compiled.append(wasm)
        return ""

    async def run() -> None:
        runtime = WasmRuntime(Threads(2, 2), tmp_path / "c", probe)
        result = await skill(runtime, wat.ECHO).execute({"a": 1}, context())
        assert result.outputs[0].text == '{"a":1}'

    await run()
    await run()
    assert len(compiled) == 1
    (path,) = entries(tmp_path / "c")
    _flip(path, path.stat().st_size // 2)
    await run()
    assert len(compiled) == 2
    await run()
    assert len(compiled) == 2
    # As the service would write it on a machine whose processor can do something else.
    cache = WasmCache(tmp_path / "c", f"wasmtime {version('wasmtime')}")
    cache.put(hashlib.sha256(wat.ECHO).digest(), b"for another processor")
    await run()
    assert len(compiled) == 3
