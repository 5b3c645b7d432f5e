"""Yes and no as people write them, and nothing else."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from component.task_messages.spoken_answers import (
    COURTESY,
    NO,
    YES,
    SpokenYesNo,
    said_in,
    yes_or_no,
)

SPACE = st.text(st.sampled_from(" \t\n\u00a0\u3000"), max_size=4)
END = st.sampled_from(["", ".", "!", "!!!", "\u3002", "\uff01", " !"])
YES_WORDS = st.sampled_from(["yes", "Yes", "YES", "yEs", "y", "Y"])
NO_WORDS = st.sampled_from(["no", "No", "NO", "n", "N"])
COURTESIES = st.sampled_from(["", *sorted(COURTESY)]).map(lambda said: f", {said}" if said else "")
AROUND_NO = st.text(st.sampled_from(" \t\n.,!?;:()\"'…-"), max_size=4)

# The whole of what may be added to a yes, written down a second time and in another way.
ADDED = re.compile("\\s*(?:[.\u3002\uff0e\uff61]|[!\uff01]+)?\\s*")


@given(SPACE, YES_WORDS, COURTESIES, END, SPACE)
def test_a_plain_yes_approves(before: str, word: str, courtesy: str, end: str, after: str) -> None:
    assert said_in(before + word + courtesy + end + after) == SpokenYesNo("approve")


@given(AROUND_NO, NO_WORDS, AROUND_NO)
def test_a_plain_no_denies(before: str, word: str, after: str) -> None:
    assert said_in(before + word + after) == SpokenYesNo("deny")


@given(
    st.sampled_from(["no", "No", "n"]),
    st.sampled_from([" ", ", ", ": ", ".\n", " - ", "! "]),
    st.text(st.characters(categories=["L", "N", "Zs", "Po"]), max_size=30).map(lambda t: f"a{t}b"),
)
def test_what_follows_a_no_is_the_reason(word: str, between: str, reason: str) -> None:
    assert said_in(word + between + reason) == SpokenYesNo("deny", reason)


@given(
    st.sampled_from(["yes", "Yes", "y", "YES"]),
    st.sampled_from([" ", ", ", ". ", "\n", " - "]),
    st.text(min_size=1, max_size=30).map(lambda text: f"{text}x"),
)
def test_a_yes_that_goes_on_is_no_approval(word: str, between: str, more: str) -> None:
    assert said_in(word + between + more) == SpokenYesNo("unclear")


MARKS = "?\uff1f؟;;՞፧⸮⁇⁈⁉‽¿,:…-'\"()*_~`\u0336\u200b\u200d\u202e\ufe0f\U0001f44d"


@given(st.text(st.one_of(st.characters(), st.sampled_from(MARKS)), max_size=12), YES_WORDS)
@example("?", "yes")
@example("", "yes")
@example(".", "y")
def test_what_is_added_after_a_yes_makes_it_none(added: str, word: str) -> None:
    said = said_in(word + added)
    approves = said is not None and said.value == "approve"
    assert said is None or said.value != "deny"
    fine = ADDED.fullmatch(added) is not None
    polite = any(one in added.lower() for one in COURTESY)
    spelt = (word + added).strip(" .!").lower() in YES  # "y" and "es"
    assert approves == fine or (approves and (polite or spelt))


@given(st.text(max_size=8), YES_WORDS)
def test_what_is_added_before_a_yes_makes_it_none(added: str, word: str) -> None:
    said = said_in(added + word)
    approves = said is not None and said.value == "approve"
    courteous = added.lower().strip(" ,\n\t").rstrip(",").strip() in COURTESY
    assert approves == (not added.strip()) or (approves and courteous)


@pytest.mark.parametrize(
    "body",
    [
        *("yes?", "yes ?", "Yes?!", "y?", "yes\uff1f", "yes؟", "yes;", "yes\u037e", "yes⁇"),
        *(
            "yes, but…",
            "yes but",
            "yes if",
            "yes, if it is free",
            "yes…",
            "yes...",
            "yes..",
            "yes,",
        ),
        *("yes:", '"yes', "yes'", "yes)", "yes*", "yes\u0336", "yes\u200b", "yes 👍", "yes, no"),
        *(
            "yes but only the first",
            "y n",
            "yes yes",
            "yes\n> no",
            "yes, please?",
            "yes please wait",
        ),
    ],
)
def test_a_yes_in_doubt_is_unclear(body: str) -> None:
    assert said_in(body) == SpokenYesNo("unclear")


@pytest.mark.parametrize(
    "body", ['"yes"', "(yes)", "*yes*", "¿yes?", "> yes", "please yes?", "?yes"]
)
def test_a_yes_in_something_else_is_none(body: str) -> None:
    said = said_in(body)
    assert said is None or said.value == "unclear"


@given(st.text(max_size=60))
def test_nothing_else_approves(body: str) -> None:
    said = said_in(body)
    letters = "".join(character for character in body if character.isalnum())
    if said is not None and said.value == "approve":
        assert any(letters.lower().startswith(word.replace(" ", "")) for word in YES)


@pytest.mark.parametrize(
    "body",
    [
        *("", " ", "...", "yesterday", "yes-man", "nothing", "none", "nobody", "know", "not"),
        *("no-one", "n't", "okra", "surely", "goahead", "\U0001f44d", "I say yes", "a no"),
        *("n\u043e", "\uff59\uff45\uff53", "ye\u017f"),  # letters that look alike
    ],
)
def test_texts_that_only_resemble_an_answer_decide_nothing(body: str) -> None:
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
        ("no?", None),
    ],
)
def test_reasons_as_they_were_written(body: str, reason: str | None) -> None:
    assert said_in(body) == SpokenYesNo("deny", reason)


@pytest.mark.parametrize("body", ["Yes, please.", "yes please!", "y, thanks", "Yes, thank you."])
def test_courtesy_is_no_condition(body: str) -> None:
    assert said_in(body) == SpokenYesNo("approve")


def test_a_long_body_takes_no_longer_than_its_length() -> None:
    assert said_in(f"yes{' ' * 200_000}x") == SpokenYesNo("unclear")
    assert said_in(f"{' ' * 200_000}yes{' ' * 200_000}") == SpokenYesNo("approve")


def test_the_words_are_small_letters_and_no_word_says_both() -> None:
    assert all(word == word.lower() for word in YES | NO | COURTESY)
    assert not YES & NO


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("Yes.", True), (" y ", True), ("no", False), ("No, thanks!", False), ("n", False)),
        *(("no?", None), ("yes?", None), ("no, keep it", None), ("(no)", None), ("maybe", None)),
        ("", None),
    ],
)
def test_where_both_answers_have_weight_both_stand_alone(text: str, value: bool | None) -> None:
    assert yes_or_no(text) is value


@pytest.mark.parametrize("word", sorted(YES))
@pytest.mark.parametrize("form", ["{}", "{}!", " {}. ", "{}, thanks", "{} go  ahead!", "{}, do it"])
def test_people_say_yes_in_many_words(word: str, form: str) -> None:
    assert said_in(form.format(word)) == SpokenYesNo("approve")
    assert said_in(form.format(word.upper())) == SpokenYesNo("approve")
    assert yes_or_no(form.format(word)) is True


@pytest.mark.parametrize("word", sorted(NO))
def test_people_say_no_in_many_words(word: str) -> None:
    assert said_in(f"{word}, not today") == SpokenYesNo("deny", "not today")
    assert yes_or_no(word) is False


@pytest.mark.parametrize("word", sorted(YES - {"yes", "y"}))
def test_who_begins_with_ok_may_talk_of_something_else(word: str) -> None:
    assert said_in(f"{word}, and what about the weather?") is None
    assert said_in(f"{word}?") == SpokenYesNo("unclear")
    assert said_in(f"{word}\u2026") == SpokenYesNo("unclear")
    assert said_in(f"{word}-ish") != SpokenYesNo("approve")
