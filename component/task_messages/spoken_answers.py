"""Interprets answers to the questions of tasks that are given in words, in chat (INP-009)."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from component.skills.form_fields import Choice, Property, properties_of
from component.task_messages.yes_no import yes_or_no
from component.tasks.questions import is_sayable, only_value, schema_of
from xep.fluux_agent import errors
from xep.fluux_agent.task import AnswerParams, Input, InputAnswer

_NUMBER: Final = r"(?a)([1-9][0-9]{0,3})[.)]?"
_BETWEEN: Final = r"[,;\n]|\band\b"
_MOST_WORDS: Final = 50
"""The maximum number of words that are divided among several values: more are one text."""


def answer_in_words(question: Input, task: str, text: str) -> InputAnswer | None:
    """Return the answer in a text; None if the question needs more than one value, or no value can
    be given in words.

    The whole text is the value; or, if it is not valid as one, its words are the value and optional
    ones that follow it, if there is only one way to read them. A boolean can also be given by yes
    and no, and a choice by its title or its number, in any case. Several choices are separated by
    commas.

    Raises StanzaError: `invalid-param`, when the text cannot be read that way.
    """
    declared = only_value(question)
    if declared is None:
        return None
    try:
        value = _value_of(declared, text.strip())
    except ValueError as error:
        values = _shared_out(question, text)
        if values is None:
            raise errors.invalid_param(declared.name, str(error)) from None
        return _answer(question, task, values)
    return _answer(question, task, {} if value is msgspec.UNSET else {declared.name: value})


def answer_in_order(question: Input, task: str, text: str) -> InputAnswer | None:
    """Return the answer in a text whose words may be those of several required values.

    None if words cannot give all required values. Raises StanzaError: `invalid-param`, when there
    is no way to read the words, or more than one.
    """
    names = names_in_order(question)
    if takes_words(question) or not names:
        return answer_in_words(question, task, text)
    values = _shared_out(question, text)
    if values is None:
        how = f"expected {', '.join(names)} in this order, so that each can be told; or its form"
        raise errors.invalid_param("answer", how)
    return _answer(question, task, values)


def answer_yes_or_no(question: Input, task: str, value: bool) -> InputAnswer | None:
    """Return the answer for a yes or no; None if the only required value is not a boolean."""
    declared = only_value(question)
    if declared is None or declared.kind != "boolean":
        return None
    return _answer(question, task, {declared.name: value})


def takes_words(question: Input) -> bool:
    """Return whether a text can answer the question (INP-009)."""
    return only_value(question) is not None


def names_in_order(question: Input) -> tuple[str, ...]:
    """Return the names of the values that words can give, in their order: required ones first.

    Empty if words cannot give all required values.
    """
    return tuple([each.name for each in _in_order(question)])


def may_follow(question: Input) -> tuple[str, ...]:
    """Return the names of the values whose words may follow those of the only required one."""
    declared = only_value(question)
    if declared is None or declared.kind == "text":
        return ()
    return tuple([name for name in names_in_order(question) if name != declared.name])


def suggestions(question: Input) -> tuple[str, ...]:
    """Return all texts that can answer, if the schema lists them."""
    declared = only_value(question)
    if declared is None:
        return ()
    if declared.kind == "boolean":
        return ("yes", "no")
    if declared.kind != "choice":
        return ()
    return tuple([choice_name(declared, choice) for choice in declared.choices])


def choice_name(declared: Property, choice: Choice) -> str:
    """Return the name of a choice: its title, if no other one has it."""
    one = None if choice.label is None else declared.titled(choice.label)
    return choice.text if one is None else str(choice.label)


def has_numbers(declared: Property) -> bool:
    """Return whether a number says which choice is meant: none of them is a number itself."""
    names = [name for each in declared.choices for name in (each.text, each.label or "")]
    return not any(name.strip().lstrip("+-").isdecimal() for name in names)


def _in_order(question: Input) -> Sequence[Property]:
    properties = properties_of(schema_of(question))
    if any(each.required and not is_sayable(each) for each in properties):
        return ()
    return sorted(filter(is_sayable, properties), key=lambda each: not each.required)


def _shared_out(question: Input, text: str) -> dict[str, Any] | None:
    """Return the values of words in their order, at least one word each; None if there is no way to
    divide the words, or more than one.
    """
    words = text.split()
    able = _in_order(question)
    if len(words) > _MOST_WORDS:
        return None
    found: list[dict[str, Any]] = []
    ways: dict[int, list[dict[str, Any]]] = {0: [{}]}  # by the number of words used
    for number, declared in enumerate(able, 1):
        further: dict[int, list[dict[str, Any]]] = {}
        for start, before in ways.items():
            for end in range(start + 1, len(words) + 1):
                try:
                    value = _value_of(declared, " ".join(words[start:end]))
                except ValueError:
                    continue
                known = further.setdefault(end, [])
                known += [{**way, declared.name: value} for way in before]
                del known[2:]  # two are already ambiguous
        ways = further
        if not any(each.required for each in able[number:]):
            found += ways.get(len(words), ())
    return found[0] if len(found) == 1 else None


def _value_of(declared: Property, text: str) -> Any:
    """Return the value of a text. Raises ValueError with the reason."""
    if declared.kind == "choices":
        return _several(declared, text)
    said = yes_or_no(text) if declared.kind == "boolean" else None
    return declared.read((_choice_text(declared, text),)) if said is None else said


def _choice_text(declared: Property, text: str) -> str:
    """Return the text of the choice that is meant by its title, its text or its number."""
    named = declared.titled(text)
    if named is not None:
        return named.text
    for one in declared.choices:
        if one.text.casefold() == text.casefold():
            return one.text
    number = re.fullmatch(_NUMBER, text)
    if number is not None and has_numbers(declared):
        index = int(number[1]) - 1
        if 0 <= index < len(declared.choices):
            return declared.choices[index].text
    return text


def _several(declared: Property, text: str) -> Any:
    """Return the values of choices, separated by commas, semicolons, line breaks or "and"."""
    whole = _choice_text(declared, text)
    if any(one.text == whole for one in declared.choices):
        return declared.read((whole,))
    parts = [part for each in re.split(_BETWEEN, text) if (part := each.strip())]
    return declared.read(tuple(dict.fromkeys(_choice_text(declared, part) for part in parts)))


def _answer(question: Input, task: str, values: Mapping[str, Any]) -> InputAnswer:
    return InputAnswer(
        task=task,
        input=question.id,
        revision=question.revision,
        params=AnswerParams(json=msgspec.Raw(msgspec.json.encode(values))),
    )
