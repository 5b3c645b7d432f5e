"""The runs of this instance, and who is next: how many there may be, claims, taking work up."""

from collections.abc import Callable
from typing import Final

import anyio
import structlog

from component.skills.declare import AnySkill
from component.tasks import leases
from component.tasks.claims import Claimed, Room, claim
from component.tasks.errors import LostError
from component.tasks.keeper import Keeper
from component.tasks.resume import Verdict, resume, verdict_of
from component.tasks.rows import Row
from component.tasks.run import Run
from xep.jid import JID

_LAST_WORDS_S: Final = 5.0
"""Seconds that runs have to write how they were interrupted."""

_log = structlog.get_logger("component.tasks")


class Runs:
    """What runs here.

    Args:
        keeper: the engine.
        skill: a skill by its name, whoever asks.
        may_use: whether a principal may execute a skill now.

    Attributes:
        all: every run, with rows or without.
        idle: set when the last one has ended of a service that ends.
        draining: whether the service ends, and begins nothing more.
    """

    def __init__(
        self,
        keeper: Keeper,
        skill: Callable[[str], AnySkill | None],
        may_use: Callable[[JID, AnySkill], bool],
    ) -> None:
        self._keeper = keeper
        self._skill = skill
        self._may_use = may_use
        self._room = Room(keeper.limits.running_total, keeper.limits.running_per_principal)
        self.all: set[Run] = set()
        self.idle = anyio.Event()
        self.draining = False
        self._by_task: dict[str, Run] = {}
        self._queued = True
        """Whether there may be queued work."""
        self._behind = {""}
        """Who may have some; nobody knows at the start."""
        self._work = anyio.Event()
        self._after = ""

    def of(self, task: str) -> Run | None:
        """The run of a task, if it is here."""
        return self._by_task.get(task)

    def of_request(self, key: str) -> Run | None:
        """The run of a request, if it is here."""
        return next((run for run in self.all if run.call.key == key), None)

    def start(self, run: Run) -> None:
        """Let it run. For one that has a row there is room, which was taken for it."""
        self.all.add(run)
        if run.row is not None:
            self._by_task[run.task] = run
        if self.draining:
            run.drain()
        self._keeper.soon(self._go, run)

    async def _go(self, run: Run) -> None:
        try:
            await run.go()
        except Exception:  # noqa: BLE001 - a mistake of ours must not end everybody's work
            _log.exception(
                "a run broke; its task is taken up again at the next start", task=run.task
            )
        finally:
            self.all.discard(run)
            if self._by_task.pop(run.task, None) is not None:
                self.leave_room(str(run.call.principal))
            if self.draining and not self.all:
                self.idle.set()

    def grown(self, run: Run) -> None:
        """A run has become a task: it counts from now on."""
        self._by_task[run.task] = run
        self.take_room(str(run.call.principal))

    # Room.

    def may_run(self, principal: str) -> bool:
        """Whether one more of the principal may run at once, before nobody whose turn it is."""
        behind = self._behind
        return (
            principal not in behind and self._room.left > len(behind) and self._room.has(principal)
        )

    def take_room(self, principal: str) -> None:
        """One more of the principal runs, or is about to."""
        self._room.take(principal)

    def leave_room(self, principal: str) -> None:
        """One of them has ended, or did not come to run."""
        self._room.give_back(principal)
        if self._queued:
            self._work.set()

    # Who is next.

    def wake(self, principal: str = "") -> None:
        """There may be queued work, of that principal or of anybody."""
        self._queued = True
        self._behind.add(principal)
        self._work.set()

    async def claim(self) -> None:
        """Take up queued work while there is room, for ever."""
        while True:
            await self._work.wait()
            self._work = anyio.Event()
            while self._room.left and not self.draining:
                before, self._behind = self._behind, set()
                claimed = await self._claim_once()
                if claimed.more:
                    self._behind |= before
                for row in claimed.rows:
                    self.take_room(row.principal)
                    self._keeper.soon(self.take_up, row)
                self._after = claimed.after
                if not claimed.rows or not claimed.more:
                    # Who has come since has set `_work` again.
                    self._queued = claimed.more or self._work.is_set()
                    break

    async def _claim_once(self) -> Claimed:
        keeper, room, after = self._keeper, self._room, self._after
        left, running = room.left, dict(room.running)
        share = keeper.limits.running_per_principal
        return await keeper.keep(
            lambda db: claim(
                *(db, keeper.instance),
                left=left,
                share=share,
                threshold=room.threshold,
                running=running,
                after=after,
            )
        )

    async def take_up(self, row: Row) -> None:
        """Go on with a task that is ours, and for which room was taken."""
        keeper, started = self._keeper, False
        try:
            verdict = self.verdict(row)
            question_id = leases.new_instance()
            resumed = await keeper.keep(
                lambda db: resume(db, row, verdict, keeper.instance, question_id, keeper.limits)
            )
            if resumed.changes:
                keeper.settled(resumed.changes, resumed.question)
            if resumed.row.state == "running" and verdict.call is not None:
                run = Run(
                    *(keeper, verdict.call, row.id),
                    row=resumed.row,
                    journal=resumed.journal,
                    parts=resumed.parts,
                )
                self.start(run)
                started = True
        except LostError:
            return  # it was cancelled, or its time was over, before it began
        except Exception:  # noqa: BLE001 - as above
            _log.exception("a task cannot be taken up", task=row.id)
        finally:
            if not started:
                self.leave_room(row.principal)

    def verdict(self, row: Row) -> Verdict:
        """Whether a task can be run now, for its principal."""
        return verdict_of(row, self._skill, self._may_use)

    # The end.

    async def drain(self) -> None:
        """Let runs end, or come to where they can be gone on with; see `Run.drain`.

        Those that take longer are given up: one that is stopped inside a step with effects ends as
        `outcome-unknown`, others are gone on with at the next start as well.
        """
        self.draining = True
        for run in tuple(self.all):
            run.drain()
        if self.all:
            with anyio.move_on_after(self._keeper.limits.drain_s):
                await self.idle.wait()
        for run in tuple(self.all):
            run.stop("drain")
        if self.all:
            with anyio.move_on_after(_LAST_WORDS_S):
                await self.idle.wait()
        for run in tuple(self.all):
            _log.warning("a run would not end", task=run.task, skill=run.call.skill.name)
            run.give_up()
