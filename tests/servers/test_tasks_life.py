"""Durable work on a real server: from the request to the end, and what can be asked of it."""

import functools
from concurrent.futures import Future
from xml.etree import ElementTree as ET

import pytest

from tests.servers.clients import Element, SlixClient
from tests.servers.talk import (
    EXECUTE,
    RSM,
    but_the_id,
    canonical,
    error,
    execute,
    login,
    output,
    page,
    result,
)
from tests.servers.tasking import (
    FOR_EVER,
    TASK,
    TERMINAL,
    Desk,
    accepted,
    begin,
    cancel,
    completed,
    event,
    events,
    failed,
    get,
    in_state,
    listed,
    refusal,
)

pytestmark = [pytest.mark.servers]

ASYNC = "mode='async'"


def told(client: SlixClient, task: str) -> list[Element]:
    """All the event messages of a task, up to the last."""
    messages: list[Element] = []
    while not messages or not event(task, *TERMINAL)(messages[-1]):
        messages.append(client.messages.take(event(task)))
    return messages


def task_in(message: Element) -> Element:
    found = message.find(f"{{{TASK}}}task")
    assert found is not None
    return found


def test_each_change_is_told_once_and_in_order(desk: Desk, caller: SlixClient) -> None:
    asked = execute("grow", attributes="mode='async' thread='the thread' context='matter-1'")
    reply = caller.iq(desk.assistant, asked, "set")
    task = accepted(reply)
    answer = result(reply)
    assert answer.get("state") == "accepted"
    assert answer.get("retain-until", "").endswith("Z")
    assert int(answer.attrib["poll-after"]) > 0

    messages = told(caller, task)
    assert [task_in(m).get("revision") for m in messages] == [
        str(number) for number in range(1, len(messages) + 1)
    ]
    assert {m.get("from") for m in messages} == {desk.assistant}
    assert {m.findtext("{*}thread") for m in messages} == {"the thread"}
    *before, last = messages
    assert {(m.get("type"), m.get("to")) for m in before} == {("headline", caller.jid)}
    assert [m for m in before if m.find("{*}body") is not None] == []
    # The server hands what goes to the account to each of its clients as it came, or to a full JID.
    assert last.get("type", "normal") == "normal"
    assert last.get("to", "").partition("/")[0] == desk.server.jid("juliet")
    # The request named a thread, so a person may be reading.
    assert "that was it" in last.findtext("{*}body", "")
    parts = [o for m in before for o in task_in(m).findall(f"{{{EXECUTE}}}output")]
    assert [(o.text, o.get("part"), o.get("last")) for o in parts] == [
        ("one ", "0", "false"),
        ("two ", "1", "false"),
        ("three", "2", None),  # which is the default, true
    ]
    made = task_in(last).find(f"{{{EXECUTE}}}result")
    assert made is not None
    outputs = {o.get("name"): o.text for o in made.findall(f"{{{EXECUTE}}}output")}
    assert outputs["poem"] == "one two three"
    assert "that was it" in outputs.values()

    # The same can be asked for afterwards, whole and since a revision.
    whole = in_state(caller, desk.assistant, task, "completed")
    assert whole.get("context") == "matter-1"
    assert whole.find(f"{{{EXECUTE}}}result") is not None
    again = result(caller.iq(desk.assistant, events(task, 0)))
    assert again.get("revision") == str(len(messages))
    assert again.findall(f"{{{TASK}}}gap") == []
    # Modules of the server copy messages, which shuffles their attributes.
    assert [canonical(t) for t in again.findall(f"{{{TASK}}}task")] == [
        canonical(task_in(m)) for m in messages
    ]
    later = result(caller.iq(desk.assistant, events(task, 2, page(1))))
    assert [t.get("revision") for t in later.findall(f"{{{TASK}}}task")] == ["3"]


