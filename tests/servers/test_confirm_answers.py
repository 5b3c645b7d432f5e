"""Confirmations on a real server: the question as anybody can check it, and every way to answer."""

from uuid import uuid4

import pytest

from tests.servers.clients import Element, SlixClient
from tests.servers.talk import (
    FLUUX,
    PING,
    execute,
    login,
    result,
)
from tests.servers.tasking import (
    CONFIRM,
    RESPONSES,
    TASK,
    Desk,
    accepted,
    asks,
    begin,
    cancel,
    completed,
    decision,
    digest_of,
    ended,
    event,
    failed,
    get,
    heard,
    in_state,
    let_stand,
    refusal,
    reply,
    say,
    select,
    why,
)

pytestmark = [pytest.mark.servers]

HASHES = "urn:xmpp:hashes:2"
DELAY = "<delay xmlns='urn:xmpp:delay' stamp='2026-01-01T00:00:00Z'/>"
UNKNOWN = ("item-not-found", "unknown-confirmation")
CONFLICT = ("conflict", "conflict")


def plain() -> str:
    """What clients send beside a message that says no more than its text."""
    return (
        "<active xmlns='http://jabber.org/protocol/chatstates'/>"
        "<request xmlns='urn:xmpp:receipts'/><markable xmlns='urn:xmpp:chat-markers:0'/>"
        f"<origin-id xmlns='urn:xmpp:sid:0' id='{uuid4()}'/>"
    )


def put(client: SlixClient, desk: Desk, target: str, thread: str = "") -> tuple[str, Element]:
    """Have something erased: the task, and the message that asks whether it may be."""
    attributes = f"thread='{thread}'" if thread else ""
    task = begin(client, desk.assistant, "conformance.erase", attributes, target=target)
    return task, asks(client, task)[0]


def identifier(question: Element) -> str:
    confirm = question.find(f"{{{CONFIRM}}}confirm")
    assert confirm is not None
    return confirm.attrib["id"]


def decide(client: SlixClient, desk: Desk, id_: str, value: str, inside: str = "") -> Element:
    return client.iq(desk.assistant, decision(id_, value, inside), "set")


def test_the_question_and_approval_by_iq(desk: Desk, caller: SlixClient) -> None:
    asked = execute("wipe", attributes="thread='talk'", path='/tmp/ß "x"', json='{"deep": true}')
    reply = caller.iq(desk.assistant, asked, "set")
    task = accepted(reply)
    # Whether the caller is a person is found out after the request is on disk.
    assert result(reply).get("state") in ("accepted", "input-required")
    message, confirm = asks(caller, task)
    assert message.get("type") == "chat"
    assert message.get("from") == desk.assistant
    assert message.get("to", "").partition("/")[0] == desk.server.jid("juliet")
    assert message.findtext("{*}thread") == "talk"
    (body,) = message.findall("{*}body")
    text = body.text or ""
    assert "days" not in text, "it has its default"
    for part in ("wipe", "/tmp/ß", "deep: yes", "yes", "no", "within 24 hours"):
        assert part in text, text
    assert confirm.get("principal") == desk.server.jid("juliet")
    assert confirm.find(f"{{{CONFIRM}}}risk") is not None
    hash_ = confirm.find(f"{{{HASHES}}}hash")
    assert hash_ is not None
    assert hash_.get("algo") == "sha-256"
    assert hash_.text == digest_of(message)
    id_ = confirm.attrib["id"]
    assert [r.get("value") for r in message.findall(f"{{{RESPONSES}}}response")] == ["yes", "no"]
    assert [a.get("id") for a in message.findall(f"{{{RESPONSES}}}action")] == [
        f"approve:{id_}",
        f"deny:{id_}",
    ]
    # The event of the same revision holds the same question.
    told = caller.messages.take(event(task, "input-required"))
    assert told.get("type") == "headline"
    assert told.find(f"{{{TASK}}}task/{{{CONFIRM}}}confirm") is not None
    waiting = in_state(caller, desk.assistant, task, "input-required")
    assert waiting.get("revision") == "1"
    assert desk.effects("/tmp/ß") == []

    wrong = f"<hash xmlns='{HASHES}' algo='sha-256'>{'A' * 43}=</hash>"
    assert refusal(decide(caller, desk, id_, "approve", wrong)) == CONFLICT
    right = f"<hash xmlns='{HASHES}' algo='sha-256'>{hash_.text}</hash>"
    agreed = decide(caller, desk, id_, "approve", right)
    assert agreed.get("type") == "result"
    assert list(agreed) == []
    assert completed(caller, task) == 'wiped /tmp/ß "x"'
    # The same again is answered alike; the opposite is not.
    assert decide(caller, desk, id_, "approve").get("type") == "result"
    assert refusal(decide(caller, desk, id_, "deny")) == CONFLICT
    assert desk.effects("/tmp/ß") == ['wiped /tmp/ß "x"']


