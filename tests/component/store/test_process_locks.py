"""Locks of processes, on PostgreSQL."""

import psycopg
import pytest

from component.store import StorageError
from component.store.process_locks import ProcessLocks
from component.store.server import PostgresServer
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.ports]


def locks(url: str, name: str = "test") -> ProcessLocks:
    return ProcessLocks(PostgresServer.of(f"{url}?connect_timeout=60"), name)  # if it is busy


async def test_a_lock_has_one_owner_until_it_is_released(postgres_url: str) -> None:
    one, other = locks(postgres_url), locks(postgres_url)
    try:
        assert await one.take(3)
        assert await one.take(3), "it holds it already"
        assert not await other.take(3)
        assert await other.take(2**31 - 1)
        assert (one.held, other.held) == ({3}, {2**31 - 1})
        owners = await one.owners()
        assert owners == await other.owners()
        assert owners.keys() == {3, 2**31 - 1}
        assert owners[3] != owners[2**31 - 1]
        await other.release(3)  # which it does not hold
        await one.release(3)
        assert await other.take(3)
    finally:
        one.close()
        other.close()


async def test_the_locks_of_a_process_that_ends_are_released(postgres_url: str) -> None:
    one, other = locks(postgres_url), locks(postgres_url)
    try:
        assert await one.take(1)
        one.close()
        assert one.held == set()

        async def taken() -> bool:
            return await other.take(1)

        await eventually(taken)
    finally:
        other.close()


async def test_locks_of_another_name_are_others(postgres_url: str) -> None:
    one, other = locks(postgres_url), locks(postgres_url, "another")
    try:
        assert await one.take(1)
        assert await other.take(1)
        assert (await one.owners()).keys() == (await other.owners()).keys() == {1}
    finally:
        one.close()
        other.close()


async def test_locks_are_lost_with_the_connection_and_can_be_taken_again(postgres_url: str) -> None:
    one = locks(postgres_url)
    try:
        assert await one.take(1)
        (process,) = (await one.owners()).values()
        with psycopg.connect(postgres_url) as connection:
            connection.execute("SELECT pg_terminate_backend(%s, 60000)", (process,))
        with pytest.raises(StorageError):
            await one.owners()
        assert one.held == set()
        assert await one.take(1)
    finally:
        one.close()
