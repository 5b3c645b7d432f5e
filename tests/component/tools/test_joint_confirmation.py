"""One question for several calls of an answer, and that its yes allows exactly these calls."""

import json
from html import unescape
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.agent.protocol import ToolResult, Waiting
from component.models.messages import ToolCall
from component.policy import Rule
from component.policy.flows import Decision as FlowDecision
from component.policy.flows import Flow
from component.skills import Skill, skill
from component.tasks.request import Confirmation, Request
from component.tasks.several_calls import (
    MOST_CALLS,
    MOST_CHARACTERS,
    SEVERAL_CALLS,
    groups,
    listed,
)
from component.tools.joint_confirmation import CallToConfirm
from tests.component.link.router.wire import until
from tests.component.tools.test_tools import AT, WHO, Desk, a_caller
from xep.fluux_agent.confirm import Confirm

pytestmark = pytest.mark.anyio

MADE: list[tuple[str, ...]] = []


@pytest.fixture(autouse=True)
def nothing_made() -> None:
    MADE.clear()


@skill(destructive=False, name="mail.send", capabilities=["network:mail.example:25"])
def send(to: str, body: str = "Hello") -> str:
    """Send a mail."""
    MADE.append(("send", to, body))
    return f"sent to {to}"


@skill(name="erase")
def erase(path: str) -> str:
    """Erase a file."""
    MADE.append(("erase", path))
    return f"erased {path}"


@skill(destructive=False, open_world=False, name="note")
def note(text: str) -> str:
    """Make a note."""
    MADE.append(("note", text))
    return "noted"


def a_call(id_: str, name: str, **arguments: Any) -> ToolCall:
    return ToolCall(id_, name, json.dumps(arguments))


CALLS = (
    a_call("c1", "mail__send", to="bob@example.org", body="News"),
    a_call("c2", "note", text="told Bob"),
    a_call("c3", "mail__send", to="carol@example.org", body="Hi\u202e"),
    a_call("c4", "erase", path="/draft"),
)
MISLED = a_caller(taints=frozenset(("web",)), said=("Tell bob@example.org and Carol.",))


async def ask(desk: Desk, *calls: ToolCall, again: bool = False) -> dict[str, Any]:
    return dict(await desk.tools.confirm_together(MISLED, calls, again=again))


async def question_of(desk: Desk) -> Confirm:
    (question,) = await desk.world.service.open_questions(WHO.bare, AT)
    assert isinstance(question.content, Confirm)
    return question.content


async def ended(desk: Desk, task: str) -> None:
    await until(lambda: task in desk.world.tools_ended)


async def outcomes(desk: Desk, *calls: ToolCall, task: str) -> list[ToolResult | Waiting]:
    return [await desk.tools.outcome(MISLED, call, task) for call in calls]


async def test_one_question_lists_every_call_and_a_yes_makes_each_once() -> None:
    desk = Desk(send, erase, note)
    async with desk.world.running():
        found = await ask(desk, *CALLS)
        assert set(found) == {"c1", "c3", "c4"}, "a note needs no confirmation"
        (task,) = {waiting.task for waiting in found.values()}
        confirm = await question_of(desk)
        assert confirm.action.type == SEVERAL_CALLS.name
        assert confirm.risk is not None
        assert confirm.risk.level == "high"
        await until(lambda: any("<confirm " in sent for sent in desk.world.told.sent))
        (sent,) = [sent for sent in desk.world.told.sent if "<confirm " in sent]
        text = unescape(sent)
        for shown in (
            "May I do these 3 things?",
            '1. mail.send: body: "News", to: "bob@example.org"',
            '2. mail.send: body: "Hi\\u202e", to: "carol@example.org"',
            '3. erase: path: "/draft"',
            "I chose body (in 1), to (in 2), body (in 2), path (in 3)",
            "yes or no",
        ):
            assert shown in text
        waiting = await outcomes(desk, CALLS[0], task=task)
        assert waiting == [Waiting(task, question=True)]
        assert MADE == []
        await desk.decide(task, "approve")
        first = [one async for one in _ended(desk, task)]
        assert [one.content for one in first] == [
            "sent to bob@example.org",
            "sent to carol@example.org",
            "erased /draft",
        ]
        # After a crash the outcomes are queried again: nothing is made twice.
        assert [one async for one in _ended(desk, task)] == first
        assert len(MADE) == len(first)


async def _ended(desk: Desk, task: str) -> Any:
    for call in (CALLS[0], *CALLS[2:]):
        found = await desk.tools.outcome(MISLED, call, task)
        while isinstance(found, Waiting):
            await ended(desk, found.task)
            found = await desk.tools.outcome(MISLED, call, found.task)
        yield found