def test_another_principal_cannot_answer_a_confirmation(
    desk: Desk, caller: SlixClient, other: SlixClient
) -> None:
    task, question = put(caller, desk, "foreign")
    id_ = identifier(question)
    assert refusal(decide(other, desk, id_, "approve")) == UNKNOWN
    assert refusal(decide(other, desk, "f" * len(id_), "approve")) == UNKNOWN
    select(other, desk.assistant, f"approve:{id_}")
    say(other, desk.assistant, "yes", f"<thread>{task}</thread>")
    other.iq(desk.assistant, PING)
    # Nor was it put by that agent.
    assert refusal(caller.iq(desk.clerk, decision(id_, "approve"), "set")) == UNKNOWN
    in_state(caller, desk.assistant, task, "input-required")
    assert state_after_cancel(caller, desk, task) == "cancelled"
    # A question of a task that has ended cannot be decided any more.
    assert refusal(decide(caller, desk, id_, "approve")) == CONFLICT


def state_after_cancel(client: SlixClient, desk: Desk, task: str) -> str | None:
    return result(client.iq(desk.assistant, cancel(task), "set")).get("state")


def test_a_selected_action_approves_or_denies_the_question(desk: Desk, caller: SlixClient) -> None:
    task, question = put(caller, desk, "selected")
    select(caller, desk.assistant, f"approve:{identifier(question)}")
    assert completed(caller, task) == "erased selected"
    heard(caller, desk.assistant, "Approved.")
    task, question = put(caller, desk, "selected too")
    select(caller, desk.assistant, f"deny:{identifier(question)}")
    assert failed(caller, task)[0] == "denied"
    heard(caller, desk.assistant, "Denied.")
    select(caller, desk.assistant, f"approve:{identifier(question)}")
    heard(caller, desk.assistant, "decided")


@pytest.mark.parametrize("named", ["by its thread", "by a reply"])
def test_a_yes_by_thread_or_reply_approves_the_question(
    desk: Desk, caller: SlixClient, named: str
) -> None:
    task, question = put(caller, desk, "in words", "t-yes")
    if named == "by its thread":
        say(caller, desk.assistant, " Yes! ", "<thread>t-yes</thread>" + plain())
    else:
        reply(caller, desk.assistant, question, " Yes! ")
    message, found = ended(caller, task)
    assert found.get("state") == "completed"
    # The request named a thread: a person reads along.
    assert message.findtext("{*}body") == "erased in words"
    heard(caller, desk.assistant, 'Approved: "Conformance erase"')


def test_a_no_denies_the_question_with_its_reason(desk: Desk, caller: SlixClient) -> None:
    task, _ = put(caller, desk, "denied", "t-no")
    say(caller, desk.assistant, "yes, but later", "<thread>t-no</thread>")
    heard(caller, desk.assistant, "I haven't done it")
    in_state(caller, desk.assistant, task, "input-required")
    say(caller, desk.assistant, "No, because it is still needed", "<thread>t-no</thread>")
    assert failed(caller, task) == ("denied", "because it is still needed")
    heard(caller, desk.assistant, 'Denied: "Conformance erase"')


def shared(client: SlixClient, desk: Desk, path: str, thread: str) -> str:
    """Have both people asked whether something may be wiped; the task."""
    attributes = f"mode='async' thread='{thread}'"
    return begin(client, desk.assistant, "shared-wipe", attributes, path=path)


