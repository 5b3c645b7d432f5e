"""Choices of questions in chat: they are listed, and a title, a value or a number chooses."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.task_messages.spoken_answers import answer_in_order, answer_in_words, suggestions
from component.tasks.questions import schema_of
from tests.component.task_messages.test_questions import WORDS, asks, body
from xep.fluux_agent.task import Input
from xep.stanza_error import StanzaError

TITLED = [
    {"const": "p1", "title": "High priority"},
    {"const": "p2", "title": "Low, or none"},
    {"const": "p3"},
]
ONE: dict[str, Any] = {
    "properties": {"priority": {"type": "string", "oneOf": TITLED}},
    "required": ["priority"],
}
SEVERAL: dict[str, Any] = {
    "properties": {"labels": {"type": "array", "items": {"anyOf": TITLED}, "title": "Labels"}},
    "required": ["labels"],
}


def question(schema: dict[str, Any]) -> Input:
    content = asks({"type": "object", **schema}).content
    assert isinstance(content, Input)
    return content


def said(schema: dict[str, Any], text: str) -> Any:
    answer = answer_in_words(question(schema), "t1", text)
    assert answer is not None
    assert answer.params is not None
    return msgspec.json.decode(answer.params.json)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("High priority", "p1"),
        (" high PRIORITY ", "p1"),
        ("p1", "p1"),
        ("P2", "p2"),
        ("Low, or none", "p2"),
        ("1", "p1"),
        ("3.", "p3"),
        ("2)", "p2"),
    ],
)
def test_a_title_a_value_or_a_number_chooses(text: str, value: str) -> None:
    assert said(ONE, text) == {"priority": value}


@pytest.mark.parametrize("text", ["4", "0", "high", "p1 p2", "²"])
def test_what_is_none_of_the_choices_is_refused_with_their_titles(text: str) -> None:
    with pytest.raises(StanzaError, match="High priority, Low, or none, p3"):
        answer_in_words(question(ONE), "t1", text)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("High priority", ["p1"]),
        ("Low, or none", ["p2"]),
        ("high priority, p3", ["p1", "p3"]),
        ("1 and 3", ["p1", "p3"]),
        ("1;2\n3", ["p1", "p2", "p3"]),
        ("1, p1, High priority", ["p1"]),
    ],
)
def test_several_choices_are_separated_by_commas(text: str, values: list[str]) -> None:
    assert said(SEVERAL, text) == {"labels": values}


def test_a_choice_is_not_taken_for_its_place_where_choices_are_numbers() -> None:
    days = {"properties": {"days": {"enum": [10, 20, 30]}}, "required": ["days"]}
    assert said(days, "20") == {"days": 20}
    with pytest.raises(StanzaError):
        answer_in_words(question(days), "t1", "2")


def test_a_title_is_meant_where_it_is_also_another_value() -> None:
    swapped = [{"const": "a", "title": "b"}, {"const": "b", "title": "a"}]
    schema = {"properties": {"x": {"type": "string", "oneOf": swapped}}, "required": ["x"]}
    assert said(schema, "b") == {"x": "a"}


def test_choices_with_the_same_title_are_named_by_their_values() -> None:
    same = [{"const": "a", "title": "X"}, {"const": "b", "title": "x"}]
    schema = {"properties": {"x": {"type": "string", "oneOf": same}}, "required": ["x"]}
    assert suggestions(question(schema)) == ("a", "b")
    with pytest.raises(StanzaError):
        answer_in_words(question(schema), "t1", "X")


def test_words_choose_among_other_values() -> None:
    schema = {
        "properties": {**ONE["properties"], "count": {"type": "integer"}},
        "required": ["priority", "count"],
    }
    answer = answer_in_order(question(schema), "t1", "high priority 7")
    assert answer is not None
    assert answer.params is not None
    assert bytes(answer.params.json) == b'{"priority":"p1","count":7}'


def test_a_question_lists_the_titles_of_its_choices() -> None:
    (message,) = WORDS.messages(asks({"type": "object", **ONE}))
    listed = "1. High priority\n2. Low, or none\n3. p3\n\n"
    assert f"{listed}Please answer with one of these, or with its number within" in body(message)
    responses = [getattr(each, "value", None) for each in message.payloads[1:]]
    assert responses == ["High priority", "Low, or none", "p3"]


def test_a_question_with_several_choices_says_how_they_are_separated() -> None:
    (message,) = WORDS.messages(asks({"type": "object", **SEVERAL}))
    text = body(message)
    assert "3. p3\n\nPlease answer with some of these, separated by commas, or with numbers" in text


def test_a_question_with_several_fields_lists_the_choices_of_each() -> None:
    size = {"type": "string", "enum": ["s", "m"]}
    schema = {
        "type": "object",
        "properties": {**ONE["properties"], "size": size, "count": {"type": "integer"}},
        "required": ["priority", "size", "count"],
    }
    (message,) = WORDS.messages(asks(schema))
    assert "priority:\n1. High priority\n2. Low, or none\n3. p3\n\n" in body(message)
    assert "size:\n1. s\n2. m\n\nPlease answer with the form, or with /answer" in body(message)


def test_a_long_list_is_shown_with_numbers() -> None:
    names = [f"item {number}a" for number in range(60)]
    schema = {"type": "object", "properties": {"a": {"enum": names}}, "required": ["a"]}
    (message,) = WORDS.messages(asks(schema))
    assert "50. item 49a\n… and 10 more, which the form shows.\n\n" in body(message)


@given(st.lists(st.text(min_size=1, max_size=5), min_size=1, max_size=5), st.text(max_size=8))
def test_an_answer_in_words_fits_the_schema_or_is_refused(titles: list[str], text: str) -> None:
    choices = [{"const": f"v{n}", "title": title} for n, title in enumerate(titles)]
    schema = {"properties": {"a": {"type": "string", "oneOf": choices}}, "required": ["a"]}
    asked = question(schema)
    assert schema_of(asked)["properties"] == schema["properties"]
    try:
        values = said(schema, text)
    except StanzaError:
        return
    assert values["a"] in {each["const"] for each in choices}
