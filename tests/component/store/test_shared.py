"""State that instances share: what one changes, the others know, whatever became of messages."""

import functools
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from component.agent.registry import AgentError, Agents
from component.app.schema import SCHEMA
from component.config.agents import AgentEntry
from component.store import Storage
from component.store import shared as shared_module
from component.store.contacts import LastAddresses, StoppedContacts
from component.store.database import Database
from component.store.shared import PAUSED, SharedChanges, Switches
from tests.component.audit.book import Book
from tests.servers.postgres import Databases, Postgres
from tests.waiting import eventually
from xep.jid import JID

pytestmark = pytest.mark.anyio

AGENT = JID.parse("assistant@agent.example")
ALICE, BOB = JID.parse("alice@a.example"), JID.parse("bob@b.example")
ENTRIES = [AgentEntry(name="assistant"), AgentEntry(name="researcher")]


class Instance:
    """What one process knows of the shared state."""

    def __init__(self, storage: Storage, clock: Callable[[], float] | None = None) -> None:
        self.storage = storage
        self.killed: list[str] = []
        self.agents = Agents(ENTRIES, storage, Book(), self.killed.append, idle_s=3600)
        self.contacts = StoppedContacts(storage)
        self.addresses = LastAddresses(storage)
        self.switches = Switches(storage)
        self.paused = False
        self.reloads: list[Collection[str] | None] = []
        more = {} if clock is None else {"clock": clock}
        self.changes = SharedChanges(storage, **more)
        self.changes.register("agents", self.agents.reload)
        self.changes.register("contacts", self._contacts)
        self.changes.register("switches", self._switches)
        self.changes.register("addresses", self.addresses.reload)

    async def _contacts(self, subjects: Collection[str] | None) -> None:
        self.reloads.append(subjects)
        await self.contacts.reload(subjects)

    async def _switches(self, _names: Collection[str] | None) -> None:
        self.paused = await self.switches.is_on(PAUSED)

    def state(self, name: str = "assistant") -> str:
        found = self.agents.get(name)
        assert found is not None
        return found.state


@asynccontextmanager
async def instances(
    directory: Path, url: str, count: int, *, told: bool = True
) -> AsyncIterator[list[Instance]]:
    """Instances on one database; those that are not told never look what others have changed."""
    async with AsyncExitStack() as stack:
        found = []
        for number in range(count):
            storage = await stack.enter_async_context(
                Storage.open(SCHEMA, directory / str(number), postgres=url)
            )
            one = Instance(storage)
            await one.agents.load()
            await one.contacts.load()
            found.append(one)
        async with anyio.create_task_group() as group:
            if told:
                for one in found:
                    await group.start(one.changes.run)
                    await group.start(one.agents.run)
            yield found
            group.cancel_scope.cancel()


async def test_a_killed_agent_stays_killed_on_an_instance_that_does_not_know(
    tmp_path: Path, migrated_url: str
) -> None:
    async with instances(tmp_path, migrated_url, 3, told=False) as (one, other, third):
        await one.agents.kill("assistant", "boss")
        assert other.state() == third.state() == "created"  # as far as they know
        await other.agents.message_received("assistant")
        assert other.state() == "killed"
        assert other.killed == ["assistant"]
        for change in (third.agents.pause, third.agents.resume, third.agents.kill):
            with pytest.raises(AgentError, match="it is killed"):
                await change("assistant", "boss")
        assert other.agents.away("assistant") is not None
        rows = await one.storage.read(
            lambda db: db.execute("SELECT state FROM agents WHERE name = 'assistant'").fetchall()
        )
        assert rows == [("killed",)]


def uses(instance: Instance, address: JID) -> bool:
    return instance.addresses.get(ALICE) == address


@pytest.mark.ports
async def test_the_address_that_a_contact_uses_is_known_to_all_instances(
    tmp_path: Path, migrated_url: str
) -> None:
    domain = JID.parse("agent.example")
    async with instances(tmp_path, migrated_url, 2) as (one, other):
        for address in (domain, AGENT):
            await one.addresses.put(ALICE.with_resource("phone"), address)
            assert one.addresses.get(ALICE) == address
            await eventually(partial(uses, other, address))
        assert other.addresses.get(BOB) is None


