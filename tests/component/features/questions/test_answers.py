"""Answers in chat and by IQ, judged for real on a database in memory."""

import json
from typing import Any

import pytest

from tests.component.features.questions.chat_world import ALICE, BOB, HINT, World
from tests.component.link.router.wire import AGENT, DOMAIN, condition, element, error_of
from tests.component.tasks.ledger import NOON
from xep.fluux_agent.confirm import Decision
from xep.hashes import Hash
from xep.jid import JID

pytestmark = pytest.mark.anyio

CAROL = JID.parse("carol@c.example")


@pytest.fixture
def world(chat: World) -> World:
    return chat


# -- by IQ ---------------------------------------------------------------------------------------


async def test_a_decision_by_iq(world: World) -> None:
    world.confirm("t1")
    for _ in range(2):
        reply = await world.send(Decision(id="c-t1", value="deny", reason="Not now."))
        assert reply.get("type") == "result"
        assert len(reply) == 0
    assert "Not now." in world.failure("t1")
    reply = await world.send(Decision(id="c-t1", value="approve"))
    assert condition(reply) == "conflict"
    assert "urn:fluux:agent:0#confirm" in world.bench.router.table.features("agent")


async def test_unknown_and_foreign_are_the_same_bytes(world: World) -> None:
    world.confirm("t1")
    replies = [
        await world.send(Decision(id="c-t1", value="approve"), from_=BOB),
        await world.send(Decision(id="c-9", value="approve"), from_=BOB),
        await world.send(Decision(id="c-t1", value="approve", reason="x"), from_=BOB),
    ]
    assert {condition(reply) for reply in replies} == {"item-not-found"}
    assert len(set(world.bench.output.sent)) == 1


async def test_a_database_that_refuses_is_told_as_such(world: World) -> None:
    world.confirm("t1")
    world.broken = True
    error = error_of(await world.send(Decision(id="c-t1", value="approve")))
    assert (error.condition, error.type) == ("resource-constraint", "wait")
    assert "error on my side" in (await world.say("yes") or "")
    world.broken = False
    assert world.state("t1") == "input-required"


# -- by a selected action ------------------------------------------------------------------------


async def test_a_button_approves_or_denies_its_question(world: World) -> None:
    world.confirm("t1")
    world.confirm("t2")
    assert await world.press("approve:c-t1") == "Approved."
    assert await world.press("deny:c-t2") == "Denied."
    assert (world.state("t1"), world.state("t2")) == ("accepted", "failed")
    assert await world.press("approve:c-t1") == "Approved."
    assert "differently" in (await world.press("deny:c-t1") or "")


@pytest.mark.parametrize("identifier", ["approve:", "approve", "c-t1", "other:c-t1", ""])
async def test_other_buttons_are_not_ours(world: World, identifier: str) -> None:
    world.confirm("t1")
    assert await world.press(identifier) is None
    assert world.state("t1") == "input-required"


async def test_a_button_of_somebody_else_decides_nothing(world: World) -> None:
    world.confirm("t1")
    said = await world.press("approve:c-t1", from_=BOB)
    assert said == await world.press("approve:c-nothing", from_=BOB)
    assert world.state("t1") == "input-required"


# -- in words ------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", ["yes", " YES! ", "y"])
@pytest.mark.parametrize("thread", [None, "t1", "another"])
async def test_the_only_question(world: World, body: str, thread: str | None) -> None:
    world.confirm("t1")
    assert await world.say(body, thread=thread) == 'Approved: report: topic: "rivers".'
    assert world.state("t1") == "accepted"


@pytest.mark.parametrize("to", [AGENT, f"{AGENT}/x"])
async def test_no_with_a_reason(world: World, to: str) -> None:
    world.confirm("t1")
    assert (await world.say("No, only the old ones.", to=to) or "").startswith("Denied")
    assert "only the old ones." in world.failure("t1")


@pytest.mark.parametrize("body", ["no", "/deny {id}"])
@pytest.mark.parametrize(
    "more",
    [
        "<subject>Re: deletion</subject>",
        "<sarcasm xmlns='urn:example:tone'/>",
        "<replace xmlns='urn:xmpp:message-correct:0' id='m0'/>",
        "<body xml:lang='fr'>oui</body>",
    ],
)
async def test_a_no_counts_whatever_else_the_message_has(
    world: World, body: str, more: str
) -> None:
    id_ = world.confirm("t1")
    said = await world.say(body.replace("{id}", id_), more=more)
    assert (said or "").startswith("Denied")
    assert world.state("t1") == "failed"


