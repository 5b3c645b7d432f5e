"""Tasks: acceptance, states, get, list, events, artifacts."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from conformance.checks.follow import (
    ENDS,
    TASKS,
    begin,
    get,
    next_event,
    story,
    task,
)
from conformance.checks.modes import LONGEST_WAIT
from conformance.model import Ability, check
from conformance.stanzas import Received
from conformance.talk import Talk
from xep.fluux_agent.execute import Accepted
from xep.fluux_agent.task import NAMESPACE, Cancel, Events, Task, Tasks
from xep.result_sets import ResultSet

_MAY_FOLLOW: dict[str, frozenset[str]] = {
    "accepted": frozenset({"running", "input-required", "cancelled", "failed", "rejected"}),
    "running": frozenset({"running", "input-required", "cancelling", "completed", "failed"}),
    "input-required": frozenset(
        {
            "input-required",
            "accepted",
            "running",
            "cancelled",
            "failed",
            "rejected",
        }
    ),
    "cancelling": frozenset({"cancelling", "cancelled", "completed", "failed"}),
}
"""The table Transitions of the specification."""
_LONG = {"seconds": "300"}


@check("execute.async", "EXE-017", "EXE-023", "EXE-024", features=[TASKS], roles=("echo",))
async def accepted(t: Talk) -> None:
    """In mode async work is accepted, in revision 0."""
    answer = await t.execute("echo", {"text": "x"}, mode="async")
    found = t.decoded("EXE-017", answer, Accepted, "<accepted/>")
    t.hold("EXE-023", found.revision == 0, "revision 0", answer)
    ok = found.state in ("accepted", "input-required")
    t.hold("EXE-024", ok, "the state accepted, or input-required", answer)


@check("execute.auto-task", "EXE-016", features=[TASKS], roles=("sleep",))
async def auto(t: Talk) -> None:
    """In mode auto, work that outlasts the inline limit goes on as a task."""
    limit = t.target.number("inline_seconds", 0)
    t.need(0 < limit <= LONGEST_WAIT, f"The inline limit is {limit} s: set it to 1 for this run.")
    wait = limit + max(t.timeout, 5)
    answer = await t.execute("sleep", {"seconds": str(limit + 1)}, within=wait)
    found = t.decoded("EXE-016", answer, Accepted, "<accepted/> at the inline limit")
    _, last = await next_event(t, found.task, *ENDS, within=wait)
    t.hold("EXE-016", last.state == "completed", "it goes on and completes", str(last.state))


@check("replay.same-task", "RPL-010", features=[TASKS], roles=("echo",))
async def same_task(t: Talk) -> None:
    """A repetition gets the same task, in revision 0, however far it is."""
    request = t.new_id()
    one = await begin(t, "echo", {"text": "x"}, request=request)
    await next_event(t, one.task, *ENDS)
    two = await begin(t, "echo", {"text": "x"}, request=request)
    same = (one.task, one.revision, one.state) == (two.task, two.revision, two.state)
    t.hold("RPL-010", same, f"{one.task}, revision 0, {one.state}", f"{two}")


@check(
    "event.story",
    "EVT-001",
    "EVT-002",
    "EVT-003",
    "EVT-004",
    "EVT-005",
    "EVT-007",
    "EVT-008",
    "TSK-001",
    "TSK-003",
    "TSK-005",
    "TSK-014",
    "ACC-005",
    features=[TASKS],
    roles=("progress",),
    ordered=True,
)
async def events(t: Talk) -> None:
    """Each change of a task has one event, in order, where it belongs and with what it brought."""
    made = await begin(t, "progress", {"steps": "3"})
    told = await story(t, made.task)
    _changes(t, told, made.state)
    more = await t.quiet(lambda s: made.task in s.xml)
    t.hold("EVT-001", more is None, "one event for each revision", more or "")
    full, bare = t.who.caller, t.who.caller.partition("/")[0]
    for message, event in told:
        whole = (event.skill, event.state, event.revision, event.created, event.updated)
        ok = None not in (*whole, event.retain_until)
        t.hold("EVT-002", ok, "all attributes of an event", message)
        t.hold("EVT-005", message.thread == made.task, "the task's id as thread", message)
        t.hold("EVT-007", message.body is None, "no body: no conversation led to it", message)
        if event.progress is not None:
            t.hold("ACC-005", bool(event.progress.text), "a text beside the fraction", message)
        if event.state in ENDS:
            t.hold("EVT-004", message.head.type == "normal", "the type normal", message)
            # What a server delivers to a client may have got the resource that it goes to.
            to = (message.head.to or "").partition("/")
            ok = to[0] == bare and (not to[2] or not t.sees_all)
            t.hold("EVT-004", ok, f"to {bare}", message)
            t.hold("EVT-002", event.result is not None, "the result", message)
        else:
            t.hold("EVT-003", message.head.type == "headline", "the type headline", message)
            t.hold("EVT-003", message.head.to == full, f"to {full}", message)
    if not any(event.progress for _, event in told):
        t.hold("ACC-005", False, "progress in some event", told[-1][0])


def _changes(t: Talk, told: Sequence[tuple[Received, Task]], state: str) -> None:
    revisions = [event.revision for _, event in told]
    t.hold("EVT-008", revisions == sorted(revisions, key=lambda r: r or 0), "order", str(revisions))
    expected = list(range(1, len(told) + 1))
    t.hold("TSK-003", revisions == expected, str(expected), str(revisions))
    t.hold("EVT-001", revisions == expected, str(expected), str(revisions))
    before = None
    for message, event in told:
        now = event.state or ""
        ok = now in _MAY_FOLLOW.get(state, frozenset())
        t.hold("TSK-001", ok, f"a state that may follow {state}", message)
        if before is not None and before.updated and event.updated:
            ok = event.updated >= before.updated
            t.hold("TSK-005", ok, f"updated not before {before.updated}", message)
        if before is not None and before.retain_until and event.retain_until:
            ok = event.retain_until >= before.retain_until
            t.hold("TSK-014", ok, f"retain-until not before {before.retain_until}", message)
        state, before = now, event


@check("event.conversation", "EVT-006", "EVT-005", features=[TASKS], roles=("echo",))
async def conversation(t: Talk) -> None:
    """Work that names a thread is told of in it, and its end in words too."""
    thread = t.new_id()
    made = await begin(t, "echo", {"text": "x"}, thread=thread)
    message, _ = await next_event(t, made.task, *ENDS)
    t.hold("EVT-005", message.thread == thread, f"the thread {thread}", message)
    t.hold("EVT-006", bool(message.body), "a body that says the same to a person", message)


@check("task.get", "TSK-002", "TSK-007", "TSK-008", features=[TASKS], roles=("echo",),
       needs=[Ability.RESOURCE])  # fmt: skip
async def whole(t: Talk) -> None:
    """The whole task is there for any resource, and stays as it ended."""
    request, context = t.new_id(), t.new_id()
    made = await begin(t, "echo", {"text": "whole"}, request=request, context=context)
    await next_event(t, made.task, *ENDS)
    answer = await get(t, made.task)
    found = t.decoded("TSK-007", answer, Task, "the task")
    ok = found.result is not None and [o.text for o in found.result.outputs] == ["whole"]
    t.hold("TSK-007", ok, "the complete result", answer)
    given = (found.id, found.request, found.context, found.state)
    ok = given == (made.task, request, context, "completed")
    t.hold("TSK-007", ok, "its attributes: id, request, context, state", answer)
    other = await get(t, made.task, t.other)
    same = t.decoded("TSK-008", other, Task, "the task for another resource")
    t.hold("TSK-008", same == found, "the same task", other)
    await t.iq("set", Cancel(id=made.task))
    again = await task(t, made.task)
    expected = f"{found.state}, revision {found.revision}"
    t.hold("TSK-002", again == found, expected, f"{again.state}, revision {again.revision}")


@check("task.unknown-same", "TSK-010", "RUL-005", "COM-019", features=[TASKS],
       roles=("echo",), needs=[Ability.STRANGER])  # fmt: skip
async def foreign(t: Talk) -> None:
    """Somebody else's task is answered as one that never was, in the same bytes."""
    made = await begin(t, "echo", {"text": "mine"})
    invented = made.task[:-1] + ("0" if made.task[-1] != "0" else "1")
    for type_, name, rest in (
        ("get", "task", ""),
        ("set", "cancel", ""),
        ("get", "events", " since='0'"),
    ):
        shapes = []
        for id_ in (made.task, invented):
            payload = f"<{name} xmlns='{NAMESPACE}' id='{id_}'{rest}/>"
            answer = await t.iq(type_, payload, sender=t.stranger)
            t.holds_error("TSK-010", answer, "item-not-found", "unknown-task")
            t.hold("RUL-005", answer.is_error, "an error to whose it is not", answer)
            t.hold("COM-019", answer.is_error, "an error: an id gives no right", answer)
            shapes.append(answer.xml.replace(id_, "ID").replace(answer.head.id or "", "IQ"))
        t.hold("TSK-010", shapes[0] == shapes[1], "the same bytes", "\n".join(shapes))
    mine = await task(t, made.task)
    t.hold("RUL-005", mine.state != "cancelled", "the task goes on", str(mine.state))


