"""Words match in all their forms, in every script."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.memory.words import grams, needle, wanted, words


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("CAFÉ", "cafe"),
        ("Straße", "STRASSE"),
        ("İstanbul", "istanbul"),
        ("ΣΊΣΥΦΟΣ", "σίσυφος"),
        ("ёлка", "елка"),
        ("שָׁלוֹם", "שלום"),
        ("مُحَمَّد", "محمد"),
        ("ﬁne", "fine"),
        ("ﾄｳｷｮｳ", "トウキョウ"),
        ("favourite_tea", "favourite tea"),
        ("e\u0301te\u0301", "été"),
    ],
)
def test_case_accents_and_unicode_forms_are_ignored(one: str, other: str) -> None:
    assert words(one) == words(other) != []


def test_scripts_without_spaces_are_cut_into_pairs() -> None:
    assert words("会议在星期五") == ["会议", "议在", "在星", "星期", "期五", "五"]
    assert wanted("星期五", common=True) == ["星期", "期五"]
    assert wanted("猫", common=False) == ["猫"]
    assert set(wanted("학교", common=False)) <= set(words("학교에서"))


def test_the_vowel_signs_of_indic_scripts_belong_to_their_words() -> None:
    assert words("मेरा नाम") == ["मेरा", "नाम"]


def test_common_words_are_omitted_unless_requested() -> None:
    assert wanted("What is the name of my dog?", common=False) == ["name", "dog"]
    assert wanted("Wie heißt mein Hund?", common=False) == ["heisst", "hund"]
    assert wanted("что это такое", common=False) == ["такое"]
    assert wanted("who am I", common=False) == []
    assert wanted("who am I", common=True) == ["who", "am"]
    assert wanted("👍 … !?", common=True) == []


def test_forms_of_a_word_and_compounds_share_groups_of_characters() -> None:
    assert grams("train") == ("_tr", "tra", "rai", "ain", "in_")
    assert {"tra", "rai", "ain"} <= set(grams("trains"))
    assert {"zah", "ahn"} <= set(grams("zahnarzt")) & set(grams("milchzahn"))
    assert grams("at") == ("at",)
    assert grams("猫") == ("猫",)
    assert grams("黒猫") == ("黒猫", "黒", "猫")


@given(st.text(), st.text())
def test_a_text_has_the_groups_that_it_is_cut_into(text: str, other: str) -> None:
    joined = f"_{'_'.join(words(text))}_"
    own = {gram for word in words(text) for gram in grams(word)}
    assert all(needle(gram) in joined for gram in own)
    # A word of two characters begins and ends as longer ones do, whose groups these are.
    own |= {gram for word in words(text) if len(word) == 2 for gram in (f"_{word}", f"{word}_")}
    others = {gram for word in words(other) for gram in grams(word)} - own
    assert not any(needle(gram) in joined for gram in others)


@given(st.text())
def test_words_contain_no_syntax_of_queries(text: str) -> None:
    for word in words(text):
        assert word
        assert not set(word) & set("\"'*:^()+-_{} \t\n\0")
        assert len(word) <= 48


@given(st.text())
def test_the_words_of_a_text_match_the_text(text: str) -> None:
    assert set(wanted(text, common=True)) <= set(words(text))
