"""Answers without text."""

import pytest

from component.agent import prompt, sentences
from component.agent.finishes import weigh
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
