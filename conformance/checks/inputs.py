"""Tasks: Input and Cancellation."""

from datetime import UTC, datetime, timedelta

import msgspec

from conformance.checks.follow import ENDS, TASKS, answer, asked, begin, event_of, next_event, task
from conformance.model import Ability, check
from conformance.post import Where
from conformance.stanzas import Received
from conformance.talk import Talk
from xep.fluux_agent.task import NAMESPACE, Cancel, Input, Task

_TOLD = "the task as get shows it"
_LONG = {"seconds": "300"}


async def _question(t: Talk, **params: str) -> tuple[str, Received, Input]:
    made = await begin(t, "ask", {"question": "Which one?", **params})
    message, question = await asked(t, made.task)
    return made.task, message, question


def _sample(t: Talk, question: Input) -> str:
    """Return an answer that matches the schema of a question, as JSON."""
    schema = msgspec.json.decode(question.schema.json)
    t.need(isinstance(schema, dict), "The schema of the question is no object.")
    values = {"string": "blue", "integer": 3, "number": 1.5, "boolean": True, "array": []}
    filled = {}
    for name, shown in schema.get("properties", {}).items():
        definition = str(shown.get("$ref", "")).rpartition("/")[2]
        one = schema.get("$defs", {}).get(definition, shown)
        if name in schema.get("required", ()):
            filled[name] = one["enum"][0] if "enum" in one else values.get(one.get("type"), "x")
            if "minimum" in one and isinstance(filled[name], int | float):
                filled[name] = max(filled[name], one["minimum"])
    return msgspec.json.encode(filled).decode()


def _end_of(task_id: str) -> Where:
    def where(stanza: Received) -> bool:
        event = event_of(stanza, task_id)
        return event is not None and event.state in ENDS

    return where


def _later(task_id: str, revision: int) -> Where:
    def where(stanza: Received) -> bool:
        event = event_of(stanza, task_id)
        return event is not None and (event.revision or 0) > revision

    return where


@check("input.content", "INP-001", "INP-002", "INP-004", features=[TASKS], roles=("ask",))
async def content(t: Talk) -> None:
    """A question has a text, a schema and the same as a form."""
    id_, message, question = await _question(t)
    t.hold("INP-001", all(one.text for one in question.questions), "a question", message)
    schema = msgspec.json.decode(question.schema.json)
    ok = isinstance(schema, dict) and schema.get("type") == "object"
    t.hold("INP-001", ok, "a schema of type object", message)
    form = question.form
    if t.hold("INP-001", form is not None, "the same as a data form", message):
        assert form is not None
        types = [tuple(f.values) for f in form.fields if f.var == "FORM_TYPE"]
        t.hold("INP-002", types == [(NAMESPACE,)], f"the FORM_TYPE {NAMESPACE}", message)
        fields = [f.var for f in form.fields if f.var not in (None, "FORM_TYPE")]
        ok = fields == list(schema.get("properties", {}))
        t.hold("INP-002", ok, "a field per property, in order", message)
    shown = await task(t, id_)
    ok = question.revision == shown.revision
    t.hold("INP-004", ok, "the revision of the change that asked", message)
    await t.iq("set", Cancel(id=id_))


@check("input.order", "INP-006", "INP-008", "INP-010", "INP-003", features=[TASKS],
       roles=("ask",), needs=[Ability.STRANGER, Ability.RESOURCE])  # fmt: skip
async def order(t: Talk) -> None:
    """Answers are judged in order, and one counts, from any resource of the principal."""
    id_, _, question = await _question(t)
    good = _sample(t, question)
    foreign = await t.iq("set", answer(question, id_, good), sender=t.stranger)
    t.holds_error("INP-006", foreign, "item-not-found", "unknown-task")
    t.holds_error("INP-010", foreign, "item-not-found", "unknown-task")
    invented = msgspec.structs.replace(question, id="i-never-asked")
    never = await t.iq("set", answer(invented, id_, good))
    t.holds_error("INP-010", never, "item-not-found", "unknown-input")
    old = await t.iq("set", answer(question, id_, good, question.revision + 7))
    t.holds_error("INP-010", old, "conflict", "conflict", why="the revision is another")
    bad = await t.iq("set", answer(question, id_, '{"no-such-field": 1}'))
    t.holds_error("INP-010", bad, "bad-request", "invalid-param")
    counted = await t.iq("set", answer(question, id_, good), sender=t.other)
    found = t.decoded("INP-008", counted, Task, _TOLD)
    t.hold("INP-008", found.revision == question.revision + 1, "the revision after it", counted)
    t.hold("INP-006", found.state != "input-required", "the answer counts", counted)
    again = await t.iq("set", answer(question, id_, good))
    t.hold("INP-010", not again.is_error, "the task as it is now", again)
    another = await t.iq("set", answer(question, id_, '{"no-such-field": 2}'))
    t.holds_error("INP-010", another, "conflict", "conflict", why="it has been answered")
    next_id, _, second = await _question(t)
    t.hold("INP-003", second.id != question.id, "an id that was not used before", second.id)
    await t.iq("set", Cancel(id=next_id))  # open questions make answers in words ambiguous


