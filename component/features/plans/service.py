"""What people and agents do with plans: start, list, show, revise, pause and resume them."""

from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec

from component.kernel import started_work
from component.kernel.kernel import Kernel
from component.kernel.triggers import Trigger, Work
from component.plans import picture, rows
from component.plans.advance import advance
from component.plans.document import Plan
from component.plans.rows import PlanRow, Proposal
from component.plans.wording import state_text
from component.policy.taint import Taint
from component.skills.outputs import File
from component.store.database import Database
from component.tasks.outputs import shared
from component.tasks.request import Request
from xep.binding import read
from xep.file_sharing import FileSharing
from xep.fluux_agent.plan import PlanSteps
from xep.fluux_agent.task import Cancel
from xep.jid import JID

RUN: Final = "plan.run"
"""The internal skill that runs a plan."""
_SHORTEST: Final = 4


class UnknownPlanError(Exception):
    """The principal has no such plan, or several that could be meant. The message is a sentence."""


class StoredPlan(msgspec.Struct, frozen=True):
    """A plan and the state of its task."""

    row: PlanRow
    state: str
    address: JID
    principal: JID
    steps: PlanSteps

    @property
    def is_open(self) -> bool:
        """Whether it has not ended."""
        return self.state not in _ENDED

    @property
    def states(self) -> str:
        """How each step stands, a line each."""
        row = self.row
        advised = advance(row.plan, {id_: one.as_attempt for id_, one in row.steps.items()})
        reasons = {id_: one.reason for id_, one in row.steps.items()}
        return state_text(row.plan, advised.situations, reasons)

    @property
    def taints(self) -> tuple[Taint, ...]:
        """The sources of all texts in it."""
        steps = self.row.steps.values()
        return tuple(sorted({*self.row.taints, *(each for one in steps for each in one.taints)}))


class Plans:
    """The plans of all principals. Methods raise StorageError."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._storage = kernel.storage

    async def start(self, plan: Plan, key: str, work: Work) -> str:
        """Start a plan once for a key; return the id of its task. Raises StanzaError."""
        at = work.at or work.principal
        is_person = await self._kernel.contacts.persons.is_person(
            work.principal, work.principal, at
        )
        params = msgspec.json.encode({"plan": plan, "shows": is_person})
        work = msgspec.structs.replace(
            work,
            skill=RUN,
            params=msgspec.Raw(params),
            thread=f"plan-{key[:16]}",
            silent=not is_person,
        )
        trigger = Trigger(source="plan", name=plan.title, key=key)
        task = await self._kernel.starter.start(trigger, work)
        if task is None:
            task = await self._storage.read(partial(started_work.task_of, trigger=trigger))
        assert task is not None, "it was started before"
        return task

    async def list(self, principal: JID, *, most: int = 20) -> Sequence[StoredPlan]:
        """Return the plans of a principal, the latest first."""
        return await self._storage.read(
            lambda db: [_stored(db, *one) for one in _found(db, principal, "", most)]
        )

    async def find(self, principal: JID, id_: str) -> StoredPlan:
        """Return a plan by its id or the beginning of that; without an id the only one that has
        not ended. Raises UnknownPlanError.
        """

        def op(db: Database) -> list[StoredPlan]:
            return [_stored(db, *one) for one in _found(db, principal, id_, 20)]

        if id_ and len(id_) < _SHORTEST:
            raise UnknownPlanError(f"Give at least {_SHORTEST} characters of the id of a plan.")
        found = await self._storage.read(op)
        if not id_:
            found = [one for one in found if one.is_open] or found[:1]
        if not found:
            raise UnknownPlanError(
                f"There is no plan {id_}: /plan lists yours." if id_ else "There are no plans."
            )
        if len(found) > 1:
            which = ", ".join(f"{one.row.task[:8]} ({one.row.plan.title})" for one in found)
            raise UnknownPlanError(f"Say which plan: {which}.")
        return found[0]

    async def propose(self, stored: StoredPlan, revision: int, proposal: Proposal) -> bool:
        """Propose a revision; return False if the plan has another revision now, or has ended."""
        task = stored.row.task

        def op(db: Database) -> bool:
            return _is_open(db, task) and rows.propose(db, task, revision, proposal)

        made = await self._storage.write(op)
        await self._wake(task, made=made)
        return made

    async def wish(self, stored: StoredPlan, text: str) -> bool:
        """Let a model propose what the principal wants to be changed; return False as `propose`."""
        row = stored.row

        def op(db: Database) -> bool:
            return _is_open(db, row.task) and rows.wish(db, row.task, row.revision, text)

        made = await self._storage.write(op)
        await self._wake(row.task, made=made)
        return made

    async def picture(self, stored: StoredPlan) -> FileSharing:
        """Return a picture of the steps, which everybody with the link can see. Raises
        CannotShare.
        """
        data = picture.svg(stored.steps).encode()
        name = f"plan-{stored.row.task[:8]}-{stored.row.revision}.svg"
        request = Request(
            skill=RUN,
            principal=stored.principal,
            requester=stored.principal,
            target=stored.address,
        )
        file = File(data, "image/svg+xml", name)
        return shared(await self._kernel.tasks.share(file, request))

    async def cancel(self, stored: StoredPlan) -> None:
        """Cancel a plan and all that it has started. Raises StanzaError."""
        row, address = stored.row, stored.address
        principal = stored.principal
        await self._kernel.tasks.service.cancel(principal, address, Cancel(id=row.task))

    async def pause(self, stored: StoredPlan, reason: str | None) -> bool:
        """Pause a plan for a reason, or resume it with None; return whether that changes it."""
        task = stored.row.task

        def op(db: Database) -> bool:
            return _is_open(db, task) and rows.pause(db, task, reason)

        made = await self._storage.write(op)
        await self._wake(task, made=made)
        return made

    async def _wake(self, task: str, *, made: bool) -> None:
        if made:
            # A question about what has changed is asked anew.
            await self._kernel.tasks.service.ask_no_more(task)
            self._kernel.tasks.service.requeued()


_ENDED: Final = ("completed", "failed", "rejected", "cancelled")


def _is_open(database: Database, task: str) -> bool:
    found = database.execute("SELECT state FROM tasks WHERE id = ?", (task,)).fetchone()
    return found is not None and found[0] not in _ENDED


def _found(
    database: Database, principal: JID, id_: str, most: int
) -> Sequence[tuple[str, str, str, str, str]]:
    return database.execute(
        "SELECT tasks.id, tasks.state, tasks.target, tasks.principal, tasks.plan FROM tasks"
        " JOIN plans ON plans.task = tasks.id"
        " WHERE tasks.principal = ? AND substr(tasks.id, 1, ?) = ? AND tasks.plan IS NOT NULL"
        " ORDER BY tasks.created DESC, tasks.id LIMIT ?",
        (str(principal.bare), len(id_), id_, most),
    ).fetchall()


def _stored(
    database: Database, task: str, state: str, target: str, principal: str, plan: str
) -> StoredPlan:
    row = rows.load(database, task)
    assert row is not None, "it was found"
    steps = read(plan, PlanSteps)
    return StoredPlan(row, state, JID.parse(target), JID.parse(principal), steps)
