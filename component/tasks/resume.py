"""Resumes a waiting task: decides whether it may run, and from where."""

from collections.abc import Collection, Sequence
from hashlib import sha256
from typing import Final

import msgspec
import structlog

from component.skills.errors import printable
from component.store.notifications import Notification, record
from component.tasks import changes, journal, leases, question_rows, rows
from component.tasks.changes import Change, Transaction, change
from component.tasks.confirmation import confirm_for, covers, lapses
from component.tasks.journal import Journal
from component.tasks.protocol import SkillAccess
from component.tasks.questions import ask_confirmation
from component.tasks.rows import Row
from component.tasks.run import Admitted
from xep.binding import encode, read
from xep.fluux_agent import errors
from xep.fluux_agent.execute import Output, State
from xep.fluux_agent.task import Progress
from xep.jid import JID
from xep.stanza_error import StanzaError

_LONGEST_TITLE: Final = 200
_WAITS: Final = "It waits for the skill "
_MOST_AT_ONCE: Final = 100
_MOST_NAMED: Final = 5

_log = structlog.get_logger("component.tasks")


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
        return self.admitted is not None and self.admitted.repeatable


async def verdict_of(row: Row, skills: SkillAccess) -> Verdict:
    """Repeat the checks of admission (CNF-042), and determine the confirmers if they are not known
    yet.
    """
    skill = skills.find(row.skill)
    if skill is None:
        return Verdict(None, known=False)
    principal = JID.parse(row.principal)
    allowed = skills.may_use(principal, skill)
    try:
        request = rows.request_of(row)
        arguments = msgspec.json.decode(request.json or b"{}", type=skill.inputs.type)
        admitted = Admitted(request, skill, arguments)
    except Exception:  # noqa: BLE001 - a skill's own types may raise anything
        _log.exception(
            "a task contains data that can no longer be read", task=row.id, skill=row.skill
        )
        return Verdict(None, allowed=allowed)
    if not request.undecided:
        return Verdict(admitted, allowed)
    try:
        needed = await skills.approvers.find(request, skill)
    except StanzaError as error:
        return Verdict(admitted, refusal=error)
    request = msgspec.structs.replace(request, undecided=False, confirmation=needed)
    admitted = msgspec.structs.replace(admitted, request=request)
    return Verdict(admitted, skills.may_use(principal, skill), decided=True)


class Resumed(msgspec.Struct, frozen=True):
    """The outcome of resuming a task: its row, and what earlier runs have recorded.

    `unfit` says that this instance cannot run the task, which is left to the others. `notice` is
    the notification to the principal, if the task was set aside.
    """

    row: Row
    journal: Journal | None = None
    parts: Sequence[Output] = ()
    unfit: bool = False
    notice: Notification | None = None


def resume(tx: Transaction, row: Row, verdict: Verdict, *, late: bool = False) -> Resumed:
    """Set a claimed task to running, or settle why it cannot run. `late` says that skills may
    still come.

    Raises LostError.
    """
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
        rows.set_request(tx, mine, stored)
    if mine.state == "accepted" and not _is_confirmed(tx, mine, admitted):
        mine.version = admitted.skill.version
        rows.update(tx, mine)
        try:
            made = ask_before(tx, mine, admitted)
        except StanzaError as error:  # the limits of another release allowed the question
            made = changes.end(tx, mine, "failed", error, repeatable=True)
        tx.publish(made)
        return Resumed(mine)
    if mine.attempts >= tx.limits.max_attempts:
        return Resumed(mine, notice=_set_aside(tx, mine, admitted))
    if mine.state == "accepted":
        tx.publish(changes.begin(tx, mine, tx.instance, atomic=admitted.atomic))
    else:
        mine.attempts += 1
        rows.update(tx, mine)
        if admitted.atomic:
            journal.begin_step(tx, mine.id, mine.fence, journal.StepId(journal.ATOMIC))
    parts = rows.parts_of(tx, mine.id) if has_run else ()
    return Resumed(mine, journal=recorded, parts=parts)


def ask_before(tx: Transaction, row: Row, admitted: Admitted) -> Change:
    """Ask for the confirmation of a request before it begins. Raises StanzaError: `invalid-param`,
    `too-big`.
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
    return ask_confirmation(tx, row, confirm, needed.asked)


def _is_confirmed(tx: Transaction, row: Row, admitted: Admitted) -> bool:
    """Return whether the action that would run is exactly the one approved, if approval was needed
    (CNF-040, CNF-041).
    """
    if admitted.request.confirmation is None:
        return True
    approved = question_rows.approved_of(tx, row.id)
    return approved is not None and covers(
        approved, admitted.request, admitted.skill, admitted.arguments
    )


def _refusal(row: Row, verdict: Verdict, recorded: Journal) -> StanzaError | None:
    """Return why a task cannot continue; None if it can."""
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


def _set_aside(tx: Transaction, row: Row, admitted: Admitted) -> Notification | None:
    """Prevent further runs until an operator decides.

    The status of the task gives the reason. Returns the notification to the principal, which is
    sent no matter what started the task; None if the principal is a service.
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
        return None  # a service, which nobody reads
    name = printable(admitted.skill.title, _LONGEST_TITLE)
    notice = Notification(
        id=sha256(f"{row.id} {row.fence}".encode()).hexdigest()[:32],
        agent=request.target.bare,
        person=request.principal.bare,
        title=name,
        text=(
            f"I could not finish this: {name}. The service crashed {row.attempts} times while it"
            " was running, so I have stopped trying. My operator decides whether it runs again"
            f" (task {row.id})."
        ),
    )
    record(tx, notice, tx.limits.held_per_person)
    return notice


# Tasks whose skill is not there yet, because its source is late.


def waiting_text(progress: Progress | None) -> str | None:
    """Return the sentence of a progress that says for which skill the task waits; None for any
    other.
    """
    text = None if progress is None else progress.text
    return text if text is not None and text.startswith(_WAITS) else None


def report_waiting(
    tx: Transaction, skills: Sequence[str], late: Sequence[str], told: Collection[str]
) -> Sequence[str]:
    """Say of queued tasks that they wait for late sources: in their status, and by an event of
    those that were running. Return their ids.

    Other instances may have the skills, so nothing is said if there are any.

    Args:
        tx: the transaction.
        skills: the names of the skills of this instance.
        late: the names of the sources that are not ready.
        told: the ids of tasks of which it was said.
    """
    if leases.others_alive(tx, tx.instance):
        return ()
    names = ", ".join(late[:_MOST_NAMED])
    found = rows.queued_without(tx, skills, sorted(told), _MOST_AT_ONCE)
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