@pytest.mark.parametrize("thread", ["lunch", pytest.param("", marks=pytest.mark.thorough)])
def test_bait_and_switch(desk: Desk, caller: SlixClient, other: SlixClient, thread: str) -> None:
    """Romeo has Juliet asked something harmless, withdraws it, and has her asked something else."""
    bait = shared(other, desk, "an empty folder", "lunch")
    asks(caller, bait)
    result(other.iq(desk.assistant, cancel(bait), "set"))
    task = shared(other, desk, "everything", "lunch")
    _, confirm = asks(caller, task)
    let_stand(caller, desk)
    # The answer to the first one, which was on its way.
    say(caller, desk.assistant, "yes", f"<thread>{thread}</thread>" if thread else "")
    said = heard(caller, desk.assistant, "I haven't done it").findtext("{*}body", "")
    assert f'for {desk.server.jid("romeo")}: "Shared wipe": path: *everything*' in said
    assert f"/approve {confirm.attrib['id'][:4]}" in said
    in_state(other, desk.assistant, task, "input-required")
    say(caller, desk.assistant, f"/deny {confirm.attrib['id']} certainly not")
    assert failed(other, task) == ("denied", "certainly not")


def test_an_honest_yes_still_counts(desk: Desk, caller: SlixClient) -> None:
    """A plain yes, in a conversation in which nothing was withdrawn: that with another agent."""
    task = begin(caller, desk.clerk, "conformance.erase", target="an old folder")
    asks(caller, task)
    say(caller, desk.clerk, "yes?", plain())
    heard(caller, desk.clerk, "I haven't done it")
    say(caller, desk.clerk, "yes", "<replace xmlns='urn:xmpp:message-correct:0' id='m'/>")
    heard(caller, desk.clerk, "it corrects an earlier message")
    let_stand(caller, desk)
    say(caller, desk.clerk, "Yes, please.", plain())
    assert completed(caller, task) == "erased an old folder"


def test_a_yes_to_several_questions_is_asked_which_one(
    desk: Desk, caller: SlixClient, other: SlixClient
) -> None:
    foreign = begin(other, desk.assistant, "shared-wipe", path="the foreign")
    asks(caller, foreign)
    first, asked_first = put(caller, desk, "the first", "t-first")
    second, _ = put(caller, desk, "the second", "t-second")
    say(caller, desk.assistant, "yes")
    which = heard(caller, desk.assistant, "Which one").findtext("{*}body", "")
    assert "*the first*" in which
    assert "*the second*" in which
    assert f'for {desk.server.jid("romeo")}: "Shared wipe": path: *the foreign*' in which
    for task in (first, second):
        in_state(caller, desk.assistant, task, "input-required")
    say(caller, desk.assistant, f"/deny {identifier(asked_first)} not that one")
    assert failed(caller, first) == ("denied", "not that one")
    say(caller, desk.assistant, "yes", "<thread>t-second</thread>")
    assert completed(caller, second) == "erased the second"
    result(other.iq(desk.assistant, cancel(foreign), "set"))


def test_the_newest_of_ones_own(desk: Desk, caller: SlixClient) -> None:
    first, _ = put(caller, desk, "the older", "t-older")
    second, _ = put(caller, desk, "the newer", "t-newer")
    say(caller, desk.assistant, "no")
    assert failed(caller, second)[0] == "denied"
    in_state(caller, desk.assistant, first, "input-required")
    say(caller, desk.assistant, "no")
    assert failed(caller, first)[0] == "denied"


def test_what_decides_nothing(desk: Desk, caller: SlixClient) -> None:
    task, question = put(caller, desk, "undecided", "t-none")
    id_ = identifier(question)
    thread = "<thread>t-none</thread>"
    selected = f"<action-selected xmlns='{RESPONSES}' id='approve:{id_}'/>"
    copied = (
        f"<forwarded xmlns='urn:xmpp:forward:0'><message xmlns='jabber:client' type='chat'"
        f" from='{desk.server.jid('juliet')}/x' to='{desk.assistant}'><body>yes</body>{thread}"
        "</message></forwarded>"
    )
    say(caller, desk.assistant, "yes", thread + DELAY)
    caller.send_raw(f"<message to='{desk.assistant}' type='chat'>{selected}{DELAY}</message>")
    caller.send_raw(f"<message to='{desk.assistant}' type='chat'>{copied}</message>")
    for type_ in ("groupchat", "error", "headline"):
        caller.send_raw(
            f"<message to='{desk.assistant}' type='{type_}'><body>yes</body>{thread}</message>"
        )
    caller.iq(desk.assistant, PING)
    in_state(caller, desk.assistant, task, "input-required")
    say(caller, desk.assistant, "no", thread)
    assert failed(caller, task)[0] == "denied"


