"""The requests that this service sends to peers, and what their answers mean here."""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any, Final, TypeVar

import msgspec

from component import system
from component.agent_addresses import both_addresses
from component.config.peers import Peer
from component.features.peers import rows
from component.features.peers.rows import Call
from component.skills.context import Context
from component.skills.errors import RemoteError
from component.skills.inputs import Arguments
from component.skills.outputs import JSON, File, Link, Part, SkillResult
from component.skills.outputs import Output as TextOutput
from component.skills.validation import SchemaValidator
from component.store.database import Database
from component.tasks.outputs import part_of
from component.tasks.receipts import receipt_in
from component.tasks.rows import milliseconds
from xep.binding import encode
from xep.fluux_agent import errors
from xep.fluux_agent.delegation import Delegation
from xep.fluux_agent.errors import (
    BudgetExhausted,
    DeadlineExpired,
    Denied,
    Helps,
    HopsExceeded,
    Internal,
    Loop,
    OutcomeUnknown,
    RemoteFailure,
    Timeout,
)
from xep.fluux_agent.execute import Execute, Params, Result
from xep.fluux_agent.task import Failure
from xep.jid import JID
from xep.stanza_error import StanzaError

N = TypeVar("N", int, float)

MOST_HOPS: Final = 4
"""The `max-hops` of work that begins here."""
_PASSED_UP: Final[Mapping[type, Callable[..., StanzaError]]] = {
    Denied: errors.denied,
    DeadlineExpired: errors.deadline_expired,
    BudgetExhausted: errors.budget_exhausted,
    OutcomeUnknown: errors.outcome_unknown,
    Loop: errors.loop,
    HopsExceeded: errors.hops_exceeded,
}
"""The conditions that say more to a caller than that something failed further on (DLG-021)."""

_MAY_HAVE_RUN: Final = (Timeout, Internal, OutcomeUnknown, RemoteFailure)
"""The conditions of errors after which a peer may have done something, unless their type says that
it has not.
"""


def delegation_of(context: Context, sender: JID, peer: JID) -> Delegation:
    """Return what a request to a peer says about the work: for whom, and the path with its limits.

    Raises RemoteError: the peer is in the path, or the path would become too long (DLG-007).
    """
    given = context.delegation
    if given is None:
        given = Delegation(origin=JID.parse(context.principal), max_hops=MOST_HOPS, via=())
    via = (*given.via, sender)
    if not set(both_addresses(peer)).isdisjoint(via):
        raise RemoteError(errors.loop())
    if len(via) > given.max_hops:
        raise RemoteError(errors.hops_exceeded())
    trace = given.trace.split("-")[1] if given.trace else system.token_hex(16)
    return msgspec.structs.replace(given, via=via, trace=f"00-{trace}-{system.token_hex(8)}-01")


def new_call(
    peer: Peer, skill: str, arguments: Arguments, context: Context, sender: JID
) -> tuple[Call, Execute]:
    """Return the call of a skill of a peer, and what is sent, without limits of its costs. Raises
    RemoteError.
    """
    to = JID.parse(peer.jid)
    now, left = system.now(), context.remaining()
    seconds = peer.timeout_s if left is None else min(peer.timeout_s, left)
    deadline = now + timedelta(seconds=seconds)
    if context.deadline is not None:
        deadline = min(deadline, context.deadline)
    # In whole seconds, like the expiry of a grant, and not later than it may be (DLG-013).
    deadline = deadline.replace(microsecond=0)
    execute = Execute(
        skill=skill,
        mode="auto",
        request=context.key,
        deadline=deadline,
        # What the peer says about the work, and about tasks that it starts for it, has this thread.
        thread=context.key,
        json_params=Params(json=msgspec.Raw(msgspec.json.encode(arguments))),
        delegation=delegation_of(context, sender, to),
    )
    call = Call(
        id=context.key,
        task=context.task,
        peer=peer.name,
        address=str(to),
        sender=str(sender),
        request="",
        deadline=milliseconds(deadline),
        owner="",
        paid_by=context.paid_by,
    )
    return call, execute


def has_limits(peer: Peer) -> bool:
    """Return whether calls of a peer have limits of their costs."""
    return (peer.call_usd, peer.call_tokens, peer.day_usd, peer.day_tokens) != (None,) * 4


