"""The state of a task, from events that may be missing, late or doubled."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.profiles import examples
from xmpp_agent_client.following import Follower, News
from xmpp_agent_client.model import Confirmation, Output, Progress, Question, Result, Task

budget = examples(100, 5000)


def task(revision: int, **fields: Any) -> Task:
    return Task(agent="agent.example.com", id="t", revision=revision, **fields)


def part(number: int, text: str, **fields: Any) -> Output:
    return Output(name="verse", text=text, part=number, complete=False, **fields)


QUESTION = Question(agent="agent.example.com", task="t", id="q", revision=2, text="?", schema={})
ASKED = Confirmation(agent="agent.example.com", id="c", skill="erase", task="t")

HALF = Progress(text="half", fraction=0.5)
EVENTS = [
    task(1, state="running", outputs=(part(0, "a"),)),
    task(2, state="running", progress=HALF),
    task(3, state="running", outputs=(part(1, "b"),)),
    task(4, state="input-required", question=QUESTION),
    task(5, state="running"),
    task(6, state="running", outputs=(part(2, "c"),)),
    task(7, state="completed", result=Result(skill="s")),
]


def answer_at(revision: int) -> Task:
    """What the agent answers to a request for the task after some events."""
    events = EVENTS[:revision]
    if not events:
        return task(0)
    if events[-1].ended:
        return msgspec.structs.replace(events[-1], progress=HALF)
    parts = [output for event in events for output in event.outputs]
    whole = part(len(parts) - 1, "".join([one.text for one in parts]))
    progress = next((event.progress for event in events if event.progress), None)
    return msgspec.structs.replace(events[-1], outputs=(whole,), progress=progress)


@budget
@given(steps=st.lists(st.sampled_from(["heard", "heard", "lost", "again", "asked"]), max_size=20))
def test_what_is_complete_is_what_the_agent_would_answer(steps: list[str]) -> None:
    follower, reached = Follower(task(0)), 0
    for number, step in enumerate(steps):
        before = follower.task.revision
        if step == "asked":
            follower.take_answer(answer_at(reached))
            assert follower.task == answer_at(reached)
            assert follower.is_complete
        elif step == "again":
            for event in EVENTS[number % 3 : reached : 2]:
                follower.take_event(event)
        elif reached < len(EVENTS):
            reached += 1
            if step == "heard":
                follower.take_event(EVENTS[reached - 1])
        assert follower.task.revision >= before
        if follower.is_complete:
            known = follower.task
            if known.ended:  # the end has the whole result, and progress does not matter any more
                known = msgspec.structs.replace(known, progress=HALF)
            assert known == answer_at(known.revision)


@budget
@given(order=st.permutations(range(len(EVENTS))))
def test_each_revision_is_told_once_and_they_rise(order: list[int]) -> None:
    follower = Follower(task(0))
    told = revisions(follower.news())
    for index in (*order, *order):
        follower.take_event(EVENTS[index])
        told += revisions(follower.news())
    assert told == sorted(set(told))
    assert told[0] == 0
    assert told[-1] == follower.task.revision == len(EVENTS)


def revisions(news: list[News]) -> list[int]:
    return [one.revision for one in news if isinstance(one, Task)]


def test_an_event_keeps_what_it_leaves_out() -> None:
    follower = Follower(task(0, poll_after=5))
    follower.take_event(task(1, state="running", progress=Progress(text="reading")))
    follower.take_event(task(2, state="running", outputs=(part(0, "a"),)))
    assert follower.task.poll_after == 5
    assert follower.task.progress == Progress(text="reading")
    assert follower.task.outputs == (part(0, "a"),)


@pytest.mark.parametrize("message_first", [True, False])
def test_a_confirmation_is_told_once_whichever_way_it_comes(message_first: bool) -> None:
    follower = Follower(task(0))
    follower.news()
    event = task(1, state="input-required")
    told: list[News] = []
    for step in (True, False):
        if step is message_first:
            follower.take_confirmation(ASKED)
        else:
            follower.take_event(event)
        told += follower.news()
    follower.take_answer(task(1, state="input-required", confirmation=ASKED))
    told += follower.news()
    assert sum(isinstance(news, Task) for news in told) == 1
    assert [news for news in told if isinstance(news, Confirmation)] == [ASKED]
    assert follower.task.confirmation == ASKED


def test_a_confirmation_that_others_may_be_asked_for_is_not_told() -> None:
    """What a state says is told only if messages may have been lost."""
    follower = Follower(task(0))
    waiting = task(1, state="input-required", confirmation=ASKED)
    follower.take_event(waiting)
    follower.take_answer(waiting)
    assert [type(news) for news in follower.news()] == [Task]
    follower.is_complete = False
    follower.take_answer(waiting)
    assert follower.news() == [ASKED]
    follower.take_confirmation(ASKED)
    assert follower.news() == []


def test_an_old_confirmation_does_not_stay() -> None:
    follower = Follower(task(1, state="input-required"))
    follower.take_confirmation(ASKED)
    follower.take_event(task(2, state="input-required", question=QUESTION))
    assert follower.task.confirmation is None
    follower.take_event(task(3, state="running"))
    assert (follower.task.confirmation, follower.task.question) == (None, None)


def test_the_end_is_complete_whatever_was_lost_before() -> None:
    follower = Follower(task(0))
    follower.take_event(EVENTS[2])
    assert not follower.is_complete
    follower.take_event(EVENTS[-1])
    assert follower.is_complete
    assert follower.task.outputs == ()


def test_a_question_is_told_after_the_state_that_asks_it() -> None:
    follower = Follower(task(1))
    follower.take_event(task(2, state="input-required", question=QUESTION))
    assert [type(news) for news in follower.news()] == [Task, Question]
    assert follower.news() == []