@check("input.decline", "INP-007", "TSK-009", features=[TASKS], roles=("ask",))
async def decline(t: Talk) -> None:
    """A form of type cancel declines; a skill that needs the answer fails as denied."""
    id_, _, question = await _question(t)
    form = "<x xmlns='jabber:x:data' type='cancel'/>"
    head = f"task='{id_}' input='{question.id}' revision='{question.revision}'"
    told = await t.iq("set", f"<answer xmlns='{NAMESPACE}' {head}>{form}</answer>")
    t.hold("INP-007", not told.is_error, "an answer that counts", told)
    message, event = await next_event(t, id_, *ENDS)
    names = [type(one).xml.local for one in (event.failure.conditions if event.failure else ())]
    ok = event.state == "failed" and names == ["denied"]
    t.hold("INP-007", ok, "failed with <denied/>", message)
    repeatable = event.failure is not None and event.failure.repeatable
    t.hold("TSK-009", not repeatable, "not repeatable: a step ran", message)


@check("input.lapse", "INP-012", "INP-013", features=[TASKS], roles=("ask",))
async def lapse(t: Talk) -> None:
    """A question without an answer expires, and no answer counts after it."""
    id_, _, question = await _question(t, expires="1")
    message, event = await next_event(t, id_, *ENDS, "input-required", within=t.timeout + 2)
    names = [type(one).xml.local for one in (event.failure.conditions if event.failure else ())]
    anew = event.state == "input-required" and event.input and event.input.id != question.id
    ok = bool(anew) or (event.state == "failed" and names == ["input-expired"])
    t.hold("INP-013", ok, "failed with <input-expired/>, or a new question", message)
    late = await t.iq("set", answer(question, id_, _sample(t, question)))
    t.holds_error("INP-012", late, "not-acceptable", "expired")


@check("cancel.idle", "INP-011", "CAN-001", "CAN-003", "CAN-005", "CAN-007", features=[TASKS],
       roles=("ask",))  # fmt: skip
async def idle(t: Talk) -> None:
    """A task that waits for input is cancelled at once, and its question closed."""
    id_, _, question = await _question(t)
    told = await t.iq("set", Cancel(id=id_))
    found = t.decoded("CAN-003", told, Task, _TOLD)
    t.hold("CAN-001", found.state == "cancelled", "cancelled", told)
    t.hold("CAN-003", found.revision == question.revision + 1, "after the change", told)
    late = await t.iq("set", answer(question, id_, _sample(t, question)))
    known = "unknown-input" not in late.agent_conditions
    t.hold("INP-011", known, "the question, and what became of it, is known", late)
    t.holds_error("CAN-007", late, "conflict", "conflict", why="the task has ended")
    again = await t.iq("set", Cancel(id=id_))
    same = t.decoded("CAN-005", again, Task, "the task as it is")
    ok = (same.state, same.revision) == (found.state, found.revision)
    t.hold("CAN-005", ok, "nothing has changed", again)


@check(
    "cancel.running",
    "CAN-002",
    "CAN-003",
    "CAN-009",
    features=[TASKS],
    roles=("sleep",),
    ordered=True,
)
async def running(t: Talk) -> None:
    """A running task changes to cancelling, and does not stay there."""
    made = await begin(t, "sleep", _LONG)
    await next_event(t, made.task, "running")
    told = await t.iq("set", Cancel(id=made.task))
    found = t.decoded("CAN-003", told, Task, _TOLD)
    t.hold("CAN-003", found.state in ("cancelling", "cancelled"), "after the change", told)
    message, event = await next_event(t, made.task, "cancelling", *ENDS)
    t.hold("CAN-002", event.state == "cancelling", "an event with the state cancelling", message)
    if event.state == "cancelling":
        message, event = await next_event(t, made.task, *ENDS)
    t.hold("CAN-009", event.state == "cancelled", "cancelled soon after", message)


