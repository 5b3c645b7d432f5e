"""Questions to people, as messages that any client shows (specification, "The Question").

How values are shown, so that they can neither hide anything nor pose as part of the question, is in
`component.handlers.shown`.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from component.handlers.shown import look_alikes, printable_name, shown, visible
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
_LONGEST_INLINE: Final = 400
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
    """The action, its parameters, when the question lapses, and how it is answered (CNF-009).

    Short parameters are part of the sentence. Long ones stand below it, one a line, so that a
    client which cuts the message cuts none of what says so.
    """
    asks = f"May I run {_action(question, confirm)}?"
    until = f" before {spoken_time(confirm.expires)}" if confirm.expires is not None else ""
    answer = f"Please answer yes or no{until}."
    given = shown(parameters_of(confirm.action))
    inline = ", ".join(given.lines)
    if not inline:
        return f"{asks} {answer}"
    if len(inline) <= _LONGEST_INLINE and not given.cut:
        return f"{asks} {inline}. {answer}"
    count = len(given.lines)
    below = "Its parameter is below" if count == 1 else f"Its {count} parameters are below"
    if given.cut:
        below += ", and not everything is shown"
    return "\n".join((f"{asks} {below}. {answer}", "", *given.lines))


def input_in_words(question: Input) -> str:
    """What is asked, how it is answered, and when it lapses (EVT-006)."""
    said = visible(question.questions[0].text.strip(), keep="\n\t")
    if len(said) > _LONGEST_QUESTION:
        cut = f"(first {_LONGEST_QUESTION:,} of {len(said):,} characters shown)"
        said = f"{cut}\n\n{said[:_LONGEST_QUESTION]}…"
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
    """A question in one short line, to tell it from others: what would be done, and for whom."""
    if isinstance(question.content, Confirm):
        line = _action(question, question.content)
        given = ", ".join(shown(parameters_of(question.content.action)).lines)
        line = f"{line}: {given}" if given else line
    else:
        line = visible(" ".join(question.content.questions[0].text.split()))
    if len(line) <= _LONGEST_VALUE:
        return line
    return f"{line[:_LONGEST_VALUE]}… (the question itself shows more)"


def _action(question: Question, confirm: Confirm) -> str:
    """The skill, and for whom it would run where that is not the only one who is asked."""
    others = [jid for jid in question.asked if jid != question.principal.bare]
    principal = str(question.principal.bare)
    whose = f" for {printable_name(principal)}{look_alikes(principal)}" if others else ""
    return f"{printable_name(confirm.action.type)}{whose}"


def _listed(names: Sequence[str]) -> str:
    return printable(", ".join(names), _LONGEST_VALUE)


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
