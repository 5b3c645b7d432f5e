"""What people show of themselves is watched only after they have agreed; they are asked once."""

from types import SimpleNamespace
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.features.watches.sources import Consent
from component.features.watches.watch import Source
from component.store.contacts import Subscription, SubscriptionState
from component.store.errors import StorageError
from tests.direct_database import done
from xep.jid import JID
from xep.stanza import Presence

AGENT = JID.parse("assistant@agent.example")
JULIET = JID.parse("juliet@example.com")
MOOD = Source(AGENT, JULIET, "http://jabber.org/protocol/mood")
BLOG = Source(AGENT, JULIET, "urn:xmpp:microblog:0")
NEWS = Source(AGENT, JID.parse("pubsub.example.com"), "news")


class World:
    """The roster of an agent, and what it has sent. Without a `roster` the database fails."""

    def __init__(self, *known: Subscription, willing: bool = True) -> None:
        self.roster: dict[tuple[JID, JID], Subscription] | None = {
            (one.owner, one.contact): one for one in known
        }
        self.sent: list[Presence] = []
        addresses = SimpleNamespace(is_own=lambda jid: jid.domain == "agent.example")
        kernel: Any = SimpleNamespace(
            storage=None,
            stream=SimpleNamespace(addresses=addresses, send=self.send),
            contacts=SimpleNamespace(may_write=lambda *_: willing),
        )
        self.consent = Consent(kernel)
        self.consent._subscriptions = self  # type: ignore[assignment]

    def send(self, presence: Presence) -> None:
        assert self.roster is not None
        assert self.roster[AGENT, JULIET].ask, "on disk before it is sent"
        self.sent.append(presence)

    async def put(self, subscription: Subscription) -> None:
        self._rows()[subscription.owner, subscription.contact] = subscription

    async def get(self, owner: JID, contact: JID) -> Subscription | None:
        return self._rows().get((owner, contact))

    def _rows(self) -> dict[tuple[JID, JID], Subscription]:
        if self.roster is None:
            raise StorageError("The disk is full.")
        return self.roster

    def refusal(self, source: Source = MOOD, **how: Any) -> str | None:
        return done(self.consent(source, **how))


@pytest.mark.parametrize("source", [NEWS, Source(AGENT, JID.parse("two@agent.example"), "news")])
def test_services_and_own_agents_need_no_consent(source: Source) -> None:
    world = World()
    assert world.refusal(source) is None
    assert world.refusal(source, refused=True) is None
    assert not world.sent


def test_a_person_is_asked_once() -> None:
    world = World()
    for _ in range(3):
        assert world.refusal() == f"{JULIET} has not allowed {AGENT} to see their presence yet."
    (asked,) = world.sent
    assert (asked.type, asked.from_, asked.to) == ("subscribe", AGENT, JULIET)


@pytest.mark.parametrize("state", get_args(SubscriptionState))
def test_permission_is_the_subscription_to_the_presence(state: SubscriptionState) -> None:
    world = World(Subscription(AGENT, JULIET, state))
    assert (world.refusal() is None) == (state in ("to", "both"))
    assert bool(world.sent) == (state in ("none", "from"))
    assert world.roster is not None
    assert world.roster[AGENT, JULIET].state == state, "asking changes no permission"


def test_a_permission_that_was_withdrawn_is_asked_for_again() -> None:
    world = World(Subscription(AGENT, JULIET, "to"))
    assert world.refusal() is None
    assert world.roster is not None
    world.roster[AGENT, JULIET] = Subscription(AGENT, JULIET, "none")
    assert world.refusal() is not None
    assert len(world.sent) == 1


def test_a_public_microblog_is_read_without_asking() -> None:
    world = World()
    assert world.refusal(BLOG) is None
    assert not world.sent
    assert world.refusal(BLOG, refused=True) is not None
    assert len(world.sent) == 1


def test_who_wants_no_messages_is_not_asked() -> None:
    world = World(willing=False)
    assert world.refusal() == f"{JULIET} does not want to be contacted."
    assert not world.sent


def test_without_the_database_nobody_is_asked() -> None:
    world = World()
    world.roster = None
    assert world.refusal() == "The disk is full."
    assert not world.sent


@given(st.lists(st.sampled_from(["ask", "refused", "agree", "withdraw", "fail", "work"])))
def test_any_history_leaves_at_most_one_question_without_an_answer(history: list[str]) -> None:
    """No permission without one on disk, and never two questions without an answer in between."""
    world = World()
    kept = world.roster
    assert kept is not None
    open_questions = 0
    for event in history:
        match event:
            case "ask" | "refused":
                before = len(world.sent)
                allowed = kept.get((AGENT, JULIET), Subscription(AGENT, JULIET, "none")).state
                refusal = world.refusal(refused=event == "refused")
                if world.roster is None:
                    assert refusal is not None
                else:
                    assert (refusal is None) == (allowed == "to")
                open_questions += len(world.sent) - before
                assert open_questions <= 1
            case "agree":
                kept[AGENT, JULIET] = Subscription(AGENT, JULIET, "to")
                open_questions = 0
            case "withdraw":
                kept[AGENT, JULIET] = Subscription(AGENT, JULIET, "none")
                open_questions = 0
            case "fail":
                world.roster = None
            case "work":
                world.roster = kept
