"""The name of a data directory."""

from pathlib import Path

import pytest

from component.storage import StorageError
from component.storage.home import home_of


def test_a_directory_keeps_its_name(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first = home_of(tmp_path / "a")
    assert len(first) == 32
    assert home_of(tmp_path / "a") == first
    assert home_of(tmp_path / "b") != first


def test_a_name_that_was_cut_off_is_given_anew(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("\n")
    name = home_of(tmp_path)
    assert name
    assert home_of(tmp_path) == name


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        home_of(tmp_path / "nowhere")
