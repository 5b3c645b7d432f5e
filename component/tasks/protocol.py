"""What others ask of the durable work, and what it tells them. No rows, no engine.

Importing this module costs nothing: the engine is loaded by whoever first needs it.
"""

from collections.abc import Callable, Sequence
from typing import Literal, Protocol, TypeAlias

import msgspec

from component.policy.taint import Taint
from component.skills.declare import AnySkill
from xep.data_forms import Form
from xep.fluux_agent.confirm import Confirm, Decision
from xep.fluux_agent.execute import Accepted, Execute, Result
from xep.fluux_agent.task import Cancel, Events, Input, InputAnswer, Task
from xep.fluux_agent.task import Tasks as TaskList
from xep.jid import JID
from xep.stanza_error import StanzaError

Origin = Literal["iq", "message", "command", "tool"]
"""By which face work came: an execute IQ, a chat message, an ad-hoc command, a model's call."""

Asker = Literal["caller", "model", "misled model"]
"""Who wants a skill to run: the caller of an execute request, a model on behalf of its principal,
or one that was shown what strangers wrote, so that what it wants may be theirs."""


Told: TypeAlias = Callable[[Taint | None], None]
"""Is told whose texts a result can hold, where it says so itself."""


class Hand(msgspec.Struct, frozen=True):
    """By which agent's hand a skill is run: of the one that was asked, or of one whose model wants
    it, having been shown what those in `taints` wrote. `timeout_s` bounds the run, in seconds, if
    it is less than the skill's own time-out. `trace` joins what is recorded of a model's turn.
    """

    agent: str
    asker: Asker = "caller"
    taints: tuple[Taint, ...] = ()
    timeout_s: float | None = None
    trace: str = ""


class Confirmation(msgspec.Struct, frozen=True):
    """Somebody has to be asked before the work begins.

    `asked` are the bare JIDs, any one of whom can answer; `expires_s` are seconds from admission.
    """

    asked: tuple[JID, ...]
    risk: Literal["low", "medium", "high"] = "medium"
    expires_s: float = 86400.0


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A request to run a skill that has passed every check but that of repetition and room.

    `principal` is the bare JID of `requester`, the full one; `target` is the address of ours it
    was sent to. `execute` is the request as it came, `arguments` are its parameters as the skill
    wants them. `key` and `digest` know a repetition (see `component.tasks.replay`). `lang` is the
    language of the request. `hand` says which agent runs it. `told` is called
    when the skill has run here, before the request is answered: never for a repetition.
    """

    principal: JID
    requester: JID
    target: JID
    skill: AnySkill
    arguments: msgspec.Struct
    execute: Execute
    key: str
    digest: str
    origin: Origin = "iq"
    lang: str | None = None
    hand: Hand = Hand("")
    confirmation: Confirmation | None = None
    told: Told | None = None


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A confirmation or an input that is open, and to whom it was put.

    `asked` are bare JIDs; `agent` is the address that asks, `thread` that of the talk about it.
    """

    id: str
    task: str
    revision: int
    agent: JID
    principal: JID
    requester: JID
    asked: tuple[JID, ...]
    thread: str
    content: Confirm | Input
    conversational: bool
    lang: str | None = None


class Naming(msgspec.Struct, frozen=True):
    """By what an answer in words names its question: a thread, the beginning of its identifier, or
    nothing at all. None of these is proof, since others can bring about questions they also fit.
    """

    thread: str | None = None
    beginning: str = ""


class UncertainError(Exception):
    """An answer in words may be meant for another question than the one that is open (CNF-044)."""


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """One committed revision, with all that its message needs (specification, "Events").

    `thread` is what the request named, or else the task's id. `question` is there when the change
    put one: besides the event, it is to be sent to those who are asked. Of a model's call only the
    question is told: the rest the model says itself.
    """

    task: Task
    agent: JID
    principal: JID
    requester: JID
    thread: str
    conversational: bool
    final: bool
    question: Question | None = None
    lang: str | None = None
    origin: Origin = "iq"


class Listener(Protocol):
    """Who sends messages about tasks. Called on the event loop after the commit, never before."""

    def changed(self, notice: Notice) -> bool:
        """A task has changed. Must neither wait nor raise; whether the message is on its way.

        What has to be told (a final event, a question) and could not be is told again later.
        """

    async def sent(self) -> None:
        """Wait until the messages of all changes so far would not be lost with this process."""


class Tasks(Protocol):
    """The durable work, for the handlers.

    `who` is a bare JID and `at` the address of ours it turned to: what was not accepted at that
    address, or belongs to another principal, is not there. Every method but `remembered` raises
    StorageError if the database refuses, and those that judge raise the StanzaError of the
    specification's table.
    """

    def remembered(self, key: str, digest: str) -> Result | Accepted | None:
        """The recorded answer to a repetition, if it is in memory. Never waits.

        Raises StanzaError: the recorded error, or `conflict` for other content.
        """

    async def repeated(self, key: str, digest: str) -> Result | Accepted | None:
        """The recorded answer to a repetition, from memory or disk; None if this is new work.

        Waits for the first request, if that is still being worked on.
        Raises StanzaError: the recorded error, `conflict`, `busy`, or `outcome-unknown`.
        """

    def remember(self, key: str, digest: str, answer: Result | StanzaError) -> None:
        """Record the outcome of an inline skill that is repeatable. Never waits."""

    async def execute(self, call: Call) -> Result | Accepted:
        """Run a skill, within the inline limit or as a task (specification, "Execution").

        Raises StanzaError, whose record is kept where the work had begun.
        """

    async def withdraw(self, key: str) -> bool:
        """End the work of a request, be it a task or not; False if it is not under way."""

    async def earlier(self, who: JID, at: JID, tasks: Sequence[str]) -> bool:
        """Whether all of these are tasks of the principal."""

    async def get(self, who: JID, at: JID, task: str) -> Task:
        """The whole task. Raises StanzaError: `unknown-task`."""

    async def list(self, who: JID, at: JID, query: TaskList) -> TaskList:
        """One page of the principal's tasks, the latest first."""

    async def events(self, who: JID, at: JID, query: Events) -> Events:
        """One page of a task's events since a revision. Raises StanzaError: `unknown-task`."""

    async def cancel(self, who: JID, at: JID, query: Cancel) -> Task:
        """Ask a task to end; the task after that. Raises StanzaError: `unknown-task`."""

    async def answer(
        self, who: JID, at: JID, answer: InputAnswer, naming: Naming | None = None
    ) -> Task:
        """Answer a question of a task (INP-010); the task after that. Raises StanzaError.

        `naming` is given for words that do not hold the question's identifier. Raises
        UncertainError, and changes nothing, if they may be meant for another one.
        """

    async def decide(
        self,
        who: JID,
        at: JID,
        decision: Decision,
        lang: str | None = None,
        naming: Naming | None = None,
    ) -> None:
        """Decide a confirmation (CNF-032). `naming` and the errors are as for `answer`; it is held
        against approvals only.
        """

    async def open_questions(self, who: JID, at: JID) -> Sequence[Question]:
        """The questions that this address has open with the bare JID `who`."""

    async def was_asked(self, who: JID, at: JID, name: str) -> bool:
        """Whether a question that `who` was asked, by its id or thread, is closed."""


def form_of(question: Question) -> Form | None:
    """The form of an input; None for a confirmation."""
    return question.content.form if isinstance(question.content, Input) else None
