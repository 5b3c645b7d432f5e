"""People decline questions in their own words, and talk to the agent while one is open."""

import json
from typing import Any

import pytest

from tests.component.features.questions.chat_world import BOB, HINT, World
from tests.component.features.questions.test_certainty import reply_to
from xep.reactions import NAMESPACE as REACTIONS

pytestmark = pytest.mark.anyio


def _object(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {"it": schema}, "required": ["it"]}


SIZE = _object({"enum": ["small", "large", "medium"]})
TITLED = _object({"oneOf": [{"const": "p1", "title": "High"}, {"const": "p2", "title": "Low"}]})
SEVERAL = _object({"type": "array", "items": {"enum": ["milk", "sugar"]}})
NUMBER = _object({"type": "integer"})
DATE = _object({"type": "string", "format": "date"})
TEXT = _object({"type": "string"})
FLAG = _object({"type": "boolean"})
FORM = _object({"type": "array", "items": {"type": "object"}})

WAYS = (
    "no",
    "No.",
    "nope!",
    "no thanks",
    "No, thank you!",
    "cancel",
    "Never mind.",
    "I\u2019d rather not",
    "sorry, not now",
    "/deny",
    "/deny {id}",
    "reaction",
)
"""Twelve ways to say no; the last one is a thumb that points down."""


async def decline(chat: World, id_: str, way: str) -> str:
    if way == "reaction":
        down = (
            f"<reactions xmlns='{REACTIONS}' id='{id_}'><reaction>\U0001f44e</reaction></reactions>"
        )
        return await chat.say(None, more=down) or ""
    return await chat.say(way.replace("{id}", id_)) or ""


def recorded(chat: World) -> Any:
    ((result,),) = chat.ledger.execute("SELECT result FROM journal").fetchall()
    return json.loads(result)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("schema", [SIZE, TITLED, SEVERAL, NUMBER, DATE, FORM])
async def test_each_question_is_declined_in_each_way(
    chat: World, schema: dict[str, Any], way: str
) -> None:
    id_ = chat.input("t1", schema)
    assert await decline(chat, id_, way) == "Declined. Which river?"
    assert recorded(chat) == {"declined": ""}
    assert chat.state("t1") == "accepted"  # the skill goes on, and is told


@pytest.mark.parametrize("way", WAYS)
async def test_a_confirmation_is_denied_in_each_way(chat: World, way: str) -> None:
    id_ = chat.confirm("t1")
    assert (await decline(chat, id_, way)).startswith("Denied")
    assert "denied" in chat.failure("t1")


@pytest.mark.parametrize("way", [way for way in WAYS if not way.casefold().startswith("no")])
@pytest.mark.parametrize("schema", [TEXT, FLAG])
async def test_a_phrase_declines_a_question_that_no_answers(
    chat: World, schema: dict[str, Any], way: str
) -> None:
    id_ = chat.input("t1", schema)
    said = await decline(chat, id_, way)
    if schema is FLAG and way == "reaction":
        assert recorded(chat) == {"value": {"it": False}}
        return
    assert said == "Declined. Which river?"
    assert recorded(chat) == {"declined": ""}


@pytest.mark.parametrize(
    ("schema", "said", "value"),
    [
        (FLAG, "no", False),
        (FLAG, "No, he knows it already.", False),
        (TEXT, "no", "no"),
        (TEXT, "No, I have no wishes", "No, I have no wishes"),
        (_object({"enum": ["yes", "no", "cancel"]}), "no", "no"),
        (_object({"enum": ["yes", "no", "cancel"]}), "cancel", "cancel"),
        (_object({"enum": ["never mind"]}), "Never mind", "never mind"),
    ],
)
async def test_no_is_an_answer_where_the_schema_accepts_it(
    chat: World, schema: dict[str, Any], said: str, value: object
) -> None:
    chat.input("t1", schema)
    assert await chat.say(said) == "Thank you, I'll continue."
    assert recorded(chat) == {"value": {"it": value}}


@pytest.mark.parametrize(
    "said", ["No, I will measure it myself.", "no - I will measure it myself.", "/deny {id} {why}"]
)
async def test_the_skill_is_told_why(chat: World, said: str) -> None:
    why = "I will measure it myself."
    id_ = chat.input("t1", NUMBER)
    await chat.say(said.replace("{id}", id_).replace("{why}", why))
    assert recorded(chat) == {"declined": why}


TALK = (
    "what is the weather?",
    "tell me a joke about rivers",
    "no idea, what do you recommend?",
    "hello",
)


@pytest.mark.parametrize("said", TALK)
@pytest.mark.parametrize("schema", [SIZE, TITLED, SEVERAL, NUMBER, DATE, FORM, FLAG])
async def test_what_is_no_answer_goes_to_the_agent_and_the_question_stays_open(
    chat: World, schema: dict[str, Any], said: str
) -> None:
    chat.input("t1", schema)
    reply = await chat.say(said)
    assert reply is None or reply.startswith(HINT)
    assert chat.state("t1") == "input-required"
    await chat.say("never mind")
    assert recorded(chat) == {"declined": ""}


async def test_a_question_answers_a_question_for_any_text_only_by_name(chat: World) -> None:
    id_ = chat.input("t1", TEXT)
    said = "Are you coming tomorrow?"
    assert HINT in (await chat.say(said) or "")
    assert await chat.say(said, more=reply_to(id_)) == "Thank you, I'll continue."
    assert recorded(chat) == {"value": {"it": said}}


@pytest.mark.parametrize(
    ("schema", "said"),
    [(SIZE, "huge"), (SIZE, "the large one"), (NUMBER, "about 7"), (DATE, "soon")],
)
async def test_an_attempt_is_told_what_is_expected_and_how_to_decline(
    chat: World, schema: dict[str, Any], said: str
) -> None:
    chat.input("t1", schema)
    reply = await chat.say(said) or ""
    assert reply.startswith("I can't accept that answer: it: ")
    assert reply.endswith(". To decline, say cancel.")
    assert chat.state("t1") == "input-required"


async def test_a_reply_to_the_question_is_always_an_answer(chat: World) -> None:
    id_ = chat.input("t1", SIZE)
    reply = await chat.say("tell me a joke about rivers", more=reply_to(id_)) or ""
    assert reply.startswith("I can't accept that answer: it: expected one of small, large, medium")


async def test_words_do_not_decline_what_was_not_asked_in_chat(chat: World) -> None:
    chat.input("t1", SIZE, origin="iq")
    for said in ("no", "cancel", "small"):
        assert "Declined" not in (await chat.say(said) or "")
        assert chat.state("t1") == "input-required"
    assert (await chat.say("cancel", thread="t1") or "").startswith("Declined.")


async def test_nobody_else_declines_a_question(chat: World) -> None:
    id_ = chat.input("t1", SIZE)
    for said in ("cancel", "/deny", f"/deny {id_}"):
        await chat.say(said, from_=BOB)
        assert chat.state("t1") == "input-required"


async def test_the_same_refusal_again_changes_nothing(chat: World) -> None:
    id_ = chat.input("t1", NUMBER)
    await chat.say("/deny because it rains")
    await chat.say(f"/deny {id_}")
    assert recorded(chat) == {"declined": "because it rains"}


async def test_a_refusal_counts_at_once_and_needs_no_certainty(chat: World) -> None:
    chat.input("t1", SIZE)
    chat.withdraw("t1")
    chat.input("t2", SIZE, read=False)
    assert (await chat.say("cancel") or "").startswith("Declined.")
    assert chat.state("t2") == "accepted"