def test_without_a_thread_nobody_reads(desk: Desk, caller: SlixClient) -> None:
    task = begin(caller, desk.assistant, "conformance.progress", ASYNC, steps=3)
    messages = told(caller, task)
    assert {m.findtext("{*}thread") for m in messages} == {task}
    assert [m for m in messages if m.find("{*}body") is not None] == []
    last = [m for m in messages if task_in(m).find(f"{{{TASK}}}progress") is not None][-1]
    progress = task_in(last).find(f"{{{TASK}}}progress")
    assert progress is not None
    assert float(progress.attrib["fraction"]) == 1
    assert progress.text == "step 3 of 3"


def test_lists_of_tasks_are_paged_and_show_only_ones_own_tasks(
    desk: Desk, caller: SlixClient, other: SlixClient
) -> None:
    mine = [
        begin(caller, desk.assistant, "conformance.echo", ASYNC + " context='lists'", text=t)
        for t in "abc"
    ]
    open_ = begin(caller, desk.assistant, "slow", ASYNC + " context='lists'", run="lists")
    for task in mine:
        completed(caller, task)

    def ids(attributes: str, inside: str = "") -> list[str]:
        found = result(caller.iq(desk.assistant, listed(attributes, inside)))
        return [t.attrib["id"] for t in found.findall(f"{{{TASK}}}task")]

    assert ids("context='lists'") == [open_, *reversed(mine)]
    assert ids("context='lists' state='completed'") == [*reversed(mine)]
    assert ids("context='lists' state='running'") == [open_]
    assert ids("since='2999-01-01T00:00:00Z'") == []
    pages: list[str] = []
    after = None
    while len(pages) < 4:
        found = result(caller.iq(desk.assistant, listed("context='lists'", page(3, after))))
        pages += [t.attrib["id"] for t in found.findall(f"{{{TASK}}}task")]
        set_ = found.find(f"{{{RSM}}}set")
        assert set_ is not None
        assert set_.find(f"{{{RSM}}}count") is None  # it is not all of them
        after = set_.findtext(f"{{{RSM}}}last")
    assert pages == [open_, *reversed(mine)]
    found = result(other.iq(desk.assistant, listed("context='lists'")))
    assert found.findall(f"{{{TASK}}}task") == []
    # What one agent has accepted is there at both of its addresses, and at no other agent.
    assert result(caller.iq(desk.domain, get(open_))).get("id") == open_
    assert refusal(caller.iq(desk.clerk, get(open_))) == ("item-not-found", "unknown-task")
    desk.open_gate("lists")
    assert completed(caller, open_) == "lists is done"


def test_cancelled_from_another_resource(desk: Desk, caller: SlixClient) -> None:
    task = begin(caller, desk.assistant, "conformance.sleep", ASYNC, seconds=FOR_EVER)
    caller.messages.take(event(task, "running"))
    with login(desk.server) as phone:
        first = result(phone.iq(desk.assistant, cancel(task), "set"))
        assert first.get("state") in ("cancelling", "cancelled")
        messages = told(caller, task)
        assert [task_in(m).get("state") for m in messages] == ["cancelling", "cancelled"]
        again = result(phone.iq(desk.assistant, cancel(task), "set"))
        assert again.get("state") == "cancelled"
        assert canonical(again) == canonical(result(phone.iq(desk.assistant, get(task))))


def test_nobody_elses_task_is_there(desk: Desk, caller: SlixClient, other: SlixClient) -> None:
    task = begin(caller, desk.assistant, "slow", ASYNC, run="foreign")
    invented = "f" * len(task)
    for ask, type_ in ((get, "get"), (functools.partial(events, since=0), "get"), (cancel, "set")):
        foreign = other.iq(desk.assistant, ask(task), type_)
        assert refusal(foreign) == ("item-not-found", "unknown-task")
        unknown = other.iq(desk.assistant, ask(invented), type_)
        assert but_the_id(foreign) == but_the_id(unknown).replace(invented, task)
    in_state(caller, desk.assistant, task, "running")
    result(caller.iq(desk.assistant, cancel(task), "set"))


