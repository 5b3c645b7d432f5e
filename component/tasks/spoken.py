"""Answers to the questions of tasks that are given in words, as chat brings them (INP-009)."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from component.skills.form_fields import Property
from component.skills.schema_properties import properties_of
from component.tasks.answers import schema_of
from component.tasks.words import yes_or_no
from xep.fluux_agent import errors
from xep.fluux_agent.task import AnswerParams, Input, InputAnswer

_MOST_WORDS: Final = 50
"""Words that are shared out among values: more are a text."""


def answer_in_words(question: Input, task: str, text: str) -> InputAnswer | None:
    """The answer that a text gives; None if more than one value has to be given, or none can be.

    The whole text is the value; or, where it is no value, its words are that and those which may
    follow it, if they can be read in one way only. A boolean can be told by yes and no too, an
    enumeration without regard to case.
    Raises StanzaError: `invalid-param`, when the text can be read in no such way.
    """
    declared = _only(question)
    if declared is None:
        return None
    try:
        value = _said(declared, text.strip())
    except ValueError as error:
        values = _shared_out(question, text)
        if values is None:
            raise errors.invalid_param(declared.name, str(error)) from None
        return _answer(question, task, values)
    return _answer(question, task, {} if value is msgspec.UNSET else {declared.name: value})


def answer_in_order(question: Input, task: str, text: str) -> InputAnswer | None:
    """As `answer_in_words`, and the words may be those of several values that have to be given.

    None if words cannot give all that has to be given.
    Raises StanzaError: `invalid-param`, when the words can be read in no way, or in several.
    """
    names = names_in_order(question)
    if takes_words(question) or not names:
        return answer_in_words(question, task, text)
    values = _shared_out(question, text)
    if values is None:
        how = f"expected {', '.join(names)} in this order, so that each can be told; or its form"
        raise errors.invalid_param("answer", how)
    return _answer(question, task, values)


def takes_words(question: Input) -> bool:
    """Whether a text can answer the question (INP-009)."""
    return _only(question) is not None


def is_yes_or_no(question: Input) -> bool:
    """Whether yes and no answer the question, which they do with any other of the kind."""
    declared = _only(question)
    return declared is not None and declared.kind == "boolean"


def names_in_order(question: Input) -> tuple[str, ...]:
    """The names of the values that words can give, in their order: what has to be given first.

    Empty if words cannot give all that has to be given.
    """
    return tuple([each.name for each in _in_order(question)])


def may_follow(question: Input) -> tuple[str, ...]:
    """The names of the values whose words may follow those of the only one that is needed."""
    declared = _only(question)
    if declared is None or declared.kind == "text":
        return ()
    return tuple([name for name in names_in_order(question) if name != declared.name])


def suggestions(question: Input) -> tuple[str, ...]:
    """All texts that can answer, where the schema lists them."""
    declared = _only(question)
    if declared is None:
        return ()
    if declared.kind == "boolean":
        return ("yes", "no")
    return tuple([choice.text for choice in declared.choices])


def _only(question: Input) -> Property | None:
    """The value that a text is: the only one that has to be given, else the only one it can be."""
    properties = properties_of(schema_of(question))
    needed = [each for each in properties if each.required]
    able = needed or [each for each in properties if _sayable(each)]
    return able[0] if len(able) == 1 and _sayable(able[0]) else None


def _in_order(question: Input) -> Sequence[Property]:
    properties = properties_of(schema_of(question))
    if any(each.required and not _sayable(each) for each in properties):
        return ()
    return sorted(filter(_sayable, properties), key=lambda each: not each.required)


def _sayable(declared: Property) -> bool:
    return declared.kind not in ("json", "lines", "choices")


def _shared_out(question: Input, text: str) -> dict[str, Any] | None:
    """The values that words say in their order, one word or more each; None if in no way or in
    several.
    """
    words = text.split()
    able = _in_order(question)
    if len(words) > _MOST_WORDS:
        return None
    found: list[dict[str, Any]] = []
    ways: dict[int, list[dict[str, Any]]] = {0: [{}]}  # by how many words they have taken
    for number, declared in enumerate(able, 1):
        further: dict[int, list[dict[str, Any]]] = {}
        for start, before in ways.items():
            for end in range(start + 1, len(words) + 1):
                try:
                    value = _said(declared, " ".join(words[start:end]))
                except ValueError:
                    continue
                known = further.setdefault(end, [])
                known += [{**way, declared.name: value} for way in before]
                del known[2:]  # two are too many already
        ways = further
        if not any(each.required for each in able[number:]):
            found += ways.get(len(words), ())
    return found[0] if len(found) == 1 else None


def _said(declared: Property, text: str) -> Any:
    """The value that a text says. Raises ValueError with the reason."""
    said = yes_or_no(text) if declared.kind == "boolean" else None
    if said is not None:
        return said
    same = (one.text for one in declared.choices if one.text.casefold() == text.casefold())
    return declared.read((next(same, text),))


def _answer(question: Input, task: str, values: Mapping[str, Any]) -> InputAnswer:
    return InputAnswer(
        task=task,
        input=question.id,
        revision=question.revision,
        params=AnswerParams(json=msgspec.Raw(msgspec.json.encode(values))),
    )
