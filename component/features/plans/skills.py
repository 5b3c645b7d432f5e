"""The skills about plans: those that agents and programs call, and those that plans use."""

from collections.abc import Callable
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from component.features.plans.service import RUN, Plans, StoredPlan, UnknownPlanError
from component.kernel.triggers import work_asked_in
from component.plans.checks import faults
from component.plans.document import Plan
from component.plans.judging import judge
from component.plans.rows import Proposal
from component.plans.run import ASK, CHANGE, START, PlanPorts, run_plan
from component.skills.context import Context
from component.skills.declare import own_skill
from component.skills.errors import SkillError
from component.skills.operations import ChildTerms
from component.skills.outputs import JSON, Output, SkillResult
from component.skills.skill import Skill
from component.skills.spec import OPTIONAL
from xep.jid import JID
from xep.stanza_error import StanzaError

_RUN_TIMEOUT_S: Final = 3600.0


class Started(msgspec.Struct, frozen=True):
    """What starting a plan returns: its id, and whether the person is asked first."""

    plan: str
    asks: bool


def plan_skills(plans: Callable[[], Plans]) -> tuple[Skill, ...]:
    """Return the skills that everybody may call. `plans` gives the plans when one is called."""
    return _start(plans), _show(plans), _revise(plans), _pause(plans)


def _start(plans: Callable[[], Plans]) -> Skill:
    @own_skill(
        title="Start a plan",
        description="Start a plan: a goal that takes several steps, some side by side, or that"
        " takes long. It goes on by itself, asks the person where it must, and reports into this"
        " conversation. Steps refer to outputs of earlier steps by expressions such as"
        " {fetch.text}. Do not use it for what one or two tools do.",
        open_world=False,
        durable=True,
        tags=("plan", OPTIONAL),
        undo="/plan cancel ID",
    )
    async def plan_start(context: Context, plan: Plan) -> SkillResult:
        await _check(context, plan)
        if context.room:
            raise SkillError("Plans are started in a direct conversation, not in a room.")
        if context.delegation is not None:
            raise SkillError("No plan is started for another agent: start it yourself.")
        judged = await judge(context, plan, {}, context.taints)
        work = work_asked_in(context)
        if not work.agent:
            work = msgspec.structs.replace(work, agent=JID.parse(context.address).local or "")
        if context.client:  # it gets the events
            work = msgspec.structs.replace(work, requester=JID.parse(context.client))

        async def start(key: str) -> str:
            try:
                return await plans().start(plan, key, work)
            except StanzaError as error:
                raise SkillError(error.text or f"It was refused: {error.condition}.") from None

        task = await context.step("start", start, str, repeatable=True)
        if judged.asks:
            said = f"The person is asked whether the plan {task} may begin, and sees all its steps."
        else:
            said = f"The plan {task} has begun. The person gets its steps, and later its report."
        started = Started(task, judged.asks)
        return SkillResult((Output(said), Output(_json(started), JSON, "plan")))

    return plan_start


def _show(plans: Callable[[], Plans]) -> Skill:
    @own_skill(
        title="Show a plan",
        description="Return a plan and how its steps stand; without an id the only one that has not"
        " ended.",
        open_world=False,
        read_only=True,
        taint="web",
        tags=("plan", OPTIONAL),
    )
    async def plan_show(context: Context, plan: str = "") -> SkillResult:
        stored = await _found(plans(), context, plan)
        row = stored.row
        text = f"Plan {row.task}, revision {row.revision}, {stored.state}:\n{stored.states}"
        outputs = (Output(text), Output(_json(row.plan), JSON, "plan"))
        return SkillResult(outputs, taints=stored.taints)

    return plan_show


def _revise(plans: Callable[[], Plans]) -> Skill:
    @own_skill(
        title="Revise a plan",
        description="Replace a plan that has not ended by a revision of it. Steps that are done or"
        " running stay as they are if the revision has them unchanged. The person is asked, and"
        " sees the difference.",
        open_world=False,
        destructive=False,
        idempotent=True,
        tags=("plan", OPTIONAL),
    )
    async def plan_revise(context: Context, plan: str, revision: int, document: Plan) -> str:
        await _check(context, document)
        stored = await _found(plans(), context, plan)
        taints = tuple(sorted({*stored.taints, *context.taints}))
        by = context.principal if context.client else context.agent
        proposal = Proposal(document, by, taints)
        if not await plans().propose(stored, revision, proposal):
            raise SkillError(
                f"The plan {stored.row.task} has the revision {stored.row.revision}, or has ended:"
                " read it again, and revise that."
            )
        return "The revision was proposed."

    return plan_revise


