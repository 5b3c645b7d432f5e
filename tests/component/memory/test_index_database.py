"""The file of the index is rebuilt while it is used, without errors for readers."""

import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from component.memory.file_store import CurrentIndex
from component.memory.index import Index
from component.memory.sharing import Sharing
from component.memory_directory.layout import Layout
from component.store.errors import StorageError


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    found = Index(tmp_path / ".index.db")
    yield found
    found.close()


@pytest.mark.anyio
async def test_a_reader_that_notices_the_removal_late_reads_the_new_index(
    index: Index, tmp_path: Path
) -> None:
    tries = []

    def read_while_others_are_quicker() -> int:
        tries.append(index.database.opened)
        if len(tries) == 1:
            index.database.path.unlink()
            try:
                index.names()
            except StorageError:
                assert index.database.renew()
                raise
        return len(index.names())

    current = CurrentIndex(index, Sharing(Layout(tmp_path)))
    assert await current.read(read_while_others_are_quicker) == 0
    assert len(set(tries)) == 2


@pytest.mark.anyio
async def test_other_errors_are_reported(index: Index, tmp_path: Path) -> None:
    def fail() -> None:
        raise StorageError("The disk is full.")

    opened = index.database.opened
    with pytest.raises(StorageError, match="The disk is full"):
        await CurrentIndex(index, Sharing(Layout(tmp_path))).read(fail)
    assert index.database.opened is opened


def test_a_new_index_is_created_when_no_reader_uses_the_old_one(index: Index) -> None:
    # SQLite would remove the log of the new file with the last connection to the old one.
    opened = index.database.opened
    with ThreadPoolExecutor(1) as threads:
        with index.database.reading() as connection:
            opened.damaged = True
            renewed = threads.submit(index.database.renew)
            while True:
                with opened.used() as is_open:
                    if not is_open:
                        break
            assert index.database.opened is opened
            assert connection.execute("SELECT count(*) FROM items").fetchall() == [(0,)]
        assert renewed.result()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        opened.writer.execute("SELECT 1")
    assert index.names() == []


def test_a_damaged_index_is_rebuilt_once(index: Index) -> None:
    index.database.opened.damaged = True
    with ThreadPoolExecutor(8) as threads:
        renewed = [threads.submit(index.database.renew) for _ in range(8)]
    assert sorted(one.result() for one in renewed) == [False] * 7 + [True]
