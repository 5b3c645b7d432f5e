"""Reasoning in the text is separated from what is said, wherever the pieces are cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.models.written_text import WrittenThoughts


def apart(*pieces: str, opened: bool = False) -> tuple[str, str]:
    """What is said, and what is reasoning, in the end."""
    said, thought = "", ""
    reader = WrittenThoughts(opened=opened)
    found = [one for piece in pieces for one in reader.feed(piece)]
    for kind, text in [*found, *reader.end()]:
        if kind == "unsaid":
            said, thought = "", thought + said
        elif kind == "said":
            said += text
        else:
            thought += text
    return said, thought


CASES = {
    "It is noon.": ("It is noon.", ""),
    "<think>Hm.</think>\n\nNoon.": ("Noon.", "<think>Hm.</think>\n\n"),
    "\n<think>Hm.</think>Noon.": ("Noon.", "\n<think>Hm.</think>"),
    "<THINK>Hm.</Think>Noon.": ("Noon.", "<THINK>Hm.</Think>"),
    "<thinking>Hm.</thinking>Noon.": ("Noon.", "<thinking>Hm.</thinking>"),
    "[THINK]Hm.[/THINK]Noon.": ("Noon.", "[THINK]Hm.[/THINK]"),
    "<think>Hm": ("", "<think>Hm"),
    "<think>": ("", "<think>"),
    "Let me see. <think>Hm": ("Let me see. ", "<think>Hm"),
    "Hm, what?\n</think>\nNoon.": ("Noon.", "Hm, what?\n</think>\n"),
    "</think>Noon.": ("Noon.", "</think>"),
    "<think>a</think>b</think>c": ("c", "<think>a</think>b</think>"),
    "<think>a <think> b</think>c": ("c", "<think>a <think> b</think>"),
    "<think>```</think>Noon.": ("Noon.", "<think>```</think>"),
    "<think>a</think>One <think>b</think>two": ("One two", "<think>a</think><think>b</think>"),
    "Write `<think>` first.": ("Write `<think>` first.", ""),
    "```\n<think>\n</think>\n``` so": ("```\n<think>\n</think>\n``` so", ""),
    "a < b, <thin": ("a < b, <thin", ""),
    "  \n": ("  \n", ""),
}


@pytest.mark.parametrize(("answer", "expected"), CASES.items())
def test_written_thoughts_are_separated_from_the_answer(
    answer: str, expected: tuple[str, str]
) -> None:
    assert apart(answer) == expected
    assert apart(*answer) == expected, "one character at a time"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("Hm.</think>Noon.", ("Noon.", "Hm.</think>")),
        ("<think>Hm.</think>Noon.", ("Noon.", "<think>Hm.</think>")),
        ("Noon.", ("Noon.", "")),
    ],
)
def test_a_template_that_opens_the_tag(answer: str, expected: tuple[str, str]) -> None:
    assert apart(*answer, opened=True) == expected
    reader = WrittenThoughts(opened=True)
    before_tag = [text for kind, text in reader.feed("Hm") if kind == "said"]
    assert not before_tag, "nothing is said before it is known whether it was reasoning"


def test_it_is_known_whether_the_template_opened_the_tag() -> None:
    for answer, opened in (("Hm.</think>Noon.", True), ("<think>a</think>b</think>c", False)):
        reader = WrittenThoughts()
        assert list(reader.feed(answer))
        assert reader.was_opened == opened


PARTS = st.lists(
    st.sampled_from(
        ["<think>", "</think>", "<thinking>", "[/THINK]", "```", "`", "<", "[", " ", "\n", "</thin"]
    )
    | st.text(max_size=4)
).map("".join)


@given(PARTS, st.data(), st.booleans())
def test_pieces_change_nothing_and_nothing_is_lost(
    answer: str, data: st.DataObject, opened: bool
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(answer)), max_size=6)))
    pieces = [answer[a:b] for a, b in zip([0, *cuts], [*cuts, len(answer)], strict=True)]
    said, thought = apart(*pieces, opened=opened)
    assert (said, thought) == apart(answer, opened=opened)
    assert len(said) + len(thought) == len(answer)


WORDS = st.text(st.characters(exclude_characters="<>[]`")).map(lambda text: f"a{text}a")


@given(WORDS, WORDS, st.booleans())
def test_reasoning_is_never_said(secret: str, answer: str, opened_in_prompt: bool) -> None:
    text = f"{'' if opened_in_prompt else '<think>'}{secret}</think>{answer}"
    assert apart(*text)[0] == answer
