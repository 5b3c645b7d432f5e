"""Who is asked before a skill runs."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from component.policy import Policy, Rule, When
from component.policy.persons import Persons
from component.skills import DeclarationError, Skill, skill
from component.tasks.gate import UNKNOWN, Approvers, risk_of
from component.tasks.request import CallerContext, Confirmation, Request
from xep.disco import Feature, Identity, InfoQuery
from xep.fluux_agent.confirm import Approvals, ApproverRoom
from xep.fluux_agent.errors import ConfirmationUnavailable
from xep.jid import JID
from xep.stanza_error import Condition, StanzaError

pytestmark = pytest.mark.anyio

AGENT = JID.parse("assistant@agent.a.example")
ALICE = JID.parse("alice@a.example/phone")
PEER = JID.parse("assistant@agent.b.example")
BOT = JID.parse("bot@a.example/x")
ROOM = JID.parse("room@rooms.a.example/nick")
SILENT = JID.parse("silent@a.example/x")
BOSS = JID.parse("boss@a.example")

AGENT_INFO = InfoQuery(features=(Feature(var="urn:fluux:agent:0"),))


@skill(name="erase")
def erase() -> None:
    """Erase."""


@skill(name="write", destructive=False)
def write() -> None:
    """Write."""


@skill(name="read", read_only=True)
def read() -> None:
    """Read."""


@skill(name="remind", undo="/forget it")
def remind(to: str = "") -> None:
    """Remind."""


def request_of(who: JID, **more: Any) -> Request:
    return Request(skill="any", principal=who.bare, requester=who, target=AGENT, **more)


def own_skill_for(principal: JID) -> Skill:
    """A skill whose calls are a person's own only if they are for her."""
    return dataclasses.replace(remind, own=lambda who, given: given.to in ("", str(principal)))


class World:
    def __init__(self, rules: Sequence[Rule] = (), confirm: When = "destructive") -> None:
        self.policy = Policy(allowed_domains=["*"], rules=rules, confirm=confirm)
        self.now = 0.0
        self.asked: list[JID] = []
        self.says: dict[JID, InfoQuery | Condition] = {
            PEER: AGENT_INFO,
            BOT: AGENT_INFO,
            ROOM.bare: InfoQuery(identities=(Identity(category="conference", type="text"),)),
            ALICE: InfoQuery(features=(Feature(var="urn:xmpp:ping"),)),
            SILENT: "remote-server-timeout",
            SILENT.bare: "remote-server-timeout",
        }
        self.persons = Persons(
            self.info, lambda who: who.domain == "agent.a.example", lambda: self.now
        )
        self.whom = Approvers(self.policy.asking, self.persons, 60.0)

    async def info(self, to: JID, from_: JID, /) -> InfoQuery:
        assert from_ == AGENT
        self.asked.append(to)
        said = self.says.get(to, "service-unavailable")
        if isinstance(said, str):
            raise StanzaError(said)
        return said

    async def __call__(self, who: JID, declared: Skill = erase) -> Confirmation | None:
        request = request_of(who)
        found = self.whom.at_once(request, declared)
        asked = await self.whom.find(request, declared)
        assert found in (asked, UNKNOWN)
        # What was answered is known from then on, without asking.
        if self.persons.known(who.bare, who) is not None:
            assert self.whom.at_once(request, declared) == asked
        return asked

    async def refused(self, who: JID, declared: Skill = erase) -> bool:
        with pytest.raises(StanzaError) as refused:
            await self(who, declared)
        assert refused.value.condition == "not-allowed"
        return refused.value.application == (ConfirmationUnavailable(),)


async def test_a_person_confirms_what_is_destructive() -> None:
    world = World()
    assert await world(ALICE) == Confirmation((ALICE.bare,), "high", 60.0)
    assert set(world.asked) == {ALICE, ALICE.bare}


@pytest.mark.parametrize("declared", [write, read])
async def test_what_is_harmless_asks_nobody(declared: Skill) -> None:
    world = World()
    assert not world.whom.needed(request_of(ALICE), declared)
    for who in (ALICE, PEER):
        assert await world(who, declared) is None
    assert world.asked == []


async def test_policy_can_have_everything_confirmed() -> None:
    world = World(confirm="always")
    assert await world(ALICE, read) == Confirmation((ALICE.bare,), "low", 60.0)
    assert await world(ALICE, write) == Confirmation((ALICE.bare,), "medium", 60.0)
    assert await world.refused(PEER, read)


@pytest.mark.parametrize("who", [PEER, BOT, ROOM])
async def test_who_says_it_is_none_is_no_person(who: JID) -> None:
    assert await World().refused(who)


@pytest.mark.parametrize(
    "who", ["agent.a.example", "b.example", "b.example/x", "other@agent.a.example"]
)
async def test_services_and_our_own_agents_are_no_persons(who: str) -> None:
    world = World()
    assert await world.refused(JID.parse(who))
    assert world.asked == []


async def test_never_holds_for_people_only() -> None:
    world = World(confirm="never")
    assert await world(ALICE) is None
    assert await world.refused(PEER)
    assert await world(PEER, write) is None


def test_what_can_be_undone_is_not_destructive() -> None:
    assert not remind.annotations.destructive
    with pytest.raises(DeclarationError, match="says how it is undone, and is destructive"):
        skill(name="wipe", undo="/unwipe", destructive=True)(erase.function)


