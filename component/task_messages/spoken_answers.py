"""Interprets answers to the questions of tasks that are given in words, in chat (INP-009)."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from component.skills.form_fields import Choice, Property, properties_of
from component.tasks.questions import check, is_sayable, only_value, schema_of
from xep.data_forms import Form
from xep.fluux_agent import errors
from xep.fluux_agent.task import AnswerParams, Input, InputAnswer
from xep.stanza_error import StanzaError

_NUMBER: Final = r"(?a)([1-9][0-9]{0,3})[.)]?"
_BETWEEN: Final = r"[,;\n]|\band\b"
_SHORT: Final = 3
"""The maximum number of words of an attempt at a date or an address without a digit."""
_MOST_WORDS: Final = 50
"""The maximum number of words that are divided among several values: more are one text."""


def answer_in_chat(
    question: Input, task: str, text: str, *, named: bool
) -> InputAnswer | StanzaError | None:
    """Return the answer in a message, why it is none, or None for a message to the agent itself.

    What the schema accepts is a value: `no` answers a question for a boolean or any text, and
    `cancel` one that has it among its choices. Only then does a refusal decline. A question for any
    text is declined by a phrase such as `never mind` as well, and a question of the person is no
    answer to it. `named` says that the message names the question, by a reply for example: then it
    is an answer in any case. Otherwise only an attempt at an answer gets an error.
    """
    declared = only_value(question)
    kind = None if declared is None else declared.kind
    refusal = refusal_in(text)
    if refusal is not None and kind == "text" and refusal.phrase and refusal.reason is None:
        return declining(question, task)
    error: StanzaError | None = None
    try:
        answer = answer_in_words(question, task, text)
        if answer is not None and answer.params is not None:
            check(schema_of(question), msgspec.json.decode(answer.params.json))
    except StanzaError as found:
        error = found
    else:
        if answer is not None:
            return None if kind == "text" and not named and _asks(text) else answer
    if refusal is not None:
        is_false = kind == "boolean" and not refusal.phrase
        return answer_yes_or_no(question, task, False) if is_false else declining(question, task)
    return error if named or (declared is not None and _is_attempt(declared, text)) else None


def declining(question: Input, task: str) -> InputAnswer:
    """Return the answer that declines a question (INP-007)."""
    return InputAnswer(
        task=task, input=question.id, revision=question.revision, form=Form(type="cancel")
    )


def is_declined(answer: InputAnswer) -> bool:
    """Return whether an answer declines its question."""
    return answer.form is not None and answer.form.type == "cancel"


def how_to_decline(question: Input) -> str:
    """Return a sentence that says how a question is declined."""
    answer = answer_in_chat(question, "", _CANCEL, named=True)
    if isinstance(answer, InputAnswer) and is_declined(answer):
        return f"To decline, say {_CANCEL}."
    return "To decline, write /deny."


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


def _is_attempt(declared: Property, text: str) -> bool:
    """Return whether a text that is not a valid answer was probably meant as one, and not as a
    message to the agent: it is one word, names a choice, has a number where one is expected, or
    begins with a yes or no for a boolean.
    """
    if _asks(text):
        return False
    words = text.casefold().split()
    if len(words) == 1:
        return words[0].strip("!.") not in _GREETINGS
    match declared.kind:
        case "choice" | "choices":
            names = [re.escape(choice_name(declared, one).casefold()) for one in declared.choices]
            return re.search(rf"\b(?:{'|'.join(names)})", " ".join(words)) is not None
        case "integer" | "number":
            return any(character.isdecimal() for character in text)
        case "boolean":
            return said_in(text) is not None
    # Any other text may be one that is too long, but hardly a date.
    return declared.datatype is None or len(words) <= _SHORT or bool(re.search(r"\d", text))


def _asks(text: str) -> bool:
    return text.rstrip().endswith(("?", "\uff1f", "\u061f"))


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
ALWAYS: Final = "always"
"""The word that accepts the offer of a standing approval."""
COURTESY: Final = frozenset(("please", "thanks", "thank you")) | _PHRASES
"""Phrases after a yes that do not change its meaning."""
_REFUSING: Final = frozenset(
    (
        *("cancel", "cancel it", "cancel that", "cancel this", "decline", "i decline"),
        *("never mind", "nevermind", "forget it", "forget about it", "leave it", "drop it"),
        *("skip", "skip it", "skip this", "not now", "not today", "no way", "don't", "do not"),
        *("rather not", "i'd rather not", "i would rather not", "i don't want to"),
        *("don't do it", "don't do that", "do not do it", "do not do that"),
    )
)
"""Phrases that refuse, and do not answer a question with yes or no."""
_CANCEL: Final = "cancel"
_GREETINGS: Final = frozenset(("hello", "hi", "hey", "thanks", "help"))
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


_CLAUSE: Final = r"[,.;:!\n\u2013\u2014]+|\s-\s"
_PREFACE: Final = r"^[^\w>]*(?:please|sorry|thanks)\W+(?=\w)"
_REFUSAL: Final = (
    rf"[^\w>]*(?:{_any_of(_REFUSING | NO)})"
    r"(?:\s+(?:please|thanks|thank\s+you|sorry))?\W*"
)
_POLITE: Final = rf"{_REFUSAL}|\W*(?:please|thanks|thank\s+you|sorry)\W*"


class SpokenYesNo(msgspec.Struct, frozen=True):
    """An answer in words. An `unclear` one begins with a yes and continues, so it does not count
    (CNF-024). `standing` says that it approves equal actions, too.
    """

    value: Literal["approve", "deny", "unclear"]
    reason: str | None = None
    standing: bool = False


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


def says_always(text: str) -> bool:
    """Return whether a text accepts the offer of a standing approval: the word alone or after a
    yes, with courtesy and the punctuation of a yes (CNF-082).
    """
    first = _FIRST.match(text.strip())
    if first is None:
        return False
    rest = text.strip()[first.end() :]
    if _word(first) in YES:
        second = re.match(r"\s*,?\s+(?P<word>\w+)", rest)
        if second is None:
            return False
        word, rest = second["word"].casefold(), rest[second.end() :]
    else:
        word = _word(first)
    return word == ALWAYS and _is_end(rest)


class Refusal(msgspec.Struct, frozen=True):
    """A refusal in words: a no, or a `phrase` that does not answer a question with yes or no."""

    phrase: bool
    reason: str | None = None


def refusal_in(text: str) -> Refusal | None:
    """Return the refusal in a text; None if there is none.

    It is a no or a phrase such as `never mind`, alone or with courtesy, or a reason after a
    punctuation mark. A question refuses nothing.
    """
    if _asks(text):
        return None
    text = re.sub(_PREFACE, "", text.replace("\u2019", "'").strip(), flags=re.IGNORECASE)
    first, *rest = re.split(_CLAUSE, text, maxsplit=1)
    if re.fullmatch(_REFUSAL, first, re.IGNORECASE) is None:
        return None
    more = "".join(rest).strip()
    polite = not any(map(str.isalnum, more)) or re.fullmatch(_POLITE, more, re.IGNORECASE)
    said = f"{first} {more}" if polite else first
    return Refusal(_plain_word(said) not in NO, None if polite else more)


def _plain_word(text: str) -> str:
    return re.sub(r"\W+", " ", text).strip().casefold()


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