async def test_a_yes_that_goes_on_decides_nothing_and_is_told_so(world: World) -> None:
    world.confirm("t1")
    assert "I haven't done it" in (await world.say("yes but only old ones") or "")
    assert world.state("t1") == "input-required"


async def test_the_thread_names_the_question(world: World) -> None:
    world.confirm("t1", thread="one")
    world.confirm("t2", thread="two")
    assert (await world.say("no", thread="two") or "").startswith("Denied")
    assert (world.state("t1"), world.state("t2")) == ("input-required", "failed")


@pytest.mark.parametrize("thread", [None, "another", "both"])
async def test_of_several_it_asks_which(world: World, thread: str | None) -> None:
    world.confirm("t1", thread="both", asked=(ALICE, CAROL), principal=CAROL)
    world.confirm("t2", thread="both")
    said = await world.say("yes", thread=thread) or ""
    assert said.startswith("I have several questions open with you. Which one do you mean?")
    assert len(said.splitlines()) == 3
    assert 'for carol@c.example: report: topic: "rivers", asked 10 seconds ago' in said
    assert "for alice@a.example, asked 5 seconds ago" in said
    assert "(/approve c-t1 or /deny c-t1)" in said
    assert {world.state("t1"), world.state("t2")} == {"input-required"}


@pytest.mark.parametrize("thread", [None, "another", "both"])
async def test_of_several_of_ones_own_the_newest_is_meant(world: World, thread: str | None) -> None:
    world.confirm("t1", thread="both")
    world.confirm("t2", thread="both")
    assert (await world.say("yes", thread=thread) or "").startswith("Approved")
    assert (world.state("t1"), world.state("t2")) == ("input-required", "accepted")


@pytest.mark.parametrize("of_operator", ["t1", "t2"])
async def test_what_an_operator_had_asked_is_none_of_ones_own(
    world: World, of_operator: str
) -> None:
    for task in ("t1", "t2"):
        world.confirm(task, operator="boss@a.example" if task == of_operator else "")
    said = await world.say("yes") or ""
    assert "not sure" in said or "Which one do you mean?" in said
    assert "requested by my operator boss@a.example" in said
    assert {world.state("t1"), world.state("t2")} == {"input-required"}


async def test_the_newest_has_to_stand_for_a_while_too(world: World) -> None:
    world.confirm("t1")
    world.confirm("t2", read=False)
    world.ledger.now += 2_999
    assert "only a moment ago" in (await world.say("yes") or "")
    assert {world.state("t1"), world.state("t2")} == {"input-required"}


async def test_no_newest_is_meant_beside_one_that_was_closed(world: World) -> None:
    world.confirm("t1")
    world.confirm("t2")
    world.confirm("t3")
    world.withdraw("t2")
    assert "not sure" in (await world.say("yes") or "")
    assert {world.state("t1"), world.state("t3")} == {"input-required"}


async def test_equal_questions_are_told_apart(world: World) -> None:
    for number in range(3):
        world.confirm(f"t{number}", asked=(ALICE, CAROL), principal=CAROL)
    lines = (await world.say("yes") or "").splitlines()[1:]
    assert len(set(lines)) == 3


async def test_a_command_names_the_question(world: World) -> None:
    for number in range(1, 4):
        world.confirm(f"t{number}0")
    assert "Which one" in (await world.say("/approve c-t") or "")
    assert (await world.say("/approve c-t1") or "").startswith("Approved")
    assert (await world.say("/deny c-t20 too late") or "").startswith("Denied")
    assert "too late" in world.failure("t20")
    assert "nothing after it" in (await world.say("/approve c-t30 but slowly") or "")
    assert world.state("t30") == "input-required"
    assert "another question" in (await world.say("/approve c-t1") or "")
    assert await world.say("/approve c-t1", from_=BOB) == "I have no question open with you."


async def test_what_is_no_answer_is_talk(world: World) -> None:
    world.confirm("t1")
    assert HINT in (await world.say("hello") or "")
    assert "/help" in (await world.say("/unknown") or "")
    assert world.state("t1") == "input-required"
    assert HINT in (await world.say("yes", from_=BOB) or "")


async def test_a_slash_command_does_not_look_for_questions(world: World) -> None:
    await world.say("/unknown")
    assert world.looked == 0


MUC = "<x xmlns='http://jabber.org/protocol/muc#user'/>"
DELAY = "<delay xmlns='urn:xmpp:delay' stamp='2026-11-21T10:00:00Z'/>"
FORWARDED = "<forwarded xmlns='urn:xmpp:forward:0'><message xmlns='jabber:client'/></forwarded>"
CARBON = f"<received xmlns='urn:xmpp:carbons:2'>{FORWARDED}</received>"


