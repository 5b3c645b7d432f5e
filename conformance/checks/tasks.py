"""Tasks: acceptance, states, get, list."""

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
from conformance.post import Where
from conformance.stanzas import Received
from conformance.talk import Talk
from xep.fluux_agent import NAMESPACE as AGENT
from xep.fluux_agent.execute import Accepted
from xep.fluux_agent.task import NAMESPACE, Cancel, Task, Tasks
from xep.result_sets import ResultSet

PUBSUB = "http://jabber.org/protocol/pubsub"
NODE = f"{AGENT}#tasks"
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
    """In mode auto, work that exceeds the inline limit continues as a task."""
    limit = t.target.number("inline_seconds", 0)
    t.need(0 < limit <= LONGEST_WAIT, f"The inline limit is {limit} s: set it to 1 for this run.")
    wait = limit + max(t.timeout, 5)
    answer = await t.execute("sleep", {"seconds": str(limit + 1)}, within=wait)
    found = t.decoded("EXE-016", answer, Accepted, "<accepted/> at the inline limit")
    _, last = await next_event(t, found.task, *ENDS, within=wait)
    t.hold("EXE-016", last.state == "completed", "it goes on and completes", str(last.state))


@check("replay.same-task", "RPL-010", features=[TASKS], roles=("echo",))
async def same_task(t: Talk) -> None:
    """A repetition gets the same task, in revision 0, whatever its progress."""
    request = t.new_id()
    one = await begin(t, "echo", {"text": "x"}, request=request)
    await next_event(t, one.task, *ENDS)
    two = await begin(t, "echo", {"text": "x"}, request=request)
    same = (one.task, one.revision, one.state) == (two.task, two.revision, two.state)
    t.hold("RPL-010", same, f"{one.task}, revision 0, {one.state}", f"{two}")


@check("task.get", "TSK-002", "TSK-007", "TSK-008", features=[TASKS], roles=("echo",),
       needs=[Ability.RESOURCE])  # fmt: skip
async def whole(t: Talk) -> None:
    """The whole task is available to any resource, and does not change after its end."""
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
    """Another principal's task is answered like one that does not exist, in the same bytes."""
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
    """A list contains the principal's tasks that match the filters, the last one first,
    in brief.
    """
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
        t.hold("TSK-016", brief, "no child but <progress/> and <plan/>", answer)
    answer = await t.iq("get", Tasks(context=context, page=ResultSet(max=1)))
    found = t.decoded("TSK-015", answer, Tasks, "a page of tasks")
    t.hold("TSK-015", [one.id for one in found.tasks] == [running], "the last one", answer)
    answer = await t.iq("get", Tasks(context=context), sender=t.stranger)
    found = t.decoded("TSK-015", answer, Tasks, "an empty list")
    t.hold("TSK-015", not found.tasks, "nothing of another principal", answer)
    await t.iq("set", Cancel(id=running))


@check("tasks.index", "COM-028", features=[TASKS], roles=("echo",))
async def by_index(t: Talk) -> None:
    """A page that is requested by its number is that page, or is refused."""
    context = t.new_id()
    made = []
    for text in ("one", "two"):
        made.append((await begin(t, "echo", {"text": text}, context=context)).task)
        await next_event(t, made[-1], *ENDS)
    answer = await t.iq("get", Tasks(context=context, page=ResultSet(max=1, index=1)))
    if answer.is_error:
        t.holds_error("COM-028", answer, "feature-not-implemented", None)
        return
    found = t.decoded("COM-028", answer, Tasks, "a page of tasks")
    t.hold("COM-028", [one.id for one in found.tasks] == made[:1], "the second one", answer)


@check("execute.deadline-settles", "EXE-026", "EXE-027", features=[TASKS], roles=("sleep",))
async def deadline(t: Talk) -> None:
    """A task that reaches its deadline fails by itself."""
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
    """Only the agent reports progress of a task or settles it."""
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


@check("task.retain", "TSK-013", features=[TASKS], roles=("echo", "sleep"))
async def retain(t: Talk) -> None:
    """A task is retained with its result, until an announced time."""
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


@check("pubsub.tasks-node", "TSK-022", "TSK-023", features=[TASKS, PUBSUB], roles=("echo",),
       needs=[Ability.STRANGER])  # fmt: skip
async def node(t: Talk) -> None:
    """The principal's own tasks are items of a PubSub node, in brief."""
    made = await begin(t, "echo", {"text": "x"})
    await next_event(t, made.task, *ENDS)
    payload = f"<pubsub xmlns='{PUBSUB}'><items node='{NODE}'/></pubsub>"
    answer = await t.iq("get", payload)
    t.need(not answer.is_error, f"There is no node {NODE}: {answer.xml[:300]}")
    found = {item.get("id"): list(item) for item in answer.tree.iter(f"{{{PUBSUB}}}item")}
    t.hold("TSK-022", made.task in found, f"an item of the id {made.task}", answer)
    same = all([each.get("id") for each in inside] == [id_] for id_, inside in found.items())
    t.hold("TSK-022", same, "the <task/> of that id in each item", answer)
    inside = {child.tag for each in found.values() for one in each for child in one}
    known = {f"{{{NAMESPACE}}}progress", f"{{{AGENT}#plan}}plan"}
    t.hold("TSK-022", inside <= known, "no child but <progress/> and <plan/>", answer)
    other = await t.iq("get", payload, sender=t.stranger)
    t.hold("TSK-023", made.task not in other.xml, "nothing of another principal", other)


def _item_of(id_: str, revision: int) -> Where:
    """Whether a message notifies of this revision of a task as an item."""
    path = f"{{{PUBSUB}#event}}event/{{{PUBSUB}#event}}items/{{{PUBSUB}#event}}item"

    def where(stanza: Received) -> bool:
        return stanza.head.kind == "message" and any(
            (item.get("id"), one.get("revision")) == (id_, str(revision))
            for item in stanza.tree.findall(path)
            for one in item
        )

    return where


@check("pubsub.tasks-change", "TSK-024", features=[TASKS, PUBSUB], roles=("echo",))
async def node_change(t: Talk) -> None:
    """Subscribers are notified of each revision of their tasks."""
    bare = t.who.caller.partition("/")[0]
    subscription = f"node='{NODE}' jid='{bare}'"
    answer = await t.iq("set", f"<pubsub xmlns='{PUBSUB}'><subscribe {subscription}/></pubsub>")
    t.need(not answer.is_error, f"Subscribing did not work: {answer.xml[:300]}")
    made = await begin(t, "echo", {"text": "x"})
    for _, event in await story(t, made.task):
        told = await t.quiet(_item_of(made.task, event.revision or 0), t.timeout)
        t.hold("TSK-024", told is not None, f"an item of revision {event.revision}", "none came")
    await t.iq("set", f"<pubsub xmlns='{PUBSUB}'><unsubscribe {subscription}/></pubsub>")


CHECKS = (
    accepted,
    auto,
    same_task,
    whole,
    foreign,
    listing,
    by_index,
    deadline,
    settle,
    retain,
    node,
    node_change,
)
