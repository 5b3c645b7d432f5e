"""The entries of an inbox, which are made from what the database has of a person with an agent."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, Literal, TypeAlias

import msgspec

from component.commands import shorten
from component.policy.taint import TAINTS, Taint
from component.store.notifications import Notification
from component.task_messages import sentences
from component.task_messages.questions import Questions
from component.tasks.attention import Concern
from component.tasks.protocol import Question
from component.tasks.rows import moment
from xep.fluux_agent.confirm import Confirm
from xep.fluux_agent.task import Input
from xep.jid import JID

Kind: TypeAlias = Literal["question", "failed", "set-aside", "waiting", "result", "held"]
Priority: TypeAlias = Literal["attention", "normal"]

ARCHIVED: Final[Collection[Kind]] = ("failed", "set-aside", "waiting", "result")
"""The entries that a person can put away. A question has to be answered."""
_LONGEST: Final = 200
_RANKS: Final[Mapping[Kind, int]] = {"question": 0, "failed": 1, "set-aside": 1}
_LAST: Final = 3


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What the database has of a person with an agent at one moment.

    Attributes:
        now: milliseconds since 1970; `steady` is the same moment of the steady clock.
        questions: the open questions to the person, each with its matter.
        concerns: the tasks of the person that somebody may have to see to.
        notifications: those that are held, and those that were sent lately, each with its matter.
        until: up to when a client of the person has displayed messages, of the steady clock.
        archived: the ids of the entries that the person has put away.
    """

    now: int
    steady: int
    questions: Sequence[tuple[Question, str]] = ()
    concerns: Sequence[Concern] = ()
    notifications: Sequence[tuple[Notification, str]] = ()
    until: int = 0
    archived: Collection[str] = ()


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """Something that waits for a person.

    Attributes:
        id: that of the question, the task or the notification.
        matter: what it belongs to; entries of one matter are listed together under one `title`.
        text: what it is, in one line.
        whole: all of it, except for a question.
        at: since when it waits.
        is_read: a client of the person has displayed the message about it.
        expires: when a question expires.
        task: the task that it is about; empty if it is not known.
        question: the question.
        taints: the possible authors of the texts.
    """

    id: str
    kind: Kind
    matter: str
    title: str
    text: str
    whole: str = ""
    at: datetime
    is_read: bool = False
    expires: datetime | None = None
    priority: Priority = "normal"
    task: str = ""
    question: Question | None = None
    taints: tuple[Taint, ...] = ()


class Makers(msgspec.Struct, frozen=True):
    """What entries are made with: `words` puts questions into words, `title_of` returns the title
    of a skill, and `taint_of` who may have written its results.
    """

    words: Questions
    title_of: Callable[[str], str]
    taint_of: Callable[[str], Taint | None]


def entries(found: Found, person: JID, makers: Makers) -> Sequence[Entry]:
    """Return what waits for a person: matter by matter, those that need attention first."""
    concerns = {one.task.id or "": one for one in found.concerns}
    titles = {matter: one.title for one, matter in found.notifications}
    made = [
        *(_question(one, matter, person, makers) for one, matter in found.questions),
        *(_concern(one, found, makers) for one in found.concerns),
        *(
            _notification(one, matter, found)
            for one, matter in found.notifications
            if one.subject.task not in concerns
        ),
    ]
    shown = [
        msgspec.structs.replace(one, title=titles.get(one.matter, one.title))
        for one in made
        if one.id not in found.archived and not (one.kind == "result" and one.is_read)
    ]
    return in_order(shown)


def in_order(entries: Iterable[Entry]) -> Sequence[Entry]:
    """Return entries in the order in which they are listed.

    Matters with questions come first, then those with failures and what is urgent, and then all
    others; the latest of each come first. Within a matter the order is the same, except that
    questions are in the order of their expiry.
    """
    matters: dict[str, list[Entry]] = {}
    for one in entries:
        matters.setdefault(one.matter, []).append(one)
    listed = sorted(matters.values(), key=_order_of_matter)
    return [one for matter in listed for one in sorted(matter, key=_order_in_matter)]


def _order_of_matter(matter: Sequence[Entry]) -> tuple[int, float, str]:
    latest = max(one.at for one in matter).timestamp()
    return min(map(_rank, matter)), -latest, matter[0].matter


def _order_in_matter(one: Entry) -> tuple[int, float, str]:
    return (
        _rank(one),
        -one.at.timestamp() if one.expires is None else one.expires.timestamp(),
        one.id,
    )


def _rank(one: Entry) -> int:
    return _RANKS.get(one.kind, 1 if one.priority == "attention" else _LAST)


def _question(question: Question, matter: str, person: JID, makers: Makers) -> Entry:
    request, content = question.request, question.content
    taints: set[Taint | None] = {*request.caller_context.taints}
    if isinstance(content, Input):
        taints.add(makers.taint_of(request.skill))
    if request.principal != person:
        taints.add("web")  # another person has chosen the parameters
    return Entry(
        id=question.id,
        kind="question",
        matter=matter,
        title=makers.title_of(request.skill),
        text=_line(makers.words.title_of(question)),
        at=question.put_at,
        expires=content.expires,
        priority="attention",
        task=question.task,
        question=question,
        taints=_in_order(taints),
    )


def _concern(concern: Concern, found: Found, makers: Makers) -> Entry:
    task, request = concern.task, concern.request
    title, id_ = makers.title_of(request.skill), task.id or ""
    at = task.updated or task.created or moment(found.now)
    named = msgspec.structs.replace(task, skill=title)
    kind: Kind = "result" if concern.kind == "done" else concern.kind
    match concern.kind:
        case "waiting":
            whole = sentences.waiting(named, request.lang).text
            if task.input is not None:
                whole = f"{title} waits for an answer of somebody else."
        case "set-aside":
            whole = f"{title}: {concern.why}"
        case _:
            whole = sentences.ending(named, request.lang).text
    taints = {*request.caller_context.taints, makers.taint_of(request.skill)}
    told = round(at.timestamp() * 1000) - found.now + found.steady
    return Entry(
        id=id_,
        kind=kind,
        matter=concern.matter,
        title=title,
        text=_line(whole),
        whole=whole,
        at=at,
        is_read=told <= found.until,
        priority="attention" if kind in _RANKS else "normal",
        task=id_,
        taints=_in_order(taints),
    )


def _notification(one: Notification, matter: str, found: Found) -> Entry:
    is_held = one.sent is None and one.message is None
    files = [f"[File: {file.file.name or 'file'}]" for file in one.files]
    whole = "\n".join(filter(None, (one.text, *files)))
    return Entry(
        id=one.id,
        kind="held" if is_held else "result",
        matter=matter,
        title=one.title,
        text=_line(whole),
        whole=whole,
        at=datetime.fromtimestamp(one.created / 1000, UTC),
        is_read=one.displayed or (one.sent is not None and one.sent <= found.until),
        priority="attention" if one.priority == "high" else "normal",
        task=one.subject.task,
        taints=_in_order(one.subject.taints),
    )


def _line(text: str) -> str:
    return shorten(" ".join(text.split()), _LONGEST)


def _in_order(taints: Collection[str | None]) -> tuple[Taint, ...]:
    return tuple([taint for taint in TAINTS if taint in taints])


def is_confirmation(entry: Entry) -> bool:
    """Return whether an entry is a question to which yes or no is the answer."""
    return entry.question is not None and isinstance(entry.question.content, Confirm)
