"""Answers without text."""

import pytest

from component.agent import prompt, sentences
from component.agent.finishes import weigh
from component.models.messages import ToolCall
from component.models.protocol import Completion, Finish


@pytest.mark.parametrize(
    ("finish", "retried", "again", "notice"),
    [
        ("length", False, prompt.REASONED, ""),
        ("length", True, "", sentences.REASONED),
        ("stop", False, prompt.EMPTY, ""),
        ("stop", True, "", sentences.EMPTY),
    ],
)
def test_reasoning_that_uses_up_the_length_is_reported(
    finish: Finish, retried: bool, again: str, notice: str
) -> None:
    weighed = weigh(Completion.of(finish=finish), partial="", retried=retried, tools=True)
    assert (weighed.again, weighed.notice) == (again, notice)


def test_reasoning_that_uses_up_the_length_is_reported_without_tools() -> None:
    weighed = weigh(Completion.of(finish="length"), partial="", retried=False, tools=False)
    assert weighed.notice == sentences.REASONED


@pytest.mark.parametrize("finish", ["length", "tool_calls"])
def test_nothing_is_called_while_the_arguments_of_a_call_may_be_missing(finish: Finish) -> None:
    whole, missing = ToolCall("1", "a", "{}"), ToolCall("2", "wipe", "")
    completion = Completion.of(tool_calls=(whole, missing), finish=finish)
    weighed = weigh(completion, partial="", retried=False, tools=True)
    assert (weighed.calls, weighed.again) == ((), prompt.CUT_CALLS)
    weighed = weigh(completion, partial="", retried=True, tools=True)
    assert (weighed.calls, weighed.notice) == ((), sentences.NO_ROOM)