def test_two_who_may_answer(desk: Desk, caller: SlixClient, other: SlixClient) -> None:
    task = begin(caller, desk.assistant, "shared-wipe", path="shared")
    mine, _ = asks(caller, task)
    theirs, _ = asks(other, task)
    assert identifier(mine) == identifier(theirs)
    assert desk.server.jid("juliet") in theirs.findtext("{*}body", "")
    assert decide(other, desk, identifier(theirs), "approve").get("type") == "result"
    assert completed(caller, task) == "wiped shared"
    assert refusal(decide(caller, desk, identifier(mine), "deny")) == CONFLICT
    # The task is still the principal's alone.
    assert refusal(other.iq(desk.assistant, f"<task xmlns='{TASK}' id='{task}'/>")) == (
        "item-not-found",
        "unknown-task",
    )


def test_who_says_it_is_an_agent_is_not_asked(desk: Desk, caller: SlixClient) -> None:
    with login(desk.server) as agent:

        async def say_so() -> None:
            await agent.xmpp.plugin["xep_0030"].add_feature(FLUUX)

        agent._in_loop(say_so)
        asked = execute("conformance.erase", target="x")
        _, rejected = ended(agent, accepted(agent.iq(desk.assistant, asked, "set")))
        assert rejected.get("state") == "rejected"
        assert why(rejected)[0] == "confirmation-unavailable"
        # Where somebody is named for it, that one is asked.
        task = begin(agent, desk.assistant, "shared-wipe", path="x")
        asks(caller, task)
        assert state_after_cancel(agent, desk, task) == "cancelled"


def test_several_answers_at_once(desk: Desk, caller: SlixClient, other: SlixClient) -> None:
    task = begin(caller, desk.assistant, "shared-wipe", path="several")
    id_ = asks(caller, task)[1].attrib["id"]
    replies = [
        client.start_iq(desk.assistant, decision(id_, value), "set")
        for _ in range(3)
        for client, value in ((caller, "approve"), (other, "deny"))
    ]
    found = [reply.result(120) for reply in replies]
    approved = {reply.get("type") for reply in found[::2]}
    denied = {reply.get("type") for reply in found[1::2]}
    assert sorted((approved, denied), key=str) == [{"error"}, {"result"}]
    assert {refusal(reply) for reply in found if reply.get("type") == "error"} == {CONFLICT}
    _, end = ended(caller, task)
    assert end.get("state") == ("completed" if approved == {"result"} else "failed")


def test_a_question_kept_by_the_server_can_be_answered_later(desk: Desk, other: SlixClient) -> None:
    other.send_raw("<presence type='unavailable'/>")
    attributes = "mode='async' thread='t-away'"
    task = begin(other, desk.assistant, "conformance.erase", attributes, target="away")
    state = None
    while state != "input-required":  # once it is known that Romeo is a person
        state = result(other.iq(desk.assistant, get(task))).get("state")
    other.send_raw("<presence/>")
    message, confirm = asks(other, task)
    assert message.find("{urn:xmpp:delay}delay") is not None, "the server has kept it"
    assert confirm.findtext(f"{{{HASHES}}}hash") == digest_of(message)
    say(other, desk.assistant, "yes", "<thread>t-away</thread>")
    assert completed(other, task) == "erased away"


def test_nobody_is_asked_in_vain(desk: Desk, caller: SlixClient) -> None:
    inline = execute("conformance.erase", attributes="mode='inline'", target="x")
    assert refusal(caller.iq(desk.assistant, inline, "set")) == (
        "not-allowed",
        "confirmation-unavailable",
    )
    wrong = execute("conformance.erase", nothing="x")
    assert refusal(caller.iq(desk.assistant, wrong, "set")) == ("bad-request", "invalid-param")


def test_killed_between_question_and_answer(desk: Desk, caller: SlixClient) -> None:
    task, question = put(caller, desk, "after a crash", "t-crash")
    desk.agent.kill()
    desk.agent.start().connected()
    in_state(caller, desk.assistant, task, "input-required")
    # A thread alone counts only once it is recorded that the message was written.
    reply(caller, desk.assistant, question, "yes")
    assert completed(caller, task) == "erased after a crash"
    assert decide(caller, desk, identifier(question), "approve").get("type") == "result"
