"""urn:fluux:agent:0#task, durable work: state, events, questions to the caller, result."""

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Final, Literal, get_args

import msgspec

from xep.binding import Attr, Child, Lang, Name, Payload, Text, TextChild
from xep.data_forms import Form
from xep.fluux_agent import NAMESPACE as AGENT
from xep.fluux_agent.confirm import Confirm
from xep.fluux_agent.errors import Condition
from xep.fluux_agent.execute import Output, Result, State
from xep.fluux_agent.grant import SignedReceipt
from xep.fluux_agent.plan import PlanSteps
from xep.jid import JID
from xep.result_sets import ResultSet
from xep.stanza_error import StanzaError

NAMESPACE: Final = f"{AGENT}#task"


class Progress(Payload, frozen=True, kw_only=True):
    """The progress of the work, from 0 to 1 if that is known, and the current step."""

    xml = Name(NAMESPACE, "progress")

    fraction: Annotated[Decimal | None, Attr()] = None
    text: Annotated[str, Text()] = ""
    lang: Lang = None


class Question(Payload, frozen=True, kw_only=True):
    """The text of a question, for people; one per language."""

    xml = Name(NAMESPACE, "question")

    text: Annotated[str, Text()]
    lang: Lang = None


class InputSchema(Payload, frozen=True, kw_only=True):
    """The JSON Schema of an answer; its type is ``object``."""

    xml = Name(NAMESPACE, "schema")

    type: Annotated[Literal["application/schema+json"], Attr(always=True)] = (
        "application/schema+json"
    )
    json: Annotated[msgspec.Raw, Text()]


class Input(Payload, frozen=True, kw_only=True):
    """The question of a task in state ``input-required``.

    ``id`` is never used again. ``revision`` is that of the event that asked, and an answer repeats
    it. After ``expires`` no answer counts. ``agent`` is the agent that asks, if it is not the
    sender, which passes its question on. ``form`` asks the same as ``schema``.
    """

    xml = Name(NAMESPACE, "input")

    id: Annotated[str, Attr()]
    revision: Annotated[int, Attr()]
    expires: Annotated[datetime | None, Attr()] = None
    agent: Annotated[JID | None, Attr()] = None
    questions: Annotated[tuple[Question, ...], Child(at_least=1)]
    schema: Annotated[InputSchema, Child()]
    form: Annotated[Form | None, Child()] = None


class AnswerParams(Payload, frozen=True, kw_only=True):
    """The answer as one JSON object."""

    xml = Name(NAMESPACE, "params")

    type: Annotated[Literal["application/json"], Attr(always=True)] = "application/json"
    json: Annotated[msgspec.Raw, Text()]


class InputAnswer(Payload, frozen=True, kw_only=True):
    """The answer to the question ``input`` of a task: JSON, or a submitted or cancelled form.

    Exactly one of ``params`` and ``form`` is set. A form of type ``cancel`` declines.
    """

    xml = Name(NAMESPACE, "answer")

    task: Annotated[str, Attr()]
    input: Annotated[str, Attr()]
    revision: Annotated[int, Attr()]
    params: Annotated[AnswerParams | None, Child()] = None
    form: Annotated[Form | None, Child()] = None


class FailureText(Payload, frozen=True, kw_only=True):
    """The reason of a failure, for people; one per language. Never a traceback or a secret."""

    xml = Name(NAMESPACE, "text")

    text: Annotated[str, Text()]
    lang: Lang = None


class Failure(Payload, frozen=True, kw_only=True):
    """Why a task failed or was rejected, with the conditions of a stanza error.

    ``repeatable`` says that the same work may be requested again without having an effect twice.
    ``receipt`` is there when another agent has delegated the work. That of a cancelled task, which
    is only there for a receipt, has no condition.
    """

    xml = Name(NAMESPACE, "failure")

    repeatable: Annotated[bool, Attr(always=True)] = False
    conditions: Annotated[tuple[Condition, ...], Child()] = ()
    texts: Annotated[tuple[FailureText, ...], Child()] = ()
    receipt: Annotated[SignedReceipt | None, Child()] = None

    @classmethod
    def of(cls, error: StanzaError, *, repeatable: bool = False) -> "Failure":
        """Return the failure of a task for the ``error`` of a request."""
        known = tuple([one for one in error.application if isinstance(one, get_args(Condition))])
        text = FailureText(text=error.text, lang=error.lang)
        return cls(repeatable=repeatable, conditions=known, texts=(text,) if error.text else ())


