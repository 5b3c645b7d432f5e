"""The runs of tasks on this instance: claims queued tasks while there are slots, decides whether
each may run, and from where, and runs it.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from typing import Final

import anyio
import msgspec
import structlog

from component.caches import FIFOCache
from component.skills.errors import printable
from component.store.database import among
from component.store.notifications import Notification, Subject, record
from component.tasks import changes, journal, leases, question_rows, rows
from component.tasks.changes import Change, TaskRuntime, Transaction, change
from component.tasks.gate import SkillAccess
from component.tasks.journal import Journal
from component.tasks.leases import SUSPECT_ATTEMPTS, Claimant, Claimed, Slot, claim, unknown_skills
from component.tasks.questions import ask_question, confirm_for, covers, lapses
from component.tasks.replay import Flight
from component.tasks.rows import TERMINAL, LostError, Row
from component.tasks.run import Admitted, Run
from component.tasks.standing import StandingApprovals
from xep.binding import encode, read
from xep.fluux_agent import errors
from xep.fluux_agent.execute import Output, State
from xep.fluux_agent.task import Progress
from xep.jid import JID
from xep.stanza_error import StanzaError

_LAST_COMMITS_S: Final = 5.0
"""Seconds that runs have to write how they were interrupted, when the service stops."""
_MOST_UNFIT: Final = 1000

_log = structlog.get_logger("component.tasks")


class Worker:
    """Owns the runs on this instance.

    A task has at most one run here: a resumed task waits until the previous run has unwound.
    """

    def __init__(self, runtime: TaskRuntime) -> None:
        self.slots = runtime.slots
        self.slots.released = self._released
        self.runtime = runtime
        self._skills = runtime.skills
        self._runs: dict[str, Run] = {}
        """By their tasks; the task of a run without a row has its id already."""
        self._watched: dict[str, anyio.Event] = {}
        self._idle = anyio.Event()
        """Set when the last run has ended while the service stops, and none can start."""
        self._beginning = 0
        """The number of operations in progress that may start a run."""
        self._queued = True
        """Whether there may be queued tasks."""
        self._behind = {""}
        """Shares that may have queued tasks; "" while it is unknown which."""
        self._work = anyio.Event()
        self._after = ""
        """The share at which the last claim ended."""
        self._claiming_later = False
        self._unknown: set[tuple[str, bool]] = set()
        """Skills that tasks need and that this instance does not have, as they were logged: with
        late sources, or without.
        """
        self._told: set[str] = set()
        """Tasks whose callers were told that they wait for sources that are late now."""
        self._unfit: FIFOCache[str, None] = FIFOCache(_MOST_UNFIT)
        """Tasks that this instance cannot run and another one may."""

    # Runs.

    def of(self, task: str) -> Run | None:
        """Return the run of a task, if it is on this instance."""
        run = self._runs.get(task)
        return None if run is None or run.row is None else run

    def of_request(self, key: str) -> Run | None:
        """Return the run of a request by its replay key, if it is on this instance."""
        return next((one for one in self._runs.values() if one.admitted.key.text == key), None)

    @contextmanager
    def watching(self, task: str) -> Iterator[anyio.Event]:
        """Yield an event that is set when a run of the task on this instance has ended, or the task
        has.
        """
        self._watched[task] = event = anyio.Event()
        try:
            yield event
        finally:
            self._watched.pop(task, None)

    def _rests(self, task: str) -> None:
        if (event := self._watched.get(task)) is not None:
            event.set()

    def serves(self, flight: Flight) -> bool:
        """Return whether a run on this instance will answer this request."""
        return any(one.flight is flight for one in self._runs.values())

    def execute(self, admitted: Admitted, row: Row | None = None, slot: Slot | None = None) -> Run:
        """Start a run, and return it. Raises StanzaError: the service has stopped."""
        run = Run(self.runtime, admitted, row, slot)
        self._launch(run)
        return run

    def _launch(self, run: Run) -> None:
        self._runs[run.task] = run
        if self.runtime.draining:
            run.drain()
        try:
            self.runtime.start(self._run, run)
        except StanzaError:
            self._has_ended(run)
            raise

    async def _run(self, run: Run) -> None:
        try:
            await run.run()
        except Exception:  # noqa: BLE001 - a mistake here must not end everybody's work
            _log.exception("a run failed; its task is resumed at the next start", task=run.task)
        finally:
            self._has_ended(run)

    def _has_ended(self, run: Run) -> None:
        if self._runs.get(run.task) is run:
            del self._runs[run.task]
        run.release()
        self._rests(run.task)
        self._see_whether_idle()

    @contextmanager
    def beginning(self) -> Iterator[None]:
        """Count an operation that may start a run, so that `drain` waits for that run."""
        self._beginning += 1
        try:
            yield
        finally:
            self._beginning -= 1
            self._see_whether_idle()

    def _see_whether_idle(self) -> None:
        if self.runtime.draining and not self._runs and not self._beginning:
            self._idle.set()

    def observe(self, committed: Transaction, by: object) -> None:
        """Apply committed changes to the runs here, except to `by`, which made them."""
        for made in committed.changes:
            run = self.of(made.row.id)
            if run is not None and run is not by:
                run.observe(made)
            if made.row.state in TERMINAL:
                self._rests(made.row.id)
        for share in committed.ready:
            self.wake(share)

    # Which task runs next.

    def try_slot(self, share: str) -> Slot | None:
        """Return a slot for a task that may start at once: no queued task of anybody goes first."""
        if self.runtime.draining or share in self._behind:
            return None
        return self.slots.try_take(share, spare=len(self._behind))

    def _released(self) -> None:
        if self._queued:
            self._work.set()

    def wake(self, share: str = "") -> None:
        """Note that there may be queued tasks, of that share or of any."""
        self._queued = True
        self._behind.add(share)
        self._work.set()

    def skills_changed(self) -> None:
        """Note that there are other skills: tasks that this instance could not run may fit."""
        self._unfit.clear()
        self.wake()

    async def claim(self) -> None:
        """Claim queued tasks while there are slots, until cancelled."""
        while True:
            await self._work.wait()
            self._work = anyio.Event()
            while self.runtime.has_slots():
                before, self._behind = self._behind, set()
                claimed = await self._claim_once()
                if claimed.more:
                    self._behind |= before
                for row in claimed.rows:
                    suspect = row.attempts >= SUSPECT_ATTEMPTS
                    self.take_up_soon(row, self.slots.take(row.share, suspect=suspect))
                self._after = claimed.after
                if claimed.retry_ms is not None:
                    self._claim_after(claimed.retry_ms)
                if not claimed.rows or not claimed.more:
                    # A task that was queued in the meantime has set `_work` again.
                    self._queued = claimed.more or self._work.is_set()
                    break

    def _claim_after(self, milliseconds: int) -> None:
        """Claim again when a queue that has reached its rate lets the next task start."""
        if not self._claiming_later:
            self._claiming_later = True

            async def later() -> None:
                await anyio.sleep(milliseconds / 1000)
                self._claiming_later = False
                self.wake()

            self.runtime.start(later)

    async def _claim_once(self) -> Claimed:
        slots, after, late = self.slots.snapshot(), self._after, self._skills.late()
        claimant = Claimant(
            instance=self.runtime.instance,
            skills=self._skills.names(),
            slots=slots,
            queues=self.runtime.limits.queues,
            unfit=tuple(self._unfit.keys()),
        )
        if not late:
            self._told.clear()

        def op(tx: Transaction) -> tuple[Claimed, list[str], Sequence[str]]:
            claimed = claim(tx, claimant, after=after)
            if claimed.more:
                # What is left may have been queued while this instance had slots, and woken nobody.
                leases.wake_one(tx, but=tx.instance)
            elif len(claimed.rows) < slots.free:
                leases.mark_idle(tx, tx.instance)
            unknown = [] if claimed.rows else unknown_skills(tx, claimant)
            told: Sequence[str] = ()
            if unknown and late:
                told = report_waiting(tx, claimant.skills or (), late, self._told)
            return claimed, unknown, told

        claimed, unknown, told = await self.runtime.commit(op, keep_trying=True)
        self._told.update(told)
        for skill in unknown:
            self._log_unknown(skill, late)
        return claimed

    def _log_unknown(self, skill: str, late: Sequence[str]) -> None:
        if (skill, bool(late)) in self._unknown:
            return
        self._unknown.add((skill, bool(late)))
        if late:
            why = "tasks wait for a skill whose source may not be ready yet"
            _log.warning(why, skill=skill, sources=late)
        else:
            _log.warning(
                "tasks wait for a skill that this instance does not have: start an instance"
                " that has it, or cancel them",
                skill=skill,
            )

    def take_up_soon(self, row: Row, slot: Slot) -> None:
        """Resume a task that this instance owns, in a slot that was acquired for it."""
        self.runtime.start(self._take_up, row, slot)

    async def _take_up(self, row: Row, slot: Slot) -> None:
        with self.beginning():
            try:
                while (previous := self.of(row.id)) is not None:
                    # The task was answered, or lost and claimed again, while the old run is still
                    # unwinding.
                    previous.superseded()
                    await previous.ended.wait()
                run = await self._resume(row, slot)
                if run is not None:
                    self._launch(run)
                    return
            except LostError:
                pass  # it was cancelled, or its deadline passed, before it started
            except Exception:  # noqa: BLE001 - as above
                _log.exception("cannot resume a task", task=row.id)
            slot.release()

    async def _resume(self, row: Row, slot: Slot) -> Run | None:
        verdict = await verdict_of(row, self._skills)
        late = bool(self._skills.late())
        resumed = await self.runtime.commit(
            lambda tx: resume(tx, row, verdict, late=late, standing=self.runtime.standing),
            tasks=(row.id,),
            keep_trying=True,
        )
        if resumed.unfit:
            self._unfit[row.id] = None
            self.wake(row.share)
        mine, admitted = resumed.row, verdict.admitted
        if mine.state != "running" or admitted is None or resumed.journal is None:
            return None  # it waits, has ended, or is set aside
        run = Run(self.runtime, admitted, mine, slot)
        run.continue_from(resumed.journal, resumed.parts)
        return run

    # Stopping.

    async def drain(self) -> None:
        """Let runs end, or reach a point at which they can be resumed; see `Run.drain`.

        Those that take longer are stopped: one inside a step with effects ends as
        `outcome-unknown`, others are resumed at the next start as well.
        """
        self.runtime.draining = True
        for run in tuple(self._runs.values()):
            run.drain()
        await self._wait_until_idle(self.runtime.limits.drain_s)
        for run in tuple(self._runs.values()):
            run.stop("drain")
        await self._wait_until_idle(_LAST_COMMITS_S)
        for run in tuple(self._runs.values()):
            _log.warning("an execution does not end", task=run.task, skill=run.skill.name)
            run.give_up()

    async def _wait_until_idle(self, seconds: float) -> None:
        if self._runs or self._beginning:
            with anyio.move_on_after(seconds):
                await self._idle.wait()


# Resuming a task.

_LONGEST_TITLE: Final = 200
_WAITS: Final = "It waits for the skill "
_MOST_AT_ONCE: Final = 100
_MOST_NAMED: Final = 5


class Verdict(msgspec.Struct, frozen=True):
    """Whether this release can run a task for its principal.

    `admitted` is None if its skill no longer exists, or now takes different parameters; `known`
    says whether this release has the skill. `refusal` says why the task cannot be confirmed, and
    `decided` that the confirmers were determined just now.
    """

    admitted: Admitted | None
    allowed: bool = True
    refusal: StanzaError | None = None
    decided: bool = False
    known: bool = True

    @property
    def repeatable(self) -> bool:
        """Whether the skill may run twice."""
        return self.admitted is not None and self.admitted.skill.repeatable


async def verdict_of(row: Row, skills: SkillAccess) -> Verdict:
    """Repeat the checks of admission (CNF-042), and determine unknown confirmers."""
    skill = skills.find(row.skill)
    if skill is None:
        return Verdict(None, known=False)
    principal = JID.parse(row.principal)
    try:
        request = rows.request_of(row)
        arguments = msgspec.json.decode(request.json or b"{}", type=skill.inputs.type)
    except Exception:  # noqa: BLE001 - a skill's own types may raise anything
        _log.exception(
            "a task contains data that can no longer be read", task=row.id, skill=row.skill
        )
        return Verdict(None, skills.may_use(principal, skill))
    undecided = request.undecided
    if undecided:
        try:
            needed = await skills.approvers.find(request, skill)
        except StanzaError as error:
            return Verdict(Admitted(request, skill, arguments), refusal=error)
        request = msgspec.structs.replace(request, undecided=False, confirmation=needed)
    allowed = skills.may_use(principal, skill)
    return Verdict(Admitted(request, skill, arguments), allowed, decided=undecided)


class Resumed(msgspec.Struct, frozen=True):
    """A resumed task, and what earlier runs have recorded. `unfit` says that it is left to other
    instances.
    """

    row: Row
    journal: Journal | None = None
    parts: Sequence[Output] = ()
    unfit: bool = False


def resume(
    tx: Transaction,
    row: Row,
    verdict: Verdict,
    *,
    late: bool = False,
    standing: StandingApprovals | None = None,
) -> Resumed:
    """Set a claimed task to running, or settle why it cannot run. Raises LostError."""
    mine = rows.current(tx, row)
    # cancelled after it was claimed, when no run could be stopped
    if mine.state == "cancelling":
        tx.publish(changes.end_cancelled(tx, mine))
        return Resumed(mine)
    # A task that has never run has recorded nothing, unless it retries another one.
    has_run = mine.revision > 0 or mine.origin is not None
    recorded = journal.read_journal(tx, mine.id) if has_run else Journal()
    admitted = verdict.admitted
    waits = not verdict.known and (late or tx.dialect == "postgresql")
    if admitted is None and (waits or leases.others_alive(tx, tx.instance)):
        # Another release may have the skill, or accept these parameters. That instance may be
        # restarting, so the task waits for it even if no other instance runs, as it does in a
        # claim.
        changes.release(tx, mine, drained=True)
        leases.wake_one(tx, but=tx.instance)
        return Resumed(mine, unfit=True)
    refusal = _refusal(mine, verdict, recorded)
    if refusal is not None:
        fresh = mine.state == "accepted" and not recorded.done and not recorded.begun
        rejected = fresh and (not verdict.allowed or verdict.refusal is not None)
        to: State = "rejected" if rejected else "failed"
        repeatable = fresh or verdict.repeatable
        tx.publish(changes.end(tx, mine, to, refusal, repeatable=repeatable))
        return Resumed(mine)
    assert admitted is not None
    if mine.progress is not None and waiting_text(read(mine.progress, Progress)) is not None:
        mine.progress = None
        rows.update(tx, mine)
    if verdict.decided:
        stored = changes.stored_request(admitted.request, admitted.arguments, tx.limits)
        mine.request = stored
        tx.execute("UPDATE tasks SET request = ? WHERE id = ?", (stored, mine.id))
    if mine.state == "accepted" and not _is_confirmed(tx, mine, admitted, standing):
        mine.version = admitted.skill.version
        rows.update(tx, mine)
        try:
            made = ask_before(tx, mine, admitted, standing)
        except StanzaError as error:  # the limits of another release allowed the question
            made = changes.end(tx, mine, "failed", error, repeatable=True)
        if made is not None:
            tx.publish(made)
            return Resumed(mine)
    if mine.attempts >= tx.limits.max_attempts:
        _set_aside(tx, mine, admitted)
        return Resumed(mine)
    if mine.state == "accepted":
        tx.publish(changes.begin(tx, mine, tx.instance, atomic=admitted.skill.atomic))
    else:
        mine.attempts += 1
        rows.update(tx, mine)
        if admitted.skill.atomic:
            journal.begin_step(tx, mine, journal.StepId(journal.ATOMIC))
    parts = rows.parts_of(tx, mine.id) if has_run else ()
    return Resumed(mine, journal=recorded, parts=parts)


def ask_before(
    tx: Transaction, row: Row, admitted: Admitted, standing: StandingApprovals | None
) -> Change | None:
    """Ask for the confirmation of a request. None: a standing approval is used in its place. Raises
    StanzaError: `invalid-param`, `too-big`.
    """
    needed = admitted.request.confirmation
    assert needed is not None
    expires = rows.moment(lapses(tx.now, needed.expires_s, row.deadline))
    confirm = confirm_for(
        *(admitted.request, admitted.skill, admitted.arguments),
        task=row.id,
        question=leases.new_instance(),
        expires=expires,
    )
    if standing is not None:
        return standing.ask(tx, row, admitted.request, admitted.skill, confirm)
    return ask_question(tx, row, confirm, needed.asked)


def _is_confirmed(
    tx: Transaction, row: Row, admitted: Admitted, standing: StandingApprovals | None
) -> bool:
    """Return whether the action needs no approval or is the one approved (CNF-040, CNF-041)."""
    request, skill = admitted.request, admitted.skill
    if request.confirmation is None:
        return True
    approved = question_rows.approved_of(tx, row.id)
    if approved is None or not covers(approved, request, skill, admitted.arguments):
        return False
    return standing is None or standing.holds(tx, row, request, skill, approved)


def _refusal(row: Row, verdict: Verdict, recorded: Journal) -> StanzaError | None:
    if recorded.begun and not verdict.repeatable:
        return errors.outcome_unknown()
    if not verdict.allowed:
        return errors.forbidden("The principal may no longer execute this skill.")
    if verdict.refusal is not None:
        return verdict.refusal
    if verdict.admitted is None:
        return errors.internal()
    if not row.promoted and verdict.admitted.request.mode == "inline":
        return errors.timed_out(repeatable=verdict.repeatable)
    return None


def _set_aside(tx: Transaction, row: Row, admitted: Admitted) -> None:
    """Prevent further runs until an operator decides, and notify the principal, whatever started
    the task.
    """
    why = (
        f"Set aside after {row.attempts} executions during which the process crashed: an operator"
        " has to decide whether it runs again."
    )
    row.set_aside = why
    if row.state == "running":
        tx.publish(change(tx, row, "running", Progress(text=why), owner=None))
    else:  # it has no event for that
        row.owner, row.fence, row.progress = None, row.fence + 1, encode(Progress(text=why))
        rows.update(tx, row)
    _log.error(
        "set a task aside: the process crashed during each of its executions; look for its skill "
        "in the log before the crashes, then run `xmpp-agent tasks release` or `tasks cancel`",
        task=row.id,
        skill=row.skill,
        attempts=row.attempts,
    )
    request = admitted.request
    if request.principal.local is None:
        return  # a service, which nobody reads
    name = printable(admitted.skill.title, _LONGEST_TITLE)
    notice = Notification(
        id=sha256(f"{row.id} {row.fence}".encode()).hexdigest()[:32],
        agent=request.target,
        person=request.principal,
        title=name,
        text=(
            f"I could not finish this: {name}. The service crashed {row.attempts} times while it"
            " was running, so I have stopped trying. My operator decides whether it runs again"
            f" (task {row.id})."
        ),
        subject=Subject(
            task=row.id,
            about="A task was set aside because the service crashed.",
            taints=() if admitted.skill.taint is None else (admitted.skill.taint,),
        ),
    )
    record(tx, notice, tx.limits.held_per_person)


# Tasks whose skill is not there yet, because its source is late.


def waiting_text(progress: Progress | None) -> str | None:
    """Return the sentence of a progress that says for which skill the task waits, if it does."""
    text = None if progress is None else progress.text
    return text if text is not None and text.startswith(_WAITS) else None


def report_waiting(
    tx: Transaction, skills: Sequence[str], late: Sequence[str], told: Collection[str]
) -> Sequence[str]:
    """Say of queued tasks, except `told`, that they wait for the sources `late`, since their skill
    is not among `skills`; return their ids. Other instances may have the skills, so nothing is said
    if there are any.
    """
    if leases.others_alive(tx, tx.instance):
        return ()
    names = ", ".join(late[:_MOST_NAMED])
    known, names_known = among(tx, "skill", skills)
    these, ids = among(tx, "id", sorted(told))
    found = rows.select(
        tx,
        f"WHERE {rows.QUEUED} AND NOT ({known}) AND NOT ({these})"
        f" ORDER BY created, id LIMIT {_MOST_AT_ONCE:d}",
        (names_known, ids),
        f"{rows.LOCK} SKIP LOCKED",
    )
    for row in found:
        progress = Progress(
            text=f"{_WAITS}{row.skill}, which is not available yet (not ready: {names}). It goes on"
            " by itself."
        )
        if row.state == "running":
            tx.publish(change(tx, row, "running", progress))
        else:  # it has no event for that
            row.progress = encode(progress)
            rows.update(tx, row)
    return [row.id for row in found]
