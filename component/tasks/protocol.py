"""The interface of the durable work: its limits, what it uses, and notices from it.

Importing this module is cheap: the engine is loaded when it is first needed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Final, Literal, Protocol, TypeAlias

import msgspec

from component.link.messages.delivery import Delivery
from component.skills.outputs import File, Link
from component.store.told import ToldMessage
from component.tasks.request import Request
from xep.fluux_agent.confirm import Confirm
from xep.fluux_agent.task import Input, Task
from xep.jid import JID
from xep.result_sets import PAGE_ROOM

AGENT_WORK: Final = "agent.work"
"""The name of the skill whose tasks are sub-agents. Those of one turn, or of one task, have a queue
together, whose name begins with this."""


class QueueLimits(msgspec.Struct, frozen=True):
    """The limits of one queue: tasks that run at once, and tasks that start in a minute."""

    running: int
    per_minute: float | None = None


class Bounds(msgspec.Struct, frozen=True):
    """The maximum number and size of the ended tasks that are retained for one principal."""

    tasks: int = 1_000
    bytes: int = 16_000_000

    @property
    def most_tasks(self) -> int:
        """The maximum that ever exists: up to a tenth more exist until the excess is noticed."""
        return self.tasks + self.tasks // 10 + 1

    def exceeded(self, tasks: int, size: int) -> bool:
        """Return whether this exceeds the limits."""
        return tasks > self.tasks or size > self.bytes


DEFAULT_BOUNDS: Final = Bounds()


class TaskLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of durable work, in seconds, counts, and bytes of XML.

    `replay_s` is for how long a repetition is known, `retention_s` how long a task is kept after
    its end. `tasks_per_principal` may be open at a time, `running_per_principal` of them run at a
    time here, `running_total` of all. A result of more than `result_bytes` is too big. A task whose
    execution has ended with its process `max_attempts` times in a row is set aside. `queues` are
    the bounds of named queues. Requests of open tasks of a principal have at most `open_bytes`
    together, and `kept` bounds what is kept of its ended ones; it has at most
    `records_per_principal` replay records. At most `held_per_person` notifications of one agent are
    held for a person. The entries of a page have at most `page_room` bytes.
    """

    inline_s: float = 10.0
    replay_s: float = 86400.0
    retention_s: float = 7 * 86400.0
    tasks_per_principal: int = 100
    running_total: int = 64
    running_per_principal: int = 16
    ask_expires_s: float = 86400.0
    poll_after_s: int = 5
    retry_after_s: int = 5
    drain_s: float = 10.0
    result_bytes: int = 200_000
    max_attempts: int = 3
    queues: Mapping[str, QueueLimits] = {}
    open_bytes: int = 16_000_000
    records_per_principal: int = 20_000
    kept: Bounds = DEFAULT_BOUNDS
    held_per_person: int = 500
    page_room: int = PAGE_ROOM

    @property
    def retention_ms(self) -> int:
        """The retention of an ended task, in milliseconds."""
        return round(self.retention_s * 1000)

    @property
    def replay_ms(self) -> int:
        """The time for which a repetition is recognised, in milliseconds."""
        return round(self.replay_s * 1000)


class CannotShare(Exception):  # noqa: N818 - the name says what happened
    """A file cannot be given by reference; the text says why, as the end of a sentence."""


Share: TypeAlias = Callable[[File, Request], Awaitable[Link]]
"""Puts a file of the result of a request where others can get it. Raises CannotShare."""


async def nowhere(_file: File, _request: Request) -> Link:
    """Share nothing: there is no place for files."""
    raise CannotShare("this agent has no place for files")


class DeletedTask(msgspec.Struct, frozen=True):
    """A deleted task that its principal, a bare JID, could see; `target` had accepted it."""

    id: str
    principal: str
    target: str


Shown = Literal["waiting", "shown", "withheld", "returned"]
"""Whether a person has got the message of a question: it was not written yet; it was written; it
was withheld, because the person wants no such messages; or it was returned as an error.
"""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """An open confirmation or input of the task of a request, and the persons who were asked.

    `asked` are bare JIDs; `thread` is the thread of its messages. It was asked at `put_at`;
    `lapsed` says that it has expired without an answer. `shown` says whether the person for whom it
    was looked up has got its message.
    """

    id: str
    task: str
    revision: int
    request: Request
    asked: tuple[JID, ...]
    thread: str
    content: Confirm | Input
    put_at: datetime
    lapsed: bool = False
    shown: Shown = "shown"


class Naming(msgspec.Struct, frozen=True):
    """How an answer in words identifies its question, if it does. None of it is proof, because
    others can cause questions that also match.

    `may_decide` says whether the words could also be meant for a confirmation: a yes or a no.
    """

    thread: str | None = None
    beginning: str = ""
    may_decide: bool = True


Doubt: TypeAlias = Literal["just asked", "not shown", "other questions"]
"""Why an answer in words does not count: it may have been written before its question was asked,
the person may not have got the question, or the answer may be meant for another question.
"""


class UncertainError(Exception):
    """An answer in words may be meant for something else than the open question (CNF-044)."""

    def __init__(self, doubt: Doubt) -> None:
        super().__init__(doubt)
        self.doubt: Doubt = doubt


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """One committed revision, with everything that its message needs (specification, "Events").

    `thread` is the thread that the request named, or else the task's id. `question` is the question
    that the change asked, or that expired with it: the persons who were asked get a message besides
    the event. For a model's call only the question is sent; the model reports the rest.
    """

    task: Task
    request: Request
    thread: str
    final: bool
    question: Question | None = None


class Listener(Protocol):
    """Sends messages about tasks. Called on the event loop after the commit, never before."""

    def changed(self, notice: Notice) -> Delivery | None:
        """Send the message of a change, and return its delivery; None if it cannot be sent now.
        Must neither wait nor raise. What must be sent and was not written is sent again later.
        """

    def told(self, notice: Notice) -> ToldMessage | None:
        """Return what the message of a change that must be sent tells the principal in words, for
        the conversation (`component.store.told`); None if nothing.
        """

    def released(self, task: str) -> None:
        """Note that the request of a task was answered with it: its messages may be sent."""

    def deleted(self, task: DeletedTask) -> None:
        """Note that a task that its principal could see was deleted."""

    async def handled(self) -> bool:
        """Wait until the server has handled what was written; False: the connection was lost."""
