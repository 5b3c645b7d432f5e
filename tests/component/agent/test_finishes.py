"""Answers without text."""

import msgspec
import pytest

from component.agent import prompt, sentences
from component.agent.completions import classify
from component.models.messages import AnswerPart, OpaquePart, TextPart, ToolCall
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
    verdict = classify(Completion.of(finish=finish), partial="", retried=retried, tools=True)
    assert (verdict.again, verdict.notice) == (again, notice)


def test_reasoning_that_uses_up_the_length_is_reported_without_tools() -> None:
    verdict = classify(Completion.of(finish="length"), partial="", retried=False, tools=False)
    assert verdict.notice == sentences.REASONED


@pytest.mark.parametrize("finish", ["length", "tool_calls"])
def test_nothing_is_called_while_the_arguments_of_a_call_may_be_missing(finish: Finish) -> None:
    whole, missing = ToolCall("1", "a", "{}"), ToolCall("2", "wipe", "")
    completion = Completion.of(tool_calls=(whole, missing), finish=finish)
    verdict = classify(completion, partial="", retried=False, tools=True)
    assert (verdict.calls, verdict.again) == ((), prompt.CUT_CALLS)
    verdict = classify(completion, partial="", retried=True, tools=True)
    assert (verdict.calls, verdict.notice) == ((), sentences.NO_ROOM)


@pytest.mark.parametrize(
    "text", ["\u200b", "\ufeff \u200d\u2060", "\u2800", "\u3164\n", "\u0301", ""]
)
def test_an_answer_of_characters_that_nobody_sees_is_empty(text: str) -> None:
    verdict = classify(Completion.of(text), partial="", retried=False, tools=True)
    assert (verdict.answer, verdict.again) == ("", prompt.EMPTY)
    verdict = classify(Completion.of(text), partial="", retried=True, tools=True)
    assert (verdict.answer, verdict.notice) == ("", sentences.EMPTY)


@pytest.mark.parametrize("text", ["\u200bNoon.", "👍", "؟", "…", "\u2764\ufe0f"])
def test_an_answer_with_a_character_that_can_be_seen_is_one(text: str) -> None:
    assert classify(Completion.of(text), partial="", retried=False, tools=True).answer == text


def test_a_call_that_cannot_be_read_is_asked_for_again() -> None:
    verdict = classify(Completion.of(), partial="", retried=False, tools=True, unread=True)
    assert verdict.again == prompt.UNREAD_CALL
    verdict = classify(Completion.of(), partial="", retried=True, tools=True, unread=True)
    assert verdict.notice == sentences.EMPTY


FIVE = TextPart("The answer is 5.")
OPAQUE = OpaquePart("test", msgspec.Raw(b"{}"))
SAID = TextPart("Let me look.")


@pytest.mark.parametrize(
    ("parts", "answer"),
    [
        (
            (SAID, ToolCall("1", "a", ""), TextPart("The answer is 5.")),
            "Let me look.\n\nThe answer is 5.",
        ),
        ((SAID, OPAQUE, FIVE), "Let me look.\n\nThe answer is 5."),
        ((SAID, OPAQUE, TextPart("\nThe answer is 5.")), "Let me look.\nThe answer is 5."),
        ((TextPart("我看看"), OPAQUE, TextPart("答案是五")), "我看看\n\n答案是五"),
        ((TextPart("It is no"), OPAQUE, TextPart("on.")), "It is noon."),
        ((TextPart("It is "), TextPart("Noon.")), "It is Noon."),
        ((OPAQUE, SAID, OPAQUE), "Let me look."),
    ],
)
def test_commentary_and_answer_are_paragraphs(parts: tuple[AnswerPart, ...], answer: str) -> None:
    completion = Completion(parts=parts)
    assert classify(completion, partial="", retried=True, tools=False).answer == answer
