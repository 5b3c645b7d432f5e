"""An outage of the database of a running service, in the log and in the status."""

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from component.app.schema import SCHEMA
from component.store import Storage, StorageError
from tests.component.cli.conftest import RunCommand
from tests.component.cli.embedded import Embedded
from tests.servers.agent_process import AgentProcess
from tests.servers.postgres import Postgres

pytestmark = pytest.mark.ports


def test_an_outage_of_postgresql_is_one_line_and_one_at_its_end(
    command: RunCommand,
    embedded: Embedded,
    tmp_path: Path,
    make_postgres: Callable[[], Postgres],
) -> None:
    server = make_postgres()
    url = server.new_database()
    with AgentProcess(embedded, tmp_path, storage__postgres=url) as service:
        service.connected()
        read = len(service.errors)
        server.stop()
        # Several features have tried and failed.
        service.wait_log("cannot write the heartbeat of this instance")
        service.wait_log("cannot read changes by other instances")
        loud = [
            line
            for text in service.errors[read:]
            if (line := json.loads(text))["level"] not in ("debug", "info")
        ]
        assert {line["event"] for line in loud} == {"the database cannot be used"}
        assert len(loud) <= 1 + loud[-1]["seconds"] // 60, "a line a minute"
        assert "The PostgreSQL database" in loud[0]["reason"]
        status = json.loads(command("status", "--json", storage__postgres=url).stdout)
        assert status["tasks"] is None
        assert status["warnings"][0].startswith("The database cannot be used since ")
        server.start()
        service.wait_log("the database can be used again")
        status = json.loads(command("status", "--json", storage__postgres=url).stdout)
        assert status["warnings"] == []


@pytest.mark.anyio
async def test_a_full_disk_is_an_outage_while_it_lasts(tmp_path: Path) -> None:
    async with Storage.open(SCHEMA, tmp_path) as storage:
        await storage.write(lambda db: db.execute("CREATE TABLE big (text TEXT)"))
        assert await storage.find_outage() is None

        def limit(pages: int) -> None:
            writer: sqlite3.Connection = storage._engine._writer  # type: ignore[attr-defined]
            writer.execute(f"PRAGMA max_page_count = {pages}")

        limit(1)  # SQLite takes the present size if it is larger
        with capture_logs() as logs, pytest.raises(StorageError, match="disk or the quota is full"):
            await storage.write(
                lambda db: db.execute("INSERT INTO big VALUES (?)", ("x" * 100_000,))
            )
        assert [line["event"] for line in logs] == ["the database cannot be used"]
        limit(1_000_000)
        assert await storage.find_outage() is None
