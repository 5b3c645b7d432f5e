"""The interface of the durable work: requests to it, and notices from it. No rows, no engine.

Importing this module is cheap: the engine is loaded when it is first needed.
"""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Literal, Protocol, TypeAlias

import msgspec

from component.budget.protocol import TurnBudget
from component.link.messages.delivery import Delivery
from component.policy.flows import AgentLimits
from component.policy.taint import Taint
from component.skills.context import Context
from component.skills.inputs import Arguments
from component.skills.model_answers import ModelFailed, ModelQuestion
from component.skills.skill import Skill
from component.tasks.by_reference import Share, nowhere
from component.tasks.request_keys import RequestKey
from component.tasks.skill_call import SkillCall
from xep.data_forms import Form
from xep.fluux_agent.confirm import Confirm
from xep.fluux_agent.task import Input, Task
from xep.jid import JID

Origin = Literal["iq", "message", "command", "tool", "child", "trigger"]
"""The source of a call: an execute IQ, a chat message, an ad-hoc command, a model's tool call, the
execution of another task, or a trigger such as a schedule (`component.proactive`).
"""

Asker = Literal["caller", "model", "misled model", "approved"]
"""Who wants to run a skill: the caller of an execute request, a model on behalf of its principal,
or a model that has read text of strangers, which may have misled it. `approved`: a model, and its
principal has already confirmed exactly this call, together with others.
"""


OnResult: TypeAlias = Callable[[Taint | None], None]
"""Receives the source of the texts in a result, if the result names one."""


