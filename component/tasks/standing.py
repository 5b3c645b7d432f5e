"""Standing approvals: a person allows actions of one kind for a while, and is not asked again.

After `EQUAL` equal approvals, the next question of that kind offers it in words. The answer
*always* approves the action, and stores the offer with its digest. It is used in place of a
question if all of the following hold, which is judged for each action when it is admitted, and
again when it begins:

- It is of the same kind: the same agent, person and skill, and the same parameters, except texts
  that the author of the skill has marked (`component.skills.free_texts`). The skill has the same
  description and version, the same agent asks, and its rule has not changed.
- The person has asked for it: herself, by a model that has read nothing of strangers, by a schedule
  that she has made, or by a task whose skill returns nothing of strangers. Not in a room, and not
  for somebody else.
- Only the person has to confirm it: the rule of the skill names no approvers and does not ask
  always.
- The skill runs no programs and pays nothing, and the operator has described it.
- It has not expired and is not used up, and no question of the kind was denied since.

Nothing inherits it: what an action starts is another action, for which all of this is judged.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from component.agent_addresses import canonical_address
from component.audit.protocol import AuditEvent
from component.policy import ConfirmationRule
from component.policy.flows import TRUSTED
from component.policy.policy import ASKS_PEERS
from component.skills.free_texts import free_texts
from component.skills.skill import Skill
from component.store.database import Database
from component.tasks import question_rows, rows, standing_rows
from component.tasks.changes import Change, Transaction
from component.tasks.questions import ALGORITHM, SEVERAL_CALLS, ask_question, lapses
from component.tasks.request import Request
from component.tasks.rows import Row
from component.tasks.standing_rows import Kind, StandingApproval
from xep.fluux_agent.confirm import (
    Action,
    Confirm,
    FreeText,
    Standing,
    StandingText,
    parameters_of,
    standing_digest_of,
)
from xep.hashes import Hash
from xep.jid import JID

EQUAL: Final = 3
"""The number of equal approvals after which a question offers a standing one."""
NEVER: Final = frozenset(("shell", "exec", "payment"))
"""The kinds of capabilities of skills that are always asked about."""
MOST_USD: Final = 0.1
"""A call that costs more, in US dollars, is always asked about."""
_LONGEST_TEXT: Final = 1_000

Wording: TypeAlias = Callable[[Skill, Mapping[str, Any], Collection[str]], str]
"""Returns what calls of a skill with these parameters do, as a part of a sentence; those that are
named have any text. Empty if the parameters are too long for a sentence.
"""


class Starter(msgspec.Struct, frozen=True):
    """The task that starts an action: its skill, and its parent."""

    skill: str
    parent: str | None


class StandingApprovals:
    """Offers standing approvals, and uses them.

    Args:
        find: returns a skill by its name; None if it does not exist.
        asking: returns the confirmation rule for a skill by its name.
        wording: puts calls into words.
        days: how long a standing approval is valid.
        uses: how often it can be used; 0 offers and uses none.
    """

    def __init__(
        self,
        find: Callable[[str], Skill | None],
        asking: Callable[[str], ConfirmationRule],
        wording: Wording,
        days: int = 30,
        uses: int = 50,
    ) -> None:
        self._find = find
        self._asking = asking
        self._wording = wording
        self._days = days
        self._uses = uses

    def replace(self, days: int, uses: int) -> None:
        """Apply other settings. Those that were given stay as they are, unless `uses` is 0."""
        self._days, self._uses = days, uses

    def ask(
        self, tx: Transaction, row: Row, request: Request, skill: Skill, confirm: Confirm
    ) -> Change | None:
        """Ask for the confirmation of a task, and offer a standing approval if it may be. If there
        is one for this action, use it and return None: the task is confirmed.
        """
        assert request.confirmation is not None
        starter = _starter(tx, row.parent)
        found = self.applying(tx, request, skill, confirm.action, starter)
        left = None if found is None else standing_rows.use(tx, found.id)
        if found is not None and left is not None:
            question_rows.insert_approved(tx, row, confirm, request.principal.bare)
            kind = Kind(found.kind, found.basis)
            standing_rows.insert_kinds(tx, confirm.id, [kind], approval=found.id)
            tx.audited.append(_event_of(row, request, found, left))
            return None
        if skill.name == SEVERAL_CALLS:
            made = ask_question(tx, row, confirm, request.confirmation.asked)
            if made.question is not None:
                self.note_several(tx, request, confirm)
            return made
        kind = self._kind(request, skill, parameters_of(confirm.action))
        allowed = self._is_allowed(tx, request, skill, starter)
        if allowed and standing_rows.equal_approvals(tx, kind) >= EQUAL:
            confirm = self._with_offer(tx, request, skill, confirm)
        made = ask_question(tx, row, confirm, request.confirmation.asked)
        if made.question is not None:
            standing_rows.insert_kinds(tx, confirm.id, [kind], counts=allowed)
        return made

    def note_several(self, tx: Transaction, request: Request, confirm: Confirm) -> None:
        """Note of which kinds the calls of a question about several are: its denial is one of each
        of them. Its approval counts for none of them.
        """
        kinds: list[Kind] = []
        for label, params in parameters_of(confirm.action).items():
            name, _, _ = label.partition(". ")[2].rpartition(" ")
            if (skill := self._find(name)) is not None:
                kinds.append(self._kind(request, skill, params))
        standing_rows.insert_kinds(tx, confirm.id, kinds)

    def applying(
        self,
        database: Database,
        request: Request,
        skill: Skill,
        action: Action,
        starter: Starter | None = None,
    ) -> StandingApproval | None:
        """Return the standing approval that can be used for an action; None if there is none.

        The request says who has to confirm it. `starter` is the task that starts it, if one does.
        """
        if not self._is_allowed(database, request, skill, starter):
            return None
        kind = self._kind(request, skill, parameters_of(action))
        found = standing_rows.of_kind(database, kind)
        if found is None or found.basis != kind.basis or found.until <= database.steady:
            return None
        return found if found.uses > 0 and _covers(found, request.principal, action) else None

    def holds(
        self, tx: Transaction, row: Row, request: Request, skill: Skill, confirm: Confirm
    ) -> bool:
        """Return whether an approved confirmation of a task that has not begun still counts: a
        person has given it, or a standing approval that would still apply.
        """
        approval = standing_rows.approval_of(tx, confirm.id)
        if approval is None:
            return True
        kind = self._kind(request, skill, parameters_of(confirm.action))
        found = standing_rows.of_kind(tx, kind)
        return (
            found is not None
            and (found.id, found.basis) == (approval, kind.basis)
            and found.until > tx.steady
            and self._is_allowed(tx, request, skill, _starter(tx, row.parent))
        )

    def _is_allowed(
        self, database: Database, request: Request, skill: Skill, starter: Starter | None
    ) -> bool:
        """Return whether a standing approval may be offered and used for an action."""
        context, needed = request.caller_context, request.confirmation
        rule = self._asking(skill.name)
        return (
            self._uses > 0
            and needed is not None
            and needed.is_only_of(request.principal.bare)
            and rule.when != "always"
            and not rule.has_approvers
            and request.delegation is None
            and context.asker in ("caller", "model")
            and TRUSTED.issuperset(context.taints)
            and not (context.chosen or context.reserved or context.operator)
            and context.room is None
            and not context.occupant
            and (context.own_schedule or not context.unrequested)
            and _is_harmless(skill)
            and all(map(self._returns_own, _starters(database, starter)))
        )

    def _returns_own(self, name: str) -> bool:
        """Return whether the results of a skill have nothing that strangers could have written."""
        skill = self._find(name)
        return skill is not None and skill.taint in (None, *TRUSTED)

    def _kind(self, request: Request, skill: Skill, params: Mapping[str, Any]) -> Kind:
        free = sorted(free_texts(skill.input_schema))
        what = {
            "agent": str(canonical_address(request.target)),
            "free": free,
            "params": {name: value for name, value in params.items() if name not in free},
            "person": str(request.principal.bare),
            "skill": skill.name,
        }
        rule = self._asking(skill.name).when
        return Kind(
            _digest(what), _digest([skill.digest.hex(), request.caller_context.agent, rule])
        )

    def _with_offer(
        self, tx: Transaction, request: Request, skill: Skill, confirm: Confirm
    ) -> Confirm:
        """Return the question with the offer of a standing approval, unless it would be too long to
        be read.
        """
        params = parameters_of(confirm.action)
        free = sorted(free_texts(skill.input_schema) & params.keys())
        what = self._wording(skill, params, free)
        until = rows.moment(lapses(tx.now, self._days * 86_400, None))
        often = "once" if self._uses == 1 else f"{self._uses} times"
        text = (
            f"Until {until:%Y-%m-%d %H:%M} UTC and at most {often}, I may do this without asking:"
            f" {what}."
        )
        if not what or len(text) > _LONGEST_TEXT:
            return confirm
        offer = Standing(
            until=until,
            uses=self._uses,
            text=StandingText(text=text, lang="en"),
            free=tuple([FreeText(name=name) for name in free]),
        )
        confirm = msgspec.structs.replace(confirm, standing=offer)
        digest = Hash(algo=ALGORITHM, digest=standing_digest_of(request.target, confirm))
        return msgspec.structs.replace(
            confirm, standing=msgspec.structs.replace(offer, hash=digest)
        )


def _event_of(row: Row, request: Request, found: StandingApproval, left: int) -> AuditEvent:
    """Return the audit event of a use of a standing approval, of which so many uses are left."""
    context = request.caller_context
    return AuditEvent(
        kind="confirmation",
        outcome="approved",
        principal=row.principal,
        agent=context.agent,
        trace=context.trace or found.id,
        subject=row.skill,
        task=row.id,
        detail=f"standing approval {found.id}, of which {left} uses are left",
    )


def _starter(database: Database, task: str | None) -> Starter | None:
    """Return a task as the one that starts an action, with no skill if it does not exist."""
    if task is None:
        return None
    row = rows.load(database, task, lock=False)
    return Starter("", None) if row is None else Starter(row.skill, row.parent)


def _starters(database: Database, starter: Starter | None) -> Iterator[str]:
    """Yield the names of the skills whose tasks have led to an action."""
    while starter is not None:
        yield starter.skill
        starter = _starter(database, starter.parent)


def _is_harmless(skill: Skill) -> bool:
    """Return whether calls of a skill may go without a question at all."""
    kinds = {one.partition(":")[0] for one in skill.capabilities}
    return (
        not (skill.hidden or kinds & NEVER)
        and skill.described_by in (None, *TRUSTED)
        and skill.name not in (SEVERAL_CALLS, ASKS_PEERS)
        and (skill.cost_usd or 0) <= MOST_USD
    )


def _covers(found: StandingApproval, principal: JID, action: Action) -> bool:
    """Return whether the digest of the offer that the person has accepted covers an action."""
    accepted = found.content
    now = msgspec.structs.replace(accepted, principal=principal.bare, action=action)
    offer = accepted.standing
    return (
        offer is not None
        and offer.hash is not None
        and standing_digest_of(JID.parse(found.address), now) == offer.hash.digest
    )


def _digest(value: Any) -> str:
    import rfc8785  # noqa: PLC0415

    return hashlib.sha256(rfc8785.dumps(value)).hexdigest()
