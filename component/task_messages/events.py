"""Messages about tasks: each committed revision is sent, in order, to the requester."""

import math
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

import anyio
import msgspec
import structlog
from anyio.abc import TaskStatus

from component.caches import FIFOCache
from component.link.messages.delivery import Delivery, nothing_to_send
from component.link.messages.inbound import Conversation, ReplyAddress
from component.link.messages.messenger import Messenger, TooBigError
from component.link.messages.outbound import OutboundMessage
from component.policy.taint import Taint
from component.store.told import ToldMessage
from component.task_messages import sentences
from component.task_messages.questions import Questions
from component.tasks.protocol import DeletedTask, Notice, Question
from component.tasks.worker import waiting_text
from xep.fluux_agent.task import Input, Task
from xep.jid import JID

_log = structlog.get_logger("component.events")

_REPORTED: Final = ("tool", "trigger")
"""Origins of tasks whose end another part of the service reports: the model's answer, or the
notification of the result of triggered work."""
_MOST_HELD: Final = 10_000
"""Maximum number of events that are held back, of all tasks; beyond it the oldest are sent."""
_MOST_ANSWERED: Final = 10_000
"""Tasks remembered as answered whose first event is still to come."""


class TaskNews:
    """The `Listener` of the durable work.

    **No event before `<accepted/>` (EVT-008).** Work begins with its commit, so the first event of
    a task can arrive here before the answer to its request was sent. Therefore the events of a task
    are held back from revision 1 until `released` says that the request is being answered. `run`
    sends them in a separate task, and so after the answer, which the router puts into the outbox in
    the same step in which the handler returns it. The caller that starts work calls `released`, for
    requests of every kind. If it does not, because the request timed out or its caller has ended,
    the events wait for `hold_s` seconds. A task that was accepted longer ago is not held back,
    because it was queued; nor is one that was accepted before `since`, by an earlier run of the
    process: the caller that would answer has ended.

    **Without a connection** events are not sent: headlines are lost, as allowed (EVT-009); the
    engine sends messages that must arrive (a final event, a question) again, and so it does with
    dropped messages. Messages that are held when the connection breaks wait in the outbox.

    **Events that are too big.** Artifacts of a result that would not fit are given by reference
    (EXE-012), so an event that does not fit is an error of the service. It is sent without its
    artifacts: the state and the revision still show that there is something to query.

    Args:
        messenger: sends messages.
        connected: whether there is a stream.
        may_write: whether an agent may send unsolicited messages to a contact.
        questions: puts questions into words.
        hold_s: maximum number of seconds that an event is held back.
        since: when this process began; None if no task is older.
        taint_of: returns who may have written the results of a skill, by its name; None where no
            model reads the messages that people get.

    Attributes:
        on_tool_ended: called with the id of a task that continued a model's call or was started by
            a trigger, when the task has ended.
        on_changed: called with each revision of a task, such as for the node of tasks.
        on_deleted: called with each deleted task that its principal could see.
    """

    def __init__(
        self,
        messenger: Messenger,
        connected: Callable[[], bool],
        may_write: Callable[[JID, JID], bool],
        questions: Questions,
        hold_s: float = 5.0,
        since: datetime | None = None,
        taint_of: Callable[[str], Taint | None] | None = None,
    ) -> None:
        self._messenger = messenger
        self._connected = connected
        self._may_write = may_write
        self._questions = questions
        self._hold_s = hold_s
        self._since = since
        self._taint_of = taint_of
        self.on_tool_ended: list[Callable[[str], None]] = []
        self.on_changed: list[Callable[[Notice], None]] = []
        self.on_deleted: list[Callable[[DeletedTask], None]] = []
        self._held: dict[str, _Held] = {}  # oldest first
        self._waiting = 0
        self._released: list[str] = []
        self._answered: FIFOCache[str, None] = FIFOCache(_MOST_ANSWERED)
        self._wake = anyio.Event()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Send held events when they are due, until cancelled."""
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
        """Note that the request for a task is being answered: the caller returns its answer without
        waiting any more.
        """
        if task in self._held:
            self._released.append(task)
            self._wake.set()
            return
        self._answered[task] = None

    def deleted(self, task: DeletedTask) -> None:
        """Report a deleted task."""
        for call in self.on_deleted:
            call(task)

    def changed(self, notice: Notice) -> Delivery | None:
        """Send the messages of a changed task; return their delivery, or None without a stream."""
        for call in self.on_changed:
            call(notice)
        if notice.request.origin in _REPORTED and notice.final:
            for ended in self.on_tool_ended:
                ended(notice.task.id)
        if _is_silent(notice) and notice.question is None:
            return nothing_to_send()  # somebody else reports the rest, such as the model's answer
        if not self._connected():
            return None
        delivery = Delivery(must_arrive=notice.final or notice.question is not None)
        if not self._hold(notice, delivery):
            self._tell(notice, delivery)
        return delivery

    def told(self, notice: Notice) -> ToldMessage | None:
        """Return what the principal reads in the message about the end of a task."""
        request = notice.request
        is_reported = request.origin in (*_REPORTED, "child")
        if self._taint_of is None or not notice.final or is_reported:
            return None
        said = _body(notice)
        if said is None or not self._may_write(request.target, request.principal):
            return None
        taints = {*request.caller_context.taints, self._taint_of(request.skill)}
        return ToldMessage(
            id=_id_of(notice.task),
            text=said.text,
            about=f"The task {notice.task.id} of the skill {request.skill} has ended.",
            taints=tuple(sorted(one for one in taints if one is not None)),
            files=said.files,
        )

    async def handled(self) -> bool:
        """Wait until the server has handled everything written so far; return False if the
        connection was lost before that.
        """
        return await self._messenger.handled()

    def _hold(self, notice: Notice, delivery: Delivery) -> bool:
        """Keep an event of a task whose request has not been answered yet."""
        task = notice.task
        held = self._held.get(task.id)
        if held is None:
            # The request of a child is answered by nobody.
            is_child = notice.request.origin == "child"
            if task.revision != 1 or is_child or self._accepted_long_ago(task):
                return False
            if task.id in self._answered:
                del self._answered[task.id]
                return False
            held = _Held(anyio.current_time() + self._hold_s)
            self._held[task.id] = held
            self._wake.set()
        held.notices.append((notice, delivery))
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
            for notice, delivery in held.notices:
                self._tell(notice, delivery)

    def _tell(self, notice: Notice, delivery: Delivery) -> None:
        try:
            self._send(notice, delivery)
        except Exception:  # noqa: BLE001 - what is committed stands, even without the event
            _log.exception("cannot send an event", task=notice.task.id)
        delivery.conclude()

    def _send(self, notice: Notice, delivery: Delivery) -> None:
        request = notice.request
        agent, person = request.target, request.principal
        if not _is_silent(notice) and self._may_write(agent, person):
            self._send_event(notice, delivery)
        if notice.question is None:
            return
        for message in self._about(notice, notice.question):
            to = message.conversation.peer
            # A question about a person's own request is the answer to it (FAC-012).
            is_own = to == person and not request.caller_context.unrequested
            if is_own or self._may_write(agent, to):
                self._messenger.send(message, delivery)
            else:
                delivery.withheld |= {to}
                _log.info(
                    "a question is withheld: the person wants no messages",
                    task=notice.task.id,
                    person=str(to),
                )

    def _about(self, notice: Notice, question: Question) -> Sequence[OutboundMessage]:
        if not question.lapsed:
            return self._questions.messages(question)
        # The principal learns how the task ended from its event or from the model.
        heard = notice.request.origin in _REPORTED or _body(notice) is not None
        person = notice.request.principal
        people = [one for one in question.asked if not (heard and one == person)]
        if isinstance(question.content, Input) and not question.request.conversational:
            people = []  # it was asked by its event alone
        return [self._questions.lapsed(question, to) for to in people]

    def _send_event(self, notice: Notice, delivery: Delivery) -> None:
        """Send the message of a revision (EVT-002 to EVT-007), without its artifacts if it is too
        big with them.
        """
        for task in _from_largest(notice.task):
            try:
                self._messenger.send(_event(notice, task), delivery)
            except TooBigError as error:
                _log.error("an event is too big", task=task.id, reason=str(error))
            else:
                return


def _is_silent(notice: Notice) -> bool:
    """Whether a revision has no event, because another part of the service reports it."""
    request = notice.request
    if request.origin == "child":
        return notice.final or notice.question is None
    if request.origin == "trigger":
        return request.requester.resource is None  # no client has asked for the work
    return request.origin in _REPORTED


class _Held:
    """The events of a task that wait for the answer to its request."""

    __slots__ = ("notices", "until")

    def __init__(self, until: float) -> None:
        self.until = until
        self.notices: list[tuple[Notice, Delivery]] = []


def _from_largest(task: Task) -> Iterator[Task]:
    """Yield a task, and then the task without everything that can be large."""
    yield task
    yield msgspec.structs.replace(
        task,
        progress=None,
        plan=None,
        outputs=(),
        input=None,
        confirm=None,
        result=None,
        failure=None,
    )


def _event(notice: Notice, task: Task) -> OutboundMessage:
    said = _body(notice)
    agent, person = notice.request.target, notice.request.principal
    to = person if notice.final else notice.request.requester
    return OutboundMessage(
        id=_id_of(task),
        conversation=Conversation(agent, person, thread=notice.thread),
        to=ReplyAddress(str(to), agent, "normal" if notice.final else "headline", notice.thread),
        parts=() if said is None else said.parts,
        payloads=(task,),
        must_arrive=notice.final,
        asks_for_reports=notice.final,
    )


def _id_of(task: Task) -> str:
    return f"{task.id}.{task.revision}"


def _body(notice: Notice) -> sentences.Sentence | None:
    """Return the text of the message for a person, if one follows the work (EVT-006, EVT-007).

    None for persons who get the question itself: most clients would show it twice.
    """
    question = notice.question
    is_asked = question and not question.lapsed and notice.request.principal in question.asked
    if not notice.request.conversational or is_asked or notice.request.origin in _REPORTED:
        return None
    if notice.final:
        return sentences.ending(notice.task, notice.request.lang)
    if notice.task.input is not None or notice.task.confirm is not None:
        return sentences.waiting(notice.task, notice.request.lang)
    waits = waiting_text(notice.task.progress)
    return None if waits is None else sentences.Sentence(waits, "en")