@pytest.mark.parametrize("more", [MUC, DELAY, "<delay xmlns='urn:xmpp:delay'/>", FORWARDED, CARBON])
async def test_what_is_late_copied_or_from_a_room_decides_nothing(world: World, more: str) -> None:
    world.confirm("t1")
    world.input("t2")
    await world.say("yes", thread="t1", more=more)
    await world.say("Rhine", thread="t2", more=more)
    selected = "<action-selected xmlns='urn:xmpp:tmp:quick-response' id='approve:c-t1'/>"
    await world.say(None, more=selected + more)
    assert {world.state("t1"), world.state("t2")} == {"input-required"}
    assert world.looked == 0


@pytest.mark.parametrize("type_", ["groupchat", "error", "headline"])
async def test_other_types_decide_nothing(world: World, type_: str) -> None:
    world.confirm("t1")
    assert await world.say("yes", type_=type_) is None
    assert await world.press("approve:c-t1", type_=type_) is None
    assert world.state("t1") == "input-required"


async def test_an_answer_inside_a_forwarded_message_is_not_seen(world: World) -> None:
    world.confirm("t1")
    inner = "<message xmlns='jabber:client' type='chat'><body>yes</body></message>"
    wrapped = f"<forwarded xmlns='urn:xmpp:forward:0'>{inner}</forwarded>"
    assert await world.say(None, more=wrapped) is None
    assert world.state("t1") == "input-required"


async def test_what_an_agent_says_to_an_agent_is_no_talk(world: World) -> None:
    world.input("t1")
    event = "<task xmlns='urn:fluux:agent:0#task' id='t-9'/>"
    assert await world.say("Which river?", more=event, type_="normal") is None
    assert world.state("t1") == "input-required"


async def test_a_late_word_is_told_to_be_late(world: World) -> None:
    world.confirm("t1")
    world.ledger.now += 60_000
    assert "lapsed" in (await world.press("approve:c-t1") or "")
    assert "confirmation-expired" in world.failure("t1")
    assert HINT in (await world.say("yes") or "")  # nothing is open any more


async def test_a_question_is_answered_at_the_other_address_of_the_agent(world: World) -> None:
    world.confirm("t1")
    assert await world.say("yes", to=DOMAIN) == 'Approved: report: topic: "rivers".'
    assert world.state("t1") == "accepted"


# -- inputs in words -----------------------------------------------------------------------------


async def test_a_text_answers_the_only_input(world: World) -> None:
    world.input("t1")
    assert "longer than 9 characters" in (await world.say("Rhein und Donau") or "")
    assert world.state("t1") == "input-required"
    assert await world.say(" Rhine ") == "Thank you, I'll continue."
    assert world.state("t1") == "accepted"
    ((result,),) = world.ledger.execute("SELECT result FROM journal").fetchall()
    assert json.loads(result) == {"value": {"river": "Rhine"}}


@pytest.mark.parametrize(
    ("schema", "body", "value"),
    [
        ({"type": "integer"}, "42", 42),
        ({"type": "number"}, "4.5", 4.5),
        ({"type": "boolean"}, "Yes.", True),
        ({"type": "boolean"}, "no", False),
        ({"enum": ["Small", "Large"]}, "large", "Large"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "1", 1),
    ],
)
async def test_words_become_values(
    world: World, schema: dict[str, Any], body: str, value: object
) -> None:
    world.input("t1", {"type": "object", "properties": {"it": schema}, "required": ["it"]})
    assert await world.say(body) == "Thank you, I'll continue."
    ((result,),) = world.ledger.execute("SELECT result FROM journal").fetchall()
    assert json.loads(result) == {"value": {"it": value}}


LUNCH = {
    "type": "object",
    "properties": {
        "dish": {"enum": ["nothing", "salad", "soup of the day"]},
        "portions": {"type": "integer", "default": 1},
        "note": {"type": "string", "default": ""},
    },
    "required": ["dish"],
}
TRIP: dict[str, Any] = {
    "type": "object",
    "properties": {
        "river": {"type": "string"},
        "days": {"type": "integer"},
        "boat": {"type": "boolean", "default": False},
    },
    "required": ["river", "days"],
}


def given(world: World) -> object:
    """The values that the skill is given."""
    ((result,),) = world.ledger.execute("SELECT result FROM journal").fetchall()
    return json.loads(result)["value"]


