"""A database that has lost its contents is not taken for a new one."""

from pathlib import Path

import pytest

from component.app.schema import SCHEMA
from component.store import Storage, StorageError
from component.store.directory import home_of

pytestmark = pytest.mark.anyio


async def test_an_empty_database_in_a_directory_that_was_used_is_an_error(tmp_path: Path) -> None:
    async with Storage.open(SCHEMA, tmp_path):
        home_of(tmp_path)
    (tmp_path / "agent.db").write_bytes(b"")
    with pytest.raises(StorageError, match=r"agent\.db is empty.*Put it back from a backup"):
        async with Storage.open(SCHEMA, tmp_path):
            raise AssertionError("it was opened")
    (tmp_path / "agent.db").unlink()
    async with Storage.open(SCHEMA, tmp_path):
        pass


async def test_an_empty_database_in_a_new_directory_is_a_new_one(tmp_path: Path) -> None:
    (tmp_path / "agent.db").write_bytes(b"")
    async with Storage.open(SCHEMA, tmp_path):
        pass
