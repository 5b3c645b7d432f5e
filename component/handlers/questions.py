"""Questions to people, as messages that any client shows (specification, "The Question").

What a parameter holds comes from whoever wants the work done, and stands in a sentence that asks
somebody else for leave. So texts are quoted, and nothing in them can end the quotation, begin a
line or turn the direction of writing.
"""

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from component.skills.errors import printable
from component.tasks.confirmation import parameters_of
from component.tasks.protocol import Question
from component.tasks.spoken import may_follow, names_in_order, suggestions, takes_words
from xep.binding import Payload
from xep.binding.escaping import without_forbidden
from xep.fluux_agent.confirm import Confirm
from xep.fluux_agent.task import Input
from xep.quick_responses import Action, Response
from xep.stanza import Message

_LONGEST_VALUE: Final = 200
_MOST_PARAMETERS: Final = 20
_LONGEST_QUESTION: Final = 2_000
_MOST_RESPONSES: Final = 10
_LANG: Final = "en"


def question_messages(question: Question) -> Sequence[Message]:
    """The messages that put a question: one to the bare JID of each person asked (CNF-008).

    An input whose work did not come from a conversation is put by its event alone (EVT-007): then
    there are none.
    """
    if isinstance(question.content, Confirm):
        body = confirmation_in_words(question, question.content)
        payloads: tuple[Payload, ...] = (question.content, *_buttons(question.content))
    elif question.conversational:
        body = input_in_words(question.content)
        payloads = (question.content, *_responses(suggestions(question.content)))
    else:
        return ()
    return tuple(
        [
            Message(
                type="chat",
                id=question.id,
                from_=question.agent,
                to=jid,
                lang=_LANG,
                body=body,
                thread=question.thread,
                payloads=payloads,
            )
            for jid in question.asked
        ]
    )


def confirmation_in_words(question: Question, confirm: Confirm) -> str:
    """The action, its parameters, when the question lapses, and how it is answered (CNF-009)."""
    action = printable(confirm.action.type, _LONGEST_VALUE)
    others = [jid for jid in question.asked if jid != question.principal.bare]
    whose = f" for {printable(str(question.principal.bare), _LONGEST_VALUE)}" if others else ""
    sentences = [f"May I run {action}{whose}?"]
    given = ", ".join(_parameters(confirm))
    if given:
        sentences.append(f"{given}.")
    until = f" before {spoken_time(confirm.expires)}" if confirm.expires is not None else ""
    sentences.append(f"Please answer yes or no{until}.")
    return " ".join(sentences)


def input_in_words(question: Input) -> str:
    """What is asked, how it is answered, and when it lapses (EVT-006)."""
    said = without_forbidden(question.questions[0].text.strip())
    if len(said) > _LONGEST_QUESTION:
        said = f"{said[:_LONGEST_QUESTION]}… ({len(said)} characters)"
    choices = suggestions(question)
    how = "here" if takes_words(question) else "with the form"
    if not takes_words(question) and (names := _listed(names_in_order(question))):
        how = f"with the form, or with /answer and then {names}"
    if 0 < len(choices) <= _MOST_RESPONSES:
        how = f"with {' or '.join(printable(one, _LONGEST_VALUE) for one in choices)}"
    until = f" before {spoken_time(question.expires)}" if question.expires is not None else ""
    more = _listed(may_follow(question))
    also = f" You may add {more} after it." if more else ""
    return f"{said}\n\nPlease answer {how}{until}.{also}"


def spoken_time(time: datetime) -> str:
    """A time in UTC, to the second where it has seconds: `2026-12-01 08:15 UTC`."""
    utc = time.astimezone(UTC)
    return f"{utc:%Y-%m-%d %H:%M:%S} UTC" if utc.second else f"{utc:%Y-%m-%d %H:%M} UTC"


def title_of(question: Question) -> str:
    """A question in one short line, to tell it from others."""
    if isinstance(question.content, Confirm):
        given = ", ".join(_parameters(question.content))
        line = f"{question.content.action.type}: {given}" if given else question.content.action.type
    else:
        line = " ".join(question.content.questions[0].text.split())
    return printable(line, _LONGEST_VALUE)


def _parameters(confirm: Confirm) -> Iterator[str]:
    values = parameters_of(confirm.action)
    for number, (name, value) in enumerate(values.items()):
        if number == _MOST_PARAMETERS:
            yield f"and {len(values) - number} more parameters, which the message holds"
            return
        yield f"{printable(name, _LONGEST_VALUE)}: {_value(value)}"


def _listed(names: Sequence[str]) -> str:
    return printable(", ".join(names), _LONGEST_VALUE)


def _value(value: object) -> str:
    """A value on one line, as JSON; a long one is cut, and says so outside its quotation."""
    if isinstance(value, str):
        cut = json.dumps(_visible(value[:_LONGEST_VALUE]), ensure_ascii=False)
        return cut if len(value) <= _LONGEST_VALUE else f"{cut}… ({len(value)} characters)"
    text = _visible(json.dumps(value, ensure_ascii=False))
    if len(text) <= _LONGEST_VALUE:
        return text
    return f"{text[:_LONGEST_VALUE]}… ({len(text)} characters)"


def _visible(text: str) -> str:
    """The text, with what does not print replaced, but for what JSON escapes."""
    return "".join(
        character if character.isprintable() or character in "\n\t\r" else "\ufffd"
        for character in text
    )


def _buttons(confirm: Confirm) -> tuple[Payload, ...]:
    """Quick responses (CNF-014)."""
    return (
        *_responses(("yes", "no")),
        Action(id=f"approve:{confirm.id}", label="Yes", lang=_LANG),
        Action(id=f"deny:{confirm.id}", label="No", lang=_LANG),
    )


def _responses(values: Sequence[str]) -> tuple[Payload, ...]:
    if len(values) > _MOST_RESPONSES:
        return ()
    return tuple([Response(value=without_forbidden(value), lang=_LANG) for value in values])