def _pause(plans: Callable[[], Plans]) -> Skill:
    @own_skill(
        title="Pause a plan",
        description="Pause a plan, so that no step begins, or let it go on.",
        open_world=False,
        destructive=False,
        idempotent=True,
        tags=("plan", OPTIONAL),
    )
    async def plan_pause(
        context: Context, plan: str = "", reason: str = "", *, resume: bool = False
    ) -> str:
        stored = await _found(plans(), context, plan)
        why = None if resume else reason or f"{context.agent or context.principal} has paused it."
        changed = await plans().pause(stored, why)
        if not changed:
            return "Nothing has changed: it has ended, or was so already."
        return "It goes on." if resume else "It is paused."

    return plan_pause


async def _check(context: Context, plan: Plan) -> None:
    """Raise SkillError with the faults of a plan."""
    found = faults(plan) or list((await judge(context, plan, {}, context.taints)).faults)
    if found:
        raise SkillError("\n".join(found))


async def _found(plans: Plans, context: Context, plan: str) -> StoredPlan:
    try:
        return await plans.find(JID.parse(context.principal), plan)
    except UnknownPlanError as error:
        raise SkillError(str(error)) from None


def internal_skills(ports: PlanPorts) -> tuple[Skill, ...]:
    """Return the skills that only plans use."""

    @own_skill(
        name=RUN,
        title="Plan",
        hidden=True,
        durable=True,
        destructive=False,
        capabilities=("llm",),
        timeout=_RUN_TIMEOUT_S,
    )
    async def plan_run(context: Context, plan: Plan, *, shows: bool = True) -> SkillResult:
        """Run a plan."""
        return await run_plan(context, ports, plan, {}, shows=shows)

    @own_skill(
        name=START,
        title="Plan",
        question="May I carry out this plan: {title} {steps}?[ {estimate}]",
        hidden=True,
        destructive=True,
    )
    def plan(
        title: str,
        steps: Annotated[str, Meta(title="Steps")],
        digest: str,
        estimate: str = "",
    ) -> str:
        """Confirm a plan."""
        raise AssertionError("It is only confirmed.")

    @own_skill(
        name=CHANGE,
        title="Change of a plan",
        question="May I change the plan {title} {changes}?",
        hidden=True,
        destructive=True,
    )
    def plan_change(title: str, changes: Annotated[str, Meta(title="Changes")], digest: str) -> str:
        """Confirm a revision of a plan."""
        raise AssertionError("It is only confirmed.")

    return (plan_run, plan, plan_change, _ask(), _ask_person())


_ASK_PERSON: Final = "plan.ask_person"
"""The internal skill that asks somebody else than the principal of the plan."""


def _ask() -> Skill:
    @own_skill(
        name=ASK,
        title="Question of a plan",
        hidden=True,
        durable=True,
        destructive=False,
        open_world=False,
    )
    async def plan_ask(
        context: Context,
        plan: str,
        question: str,
        show: str = "",
        choices: tuple[str, ...] = (),
        people: tuple[str, ...] = (),
    ) -> SkillResult:
        """Ask the principal, or each of these people."""
        text = f"{question}\n\n{show}".strip()
        if not people:
            return SkillResult((Output(await _answer(context, f"{plan}: {text}", choices)),))
        values = {"question": f"{context.principal} asks: {text}", "choices": choices}
        tasks = [
            await context.child_tasks.start(
                _ASK_PERSON, values, person, ChildTerms(is_internal=True, principal=person)
            )
            for person in people
        ]
        results = await context.wait(tasks, on_failure="return")
        answers = [
            {"person": person, "answer": result.text if result.success else None}
            for person, result in zip(people, results, strict=True)
        ]
        if not any(result.success for result in results):
            raise SkillError("Nobody has answered.")
        lines = [f"{one['person']}: {one['answer'] or 'no answer'}" for one in answers]
        return SkillResult((Output("\n".join(lines)), Output(_json(answers), JSON, "answers")))

    return plan_ask


def _ask_person() -> Skill:
    @own_skill(
        name=_ASK_PERSON,
        title="Question of somebody else",
        hidden=True,
        durable=True,
        destructive=False,
        open_world=False,
    )
    async def plan_ask_person(
        context: Context, question: str, choices: tuple[str, ...] = ()
    ) -> SkillResult:
        """Ask the person whose task it is."""
        return SkillResult((Output(await _answer(context, question, choices)),))

    return plan_ask_person


async def _answer(context: Context, question: str, choices: tuple[str, ...]) -> str:
    answer: dict[str, Any] = {"type": "string", "title": "Answer"}
    if choices:
        answer["enum"] = list(choices)
    schema = {"type": "object", "properties": {"answer": answer}, "required": ["answer"]}
    return str((await context.ask(question, schema))["answer"])


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