@pytest.mark.parametrize(
    ("words", "value"),
    [
        ("Salad", {"dish": "salad"}),
        ("soup of the day", {"dish": "soup of the day"}),
        ("salad 2", {"dish": "salad", "portions": 2}),
        (
            "soup of the day 2 no salt",
            {"dish": "soup of the day", "portions": 2, "note": "no salt"},
        ),
    ],
)
@pytest.mark.parametrize("before", ["", "/answer ", "/answer q-t1 "])
async def test_one_value_is_needed_and_others_may_follow(
    world: World, before: str, words: str, value: object
) -> None:
    world.input("t1", LUNCH)
    assert await world.say(f"{before}{words}") == "Thank you, I'll continue."
    assert given(world) == value


@pytest.mark.parametrize("words", ["two salads", "salad and a beer", "salad " * 60])
async def test_words_that_are_no_such_values_are_told_what_is_expected(
    world: World, words: str
) -> None:
    world.input("t1", LUNCH)
    said = await world.say(words) or ""
    assert (
        said == "I can't accept that answer: dish: expected one of nothing, salad, soup of the day."
        " To decline, say cancel."
    )
    assert world.state("t1") == "input-required"


async def test_a_text_is_the_whole_text_though_a_number_might_follow_it(world: World) -> None:
    properties = {"river": {"type": "string"}, "days": {"type": "integer", "default": 1}}
    world.input("t1", {"type": "object", "properties": properties, "required": ["river"]})
    assert await world.say("Rhine 2") == "Thank you, I'll continue."
    assert given(world) == {"river": "Rhine 2"}


@pytest.mark.parametrize(
    ("words", "value"),
    [
        ("Rhine 3", {"river": "Rhine", "days": 3}),
        ("White Nile 3 yes", {"river": "White Nile", "days": 3, "boat": True}),
    ],
)
@pytest.mark.parametrize("before", ["/answer ", "/answer q-t1 "])
async def test_several_values_are_given_in_their_order_by_the_command(
    world: World, before: str, words: str, value: object
) -> None:
    world.input("t1", TRIP)
    assert HINT in (await world.say(words) or "")  # not by the words alone
    assert await world.say(before + words) == "Thank you, I'll continue."
    assert given(world) == value


@pytest.mark.parametrize("words", ["Rhine", "3", "Rhine soon", "Rhine 3 4 5"])
async def test_values_that_cannot_be_told_apart_are_not_guessed(world: World, words: str) -> None:
    two = {"type": "string"}
    schema = {
        "properties": TRIP["properties"] | {"last": two},
        "required": [*TRIP["required"], "last"],
    }
    world.input("t1", {"type": "object", **schema})
    said = await world.say(f"/answer {words}") or ""
    assert "expected river, days, last, boat in this order" in said
    assert world.state("t1") == "input-required"


async def test_what_words_cannot_say_is_left_to_the_form(world: World) -> None:
    several = {"type": "array", "items": {"type": "string"}}
    world.input("t1", {"type": "object", "properties": {"a": several}, "required": ["a"]})
    assert HINT in (await world.say("Rhine") or "")
    assert "only be answered with its form" in (await world.say("/answer q-t1 Rhine") or "")
    assert world.state("t1") == "input-required"


async def test_the_command_alone_answers_no_question_that_it_may_not_mean(world: World) -> None:
    world.input("t1")
    assert "another question" in (await world.say("/answer 3f9a Rhine") or "")  # a late answer
    assert await world.say("/answer") == "Write /answer q-t1 and the answer, or /deny q-t1."
    world.input("t2", TRIP)
    said = await world.say("/answer Rhine") or ""
    assert "Which one" in said
    assert "(/answer q-t2 river, days, boat or /deny q-t2)" in said
    assert {world.state("t1"), world.state("t2")} == {"input-required"}
    assert await world.say("/answer Rhine 3", thread="t2") == "Thank you, I'll continue."


async def test_an_input_and_a_confirmation_are_told_apart_by_thread_or_name(world: World) -> None:
    world.input("t1")
    world.confirm("t2")
    assert "Which one" in (await world.say("Rhine") or "")
    assert await world.say("Rhine", thread="t1") == "Thank you, I'll continue."
    world.input("t3")
    assert "/answer q-t3" in (await world.say("yes") or "")
    for said in ("/approve q-t3", "/approve q-t3 Rhine", "/answer q-t3"):
        assert "Write /answer" in (await world.say(said) or "")
    assert "Write /approve" in (await world.say("/answer c-t2 yes") or "")
    assert await world.say("/answer q-t3 Rhine") == "Thank you, I'll continue."
    assert world.state("t2") == "input-required"


