"""The request of a task as its row stores it, and the notice that a change of the task makes."""

from collections.abc import Iterable
from typing import Literal

import msgspec

from component.tasks.followed import Followed, followed
from component.tasks.protocol import Notice, Question
from component.tasks.rows import Change, Row, moment
from component.tasks.skill_call import SkillCall, call_of
from component.tasks.states import TERMINAL
from xep.binding import read
from xep.fluux_agent.confirm import Confirm
from xep.fluux_agent.execute import Execute
from xep.fluux_agent.task import Input
from xep.jid import JID


class Request(Followed, frozen=True, kw_only=True, omit_defaults=True):
    """The request of a task: the JSON of `tasks.request`. Columns of the row hold what is searched
    for.

    `call` is the request without its parameters; a row of an earlier release has the XML of the
    `Execute` element instead, in `execute`. `arguments` is the JSON of the parameters as the skill
    takes them. `id` is the caller's own name for the request. `poll_after` is the number of
    seconds that `<accepted/>` suggested to wait before polling. `confirmers` are the bare JIDs that
    had to be asked before it began, with the `risk` that was named and the seconds they had;
    `undecided` says that the confirmers are not known yet. A new field needs a default, so that
    rows of earlier releases can be read.
    """

    arguments: msgspec.Raw
    call: SkillCall | None = None
    execute: str = ""
    id: str | None = None
    poll_after: int | None = None
    confirmers: tuple[str, ...] = ()
    risk: Literal["low", "medium", "high"] = "medium"
    confirm_s: float = 86400.0
    undecided: bool = False

    @property
    def asked(self) -> SkillCall:
        """The request. Raises xep.binding.BindingError if a row of an earlier release is broken."""
        return self.call or call_of(read(self.execute, Execute))

    def encoded(self) -> str:
        """Return the JSON to store."""
        return msgspec.json.encode(self).decode()


def request_of(row: Row) -> Request:
    """Return the request of a task.

    Raises:
        msgspec.DecodeError: the row contains something else.
    """
    return msgspec.json.decode(row.request, type=Request)


def thread_of(row: Row) -> str:
    """Return the thread of a task: the one that the request named, or else its id."""
    return request_of(row).thread or row.id


def question_of(
    row: Row,
    content: Confirm | Input,
    revision: int,
    asked: Iterable[JID],
    put_at: int,
    *,
    lapsed: bool = False,
) -> Question:
    """Return a question of a task, which its change `revision` asked the bare JIDs `asked`.

    `put_at` is in milliseconds since 1970, UTC.
    """
    request = followed(row.request)
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
        put_at=moment(put_at),
        lapsed=lapsed,
        lang=request.lang,
        operator=request.caller_context.operator,
        chosen=request.caller_context.chosen,
    )


def notice_of(change: Change) -> Notice:
    """Return the notice of a committed change, for the listener."""
    row = change.row
    request = followed(row.request)
    return Notice(
        task=change.event,
        agent=JID.parse(row.target),
        principal=JID.parse(row.principal),
        requester=JID.parse(row.requester),
        thread=request.thread or row.id,
        conversational=request.conversational,
        final=row.state in TERMINAL,
        question=change.question,
        lang=request.lang,
        origin=request.origin,
        unrequested=request.caller_context.unrequested,
    )
