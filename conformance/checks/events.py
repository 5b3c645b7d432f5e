"""Events of a task in progress: states, progress, artifacts."""

from collections.abc import Sequence

from conformance.checks.follow import (
    ENDS,
    TASKS,
    begin,
    get,
    next_event,
    story,
    task,
)
from conformance.model import Ability, check
from conformance.stanzas import Received
from conformance.talk import Talk
from xep.fluux_agent.task import Cancel, Events, Task

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
    """Each change of a task has one event, in order, in the right thread and with its payload."""
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
            # A server that delivers to a client may have added the resource.
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
    """Events of work that names a thread are in that thread, and its end has a text."""
    thread = t.new_id()
    made = await begin(t, "echo", {"text": "x"}, thread=thread)
    message, _ = await next_event(t, made.task, *ENDS)
    t.hold("EVT-005", message.thread == thread, f"the thread {thread}", message)
    t.hold("EVT-006", bool(message.body), "a body that says the same to a person", message)


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
    """Events since a revision are complete, or listed as gaps."""
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
    """Parts of an artifact are numbered, and the result contains the whole."""
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
    for seconds in ("1", "5"):  # a slow machine may see the first one only at its end
        made = await begin(t, "steps", {"steps": "3", "seconds": seconds})
        _, event = await next_event(t, made.task)
        while not event.outputs:
            _, event = await next_event(t, made.task)
        answer = await get(t, made.task)
        found = t.given(answer, Task, "Asking for the task")
        if found.state not in ENDS:
            break
    t.need(found.state not in ENDS, "The task was over too soon to be seen growing.")
    texts = [event.outputs[0].text]
    names = [one.name for one in found.outputs]
    t.hold("ART-003", names == [event.outputs[0].name], "one <output/> per artifact", answer)
    told = await story(t, made.task)
    texts += [one.text for _, later in told for one in later.outputs]
    for one in found.outputs:
        wanted = "".join(texts[: (one.part or 0) + 1])
        t.hold("ART-003", one.text == wanted, f"all parts so far: {wanted!r}", answer)


@check("privacy.presence", "PRV-003", features=[TASKS], roles=("progress",),
       needs=[Ability.STRANGER])  # fmt: skip
async def nothing_told(t: Talk) -> None:
    """Nobody gets events of another principal's requests."""
    made = await begin(t, "progress", {"steps": "2"})
    await story(t, made.task)
    bare = t.stranger.partition("/")[0]
    told = await t.quiet(
        lambda s: (s.head.to or "").partition("/")[0] == bare and made.task in s.xml
    )
    t.hold("PRV-003", told is None, "nothing of it to a stranger", told or "")


@check("event.rate", "EVT-013", features=[TASKS], roles=("progress",), ordered=True)
async def rate(t: Talk) -> None:
    """Progress that is reported more often than once a second is combined."""
    made = await begin(t, "progress", {"steps": "30"})
    told = await story(t, made.task)
    shown = [event for _, event in told if event.progress is not None]
    first, last = told[0][1].updated, told[-1][1].updated
    took = 0.0 if first is None or last is None else (last - first).total_seconds()
    most = int(took) + 3
    t.hold("EVT-013", len(shown) <= most, f"at most {most} in {took:.1f} s", str(len(shown)))


CHECKS = (
    events,
    conversation,
    since,
    bounce,
    parts,
    joined,
    nothing_told,
    rate,
)
