"""A quotation in the text is told from what the author says, and names what it quotes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.task_messages.questions import is_quoted, split_quotation

QUESTION = 'May I run wipe? disk: "sda". Please answer yes or no within 2 hours.'
LINES = st.text(st.characters(exclude_characters="\n>"), max_size=20).map(str.strip)


@given(st.lists(LINES, max_size=4), st.lists(LINES, min_size=1, max_size=4))
def test_what_is_quoted_and_what_is_said_are_told_apart(quoted: list[str], said: list[str]) -> None:
    text = "\n".join([f"> {line}" for line in quoted] + said)
    assert split_quotation(text) == ("\n".join(quoted), "\n".join(said).strip())


@given(st.text())
def test_any_text_can_be_split(text: str) -> None:
    quoted, said = split_quotation(text)
    assert text.startswith(">") or quoted == ""
    assert said == said.strip()


@pytest.mark.parametrize(
    "quoted",
    [
        QUESTION,
        'May I run wipe? disk: "sda". Please answer yes or no within 90 minutes.',
        'May I run wipe?\ndisk: "sda".',
        f"Assistant, 20:15:\n{QUESTION}",
        'disk: "sda"',
    ],
)
def test_a_question_is_named(quoted: str) -> None:
    assert is_quoted(QUESTION, quoted)


@pytest.mark.parametrize(
    "quoted",
    ["", " \n", "Please answer yes or no", 'May I run wipe? disk: "sdb". Please answer', "yes"],
)
def test_another_text_does_not_name_it(quoted: str) -> None:
    assert not is_quoted(QUESTION, quoted)
