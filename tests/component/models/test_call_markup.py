"""The markup of calls is called or removed, whatever the model; nobody reads it in an answer."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.models.answer_limits import TooMuchError
from component.models.written_calls import WrittenCalls, without_calls
from tests.component.models.call_samples import BAR, CALL, LINE, SAMPLES, kimi

SCHEMA = {"properties": {"zone": {"type": "string"}, "days": {"type": "integer"}}}
TOOLS = {"clock": SCHEMA, "diary.look": {}}
MADE = [("clock", {"zone": "UTC", "days": 7})]
samples = pytest.mark.parametrize("call", SAMPLES.values(), ids=SAMPLES)


def read(*pieces: str) -> tuple[str, Any]:
    reader = WrittenCalls(TOOLS, lambda _: False)
    text = "".join(map(reader.feed, pieces))
    rest, calls = reader.end()
    return text + rest, [(name, json.loads(arguments)) for name, arguments in calls]


@samples
def test_a_call_in_the_form_of_each_model_is_made(call: str) -> None:
    assert read(call) == ("", MADE)
    assert read(*call) == ("", MADE), "one character at a time"
    if not call.startswith(("functools", "{")):
        assert read(f"Let me look.\n{call}") == ("Let me look.\n", MADE)
        assert read(*f"Let me look.\n{call}") == ("Let me look.\n", MADE), "in pieces"


def test_a_call_without_its_opening_tag_may_follow_a_text() -> None:
    call = SAMPLES["Qwen without its opening tag"]
    assert read(f"Let me look.\n{call}") == ("Let me look.\n", MADE)
    for text in (f"Let me look.\n{CALL}", f"{CALL} is a call."):
        assert read(text) == (text, []), "it may be meant as a text"


def test_an_answer_that_is_a_list_of_calls_is_made() -> None:
    listed = f"[{CALL}]"
    assert read(listed) == read(*listed) == ("", MADE)
    for text in ('[{"name": "sundial", "arguments": {}}]', "[1, 2]", "[link](https://a.example)"):
        assert read(text) == read(*text) == (text, [])


@pytest.mark.parametrize(
    "call",
    [
        SAMPLES["Qwen Coder"].replace("UTC\n</parameter>", "UTC"),
        SAMPLES["MiniMax"].replace("UTC</parameter>", "UTC"),
        SAMPLES["DeepSeek V3.2"].replace(f"UTC</{BAR}DSML{BAR}parameter>", "UTC"),
        SAMPLES["GLM"].replace("UTC</arg_value>", "UTC"),
    ],
)
def test_a_value_without_an_end_does_not_include_the_next_parameter(call: str) -> None:
    assert read(call)[1] == []
    assert without_calls(call) == ""


@pytest.mark.parametrize(
    "call",
    [
        f"<longcat_tool_call>{CALL}</longcat_tool_call>",
        '<|tools_prefix|>[{"clock": {}}]<|tools_suffix|>',
        "<|tool_call:begin|>0<|tool_call:name|>clock<|tool_call:args|>{}<|tool_call:end|>",
        '<xai:function_call name="clock"><parameter name="a">b</parameter></xai:function_call>',
        '<function(clock){"zone": "UTC"}</function>',
    ],
)
def test_the_markup_of_a_form_that_is_not_read_is_not_shown(call: str) -> None:
    assert without_calls(f"Let me look.\n{call}") == "Let me look."


def test_the_marks_of_an_answer_are_not_shown() -> None:
    assert without_calls("<|START_RESPONSE|>Noon.<|END_RESPONSE|>") == "Noon."
    assert without_calls("Noon.</s>") == "Noon."
    assert read(f"{SAMPLES['Mistral']}</s>") == ("", MADE)


def test_several_calls_of_kimi_are_made_in_their_order() -> None:
    calls = kimi(0, "diary.look", "{}") + kimi(1, "clock", '{"zone": "a:0"}')
    section = f"<|tool_calls_section_begin|>{calls}<|tool_calls_section_end|>"
    assert read(section) == ("", [("diary.look", {}), ("clock", {"zone": "a:0"})])


@samples
def test_a_call_that_is_not_made_is_not_shown(call: str) -> None:
    unknown = call.replace("clock", "sundial")
    alone = "" if not call.startswith("{") or "</tool_call>" in call else unknown
    assert read(unknown)[1] == []
    assert without_calls(unknown) == alone
    assert without_calls(f"Let me look.\n{unknown}") == "Let me look."


@samples
def test_texts_around_a_call_become_paragraphs(call: str) -> None:
    text = f"Let me look.{call}The answer is 5."
    assert read(text)[1] == []
    assert without_calls(text) == "Let me look.\n\nThe answer is 5."


@samples
def test_a_call_that_was_cut_off_is_neither_made_nor_shown(call: str) -> None:
    if call.startswith("{"):
        return  # nothing shows yet that it is a call
    names = call.index("clock") + len("clock")
    for end in range(11 if call.startswith("functools") else 8, len(call)):
        text, calls = read(call[:end])
        assert calls in ([], MADE), call[:end]
        assert end > names or not calls
        assert not calls or "7" in call[:end]
        shown = without_calls(text)
        assert shown.strip("`") == "", f"{call[:end]} -> {shown}"


@samples
def test_calls_in_code_and_quotations_are_shown(call: str) -> None:
    if call.startswith(("```", "{")) or "```" in call or "functools" in call:
        return
    fenced = f"Write it so:\n```xml\n{call}\n```\nand no more."
    assert (read(fenced), without_calls(fenced)) == ((fenced, []), fenced)
    if "\n" not in call:
        inline = f"The form is `{call}` here."
        assert (read(inline), without_calls(inline)) == ((inline, []), inline)
    page = f"The page says: {call}"
    assert without_calls(page, lambda text: text in page) == page


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("It is noon.<|im_end|>", "It is noon."),
        ("It is noon.\n</tool_call>", "It is noon."),
        (f"It is noon.<{BAR}end{LINE}of{LINE}sentence{BAR}>", "It is noon."),
        ("I look.\n<tool_cal", "I look."),
        (
            "<|channel|>commentary to=functions.sundial <|constrain|>json<|message|>{}<|call|>",
            "",
        ),
        ("Now:\n<start_function_call>call:clock{days:7}<end_function_call>", "Now:"),
        ("Now:\n<|tool_call>call:clock{days:7}<tool_call|>", "Now:"),
        ("a < b, c <d> and </em> stay", "a < b, c <d> and </em> stay"),
        (CALL, CALL),
        ("What the tag <think> means", "What the tag <think> means"),
        ("x" * 100 + " <", "x" * 100 + " <"),
    ],
)
def test_ends_of_answers_and_what_is_no_call(text: str, shown: str) -> None:
    assert without_calls(text) == shown


WORDS = st.sampled_from(
    ["Noon. ", "\n", "`", "```", "{", "}", "[", "clock", "<tool_call>", "</tool_call>", CALL,
     "<|tool_call_begin|>", "<|tool_call_end|>", "[TOOL_CALLS]", "<function=", "</function>",
     "<invoke name=", "</invoke>", "functions.clock:0", "<|python_tag|>", "(", ")",
     "```tool_code\n"]
)  # fmt: skip


@given(st.lists(WORDS | st.text(max_size=3), max_size=12).map("".join))
def test_what_is_shown_has_no_marks_of_calls(text: str) -> None:
    shown = without_calls(text)
    assert without_calls(shown) == shown or "`" in text
    if "`" not in text:
        lower = shown.lower()
        assert "<tool_call>" not in lower
        assert "<|tool_call_begin|>" not in lower
        assert "[tool_calls]" not in lower


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>" * 90_000,
        "<tool_call>x " * 80_000,
        "<function=" * 90_000,
        '<invoke name="a">' + '<parameter name="b">' * 50_000,
        "<|tool_call_begin|>" + "functions.a:0" * 70_000,
        "<|python_start|>[" + "(" * 1_000_000,
        "[TOOL_CALLS]" + "[" * 1_000_000,
        '{"name": ' * 100_000 + "</tool_call>" * 10_000,
        "`" * 1_000_000,
        "<" * 1_000_000,
        "<|channel|>" * 90_000,
        "```tool_code\n" * 70_000,
    ],
)
def test_markup_is_removed_in_time_proportional_to_the_text(text: str) -> None:
    """In quadratic time each of these takes minutes."""
    without_calls(text)
    with contextlib.suppress(TooMuchError):
        read(text)
