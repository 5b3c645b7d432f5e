"""Answers in the Harmony format, as servers pass them on that do not know it."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.models.answer_draft import AnswerDraft
from component.models.answer_limits import CALLS, TooMuchError
from component.models.chat_text import Habits, MixedText, Reasoning
from component.models.messages import OpaquePart, TextPart, ToolCall
from component.models.tool_schemas import ToolNames
from component.models.written_calls import WrittenCalls

TOOLS: dict[str, Any] = {"clock": {}, "diary.look": {}}


def read(
    *pieces: str, tools: dict[str, Any] = TOOLS, is_quoted: Callable[[str], bool] = lambda _: False
) -> tuple[str, str, Any]:
    """What is said, the reasoning, and the calls."""
    draft = AnswerDraft(None)
    reasoning = Reasoning(draft)
    reader = MixedText(draft, reasoning, WrittenCalls(tools, is_quoted), Habits("gpt-oss-20b"))
    for piece in pieces:
        reader.feed(piece)
    for _ in range(2):  # at the reason to stop, and at the end of the stream
        reader.end()
        reasoning.flush()
    said, thought, calls = "", "", []
    for part in draft.parts(ToolNames(()), "test", set()):
        match part:
            case TextPart(text):
                said += text
            case OpaquePart():
                thought += "".join(json.loads(bytes(part.data)).values())
            case ToolCall():
                calls.append((part.name, json.loads(part.arguments)))
    return said, thought, calls


ANALYSIS = "<|channel|>analysis<|message|>The person asks for the time.<|end|>"
HEADER = "<|start|>assistant<|channel|>commentary to=functions.clock <|constrain|>json<|message|>"
ARGUMENTS = '{"zone": "UTC"}'
UTC = [("clock", {"zone": "UTC"})]

CASES: dict[str, tuple[str, str, Any]] = {
    "<|channel|>final<|message|>Noon.<|return|>": ("Noon.", "", []),
    "<|channel|>final<|message|>Noon.": ("Noon.", "", []),
    f"{ANALYSIS}<|start|>assistant<|channel|>final<|message|>Noon.<|return|>": (
        "Noon.",
        "The person asks for the time.",
        [],
    ),
    f"{ANALYSIS}{HEADER}{ARGUMENTS}<|call|>": ("", "The person asks for the time.", UTC),
    f"{HEADER}{ARGUMENTS}": ("", "", UTC),
    "<|start|>assistant to=functions.clock<|channel|>commentary json<|message|>"
    f"{ARGUMENTS}<|call|>": (
        "",
        "",
        UTC,
    ),
    "<|channel|>commentary to=functions.diary.look<|message|><|call|>": (
        "",
        "",
        [("diary.look", {})],
    ),
    f"<|channel|>analysis to=functions.clock code<|message|>{ARGUMENTS}<|call|>": ("", "", UTC),
    f"<|channel|>commentary<|message|>I look.<|end|>{HEADER}{ARGUMENTS}<|call|>": (
        "I look.",
        "",
        UTC,
    ),
    "<|channel|>commentary<|message|>I look.<|end|>\n<|start|>assistant<|channel|>final<|message|>"
    "Noon.<|return|>": ("I look.\n\nNoon.", "", []),
    "<|channel|>analysis<|message|>```<|end|><|start|>assistant<|channel|>final<|message|>Noon.": (
        "Noon.",
        "```",
        [],
    ),
    "<|channel|>analysis<|message|>Hm, <|constrain|> <|message|>?": (
        "",
        "Hm, <|constrain|> <|message|>?",
        [],
    ),
    "<|channel|>final<|message|>Write `<|end|>` or\n```\n<|end|>\n```\n so.<|return|>": (
        "Write `<|end|>` or\n```\n<|end|>\n```\n so.",
        "",
        [],
    ),
    "<|channel|>analysis to=python code<|message|>print(1)<|call|>": (
        "",
        "<|channel|>analysis to=python code<|message|>print(1)<|call|>",
        [],
    ),
    "\n<|CHANNEL|>final<|MESSAGE|>Noon.": ("Noon.", "", []),
    "<|channel|>final<|message|>": ("", "", []),
    "<|channel|><|return|> One <|message|> two": ("<|channel|>One <|message|> two", "", []),
}


@pytest.mark.parametrize(("answer", "expected"), CASES.items())
def test_a_harmony_answer_is_split_into_text_reasoning_and_calls(
    answer: str, expected: tuple[str, str, Any]
) -> None:
    assert read(answer) == expected
    assert read(*answer) == expected, "one character at a time"


@pytest.mark.parametrize(
    "answer",
    [
        "Noon.",
        "<|chan",
        "  <|",
        f"The format is {HEADER}{ARGUMENTS}<|call|>",
        f"`{HEADER}{ARGUMENTS}<|call|>`",
        "<|channel|>final",
        "<|channel|>" + "final " * 100,
        HEADER.replace("clock", "sundial") + ARGUMENTS + "<|call|>",
        HEADER + '{"zone": "U',
        HEADER + "[1]<|call|>",
        HEADER + '{"zone": NaN}<|call|>',
        HEADER + '{"a":' * 100 + "1" + "}" * 100 + "<|call|>",
    ],
)
def test_anything_but_a_valid_harmony_call_stays_text(answer: str) -> None:
    assert read(answer) == (answer, "", [])
    assert read(*answer) == (answer, "", [])


def test_a_harmony_call_quoted_from_the_prompt_stays_text() -> None:
    answer = f"{HEADER}{ARGUMENTS}<|call|>"
    assert read(answer, is_quoted=f"Write {answer}!".__contains__) == (answer, "", [])


def test_a_harmony_call_stays_text_when_no_tools_are_offered() -> None:
    answer = f"{HEADER}{ARGUMENTS}<|call|>"
    assert read(answer, tools={}) == (answer, "", [])


def test_what_is_said_is_said_at_once() -> None:
    shown: list[str | None] = []
    draft = AnswerDraft(shown.append)
    reader = MixedText(draft, Reasoning(draft), WrittenCalls(TOOLS, lambda _: False), Habits("m"))
    for piece in (ANALYSIS, "<|start|>assistant<|channel|>final<|mess", "age|>It is ", "noon."):
        reader.feed(piece)
    assert shown == ["It is ", "noon."]


MARKS = ["<|channel|>", "<|start|>", "<|message|>", "<|constrain|>", "<|end|>", "<|return|>"]
PARTS = st.lists(
    st.sampled_from([*MARKS, "<|call|>", "analysis", "final", "commentary", "assistant", "json",
        " to=functions.clock", "{}", "```", "`", "<", "<|", " ", "\n", "<think>", "</think>"])
    | st.text(max_size=3)
)  # fmt: skip


@given(PARTS, st.data(), st.booleans())
def test_pieces_change_nothing(parts: list[str], data: st.DataObject, framed: bool) -> None:
    answer = "".join((["<|channel|>"] if framed else []) + parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(answer)), max_size=6)))
    pieces = [answer[a:b] for a, b in zip([0, *cuts], [*cuts, len(answer)], strict=True)]
    assert read(*pieces) == read(answer)


TEXT = st.text(
    st.characters(exclude_characters="<>|`", exclude_categories=["Cs", "Cc"]), min_size=1
)
JSON = st.recursive(
    st.none() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner),
    max_leaves=5,
)


@given(TEXT, TEXT, TEXT, st.dictionaries(TEXT, JSON))
def test_any_messages_are_told_apart(
    thought: str, preamble: str, last: str, arguments: dict[str, Any]
) -> None:
    start = "<|start|>assistant"
    answer = (
        f"<|channel|>analysis<|message|>{thought}<|end|>"
        f"{start}<|channel|>commentary<|message|>{preamble}<|end|>"
        f"{HEADER}{json.dumps(arguments)}<|call|>"
        f"{start}<|channel|>final<|message|>{last}<|return|>"
    )
    assert read(*answer) == (f"{preamble}\n\n{last}", thought, [("clock", arguments)])


@pytest.mark.parametrize(
    "answer",
    [
        "<|channel|>" * 50_000,
        "<|channel|>analysis<|message|>" + "<|message|>" * 50_000,
        "<|channel|>final<|message|>" + "`<|end|>" * 50_000,
        "<|channel|>final<|message|>" + "<|" * 200_000,
        "<|channel|>" + " " * 500_000,
        HEADER + '{"a":' * 100_000,
        HEADER + " " * 500_000,
        HEADER + "[" * 500_000 + "<|call|>",
        " " * 500_000,
    ],
)
def test_hostile_answers_take_time_in_proportion(answer: str) -> None:
    """In quadratic time each of these takes minutes."""
    half = len(answer) // 2
    assert read(answer) == read(answer[:half], *answer[half : half + 1000], answer[half + 1000 :])


def test_white_space_in_many_pieces_takes_time_in_proportion() -> None:
    assert read(*[" "] * 200_000, "Noon.")[0].strip() == "Noon."


def test_more_than_128_harmony_calls_in_an_answer_are_refused() -> None:
    with pytest.raises(TooMuchError, match="128 tool calls"):
        read(f"{HEADER}{ARGUMENTS}<|call|>" * (CALLS + 1))
    with pytest.raises(TooMuchError, match="128 tool calls"):
        read(f"{HEADER}[]<|call|>" * (CALLS + 1))
