"""Skills that ask, on a real server: answered by IQ, by form, in words; wrongly, and not at all."""

from xml.etree import ElementTree as ET

import pytest

from tests.servers.clients import SlixClient
from tests.servers.talk import application, execute, from_, login, result
from tests.servers.tasking import (
    FORMS,
    TASK,
    Desk,
    answer,
    begin,
    cancel,
    completed,
    failed,
    heard,
    in_state,
    params,
    refusal,
    say,
    waits,
)

pytestmark = [pytest.mark.servers]

CONFLICT = ("conflict", "conflict")


def form(type_: str, **values: str) -> str:
    """A form that was filled in."""
    fields = "".join(
        f"<field var='{var}'><value>{value}</value></field>" for var, value in values.items()
    )
    return f"<x xmlns='{FORMS}' type='{type_}'>{fields}</x>"


def test_an_iq_from_any_resource_answers_the_question_of_a_task(
    desk: Desk, caller: SlixClient, other: SlixClient
) -> None:
    task = begin(caller, desk.assistant, "trip", "mode='async'")
    asked = waits(caller, task)
    assert asked.findtext(f"{{{TASK}}}question") == "Where to, and for how long?"
    assert asked.findtext(f"{{{TASK}}}schema", "").startswith("{")
    whole = in_state(caller, desk.assistant, task, "input-required")
    assert asked.get("revision") == whole.get("revision")
    shown = whole.find(f"{{{TASK}}}input")
    assert shown is not None
    assert ET.tostring(shown) == ET.tostring(asked)

    right = params({"city": "Verona", "nights": 3})
    assert refusal(other.iq(desk.assistant, answer(asked, task, right), "set")) == (
        "item-not-found",
        "unknown-task",
    )
    wrong = caller.iq(
        desk.assistant, answer(asked, task, params({"city": "V", "nights": "x"})), "set"
    )
    assert refusal(wrong) == ("bad-request", "invalid-param")
    said = application(wrong)
    assert said is not None
    assert said.get("name") == "nights"
    in_state(caller, desk.assistant, task, "input-required")

    # Another resource of the principal answers.
    with login(desk.server) as phone:
        went_on = result(phone.iq(desk.assistant, answer(asked, task, right), "set"))
        assert went_on.get("id") == task
        assert went_on.get("state") in ("accepted", "running", "completed")
        assert completed(caller, task) == "3 nights in Verona"
        again = result(phone.iq(desk.assistant, answer(asked, task, right), "set"))
        assert again.get("state") == "completed"
        changed = answer(asked, task, params({"city": "Mantua", "nights": 3}))
        assert refusal(phone.iq(desk.assistant, changed, "set")) == CONFLICT


def test_a_form_answers_the_question_of_a_task(desk: Desk, caller: SlixClient) -> None:
    task = begin(caller, desk.assistant, "trip")
    asked = waits(caller, task)
    offered = asked.find(f"{{{FORMS}}}x")
    assert offered is not None
    fields = {f.get("var"): f for f in offered.findall(f"{{{FORMS}}}field")}
    assert fields["FORM_TYPE"].findtext(f"{{{FORMS}}}value") == TASK
    assert {"city", "nights"} < set(fields)
    wrong = answer(asked, task, form("submit", FORM_TYPE=TASK, city="Verona", nights="few"))
    assert refusal(caller.iq(desk.assistant, wrong, "set")) == ("bad-request", "invalid-param")
    right = answer(asked, task, form("submit", FORM_TYPE=TASK, city="Verona", nights="2"))
    result(caller.iq(desk.assistant, right, "set"))
    assert completed(caller, task) == "2 nights in Verona"
    # The same in JSON is the same answer.
    same = answer(asked, task, params({"nights": 2, "city": "Verona"}))
    assert result(caller.iq(desk.assistant, same, "set")).get("state") == "completed"


def test_a_chat_message_answers_the_question_of_a_task(desk: Desk, caller: SlixClient) -> None:
    task = begin(caller, desk.assistant, "word", "thread='words'")
    waits(caller, task)
    question = caller.messages.take(
        lambda m: from_(desk.assistant, "chat")(m) and m.find(f"{{{TASK}}}input") is not None
    )
    assert "Which word?" in question.findtext("{*}body", "")
    assert question.findtext("{*}thread") == "words"
    say(caller, desk.assistant, "hello there", "<thread>words</thread>")
    assert completed(caller, task) == "the word is hello there"
    heard(caller, desk.assistant, "I'll continue")


def test_a_question_of_a_task_is_refused_in_words(desk: Desk, caller: SlixClient) -> None:
    for thread, said in (("word-1", "never mind"), ("word-2", "/deny")):
        task = begin(caller, desk.assistant, "word", f"thread='{thread}'")
        waits(caller, task)
        question = caller.messages.take(
            lambda m: from_(desk.assistant, "chat")(m) and m.find(f"{{{TASK}}}input") is not None
        )
        assert "To decline, say cancel." in question.findtext("{*}body", "")
        say(caller, desk.assistant, "what is the weather?", f"<thread>{thread}</thread>")
        say(caller, desk.assistant, said, f"<thread>{thread}</thread>")
        assert failed(caller, task)[0] == "denied"
        heard(caller, desk.assistant, "Declined. Which word?")


def test_a_cancelled_form_fails_its_task_as_denied(desk: Desk, caller: SlixClient) -> None:
    task = begin(caller, desk.assistant, "trip")
    asked = waits(caller, task)
    result(caller.iq(desk.assistant, answer(asked, task, form("cancel")), "set"))
    assert failed(caller, task)[0] == "denied"


def test_a_cancelled_task_refuses_a_late_answer(desk: Desk, caller: SlixClient) -> None:
    task = begin(caller, desk.assistant, "trip")
    asked = waits(caller, task)
    ended_as = result(caller.iq(desk.assistant, cancel(task), "set"))
    assert ended_as.get("state") == "cancelled"
    assert ended_as.find(f"{{{TASK}}}input") is None
    late = answer(asked, task, params({"city": "Verona", "nights": 3}))
    assert refusal(caller.iq(desk.assistant, late, "set")) == CONFLICT


def test_what_was_never_asked(desk: Desk, caller: SlixClient) -> None:
    task = begin(caller, desk.assistant, "trip")
    asked = waits(caller, task)
    right = params({"city": "Verona", "nights": 3})
    invented = ET.Element("input", {**asked.attrib, "id": "never-asked"})
    assert refusal(caller.iq(desk.assistant, answer(invented, task, right), "set")) == (
        "item-not-found",
        "unknown-input",
    )
    before = ET.Element("input", {**asked.attrib, "revision": "0"})
    assert refusal(caller.iq(desk.assistant, answer(before, task, right), "set")) == CONFLICT
    result(caller.iq(desk.assistant, cancel(task), "set"))


@pytest.mark.thorough
def test_a_question_of_a_task_can_be_answered_after_a_kill(desk: Desk, caller: SlixClient) -> None:
    task = begin(caller, desk.assistant, "trip")
    asked = waits(caller, task)
    desk.agent.kill()
    desk.agent.start().connected()
    right = answer(asked, task, params({"city": "Padua", "nights": 1}))
    result(caller.iq(desk.assistant, right, "set"))
    assert completed(caller, task) == "1 nights in Padua"


def test_no_question_inline(desk: Desk, caller: SlixClient) -> None:
    reply = caller.iq(desk.assistant, execute("trip", attributes="mode='inline'"), "set")
    assert refusal(reply) == ("not-allowed", "confirmation-unavailable")
