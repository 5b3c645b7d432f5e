"""Plans: their documents, how their steps stand, revisions, and approvals."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from conformance.checks.confirmation import CONFIRM, asks_about, decision
from conformance.checks.follow import ENDS, TASKS, event_of, next_event, outcome, task
from conformance.model import check
from conformance.skills_map import ROLES
from conformance.stanzas import Received
from conformance.talk import Talk
from xep.fluux_agent import NAMESPACE as AGENT
from xep.fluux_agent.confirm import Confirm
from xep.fluux_agent.errors import InvalidParam
from xep.fluux_agent.execute import Result
from xep.fluux_agent.plan import NAMESPACE as PLAN
from xep.fluux_agent.plan import PlanStep, PlanSteps
from xep.fluux_agent.task import NAMESPACE, Cancel, Events, Task, Tasks
from xep.pubsub import NAMESPACE as PUBSUB

_LONG: Final = 300
_LARGEST: Final = 16_384
_OVER: Final = ("cancelling", "cancelled")


def step(t: Talk, role: str, id_: str, value: object, **more: Any) -> dict[str, Any]:
    """Return a step that calls the skill for a role; `value` is that of its first parameter."""
    skill = t.skill(role)
    params = {**skill.fixed, skill.param(ROLES[role][0]): value}
    return {"id": id_, "kind": "call", "skill": skill.name, "params": params, **more}


def plan(*steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return the document of a plan."""
    return {"title": "A plan of the kit", "goal": "Follow its steps", "steps": steps, **more}


def _started(result: Result | None) -> str | None:
    """Return the id of the task of a plan that was started; None if none was."""
    if result is None or result.is_error:
        return None
    for output in result.outputs:
        if output.type == "application/json":
            with suppress(msgspec.DecodeError):
                return msgspec.json.decode(output.text, type=dict[str, Any]).get("plan")
    return None


async def start(t: Talk, document: dict[str, Any]) -> str:
    """Start a plan, and return the id of its task; raises BlockedError if it is refused."""
    ended = await outcome(t, await t.execute("=plan_start", values={"plan": document}))
    id_ = _started(ended.result)
    t.need(id_ is not None, f"The plan was not started: {ended.message.xml[:500]}")
    return id_ or ""


async def revise(t: Talk, id_: str, revision: int, document: dict[str, Any]) -> Result:
    """Execute `plan_revise`, and return its result; raises BlockedError without one."""
    values = {"plan": id_, "revision": revision, "document": document}
    ended = await outcome(t, await t.execute("=plan_revise", values=values))
    t.need(ended.result is not None, f"There was no result: {ended.message.xml[:500]}")
    assert ended.result is not None
    return ended.result


def _steps(found: Task) -> dict[str, PlanStep]:
    return {} if found.plan is None else {one.id: one for one in found.plan.steps}


async def _until(t: Talk, id_: str, **states: str) -> Task:
    """Return the next event of a plan in which these steps are in these states."""

    def wanted(stanza: Received) -> bool:
        found = event_of(stanza, id_)
        steps = {} if found is None else _steps(found)
        return bool(steps) and all(
            name in steps and steps[name].state == state for name, state in states.items()
        )

    found = event_of(await t.next(wanted), id_)
    assert found is not None
    return found


async def _until_revision(t: Talk, id_: str, revision: int) -> PlanSteps:
    """Return the next event of a plan that has this revision."""

    def wanted(stanza: Received) -> bool:
        found = event_of(stanza, id_)
        return found is not None and found.plan is not None and found.plan.revision == revision

    found = event_of(await t.next(wanted), id_)
    assert found is not None
    assert found.plan is not None
    return found.plan


@check("plan.offered", "PLN-001", "PLN-002", features=[PLAN])
async def offered(t: Talk) -> None:
    """What plans need is served as well."""
    t.hold("PLN-001", t.target.serves("task"), TASKS, ", ".join(sorted(t.target.features)))
    for name in ("plan_start", "plan_revise"):
        t.hold("PLN-002", name in t.target.offered, f"the skill {name}", "it is not offered")


