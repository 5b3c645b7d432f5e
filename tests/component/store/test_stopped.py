"""Who wants to hear nothing more: kept on disk, known without waiting."""

from pathlib import Path

import anyio
import pytest

from component.app.schema import SCHEMA
from component.store import Storage
from component.store.contacts import StoppedContacts
from xep.jid import JID

pytestmark = pytest.mark.anyio

DOMAIN, AGENT = JID.parse("agent.example"), JID.parse("assistant@agent.example")
ALICE, BOB = JID.parse("alice@a.example/phone"), JID.parse("bob@b.example")


def one_agent(address: JID) -> JID:
    return DOMAIN if address == AGENT else address


async def test_it_holds_for_the_contact_and_the_agent_until_it_is_taken_back(
    tmp_path: Path,
) -> None:
    async with Storage.open(SCHEMA, tmp_path) as storage:
        stopped = StoppedContacts(storage)
        await stopped.load()
        assert stopped.may_write(AGENT, ALICE)
        await stopped.stop(AGENT, ALICE)
        await stopped.stop(AGENT, ALICE.bare)  # saying it twice changes nothing
        assert not stopped.may_write(AGENT, ALICE)
        assert not stopped.may_write(JID.parse(f"{AGENT}/x"), ALICE.bare)
        assert stopped.may_write(AGENT, BOB)
        assert stopped.may_write(DOMAIN, ALICE)
        await stopped.start(AGENT, ALICE)
        await stopped.start(AGENT, BOB)
        assert stopped.may_write(AGENT, ALICE)


async def test_it_outlives_the_process(tmp_path: Path) -> None:
    async with Storage.open(SCHEMA, tmp_path) as storage:
        await StoppedContacts(storage).stop(AGENT, ALICE)
    async with Storage.open(SCHEMA, tmp_path) as storage:
        stopped = StoppedContacts(storage)
        assert not stopped.may_write(AGENT, BOB)  # nobody knows yet
        await stopped.load()
        assert stopped.may_write(AGENT, BOB)
        assert not stopped.may_write(AGENT, ALICE)
        await stopped.start(AGENT, ALICE)
    async with Storage.open(SCHEMA, tmp_path) as storage:
        stopped = StoppedContacts(storage)
        await stopped.load()
        assert stopped.may_write(AGENT, ALICE)


async def test_what_is_said_while_it_is_read_is_not_lost(tmp_path: Path) -> None:
    async with Storage.open(SCHEMA, tmp_path) as storage:
        stopped = StoppedContacts(storage)
        await stopped.load()
        for contact in (ALICE, BOB):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(stopped.load)
                tasks.start_soon(stopped.stop, AGENT, contact)
                tasks.start_soon(stopped.load)
            assert not stopped.may_write(AGENT, contact)


async def test_two_addresses_of_one_agent_are_one(tmp_path: Path) -> None:
    async with Storage.open(SCHEMA, tmp_path) as storage:
        stopped = StoppedContacts(storage, one_agent)
        await stopped.load()
        await stopped.stop(AGENT, ALICE)
        assert not stopped.may_write(DOMAIN, ALICE)
        await stopped.start(DOMAIN, ALICE)
        assert stopped.may_write(AGENT, ALICE)


async def test_it_holds_in_memory_though_the_storage_is_closed(tmp_path: Path) -> None:
    async with Storage.open(SCHEMA, tmp_path) as storage:
        stopped = StoppedContacts(storage)
        await stopped.load()
    with pytest.raises(Exception, match=r".+"):
        await stopped.stop(AGENT, ALICE)
    assert not stopped.may_write(AGENT, ALICE)
