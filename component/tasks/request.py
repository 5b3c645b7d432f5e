"""What was asked for, as the row of a task keeps it, and whom a change of it is to be told to."""

from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from component.tasks.protocol import Hand, Notice, Origin, Question
from component.tasks.rows import Change, Row
from component.tasks.states import TERMINAL
from xep.binding import read
from xep.fluux_agent.confirm import Confirm
from xep.fluux_agent.execute import Execute
from xep.fluux_agent.task import Input
from xep.jid import JID


class Followed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a request is followed, which is all of it that a notice needs.

    `thread` is the one that the caller named, `lang` the language of the request.
    """

    thread: str | None = None
    origin: Origin = "iq"
    lang: str | None = None

    @property
    def conversational(self) -> bool:
        """Whether a person follows it in a conversation (specification, "Events")."""
        return bool(self.thread) or self.origin != "iq"


class Request(Followed, frozen=True, kw_only=True, omit_defaults=True):
    """The request behind a task: the JSON of `tasks.request`. The row has all that is looked for.

    `execute` is the XML of the `Execute` as it came, `arguments` the JSON of its parameters as the
    skill takes them. `id` is the caller's own name for the request. `poll_after` is in how many
    seconds `<accepted/>` said that asking makes sense. `confirmers` are the bare JIDs that had to
    be asked before it began, with the `risk` that was named and the seconds they had. `hand` says
    which agent runs it. Fields may be added with a default: rows of a release before are read.
    """

    execute: str
    arguments: msgspec.Raw
    id: str | None = None
    poll_after: int | None = None
    hand: Hand = Hand("")
    confirmers: tuple[str, ...] = ()
    risk: Literal["low", "medium", "high"] = "medium"
    confirm_s: float = 86400.0

    @property
    def asked(self) -> Execute:
        """The request as it came."""
        return read(self.execute, Execute)

    def encoded(self) -> str:
        """The JSON to keep."""
        return msgspec.json.encode(self).decode()


def request_of(row: Row) -> Request:
    """The request behind a task.

    Raises:
        msgspec.DecodeError: the database holds something else.
    """
    return msgspec.json.decode(row.request, type=Request)


def thread_of(row: Row) -> str:
    """The thread of a task: the one that the request named, or else its id."""
    return request_of(row).thread or row.id


def question_of(
    row: Row, content: Confirm | Input, revision: int, asked: Iterable[JID]
) -> Question:
    """A question of a task, put by its change `revision` to the bare JIDs `asked`."""
    request = _followed(row.request)
    return Question(
        id=content.id,
        task=row.id,
        revision=revision,
        agent=JID.parse(row.target),
        principal=JID.parse(row.principal),
        requester=JID.parse(row.requester),
        asked=tuple(asked),
        thread=request.thread or row.id,
        content=content,
        conversational=request.conversational,
        lang=request.lang,
    )


def notice_of(change: Change, question: Question | None = None) -> Notice:
    """What the listener is told of a committed change. `question` is the one it put, if any."""
    row = change.row
    request = _followed(row.request)
    return Notice(
        task=change.event,
        agent=JID.parse(row.target),
        principal=JID.parse(row.principal),
        requester=JID.parse(row.requester),
        thread=request.thread or row.id,
        conversational=request.conversational,
        final=row.state in TERMINAL,
        question=question,
        lang=request.lang,
        origin=request.origin,
    )


_followed: Final = msgspec.json.Decoder(Followed).decode
"""Passes over the parameters, which can be large."""
