"""Interprets answers to the questions of tasks that are given in words, in chat (INP-009)."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from component.skills.form_fields import Choice, Property, properties_of
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
    is not exactly one way to read the words.
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


def _any_of(phrases: Iterable[str]) -> str:
    return "|".join(sorted(phrase.replace(" ", r"\s+") for phrase in phrases))


_PHRASES: Final = frozenset(("go ahead", "do it", "please do"))
YES: Final = frozenset(("yes", "y", "yep", "yeah", "yup", "ok", "okay", "sure")) | _PHRASES
NO: Final = frozenset(("no", "n", "nope", "nah"))
COURTESY: Final = frozenset(("please", "thanks", "thank you")) | _PHRASES
"""Phrases after a yes that do not change its meaning."""
_SAID_OF_NOTHING_ELSE: Final = frozenset(("yes", "y"))
"""Words for yes that people rarely use to begin another sentence."""

_FIRST: Final = re.compile(
    f"(?:{_any_of(_PHRASES)})(?![\\w\u2019'-])|\\w+(?:[\u2019'-]\\w+)*",
    re.IGNORECASE,
)
"""Matches a phrase or a word; a word that continues after an apostrophe or a hyphen is another
word.
"""
_AFTER: Final = " \t\r\n,.:;!-\u2013\u2014"
_END: Final = (
    rf"(?:\s*,?\s+(?:{_any_of(COURTESY)}))?\s*"
    "(?:[.\u3002\uff0e\uff61]|[!\uff01]+)?"
)
"""Everything that may follow a word for yes: courtesy, one full stop or exclamation marks. White
space after it is removed before.
"""
_LONGEST_END: Final = 40
"""The maximum number of characters; also limits the running time of the expression."""


class SpokenYesNo(msgspec.Struct, frozen=True):
    """An answer in words. An `unclear` one begins with a yes and continues, so it does not count
    (CNF-024).
    """

    value: Literal["approve", "deny", "unclear"]
    reason: str | None = None


def said_in(body: str) -> SpokenYesNo | None:
    """Return the answer in a body; None if there is none.

    A yes stands alone, with no more than `_END` after it: a question mark, an ellipsis, a quotation
    mark or an invisible character can change its meaning. A no may have anything around it but
    letters, digits and the mark of a quotation, and the text after it is the reason, unchanged
    (CNF-023): to read a no too often does no harm. Case does not matter.
    """
    start, end = 0, len(body)
    while start < end and _is_around(body[start]):
        start += 1
    while end > start and _is_around(body[end - 1]):
        end -= 1
    first = _FIRST.match(body, start, end)
    if first is None:
        return None
    word = _word(first)
    if word in NO:
        reason = body[first.end() :].strip().lstrip(_AFTER)
        # Punctuation around the whole answer, "no." or "(no)", is not a reason.
        said = any(not _is_around(character) for character in reason)
        return SpokenYesNo("deny", reason if said else None)
    if word in YES:
        rest = body[first.end() :]
        if not body[:start].strip() and _is_end(rest):
            return SpokenYesNo("approve")
        goes_on = any(character.isalnum() for character in rest)
        return None if goes_on and word not in _SAID_OF_NOTHING_ELSE else SpokenYesNo("unclear")
    return None


def yes_or_no(text: str) -> bool | None:
    """Return the answer to a question with two significant answers: yes or no, each alone."""
    first = _FIRST.match(text.lstrip())
    word = "" if first is None else _word(first)
    if first is None or word not in YES | NO or not _is_end(text.lstrip()[first.end() :]):
        return None
    return word in YES


def _word(found: re.Match[str]) -> str:
    return " ".join(found.group().lower().split())


def _is_end(rest: str) -> bool:
    rest = rest.rstrip()
    return len(rest) <= _LONGEST_END and re.fullmatch(_END, rest.lower()) is not None


def _is_around(character: str) -> bool:
    return not character.isalnum() and character != ">"
