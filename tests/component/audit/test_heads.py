"""How far a record has come is known in either database, also by who looks in from beside."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from component.app.schema import SCHEMA
from component.audit.heads import Head, heads_in, own_head, put_head
from component.audit.lines import ChainLink
from component.audit.protocol import AuditEvent
from component.audit.record import Audit
from component.config.service import Audit as AuditSettings
from component.store import Storage, StorageError
from component.store.storage import peek
from tests.waiting import eventually

pytestmark = pytest.mark.anyio

Open = Callable[..., AbstractAsyncContextManager[Storage]]


@pytest.mark.ports
async def test_it_never_goes_back(storage: Storage) -> None:
    for seq in (3, 7, 5):
        head = Head("a" * 16, "here", ChainLink(seq, f"{seq}" * 64))
        await storage.write(lambda database, head=head: put_head(database, head))  # type: ignore[misc]
    _, heads = await storage.read(heads_in)
    assert [head.link for head in heads] == [ChainLink(7, "7" * 64)]


@pytest.mark.ports
async def test_two_instances_of_one_database_know_their_own(open_storage: Open) -> None:
    event = AuditEvent(kind="execute", outcome="done")
    async with open_storage("one") as one, Audit.open(one, AuditSettings()) as first:
        first.record(event)
        async with open_storage("two") as two, Audit.open(two, AuditSettings()) as second:
            second.record(event)
            second.record(event)
    async with open_storage("one") as one, Audit.open(one, AuditSettings()) as first:
        (known,) = await first.known()
        assert known.seq == 3  # opened, one, closed
    async with open_storage("two") as two, Audit.open(two, AuditSettings()) as second:
        (known,) = await second.known()
        assert known.seq == 4


async def test_a_record_that_lost_its_name_is_known_by_its_place(tmp_path: Path) -> None:
    async with Storage.open(SCHEMA, tmp_path) as storage, Audit.open(storage, AuditSettings()):
        pass
    (tmp_path / "audit" / "chain").unlink()
    async with Storage.open(SCHEMA, tmp_path) as storage:
        heads = await storage.read(heads_in)
        assert own_head(heads, None, tmp_path / "audit") == heads[1][0]
        async with Audit.open(storage, AuditSettings()) as audit:
            assert await audit.known() == (heads[1][0].link,)


@pytest.mark.ports
async def test_a_look_from_beside_sees_what_is_committed(
    open_storage: Open, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    async with open_storage() as storage:
        head = Head("a" * 16, "here", ChainLink(3, "3" * 64))
        await storage.write(lambda database: put_head(database, head))
        shared, _ = await storage.read(heads_in)
        postgres = request.getfixturevalue("migrated_url") if shared else ""
        found = await to_thread.run_sync(peek, tmp_path / "data", postgres, heads_in)
        assert found == (shared, [head])


async def test_where_there_is_nothing_to_look_into_nothing_is_made(tmp_path: Path) -> None:
    assert peek(tmp_path, "", heads_in) is None
    assert not (tmp_path / "agent.db").exists()
    (tmp_path / "agent.db").touch()
    assert peek(tmp_path, "", heads_in) is None  # of before the first step


def test_a_server_that_is_away_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="127"):
        peek(tmp_path, "postgresql://nobody@127.0.0.1:1/none?connect_timeout=2", heads_in)


@pytest.mark.ports
async def test_the_database_knows_of_a_record_from_its_first_lines_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("component.audit.record._ANCHOR_S", 3600.0)
    async with (
        Storage.open(SCHEMA, tmp_path / "data") as storage,
        Audit.open(storage, AuditSettings()) as audit,
        anyio.create_task_group() as group,
    ):
        await group.start(audit.run)

        async def is_kept() -> bool:
            return bool((await storage.read(heads_in))[1])

        await eventually(is_kept)
        group.cancel_scope.cancel()
