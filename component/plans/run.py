"""Runs a plan as a durable task whose steps are its child tasks.

Each run of the task is one cycle: it reads the plan and how its child tasks stand, lets `advance`
decide, records that, starts what begins, and leaves until one of the child tasks has ended or
somebody changes the plan. So it has no state of its own, and is the same after a crash, on another
instance, and after a revision.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NoReturn

import msgspec

from component import DEFAULT_AGENT
from component.plans import rows
from component.plans.advance import Advance, Situation
from component.plans.checks import PARAMS, faults, templated
from component.plans.document import Plan, PlanError, Step, digest_of, plan_of
from component.plans.judging import judge, texts_of
from component.plans.revisions import revision_prompt
from component.plans.rows import PlanRow, Proposal, StepRow
from component.plans.templates import TemplateError, bound, fill, roots_in
from component.plans.view import PlanView
from component.plans.wording import (
    difference,
    estimate_text,
    name_of,
    state_text,
    steps_text,
)
from component.policy.flows import TRUSTED
from component.policy.taint import Taint
from component.skills.context import Context
from component.skills.errors import CapabilityMissing, Denied, SkillError, StepFailed
from component.skills.operations import (
    ChildResult,
    ChildTerms,
    Commit,
    Confirmed,
    Judged,
    ModelFailed,
    ReportProgress,
)
from component.skills.outputs import SkillResult
from component.store import notifications
from component.store.notifications import Notification
from component.store.storage import Storage
from xep.jid import JID

START: Final = "plan"
"""The internal skill that asks for the confirmation of a plan."""
CHANGE: Final = "plan_change"
"""The internal skill that asks for the confirmation of a revision."""
ASK: Final = "plan.ask"
"""The internal skill that a step of the kind `ask` runs."""
WORK: Final = "agent.work"
"""The internal skill that a step of the kind `agent` runs."""

_NO_SKILLS: Final = ("",)
_BUDGET: Final = "budget-exhausted"
_UNKNOWN: Final = "outcome-unknown"
_DENIED: Final = "denied"
_MOST_TOKENS: Final = 4096
_TRIES: Final = 2
_MOST_REVISIONS: Final = 2
"""How often a plan is revised by a model because it cannot go on."""
_LONGEST_OUTPUT: Final = 200_000
_LONGEST_TITLE: Final = 200
_LONGEST_REPORT: Final = 30_000
_MOST_HELD: Final = 100
"""How many messages wait for a person who does not want them now."""


class UnknownOutcome(msgspec.Struct, frozen=True):
    """The answer to the question what is to be done about a step with an unknown outcome."""

    what: Literal["it is done", "do it again", "skip it", "stop the plan"]


_DECISIONS: Final[Mapping[str, Literal["done", "again", "skip", "stop"]]] = {
    "it is done": "done",
    "do it again": "again",
    "skip it": "skip",
    "stop the plan": "stop",
}


class MoreBudget(msgspec.Struct, frozen=True):
    """The answer to the question how much more a plan may spend."""

    more_usd: float


class PlanPorts(msgspec.Struct, frozen=True):
    """What plans use of the service: the database, and what is called when a notification was
    recorded there.
    """

    storage: Storage
    notified: Callable[[], None] = lambda: None


async def run_plan(
    context: Context, ports: PlanPorts, plan: Plan, params: Mapping[str, Any], *, shows: bool
) -> SkillResult:
    """Run a plan in the task of a durable skill, and return its report. With `shows`, the principal
    gets its steps in a message when it begins, unless a question shows them.

    Raises SkillError, with what was achieved, if the plan cannot be finished; Denied if the
    principal does not want it.
    """
    task = context.task
    row = None
    if context.is_stored:
        row = await ports.storage.read(lambda db: rows.load(db, task))
    if row is None:
        try:
            plan = plan_of(bound(msgspec.to_builtins(plan), PARAMS, params))
        except (PlanError, TemplateError) as error:
            raise SkillError(f"The plan cannot take these parameters: {error}") from None
        row = PlanRow(
            task=task,
            revision=1,
            plan=plan,
            params=msgspec.json.encode(params).decode(),
            taints=tuple(context.taints),
            budget=plan.budget_usd,
        )
    return await _PlanRun(context, ports, row, shows=shows).run()


class _PlanRun:
    """One cycle of a plan."""

    def __init__(self, context: Context, ports: PlanPorts, row: PlanRow, *, shows: bool) -> None:
        self._context = context
        self._notified = ports.notified
        self._tasks = context.child_tasks
        self._row = row
        self._shows = shows
        self._params: dict[str, Any] = msgspec.json.decode(row.params)
        self._steps = dict(row.steps)
        self._changed: dict[str, StepRow] = {}
        """Steps that are not written yet."""
        self._removed: list[str] = []
        self._spent = 0.0

    @property
    def plan(self) -> Plan:
        return self._row.plan

    async def run(self) -> SkillResult:
        await self._settle_children()
        if self._row.approval == "unknown":
            await self._approve()
        if self._row.wish is not None:
            await self._follow(self._row.wish)
        if self._row.proposed is not None:
            await self._revise(self._row.proposed)
        while True:
            advised = self._view.advised()
            if advised.verdict == "completed":
                await self._record(self._row)
                return self._view.report(advised)
            if self._row.paused is None:
                if await self._is_extended(advised):
                    continue
                if advised.ask:
                    await self._ask_about(advised.ask[0])
                    continue
                if advised.verdict == "blocked":
                    await self._cancel(advised)
                    await self._replan(advised)
                    continue
                if await self._start(advised):
                    continue
            await self._wait()

    @property
    def _view(self) -> PlanView:
        return PlanView(self._row, self._steps)

    # Child tasks.

    async def _settle_children(self) -> None:
        """Note how the child tasks have ended that ran when the plan was last read."""
        running = [one for one in self._steps.values() if one.state == "running" and one.task]
        found = await self._tasks.present([one.task for one in running if one.task])
        self._spent = found.usd
        for one, result in zip(running, found.results, strict=True):
            if result.state in ("completed", "failed", "rejected", "cancelled", "unknown"):
                self._note(await self._ended(one, result))

    async def _ended(self, row: StepRow, result: ChildResult) -> StepRow:
        step = self._step(row.step)
        if result.success:
            output = _output_of(result)
            taints = self._taints_of(step, result)
            return msgspec.structs.replace(row, state="done", output=output, taints=taints)
        reason = (result.text if result.is_error else result.reason) or f"It was {result.state}."
        state: Literal["failed", "unknown", "cancelled"] = "failed"
        if result.condition == _UNKNOWN:
            state = "unknown"
        elif result.state == "cancelled":
            state, reason = "cancelled", "It was cancelled."
        repeatable = state == "failed" and result.condition != _DENIED
        if repeatable:
            repeatable = await self._is_repeatable(step)
        return msgspec.structs.replace(
            row,
            state=state,
            reason=reason[:1000],
            condition=result.condition,
            repeatable=repeatable,
            taints=self._taints_of(step, result),
        )

    def _step(self, id_: str) -> Step:
        try:
            return self.plan.step(id_)
        except KeyError:  # a revision has removed it
            return Step(id=id_, kind="ask", question="?")

    def _taints_of(self, step: Step, result: ChildResult) -> tuple[Taint, ...]:
        if step.kind == "ask":  # other people may write what they want
            return ("peer",) if step.people else ()
        return result.taints

    async def _is_repeatable(self, step: Step) -> bool:
        if step.kind == "call":
            return (await self._judge_skill(step.skill)).repeatable
        if step.kind == "agent" and step.skills:
            judged = [await self._judge_skill(name) for name in step.skills]
            return all(one.repeatable for one in judged)
        return False

    async def _judge_skill(self, skill: str) -> Judged:
        # It has run: whether it may be started for a plan of strangers is not asked any more.
        return await self._tasks.judge(skill, None, ChildTerms(approved=True))

    def _note(self, row: StepRow) -> None:
        self._steps[row.step] = self._changed[row.step] = row

    # Approval.

    async def _approve(self) -> None:
        """Ask for the confirmation of the plan, if it needs one."""
        row = self._row
        found = faults(self.plan, has_params=bool(self._params))
        judged = await judge(self._context, self.plan, self._params, row.taints)
        if found or judged.faults:
            raise SkillError("\n".join((*found, *judged.faults)))
        approval: rows.Approval = "none"
        if judged.asks:
            await self._record(row)  # so that others see it while the question is open
            values = {
                "title": self.plan.title,
                "steps": steps_text(self.plan),
                "estimate": estimate_text(judged.seconds, judged.usd, row.budget),
                "digest": digest_of(self.plan),
            }
            misled = not TRUSTED.issuperset(row.taints)
            decided = await self._tasks.confirm(START, values, self._question_key, misled=misled)
            if not decided.approved:
                await self._denied(decided.reason)
                return
            approval = _approval(decided)
        estimate = estimate_text(judged.seconds, judged.usd, row.budget)
        notice = None if judged.asks or not self._shows else self._beginning(estimate)
        await self._record(msgspec.structs.replace(row, approval=approval), notice=notice)

    def _beginning(self, estimate: str) -> Notification:
        """Return the message that shows a plan which nobody has to confirm."""
        lines = [f"I have begun this plan: *{self.plan.title}*", steps_text(self.plan), estimate]
        lines.append("/plan shows how it stands, /plan pause and /plan cancel stop it.")
        return self._notice("begins", "\n".join(filter(None, lines)))

    def _notice(self, key: str, text: str) -> Notification:
        """Return a message to the principal, the same for a key."""
        return Notification(
            id=hashlib.sha256(f"{self._context.task} {key}".encode()).hexdigest()[:32],
            agent=JID.parse(self._context.address),
            person=JID.parse(self._context.principal),
            title=self.plan.title,
            text=text,
        )

    async def _denied(self, reason: str) -> None:
        """Revise a plan that was denied for a reason, or end. Raises Denied."""
        if not reason or not self._may_revise(_DENIED):
            raise Denied(reason or "The plan was declined.")
        proposal = await self._model_proposes(
            f"The person has declined the plan: {reason}", _DENIED
        )
        if proposal is None:
            raise Denied(reason)
        await self._adopt(proposal, approval="unknown")
        await self._approve()

    async def _revise(self, proposal: Proposal) -> None:
        """Ask for the confirmation of a revision that somebody proposes, and adopt it."""
        row = self._row
        if row.approval == "unknown" or proposal.by == self._context.principal:
            # What it replaces was never approved, or the principal knows the difference.
            await self._adopt(proposal, approval="unknown")
            await self._approve()
            return
        again = self._again(proposal.plan)
        values = {
            "title": row.plan.title,
            "changes": difference(row.plan, proposal.plan, again) or "Nothing.",
            "digest": digest_of(proposal.plan),
        }
        await self._record(row)
        misled = not TRUSTED.issuperset(proposal.taints)
        decided = await self._tasks.confirm(CHANGE, values, self._question_key, misled=misled)
        if decided.approved:
            # Who signs the difference has not seen what others have approved before.
            approval = "others" if row.approval == "others" else _approval(decided)
            await self._adopt(proposal, approval=approval)
            return
        await self._record(msgspec.structs.replace(row, proposed=None))
        self._refused_revision = decided.reason or "The person has declined the change."

    async def _follow(self, wish: str) -> None:
        """Let a model propose what the principal wants to be changed."""
        why = f"The person wants this to be changed: {wish}"
        proposal = await self._model_proposes(why, "", self._view.advised().situations)
        row = msgspec.structs.replace(self._row, wish=None)
        if proposal is None:
            text = f"I could not change the plan {self.plan.title!r} as you wish."
            await self._record(row, notice=self._notice(f"{row.changes} {wish}", text))
            return
        await self._record(msgspec.structs.replace(row, proposed=proposal))

    _refused_revision: str = ""

    @property
    def _question_key(self) -> str:
        row = self._row
        plan = row.plan if row.proposed is None else row.proposed.plan
        return f"{row.revision} {row.changes} {len(row.failures)} {digest_of(plan)[:16]}"

    def _again(self, plan: Plan) -> list[str]:
        """Return the steps of a revision that have ended and begin again."""
        return [
            step.id
            for step in plan.steps
            if (one := self._steps.get(step.id)) is not None and not self._is_kept(one, step)
        ]

    def _is_kept(self, row: StepRow, step: Step) -> bool:
        """Whether a revision that has this step keeps what was done of it."""
        if row.state == "unknown" and row.decision in ("", "stop"):
            return True
        if self._step(row.step) != step:
            return False
        if row.state == "skipped":
            # Of a group that has failed, the others were cancelled, and are needed again.
            return self.plan.groups.get(step.group) == "first"
        return row.state in ("done", "running") or row.decision in ("done", "skip")

    async def _adopt(self, proposal: Proposal, approval: rows.Approval) -> None:
        """Make a proposal the plan: the same task goes on with its next revision."""
        kept = {step.id: step for step in proposal.plan.steps}
        gone = [
            one
            for one in self._steps.values()
            if one.step not in kept or not self._is_kept(one, kept[one.step])
        ]
        cancel = tuple(one.task for one in gone if one.state == "running" and one.task)
        for one in gone:
            del self._steps[one.step]
            self._changed.pop(one.step, None)
            self._removed.append(one.step)
        row = msgspec.structs.replace(
            self._row,
            plan=proposal.plan,
            revision=self._row.revision + 1,
            taints=proposal.taints,
            approval=approval,
            proposed=None,
            budget=_more(self._row.budget, proposal.plan.budget_usd),
        )
        await self._record(row, cancel=cancel, said=f"Revision {row.revision} of the plan")

    # Revisions by a model.

    def _may_revise(self, kind: str) -> bool:
        done = self._row.failures
        return len(done) < _MOST_REVISIONS and kind not in done

    async def _replan(self, advised: Advance) -> None:
        """Let a model revise a plan that cannot go on. Raises SkillError if it does not."""
        step = self._steps[advised.because]
        kind = step.condition or step.state
        stopped = step.decision == "stop"
        if stopped or not self._may_revise(kind):
            await self._fail(advised)
        why = f"The step {step.step} cannot be done: {step.reason}"
        if self._refused_revision:
            why += f"\nThe person has declined a change: {self._refused_revision}"
        proposal = await self._model_proposes(why, kind, advised.situations)
        if proposal is None:
            await self._fail(advised)
        else:
            await self._record(msgspec.structs.replace(self._row, proposed=proposal))
            await self._revise(proposal)

    async def _model_proposes(
        self, why: str, kind: str, situations: Mapping[str, Situation] | None = None
    ) -> Proposal | None:
        """Return the revision that a model proposes, and count it; None if it makes none."""
        row = self._row
        taints = {*row.taints, *(taint for one in self._steps.values() for taint in one.taints)}
        problem = ""
        for _ in range(_TRIES):
            prompt = revision_prompt(self.plan, why, situations or {}, self._steps, problem)
            key = hashlib.sha256(prompt.encode()).hexdigest()[:16]
            try:
                said = await self._context.llm(prompt, Plan, max_tokens=_MOST_TOKENS, key=key)
                plan = plan_of(msgspec.to_builtins(said))
            except (CapabilityMissing, ModelFailed, StepFailed):
                return None
            except PlanError as error:
                problem = str(error)
                continue
            found = faults(plan, has_params=bool(self._params))
            if not found:
                judged = await judge(self._context, plan, self._params, tuple(sorted(taints)))
                found = list(judged.faults)
            if not found and plan == self.plan:
                found = ["It is the same plan: change what cannot be done."]
            if not found:
                if kind:
                    row = msgspec.structs.replace(row, failures=(*row.failures, kind))
                self._row = row
                return Proposal(plan, self._context.agent, tuple(sorted(taints)))
            problem = "\n".join(found)
        return None

    async def _fail(self, advised: Advance) -> NoReturn:
        """End a plan that cannot go on. Raises SkillError with what was achieved."""
        step = self._steps[advised.because]
        name = name_of(self._step(step.step))
        await self._stop(f"{name}: {step.reason or 'it failed.'}", advised)

    async def _stop(self, why: str, advised: Advance) -> NoReturn:
        """End a plan that is not finished. Raises SkillError with what was achieved."""
        await self._record(self._row)
        reasons = {id_: one.reason for id_, one in self._steps.items()}
        states = state_text(self.plan, advised.situations, reasons)
        raise SkillError(f"I could not finish {self.plan.title!r}. {why}\n{states}")

    # Questions.

    async def _ask_about(self, id_: str) -> None:
        """Ask what is to be done about a step with an unknown outcome."""
        one = self._steps[id_]
        question = (
            f"I was interrupted during a step of the plan {self.plan.title!r}, and do not know"
            f" whether it was done: {name_of(self._step(id_))}. Please look, and tell me what I am"
            " to do."
        )
        await self._record(self._row)
        try:
            answer = await self._context.ask(question, UnknownOutcome, key=one.key)
            decision = _DECISIONS[answer.what]
        except Denied:
            decision = "stop"
        self._note(msgspec.structs.replace(one, decision=decision))

    async def _is_extended(self, advised: Advance) -> bool:
        """Ask for a larger budget if this one does not suffice, and let the steps begin again that
        failed for that; return whether there is one.
        """
        row = self._row
        budget = row.budget
        short = [one for one in self._steps.values() if one.condition == _BUDGET]
        is_spent = budget is not None and self._spent >= budget and bool(advised.start)
        if budget is None or not (short or is_spent):
            return False
        if row.question is None:  # the text identifies the question, so it must not change
            done = sum(one.state == "done" for one in self._steps.values())
            question = (
                f"The plan {self.plan.title!r} has spent {self._spent:.2f} of {budget:.2f} USD, and"
                f" {done} of {len(self.plan.steps)} steps are done. How many US dollars more may"
                " it spend? Answer 0 to stop it."
            )
            row = msgspec.structs.replace(row, question=question)
        await self._record(row)
        try:
            answer = await self._context.ask(row.question or "", MoreBudget, key=f"{budget}")
            more = max(0.0, answer.more_usd)
        except Denied:
            more = 0.0
        if not more:
            await self._stop(f"Its budget of {budget:.2f} USD is spent.", advised)
        for one in short:
            self._note(
                msgspec.structs.replace(
                    one, state="unknown", decision="again", condition="", reason=_SHORT
                )
            )
        budget = max(budget, self._spent) + more
        await self._record(msgspec.structs.replace(row, budget=budget, question=None))
        return True

    # Going on.

    def _attempt(self, step: str, number: int) -> StepRow:
        """Return the next attempt of a step. One that lacked only a budget continues."""
        key, before = f"{step} {self._row.revision} {number}", self._steps.get(step)
        if before is None or before.reason != _SHORT or before.task is None:
            return StepRow(step, key, attempt=number)
        origin = before.origin or before.key
        return StepRow(step, key, attempt=number, origin=origin, resumes=before.task)

    async def _start(self, advised: Advance) -> bool:
        """Start the steps that begin now, and cancel those that are not needed any more. Returns
        whether the plan may go on at once: one could not be started, or was cancelled.
        """
        started = [
            one for one in self._steps.values() if one.state == "running" and one.task is None
        ]
        started += [self._attempt(id_, number) for id_, number in advised.start]
        for one in started:
            self._note(one)
        await self._cancel(advised)
        has_failed = False
        for one in started:
            try:
                task = await self._start_step(self._step(one.step), one)
                self._note(msgspec.structs.replace(one, task=task))
            except (SkillError, TemplateError) as error:
                reason = str(error)[:1000]
                self._note(msgspec.structs.replace(one, state="failed", reason=reason))
                has_failed = True
        return has_failed or bool(advised.cancel)

    async def _cancel(self, advised: Advance) -> None:
        """Cancel the tasks that are not needed any more, and record everything that has changed."""
        cancelled = [self._steps[id_] for id_ in advised.cancel]
        for one in cancelled:
            self._note(msgspec.structs.replace(one, state="skipped", reason="It is not needed."))
        if self._changed or self._removed:
            cancel = tuple(one.task for one in cancelled if one.task)
            # What callers see follows when the steps that begin have their tasks.
            await self._record(self._row, cancel=cancel, is_shown=False)

    async def _start_step(self, step: Step, row: StepRow) -> str:
        """Start the task of a step. Raises SkillError and TemplateError."""
        view, key = self._view, row.key
        data = view.data()
        used = roots_in(templated(step))
        taints = {*self._row.taints, *(t for root in used for t in view.taints_at(root))}
        is_literal = not used - {PARAMS}
        approved = self._row.approval == "principal"
        misled = not TRUSTED.issuperset(self._row.taints)
        said = None if misled and not approved else texts_of(self.plan, self._params)
        terms = ChildTerms(
            taints=tuple(sorted(taints)),
            said=said,
            approved=approved and is_literal and step.kind == "call",
            budget_usd=self._row.budget,
            resumes=row.resumes,
        )
        match step.kind:
            case "call":
                return await self._tasks.start(
                    step.skill, fill(dict(step.params), data), key, terms
                )
            case "ask":
                values: dict[str, Any] = {
                    "plan": self.plan.title,
                    "question": fill(step.question, data),
                    "show": fill(step.show, data),
                    "choices": fill(list(step.choices), data),
                    "people": list(step.people),
                }
                terms = msgspec.structs.replace(terms, is_internal=True)
                return await self._tasks.start(ASK, values, key, terms)
        agent = self._context.agent or JID.parse(self._context.address).local or DEFAULT_AGENT
        turn = hashlib.sha256(f"{self._row.task} {row.origin or key}".encode()).hexdigest()[:32]
        label = "".join(one for one in step.role.casefold() if one.isascii() and one.isalnum())
        work: dict[str, Any] = {
            "turn": turn,
            "agent": f"{agent}/{label[:24] or 'helper'}-{turn[:8]}",
            "text": fill(step.instructions, data),
            "role": step.role or "helper",
            "skills": step.skills or _NO_SKILLS,
            "tier": step.tier,
            "taints": tuple(sorted(taints)),
            "said": said or (),
            "written": said or (),
        }
        terms = msgspec.structs.replace(terms, is_internal=True)
        return await self._tasks.start(WORK, {"work": work}, key, terms)

    async def _wait(self) -> NoReturn:
        """Leave until a child task has ended, or somebody changes the plan."""
        row = self._row
        tasks = [one.task for one in self._steps.values() if one.state == "running" and one.task]
        changed = list(self._changed.values())
        view = self._view
        report = ReportProgress(view.fraction(), view.progress_text())

        def is_pending(database: Any) -> bool:
            rows.put_steps(database, row.task, changed)
            return rows.is_unchanged(database, row)

        await self._tasks.wait_for_any(tasks, row.event, is_pending, view.xml(), report)

    async def _record(
        self,
        row: PlanRow,
        *,
        cancel: tuple[str, ...] = (),
        said: str = "",
        notice: Notification | None = None,
        is_shown: bool = True,
    ) -> None:
        """Write the plan, its changed steps, what callers see of it, and a report, in one commit.
        If somebody else has changed the plan, leave, and begin again with that.
        """
        removed, changed = list(self._removed), list(self._changed.values())
        self._row = row

        def op(database: Any) -> bool:
            if not rows.put(database, row):
                return False
            rows.delete_steps(database, row.task, removed)
            rows.put_steps(database, row.task, changed)
            if notice is not None:
                notifications.record(database, notice, _MOST_HELD)
            return True

        view = self._view
        report = ReportProgress(view.fraction(), said) if said else None
        shown = view.xml() if is_shown else None
        record = Commit(shown, report, cancel, self.plan.deadline)
        if not await self._tasks.record(op, record):
            await self._tasks.wait_for_any((), row.event, lambda _: False)
        self._removed.clear()
        self._changed.clear()
        if notice is not None:
            self._notified()


_SHORT: Final = "Its budget did not suffice."


def _approval(decided: Confirmed) -> rows.Approval:
    return "principal" if decided.by_principal else "others"


def _more(budget: float | None, wanted: float | None) -> float | None:
    """Return the budget of a revision: what was allowed already, or more if it says so."""
    return wanted if budget is None or wanted is None else max(budget, wanted)


def _output_of(result: ChildResult) -> str:
    """Return the JSON of an output, as expressions see it: `text`, and `data` if it is JSON."""
    # The text is for people, if there is one beside the JSON.
    text = (result.text.removesuffix(result.json).strip() or result.text)[:_LONGEST_OUTPUT]
    found: dict[str, Any] = {"text": text}
    for one in (result.json, text):
        try:
            found["data"] = msgspec.json.decode(one)
            break
        except msgspec.DecodeError:
            continue
    return msgspec.json.encode(found).decode()
