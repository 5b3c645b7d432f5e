"""Helpers to follow a task: its acceptance, its events, the answer to get."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from conformance.holding import BlockedError
from conformance.stanzas import Received
from conformance.talk import Talk
from xep.binding import ContentError
from xep.fluux_agent import NAMESPACE as AGENT
from xep.fluux_agent.errors import Denied
from xep.fluux_agent.execute import Accepted, Result
from xep.fluux_agent.task import NAMESPACE, Input, Task

TASKS: Final = f"{AGENT}#task"
ENDS: Final = frozenset({"completed", "failed", "rejected", "cancelled"})


async def begin(
    t: Talk, role: str, params: dict[str, str] | None = None, **attributes: str
) -> Accepted:
    """Start a task; raises BlockedError if it does not become one."""
    attributes.setdefault("mode", "async")
    answer = await t.execute(role, params, having=attributes)
    return t.given(answer, Accepted, f"Executing {role} as a task")


async def run(
    t: Talk, role: str, params: dict[str, str], sender: str | None = None
) -> tuple[Received, Result | None]:
    """Execute a skill, and follow the task that it becomes if it takes too long.

    Returns the answer or the last event, and the result; None if there is an error instead.
    """
    answer = await t.execute(role, params, sender=sender)
    if answer.is_error:
        return answer, None
    accepted = answer.payload(Accepted)
    if accepted is None:
        return answer, t.given(answer, Result, f"Executing {role}")
    message, ended = await next_event(t, accepted.task, *ENDS)
    return message, ended.result


@dataclass(frozen=True)
class Outcome:
    """How work has ended.

    Attributes:
        message: the answer, or the last event of the task that the work became.
        result: the result; None if it has failed.
        conditions: the conditions of the agent protocol, if it has failed.
        repeatable: whether the same may be requested again, if it has failed.
        helps: what helps, if it was denied.
    """

    message: Received
    result: Result | None
    conditions: tuple[str, ...] = ()
    repeatable: bool = False
    helps: str | None = None


async def outcome(t: Talk, answer: Received) -> Outcome:
    """Return how the work of an execute request has ended, at once or as a task."""
    if answer.is_error:
        names, error = tuple(answer.agent_conditions), answer.error
        return Outcome(answer, None, names, error.type == "wait", _helps(error.application))
    accepted = answer.payload(Accepted)
    if accepted is None:
        return Outcome(answer, t.given(answer, Result, "Executing it"))
    message, ended = await next_event(t, accepted.task, *ENDS)
    failure = ended.failure
    if failure is None:
        return Outcome(message, ended.result)
    conditions = tuple([type(one).xml.local for one in failure.conditions])
    return Outcome(message, None, conditions, failure.repeatable, _helps(failure.conditions))


def _helps(conditions: Sequence[object]) -> str | None:
    """What helps, as a denial says."""
    return next((one.helps for one in conditions if isinstance(one, Denied)), None)


async def get(t: Talk, id_: str, sender: str | None = None) -> Received:
    """Send a get request for a task."""
    return await t.iq("get", Task(id=id_), sender=sender)


async def task(t: Talk, id_: str, sender: str | None = None) -> Task:
    """Return a task from the answer to get; raises BlockedError if there is none."""
    return t.given(await get(t, id_, sender), Task, "Asking for the task")


def event_of(stanza: Received, id_: str) -> Task | None:
    """Return the event of the task ``id_`` in a message; None if there is none."""
    if stanza.head.kind != "message" or stanza.is_error:
        return None
    try:
        found = stanza.payload(Task)
    except ContentError:
        return None
    return found if found is not None and found.id == id_ else None


async def next_event(
    t: Talk, id_: str, *states: str, within: float | None = None
) -> tuple[Received, Task]:
    """Return the next event of a task, in one of ``states`` if any are named."""

    def wanted(stanza: Received) -> bool:
        found = event_of(stanza, id_)
        return found is not None and (not states or found.state in states)

    message = await t.next(wanted, within=within)
    found = event_of(message, id_)
    assert found is not None
    return message, found


async def story(t: Talk, id_: str, within: float | None = None) -> list[tuple[Received, Task]]:
    """Return the events of a task up to its end."""
    events = []
    while True:
        event = await next_event(t, id_, within=within)
        events.append(event)
        if event[1].state in ENDS:
            return events


async def asked(t: Talk, id_: str) -> tuple[Received, Input]:
    """Return the event in which a task asks; raises BlockedError if it contains no question."""
    message, found = await next_event(t, id_, "input-required")
    if found.input is None:
        raise BlockedError("The event of the state input-required holds no <input/>.")
    return message, found.input


def answer(question: Input, task_id: str, json: str, revision: int | None = None) -> str:
    """Return an answer in JSON."""
    shown = question.revision if revision is None else revision
    return (
        f"<answer xmlns='{NAMESPACE}' task='{task_id}' input='{question.id}'"
        f" revision='{shown}'><params type='application/json'>{json}</params></answer>"
    )