class Task(Payload, frozen=True, kw_only=True):
    """A task. With only its ``id`` it is a query; otherwise the answer, or an event.

    ``revision`` counts the changes from 0, which is its admission. It is retained at least until
    ``retain_until``. ``outputs`` are parts of artifacts before the end: in an event one part each,
    in the answer to ``get`` everything up to that part. ``plan`` are the steps of a task that is a
    plan.
    """

    xml = Name(NAMESPACE, "task")

    id: Annotated[str, Attr()]
    skill: Annotated[str | None, Attr()] = None
    state: Annotated[State | None, Attr()] = None
    revision: Annotated[int | None, Attr()] = None
    created: Annotated[datetime | None, Attr()] = None
    updated: Annotated[datetime | None, Attr()] = None
    retain_until: Annotated[datetime | None, Attr()] = None
    deadline: Annotated[datetime | None, Attr()] = None
    poll_after: Annotated[int | None, Attr()] = None
    request: Annotated[str | None, Attr()] = None
    context: Annotated[str | None, Attr()] = None
    thread: Annotated[str | None, Attr()] = None
    progress: Annotated[Progress | None, Child()] = None
    plan: Annotated[PlanSteps | None, Child()] = None
    outputs: Annotated[tuple[Output, ...], Child()] = ()
    input: Annotated[Input | None, Child()] = None
    confirm: Annotated[Confirm | None, Child()] = None
    result: Annotated[Result | None, Child()] = None
    failure: Annotated[Failure | None, Child()] = None


class Tasks(Payload, frozen=True, kw_only=True):
    """The requester's own tasks: the query and its answer.

    In the query ``state``, ``context`` and ``since`` (changed then or later) filter the list. In
    the answer a task has its attributes, its progress and its plan; the rest is requested for each
    task. ``ended`` and ``ended_bytes`` say how many ended tasks are retained for the principal,
    regardless of the filters.
    """

    xml = Name(NAMESPACE, "tasks")

    state: Annotated[State | None, Attr()] = None
    context: Annotated[str | None, Attr()] = None
    since: Annotated[datetime | None, Attr()] = None
    ended: Annotated[int | None, Attr()] = None
    ended_bytes: Annotated[int | None, Attr("ended-bytes")] = None
    tasks: Annotated[tuple[Task, ...], Child(malformed="drop")] = ()
    page: Annotated[ResultSet | None, Child()] = None


class Gap(Payload, frozen=True, kw_only=True):
    """Events that are no longer stored: the revisions ``first`` to ``last``, both included."""

    xml = Name(NAMESPACE, "gap")

    first: Annotated[int, Attr("from")]
    last: Annotated[int, Attr("to")]


class Events(Payload, frozen=True, kw_only=True):
    """The events of the task ``id`` after the revision ``since``: the query and its answer.

    In the answer ``revision`` is the task's current one, and every revision in between is an event
    or in a gap.
    """

    xml = Name(NAMESPACE, "events")

    id: Annotated[str, Attr()]
    since: Annotated[int, Attr()]
    revision: Annotated[int | None, Attr()] = None
    gaps: Annotated[tuple[Gap, ...], Child()] = ()
    tasks: Annotated[tuple[Task, ...], Child()] = ()
    page: Annotated[ResultSet | None, Child()] = None


class Cancel(Payload, frozen=True, kw_only=True):
    """A request to cancel the task ``id``, which may still be completed; or the task of the
    requester's own ``request``, if its answer, which names the task, has not come yet.
    """

    xml = Name(NAMESPACE, "cancel")

    id: Annotated[str | None, Attr()] = None
    request: Annotated[str | None, Attr()] = None
    reason: Annotated[str | None, TextChild()] = None
