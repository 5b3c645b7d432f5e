"""The skills about plans: those that agents and programs call, and those that plans use."""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from component.features.plans.service import RUN, Plans, UnknownPlanError
from component.kernel.triggers import work_asked_in
from component.plans.advance import advance
from component.plans.checks import faults
from component.plans.document import Plan
from component.plans.run import ASK, CHANGE, START, judge, run_plan
from component.plans.wording import state_text
from component.skills.context import Context
from component.skills.declare import own_skill
from component.skills.errors import SkillError
from component.skills.outputs import JSON, Output, SkillResult
from component.skills.skill import Skill
from component.store.storage import Storage
from xep.jid import JID
from xep.stanza_error import StanzaError

_RUN_TIMEOUT_S: Final = 3600.0


class Started(msgspec.Struct, frozen=True):
    """What starting a plan returns: its id, and whether the person is asked first."""

    plan: str
    asks: bool


def plan_skills(plans: Callable[[], Plans]) -> tuple[Skill, ...]:
    """Return the skills that everybody may call. `plans` gives the plans when one is called."""

    @own_skill(
        name="plan_start",
        title="Start a plan",
        description="Start a plan: a goal that takes several steps, some side by side, or that"
        " takes long. It goes on by itself, asks the person where it must, and reports into this"
        " conversation. Steps refer to outputs of earlier steps by expressions such as"
        " {fetch.text}. Do not use it for what one or two tools do.",
        open_world=False,
        destructive=False,
        durable=True,
        tags=("plan",),
        undo="/plan cancel ID",
    )
    async def plan_start(context: Context, plan: Plan) -> SkillResult:
        found = faults(plan)
        if found:
            raise SkillError("\n".join(found))
        if context.room:
            raise SkillError("Plans are started in a direct conversation, not in a room.")
        judged = await judge(context, plan, {}, context.taints)
        if judged.faults:
            raise SkillError("\n".join(judged.faults))
        work = work_asked_in(context)
        if not work.agent:
            work = msgspec.structs.replace(work, agent=JID.parse(context.address).local or "")

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

    @own_skill(
        name="plan_show",
        title="Show a plan",
        description="Return a plan and how its steps stand; without an id the only one that has not"
        " ended.",
        open_world=False,
        read_only=True,
        taint="web",
        tags=("plan",),
    )
    async def plan_show(context: Context, plan: str = "") -> SkillResult:
        try:
            stored = await plans().find(JID.parse(context.principal), plan)
        except UnknownPlanError as error:
            raise SkillError(str(error)) from None
        row = stored.row
        advised = advance(row.plan, {id_: one.as_attempt for id_, one in row.steps.items()})
        reasons = {id_: one.reason for id_, one in row.steps.items()}
        text = (
            f"Plan {row.task}, revision {row.revision}, {stored.state}:\n"
            f"{state_text(row.plan, advised.situations, reasons)}"
        )
        taints = {*row.taints, *(taint for one in row.steps.values() for taint in one.taints)}
        outputs = (Output(text), Output(_json(row.plan), JSON, "plan"))
        return SkillResult(outputs, taints=tuple(sorted(taints)))

    @own_skill(
        name="plan_revise",
        title="Revise a plan",
        description="Replace a plan that has not ended by a revision of it. Steps that are done or"
        " running stay as they are if the revision has them unchanged. The person is asked, and"
        " sees the difference.",
        open_world=False,
        destructive=False,
        idempotent=True,
        tags=("plan",),
    )
    async def plan_revise(context: Context, plan: str, revision: int, document: Plan) -> str:
        found = faults(document)
        if found:
            raise SkillError("\n".join(found))
        judged = await judge(context, document, {}, context.taints)
        if judged.faults:
            raise SkillError("\n".join(judged.faults))
        try:
            stored = await plans().find(JID.parse(context.principal), plan)
        except UnknownPlanError as error:
            raise SkillError(str(error)) from None
        by = context.agent or context.principal
        taints = {*stored.row.taints, *context.taints}
        if not await plans().propose(stored, revision, document, by, sorted(taints)):
            raise SkillError(
                f"The plan {stored.row.task} has the revision {stored.row.revision}, or has ended:"
                " read it again, and revise that."
            )
        return "The revision was proposed."

    return (plan_start, plan_show, plan_revise)


def internal_skills(storage: Storage) -> tuple[Skill, ...]:
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
    async def plan_run(context: Context, plan: Plan) -> SkillResult:
        """Run a plan."""
        return await run_plan(context, storage, plan, {})

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
    def plan_change(
        title: str, changes: Annotated[str, Meta(title="Changes")], digest: str
    ) -> str:
        """Confirm a revision of a plan."""
        raise AssertionError("It is only confirmed.")

    @own_skill(
        name=ASK,
        title="Question of a plan",
        hidden=True,
        durable=True,
        destructive=False,
        open_world=False,
    )
    async def plan_ask(
        context: Context, plan: str, question: str, show: str = "", choices: tuple[str, ...] = ()
    ) -> SkillResult:
        """Ask a person."""
        text = f"{question}\n\n{show}".strip() if show else question
        answer: dict[str, Any] = {"type": "string", "title": "Answer"}
        if choices:
            answer["enum"] = list(choices)
        schema = {"type": "object", "properties": {"answer": answer}, "required": ["answer"]}
        said = await context.ask(f"{plan}: {text}", schema)
        return SkillResult((Output(str(said["answer"])),))

    return (plan_run, plan, plan_change, plan_ask)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


_ = partial
