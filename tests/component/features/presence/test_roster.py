"""A client's roster: subscriptions follow the server, and requests are approved."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.app.schema import SCHEMA
from component.features.presence.handlers import RosterPresence
from component.link.router.addresses import AccountAddresses
from component.store import Storage
from component.store.contacts import StoppedContacts, Subscription, SubscriptionStore
from tests.component.link.router.wire import Bench, condition, element, iq, parse
from tests.profiles import examples
from xep.binding import encode
from xep.caps import Caps
from xep.jid import JID
from xep.roster import RosterItem, RosterQuery
from xep.stanza import NAMESPACE, Message, Presence
from xep.stanza_error import StanzaError

pytestmark = pytest.mark.anyio

ACCOUNT = JID.parse("helper@example.com")
ALICE = JID.parse("alice@a.example")
BOB = JID.parse("bob@b.example")


class World:
    """A handler, the roster of its server, and what it sends."""

    def __init__(self, storage: Storage) -> None:
        self.store = SubscriptionStore(storage)
        self.contacts = StoppedContacts(storage)
        self.roster: RosterQuery | StanzaError = RosterQuery()
        self.sent: list[Message | Presence] = []
        stream: Any = SimpleNamespace(
            addresses=AccountAddresses(ACCOUNT), send=self.sent.append, get=self.fetch
        )
        self.handler = RosterPresence(
            self.store,
            stream,
            lambda: Caps(hash="sha-1", node="urn:x", ver="v"),
            self.contacts,
        )
        self.bench = Bench(self.handler.routes(), ours=AccountAddresses(ACCOUNT))

    async def fetch(self, *_query: Any) -> RosterQuery:
        if isinstance(self.roster, StanzaError):
            raise self.roster
        return self.roster

    def lists(self, *items: tuple[JID, str]) -> None:
        self.roster = RosterQuery(
            items=tuple(RosterItem(jid=jid, subscription=state) for jid, state in items)  # type: ignore[arg-type] # one of them
        )

    async def state(self, contact: JID) -> str | None:
        found = await self.store.get(ACCOUNT, contact)
        return None if found is None else found.state


@asynccontextmanager
async def living(directory: Path) -> AsyncIterator[World]:
    async with Storage.open(SCHEMA, directory) as storage:
        world = World(storage)
        await world.contacts.load()
        async with world.bench.running():
            yield world


def presence(type_: str, from_: JID = ALICE) -> str:
    return element("presence", type=type_, from_=str(from_), to=str(ACCOUNT))


def push(item: RosterItem, from_: str | None = str(ACCOUNT)) -> str:
    content = encode(RosterQuery(items=(item,)), NAMESPACE)
    return iq(content, type_="set", from_=from_, to=f"{ACCOUNT}/agent")


async def test_it_learns_the_roster_and_becomes_available_once(tmp_path: Path) -> None:
    async with living(tmp_path) as world:
        world.lists((ALICE, "both"), (BOB, "to"))
        await world.handler.announce()
        (sent,) = (parse(one.encode()) for one in world.sent)
        assert (sent.get("type"), sent.get("to"), sent.get("from")) == (None, None, str(ACCOUNT))
        assert sent.find("{http://jabber.org/protocol/caps}c") is not None
        assert (await world.state(ALICE), await world.state(BOB)) == ("both", None)


async def test_who_has_gone_while_nobody_was_connected_is_written_to_no_more(
    tmp_path: Path,
) -> None:
    async with living(tmp_path) as world:
        await world.store.put(Subscription(ACCOUNT, ALICE, "from"))
        await world.store.put(Subscription(ACCOUNT, BOB, "from"))
        world.lists((BOB, "from"))
        await world.handler.announce()
        assert (await world.state(ALICE), await world.state(BOB)) == (None, "from")
        assert not world.contacts.may_write(ACCOUNT, ALICE)
        assert world.contacts.may_write(ACCOUNT, BOB)


async def test_without_the_roster_it_is_available_all_the_same(tmp_path: Path) -> None:
    async with living(tmp_path) as world:
        await world.store.put(Subscription(ACCOUNT, ALICE, "from"))
        world.roster = StanzaError("remote-server-timeout", "no answer")
        await world.handler.announce()
        assert len(world.sent) == 1
        assert await world.state(ALICE) == "from"


async def test_a_request_is_approved(tmp_path: Path) -> None:
    async with living(tmp_path) as world:
        await world.contacts.stop(ACCOUNT, ALICE)
        world.bench.receive(presence("subscribe"))
        await world.bench.settled()
        (sent,) = (parse(one.encode()) for one in world.sent)
        assert (sent.get("type"), sent.get("to")) == ("subscribed", str(ALICE))
        assert await world.state(ALICE) == "from"
        assert world.contacts.may_write(ACCOUNT, ALICE), "who asks to see us wants to hear from us"


async def test_a_request_of_somebody_whom_policy_refuses_stays_unanswered(tmp_path: Path) -> None:
    async with living(tmp_path) as world:
        world.bench.receive(presence("subscribe", JID.parse("x@refused.example")))
        await world.bench.settled()
        assert world.sent == []
        assert world.bench.output.sent == []


async def test_an_unsubscription_is_heard(tmp_path: Path) -> None:
    async with living(tmp_path) as world:
        await world.store.put(Subscription(ACCOUNT, ALICE, "from"))
        world.bench.receive(presence("unsubscribe"), presence("unsubscribe", BOB))
        await world.bench.settled()
        assert await world.state(ALICE) is None
        assert not world.contacts.may_write(ACCOUNT, ALICE)
        assert world.contacts.may_write(ACCOUNT, BOB), "who never saw us has said nothing"


@pytest.mark.ports
async def test_a_push_changes_what_is_kept_and_is_answered(tmp_path: Path) -> None:
    async with living(tmp_path) as world:
        world.bench.receive(push(RosterItem(jid=ALICE, subscription="from")))
        await world.bench.settled()
        assert await world.state(ALICE) == "from"
        (reply,) = world.bench.replies
        assert reply.get("type") == "result"
        world.bench.receive(push(RosterItem(jid=ALICE, subscription="remove")))
        await world.bench.settled()
        assert await world.state(ALICE) is None
        assert not world.contacts.may_write(ACCOUNT, ALICE)


@pytest.mark.parametrize("from_", [str(ALICE), f"{ACCOUNT}/other"])
async def test_a_push_of_anybody_else_changes_nothing(tmp_path: Path, from_: str) -> None:
    async with living(tmp_path) as world:
        world.bench.receive(push(RosterItem(jid=ALICE, subscription="from"), from_))
        await world.bench.settled()
        assert condition(world.bench.replies[0]) == "service-unavailable"
        assert await world.state(ALICE) is None


async def test_leaving_is_told_once(tmp_path: Path) -> None:
    async with living(tmp_path) as world:
        await world.handler.take_leave()
        (sent,) = (parse(one.encode()) for one in world.sent)
        assert (sent.get("type"), sent.get("to")) == ("unavailable", None)


_states = st.sampled_from(["none", "to", "from", "both", "remove"])


@given(pushes=st.lists(st.tuples(st.sampled_from([ALICE, BOB]), _states), max_size=8))
@examples(10)
async def test_what_is_kept_is_what_the_server_said_last(
    tmp_path_factory: pytest.TempPathFactory, pushes: list[tuple[JID, str]]
) -> None:
    async with living(tmp_path_factory.mktemp("roster")) as world:
        items = [RosterItem(jid=jid, subscription=state) for jid, state in pushes]  # type: ignore[arg-type] # one of them
        world.bench.receive(*map(push, items))
        await world.bench.settled()
        last = dict(pushes)
        for jid in (ALICE, BOB):
            state = last.get(jid)
            assert await world.state(jid) == (state if state in ("from", "both") else None)
