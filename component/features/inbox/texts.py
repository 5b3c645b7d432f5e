"""Inboxes in words, and as rows for programs."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import groupby
from typing import Final

import msgspec

from component.features.inbox.entries import Entry, Kind, is_confirmation
from component.task_messages.spoken_answers import suggestions, takes_words
from component.zones import spoken_time
from xep.fluux_agent.task import Input

EMPTY: Final = "Nothing is waiting for you."
MOST_LISTED: Final = 30
"""Entries of a list for people and models."""
_MOST_SUGGESTED: Final = 5
_FOR_MODEL: Final = (
    "The person answers questions in the chat, or with /inbox; you cannot do it for them."
)
_KINDS: Final[dict[Kind, str]] = {
    "question": "Question",
    "failed": "Failed",
    "set-aside": "Set aside",
    "waiting": "Waits",
    "result": "Result",
    "held": "Held",
}


class InboxRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An entry of an inbox, as programs get it. Instants are in UTC, in the format of RFC 3339.

    `id` is that of the question, the task or the notification, `task` that of the task that it is
    about. `read` says that a client has displayed the message about it.
    """

    id: str
    kind: str
    title: str
    text: str
    at: str
    matter: str
    priority: str = "normal"
    read: bool = False
    expires: str = ""
    task: str = ""


def row_of(entry: Entry) -> InboxRow:
    """Return an entry for programs."""
    return InboxRow(
        id=entry.id,
        kind=entry.kind,
        title=entry.title,
        text=entry.text,
        at=_instant(entry.at),
        matter=entry.matter,
        priority=entry.priority,
        read=entry.is_read,
        expires="" if entry.expires is None else _instant(entry.expires),
        task="" if entry.task == entry.id else entry.task,
    )


def _instant(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def list_text(entries: Sequence[Entry], now: datetime, zone: str) -> str:
    """Return an inbox for a person, with a number for each entry, and how to use the numbers."""
    if not entries:
        return EMPTY
    listed = entries[:MOST_LISTED]
    more = _more(entries)
    return "\n".join((*_lines(listed, now, zone), *more, "", *_how(listed)))


def _more(entries: Sequence[Entry]) -> Sequence[str]:
    count = len(entries) - MOST_LISTED
    return (f"… and {count} more.",) if count > 0 else ()


def _lines(entries: Sequence[Entry], now: datetime, zone: str) -> Iterator[str]:
    numbers = {one.id: number for number, one in enumerate(entries, 1)}
    for _, group in groupby(entries, key=lambda one: one.matter):
        matter = list(group)
        yield f"*{' '.join(matter[0].title.replace('*', '').split())}*"
        for one in matter:
            yield f"{numbers[one.id]}. {line_text(one, now, zone)}"


def line_text(entry: Entry, now: datetime, zone: str) -> str:
    """Return an entry in one line, with its time and how to answer it."""
    text = f"{_KINDS[entry.kind]}, {spoken_time(entry.at, now, zone)}: {entry.text}"
    if entry.expires is not None:
        text += f" (before {spoken_time(entry.expires, now, zone)}: {how_to_answer(entry)})"
    return text


def how_to_answer(entry: Entry) -> str:
    """Return what can be said to a question, in a few words."""
    if is_confirmation(entry):
        return "yes or no"
    assert entry.question is not None
    content = entry.question.content
    assert isinstance(content, Input)
    choices = suggestions(content)
    if 0 < len(choices) <= _MOST_SUGGESTED:
        return ", ".join(choices)
    return "in words" if takes_words(content) else "with its form, or the values in order"


def _how(entries: Sequence[Entry]) -> Iterator[str]:
    numbered = [*enumerate(entries, 1)]
    question = next(((n, one) for n, one in numbered if one.kind == "question"), None)
    if question is not None:
        number, one = question
        answer = (
            f"yes, or /inbox {number} no and why," if is_confirmation(one) else "and the answer"
        )
        yield f"/inbox {number} {answer} answers a question."
    yield "/inbox 1 shows all of an entry."
    away = next((number for number, one in numbered if one.kind != "question"), None)
    if away is not None:
        yield f"/inbox done {away} puts it away, /inbox done all everything but questions."


def text_for_model(entries: Sequence[Entry], now: datetime, zone: str) -> str:
    """Return an inbox for a model, which can answer nothing in it."""
    if not entries:
        return "Nothing is waiting for the person."
    lines = [f"- {one.title}: {line_text(one, now, zone)}" for one in entries[:MOST_LISTED]]
    return "\n".join((*lines, *_more(entries), _FOR_MODEL))
