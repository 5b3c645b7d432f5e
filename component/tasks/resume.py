"""Resumes a waiting task: decides whether it may run, and from where."""

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Final

import msgspec
import structlog

from component.skills.errors import printable
from component.skills.skill import Skill
from component.storage.database import Database
from component.storage.notifications import Notification, record
from component.tasks import admit, instances
from component.tasks.admit import TaskLimits
from component.tasks.confirmation import confirm_for, covers, lapses
from component.tasks.idempotency import end
from component.tasks.journal import ATOMIC, Journal, StepId, begin_step, read_journal
from component.tasks.protocol import Call, Confirmation
from component.tasks.questions import approved_of, ask_confirmation
from component.tasks.request import request_of
from component.tasks.request_keys import NO_KEY
from component.tasks.rows import Change, Row, change, load_owned, moment
from component.tasks.store import Transaction
from component.tasks.waiting import waiting_text
from xep.binding import encode, read
from xep.fluux_agent import errors
from xep.fluux_agent.execute import Output
from xep.fluux_agent.task import Progress
from xep.jid import JID
from xep.stanza_error import StanzaError

_log = structlog.get_logger("component.tasks")

_LONGEST_TITLE: Final = 200


class Verdict(msgspec.Struct, frozen=True):
    """Whether this release can run a task for its principal.

    `call` is None if its skill no longer exists, or now takes different parameters; `known` says
    whether this release has the skill.
    """

    call: Call | None
    allowed: bool = True
    refusal: StanzaError | None = None
    """Why the task cannot be confirmed."""
    decided: bool = False
    """The confirmers were determined just now."""
    known: bool = True


class Resumed(msgspec.Struct, frozen=True):
    """The outcome of resuming a task."""

    row: Row
    journal: Journal | None = None
    parts: Sequence[Output] = ()
    unfit: bool = False
    """This instance cannot run the task; it is left to the others."""
    notice: Notification | None = None
    """The notification to the principal, if the task was set aside."""


def verdict_of(
    row: Row,
    skill_of: Callable[[str], Skill | None],
    may_use: Callable[[JID, Skill], bool],
) -> Verdict:
    """Repeat the checks of admission (CNF-042)."""
    skill = skill_of(row.skill)
    if skill is None:
        return Verdict(None, known=False)
    principal = JID.parse(row.principal)
    try:
        request = request_of(row)
        skill_call = request.asked
        arguments = msgspec.json.decode(request.arguments, type=skill.inputs.type)
    except Exception:  # noqa: BLE001 - a skill's own types may raise anything
        _log.exception(
            "a task contains data that can no longer be read", task=row.id, skill=row.skill
        )
        return Verdict(None, allowed=may_use(principal, skill))
    confirmation = None
    if request.confirmers:
        asked = tuple([JID.parse(one) for one in request.confirmers])
        confirmation = Confirmation(asked, request.risk, request.confirm_s)
    call = Call(
        principal=principal,
        requester=JID.parse(row.requester),
        target=JID.parse(row.target),
        skill=skill,
        arguments=arguments,
        request=skill_call,
        key=NO_KEY,
        origin=request.origin,
        lang=request.lang,
        caller_context=request.caller_context,
        confirmation=confirmation,
        undecided=request.undecided,
    )
    return Verdict(call, may_use(principal, skill))


