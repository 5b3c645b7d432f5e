"""An answer in words counts only for the question that it is certainly meant for ("In Words")."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.tasks.expiry import forget
from component.tasks.protocol import Naming, UncertainError
from component.tasks.question_rows import Answerer, doubt_about
from tests.component.features.questions.chat_world import ALICE, HINT, PHONE, World
from tests.component.link.router.wire import AGENT, element
from tests.component.tasks.ledger import DAY, NOON
from xep.fluux_agent.confirm import Decision
from xep.jid import JID

pytestmark = pytest.mark.anyio

CAROL = JID.parse("carol@c.example")
MINUTE = 60_000
LATER = NOON + 100 * MINUTE
HARMLESS = {"topic": "the weather"}
DANGEROUS = {"topic": "the accounts"}


def reply_to(id_: str, to: str = AGENT) -> str:
    return element("reply", xmlns="urn:xmpp:reply:0", id=id_, to=to)


def is_open(chat: World, task: str = "t2") -> bool:
    return chat.state(task) == "input-required"


# -- bait and switch -----------------------------------------------------------------------------


@pytest.mark.parametrize("thread", [None, "other", "same"])
@pytest.mark.parametrize("after_s", [0, 4, 54])
async def test_a_yes_to_what_was_withdrawn_approves_nothing_else(
    chat: World, thread: str | None, after_s: int
) -> None:
    chat.confirm("t1", thread="same", **HARMLESS)
    chat.withdraw("t1")
    chat.confirm("t2", thread="same", expires=LATER, **DANGEROUS)
    chat.ledger.now += after_s * 1000
    said = await chat.say("yes", thread=thread) or ""
    assert is_open(chat)
    assert said.startswith("I haven't done it")
    assert 'report: topic: "the accounts", for alice@a.example, asked ' in said
    assert "(/approve c-t2 or /deny c-t2)" in said
    assert (await chat.say("/approve c-t2") or "").startswith("Approved")
    assert chat.state("t2") == "accepted"


async def test_after_a_minute_a_yes_is_one_again(chat: World) -> None:
    chat.confirm("t1", **HARMLESS)
    chat.withdraw("t1")
    chat.confirm("t2", expires=LATER, **DANGEROUS)
    chat.ledger.now += MINUTE - 5_000
    assert (await chat.say("yes") or "").startswith("Approved")


async def test_a_question_that_lapsed_is_in_the_way_as_well(chat: World) -> None:
    chat.confirm("t1", **HARMLESS)
    chat.ledger.now = NOON + MINUTE - 2_000
    row = chat.confirm("t2", expires=LATER, **DANGEROUS)
    assert row == "c-t2"
    assert chat.ledger.now > NOON + MINUTE  # nobody has settled the first one yet
    assert "not sure" in (await chat.say("yes") or "")
    assert "lapsed" in (await chat.press("approve:c-t1") or "")
    assert "not sure" in (await chat.say("yes") or "")
    assert is_open(chat)


async def test_what_somebody_else_decided_is_in_the_way_as_well(chat: World) -> None:
    chat.confirm("t1", asked=(ALICE, CAROL), **HARMLESS)
    await chat.decide(CAROL, JID.parse(AGENT), Decision(id="c-t1", value="deny"))
    chat.confirm("t2", asked=(ALICE, CAROL), **DANGEROUS)
    said = await chat.say("yes") or ""
    assert "not sure" in said
    assert "for alice@a.example: report: topic" in said
    assert is_open(chat)


async def test_ones_own_answers_are_in_nobodys_way(chat: World) -> None:
    for number, word in enumerate(("yes", "no", "yes")):
        chat.confirm(f"t{number}")
        assert (await chat.say(word) or "").startswith(("Approved", "Denied"))
    chat.input("t9")
    assert await chat.say("Rhine") == "Thank you, I'll continue."
    chat.confirm("t10")
    assert (await chat.say("yes") or "").startswith("Approved")


@pytest.mark.parametrize("words", ["Rhine", "/answer Rhine"])
async def test_words_that_decide_nothing_are_not_meant_for_a_confirmation(
    chat: World, words: str
) -> None:
    chat.confirm("t1", asked=(ALICE, CAROL), **HARMLESS)
    await chat.decide(CAROL, JID.parse(AGENT), Decision(id="c-t1", value="deny"))
    chat.confirm("t2", **HARMLESS)
    chat.withdraw("t2")
    chat.input("t9")
    assert "not sure" in (await chat.say("yes") or "")
    assert await chat.say(words) == "Thank you, I'll continue."


async def test_words_may_be_meant_for_a_question_that_was_closed(chat: World) -> None:
    chat.input("t1")
    chat.withdraw("t1")
    chat.input("t9")
    assert "not sure" in (await chat.say("Rhine") or "")


async def test_questions_to_others_and_of_other_agents_are_in_nobodys_way(chat: World) -> None:
    chat.confirm("t1", asked=(CAROL,))
    chat.withdraw("t1")
    chat.confirm("t2")
    assert (await chat.say("yes") or "").startswith("Approved")


async def test_ending_and_forgetting_the_task_removes_no_evidence(chat: World) -> None:
    chat.confirm("t1", **HARMLESS)
    chat.withdraw("t1")
    chat.ledger.execute("UPDATE tasks SET retain_until = 0 WHERE id = 't1'")
    assert forget(chat.ledger) == 1
    chat.confirm("t2", **DANGEROUS)
    assert "not sure" in (await chat.say("yes") or "")
    assert is_open(chat)
    chat.ledger.now += DAY
    forget(chat.ledger)
    assert chat.ledger.count("recent_questions") == 0


# -- how long a question has stood ---------------------------------------------------------------


async def test_a_yes_that_crosses_the_question_approves_nothing(chat: World) -> None:
    chat.confirm("t2", read=False, **DANGEROUS)
    chat.ledger.now += 2_999
    said = await chat.say("yes") or ""
    assert said.startswith("I asked only a moment ago: please say *yes* again.\n")
    assert "(/approve c-t2 or /deny c-t2)" in said
    assert is_open(chat)
    chat.ledger.now += 1
    assert (await chat.say("yes") or "").startswith("Approved")


@pytest.mark.parametrize("how", ["thread", "reply", "button", "iq", "command", "whole command"])
async def test_what_names_the_question_counts_at_once(chat: World, how: str) -> None:
    chat.confirm("t1", **HARMLESS)
    chat.withdraw("t1")
    chat.confirm("t2", read=False)
    match how:
        case "thread":
            await chat.say("yes", thread="t2")
        case "reply":
            await chat.say("yes", more=reply_to("c-t2"))
        case "button":
            await chat.press("approve:c-t2")
        case "iq":
            await chat.send(Decision(id="c-t2", value="approve"))
        case "command":
            await chat.say("/approve c-t2")
        case _:
            chat.confirm("t3", read=False)
            await chat.say("/approve c-t2")
    assert chat.state("t2") == "accepted"


async def test_a_no_counts_at_once(chat: World) -> None:
    chat.confirm("t1", **HARMLESS)
    chat.withdraw("t1")
    chat.confirm("t2", read=False)
    assert (await chat.say("no") or "").startswith("Denied")


# -- names that are none -------------------------------------------------------------------------


async def test_the_beginning_of_an_identifier_that_was_another_ones_names_nothing(
    chat: World,
) -> None:
    chat.confirm("t1a", **HARMLESS)
    chat.withdraw("t1a")
    chat.confirm("t1b", **DANGEROUS)
    assert "not sure" in (await chat.say("/approve c-t1") or "")
    assert is_open(chat, "t1b")
    assert (await chat.say("/approve c-t1b") or "").startswith("Approved")


async def test_a_reply_to_something_else_is_about_something_else(chat: World) -> None:
    chat.confirm("t1")
    chat.withdraw("t1")
    chat.confirm("t2")
    assert "is closed" in (await chat.say("yes", more=reply_to("c-t1")) or "")
    for elsewhere in (reply_to("m-17"), reply_to("c-t2", to="romeo@a.example")):
        assert "Approved" not in (await chat.say("yes", more=elsewhere) or "")
    assert is_open(chat)
    assert (await chat.say("yes", more=reply_to("c-t2", f"{AGENT}/x")) or "").startswith("Approved")


# -- inputs --------------------------------------------------------------------------------------

KEEP = {"type": "object", "properties": {"keep": {"type": "boolean"}}, "required": ["keep"]}


async def test_words_meant_for_another_input_answer_none(chat: World) -> None:
    chat.input("t1")
    chat.withdraw("t1")
    chat.input("t2")
    for body in ("Rhine", "/answer Rhine"):
        said = await chat.say(body) or ""
        assert "not sure" in said
        assert "(/answer q-t2 … or /deny q-t2)" in said
        assert is_open(chat)
    assert await chat.say("/answer q-t2 Rhine") == "Thank you, I'll continue."


@pytest.mark.parametrize("word", ["yes", "no"])
async def test_yes_and_no_to_an_input_need_one_that_stands(chat: World, word: str) -> None:
    chat.input("t2", KEEP, read=False)
    asked = await chat.say(word) or ""
    assert asked.startswith(f"I asked only a moment ago: please say *{word}* again.")
    assert is_open(chat)
    assert await chat.say(word, thread="t2") == "Thank you, I'll continue."


# -- clocks --------------------------------------------------------------------------------------


@pytest.mark.parametrize("leap_s", [-3600, 3600])
async def test_a_jump_of_the_clock_approves_nothing(chat: World, leap_s: int) -> None:
    chat.confirm("t1", **HARMLESS)
    chat.withdraw("t1")
    chat.confirm("t2", read=False, expires=LATER, **DANGEROUS)
    chat.ledger.jump(leap_s)
    assert "not sure" in (await chat.say("yes") or "")
    assert is_open(chat)


# -- the rule as a whole -------------------------------------------------------------------------

THREADS = ("one", "two")
QUESTIONS = st.lists(
    st.tuples(
        st.integers(-70_000, 0),  # when it was asked, before now
        st.integers(0, 70_000),  # how long it was open
        st.sampled_from(THREADS),
        st.sampled_from(["open", "withdrawn", "answered"]),
    ),
    min_size=1,
    max_size=4,
)


@given(QUESTIONS, st.sampled_from([None, *THREADS, "three"]))
def test_a_word_is_certain_only_if_nothing_else_can_be_meant(
    asked: list[tuple[int, int, str, str]], thread: str | None
) -> None:
    chat = World()
    at = NOON
    history: list[tuple[int, str, int, str]] = []
    for number, (before, lasted, name, fate) in enumerate(asked):
        id_ = f"c-{number}"
        closed = min(at, at + before + lasted)
        chat.ledger.execute(
            "INSERT INTO recent_questions VALUES (?, ?, ?, ?, ?, ?, ?, 'shown')",
            (
                str(ALICE),
                AGENT,
                id_,
                name,
                at + before,
                at + DAY,
                None if fate == "open" else closed,
            ),
        )
        if fate == "answered":
            chat.ledger.execute("DELETE FROM recent_questions WHERE input = ?", (id_,))
        history.append((at + before, name, closed, fate))
    for number, (since, name, _, fate) in enumerate(history):
        if fate != "open":
            continue
        doubt = doubt_about(
            chat.ledger,
            Answerer(JID.parse(PHONE), JID.parse(AGENT), naming=Naming(thread)),
            f"c-{number}",
        )
        rivals = [
            other
            for index, other in enumerate(history)
            if index != number
            and (thread is None or other[1] == thread)
            and (other[3] == "open" or (other[3] == "withdrawn" and at - other[2] < MINUTE))
        ]
        stood = at - since >= 3_000
        named = thread is None or name == thread
        assert (doubt is None) == (named and not rivals and (thread is not None or stood))


# -- what the person has got ---------------------------------------------------------------------


async def test_words_do_not_approve_what_was_withheld_from_the_person(chat: World) -> None:
    chat.confirm("t2", thread="same", asked=(ALICE, CAROL), withheld=(ALICE,), **DANGEROUS)
    for thread in (None, "same"):  # it is said to the agent
        said = await chat.say("yes", thread=thread)
        assert said is None or said.startswith(HINT)
    assert is_open(chat)
    decision = Decision(id="c-t2", value="approve")
    with pytest.raises(UncertainError):
        await chat.decide(ALICE, JID.parse(AGENT), decision, naming=Naming())


async def test_what_was_withheld_is_not_in_the_way_of_another_question(chat: World) -> None:
    chat.confirm("t1", withheld=(ALICE,), **DANGEROUS)
    chat.confirm("t2", **HARMLESS)
    assert (await chat.say("yes") or "").startswith("Approved")
    assert is_open(chat, "t1")


@pytest.mark.parametrize("thread", [None, "same"])
async def test_words_do_not_approve_a_question_that_came_back(
    chat: World, thread: str | None
) -> None:
    chat.confirm("t2", thread="same", **DANGEROUS)
    condition = element(
        "error",
        element("service-unavailable", xmlns="urn:ietf:params:xml:ns:xmpp-stanzas"),
        type="cancel",
    )
    assert await chat.say(None, type_="error", more=condition, id_="c-t2") is None
    said = await chat.say("yes", thread=thread) or ""
    assert said.startswith("I haven't done it")
    assert "(/approve c-t2 or /deny c-t2)" in said
    assert is_open(chat)
    assert (await chat.say("/approve c-t2") or "").startswith("Approved")


async def test_a_text_does_not_answer_an_input_that_came_back(chat: World) -> None:
    chat.input("t1")
    await chat.say(None, type_="error", id_="q-t1")
    said = await chat.say("What is the weather like?")
    assert said is None or said.startswith(HINT)  # it is for the agent
    assert is_open(chat, "t1")
    assert await chat.say("/answer q-t1 Rhine") == "Thank you, I'll continue."


async def test_the_error_of_another_person_changes_nothing(chat: World) -> None:
    chat.confirm("t2", **DANGEROUS)
    await chat.say(None, type_="error", from_="carol@c.example/phone", id_="c-t2")
    assert (await chat.say("yes") or "").startswith("Approved")