@check(
    "plan.steps",
    "PLN-003",
    "PLN-010",
    "PLN-011",
    "PLN-012",
    "PLN-013",
    "PLN-014",
    "PLN-015",
    "PLN-016",
    "PLN-018",
    "PLN-019",
    features=[PLAN],
    roles=("echo",),
    ordered=True,
)
async def in_order(t: Talk) -> None:
    """A plan is a task that says in each of its states how the steps stand."""
    document = plan(
        step(t, "echo", "one", "x"),
        step(t, "echo", "two", "{one.text} y", after=["one"], title="Say y"),
        result="{two.text}",
    )
    ended = await outcome(t, await t.execute("=plan_start", values={"plan": document}))
    id_ = _started(ended.result)
    t.hold("PLN-010", id_ is not None, "the id of the task, as JSON", ended.message)
    t.need(id_ is not None, "Without the id there is nothing to follow.")
    events: list[Task] = []
    while not events or events[-1].state not in ENDS:
        message, event = await next_event(t, id_ or "")
        type_ = "normal" if event.state in ENDS else "headline"
        t.hold("PLN-012", message.head.type == type_, f"an event of the type {type_}", message)
        events.append(event)
    _look_at(t, events)
    found = await task(t, id_ or "")
    t.hold("PLN-011", found.state == events[-1].state, "the task of the caller", str(found))
    texts = [] if found.result is None else [one.text for one in found.result.outputs]
    t.need(texts == ["x y"], f"The plan has another result than 'x y': {found}")
    t.hold("PLN-014", found.plan == events[-1].plan, "the same as in the event", str(found.plan))
    kept = t.given(await t.iq("get", Events(id=found.id, since=0)), Events, "Asking for events")
    stored = {one.revision: one.plan for one in kept.tasks}
    same = all(one.plan == stored.get(one.revision, one.plan) for one in events)
    t.hold("PLN-013", same, "the plan in each event, as it was sent", str(kept)[:1000])
    listed = t.given(await t.iq("get", Tasks()), Tasks, "Asking for the list")
    mine = [one.plan for one in listed.tasks if one.id == id_]
    t.hold("PLN-013", mine == [found.plan], "the plan in the list", str(listed)[:1000])
    for one in _steps(found).values():
        of_step = await task(t, one.task or "")
        t.hold("PLN-019", of_step.state == "completed", f"the task of {one.id}", str(of_step))


def _look_at(t: Talk, events: Sequence[Task]) -> None:
    """Check what the events of a plan of two steps say."""
    begun = [one.plan is not None for one in events]
    whole = any(begun) and all(begun[begun.index(True) :])
    t.hold("PLN-013", whole, "a <plan/> in each event, once there was one", str(events)[:1000])
    for event in events:
        if event.plan is None:
            continue
        steps = _steps(event)
        t.hold("PLN-015", list(steps) == ["one", "two"], "one, two", ", ".join(steps))
        t.hold("PLN-016", event.plan.revision == 1, "revision 1", str(event.plan.revision))
        for one in event.plan.steps:
            named = one.state != "running" or one.task is not None
            t.hold("PLN-018", named, "the task of the running step", str(one))
        states = [one.state for one in event.plan.steps]
        early = states[1:] != ["waiting"] and states[:1] != ["done"]
        t.hold("PLN-003", not early, "two begins after one", ", ".join(states))


@check("plan.item", "PLN-013", features=[PLAN, PUBSUB], roles=("echo",))
async def item(t: Talk) -> None:
    """The node of tasks has the steps of a plan."""
    id_ = await start(t, plan(step(t, "echo", "one", "x")))
    await next_event(t, id_, *ENDS)
    found = await task(t, id_)
    node = f"<pubsub xmlns='{PUBSUB}'><items node='{AGENT}#tasks'/></pubsub>"
    answer = await t.iq("get", node)
    t.need(not answer.is_error, f"There is no node of tasks: {answer.xml[:300]}")
    shown = [
        one.get("id")
        for element in answer.tree.iter(f"{{{NAMESPACE}}}task")
        if element.get("id") == id_
        for one in element.iter(f"{{{PLAN}}}step")
    ]
    t.hold("PLN-013", shown == list(_steps(found)), "the steps of the plan", answer)


