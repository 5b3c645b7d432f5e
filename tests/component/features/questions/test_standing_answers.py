"""The answer *always*, in every way in which a question can be answered."""

import pytest

from component.task_messages.spoken_answers import says_always
from component.tasks import standing_rows
from tests.component.features.questions.chat_world import ALICE, AT, HINT, World
from tests.component.link.router.wire import condition, element
from xep.fluux_agent.confirm import Confirm, Decision

pytestmark = pytest.mark.anyio


@pytest.fixture
def world(chat: World) -> World:
    return chat


def given(world: World) -> int:
    return len(standing_rows.listed(world.ledger, None, None))


@pytest.mark.parametrize(
    "body", ["always", "Always!", " ALWAYS. ", "yes, always", "yes always please", "always, thanks"]
)
async def test_always_accepts_the_offer(world: World, body: str) -> None:
    world.confirm("t1", offers=True)
    said = await world.say(body) or ""
    assert said.startswith("Approved: ")
    assert "I will not ask again for the same; /approvals lists" in said
    assert world.state("t1") == "accepted"
    assert given(world) == 1


@pytest.mark.parametrize(
    "body", ["always?", "always ask me", "not always", "always…", "yes, but not always", "alway"]
)
async def test_what_is_more_than_always_approves_nothing(world: World, body: str) -> None:
    world.confirm("t1", offers=True)
    await world.say(body)
    assert world.state("t1") != "accepted"
    assert given(world) == 0


async def test_a_yes_to_an_offer_approves_the_action_alone(world: World) -> None:
    world.confirm("t1", offers=True)
    world.confirm("t2", offers=True)
    assert await world.press("approve:c-t1") == "Approved."
    thumb = "<reactions xmlns='urn:xmpp:reactions:0' id='c-t2'><reaction>👍</reaction></reactions>"
    await world.say(None, more=thumb)
    assert (world.state("t1"), world.state("t2")) == ("accepted", "accepted")
    assert given(world) == 0


async def test_without_an_offer_always_is_a_message_to_the_agent(world: World) -> None:
    world.confirm("t1")
    assert HINT in (await world.say("always") or "")
    assert "Write just /approve" in (await world.say("/approve c-t1 always") or "")
    assert "offers no standing approval" in (await world.press("always:c-t1") or "")
    decision = Decision(id="c-t1", value="approve", standing=True)
    assert condition(await world.send(decision)) == "conflict"
    assert world.state("t1") == "input-required"
    assert given(world) == 0


async def test_a_button_accepts_the_offer(world: World) -> None:
    world.confirm("t1", offers=True)
    body = element("body", "yes")
    selected = element("action-selected", xmlns="urn:xmpp:tmp:quick-response", id="always:c-t1")
    assert "also says something else" in (await world.say(None, more=body + selected) or "")
    said = await world.press("always:c-t1") or ""
    assert "I will not ask again" in said
    assert (world.state("t1"), given(world)) == ("accepted", 1)


async def test_a_command_accepts_the_offer_by_the_identifier(world: World) -> None:
    world.confirm("t1", offers=True)
    world.confirm("t2", offers=True)
    assert "I will not ask again" in (await world.say("/approve c-t1 always") or "")
    assert (world.state("t1"), world.state("t2")) == ("accepted", "input-required")


async def test_a_program_accepts_the_offer_with_its_digest(world: World) -> None:
    world.confirm("t1", offers=True)
    (question,) = await world.open_questions(ALICE, AT)
    assert isinstance(question.content, Confirm)
    assert question.content.standing is not None
    wrong = Decision(id="c-t1", value="approve", standing=True, hash=question.content.hash)
    assert condition(await world.send(wrong)) == "conflict"
    denial = Decision(id="c-t1", value="deny", standing=True)
    assert condition(await world.send(denial)) == "bad-request"
    assert given(world) == 0
    offer = question.content.standing.hash
    for _ in range(2):
        reply = await world.send(Decision(id="c-t1", value="approve", standing=True, hash=offer))
        assert reply.get("type") == "result"
    assert (world.state("t1"), given(world)) == ("accepted", 1)


async def test_always_has_to_be_as_certain_as_a_yes(world: World) -> None:
    world.confirm("t1", offers=True, read=False)
    assert "please say *always* again" in (await world.say("always") or "")
    assert (world.state("t1"), given(world)) == ("input-required", 0)


async def test_a_no_says_what_it_has_ended(world: World) -> None:
    world.confirm("t1", offers=True)
    await world.say("always")
    world.confirm("t2")
    said = await world.say("no, not that")
    assert said is not None
    assert "What you had allowed for the same is revoked" in said
    assert given(world) == 0


@pytest.mark.parametrize("text", ["", "yes", "no", "no, always", "y", "yes, and always", "ok"])
def test_other_words_accept_no_offer(text: str) -> None:
    assert not says_always(text)
