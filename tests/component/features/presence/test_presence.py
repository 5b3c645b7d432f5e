"""Presence: who subscribes to us, and what they see; with the subscriptions on disk."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from component.app.schema import SCHEMA
from component.features.presence import handlers
from component.features.presence.handlers import SLICE, PresenceHandler
from component.kernel.events import PresenceEvents
from component.link.messages.delivery import Delivery, nothing_to_send
from component.link.messages.outbox import Outbox, OutputStream
from component.store import Storage
from component.store.contacts import Subscription, SubscriptionState, SubscriptionStore
from tests.component.link.router.wire import AGENT, DOMAIN, REFUSED, element, parse
from tests.component.world import ALICE, BOB, Contacts, World
from xep.binding import decode
from xep.caps import Caps
from xep.jid import JID
from xep.stanza import Presence

pytestmark = pytest.mark.anyio

ALICE_BARE, BOB_BARE, CAROL_BARE = "alice@a.example", "bob@b.example", "carol@a.example"


@asynccontextmanager
async def living(directory: Path) -> AsyncIterator[tuple[World, SubscriptionStore]]:
    async with Storage.open(SCHEMA, directory) as storage:
        store = SubscriptionStore(storage)
        world = World(subscriptions=store)
        async with world.bench.running():
            yield world, store


ONLINE = f"{AGENT}/agent"


def presence(type_: str | None, from_: str | None = ALICE_BARE, to: str = AGENT) -> str:
    return element("presence", type=type_, from_=from_, to=to)


async def sent(world: World, *stanzas: str) -> list[tuple[str, str, str]]:
    """Type, from and to of what is sent because of the stanzas."""
    before = len(world.sent)
    world.bench.receive(*stanzas)
    await world.bench.settled()
    found = [parse(stanza.encode()) for stanza in world.sent[before:]]
    assert world.bench.output.sent == []
    assert {each.tag for each in found} <= {"{jabber:client}presence"}
    return [(p.get("type", "available"), p.get("from", ""), p.get("to", "")) for p in found]


@pytest.mark.parametrize("to", [AGENT, DOMAIN])
async def test_who_subscribes_is_accepted_kept_and_shown(tmp_path: Path, to: str) -> None:
    async with living(tmp_path) as (world, store):
        assert await sent(world, presence("subscribe", to=to)) == [
            ("subscribed", to, ALICE_BARE),
            ("available", f"{to}/agent", ALICE_BARE),
        ]
        assert await store.receivers() == [
            Subscription(JID.parse(to), JID.parse(ALICE_BARE), "from")
        ]


async def test_a_subscription_is_between_bare_addresses(tmp_path: Path) -> None:
    async with living(tmp_path) as (world, store):
        answers = await sent(world, presence("subscribe", ALICE, f"{AGENT}/x"))
        assert answers[0] == ("subscribed", AGENT, ALICE_BARE)
        assert await store.get(JID.parse(AGENT), JID.parse(ALICE_BARE)) is not None


@pytest.mark.parametrize(("first", "second"), [(AGENT, DOMAIN), (DOMAIN, AGENT)])
async def test_an_agent_with_two_addresses_is_one_contact(
    tmp_path: Path, first: str, second: str
) -> None:
    async with living(tmp_path) as (world, store):
        await sent(world, presence("subscribe", to=first))
        assert world.contacts.told == []
        assert await sent(world, presence("subscribe", to=second)) == [
            ("subscribed", second, ALICE_BARE),
            ("available", f"{second}/agent", ALICE_BARE),
            ("unavailable", f"{first}/agent", ALICE_BARE),
            ("unsubscribed", first, ALICE_BARE),
        ]
        ((agent, person, sentence),) = world.contacts.told
        assert (agent, person) == (second, ALICE_BARE)
        assert f"I am the same agent as {first}." in sentence
        assert [each.owner for each in await store.receivers()] == [JID.parse(second)]
        assert world.contacts.uses == {ALICE_BARE: second}
        # Converse acknowledges the end of the other subscription.
        assert await sent(world, presence("unsubscribe", to=first)) == []
        assert world.contacts.stopped == set()


async def test_a_client_that_asks_for_both_addresses_in_turn_is_not_answered_forever(
    tmp_path: Path,
) -> None:
    async with living(tmp_path) as (world, _):
        asked = 0
        while asked < 100 and await sent(
            world, presence("subscribe", to=(AGENT, DOMAIN)[asked % 2])
        ):
            asked += 1
        assert 2 <= asked < 20


async def test_other_agents_are_contacts_of_their_own(tmp_path: Path) -> None:
    async with living(tmp_path) as (world, store):
        await sent(world, presence("subscribe", to=AGENT))
        await sent(world, presence("subscribe", BOB_BARE, to=DOMAIN))
        assert len(await store.receivers()) == 2
        assert world.contacts.told == []


async def test_available_presence_carries_capabilities(tmp_path: Path) -> None:
    async with living(tmp_path) as (world, _):
        for from_, to, caps in (
            (ALICE_BARE, AGENT, world.disco.caps("agent", "assistant")),
            (BOB_BARE, DOMAIN, world.disco.caps("component", None)),
        ):
            await sent(world, presence("subscribe", from_, to=to))
            (carried,) = parse(world.sent[-1].encode())
            assert carried.tag == Caps.xml.tag
            assert decode(Caps, carried, strict=True) == caps


async def test_who_asks_again_is_told_again(tmp_path: Path) -> None:
    async with living(tmp_path) as (world, store):
        first = await sent(world, presence("subscribe"))
        assert await sent(world, presence("subscribe")) == first
        assert len(await store.receivers()) == 1


async def test_who_unsubscribes_sees_us_go(tmp_path: Path) -> None:
    async with living(tmp_path) as (world, store):
        await sent(world, presence("subscribe"), presence("subscribe", BOB_BARE))
        assert await sent(world, presence("unsubscribe")) == [
            ("unavailable", ONLINE, ALICE_BARE),
            ("unsubscribed", AGENT, ALICE_BARE),
        ]
        assert [str(each.contact) for each in await store.receivers()] == [BOB_BARE]
        assert await sent(world, presence("unsubscribe")) == []


async def test_who_unsubscribes_hears_nothing_more(tmp_path: Path) -> None:
    async with living(tmp_path) as (world, _):
        agent, alice = JID.parse(AGENT), JID.parse(ALICE_BARE)
        await sent(world, presence("unsubscribe"))
        assert world.contacts.may_write(agent, alice)  # there was nothing to end
        await sent(world, presence("subscribe"), presence("unsubscribe"))
        assert not world.contacts.may_write(agent, alice)
        await sent(world, presence("subscribe"))
        assert world.contacts.may_write(agent, alice)


async def test_who_wants_to_hear_nothing_is_not_told_of_us(tmp_path: Path) -> None:
    async with living(tmp_path) as (world, _):
        await sent(world, presence("subscribe"), presence("subscribe", BOB_BARE))
        await world.contacts.stop(JID.parse(AGENT), JID.parse(ALICE_BARE))
        world.sent.clear()
        await world.presence.announce()
        await world.presence.take_leave()
        assert [parse(stanza.encode()).get("to") for stanza in world.sent] == [BOB_BARE] * 2
        # Its own question is answered all the same.
        assert await sent(world, presence("probe")) == [("available", ONLINE, ALICE_BARE)]


async def test_a_subscriber_who_probes_sees_us(tmp_path: Path) -> None:
    async with living(tmp_path) as (world, _):
        await sent(world, presence("subscribe"))
        assert await sent(world, presence("probe")) == [("available", ONLINE, ALICE_BARE)]
        # One client that asks is answered by itself, at the address the server knows.
        odd = "alice@a.example/a\N{NO-BREAK SPACE}b"
        assert await sent(world, presence("probe", odd)) == [("available", ONLINE, odd)]


async def test_a_stranger_who_probes_learns_that_it_is_none(tmp_path: Path) -> None:
    async with living(tmp_path) as (world, _):
        await sent(world, presence("subscribe"))
        assert await sent(world, presence("probe", BOB)) == [("unsubscribed", AGENT, BOB_BARE)]
        # A subscription to the agent is none to the domain.
        assert await sent(world, presence("probe", to=DOMAIN)) == [
            ("unsubscribed", DOMAIN, ALICE_BARE)
        ]


@pytest.mark.parametrize("from_", [f"x@{REFUSED}", "c.example", "@", "", None])
@pytest.mark.parametrize("type_", ["subscribe", "unsubscribe", "probe", None])
async def test_who_is_refused_sees_nothing(
    tmp_path: Path, from_: str | None, type_: str | None
) -> None:
    async with living(tmp_path) as (world, store):
        assert await sent(world, presence(type_, from_)) == []
        assert await store.receivers() == []


@pytest.mark.parametrize("type_", [None, "unavailable", "subscribed", "unsubscribed", "error"])
async def test_what_others_say_of_themselves_is_not_answered(
    tmp_path: Path, type_: str | None
) -> None:
    async with living(tmp_path) as (world, store):
        assert await sent(world, presence(type_)) == []
        assert await store.receivers() == []


async def test_nobody_can_subscribe_to_who_is_not_here(tmp_path: Path) -> None:
    async with living(tmp_path) as (world, store):
        assert await sent(world, presence("subscribe", to=f"nobody@{DOMAIN}")) == []
        assert await store.receivers() == []


async def test_we_announce_ourselves_to_every_subscriber_after_a_restart(tmp_path: Path) -> None:
    async with living(tmp_path) as (world, _):
        await sent(
            world,
            presence("subscribe"),
            presence("subscribe", BOB_BARE),
            presence("subscribe", CAROL_BARE, to=DOMAIN),
        )
    async with living(tmp_path) as (world, _):
        await world.presence.announce()
        seen = [parse(stanza.encode()) for stanza in world.sent]
        assert {(p.get("from"), p.get("to")) for p in seen} == {
            (ONLINE, ALICE_BARE),
            (ONLINE, BOB_BARE),
            (f"{DOMAIN}/agent", CAROL_BARE),
        }
        assert len(seen) == 3
        for each in seen:
            assert each.get("type") is None
            assert [child.tag for child in each] == [Caps.xml.tag]


async def test_we_take_leave_of_every_subscriber(tmp_path: Path) -> None:
    async with living(tmp_path) as (world, store):
        await sent(world, presence("subscribe"), presence("subscribe", BOB_BARE))
        world.sent.clear()
        await world.presence.take_leave()
        seen = [parse(stanza.encode()) for stanza in world.sent]
        assert {(p.get("type"), p.get("from"), p.get("to")) for p in seen} == {
            ("unavailable", ONLINE, ALICE_BARE),
            ("unavailable", ONLINE, BOB_BARE),
        }
        assert len(await store.receivers()) == 2  # they remain subscribers


async def test_contacts_that_show_us_their_presence_are_probed_and_told_nothing(
    tmp_path: Path,
) -> None:
    async with living(tmp_path) as (world, store):
        agent, alice, bob = (JID.parse(each) for each in (AGENT, ALICE_BARE, BOB_BARE))
        await store.put(Subscription(agent, alice, "both"))
        await store.put(Subscription(agent, bob, "from"))
        await world.presence.probe_contacts()
        (seen,) = [parse(stanza.encode()) for stanza in world.sent]
        assert (seen.get("type"), seen.get("from"), seen.get("to")) == ("probe", AGENT, ALICE_BARE)


class SlowStore:
    """Subscriptions whose disk takes its time, so that a later request could overtake."""

    def __init__(self) -> None:
        self.kept: dict[tuple[JID, JID], Subscription] = {}
        self.waiting = 0

    async def _wait(self) -> None:
        # Who comes later waits for less.
        self.waiting += 1
        for _ in range(max(0, 12 - 3 * self.waiting)):
            await checkpoint()

    async def put(self, subscription: Subscription) -> None:
        await self._wait()
        self.kept[subscription.owner, subscription.contact] = subscription

    async def remove(self, owner: JID, contact: JID) -> bool:
        await self._wait()
        return self.kept.pop((owner, contact), None) is not None

    async def get(self, owner: JID, contact: JID) -> Subscription | None:
        await self._wait()
        return self.kept.get((owner, contact))

    async def receivers(
        self, after: Subscription | None = None, limit: int = 1_000
    ) -> list[Subscription]:
        return list(self.kept.values()) if after is None else []

    async def failed(self, owner: JID, contact: JID, *, for_good: bool) -> bool:
        raise NotImplementedError

    async def reachable(self, owner: JID, contact: JID) -> None:
        raise NotImplementedError


# -- what comes back -----------------------------------------------------------------------------


def returned(condition: str, from_: str = ALICE_BARE, type_: str = "cancel") -> str:
    error = element(
        "error",
        element(condition, xmlns="urn:ietf:params:xml:ns:xmpp-stanzas"),
        type=type_,
    )
    return element("presence", error, type="error", from_=from_, to=AGENT)


async def announced(world: World) -> list[str | None]:
    """To whom we are shown."""
    before = len(world.sent)
    await world.presence.announce()
    return [parse(stanza.encode()).get("to") for stanza in world.sent[before:]]


@pytest.mark.parametrize("condition", ["remote-server-not-found", "gone", "undefined-condition"])
async def test_who_cannot_be_reached_is_not_told_of_us(tmp_path: Path, condition: str) -> None:
    async with living(tmp_path) as (world, _):
        await sent(world, presence("subscribe"), presence("subscribe", BOB_BARE))
        assert await announced(world) == [ALICE_BARE, BOB_BARE]
        assert await sent(world, returned(condition, ALICE)) == []
        assert await announced(world) == [BOB_BARE]
    async with living(tmp_path) as (world, _):  # over restarts as well
        assert await announced(world) == [BOB_BARE]
        # Its server is back: a user logs in, and asks for us (RFC 6121 §4.3).
        assert await sent(world, presence("probe", ALICE)) == [("available", ONLINE, ALICE)]
        assert await announced(world) == [ALICE_BARE, BOB_BARE]


async def test_an_error_about_an_account_that_is_gone_counts_at_once(tmp_path: Path) -> None:
    async with living(tmp_path) as (world, store):
        await sent(world, presence("subscribe"), presence("subscribe", BOB_BARE))
        with capture_logs() as logs:
            await sent(world, returned("remote-server-timeout", BOB_BARE, "wait"))
            await sent(world, returned("item-not-found"))
        (line,) = [line for line in logs if line["log_level"] == "info"]
        assert (line["contact"], line["condition"]) == (ALICE_BARE, "item-not-found")
        assert await announced(world) == []
        for contact in (ALICE_BARE, BOB_BARE):  # they remain subscribers
            assert await store.get(JID.parse(AGENT), JID.parse(contact)) is not None


@pytest.mark.parametrize(
    ("state", "ask", "after"),
    [
        ("both", False, "from"),
        ("from", True, "from"),
        ("from", False, "from"),
        ("to", False, None),
        ("none", True, None),
    ],
)
async def test_who_does_not_show_itself_any_more_is_remembered(
    tmp_path: Path, state: SubscriptionState, ask: bool, after: SubscriptionState | None
) -> None:
    async with living(tmp_path) as (world, store):
        agent, alice = JID.parse(AGENT), JID.parse(ALICE_BARE)
        await store.put(Subscription(agent, alice, state, ask))
        assert await sent(world, presence("unsubscribed")) == []
        expected = None if after is None else Subscription(agent, alice, after)
        assert await store.get(agent, alice) == expected
        assert world.contacts.may_write(agent, alice)


# -- many subscribers ----------------------------------------------------------------------------

MANY = 12 * SLICE + 7


class Server:
    """Takes what is sent a stanza at a time, and lets others run between."""

    def __init__(self, outbox: Outbox) -> None:
        self.outbox = outbox
        self.taken: list[str] = []
        self.most_bytes = 0

    def try_send(self, data: bytes | memoryview) -> int:
        self.taken += [str(each.get("to")) for each in parse(f"<x>{bytes(data).decode()}</x>")]
        return len(data)

    async def read(self) -> None:
        while True:
            self.most_bytes = max(self.most_bytes, self.outbox.waiting_bytes)
            self.outbox.flush(self.try_send)
            await checkpoint()


class Crowd(SlowStore):
    """Many subscribers, in pages."""

    def __init__(self) -> None:
        super().__init__()
        agent = JID.parse(AGENT)
        self.all = [
            Subscription(agent, JID.parse(f"u{number:06}@a.example"), "from")
            for number in range(MANY)
        ]

    async def receivers(
        self, after: Subscription | None = None, limit: int = 1_000
    ) -> list[Subscription]:
        start = 0 if after is None else self.all.index(after) + 1
        return self.all[start : start + min(limit, 2 * SLICE)]


@pytest.mark.parametrize("leaving", [False, True])
async def test_others_are_answered_while_many_are_told(
    leaving: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted in stanzas: an answer in the meantime waits for one slice at most."""
    outbox = Outbox(10_000_000)
    outbox.start(OutputStream())
    server = Server(outbox)

    def send(presence: Presence) -> Delivery:
        delivery = Delivery()
        outbox.put(presence.encode(), delivery)
        return delivery

    stream: Any = SimpleNamespace(send=send, connected_since=1)
    monkeypatch.setattr(handlers, "PAUSE_S", 0)
    handler = PresenceHandler(Crowd(), stream, lambda host, agent: (), Contacts(), PresenceEvents())
    ahead: list[int] = []

    async def ping() -> None:
        while True:
            outbox.put("<iq to='pinging'/>")
            asked = len(server.taken)
            while "pinging" not in server.taken[asked:]:
                await checkpoint()
            ahead.append(server.taken.index("pinging", asked) - asked)

    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.read)
            tasks.start_soon(ping)
            await (handler.take_leave() if leaving else handler.announce())
            tasks.cancel_scope.cancel()
    told = [to for to in server.taken if to != "pinging"]
    assert told == [str(one.contact) for one in Crowd().all]
    assert len(ahead) >= MANY // SLICE
    assert max(ahead) <= SLICE
    assert server.most_bytes < 2 * SLICE * 120