@check(
    "plan.refused",
    "PLN-005",
    "PLN-006",
    "PLN-007",
    "PLN-008",
    "PLN-009",
    features=[PLAN],
    roles=("count", "echo", "hidden"),
)
async def refused(t: Talk) -> None:
    """A document with a fault is refused with a reason, and nothing of it runs."""
    key = t.new_id()
    first = step(t, "count", "one", key)
    many = [step(t, "echo", f"s{number}", "x") for number in range(20)]
    unreadable = {**first, "title": "x" * 3_000}
    text = "x" * (_LARGEST // 5)
    large = [step(t, "echo", f"s{number}", text) for number in range(6)]
    for id_, document in (
        ("PLN-005", plan()),
        ("PLN-005", plan(first, *many)),
        ("PLN-005", plan({**first, "kind": "other"})),
        ("PLN-005", plan(unreadable)),
        ("PLN-005", plan(first, unheard_of=1)),
        ("PLN-006", plan(first, *large)),
        ("PLN-007", plan(first, first)),
        ("PLN-007", plan(first, step(t, "echo", "two", "x", after=["three"]))),
        ("PLN-007", plan(first, step(t, "echo", "two", "x", group="nowhere"))),
        ("PLN-007", plan(first, step(t, "echo", "two", "{three.text}"), many[0])),
        (
            "PLN-007",
            plan(
                first,
                step(t, "echo", "two", "x", after=["three"]),
                step(t, "echo", "three", "x", after=["two"]),
            ),
        ),
    ):
        await _is_refused(t, id_, document)
    texts = []
    for name in (t.skill("hidden").name, "nowhere.at_all"):
        answer = await _is_refused(
            t, "PLN-008", plan(first, {"id": "two", "kind": "call", "skill": name})
        )
        texts.append(answer.xml.replace(name, "SKILL").replace(answer.head.id or "", "IQ"))
    same = _without_figures(texts[0]) == _without_figures(texts[1])
    t.hold("PLN-008", same, "the same answer for a skill that does not exist", "\n".join(texts))
    answer = await t.execute("count", {"key": key})
    t.hold("PLN-009", t.text(answer, "Counting") == "1", "that nothing has run", answer)


def _without_figures(xml: str) -> str:
    """Return the XML of a result without what it cost."""
    before, mark, _ = xml.partition("<usage ")
    return before + mark


async def _is_refused(t: Talk, id_: str, document: dict[str, Any]) -> Received:
    answer = await t.execute("=plan_start", values={"plan": document})
    if answer.is_error:
        named = [one.name for one in answer.error.application if isinstance(one, InvalidParam)]
        t.hold(id_, True, "a refusal")
        ok = named == ["plan"] or (id_ == "PLN-006" and answer.agent_conditions == ["too-big"])
        t.hold("PLN-009", ok, "an <invalid-param/> that names plan, or <too-big/>", answer)
        return answer
    ended = await outcome(t, answer)
    t.hold(id_, ended.result is None or ended.result.is_error, "a refusal", ended.message)
    result = ended.result
    reason = "" if result is None else "".join(one.text for one in result.outputs)
    t.hold("PLN-009", bool(reason), "what is wrong with the plan", ended.message)
    return ended.message


@check(
    "plan.revise",
    "PLN-016",
    "PLN-017",
    "PLN-022",
    "PLN-023",
    "PLN-024",
    features=[PLAN],
    roles=("echo", "sleep"),
)
async def revised(t: Talk) -> None:
    """Another document takes the place of one only if it was made from that."""
    one = step(t, "echo", "one", "x")
    id_ = await start(t, plan(one, step(t, "sleep", "two", _LONG, after=["one"])))
    before = await _until(t, id_, one="done", two="running")
    other = plan(one, step(t, "sleep", "three", _LONG, after=["one"]))
    result = await revise(t, id_, 7, other)
    t.hold("PLN-022", result.is_error, "a refusal of another revision", str(result))
    now = await task(t, id_)
    t.hold("PLN-022", now.plan == before.plan, "the plan as it was", str(now.plan))
    result = await revise(t, id_, 1, other)
    t.need(not result.is_error, f"The revision was refused: {result}")
    after = await _until_revision(t, id_, 2)
    t.hold("PLN-016", after.revision == 2, "revision 2", str(after))
    assert before.plan is not None
    t.hold("PLN-017", after.digest != before.plan.digest, "another digest", after.digest)
    kept = {each.id: each for each in after.steps}.get("one")
    t.hold("PLN-023", kept == _steps(before)["one"], "the step that is done", str(kept))
    lost = await task(t, _steps(before)["two"].task or "")
    t.hold("PLN-024", lost.state in _OVER, "cancelled", str(lost.state))
    result = await revise(t, id_, 1, plan(one))
    t.hold("PLN-022", result.is_error, "a refusal of the revision before", str(result))
    await t.iq("set", Cancel(id=id_))


@check("plan.cancel", "PLN-020", "PLN-021", features=[PLAN], roles=("sleep",))
async def cancelled(t: Talk) -> None:
    """With a plan its steps are cancelled."""
    id_ = await start(t, plan(step(t, "sleep", "one", _LONG)))
    running = await _until(t, id_, one="running")
    await t.iq("set", Cancel(id=id_))
    _, last = await next_event(t, id_, *ENDS)
    states = [one.state for one in _steps(last).values()]
    t.hold("PLN-021", "running" not in states and bool(states), "no step that runs", str(last))
    of_step = await task(t, _steps(running)["one"].task or "")
    t.hold("PLN-020", of_step.state in _OVER, "a cancelled task", str(of_step))


async def _question(t: Talk, id_: str) -> Confirm | None:
    """Return the next question to a person about a plan or one of its steps; None if the plan ends
    before.
    """
    tasks = {id_}

    def wanted(stanza: Received) -> bool:
        return event_of(stanza, id_) is not None or any(asks_about(one)(stanza) for one in tasks)

    while True:
        stanza = await t.next(wanted)
        event = event_of(stanza, id_)
        if event is None:
            return t.given(stanza, Confirm, "The question")
        if event.state in ENDS:
            return None
        tasks.update(one.task for one in _steps(event).values() if one.task is not None)


async def _end(t: Talk, id_: str, asked: Confirm | None) -> None:
    """Deny what was asked, and cancel the plan."""
    if asked is not None:
        await t.iq("set", decision(asked, "deny"))
    await t.iq("set", Cancel(id=id_))


@check("plan.approval", "PLN-025", "PLN-026", features=[PLAN, CONFIRM], roles=("echo", "erase"))
async def approval(t: Talk) -> None:
    """A step is confirmed as any other request is, and not by an approval of something else."""
    one = step(t, "echo", "one", "the archive")
    id_ = await start(t, plan(one, step(t, "erase", "two", "the archive", after=["one"])))
    asked = await _question(t, id_)
    found = _steps(await task(t, id_)).get("two")
    early = asked is None or (found is not None and found.state == "done")
    t.hold("PLN-025", not early, "a question before anything is erased", str(found))
    if asked is not None:
        await t.iq("set", decision(asked, "deny"))
        _, last = await next_event(t, id_, *ENDS)
        state = _steps(last)["two"].state
        t.hold("PLN-025", state != "done", "that nothing was erased", state)

    id_ = await start(t, plan(one, step(t, "erase", "two", "{one.text}", after=["one"])))
    asked = await _question(t, id_)
    if asked is not None and asked.task == id_:  # the parameter has no value yet
        await t.iq("set", decision(asked, "approve"))
        asked = await _question(t, id_)
    found = _steps(await task(t, id_)).get("two")
    ok = (
        asked is not None
        and found is not None
        and (found.state, found.task) == ("running", asked.task)
    )
    t.hold("PLN-026", ok, "a question about the step", f"{found}, {asked}")
    await _end(t, id_, asked)


@check(
    "plan.approval-revised",
    "PLN-027",
    features=[PLAN, CONFIRM],
    roles=("sleep", "erase"),
)
async def approval_of_revision(t: Talk) -> None:
    """What a revision adds is confirmed as if it were new."""
    one = step(t, "sleep", "one", _LONG)
    id_ = await start(t, plan(one))
    await _until(t, id_, one="running")
    result = await revise(t, id_, 1, plan(one, step(t, "erase", "two", "the archive")))
    t.need(not result.is_error, f"The revision was refused: {result}")
    asked = await _question(t, id_)
    found = _steps(await task(t, id_)).get("two")
    early = asked is None or (found is not None and found.state == "done")
    t.hold("PLN-027", not early, "a question before anything is erased", str(found))
    await _end(t, id_, asked)


CHECKS = (
    offered,
    in_order,
    item,
    refused,
    revised,
    cancelled,
    approval,
    approval_of_revision,
)