class Left(msgspec.Struct, frozen=True):
    """What is left of the budget that came with the work; None where it has no limit."""

    usd: float | None = None
    tokens: int | None = None


def allotted(database: Database, peer: Peer, call: Call, execute: Execute, left: Left) -> Call:
    """Return the call with what it may cost, and the XML that says so.

    It is run in the commit that stores the call, so calls that begin at the same time do not spend
    the same rest twice. Raises RemoteError: nothing is left.
    """
    day = rows.costs_of_day(database, peer.name)
    open_ = rows.costs_of(database, call.paid_by, ended=False)
    usd = _least(
        peer.call_usd,
        None if peer.day_usd is None else peer.day_usd - day.usd,
        None if left.usd is None else left.usd - open_.usd,
    )
    tokens = _least(
        peer.call_tokens,
        None if peer.day_tokens is None else peer.day_tokens - day.tokens,
        None if left.tokens is None else left.tokens - open_.tokens,
    )
    assert execute.delegation is not None, "each call of a peer has one"
    limited = msgspec.structs.replace(
        execute.delegation,
        budget_usd=None if usd is None else Decimal(f"{usd:.6f}"),
        budget_tokens=tokens,
    )
    request = encode(msgspec.structs.replace(execute, delegation=limited))
    return msgspec.structs.replace(
        call, request=request, usd=usd, tokens=tokens, created=database.now
    )


def _least(call: N | None, day: N | None, work: N | None) -> N | None:
    """Return the smallest limit: of one call, of the day, and of the work. Raises RemoteError:
    nothing is left of one.
    """
    helps: Sequence[tuple[N | None, Helps]]
    helps = ((call, "nothing"), (day, "later"), (work, "budget"))
    for limit, help_ in helps:
        if limit is not None and limit <= 0:
            raise RemoteError(errors.budget_exhausted(help_))
    return min((each for each in (call, day, work) if each is not None), default=None)


def result_of(result: Result) -> SkillResult:
    """Return the result of a peer as that of the skill here. Its texts are the peer's."""
    parts: list[Part] = []
    for output in result.outputs:
        part: File | Link | TextOutput | None
        if output.file is not None:
            part = part_of(output.file)
        else:
            part = TextOutput(output.text, output.type, output.name)
        if part is not None:
            parts.append(part)
    return SkillResult(tuple(parts), result.is_error)


def schema_mismatch(schema: Mapping[str, Any] | None, result: Result) -> str | None:
    """Return why the JSON of a result does not fit the output schema of its skill, None if it does.
    Other artifacts have no schema.
    """
    json = [one for one in result.outputs if one.type == JSON and one.file is None]
    if schema is None or result.is_error or len(json) != 1:
        return None
    try:
        wrong = SchemaValidator(schema).mismatch(msgspec.json.decode(json[0].text))
    except (ValueError, RecursionError) as error:
        return f"it is not JSON: {error}"
    return None if wrong is None else f"{wrong.place or 'it'}: {wrong.reason}"


def failure_of(error: StanzaError, *, unknown: bool = False) -> Failure:
    """Return the failure to store for an error of a peer, or on the way to it.

    `unknown` says that the peer may have run the skill in spite of it.
    """
    has_run = error.type != "wait" and isinstance(
        error.application[0] if error.application else None, _MAY_HAVE_RUN
    )
    failure = Failure.of(error, repeatable=not unknown and not has_run)
    return msgspec.structs.replace(failure, receipt=receipt_in(error))


def revoked() -> StanzaError:
    """Return the error of a call whose grant was revoked to end it."""
    error = errors.denied()
    error.text = "An admin has revoked the grant of this work, so it was cancelled."
    return error


def error_of(failure: Failure, peer: str) -> RemoteError:
    """Return what the skill here raises for a failure of a peer (DLG-021)."""
    text = failure.texts[0].text if failure.texts else ""
    for condition in failure.conditions:
        make = _PASSED_UP.get(type(condition))
        if make is not None:
            if isinstance(condition, Denied | BudgetExhausted):
                made = make(condition.helps)
            else:
                made = make()
            made.text = text or made.text
            return RemoteError(made)
    error = errors.remote_failure(repeatable=failure.repeatable)
    error.text = f"{peer} could not do this: {text}" if text else f"{peer} could not do this."
    return RemoteError(error)
