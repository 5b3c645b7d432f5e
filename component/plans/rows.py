"""The tables of plans: the document of each, and how its steps stand.

A plan is the row of its task and a row here. What others change while it runs (a revision that is
proposed, a pause) increments `changes`, and wakes the task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from component.plans.advance import Attempt, AttemptState, Decision
from component.plans.document import Plan, plan_json
from component.policy.taint import TAINTS, Taint
from component.store import waiters
from component.store.database import Database
from component.store.schema import Table

TABLES: Final = (
    Table(
        name="plans",
        columns="""
            task TEXT PRIMARY KEY REFERENCES tasks ON DELETE CASCADE,
            revision INTEGER NOT NULL,
            document TEXT NOT NULL,
            params TEXT NOT NULL,
            taints TEXT NOT NULL,
            approval TEXT NOT NULL,
            budget DOUBLE PRECISION,
            failures TEXT NOT NULL,
            question TEXT,
            proposed TEXT,
            proposed_by TEXT,
            proposed_taints TEXT,
            paused TEXT,
            wish TEXT,
            changes INTEGER NOT NULL
        """,
        kept="part of a task",
    ),
    Table(
        name="plan_steps",
        columns="""
            plan TEXT NOT NULL REFERENCES plans ON DELETE CASCADE,
            step TEXT {C} NOT NULL,
            key TEXT NOT NULL,
            attempt INTEGER NOT NULL,
            state TEXT NOT NULL,
            task TEXT,
            repeatable INTEGER NOT NULL,
            decision TEXT NOT NULL,
            reason TEXT NOT NULL,
            condition TEXT NOT NULL,
            output TEXT,
            taints TEXT NOT NULL,
            origin TEXT NOT NULL,
            resumes TEXT NOT NULL,
            PRIMARY KEY (plan, step)
        """,
        kept="part of a task",
    ),
)

Approval: TypeAlias = Literal["unknown", "none", "principal", "others"]
"""Who has approved the present revision: it is not known yet whether that is needed, it is not, the
principal alone, or others as well.
"""


class StepRow(msgspec.Struct, frozen=True):
    """The last attempt of a step.

    Attributes:
        key: identifies its child task among those of the plan.
        task: the id of its task; None before it is started.
        output: the JSON of its output, as expressions see it; None without one.
        taints: the sources of the texts in the output.
        origin: the key of the first attempt, if this one continues from the record of another one.
        resumes: the id of the task from whose record it continues.
    """

    step: str
    key: str
    attempt: int = 1
    state: AttemptState = "running"
    task: str | None = None
    repeatable: bool = False
    decision: Decision = ""
    reason: str = ""
    condition: str = ""
    output: str | None = None
    taints: tuple[Taint, ...] = ()
    origin: str = ""
    resumes: str = ""

    @property
    def as_attempt(self) -> Attempt:
        """The attempt, for `advance`."""
        return Attempt(self.state, self.attempt, self.repeatable, self.decision)


class Proposal(msgspec.Struct, frozen=True):
    """A revision that is proposed: the plan, by whom, and the sources that its author has read."""

    plan: Plan
    by: str
    taints: tuple[Taint, ...] = ()


class PlanRow(msgspec.Struct, frozen=True):
    """A plan as it is stored.

    Attributes:
        params: the parameters of the skill that it is, if it is one; JSON.
        taints: the sources that the author of the document has read.
        budget: the most that it may spend now, in US dollars; None without a limit.
        failures: the kinds of failures for which it was revised.
        question: the question about its budget that is open; None if none is.
        proposed: a revision that waits for an approval.
        paused: why no step begins; None if it is not paused.
        wish: what the principal wants to be changed, in words; None if nothing.
        changes: the number of changes by others.
    """

    task: str
    revision: int
    plan: Plan
    params: str = "{}"
    taints: tuple[Taint, ...] = ()
    approval: Approval = "unknown"
    budget: float | None = None
    failures: tuple[str, ...] = ()
    question: str | None = None
    proposed: Proposal | None = None
    paused: str | None = None
    wish: str | None = None
    changes: int = 0
    steps: Mapping[str, StepRow] = {}

    @property
    def event(self) -> str:
        """The name of the event that wakes the task."""
        return event_of(self.task)


def event_of(task: str) -> str:
    """Return the name of the event that wakes the task of a plan."""
    return f"plan {task}"


_COLUMNS: Final = (
    "task, revision, document, params, taints, approval, budget, failures, question, proposed,"
    " proposed_by, proposed_taints, paused, wish, changes"
)
_STEP: Final = (
    "step, key, attempt, state, task, repeatable, decision, reason, condition, output, taints,"
    " origin, resumes"
)


def load(database: Database, task: str, *, lock: bool = False) -> PlanRow | None:
    """Return the plan of a task; None if it has none."""
    locked = " FOR UPDATE" if lock and database.dialect == "postgresql" else ""
    found = database.execute(
        f"SELECT {_COLUMNS} FROM plans WHERE task = ?{locked}",  # noqa: S608 - constant names
        (task,),
    ).fetchone()
    if found is None:
        return None
    (_, revision, document, params, taints, approval, budget, failures, question, *rest) = found
    proposed, by, proposed_taints, paused, wish, changes = rest
    steps = database.execute(
        f"SELECT {_STEP} FROM plan_steps WHERE plan = ?",  # noqa: S608 - constant names
        (task,),
    ).fetchall()
    return PlanRow(
        task=task,
        revision=revision,
        plan=_plan(document),
        params=params,
        taints=_taints(taints),
        approval=approval,
        budget=budget,
        failures=tuple(failures.split()),
        question=question,
        proposed=None
        if proposed is None
        else Proposal(_plan(proposed), by or "", _taints(proposed_taints or "")),
        paused=paused,
        wish=wish,
        changes=changes,
        steps={one[0]: _step_row(*one) for one in steps},
    )


def put(database: Database, row: PlanRow) -> bool:
    """Write a plan without its steps; return False, and write nothing, if somebody else has changed
    it since it was read.
    """
    if not _is_unchanged(database, row, missing=True):
        return False
    proposed = row.proposed
    values = (
        row.revision,
        plan_json(row.plan),
        row.params,
        " ".join(row.taints),
        row.approval,
        row.budget,
        " ".join(row.failures),
        row.question,
        None if proposed is None else plan_json(proposed.plan),
        None if proposed is None else proposed.by,
        None if proposed is None else " ".join(proposed.taints),
        row.paused,
        row.wish,
    )
    database.execute(
        "INSERT INTO plans (revision, document, params, taints, approval, budget, failures,"
        " question, proposed, proposed_by, proposed_taints, paused, wish, task, changes)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0)"
        " ON CONFLICT (task) DO UPDATE SET revision = excluded.revision,"
        " document = excluded.document, params = excluded.params, taints = excluded.taints,"
        " approval = excluded.approval, budget = excluded.budget, failures = excluded.failures,"
        " question = excluded.question,"
        " proposed = excluded.proposed, proposed_by = excluded.proposed_by,"
        " proposed_taints = excluded.proposed_taints, paused = excluded.paused,"
        " wish = excluded.wish",
        (*values, row.task),
    )
    return True


def put_steps(database: Database, plan: str, steps: Sequence[StepRow]) -> None:
    """Write steps of a plan."""
    for one in steps:
        database.execute(
            f"INSERT INTO plan_steps (plan, {_STEP})"  # noqa: S608 - constant names
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
            " ON CONFLICT (plan, step) DO UPDATE SET key = excluded.key,"
            " attempt = excluded.attempt, state = excluded.state, task = excluded.task,"
            " repeatable = excluded.repeatable, decision = excluded.decision,"
            " reason = excluded.reason, condition = excluded.condition,"
            " output = excluded.output, taints = excluded.taints,"
            " origin = excluded.origin, resumes = excluded.resumes",
            (
                plan,
                *(one.step, one.key, one.attempt, one.state, one.task, int(one.repeatable)),
                *(one.decision, one.reason, one.condition, one.output, " ".join(one.taints)),
                *(one.origin, one.resumes),
            ),
        )


def delete_steps(database: Database, plan: str, steps: Sequence[str]) -> None:
    """Delete what is stored of steps, which have not begun then."""
    for step in steps:
        database.execute("DELETE FROM plan_steps WHERE plan = ? AND step = ?", (plan, step))


def is_unchanged(database: Database, row: PlanRow) -> bool:
    """Return whether nobody else has changed a plan since it was read, and lock it."""
    return _is_unchanged(database, row, missing=False)


def _is_unchanged(database: Database, row: PlanRow, *, missing: bool) -> bool:
    lock = " FOR UPDATE" if database.dialect == "postgresql" else ""
    found = database.execute(
        f"SELECT changes FROM plans WHERE task = ?{lock}",  # noqa: S608 - a constant
        (row.task,),
    ).fetchone()
    return missing if found is None else bool(found[0] == row.changes)


# What others change.


def propose(database: Database, task: str, revision: int, proposal: Proposal) -> bool:
    """Propose a revision of a plan that has this revision now; return False if it has another
    one, or is not a plan.
    """
    made = database.execute(
        "UPDATE plans SET proposed = ?, proposed_by = ?, proposed_taints = ?,"
        " changes = changes + 1 WHERE task = ? AND revision = ?",
        (plan_json(proposal.plan), proposal.by, " ".join(proposal.taints), task, revision),
    )
    return _woken(database, task, made.rowcount)


def wish(database: Database, task: str, revision: int, text: str) -> bool:
    """Let a model propose a revision that does what the principal wants; return False as
    `propose`.
    """
    made = database.execute(
        "UPDATE plans SET wish = ?, changes = changes + 1 WHERE task = ? AND revision = ?",
        (text, task, revision),
    )
    return _woken(database, task, made.rowcount)


def pause(database: Database, task: str, reason: str | None) -> bool:
    """Let no step of a plan begin, for this reason; with None they begin again. Return False if
    there is no such plan, or nothing changes.
    """
    made = database.execute(
        "UPDATE plans SET paused = ?, changes = changes + 1 WHERE task = ?"  # noqa: S608
        f" AND paused IS {'NOT NULL' if reason is None else 'NULL'}",
        (reason, task),
    )
    return _woken(database, task, made.rowcount)


def _woken(database: Database, task: str, changed: int) -> bool:
    """Wake the task of a plan if a row was changed; return whether one was."""
    if changed != 1:
        return False
    waiters.wake_tasks(database, event_of(task))
    return True


def _plan(text: str) -> Plan:
    return msgspec.json.decode(text, type=Plan)


def _taints(text: str) -> tuple[Taint, ...]:
    return tuple(one for one in TAINTS if one in text.split())


def _step_row(*found: object) -> StepRow:
    values = dict(zip(StepRow.__struct_fields__, found, strict=True))
    values["taints"] = str(values["taints"]).split()
    return msgspec.convert(values, StepRow, strict=False)