class CallerContext(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which agent runs a skill, and for whom: the caller of a request, or a model of that agent.

    The model has read texts of the sources in `taints`. `timeout_s` limits the execution, in
    seconds, if it is less than the time-out of the skill. `trace` links the audit events of one
    turn. `operator` is the operator who started the turn, if it was not started by the principal.
    `budget` pays for what the skill asks of a model; None: the task has a budget of its own.
    `chosen` names the parameters that the model has chosen after reading strangers. `limits`
    are those of the agent, for calls of its model. `unrequested` says that the principal has not
    asked for it: a schedule, an event or an operator has started it.
    """

    agent: str
    asker: Asker = "caller"
    taints: tuple[Taint, ...] = ()
    timeout_s: float | None = None
    trace: str = ""
    operator: str = ""
    budget: TurnBudget | None = None
    chosen: tuple[str, ...] = ()
    limits: AgentLimits = AgentLimits()
    unrequested: bool = False


class Confirmation(msgspec.Struct, frozen=True):
    """A confirmation that is needed before the work begins.

    Any one of the bare JIDs `asked` can answer; it expires `expires_s` seconds after admission.
    """

    asked: tuple[JID, ...]
    risk: Literal["low", "medium", "high"] = "medium"
    expires_s: float = 86400.0


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A request to run a skill that has passed every check except those for repetition and
    capacity.

    `principal` is the bare JID of `requester`, which is full; `target` is the component's address
    that received it. `request` is the request itself, `arguments` are its parameters as the skill
    takes them. `key` identifies repetitions. `lang` is the language of the request. `undecided`
    says that it is determined only after the request is accepted whether, and by whom, it has to be
    confirmed. `on_result` is called when the skill has run on this instance, before the request is
    answered, and never for a repetition.
    """

    principal: JID
    requester: JID
    target: JID
    skill: Skill
    arguments: Arguments
    request: SkillCall
    key: RequestKey
    origin: Origin = "iq"
    lang: str | None = None
    caller_context: CallerContext = CallerContext("")
    confirmation: Confirmation | None = None
    undecided: bool = False
    on_result: OnResult | None = None


AskModel: TypeAlias = Callable[[Call, str, ModelQuestion], Awaitable[str]]
"""Asks a model for a call, whose task has this id, and returns an answer that its check accepts.
Raises ModelFailed.
"""


async def no_model(_call: Call, _task: str, _question: ModelQuestion) -> str:
    """Ask no model, where none is set up."""
    raise ModelFailed("refused", "No language model is set up.")


async def _no_approvers(_: Call) -> Confirmation | None:
    return None


def _provide_nothing(_skill: Skill, _context: Context) -> None:
    """Give a skill no functions of the service."""


def _asker_of_child(parent: Call, _skill: Skill) -> Asker:
    """A child is asked about as a call of a model: its principal has not written it."""
    asker = parent.caller_context.asker
    return "misled model" if asker == "misled model" else "model"


class SkillAccess(msgspec.Struct, frozen=True, kw_only=True):
    """The skills of this instance, and the check whether a principal may execute them.

    Attributes:
        find: returns a skill by its name, for any principal; None if it does not exist.
        may_use: returns whether a principal may execute a skill now.
        names: returns the names of all skills that this instance has; None for any.
        late: returns the names of sources of skills that are not ready yet, or of which
            descriptions wait for an approval: a task whose skill does not exist waits for them.
        approvers: returns who has to confirm a call that is `undecided`; None if nobody has to.
            Raises StanzaError if nobody can.
        check: called before each run of a call, with the id of its task. Raises CapabilityMissing
            if the skill lacks a capability.
        provide: gives the context of each call the functions of the service that its skill
            declares.
        asker_of_child: returns who asks for a skill that a call starts. Raises SkillError if that
            call must not start it.
        share: puts a file of a result that does not fit into a stanza where others can get it.
    """

    find: Callable[[str], Skill | None]
    may_use: Callable[[JID, Skill], bool]
    names: Callable[[], Sequence[str] | None] = lambda: None
    late: Callable[[], Sequence[str]] = tuple
    approvers: Callable[[Call], Awaitable[Confirmation | None]] = _no_approvers
    check: Callable[[Call, str], None] = lambda _call, _task: None
    provide: Callable[[Skill, Context], None] = _provide_nothing
    asker_of_child: Callable[[Call, Skill], Asker] = _asker_of_child
    share: Share = nowhere


Shown = Literal["waiting", "shown", "withheld", "returned"]
"""Whether a person has got the message of a question: it was not written yet; it was written; it
was withheld, because the person wants no such messages; or it was returned as an error.
"""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """An open confirmation or input, and the persons who were asked.

    `asked` are bare JIDs; `agent` is the address that asks, `thread` is the thread of its messages.
    It was asked at `put_at`; `lapsed` says that it has expired without an answer. `operator` is the
    operator who caused it, if the principal did not. `chosen` names the parameters that a model has
    chosen after reading strangers. `shown` says whether the person for whom it was looked up has
    got its message.
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
    put_at: datetime
    lapsed: bool = False
    lang: str | None = None
    operator: str = ""
    chosen: tuple[str, ...] = ()
    shown: Shown = "shown"


class Naming(msgspec.Struct, frozen=True):
    """How an answer in words identifies its question: by a thread, by the beginning of its
    identifier, or not at all. None of these is proof, because others can cause questions that also
    match.
    """

    thread: str | None = None
    beginning: str = ""


class UncertainError(Exception):
    """An answer in words may be meant for another question than the one that is open (CNF-044)."""


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """One committed revision, with everything that its message needs (specification, "Events").

    `thread` is the thread that the request named, or else the task's id. `question` is the question
    that the change asked, or that expired with it: the persons who were asked get a message besides
    the event. For a model's call only the question is sent; the model reports the rest.
    `unrequested` says that the work is not the principal's own request.
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
    unrequested: bool = False


class Listener(Protocol):
    """Sends messages about tasks. Called on the event loop after the commit, never before."""

    def changed(self, notice: Notice) -> Delivery | None:
        """Send the message of a change of a task. Must neither wait nor raise. Return the delivery
        of the message, or None if it cannot be sent now.

        A message that must be sent (a final event, a question) and was not written is sent again
        later.
        """

    async def handled(self) -> bool:
        """Wait until the server has handled everything written so far; return False if the
        connection was lost before that.
        """


def form_of(question: Question) -> Form | None:
    """Return the form of an input; None for a confirmation."""
    return question.content.form if isinstance(question.content, Input) else None
