"""Services that share a real PostgreSQL database under a simulated clock."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from component import system
from tests.kit import anyio_backend, service
from tests.kit.database import Database, shared_database
from tests.kit.service import Kit, make_settings_of
from tests.kit.system import SimulatedSystem
from tests.kit.test_kit import JULIET, STEPS, event
from tests.servers.talk import execute
from xep.fluux_agent.execute import Accepted

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio


@asynccontextmanager
async def pair(directory: Path, url: str) -> AsyncIterator[tuple[Kit, Kit, Database]]:
    """Run two instances; the first is connected, and the other one waits."""
    (directory / "other").mkdir()
    (directory / "gate.py").write_text(STEPS)
    sections: dict[str, Any] = {
        "skills": {"modules": [str(directory / "gate.py")]},
        "storage": {"postgres": url},
    }
    with shared_database(url, lambda: cast("SimulatedSystem", system.current())) as database:
        async with service(directory / "one", sections) as one:
            settings = make_settings_of(directory / "other", sections, None)
            other = Kit(settings, one._group, one.xmpp, one.system, None, ())
            one._group.start_soon(other.run)
            await one.advance(1)
            yield one, other, database
            await other.stop()


async def test_an_instance_takes_over_from_one_that_is_killed(
    tmp_path: Path, migrated_url: str
) -> None:
    async with pair(tmp_path, migrated_url) as (one, _other, _database):
        juliet = one.peer(JULIET)
        accepted = (await juliet.iq("set", execute("gate.open"))).require(Accepted)
        await event(juliet)
        await one.kill()
        ended = await event(juliet, within_s=90)
        assert (ended.id, ended.state) == (accepted.task, "completed")


async def test_work_continues_when_the_database_is_back(tmp_path: Path, migrated_url: str) -> None:
    async with pair(tmp_path, migrated_url) as (one, _other, database):
        juliet = one.peer(JULIET)
        accepted = (await juliet.iq("set", execute("gate.open"))).require(Accepted)
        await event(juliet)
        database.stop()
        await one.advance(3)
        database.start()
        ended = await event(juliet, within_s=90)
        assert (ended.id, ended.state) == (accepted.task, "completed")


async def test_a_killed_process_ends_though_it_writes_until_the_database_is_back(
    tmp_path: Path, migrated_url: str
) -> None:
    async with pair(tmp_path, migrated_url) as (one, _other, database):
        juliet = one.peer(JULIET)
        await juliet.iq("set", execute("gate.open"))
        await event(juliet)
        database.stop()
        await one.advance(30)  # the step ends, and cannot be recorded
        with anyio.fail_after(60):
            await one.kill()
        database.start()
        assert (await event(juliet, within_s=90)).state == "completed"


async def test_a_commit_whose_answer_is_lost_counts_once(tmp_path: Path, migrated_url: str) -> None:
    async with pair(tmp_path, migrated_url) as (one, _other, database):
        juliet = one.peer(JULIET)
        database.lose_commit()
        answer = await juliet.iq("set", execute("gate.open"))
        task = answer.require(Accepted).task
        assert not database._lost_commit
        ended = await event(juliet, within_s=90)
        while ended.state != "completed":
            ended = await event(juliet, within_s=90)
        assert ended.id == task