def test_the_same_request_after_a_broken_stream(desk: Desk, other: SlixClient) -> None:
    asked = execute("counted", attributes="mode='async' request='once-1'", key="once-1")
    with login(desk.server) as first:
        reply = first.iq(desk.assistant, asked, "set")
        task = accepted(reply)
    with login(desk.server) as second:
        again = second.iq(desk.assistant, asked, "set")
        assert canonical(result(again)) == canonical(result(reply))
        changed = execute("counted", attributes="mode='async' request='once-1'", key="once-2")
        assert refusal(second.iq(desk.assistant, changed, "set")) == ("conflict", "conflict")
        in_state(second, desk.assistant, task, "completed")
        inline = execute("counted", attributes="request='once-3'", key="once-3")
        assert output(second.iq(desk.assistant, inline, "set")) == "counted once-3"
        assert output(second.iq(desk.assistant, inline, "set")) == "counted once-3"
    # Another account, or another address, is another request.
    theirs = accepted(other.iq(desk.assistant, asked, "set"))
    assert theirs != task
    completed(other, theirs)
    assert desk.effects("once-") == ["counted once-1", "counted once-3", "counted once-1"]


def test_two_of_the_same_at_once(desk: Desk, caller: SlixClient) -> None:
    asked = execute("slow", attributes="request='twin'", run="twin")
    replies: list[Future[Element]] = [
        caller.start_iq(desk.assistant, asked, "set") for _ in range(5)
    ]
    (task,) = {accepted(reply.result(120)) for reply in replies}
    desk.open_gate("twin")
    assert completed(caller, task) == "twin is done"


# From an inline call to a task.


def test_what_takes_longer_becomes_a_task(desk: Desk, caller: SlixClient) -> None:
    task = begin(caller, desk.assistant, "steps", run="switch")
    desk.open_gate("switch")
    key, second = completed(caller, task).split(" ")
    assert second == "2"
    # The skill noticed nothing: each of its steps was done once.
    first, then = desk.effects("switch")
    assert first == f"switch first {key}"
    assert then.startswith("switch second ")
    told_since = result(caller.iq(desk.assistant, events(task, 0))).findall(f"{{{TASK}}}task")
    states = [t.get("state") for t in told_since]
    assert (states[0], states[-1]) == ("running", "completed")


def test_what_is_quick_stays_inline(desk: Desk, caller: SlixClient) -> None:
    desk.open_gate("quick")
    asked = execute("steps", attributes="context='quick'", run="quick")
    assert output(caller.iq(desk.assistant, asked, "set")).endswith(" 2")
    found = result(caller.iq(desk.assistant, listed("context='quick'")))
    assert found.findall(f"{{{TASK}}}task") == []


@pytest.mark.parametrize(
    ("skill", "given", "type_"),
    [("conformance.sleep", {"seconds": FOR_EVER}, "wait"), ("slow", {"run": "never"}, "cancel")],
)
def test_mode_inline_ends_at_the_limit(
    desk: Desk, caller: SlixClient, skill: str, given: dict[str, object], type_: str
) -> None:
    asked = execute(skill, attributes="mode='inline'", **given)
    reply = caller.iq(desk.assistant, asked, "set")
    assert refusal(reply) == ("remote-server-timeout", "timeout")
    assert error(reply).get("type") == type_


def test_nobody_reads_how_it_broke(desk: Desk, caller: SlixClient) -> None:
    task = begin(caller, desk.assistant, "broken", ASYNC)
    name, text = failed(caller, task)
    assert name == "internal"
    assert "nobody outside" not in text
    whole = in_state(caller, desk.assistant, task, "failed")
    assert "nobody outside" not in ET.tostring(whole, "unicode")


def test_a_request_whose_deadline_has_passed_is_refused(desk: Desk, caller: SlixClient) -> None:
    past = execute(
        "conformance.echo", attributes=ASYNC + " deadline='2020-01-01T00:00:00Z'", text="x"
    )
    assert refusal(caller.iq(desk.assistant, past, "set")) == ("not-acceptable", "deadline-expired")
