"""Who is a person, by what it says of itself, and for how long that is remembered."""

from collections.abc import Awaitable, Callable

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.policy.persons import Persons
from xep.disco import Feature, Identity, InfoQuery
from xep.jid import JID
from xep.stanza_error import Condition, StanzaError

pytestmark = pytest.mark.anyio

AGENT = JID.parse("assistant@agent.a.example")
ALICE = JID.parse("alice@a.example/phone")
AGENT_INFO = InfoQuery(features=(Feature(var="urn:fluux:agent:0"),))
ROOM_INFO = InfoQuery(identities=(Identity(category="conference", type="text"),))
PERSON_INFO = InfoQuery(features=(Feature(var="urn:xmpp:ping"),))
SILENCE: Condition = "remote-server-timeout"
OTHERS = pytest.mark.parametrize("said", [AGENT_INFO, ROOM_INFO])


async def never() -> InfoQuery:
    await anyio.sleep_forever()
    raise AssertionError


class World:
    def __init__(self) -> None:
        self.now = 0.0
        self.asked: list[JID] = []
        self.says: dict[JID, InfoQuery | Condition | Callable[[], Awaitable[InfoQuery]]] = {}
        self.persons = Persons(
            self.info, lambda who: who.domain == "agent.a.example", lambda: self.now
        )

    async def info(self, to: JID, from_: JID, /) -> InfoQuery:
        assert from_ == AGENT
        self.asked.append(to)
        said = self.says.get(to, "service-unavailable")
        if isinstance(said, str):
            raise StanzaError(said)
        return said if isinstance(said, InfoQuery) else await said()

    def known(self, who: JID = ALICE) -> bool | None:
        return self.persons.known(who.bare, who)

    async def ask(self, who: JID = ALICE) -> bool | None:
        return await self.persons.asked(who.bare, who, AGENT)

    def pass_over(self, who: JID = ALICE) -> bool:
        return self.persons.passed_over(who.bare, who)

    async def confirm(self, who: JID = ALICE) -> bool:
        return await self.persons.is_person(who.bare, who, AGENT)


@pytest.mark.parametrize(
    "who", ["agent.a.example", "b.example", "b.example/x", "other@agent.a.example"]
)
async def test_services_and_our_own_addresses_are_no_persons_and_are_not_asked(who: str) -> None:
    world = World()
    assert world.known(JID.parse(who)) is False
    assert await world.confirm(JID.parse(who)) is False
    assert world.asked == []


async def test_who_is_not_remembered_is_asked_at_the_client_and_the_account() -> None:
    world = World()
    world.says = {ALICE: PERSON_INFO}
    assert world.known() is None
    assert await world.ask() is True
    assert set(world.asked) == {ALICE, ALICE.bare}
    assert world.known() is True


@OTHERS
@pytest.mark.parametrize("where", [ALICE, ALICE.bare])
async def test_who_says_at_either_that_it_is_none_is_none(said: InfoQuery, where: JID) -> None:
    world = World()
    world.says = {ALICE: PERSON_INFO, ALICE.bare: PERSON_INFO} | {where: said}
    assert await world.ask() is False
    assert world.known() is False
    assert await world.confirm() is False


async def test_one_that_says_it_is_none_is_not_kept_waiting_for_the_other() -> None:
    world = World()
    world.says = {ALICE: AGENT_INFO, ALICE.bare: never}
    with anyio.fail_after(120):
        assert await world.ask() is False


async def test_one_that_never_answers_is_a_person_within_seconds() -> None:
    world = World()
    world.says = {ALICE: never, ALICE.bare: never}
    with anyio.fail_after(120):
        assert await world.confirm()


async def test_what_was_answered_is_remembered_for_ten_minutes() -> None:
    world = World()
    await world.ask()
    world.now = 599.9
    assert world.known() is True
    assert await world.confirm()
    assert len(world.asked) == 2
    world.now = 600.0
    assert world.known() is None


async def test_silence_counts_for_messages_only() -> None:
    world = World()
    world.says = {ALICE: SILENCE}
    assert await world.ask() is None
    assert world.known() is None
    assert world.pass_over() is True
    assert world.known() is True
    for _ in range(2):
        world.asked.clear()
        assert await world.confirm()
        assert world.asked == [ALICE]  # again each time; the account has answered
    world.now = 600.0
    assert world.known() is None


async def test_an_answer_that_comes_late_counts_from_then_on() -> None:
    world = World()
    assert world.pass_over() is True
    world.says = {ALICE: AGENT_INFO}
    assert not await world.confirm()
    assert world.known() is False


@pytest.mark.parametrize("then", [SILENCE, "service-unavailable"])
async def test_a_peer_stays_one_until_it_says_otherwise_itself(then: Condition) -> None:
    world = World()
    world.says = {ALICE: AGENT_INFO}
    assert await world.ask() is False
    world.says = {ALICE: then, ALICE.bare: then}
    world.now = 1000.0
    assert await world.ask() in (None, False)
    assert world.pass_over() is False
    assert world.known() is False
    world.now = 2000.0
    world.says = {ALICE: PERSON_INFO}
    assert await world.ask() is True


async def test_the_number_of_remembered_persons_is_bounded() -> None:
    world = World()
    for n in range(2_100):
        await world.ask(JID.parse(f"p{n}@a.example/x"))
    assert len(world.persons._known) <= 4_096


_SAID = st.sampled_from([AGENT_INFO, PERSON_INFO, SILENCE, "service-unavailable"])


@given(st.lists(st.tuples(_SAID, st.floats(0, 1500), st.booleans())))
async def test_whatever_comes_a_message_counts_as_what_was_said_last(
    steps: list[tuple[InfoQuery | Condition, float, bool]],
) -> None:
    world, last = World(), True
    for said, later, confirming in steps:
        world.now += later
        world.says = {ALICE: said, ALICE.bare: PERSON_INFO}
        before = len(world.asked)
        if confirming:
            await world.confirm()
        elif world.known() is None and await world.ask() is None:
            world.pass_over()
        if ALICE in world.asked[before:] and isinstance(said, InfoQuery):
            last = said is not AGENT_INFO
        assert world.known() in (last, None)