OWN = [
    CallerContext("", asker="caller"),
    CallerContext("assistant", asker="model"),
    CallerContext("assistant", asker="model", taints=("person",)),
]
NOT_OWN: list[dict[str, Any]] = [
    {"caller_context": CallerContext("assistant", asker="model", taints=("person", "web"))},
    {"caller_context": CallerContext("assistant", asker="misled model")},
    {"caller_context": CallerContext("assistant", asker="model", unrequested=True)},
    {"caller_context": CallerContext("assistant", asker="model", operator="operator")},
    {"origin": "child"},
    {"origin": "trigger"},
]


@pytest.mark.parametrize("context", OWN)
async def test_a_person_does_not_confirm_what_she_can_undo(context: CallerContext) -> None:
    world = World()
    request = request_of(ALICE, caller_context=context)
    assert await world.whom.find(request, remind) is None
    with pytest.raises(StanzaError):
        await world.whom.find(request_of(PEER, caller_context=context), remind)


@pytest.mark.parametrize("more", NOT_OWN)
async def test_she_confirms_what_she_may_not_have_asked_for(more: dict[str, Any]) -> None:
    found = await World().whom.find(request_of(ALICE, **more), remind)
    assert found == Confirmation((ALICE.bare,), "medium", 60.0)


@pytest.mark.parametrize("to", ["", "alice@a.example", "bob@a.example"])
async def test_she_confirms_what_affects_somebody_else(to: str) -> None:
    request = request_of(ALICE, json=msgspec.Raw(msgspec.json.encode({"to": to})))
    found = await World().whom.find(request, own_skill_for(ALICE.bare))
    assert (found is None) == (to != "bob@a.example")


async def test_policy_can_have_confirmed_what_can_be_undone() -> None:
    asked = Confirmation((ALICE.bare,), "medium", 60.0)
    assert await World(confirm="always")(ALICE, remind) == asked
    assert await World([Rule(("remind",), confirm="always")])(ALICE, remind) == asked
    boss = World([Rule(("remind",), approvers=("boss@a.example",))])
    assert await boss(ALICE, remind) == Confirmation((BOSS,), "medium", 60.0)


async def test_approvers_are_asked_in_anybodys_place() -> None:
    world = World([Rule(("erase",), approvers=("boss@a.example", "chef@a.example"))])
    asked = (BOSS, JID.parse("chef@a.example"))
    for who in (ALICE, PEER, JID.parse("b.example")):
        assert await world(who) == Confirmation(asked, "high", 60.0)
    assert world.asked == []  # nobody is asked what they are without need


async def test_approvers_with_never() -> None:
    world = World([Rule(("erase",), confirm="never", approvers=("boss@a.example",))])
    assert await world(ALICE) is None
    assert await world(PEER) == Confirmation((BOSS,), "high", 60.0)


async def test_answers_are_remembered_for_a_time() -> None:
    world = World()
    for _ in range(3):
        await world(ALICE)
        await world.refused(BOT)
    assert len(world.asked) == 4
    world.now = 600.0
    await world(ALICE)
    assert len(world.asked) == 6


async def test_silence_is_a_persons_and_is_not_remembered() -> None:
    world = World()
    assert await world(SILENT) is not None
    assert await world(SILENT) is not None
    assert len(world.asked) == 4
    world.says[SILENT] = AGENT_INFO
    assert await world.refused(SILENT)


async def test_who_was_passed_over_in_a_conversation_is_asked_before_a_confirmation() -> None:
    world = World()
    assert world.persons.passed_over(BOT.bare, BOT)
    assert await world.refused(BOT)
    assert BOT in world.asked


async def test_the_risk_is_what_the_skill_says() -> None:
    assert [risk_of(each) for each in (erase, write, read)] == ["high", "medium", "low"]


ROOM_RULE = ("room:ops@rooms.example", "boss@a.example")
OTHERS = (BOSS,)


async def test_a_room_and_how_many_are_part_of_what_is_demanded() -> None:
    world = World(rules=[Rule(("*",), approvers=ROOM_RULE, affiliation="admin", need=2)])
    room = ApproverRoom(jid=JID.parse("ops@rooms.example"), affiliation="admin")
    expected = Confirmation(OTHERS, "high", 60.0, Approvals(need=2, room=room))
    # An agent that asks is no reason to ask somebody else.
    assert await world(ALICE) == await world(PEER) == expected
    assert not expected.is_only_of(OTHERS[0])


async def test_the_requester_is_not_among_those_who_are_asked() -> None:
    names = ("boss@a.example", str(ALICE.bare))
    rule = Rule(("*",), approvers=names, need=1, not_requester=True)
    world = World(rules=[rule])
    found = await world(ALICE)
    assert found == Confirmation(OTHERS, "high", 60.0, Approvals(requester=False))
    rule = Rule(("*",), approvers=names, need=2, not_requester=True)
    assert await World(rules=[rule]).refused(ALICE)


@pytest.mark.parametrize("origin", ["iq", "message", "command", "tool", "child", "trigger"])
@pytest.mark.parametrize("asker", ["caller", "model", "misled model", "approved"])
async def test_every_origin_needs_the_same_approvals(origin: Any, asker: Any) -> None:
    world = World(rules=[Rule(("*",), approvers=("boss@a.example", "b@a.example"), need=2)])
    context = CallerContext("assistant", asker=asker)
    request = msgspec.structs.replace(request_of(ALICE), origin=origin, caller_context=context)
    assert world.whom.needed(request, erase)
    found = await world.whom.find(request, erase)
    assert found is not None
    assert found.approvals == Approvals(need=2)
    assert len(found.asked) == 2