@check("tasks.filter", "TSK-015", "TSK-016", features=[TASKS], roles=("echo", "sleep"),
       needs=[Ability.STRANGER])  # fmt: skip
async def listing(t: Talk) -> None:
    """A list holds the principal's tasks that meet the filters, the last one first, in brief."""
    context = t.new_id()
    made = []
    for text in ("one", "two", "three"):
        made.append((await begin(t, "echo", {"text": text}, context=context)).task)
        await next_event(t, made[-1], *ENDS)
    running = (await begin(t, "sleep", _LONG, context=context)).task
    await next_event(t, running, "running")
    for state, wanted in (
        (None, [running, *made[::-1]]),
        ("completed", made[::-1]),
        ("running", [running]),
        ("failed", []),
    ):
        answer = await t.iq("get", Tasks(context=context, state=state))  # type: ignore[arg-type]
        found = t.decoded("TSK-015", answer, Tasks, "a list of tasks")
        ids = [one.id for one in found.tasks]
        t.hold("TSK-015", ids == wanted, f"{state or 'all'}: {wanted}", str(ids))
        brief = all(
            (one.result, one.failure, one.input, one.confirm, one.outputs)
            == (None, None, None, None, ())
            for one in found.tasks
        )
        t.hold("TSK-016", brief, "no child but <progress/>", answer)
    answer = await t.iq("get", Tasks(context=context, page=ResultSet(max=1)))
    found = t.decoded("TSK-015", answer, Tasks, "a page of tasks")
    t.hold("TSK-015", [one.id for one in found.tasks] == [running], "the last one", answer)
    answer = await t.iq("get", Tasks(context=context), sender=t.stranger)
    found = t.decoded("TSK-015", answer, Tasks, "an empty list")
    t.hold("TSK-015", not found.tasks, "nothing of another principal", answer)
    await t.iq("set", Cancel(id=running))


