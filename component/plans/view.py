"""What expressions, callers and people see of a plan that runs."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from component.plans.advance import Advance, Situation, advance
from component.plans.checks import PARAMS
from component.plans.document import Plan, Step, digest_of
from component.plans.rows import PlanRow, StepRow
from component.plans.templates import TemplateError, fill, roots_in
from component.plans.wording import name_of
from component.policy.taint import Taint
from component.skills.outputs import Output, SkillResult
from xep.binding import encode
from xep.fluux_agent.plan import PlanStep, PlanSteps

_LONGEST_TITLE: Final = 200
_LONGEST_REPORT: Final = 30_000
_STATES: Final[Mapping[Situation, Any]] = {
    "waiting": "waiting",
    "running": "running",
    "done": "done",
    "skipped": "skipped",
    "lost": "failed",
    "failed": "failed",
    "in doubt": "unknown",
}


class PlanView:
    """A plan and its steps, as they are now."""

    def __init__(self, row: PlanRow, steps: Mapping[str, StepRow]) -> None:
        self._row = row
        self._steps = steps
        self._plan: Plan = row.plan
        self._params: dict[str, Any] = msgspec.json.decode(row.params)

    def advised(self) -> Advance:
        """Return what is to be done next."""
        return advance(self._plan, {id_: one.as_attempt for id_, one in self._steps.items()})

    def data(self) -> dict[str, Any]:
        """Return what the expressions of the plan see."""
        found: dict[str, Any] = {PARAMS: self._params}
        for step in self._plan.steps:
            if (output := self._output_at(step)) is not None:
                found[step.id] = output
        for group in self._plan.groups:
            found[group] = [
                found[step.id] for step in self._plan.members(group) if step.id in found
            ]
        return found

    def _row_at(self, step: Step) -> StepRow | None:
        """Return the row that has the output of a step: its own, or that of the step that ran in
        its place.
        """
        one = self._steps.get(step.id)
        if one is not None and one.state != "done" and step.otherwise:
            return self._row_at(self._plan.step(step.otherwise)) or one
        return one

    def _output_at(self, step: Step) -> Any:
        one = self._row_at(step)
        if one is None or one.output is None:
            return None
        return msgspec.json.decode(one.output)

    def taints_at(self, name: str) -> tuple[Taint, ...]:
        """Return the taints of what an expression sees at the name of a step or a group."""
        steps = self._plan.members(name) or [one for one in self._plan.steps if one.id == name]
        found = [self._row_at(step) for step in steps]
        return tuple(taint for one in found if one is not None for taint in one.taints)

    def fraction(self) -> float:
        """Return how much is over, from 0 to 1."""
        fallbacks = self._plan.fallbacks
        situations = self.advised().situations
        counted = [each for id_, each in situations.items() if id_ not in fallbacks]
        over = sum(each in ("done", "skipped", "lost") for each in counted)
        return over / max(1, len(counted))

    def progress_text(self) -> str:
        """Return what runs."""
        running = [
            name_of(step)
            for step in self._plan.steps
            if (one := self._steps.get(step.id)) is not None and one.state == "running"
        ]
        return ", ".join(running)[:500] or self._plan.title

    def xml(self) -> str:
        """Return the XML of the steps, as callers see them."""
        situations = self.advised().situations
        return encode(
            PlanSteps(
                title=self._plan.title,
                revision=self._row.revision,
                digest=digest_of(self._plan),
                paused=self._row.paused,
                steps=tuple(
                    PlanStep(
                        id=step.id,
                        title=" ".join(name_of(step).split())[:_LONGEST_TITLE] or step.id,
                        kind=step.kind,
                        state=_STATES[situations.get(step.id, "waiting")],
                        task=None if (one := self._steps.get(step.id)) is None else one.task,
                        after=" ".join(step.after) or None,
                        group=step.group or None,
                        otherwise=step.otherwise or None,
                    )
                    for step in self._plan.steps
                ),
            )
        )

    def report(self, advised: Advance) -> SkillResult:
        """Return the result of a plan that is completed."""
        data = self.data()
        used = set[str]()
        if self._plan.result:
            used = set(roots_in(self._plan.result))
            try:
                text = fill(self._plan.result, data)
            except TemplateError as error:
                text = f"The report cannot be made: {error}."
            text = text if isinstance(text, str) else msgspec.json.encode(text).decode()
        else:
            text, used = self._last_outputs()
        missing = [
            f"Without: {name_of(step)}{_because(self._steps.get(step.id))}"
            for step in self._plan.steps
            if step.id not in self._plan.fallbacks
            and advised.situations[step.id] in ("skipped", "lost")
            and self._plan.groups.get(step.group) != "first"
        ]
        report = "\n".join((text.strip() or "It is done.", *missing))
        taints = {*self._row.taints, *(t for name in used for t in self.taints_at(name))}
        return SkillResult((Output(report[:_LONGEST_REPORT]),), taints=tuple(sorted(taints)))

    def _last_outputs(self) -> tuple[str, set[str]]:
        """Return the outputs of the steps that no other step comes after, and their names."""
        before = {name for step in self._plan.steps for name in step.after}
        last = [
            step
            for step in self._plan.steps
            if step.id not in before
            and step.group not in before
            and step.id not in self._plan.fallbacks
        ]
        found = [(step, output["text"]) for step in last if (output := self._output_at(step))]
        texts = [text for _, text in found]
        if len(found) > 1:
            texts = [f"{name_of(step)}:\n{text}" for step, text in found]
        return "\n\n".join(texts), {step.id for step in last}


def _because(one: StepRow | None) -> str:
    return f" ({one.reason.rstrip('.')})" if one is not None and one.reason else ""
