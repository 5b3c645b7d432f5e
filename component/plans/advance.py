"""Decides what a plan does next: a pure function of its document and of how its steps stand.

Each step is in one of these situations:

- *waiting*: it has not begun;
- *running*: its task runs, or waits for a person;
- *done*: it has an output, of its own or of the step that ran in its place;
- *skipped*: the plan goes on without it;
- *lost*: it failed, and its group goes on without it;
- *failed*: it failed, nothing replaces it, and the plan cannot go on as it is;
- *in doubt*: its outcome is unknown, and a person has to say what is to be done.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, TypeAlias

import msgspec

from component.plans.document import Plan, Step

AttemptState: TypeAlias = Literal["running", "done", "failed", "unknown", "cancelled", "skipped"]
Decision: TypeAlias = Literal["", "done", "again", "skip", "stop"]
Situation: TypeAlias = Literal[
    "waiting", "running", "done", "skipped", "lost", "failed", "in doubt"
]
Verdict: TypeAlias = Literal["completed", "blocked"]
"""`blocked`: the plan cannot go on as it is. It needs a revision, or fails."""


class Attempt(msgspec.Struct, frozen=True):
    """How the last attempt of a step stands.

    Attributes:
        number: the number of this attempt, from 1.
        repeatable: whether another attempt repeats no effect.
        decision: what a person has decided about an unknown outcome.
    """

    state: AttemptState
    number: int = 1
    repeatable: bool = False
    decision: Decision = ""


class Advance(msgspec.Struct, frozen=True):
    """What a plan does next.

    Attributes:
        start: the steps that begin now, each with the number of the attempt.
        cancel: the steps whose tasks are not needed any more.
        ask: the steps about whose unknown outcome a person is asked.
        situations: how each step stands.
        verdict: whether the plan has ended, or cannot go on; None while it goes on.
        because: the step that blocks it, or that a person has stopped it at.
    """

    start: tuple[tuple[str, int], ...] = ()
    cancel: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    situations: Mapping[str, Situation] = {}
    verdict: Verdict | None = None
    because: str = ""


def advance(plan: Plan, attempts: Mapping[str, Attempt]) -> Advance:
    """Return what a plan does next. `attempts` has the steps that have begun, by id."""
    return _Advance(plan, attempts).result()


class _Advance:
    def __init__(self, plan: Plan, attempts: Mapping[str, Attempt]) -> None:
        self._plan = plan
        self._attempts = attempts
        self._replaces = {one.otherwise: one.id for one in plan.steps if one.otherwise}
        """The steps that run in place of others, and these."""
        self._again: dict[str, int] = {}
        """The number of the next attempt of steps that are tried again."""
        self._situations: dict[str, Situation] = {}
        for step in plan.steps:
            self._situation(step)

    def result(self) -> Advance:
        situations = self._situations
        over = {name for name in self._plan.groups if self._is_over(name)}
        cancel = tuple(
            id_
            for step in self._plan.steps
            if step.group in over and situations[step.id] == "running"
            for id_ in self._running(step)
        )
        for step in self._plan.steps:
            if step.group in over and situations[step.id] in ("waiting", "running"):
                situations[step.id] = "skipped"
        blocked = self._blocked()
        if blocked is not None:
            return Advance(cancel=cancel, situations=situations, verdict="blocked", because=blocked)
        ask = tuple(id_ for id_, each in situations.items() if each == "in doubt")
        start = tuple(
            (step.id, self._again.get(step.id, 1))
            for step in self._plan.steps
            if self._may_begin(step)
        )
        counted = [each for id_, each in situations.items() if id_ not in self._replaces]
        pending = any(each in ("waiting", "running", "in doubt") for each in counted)
        verdict: Verdict | None = None if pending or start or cancel else "completed"
        return Advance(start, cancel, ask, situations, verdict)

    def _situation(self, step: Step) -> Situation:
        known = self._situations.get(step.id)
        if known is None:
            known = self._situations[step.id] = self._own(step)
            if known == "failed":
                known = self._situations[step.id] = self._failed(step)
        return known

    def _own(self, step: Step) -> Situation:
        """Return how a step stands by itself."""
        attempt = self._attempts.get(step.id)
        if attempt is None:
            return "waiting"
        match attempt.state, attempt.decision:
            case ("running" | "done" | "skipped") as state, _:
                return state
            case "unknown", "":
                return "in doubt"
            case "unknown", ("done" | "again" | "skip") as decision:
                if decision == "again":
                    self._again[step.id] = attempt.number + 1
                    return "waiting"
                return "done" if decision == "done" else "skipped"
        tried = attempt.state == "failed" and attempt.repeatable
        if tried and attempt.number <= step.retries:
            self._again[step.id] = attempt.number + 1
            return "waiting"
        return "failed"

    def _failed(self, step: Step) -> Situation:
        """Return how a step stands that has failed for good."""
        attempt = self._attempts[step.id]
        if attempt.decision == "stop":
            return "failed"
        if step.otherwise:
            other = self._plan.step(step.otherwise)
            stands = self._situation(other)
            if stands == "waiting":  # it begins now
                return "running"
            if stands != "failed":
                return stands
        if step.optional:
            return "skipped"
        if self._plan.groups.get(step.group, "all") != "all":
            return "lost"
        return "failed"

    def _running(self, step: Step) -> Iterator[str]:
        """Yield the step whose task runs: this one, or the one that runs in its place."""
        attempt = self._attempts.get(step.id)
        if attempt is not None and attempt.state == "running":
            yield step.id
        elif step.otherwise:
            yield from self._running(self._plan.step(step.otherwise))

    def _is_over(self, group: str) -> bool:
        """Whether a group needs no more of its steps."""
        found = [self._situations[step.id] for step in self._plan.members(group)]
        policy = self._plan.groups[group]
        return (policy == "first" and "done" in found) or (policy == "all" and "failed" in found)

    def _blocked(self) -> str | None:
        """Return the step that blocks the plan; None if it goes on."""
        for step in self._plan.steps:
            if step.id not in self._replaces and self._situations[step.id] == "failed":
                return step.id
        for name in self._plan.groups:
            members = self._plan.members(name)
            found = {self._situations[step.id] for step in members}
            if "lost" in found and found <= {"lost", "skipped"}:
                return next(one.id for one in members if self._situations[one.id] == "lost")
        return None

    def _may_begin(self, step: Step) -> bool:
        if self._situations[step.id] != "waiting":
            return False
        if step.id in self._replaces:
            return self._situations[self._replaces[step.id]] == "running" and self._has_failed(step)
        return all(map(self._is_settled, step.after))

    def _has_failed(self, step: Step) -> bool:
        """Whether the step has failed in whose place this one runs: its task does not run."""
        attempt = self._attempts.get(self._replaces[step.id])
        return attempt is not None and attempt.state != "running"

    def _is_settled(self, name: str) -> bool:
        """Whether a step or a group lets what comes after it begin."""
        if name in self._plan.groups:
            return all(self._is_settled(step.id) for step in self._plan.members(name))
        return self._situations[name] in ("done", "skipped", "lost")
