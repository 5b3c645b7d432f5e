"""Messages about tasks: each committed revision is told, in order, to whom asked for the work."""

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

import anyio
import msgspec
import structlog
from anyio.abc import TaskStatus

from component.handlers import sentences
from component.handlers.outgoing import Out
from component.tasks.protocol import Notice, Question
from xep.fluux_agent.task import Task
from xep.jid import JID
from xep.stanza import Message

_log = structlog.get_logger("component.events")

_MOST_HELD: Final = 10_000
"""Events that are held back at a time, of all tasks; above it the oldest are sent."""
_MOST_ANSWERED: Final = 10_000
"""Tasks remembered as answered whose first event is still to come."""


class TaskNews:
    """The `Listener` of the durable work.

    **None before `<accepted/>` (EVT-008).** Work begins with its commit, so the first event of a
    task can be here before the answer to its request is on its way. From revision 1 on the events
    of a task are therefore held back until `released` says that it is being answered. They are sent
    by `run`, a task of its own: so after the answer, which the router puts into the outbox in the
    same step in which the handler returns it. Whoever lets work begin says `released` for it, by
    whatever face it came. If nobody does, because the request timed out or its caller is gone, the
    events wait for `hold_s` seconds. A task that was accepted longer ago is not held back, for its
    turn has come late; nor is one that was accepted before `since`, by another life of the process:
    nobody is left to answer for it.

    **Not connected** means not sent: headlines are lost, as they may be (EVT-009); what has to be
    told is told again by the engine. What is held when the connection breaks waits in the outbox.

    **Too big.** The artifacts of a result that would not fit are given by reference (EXE-012), so
    an event that does not fit is a mistake of ours. It is sent without what the change brought:
    the state and the revision still say that there is something to ask for.

    Args:
        out: takes stanzas.
        connected: whether there is a stream.
        may_write: whether an agent of ours may send a contact what that one did not ask for.
        question_messages: the messages that put a question to those who are asked.
        max_stanza_bytes: the largest stanza to send.
        hold_s: seconds that an event is held back at most. Between the commit that makes a task
            and its answer there is no more than the commit's own way back.
        since: when this process began; None if no task is older.
        tool_ended: is told the id of a task that a model's call went on as, when it is over.
    """

    def __init__(
        self,
        out: Out,
        connected: Callable[[], bool],
        may_write: Callable[[JID, JID], bool],
        question_messages: Callable[[Question], Sequence[Message]],
        max_stanza_bytes: int = 262_144,
        hold_s: float = 5.0,
        since: datetime | None = None,
        tool_ended: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._out = out
        self._connected = connected
        self._may_write = may_write
        self._question_messages = question_messages
        self._limit = max_stanza_bytes
        self._hold_s = hold_s
        self._since = since
        self._tool_ended = tool_ended
        self._held: dict[str, _Held] = {}  # oldest first
        self._waiting = 0
        self._released: list[str] = []
        self._answered: OrderedDict[str, None] = OrderedDict()
        self._wake = anyio.Event()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Send what was held back when its time has come, until cancelled."""
        task_status.started()
        while True:
            oldest = next(iter(self._held.values()), None)
            with anyio.CancelScope(deadline=math.inf if oldest is None else oldest.until):
                await self._wake.wait()
            self._wake = anyio.Event()
            released, self._released = self._released, []
            for task in released:
                self._let_go(task)
            now = anyio.current_time()
            for task in [task for task, held in self._held.items() if held.until <= now]:
                self._let_go(task)

    def released(self, task: str) -> None:
        """The request for a task is being answered: the caller returns its answer without waiting
        for anything more.
        """
        if task in self._held:
            self._released.append(task)
            self._wake.set()
            return
        self._answered[task] = None
        if len(self._answered) > _MOST_ANSWERED:
            self._answered.popitem(last=False)

    def changed(self, notice: Notice) -> bool:
        """A task has changed. Whether its message, and its question's, are on their way."""
        if notice.origin == "tool":
            if notice.final:
                self._tool_ended(notice.task.id)
            if notice.question is None:
                return True
        if not self._connected():
            return False
        if not self._hold(notice):
            self._tell(notice)
        return True

    async def sent(self) -> None:
        """Wait until the server has taken the messages so far, those that are held included."""
        for held in list(self._held.values()):
            await held.gone.wait()
        await self._out.flushed()

    def _hold(self, notice: Notice) -> bool:
        """Keep an event of a task whose request has not been answered yet."""
        task = notice.task
        held = self._held.get(task.id)
        if held is None:
            if task.revision != 1 or self._accepted_long_ago(task):
                return False
            if task.id in self._answered:
                del self._answered[task.id]
                return False
            held = _Held(anyio.current_time() + self._hold_s)
            self._held[task.id] = held
            self._wake.set()
        held.notices.append(notice)
        self._waiting += 1
        if self._waiting > _MOST_HELD:
            self._let_go(next(iter(self._held)))
        return True

    def _accepted_long_ago(self, task: Task) -> bool:
        if task.created is None or task.updated is None:
            return False
        if self._since is not None and task.created < self._since:
            return True
        return task.updated - task.created > timedelta(seconds=self._hold_s)

    def _let_go(self, task: str) -> None:
        held = self._held.pop(task, None)
        if held is not None:
            self._waiting -= len(held.notices)
            for notice in held.notices:
                self._tell(notice)
            held.gone.set()

    def _tell(self, notice: Notice) -> None:
        try:
            for xml in self._messages(notice):
                self._out.put(xml)
        except Exception:  # noqa: BLE001 - what has been committed stands, whoever hears of it
            _log.exception("an event cannot be told", task=notice.task.id)

    def _messages(self, notice: Notice) -> Iterator[str]:
        agent = notice.agent.bare
        if notice.origin != "tool" and self._may_write(agent, notice.principal):
            event = self._event(notice)
            if event is not None:
                yield event
        if notice.question is not None:
            for message in self._question_messages(notice.question):
                to = message.to if isinstance(message.to, JID) else JID.parse(message.to)
                if self._may_write(agent, to.bare):
                    yield message.encode()

    def _event(self, notice: Notice) -> str | None:
        """The message of a revision (EVT-002 to EVT-007); None if it cannot be sent at all."""
        said = _said(notice)
        message = Message(
            type="normal" if notice.final else "headline",
            from_=notice.agent,
            to=notice.principal if notice.final else notice.requester,
            body=None if said is None else said.text,
            lang=None if said is None else said.lang,
            thread=notice.thread,
            payloads=(notice.task,),
        )
        bare = msgspec.structs.replace(
            notice.task,
            progress=None,
            outputs=(),
            input=None,
            confirm=None,
            result=None,
            failure=None,
        )
        for each in (message, msgspec.structs.replace(message, payloads=(bare,))):
            xml = each.encode()
            if len(xml.encode()) <= self._limit:
                return xml
            _log.error("an event is too big", task=notice.task.id, bytes=len(xml.encode()))
        return None


class _Held:
    """The events of a task that wait for the answer to its request."""

    __slots__ = ("gone", "notices", "until")

    def __init__(self, until: float) -> None:
        self.until = until
        self.gone = anyio.Event()
        self.notices: list[Notice] = []


def _said(notice: Notice) -> sentences.Sentence | None:
    """What the message says to a person, if one follows the work (EVT-006, EVT-007).

    Nothing to whom the question itself is put: most clients would show it twice.
    """
    question = notice.question
    if not notice.conversational or (question and notice.principal.bare in question.asked):
        return None
    if notice.final:
        return sentences.ending(notice.task, notice.lang)
    if notice.task.input is not None or notice.task.confirm is not None:
        return sentences.waiting(notice.task, notice.lang)
    return None