async def test_a_no_makes_none_of_them() -> None:
    desk = Desk(send, erase)
    async with desk.world.running():
        found = await ask(desk, *CALLS)
        task = found["c1"].task
        await desk.decide(task, "deny")
        await ended(desk, task)
        for call in (CALLS[0], CALLS[2], CALLS[3]):
            result = await desk.tools.outcome(MISLED, call, task)
            assert isinstance(result, ToolResult)
            assert result.is_error
        assert MADE == []


@pytest.mark.parametrize(
    "other",
    [
        a_call("c1", "mail__send", to="mallory@evil.example"),
        a_call("c1", "mail__send", to="bob@example.org", body="Give me the key."),
        a_call("c1", "erase", path="/"),
    ],
)
async def test_an_approval_covers_no_other_call(other: ToolCall) -> None:
    """The journal binds calls to their question; even if it did not, this one would be asked."""
    desk = Desk(send, erase)
    async with desk.world.running():
        found = await ask(desk, *CALLS)
        await desk.decide(found["c1"].task, "approve")
        await ended(desk, found["c1"].task)
        result = await desk.tools.outcome(MISLED, other, found["c1"].task)
        assert isinstance(result, Waiting)
        assert result.question
        assert result.task != found["c1"].task
        assert MADE == []


async def test_a_new_version_is_asked_about_again() -> None:
    desk = Desk(send, erase)
    async with desk.world.running():
        found = await ask(desk, *CALLS)
        await desk.decide(found["c1"].task, "approve")
        await ended(desk, found["c1"].task)

        @skill(name="erase", version="2.0.0")
        def erase_more(path: str) -> str:
            """Erase a file and its copies."""
            raise AssertionError

        desk.world.registry.remove("erase")
        desk.world.registry.add(erase_more)
        result = await desk.tools.outcome(MISLED, CALLS[3], found["c4"].task)
        assert isinstance(result, Waiting)
        assert result.question


async def test_the_same_answer_again_asks_nothing_new() -> None:
    desk = Desk(send, erase)
    async with desk.world.running():
        assert await ask(desk, *CALLS, again=True) == {}, "nothing was asked before"
        found = await ask(desk, *CALLS)
        assert await ask(desk, *CALLS, again=True) == found
        assert await ask(desk, *CALLS) == found
        await question_of(desk)  # there is exactly one


@pytest.mark.parametrize(
    "rule",
    [
        Rule(("erase",), approvers=("bob@b.example",)),
        Rule(("erase",), approvers=(str(WHO.bare), "bob@b.example"), need=2),
        Rule(("erase",), approvers=(str(WHO.bare), "room:ops@rooms.example")),
    ],
    ids=["another", "two", "room"],
)
async def test_what_others_must_approve_is_asked_alone(rule: Rule) -> None:
    desk = Desk(send, erase, rules=[rule])
    async with desk.world.running():
        found = await ask(desk, *CALLS)
        assert set(found) == {"c1", "c3"}


async def test_invalid_and_refused_calls_are_not_joined() -> None:
    desk = Desk(send, erase, flows=[Flow(("web",), ("network:*",), "refuse")])
    async with desk.world.running():
        assert await ask(desk, *CALLS) == {}
        wrong = (a_call("c1", "erase"), a_call("c2", "none"), ToolCall("c3", "erase", "{"))
        assert await ask(desk, *wrong, CALLS[3]) == {}


async def test_more_lines_than_a_person_can_review_are_asked_about_one_by_one() -> None:
    desk = Desk(send, erase)
    async with desk.world.running():
        long = [
            a_call(f"c{n}", "mail__send", to=f"{n}@example.org", body="a\n" * 60) for n in range(2)
        ]
        assert await ask(desk, *long) == {}


def to_confirm(number: int, size: int, one: Skill = send) -> CallToConfirm:
    call = ToolCall(f"c{number}", one.name, "{}")
    values = {"to": "x" * size}
    request = Request(skill=one.name, requester=WHO, principal=WHO.bare, target=AT)
    needed = Confirmation((WHO.bare,))
    return CallToConfirm(one, values, call, FlowDecision("confirm"), needed, request)


@given(st.lists(st.integers(0, 2 * MOST_CHARACTERS), max_size=40))
def test_a_group_is_small_and_in_order_and_no_call_is_in_two(sizes: list[int]) -> None:
    calls = [to_confirm(*one) for one in enumerate(sizes)]
    found = [list(group) for group in groups(calls)]
    joined = [one for group in found for one in group]
    assert joined == [one for one in calls if one in joined]
    for group in found:
        assert 2 <= len(group) <= MOST_CALLS
        assert sum(len(json.dumps(one.values)) for one in group) <= MOST_CHARACTERS
        assert len(listed(group)) == len(group)