@check(
    "events.since",
    "EVT-014",
    "EVT-015",
    "EVT-016",
    "EVT-017",
    features=[TASKS],
    roles=("progress",),
    ordered=True,
)
async def since(t: Talk) -> None:
    """Events since a revision are all there, or told as gaps."""
    made = await begin(t, "progress", {"steps": "2"})
    told = await story(t, made.task)
    last = told[-1][1].revision or 0
    for after in (0, last - 1, last):
        answer = await t.iq("get", Events(id=made.task, since=after))
        found = t.decoded("EVT-014", answer, Events, "the events")
        t.hold("EVT-014", found.revision == last, f"the present revision, {last}", answer)
        shown = [event.revision or 0 for event in found.tasks]
        ok = shown == sorted(shown) and all(one > after for one in shown)
        t.hold("EVT-014", ok, f"events after {after}, in order", str(shown))
        gaps = [n for gap in found.gaps for n in range(gap.first, gap.last + 1)]
        covered = sorted(shown + gaps)
        wanted = list(range(after + 1, last + 1))
        t.hold("EVT-016", covered == wanted, f"each of {wanted} once", str(covered))
        ok = not set(gaps) & set(shown) and all(g.first <= g.last for g in found.gaps)
        t.hold("EVT-015", ok, "gaps from first to last of what is not kept", answer)
        if after < last:
            t.hold("EVT-017", last in shown, "the event of the last revision", answer)
        sent = {event.revision: event for _, event in told}
        ok = all(sent.get(event.revision) == event for event in found.tasks)
        t.hold("EVT-014", ok, "each event as it was sent", answer)


