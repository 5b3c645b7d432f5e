"""Going on with a task that waited: whether it may, and from where."""

from collections.abc import Callable, Sequence

import msgspec
import structlog

from component.skills.declare import AnySkill
from component.storage.database import Database
from component.tasks import admit, leases
from component.tasks.admit import Limits
from component.tasks.confirmation import confirm_for, covers, lapses
from component.tasks.protocol import Call, Confirmation, Question
from component.tasks.questions import approved_of, ask_confirmation, put_question
from component.tasks.replay import digest_of, end
from component.tasks.request import request_of
from component.tasks.rows import Change, Row, load_owned, moment
from xep.binding import read
from xep.fluux_agent import errors
from xep.fluux_agent.execute import Output
from xep.jid import JID
from xep.stanza_error import StanzaError

_log = structlog.get_logger("component.tasks")


class Verdict(msgspec.Struct, frozen=True):
    """Whether a task can be run by this release, for its principal.

    `call` is None if its skill has gone, or takes other parameters by now.
    """

    call: Call | None
    allowed: bool = True

    def again(self, key: str) -> Call:
        """The same as a new request."""
        assert self.call is not None
        execute = msgspec.structs.replace(self.call.execute, request=None, deadline=None)
        return msgspec.structs.replace(
            self.call, execute=execute, key=key, digest=digest_of(execute)
        )


class Resumed(msgspec.Struct, frozen=True):
    """What taking a task up has made of it."""

    row: Row
    changes: Sequence[Change] = ()
    question: Question | None = None
    journal: leases.Journal | None = None
    parts: Sequence[Output] = ()


def verdict_of(
    row: Row,
    skill_of: Callable[[str], AnySkill | None],
    may_use: Callable[[JID, AnySkill], bool],
) -> Verdict:
    """Judge again what was judged at admission (CNF-042)."""
    skill = skill_of(row.skill)
    if skill is None:
        return Verdict(None)
    principal = JID.parse(row.principal)
    try:
        request = request_of(row)
        execute = request.asked
        arguments = msgspec.json.decode(request.arguments, type=skill.inputs.struct)
    except Exception:  # noqa: BLE001 - a skill's own types may raise anything
        _log.exception("a task holds what cannot be read any more", task=row.id, skill=row.skill)
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
        execute=execute,
        key="",
        digest="",
        origin=request.origin,
        lang=request.lang,
        hand=request.hand,
        confirmation=confirmation,
    )
    return Verdict(call, may_use(principal, skill))


def resume(
    database: Database,
    row: Row,
    verdict: Verdict,
    owner: str,
    question_id: str,
    limits: Limits,
) -> Resumed:
    """Make a claimed task running, or settle why it cannot be. Raises LostError."""
    mine = load_owned(database, row.id, row.token)
    journal = leases.journal_of(database, mine.id)
    call = verdict.call
    refusal = _refusal(mine, verdict, journal)
    if refusal is not None:
        fresh = mine.state == "accepted" and not journal.done and not journal.begun
        rejected = fresh and not verdict.allowed
        made = end(
            *(database, mine, "rejected" if rejected else "failed", refusal),
            repeatable=fresh or _repeatable(call),
            retention_ms=limits.retention_ms,
        )
        return Resumed(mine, (made,))
    assert call is not None
    if mine.state == "accepted" and not _is_confirmed(database, mine, call):
        database.execute("UPDATE tasks SET version = ? WHERE id = ?", (call.skill.version, mine.id))
        mine.version = call.skill.version
        try:
            made = ask_before(database, mine, call, question_id)
        except StanzaError as error:  # it could be asked once, by the limits of another release
            made = end(
                *(database, mine, "failed", error),
                repeatable=True,
                retention_ms=limits.retention_ms,
            )
            return Resumed(mine, (made,))
        return Resumed(mine, (made,), put_question(database, mine))
    changes: list[Change] = []
    atomic = not (call.skill.durable or call.skill.annotations.repeatable)
    if mine.state == "accepted":
        changes.append(admit.begin(database, mine, owner, atomic=atomic))
    elif atomic:
        admit.begin_step(database, mine, admit.ATOMIC)
    found = database.execute(
        "SELECT p.output FROM parts p WHERE p.task = ? ORDER BY p.name, p.part", (mine.id,)
    ).fetchall()
    parts = [read(text, Output) for (text,) in found]
    return Resumed(mine, changes, journal=journal, parts=parts)


def _is_confirmed(database: Database, row: Row, call: Call) -> bool:
    """Whether what would run is exactly what was approved, if it had to be (CNF-040, CNF-041)."""
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


def _refusal(row: Row, verdict: Verdict, journal: leases.Journal) -> StanzaError | None:
    """Why a task cannot go on; None if it can."""
    call = verdict.call
    if journal.begun and not _repeatable(call):
        return errors.outcome_unknown()
    if not verdict.allowed:
        return errors.forbidden("The principal may not execute this skill any more.")
    if call is None:
        return errors.internal()
    if not row.visible and call.execute.mode == "inline":
        return errors.timed_out(repeatable=_repeatable(call))
    return None


def _repeatable(call: Call | None) -> bool:
    return call is not None and call.skill.annotations.repeatable