def resume(
    tx: Transaction,
    row: Row,
    verdict: Verdict,
    owner: str,
    question_id: str,
    limits: TaskLimits,
    *,
    late: bool = False,
) -> Resumed:
    """Set a claimed task to running, or settle why it cannot run. `late` says that skills may
    still come.

    Raises LostError.
    """
    mine = load_owned(tx, row.id, row.token)
    # cancelled after it was claimed, when no execution could be stopped
    if mine.state == "cancelling":
        tx.publish(instances.end_cancelled(tx, mine, retention_ms=limits.retention_ms))
        return Resumed(mine)
    journal = read_journal(tx, mine.id)
    call = verdict.call
    waits = not verdict.known and (late or tx.dialect == "postgresql")
    if call is None and (waits or instances.others_alive(tx, owner)):
        # Another release may have the skill, or accept these parameters. That instance may be
        # restarting, so the task waits for it even if no other instance runs, as it does in a
        # claim.
        instances.release(tx, mine, retention_ms=limits.retention_ms, drained=True)
        instances.wake_one(tx, but=owner)
        return Resumed(mine, unfit=True)
    refusal = _refusal(mine, verdict, journal)
    if refusal is not None:
        fresh = mine.state == "accepted" and not journal.done and not journal.begun
        rejected = fresh and (not verdict.allowed or verdict.refusal is not None)
        tx.publish(
            end(
                *(tx, mine, "rejected" if rejected else "failed", refusal),
                repeatable=fresh or _repeatable(call),
                retention_ms=limits.retention_ms,
            )
        )
        return Resumed(mine)
    assert call is not None
    if mine.progress is not None and waiting_text(read(mine.progress, Progress)) is not None:
        mine.progress = None
        tx.execute("UPDATE tasks SET progress = NULL WHERE id = ?", (mine.id,))
    if verdict.decided:
        mine.request = admit.request_row(call, limits)
        tx.execute("UPDATE tasks SET request = ? WHERE id = ?", (mine.request, mine.id))
    if mine.state == "accepted" and not _is_confirmed(tx, mine, call):
        tx.execute("UPDATE tasks SET version = ? WHERE id = ?", (call.skill.version, mine.id))
        mine.version = call.skill.version
        try:
            made = ask_before(tx, mine, call, question_id)
        except StanzaError as error:  # the limits of another release allowed the question
            retention_ms = limits.retention_ms
            made = end(tx, mine, "failed", error, repeatable=True, retention_ms=retention_ms)
        tx.publish(made)
        return Resumed(mine)
    if mine.attempts >= limits.max_attempts:
        return Resumed(mine, notice=_set_aside(tx, mine, call, limits))
    atomic = not (call.skill.durable or call.skill.annotations.repeatable)
    if mine.state == "accepted":
        tx.publish(admit.begin(tx, mine, owner, atomic=atomic))
    else:
        mine.attempts += 1
        tx.execute("UPDATE tasks SET attempts = ? WHERE id = ?", (mine.attempts, mine.id))
        if atomic:
            begin_step(tx, mine.id, mine.token, StepId(ATOMIC))
    found = tx.execute(
        "SELECT p.output FROM parts p WHERE p.task = ? ORDER BY p.name, p.part", (mine.id,)
    ).fetchall()
    parts = [read(text, Output) for (text,) in found]
    return Resumed(mine, journal=journal, parts=parts)


def _set_aside(tx: Transaction, row: Row, call: Call, limits: TaskLimits) -> Notification | None:
    """Prevent further executions until an operator decides.

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
        row.owner, row.token, row.progress = None, row.token + 1, encode(Progress(text=why))
        tx.execute(
            "UPDATE tasks SET owner = NULL, token = ?, set_aside = ?, progress = ? WHERE id = ?",
            (row.token, why, row.progress, row.id),
        )
    _log.error(
        "set a task aside: the process crashed during each of its executions; look for its skill "
        "in the log before the crashes, then run `xmpp-agent tasks release` or `tasks cancel`",
        task=row.id,
        skill=row.skill,
        attempts=row.attempts,
    )
    if call.principal.local is None:
        return None  # a service, which nobody reads
    name = printable(call.skill.title, _LONGEST_TITLE)
    notice = Notification(
        id=sha256(f"{row.id} {row.token}".encode()).hexdigest()[:32],
        agent=call.target.bare,
        person=call.principal.bare,
        title=name,
        text=(
            f"I could not finish this: {name}. The service crashed {row.attempts} times while it"
            " was running, so I have stopped trying. My operator decides whether it runs again"
            f" (task {row.id})."
        ),
    )
    record(tx, notice, limits.held_per_person)
    return notice


def _is_confirmed(database: Database, row: Row, call: Call) -> bool:
    """Return whether the action that would run is exactly the one approved, if approval was needed
    (CNF-040, CNF-041).
    """
    if call.confirmation is None:
        return True
    approved = approved_of(database, row.id)
    return approved is not None and covers(
        call.target, approved, call.principal, call.skill, call.arguments
    )


def ask_before(database: Database, row: Row, call: Call, question_id: str) -> Change:
    """Ask for the confirmation of a call before it begins. Raises StanzaError: `invalid-param`."""
    assert call.confirmation is not None
    expires = lapses(database.now, call.confirmation.expires_s, row.deadline)
    confirm = confirm_for(
        *(call.target, row.id, call.principal, call.skill, call.arguments),
        id=question_id,
        expires=moment(expires),
        risk=call.confirmation.risk,
    )
    return ask_confirmation(database, row, confirm, call.confirmation.asked)


def _refusal(row: Row, verdict: Verdict, journal: Journal) -> StanzaError | None:
    """Return why a task cannot continue; None if it can."""
    call = verdict.call
    if journal.begun and not _repeatable(call):
        return errors.outcome_unknown()
    if not verdict.allowed:
        return errors.forbidden("The principal may no longer execute this skill.")
    if verdict.refusal is not None:
        return verdict.refusal
    if call is None:
        return errors.internal()
    if not row.visible and call.request.mode == "inline":
        return errors.timed_out(repeatable=_repeatable(call))
    return None


def _repeatable(call: Call | None) -> bool:
    return call is not None and call.skill.annotations.repeatable