@check("execute.deadline-settles", "EXE-026", "EXE-027", features=[TASKS], roles=("sleep",))
async def deadline(t: Talk) -> None:
    """A task that reaches its deadline fails of its own accord."""
    at = datetime.now(UTC) + timedelta(seconds=2)
    written = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    made = await begin(t, "sleep", _LONG, deadline=written)
    message, event = await next_event(t, made.task, *ENDS, within=t.timeout + 2)
    names = [type(one).xml.local for one in (event.failure.conditions if event.failure else ())]
    for id_ in ("EXE-026", "EXE-027"):
        ok = event.state == "failed" and names == ["deadline-expired"]
        t.hold(id_, ok, "failed with <deadline-expired/>", message)


@check("rules.settle", "RUL-006", features=[TASKS], roles=("sleep",))
async def settle(t: Talk) -> None:
    """Nobody but the agent reports progress of a task or settles it."""
    made = await begin(t, "sleep", _LONG)
    await next_event(t, made.task, "running")
    before = await task(t, made.task)
    claim = (
        f"<task xmlns='{NAMESPACE}' id='{made.task}' state='completed' revision='99'>"
        "<progress fraction='1'>done</progress></task>"
    )
    answer = await t.iq("set", claim)
    t.hold("RUL-006", answer.is_error, "an error", answer)
    await t.message(None, type_="normal", extra=claim)
    after = await task(t, made.task)
    same = (after.state, after.revision) == (before.state, before.revision)
    t.hold("RUL-006", same, "the task as it was", f"{after.state}, revision {after.revision}")
    await t.iq("set", Cancel(id=made.task))


@check("event.bounce", "EVT-012", features=[TASKS], roles=("sleep",))
async def bounce(t: Talk) -> None:
    """A bounce changes no task."""
    made = await begin(t, "sleep", _LONG)
    message, _ = await next_event(t, made.task, "running")
    before = await task(t, made.task)
    id_ = message.head.id or t.new_id()
    error = (
        "<error type='cancel'><recipient-unavailable"
        " xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error>"
    )
    head = f"from='{t.who.caller}' to='{t.target.address}' type='error' id='{id_}'"
    await t.send(t.who.caller, f"<message {head}>{error}</message>")
    after = await task(t, made.task)
    same = (after.state, after.revision) == (before.state, before.revision)
    t.hold("EVT-012", same, "the task as it was", f"{after.state}, revision {after.revision}")
    await t.iq("set", Cancel(id=made.task))


@check(
    "artifact.parts",
    "ART-001",
    "ART-002",
    "ART-004",
    features=[TASKS],
    roles=("steps",),
    ordered=True,
)
async def parts(t: Talk) -> None:
    """Parts of an artifact are counted, and the result holds it whole."""
    made = await begin(t, "steps", {"steps": "3"})
    told = await story(t, made.task)
    shown = [(message, one) for message, event in told for one in event.outputs]
    t.need(bool(shown), "No part of an artifact was shown.")
    single = all(len(event.outputs) <= 1 for _, event in told)
    t.hold("ART-001", single, "a part in an event of its own", shown[0][0])
    names = {output.name for _, output in shown}
    for name in names:
        own = [output for _, output in shown if output.name == name]
        counted = [output.part for output in own]
        t.hold("ART-001", counted == list(range(len(own))), "parts from 0", str(counted))
        marks = [output.last for output in own]
        expected = [False] * (len(own) - 1) + [True]
        t.hold("ART-002", marks == expected, f"last: {expected}", str(marks))
        found = await task(t, made.task)
        outputs = found.result.outputs if found.result is not None else ()
        joined = "".join(output.text for output in own)
        ok = [o.text for o in outputs if o.name == name and o.part is None] == [joined]
        t.hold("ART-004", ok, f"{name} whole: {joined!r}", str(outputs))


