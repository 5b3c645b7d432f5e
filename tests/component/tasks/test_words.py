"""Yes and no as people write them, and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.tasks.words import Said, said_in

AROUND = st.text(st.sampled_from(" \t\n.,!?;:()\"'…-"), max_size=4)


@given(AROUND, st.sampled_from(["yes", "Yes", "YES", "y", "Y"]), AROUND)
def test_yes(before: str, word: str, after: str) -> None:
    assert said_in(before + word + after) == Said("approve")


@given(AROUND, st.sampled_from(["no", "No", "NO", "n", "N"]), AROUND)
def test_no(before: str, word: str, after: str) -> None:
    assert said_in(before + word + after) == Said("deny")


@given(
    st.sampled_from(["no", "No", "n"]),
    st.sampled_from([" ", ", ", ": ", ".\n", " - ", "! "]),
    st.text(st.characters(categories=["L", "N", "Zs", "Po"]), max_size=30).map(lambda t: f"a{t}b"),
)
def test_what_follows_a_no_is_the_reason(word: str, between: str, reason: str) -> None:
    assert said_in(word + between + reason) == Said("deny", reason)


@given(
    st.sampled_from(["yes", "Yes", "y", "YES"]),
    st.sampled_from([" ", ", ", ". ", "\n", " - "]),
    st.text(min_size=1, max_size=30).map(lambda text: f"{text}x"),
)
def test_a_yes_that_goes_on_is_no_approval(word: str, between: str, more: str) -> None:
    assert said_in(word + between + more) == Said("unclear")


@given(st.text(max_size=60))
def test_nothing_else_approves(body: str) -> None:
    said = said_in(body)
    letters = "".join(character for character in body if character.isalnum())
    if said is not None and said.value == "approve":
        assert letters.casefold() in ("yes", "y")


@pytest.mark.parametrize(
    "body",
    [
        *("", " ", "...", "yesterday", "yes-man", "nothing", "none", "nobody", "know", "not"),
        *("no-one", "n't", "ok", "sure", "👍", "I say yes", "a no", "nо", "ｙｅｓ"),  # noqa: RUF001
    ],
)
def test_no_answer(body: str) -> None:
    assert said_in(body) is None


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("No, only what is older than a year.", "only what is older than a year."),
        ("no. (not yet)", "(not yet)"),
        ("NO!!! why?", "why?"),
        ("no\nline one\nline two", "line one\nline two"),
        ("n 1", "1"),
        ("no...", None),
        ("(no)", None),
    ],
)
def test_reasons_as_they_were_written(body: str, reason: str | None) -> None:
    assert said_in(body) == Said("deny", reason)


@pytest.mark.parametrize("body", ["yes but only the first", "yes 👍", "yes, no", "y n", "yes yes"])
def test_unclear(body: str) -> None:
    assert said_in(body) == Said("unclear")
