"""The presence of an account as events: what its most available client shows."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.features.watches import events as watch_events
from component.features.watches import rows as watch_rows
from component.features.watches import sources
from component.features.watches.rows import RetryingStorage
from component.features.watches.sources import Availability, PresenceWatcher, SourcePorts
from component.features.watches.watch import PRESENCE, Source, StartRate, Watch
from component.pubsub.client import PubSubClient
from tests.direct_database import DirectDatabase
from tests.waiting import eventually
from xep.binding import RawXML
from xep.jid import JID
from xep.tree import tree_of

JULIET = JID.parse("juliet@example.com")
AGENT = JID.parse("assistant@agent.example")
SOURCE = Source(AGENT, JULIET, PRESENCE)
CLIENTS = tuple(JID.parse(f"{JULIET}/{name}") for name in ("phone", "desk"))
ORDER: Sequence[Availability] = ("chat", "online", "dnd", "away", "xa", "offline")
WATCH = Watch(
    name="on",
    agent="assistant",
    principal=JULIET,
    service=JULIET,
    node=PRESENCE,
    goal="Say hello.",
    rate=StartRate(10_000, 1.0),
)


class World:
    """A presence watcher; `answer` shows what the clients show when the account is probed."""

    def __init__(self, database: DirectDatabase) -> None:
        self.database = database
        self.clients: dict[JID, tuple[Availability, str]] = {}
        self.refusal: str | None = None
        self.asked = 0
        self.probes = 0
        ports = SourcePorts(
            client=PubSubClient(self._never),
            storage=RetryingStorage(database),
            recorded=lambda _accepted: None,
            consent=self._consent,
            max_hops=5,
            check_s=3600.0,
        )
        self.watcher = PresenceWatcher(SOURCE, ports, self._probe)
        self.watcher.set_watches({WATCH.id: WATCH})

    async def _never(self, *_: Any, **__: Any) -> Any:
        raise AssertionError

    async def _consent(self, source: Source, *, refused: bool = False) -> str | None:
        self.asked += 1
        return self.refusal

    def _probe(self, source: Source) -> None:
        assert source == SOURCE
        self.probes += 1
        self.answers.start_soon(self._answer)

    async def _answer(self) -> None:
        """The clients answer one after another."""
        for client, shown in list(self.clients.items()):
            self.watcher.shown(client, *shown)
            await anyio.lowlevel.checkpoint()

    def show(self, client: JID, availability: Availability, status: str = "") -> None:
        if availability == "offline":
            self.clients.pop(client, None)
        else:
            self.clients[client] = availability, status
        self.watcher.shown(client, availability, status)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with anyio.create_task_group() as group:
            self.answers = group
            group.start_soon(self.watcher.run)
            yield
            group.cancel_scope.cancel()

    def events(self) -> list[tuple[str, str]]:
        """What the events show, and the text of each."""
        found = self.database.execute("SELECT data FROM watch_events ORDER BY number").fetchall()
        shown = []
        for (data,) in found:
            (event,) = msgspec.json.decode(data)
            tree = tree_of(RawXML(event["payload"]))
            shown.append((tree.attributes["show"], event["text"]))
        return shown


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_SETTLE_S", 0.05)
    monkeypatch.setattr(sources, "_GATHER_S", 0.005)


@pytest.fixture
def world() -> World:
    made = World(DirectDatabase(0))
    watch_rows.put(made.database, WATCH)
    return made


async def recorded(world: World, state: str) -> None:
    """Wait until this is the last state that was recorded."""

    def is_last() -> bool:
        found = world.database.execute(
            "SELECT version FROM watch_items WHERE source = ?", (SOURCE.key,)
        ).fetchone()
        return found is not None and found[0] == state

    await eventually(is_last)


pytestmark = pytest.mark.anyio


async def test_each_change_is_an_event_and_what_is_found_first_is_none(world: World) -> None:
    phone = CLIENTS[0]
    world.clients[phone] = "online", ""
    async with world.running():
        assert world.watcher.status.state == "offline"
        world.watcher.connected()
        await recorded(world, "online")
        assert world.watcher.status.state == "live"
        for availability, status in (("away", "lunch <soon>"), ("away", "tea"), ("offline", "")):
            world.show(phone, availability, status)
            await recorded(world, availability)
    assert world.events() == [("away", "lunch <soon>"), ("offline", "")]


async def test_the_most_available_client_counts(world: World) -> None:
    phone, desk = CLIENTS
    async with world.running():
        world.watcher.connected()
        await recorded(world, "offline")
        for client, availability, state in (
            (phone, "away", "away"),
            (desk, "chat", "chat"),
            (phone, "dnd", "chat"),
            (desk, "offline", "dnd"),
            (phone, "offline", "offline"),
        ):
            world.show(client, availability)
            await recorded(world, state)
    assert [show for show, _ in world.events()] == ["away", "chat", "dnd", "offline"]


async def test_the_account_itself_goes_offline_with_all_clients(world: World) -> None:
    async with world.running():
        world.watcher.connected()
        await recorded(world, "offline")
        for client in CLIENTS:
            world.show(client, "online")
        await recorded(world, "online")
        world.watcher.shown(JULIET, "offline", "")
        await recorded(world, "offline")
    assert [show for show, _ in world.events()] == ["online", "offline"]


async def test_without_consent_nothing_is_probed_or_recorded(world: World) -> None:
    world.refusal = "not yet"
    async with world.running():
        world.watcher.connected()
        await eventually(lambda: world.asked)
        world.watcher.shown(JULIET, "offline", "")
        assert (world.watcher.status.state, world.watcher.status.reason) == ("refused", "not yet")
        assert world.probes == 0
        assert not watch_rows.SourceRows(world.database, SOURCE.key).is_known()
        world.refusal = None
        world.clients[CLIENTS[0]] = "online", ""
        world.watcher.retry()
        await recorded(world, "online")
        assert world.watcher.status.state == "live"
        assert world.probes == 1
    assert world.events() == []


async def test_a_change_without_a_session_is_found_at_the_next_one(world: World) -> None:
    world.clients[CLIENTS[0]] = "online", ""
    async with world.running():
        world.watcher.connected()
        await recorded(world, "online")
        world.watcher.disconnected()
        world.clients.clear()
        world.watcher.shown(CLIENTS[0], "away", "late")  # from the session that is over
        world.watcher.connected()
        await recorded(world, "offline")
        world.watcher.disconnected()
        world.watcher.connected()
        await eventually(lambda: world.probes == 3)
    assert [show for show, _ in world.events()] == ["offline"], "nothing has changed since"


STEPS = st.one_of(
    st.tuples(st.just("show"), st.sampled_from(CLIENTS), st.sampled_from(ORDER)),
    st.tuples(st.just("leave"), st.sampled_from(CLIENTS), st.sampled_from(ORDER)),
    st.tuples(st.just("reconnect")),
    st.tuples(st.just("restart")),
)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@given(steps=st.lists(STEPS, max_size=12))
def test_any_history_records_each_state_that_differs_from_the_last(
    backend: str, steps: list[tuple[Any, ...]]
) -> None:
    anyio.run(_history, steps, backend=backend)


async def _history(steps: list[tuple[Any, ...]]) -> None:
    database = DirectDatabase(0)
    watch_rows.put(database, WATCH)
    clients: dict[JID, tuple[Availability, str]] = {}
    states: list[str] = ["offline"]
    remaining = list(steps)
    while True:
        world = World(database)
        world.clients = clients
        async with world.running():
            world.watcher.connected()
            await recorded(world, states[-1])
            while remaining:
                match remaining.pop(0):
                    case ("show", client, availability):
                        world.show(client, availability)
                    case ("leave", client, availability):  # while there is no session
                        world.watcher.disconnected()
                        clients.pop(client, None)
                        if availability != "offline":
                            clients[client] = availability, ""
                        world.watcher.connected()
                    case ("reconnect",):
                        world.watcher.connected()
                    case _:
                        break
                shown = [shown for shown, _ in clients.values()]
                state = min(shown, key=ORDER.index, default="offline")
                if state != states[-1]:
                    states.append(state)
                await recorded(world, state)
            else:
                break
    assert [show for show, _ in world.events()] == states[1:]
    assert (
        len(states) - 1
        == len(database.execute("SELECT key FROM watch_events").fetchall())
        <= watch_events.MOST_PENDING
    )