@check("artifact.joined", "ART-003", features=[TASKS], roles=("steps",), ordered=True)
async def joined(t: Talk) -> None:
    """While a task runs, get shows each artifact once, with all its parts so far."""
    made = await begin(t, "steps", {"steps": "3", "seconds": "0.4"})
    _, event = await next_event(t, made.task)
    texts: list[str] = []
    while not event.outputs:
        _, event = await next_event(t, made.task)
    texts.append(event.outputs[0].text)
    answer = await get(t, made.task)
    found = t.given(answer, Task, "Asking for the task")
    t.need(found.state not in ENDS, "The task was over too soon to be seen growing.")
    names = [one.name for one in found.outputs]
    t.hold("ART-003", names == [event.outputs[0].name], "one <output/> per artifact", answer)
    told = await story(t, made.task)
    texts += [one.text for _, later in told for one in later.outputs]
    for one in found.outputs:
        wanted = "".join(texts[: (one.part or 0) + 1])
        t.hold("ART-003", one.text == wanted, f"all parts so far: {wanted!r}", answer)


@check("task.retain", "TSK-013", features=[TASKS], roles=("echo", "sleep"))
async def retain(t: Talk) -> None:
    """A task is kept with its result, and until when is said."""
    waiting = await begin(t, "sleep", _LONG)
    made = await begin(t, "echo", {"text": "kept"})
    await next_event(t, made.task, *ENDS)
    answer = await get(t, made.task)
    found = t.decoded("TSK-013", answer, Task, "the task, which has just ended")
    ok = found.retain_until is not None and found.retain_until > datetime.now(UTC)
    t.hold("TSK-013", ok, "a retain-until that is yet to come", answer)
    texts = [one.text for one in found.result.outputs] if found.result is not None else []
    t.hold("TSK-013", texts == ["kept"], "its result", answer)
    answer = await get(t, waiting.task)
    t.hold("TSK-013", not answer.is_error, "a task that has not ended", answer)
    await t.iq("set", Cancel(id=waiting.task))


@check("privacy.presence", "PRV-003", features=[TASKS], roles=("progress",),
       needs=[Ability.STRANGER])  # fmt: skip
async def nothing_told(t: Talk) -> None:
    """Nobody is told of the requests of another."""
    made = await begin(t, "progress", {"steps": "2"})
    await story(t, made.task)
    bare = t.stranger.partition("/")[0]
    told = await t.quiet(
        lambda s: (s.head.to or "").partition("/")[0] == bare and made.task in s.xml
    )
    t.hold("PRV-003", told is None, "nothing of it to a stranger", told or "")


@check("event.rate", "EVT-013", features=[TASKS], roles=("progress",), ordered=True)
async def rate(t: Talk) -> None:
    """Progress that follows faster than once a second is joined."""
    made = await begin(t, "progress", {"steps": "30"})
    told = await story(t, made.task)
    shown = [event for _, event in told if event.progress is not None]
    first, last = told[0][1].updated, told[-1][1].updated
    took = 0.0 if first is None or last is None else (last - first).total_seconds()
    most = int(took) + 3
    t.hold("EVT-013", len(shown) <= most, f"at most {most} in {took:.1f} s", str(len(shown)))


CHECKS = (
    accepted,
    auto,
    same_task,
    events,
    conversation,
    whole,
    foreign,
    listing,
    since,
    deadline,
    settle,
    bounce,
    parts,
    joined,
    retain,
    nothing_told,
    rate,
)