@check("cancel.again", "CAN-006", features=[TASKS], roles=("sleep",))
async def again(t: Talk) -> None:
    """A repeated cancel request gets the same answer."""
    made = await begin(t, "sleep", _LONG)
    await next_event(t, made.task, "running")
    ids = [t.new_id() for _ in range(3)]
    for id_ in ids:
        await t.begin("set", Cancel(id=made.task), id_=id_)
    for id_ in ids:
        answer = await t.answer(id_)
        found = t.decoded("CAN-006", answer, Task, _TOLD)
        ok = found.state in ("cancelling", "cancelled")
        t.hold("CAN-006", ok, "cancelling, or cancelled by now", answer)
    await next_event(t, made.task, *ENDS)


@check("cancel.after", "CAN-008", features=[TASKS], roles=("sleep",))
async def after(t: Talk) -> None:
    """Results of a step after the cancellation of its task are discarded."""
    for seconds in (0.6, 2.0, 5.0):  # on a slow machine the work may end before its cancellation
        made = await begin(t, "sleep", {"seconds": f"{seconds:g}"})
        await next_event(t, made.task, "running")
        await t.iq("set", Cancel(id=made.task))
        message, event = await next_event(t, made.task, *ENDS)
        if event.state == "cancelled":
            break
    t.need(event.state == "cancelled", f"It ended as {event.state}.")
    more = await t.quiet(_later(made.task, event.revision or 0), seconds + 0.4)
    t.hold("CAN-008", more is None, "nothing more of the task", more or "")
    found = await task(t, made.task)
    same = (found.state, found.revision) == (event.state, event.revision)
    t.hold("CAN-008", same, "the task as it was cancelled", message)


@check("cancel.race", "CAN-004", features=[TASKS], roles=("sleep",))
async def race(t: Talk) -> None:
    """Either the end or the cancellation of a task wins, and all messages agree on it."""
    for number in range(6):
        made = await begin(t, "sleep", {"seconds": str(number / 50)})
        told = await t.iq("set", Cancel(id=made.task))
        found = t.decoded("CAN-004", told, Task, _TOLD)
        message, event = await next_event(t, made.task, *ENDS)
        if found.state in ENDS:
            t.hold("CAN-004", event.state == found.state, f"the end told: {found.state}", message)
        shown = await task(t, made.task)
        same = (shown.state, shown.revision) == (event.state, event.revision)
        t.hold("CAN-004", same, f"{event.state} in get too", f"{shown.state}, {shown.revision}")
        ends = await t.quiet(_end_of(made.task), 0.1)
        t.hold("CAN-004", ends is None, "one end", ends or "")


@check("input.before-deadline", "INP-014", features=[TASKS], roles=("ask",))
async def before_deadline(t: Talk) -> None:
    """A question expires no later than the deadline of its task."""
    at = datetime.now(UTC) + timedelta(seconds=60)
    deadline = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    made = await begin(t, "ask", {"question": "In time?"}, deadline=deadline)
    message, question = await asked(t, made.task)
    ok = question.expires is None or question.expires <= at
    t.hold("INP-014", ok, f"expires not after {deadline}", message)
    await t.iq("set", Cancel(id=made.task))


@check("input.chat", "INP-009", features=[TASKS], roles=("say",))
async def chat(t: Talk) -> None:
    """A question that one text can answer can be answered by a chat message in its thread."""
    made = await begin(t, "say", {"question": "Which colour?"})
    await asked(t, made.task)
    await t.message("as blue as the sea", thread=made.task)
    told = await t.quiet(_end_of(made.task), t.timeout)
    event = None if told is None else event_of(told, made.task)
    texts = [one.text for one in event.result.outputs] if event and event.result else []
    ok = any("as blue as the sea" in text for text in texts)
    t.hold("INP-009", ok, "the task goes on with what was said", told or "nothing came of it")
    if told is None:
        await t.iq("set", Cancel(id=made.task))


CHECKS = (
    content,
    order,
    decline,
    lapse,
    idle,
    running,
    again,
    after,
    race,
    before_deadline,
    chat,
)