@pytest.mark.ports
async def test_what_one_instance_changes_the_others_know(tmp_path: Path, migrated_url: str) -> None:
    async with instances(tmp_path, migrated_url, 3) as (one, other, third):
        await one.agents.kill("assistant", "boss")
        await other.agents.pause("researcher", "boss")
        await one.contacts.stop(AGENT, ALICE)
        await other.switches.turn(PAUSED, on=True)
        for each in (one, other, third):
            await eventually(lambda each=each: each.state() == "killed")  # type: ignore[misc]  # mypy sees no default
            await eventually(lambda each=each: each.state("researcher") == "paused")  # type: ignore[misc]  # as above
            await eventually(lambda each=each: not each.contacts.may_write(AGENT, ALICE))  # type: ignore[misc]  # as above
            await eventually(lambda each=each: each.paused)  # type: ignore[misc]  # as above
            assert each.killed == ["assistant"]
            assert each.contacts.may_write(AGENT, BOB)
        await third.contacts.start(AGENT, ALICE)
        await third.agents.resume("researcher", "boss")
        assert await one.switches.turn(PAUSED, on=False)
        assert not await third.switches.turn(PAUSED, on=False)
        for each in (one, other, third):
            await eventually(lambda each=each: each.contacts.may_write(AGENT, ALICE))  # type: ignore[misc]  # as above
            await eventually(lambda each=each: each.state("researcher") == "idle")  # type: ignore[misc]  # as above
            await eventually(lambda each=each: not each.paused)  # type: ignore[misc]  # as above


@pytest.mark.ports
async def test_an_instance_that_is_not_notified_polls_for_changes(
    tmp_path: Path, migrated_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_module, "LOOK_S", 0.01)
    monkeypatch.setattr(shared_module, "CHANNEL", "nobody notifies here")
    async with instances(tmp_path, migrated_url, 2) as (one, other):
        await one.agents.kill("assistant", "boss")
        await one.contacts.stop(AGENT, ALICE)
        await eventually(lambda: other.state() == "killed")
        await eventually(lambda: not other.contacts.may_write(AGENT, ALICE))


async def test_what_is_changed_while_the_server_restarts_is_known_after(
    tmp_path: Path, make_postgres: Callable[[], Postgres]
) -> None:
    server = make_postgres()
    async with instances(tmp_path, server.new_database(), 2) as (one, other):
        await anyio.to_thread.run_sync(server.restart)
        await one.contacts.stop(AGENT, ALICE)
        await one.agents.kill("assistant", "boss")
        await eventually(lambda: other.state() == "killed")
        await eventually(lambda: not other.contacts.may_write(AGENT, ALICE))


async def test_another_instance_reloads_only_the_rows_that_changed(
    tmp_path: Path, migrated_url: str
) -> None:
    async with instances(tmp_path, migrated_url, 2) as (one, other):
        assert other.reloads == [None]
        await one.contacts.stop(AGENT, ALICE)
        await eventually(lambda: not other.contacts.may_write(AGENT, ALICE))
        await one.contacts.stop(AGENT, BOB)
        await eventually(lambda: not other.contacts.may_write(AGENT, BOB))
        assert other.reloads == [None, {f"{AGENT} {ALICE}"}, {f"{AGENT} {BOB}"}]


async def test_a_change_that_ends_after_later_ones_is_not_missed(
    tmp_path: Path, migrated_url: str
) -> None:
    """Numbers are given when rows are written, and rows are seen when transactions end."""
    async with Storage.open(SCHEMA, tmp_path, postgres=migrated_url) as storage:
        here = Instance(storage)
        await here.contacts.load()
        await here.changes._look()
        await here.changes._reload_changed()
        slow = psycopg.connect(migrated_url)
        slow.execute("INSERT INTO stopped VALUES (%s, %s)", (str(AGENT), str(ALICE)))
        await StoppedContacts(storage).stop(AGENT, BOB)
        for _ in range(2):
            await here.changes._look()
            await here.changes._reload_changed()
        assert not here.contacts.may_write(AGENT, BOB)
        assert here.contacts.may_write(AGENT, ALICE)
        await anyio.to_thread.run_sync(slow.commit)
        await here.changes._look()
        await here.changes._reload_changed()
        assert not here.contacts.may_write(AGENT, ALICE)
        assert here.reloads == [None, {f"{AGENT} {BOB}"}, {f"{AGENT} {ALICE}"}]
        slow.close()