@pytest.mark.parametrize("next_stream", [None, 2])
async def test_an_announcement_ends_with_its_stream(
    next_stream: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[object] = []

    def send(presence: Presence) -> Delivery:
        told.append(presence)
        if len(told) == 3 * SLICE:
            stream.connected_since = next_stream
        return nothing_to_send()

    stream: Any = SimpleNamespace(send=send, connected_since=1)
    monkeypatch.setattr(handlers, "PAUSE_S", 0)
    handler = PresenceHandler(Crowd(), stream, lambda host, agent: (), Contacts(), PresenceEvents())
    await handler.announce()
    assert len(told) == 3 * SLICE
    stream.connected_since = None
    await handler.announce()
    assert len(told) == 3 * SLICE


@given(
    types=st.lists(st.sampled_from(["subscribe", "unsubscribe", "probe"]), min_size=1, max_size=8)
)
async def test_what_comes_in_one_breath_is_done_in_order(types: list[str]) -> None:
    store = SlowStore()
    world = World(subscriptions=store)
    async with world.bench.running():
        said = await sent(world, *(presence(type_) for type_ in types))
    expected, subscribed = [], False
    for type_ in types:
        if type_ == "subscribe":
            subscribed = True
            expected += ["subscribed", "available"]
        elif type_ == "probe":
            expected += ["available" if subscribed else "unsubscribed"]
        elif subscribed:
            subscribed = False
            expected += ["unavailable", "unsubscribed"]
    assert [kind for kind, _, _ in said] == expected
    assert bool(store.kept) == subscribed


async def test_one_that_fails_holds_up_nobody() -> None:
    class Breaking(SlowStore):
        async def put(self, subscription: Subscription) -> None:
            if subscription.contact == JID.parse(ALICE_BARE):
                raise OSError("the disk is full")
            await super().put(subscription)

    world = World(subscriptions=Breaking())
    async with world.bench.running():
        with anyio.fail_after(120):
            assert await sent(world, presence("subscribe"), presence("subscribe", BOB_BARE)) == [
                ("subscribed", AGENT, BOB_BARE),
                ("available", ONLINE, BOB_BARE),
            ]
