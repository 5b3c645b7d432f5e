"""The name of a data directory."""

from pathlib import Path

import pytest

from component.store import StorageError, directory
from component.store.directory import home_of
from tests.kit.power import after_power_failures


def test_a_directory_keeps_its_name(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first = home_of(tmp_path / "a")
    assert len(first) == 32
    assert home_of(tmp_path / "a") == first
    assert home_of(tmp_path / "b") != first


def test_a_new_name_is_on_disk_before_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(directory, "sync_directory", synced.append)
    home_of(tmp_path)
    assert synced == [tmp_path]


@pytest.mark.parametrize("content", [b"", b"\n", b"0123\n", b"\xff" * 32, b"x" * 32])
def test_a_damaged_file_is_an_error_that_says_what_to_do(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "home").write_bytes(content)
    with pytest.raises(StorageError, match=r"home is damaged.*Put it back from a backup"):
        home_of(tmp_path)
    assert (tmp_path / "home").read_bytes() == content


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        home_of(tmp_path / "nowhere")


def test_a_new_name_survives_a_power_failure(tmp_path: Path) -> None:
    names: list[str] = []
    found = after_power_failures(tmp_path, lambda data: names.append(home_of(data)))
    assert [left["home"].decode().strip() for left in found] == names