async def test_an_instance_that_was_away_for_long_reloads_everything(
    tmp_path: Path, migrated_url: str
) -> None:
    now = [0.0]

    def forget(database: Database) -> None:
        database.execute("DELETE FROM shared_changes")

    async with Storage.open(SCHEMA, tmp_path, postgres=migrated_url) as storage:
        here = Instance(storage, lambda: now[0])
        await here.contacts.load()
        await here.changes._look()
        await here.changes._reload_changed()
        await StoppedContacts(storage).stop(AGENT, ALICE)
        await storage.write(forget)
        now[0] = 3000.0
        await here.changes._look()
        await here.changes._reload_changed()
        assert not here.contacts.may_write(AGENT, ALICE)


async def test_what_was_written_down_is_forgotten_after_an_hour(
    tmp_path: Path, migrated_url: str
) -> None:
    count = "SELECT count(*) FROM shared_changes"
    async with Storage.open(SCHEMA, tmp_path, postgres=migrated_url) as storage:
        contacts = StoppedContacts(storage)
        await contacts.stop(AGENT, ALICE)
        await storage.write(lambda db: db.execute("UPDATE shared_changes SET at = at - 3700000"))
        await contacts.stop(AGENT, BOB)
        await storage.write(shared_module._delete_old)
        assert await storage.read(lambda db: db.execute(count).fetchall()) == [(1,)]


async def test_an_agent_that_somebody_writes_to_is_active_for_all(
    tmp_path: Path, migrated_url: str
) -> None:
    async with instances(tmp_path, migrated_url, 2) as (one, other):
        await one.agents.message_received("assistant")
        await eventually(lambda: other.state() == "active")
        # The other one has heard nothing for long; the first one has.
        await other.agents._keep("assistant", "idle")
        await eventually(lambda: one.state() == other.state() == "active")


async def test_an_instance_on_sqlite_loads_everything_once(tmp_path: Path) -> None:
    async with Storage.open(SCHEMA, tmp_path) as storage:
        here = Instance(storage)
        await here.agents.load()
        await here.switches.turn(PAUSED, on=True)
        await here.changes.run()
        assert here.paused
        assert here.reloads == [None]


_ACTS = st.sampled_from(["pause", "resume", "kill", "heard", "idle", "reload"])


@settings(
    max_examples=10,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(acts=st.lists(st.tuples(st.integers(0, 2), _ACTS), max_size=12), parallel=st.booleans())
def test_whatever_three_instances_do_killed_is_for_good(
    tmp_path_factory: pytest.TempPathFactory,
    postgres_server: Databases,
    acts: list[tuple[int, str]],
    parallel: bool,
) -> None:
    """Instances that know nothing of each other, one after the other and all at once."""

    async def main() -> None:
        directory = tmp_path_factory.mktemp("three")
        async with instances(directory, url, 3, told=False) as all_:
            killed = anyio.Event()

            async def act(one: Instance, what: str) -> None:
                match what:
                    case "heard":
                        await one.agents.message_received("assistant")
                    case "idle":
                        await one.agents._keep("assistant", "idle")
                    case "reload":
                        await one.agents.reload()
                    case _:
                        before = killed.is_set()
                        change: Any = getattr(one.agents, what)
                        try:
                            await change("assistant", "boss")
                        except AgentError:
                            return
                        assert not before, "killed, and then changed"
                        if what == "kill":
                            killed.set()

            async with anyio.create_task_group() as group:
                for number, what in acts:
                    if parallel:
                        group.start_soon(act, all_[number], what)
                    else:
                        await act(all_[number], what)
            for one in all_:
                await one.agents.reload()
                assert (one.state() == "killed") == killed.is_set()

    with postgres_server.migrated_database() as url:
        anyio.run(functools.partial(main), backend="trio")