async def test_a_wrong_digest_by_iq_decides_nothing(world: World) -> None:
    world.confirm("t1")
    wrong = Decision(id="c-t1", value="approve", hash=Hash(algo="sha-256", digest=b"x" * 32))
    assert condition(await world.send(wrong)) == "conflict"
    assert world.state("t1") == "input-required"


# -- too late ------------------------------------------------------------------------------------


async def test_who_answers_too_late_in_words_is_told_so(world: World) -> None:
    world.confirm("t1")
    world.confirm("t2", asked=(JID.parse("bob@a.example"),))
    world.ledger.now = NOON + 60_000
    for body in ("yes", "No, leave it."):
        said = await world.say(body, thread="t1")
        assert said is not None
        assert "is closed" in said
    assert world.state("t1") == "input-required"  # it lapses by its timer, not by being asked about
    for thread in ("t2", "t3", None):  # another's, nobody's, none named
        said = await world.say("yes", thread=thread)
        assert said is None or "is closed" not in said
    assert "is closed" not in (await world.say("And how are you?", thread="t1") or "")


async def test_who_answers_a_second_time_in_words_is_told_so(world: World) -> None:
    world.confirm("t1")
    assert await world.say("no", thread="t1") is not None
    assert "is closed" in (await world.say("yes", thread="t1") or "")
    assert world.state("t1") == "failed"


# -- reactions (CNF-053, CNF-054) ----------------------------------------------------------------


def reacts(to: str, *emoji: str) -> str:
    inside = "".join(element("reaction", one) for one in emoji)
    return element("reactions", inside, xmlns="urn:xmpp:reactions:0", id=to)


UP, DOWN, PARTY = "\U0001f44d", "\U0001f44e", "\U0001f389"


@pytest.mark.parametrize(
    ("emoji", "state", "said"),
    [
        ((UP,), "accepted", "Approved"),
        ((UP + "\U0001f3fe",), "accepted", "Approved"),
        ((UP, PARTY), "accepted", "Approved"),
        ((DOWN,), "failed", "Denied"),
        ((UP, DOWN), "failed", "Denied"),
        ((PARTY,), "input-required", None),
        ((), "input-required", None),
    ],
)
async def test_a_reaction_answers_the_question_it_names(
    chat: World, emoji: tuple[str, ...], state: str, said: str | None
) -> None:
    chat.confirm("t1")
    chat.confirm("t2")
    told = await chat.say(None, more=reacts("c-t1", *emoji))
    assert told == said or (said is not None and told is not None and told.startswith(said))
    assert (chat.state("t1"), chat.state("t2")) == (state, "input-required")


async def test_a_withdrawn_reaction_changes_nothing_that_was_decided(chat: World) -> None:
    chat.confirm("t1")
    await chat.say(None, more=reacts("c-t1", UP))
    assert await chat.say(None, more=reacts("c-t1")) is None
    assert chat.state("t1") == "accepted"
    assert "closed" in (await chat.say(None, more=reacts("c-t1", DOWN)) or "")
    assert chat.state("t1") == "accepted"


async def test_a_reaction_to_something_else_is_no_answer(chat: World) -> None:
    chat.confirm("t1")
    assert await chat.say(None, more=reacts("m-7", UP)) is None
    assert chat.state("t1") == "input-required"


@pytest.mark.parametrize(
    ("body", "more", "type_"),
    [
        ("yes", "", "chat"),
        (None, "<delay xmlns='urn:xmpp:delay' stamp='2026-01-01T00:00:00Z'/>", "chat"),
        (None, "<forwarded xmlns='urn:xmpp:forward:0'/>", "chat"),
        (None, "<x xmlns='http://jabber.org/protocol/muc#user'/>", "chat"),
        (None, "<replace xmlns='urn:xmpp:message-correct:0' id='m0'/>", "chat"),
        (None, reacts("c-t2", UP), "chat"),
        (None, "", "error"),
        (None, "", "groupchat"),
    ],
)
async def test_a_reaction_in_doubt_decides_nothing(
    chat: World, body: str | None, more: str, type_: str
) -> None:
    chat.confirm("t1")
    chat.confirm("t2")
    await chat.say(body, more=reacts("c-t1", UP) + more, type_=type_)
    assert (chat.state("t1"), chat.state("t2")) == ("input-required", "input-required")


async def test_the_fallback_of_a_reaction_says_nothing(chat: World) -> None:
    chat.confirm("t1")
    fallback = "<fallback xmlns='urn:xmpp:fallback:0' for='urn:xmpp:reactions:0'/>"
    told = await chat.say(f"> May I?\n{UP}", more=reacts("c-t1", UP) + fallback)
    assert (told or "").startswith("Approved")
