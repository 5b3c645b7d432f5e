"""urn:fluux:agent:0#errors, the conditions inside stanza errors (RFC 6120 §8.3.4).

Each condition has a function that creates the whole error, so that one failure always has one
stanza error. Texts are for people and never contain a traceback or a secret.
"""

from collections.abc import Iterable
from typing import Annotated, Final, Literal, TypeAlias, get_args

from xep.binding import Attr, Name, Payload
from xep.fluux_agent import NAMESPACE as AGENT
from xep.stanza_error import StanzaError

NAMESPACE: Final = f"{AGENT}#errors"

Helps: TypeAlias = Literal["nothing", "approval", "later", "budget"]
"""What can lead to another answer to a refused request: nothing, the approval of another person, a
later time, or a larger budget (ERR-008).
"""


class Malformed(Payload, frozen=True, kw_only=True):
    """The request does not match its declaration."""

    xml = Name(NAMESPACE, "malformed")


class InvalidParam(Payload, frozen=True, kw_only=True):
    """The parameter ``name`` does not match the skill's input schema."""

    xml = Name(NAMESPACE, "invalid-param")

    name: Annotated[str, Attr()]


class UnknownSkill(Payload, frozen=True, kw_only=True):
    """The skill does not exist, or this requester may not use it."""

    xml = Name(NAMESPACE, "unknown-skill")


class ModeUnavailable(Payload, frozen=True, kw_only=True):
    """The skill does not support the requested mode."""

    xml = Name(NAMESPACE, "mode-unavailable")


class ConfirmationUnavailable(Payload, frozen=True, kw_only=True):
    """The skill needs a person's confirmation, and nobody can be asked."""

    xml = Name(NAMESPACE, "confirmation-unavailable")


class DeadlineExpired(Payload, frozen=True, kw_only=True):
    """The deadline passed before there was a result."""

    xml = Name(NAMESPACE, "deadline-expired")


class TooBig(Payload, frozen=True, kw_only=True):
    """The request, or its result, is larger than ``limit`` bytes, or has too many or too deeply
    nested elements.
    """

    xml = Name(NAMESPACE, "too-big")

    limit: Annotated[int | None, Attr()] = None


class Retry(Payload, frozen=True, kw_only=True):
    """The refusal is temporary: the same request may be sent again ``after`` so many seconds."""

    xml = Name(NAMESPACE, "retry")

    after: Annotated[int, Attr()]


class Timeout(Payload, frozen=True, kw_only=True):
    """The skill did not finish in time. Whether it had an effect is not known."""

    xml = Name(NAMESPACE, "timeout")


class Internal(Payload, frozen=True, kw_only=True):
    """The agent has an internal error; the request is valid."""

    xml = Name(NAMESPACE, "internal")


class DelegationUnavailable(Payload, frozen=True, kw_only=True):
    """Work on behalf of somebody else is not accepted."""

    xml = Name(NAMESPACE, "delegation-unavailable")


class GrantRequired(Payload, frozen=True, kw_only=True):
    """Work on behalf of somebody else is accepted with a chain of grants only."""

    xml = Name(NAMESPACE, "grant-required")


class InvalidGrant(Payload, frozen=True, kw_only=True):
    """The chain of grants does not permit the request; ``reason`` names the rule that it breaks."""

    xml = Name(NAMESPACE, "invalid-grant")

    reason: Annotated[str, Attr()]


class UnknownTask(Payload, frozen=True, kw_only=True):
    """The task does not exist, or belongs to another principal."""

    xml = Name(NAMESPACE, "unknown-task")


class UnknownInput(Payload, frozen=True, kw_only=True):
    """The task never asked this question."""

    xml = Name(NAMESPACE, "unknown-input")


class UnknownConfirmation(Payload, frozen=True, kw_only=True):
    """The confirmation does not exist, or another person was asked."""

    xml = Name(NAMESPACE, "unknown-confirmation")


class Forbidden(Payload, frozen=True, kw_only=True):
    """The requester may see this but not change it."""

    xml = Name(NAMESPACE, "forbidden")


class Conflict(Payload, frozen=True, kw_only=True):
    """It contradicts an earlier commit."""

    xml = Name(NAMESPACE, "conflict")


class Expired(Payload, frozen=True, kw_only=True):
    """The answer arrived after the question had expired."""

    xml = Name(NAMESPACE, "expired")


class Denied(Payload, frozen=True, kw_only=True):
    """The person who was asked declined; ``helps`` says what can lead to another decision."""

    xml = Name(NAMESPACE, "denied")

    helps: Annotated[Helps, Attr(always=True)] = "nothing"


class ConfirmationExpired(Payload, frozen=True, kw_only=True):
    """Nobody confirmed the action in time."""

    xml = Name(NAMESPACE, "confirmation-expired")


class InputExpired(Payload, frozen=True, kw_only=True):
    """Nobody answered the task's question in time."""

    xml = Name(NAMESPACE, "input-expired")


class OutcomeUnknown(Payload, frozen=True, kw_only=True):
    """A step had begun without a record of its end. Whether it had an effect is not known."""

    xml = Name(NAMESPACE, "outcome-unknown")


class OverQuota(Payload, frozen=True, kw_only=True):
    """The requester has used up its current quota."""

    xml = Name(NAMESPACE, "over-quota")


class BudgetExhausted(Payload, frozen=True, kw_only=True):
    """The work exceeds its budget of money or tokens; ``helps`` says what makes it possible."""

    xml = Name(NAMESPACE, "budget-exhausted")

    helps: Annotated[Helps, Attr(always=True)] = "budget"


class Loop(Payload, frozen=True, kw_only=True):
    """The work has passed through this agent before."""

    xml = Name(NAMESPACE, "loop")


class HopsExceeded(Payload, frozen=True, kw_only=True):
    """The work has passed through more agents than allowed."""

    xml = Name(NAMESPACE, "hops-exceeded")


class RemoteFailure(Payload, frozen=True, kw_only=True):
    """An agent or a service that the work needs failed, or could not be reached."""

    xml = Name(NAMESPACE, "remote-failure")


Condition = (
    Malformed
    | InvalidParam
    | UnknownSkill
    | UnknownTask
    | UnknownInput
    | UnknownConfirmation
    | Forbidden
    | ModeUnavailable
    | DelegationUnavailable
    | GrantRequired
    | InvalidGrant
    | ConfirmationUnavailable
    | Denied
    | ConfirmationExpired
    | InputExpired
    | Expired
    | DeadlineExpired
    | Conflict
    | OverQuota
    | BudgetExhausted
    | TooBig
    | Retry
    | Loop
    | HopsExceeded
    | Timeout
    | RemoteFailure
    | OutcomeUnknown
    | Internal
)
CONDITIONS: Final[tuple[type[Payload], ...]] = get_args(Condition)
"""All conditions, for ``StanzaError.of``."""

_HELPS: Final[dict[type[Payload], Helps]] = {
    Forbidden: "nothing",
    InvalidGrant: "nothing",
    Loop: "nothing",
    HopsExceeded: "nothing",
    ConfirmationUnavailable: "approval",
    ConfirmationExpired: "approval",
    OverQuota: "later",
    Retry: "later",
}


def helps_of(conditions: Iterable[Payload]) -> Helps | None:
    """Return what can lead to another answer; None if the conditions are not those of a refusal."""
    for one in conditions:
        found = one.helps if isinstance(one, Denied | BudgetExhausted) else _HELPS.get(type(one))
        if found is not None:
            return found
    return None


def malformed(reason: str) -> StanzaError:
    """Return ``bad-request``: the request does not match its declaration."""
    return StanzaError("bad-request", reason, application=(Malformed(),))


def invalid_param(name: str, reason: str) -> StanzaError:
    """Return ``bad-request`` with the name of a parameter and the reason why it is invalid."""
    return StanzaError("bad-request", f"{name}: {reason}", application=(InvalidParam(name=name),))


def unknown_skill() -> StanzaError:
    """Return ``item-not-found``: the requester has no such skill. The text is always the same."""
    return StanzaError(
        "item-not-found", "There is no such skill here.", application=(UnknownSkill(),)
    )


def unknown_skill_version(version: str) -> StanzaError:
    """Return ``item-not-found``: the requester has the skill, in another version than was named."""
    text = f"This skill has the version {version} now. Look at it again before you execute it."
    return StanzaError("item-not-found", text, application=(UnknownSkill(),))


def mode_unavailable(mode: str) -> StanzaError:
    """Return ``feature-not-implemented``: the requested mode is not available."""
    return StanzaError(
        "feature-not-implemented",
        f"This skill cannot be run in mode {mode}.",
        application=(ModeUnavailable(),),
    )


def unknown_task() -> StanzaError:
    """Return ``item-not-found``: the requester has no such task. The text is always the same."""
    return StanzaError(
        "item-not-found", "There is no such task here.", application=(UnknownTask(),)
    )


def unknown_input() -> StanzaError:
    """Return ``item-not-found``: the task asked no such question."""
    return StanzaError(
        "item-not-found", "The task asks no such question.", application=(UnknownInput(),)
    )


def unknown_confirmation() -> StanzaError:
    """Return ``item-not-found``: the sender was asked for no such confirmation. The text is always
    the same.
    """
    return StanzaError(
        "item-not-found",
        "There is no such confirmation here.",
        application=(UnknownConfirmation(),),
    )


def forbidden(reason: str) -> StanzaError:
    """Return ``forbidden``: the requester may see the object but not change it."""
    return StanzaError("forbidden", reason, application=(Forbidden(),))


def delegation_unavailable() -> StanzaError:
    """Return ``feature-not-implemented``: work on behalf of somebody else is not accepted."""
    return StanzaError(
        "feature-not-implemented",
        "This agent takes no delegated work.",
        application=(DelegationUnavailable(),),
    )


def grant_required() -> StanzaError:
    """Return ``not-authorized``: delegated work is accepted with a chain of grants only."""
    return StanzaError(
        "not-authorized",
        "Delegated work of this agent needs a grant of each agent in its path.",
        application=(GrantRequired(),),
    )


def invalid_grant(reason: str, text: str) -> StanzaError:
    """Return ``forbidden``: the chain of grants does not permit the request."""
    return StanzaError("forbidden", text, application=(InvalidGrant(reason=reason),))


def confirmation_unavailable(
    why: str = "This skill needs the confirmation of a person, and nobody can be asked for it.",
) -> StanzaError:
    """Return ``not-allowed``: the skill needs a confirmation that nobody can give."""
    return StanzaError("not-allowed", why, application=(ConfirmationUnavailable(),))


def too_few_approvers(able: int, need: int) -> StanzaError:
    """Return ``not-allowed``: fewer persons can be asked than have to approve."""
    who = {0: "nobody", 1: "one person"}.get(able, f"{able} persons")
    return confirmation_unavailable(
        f"This skill needs {need} approvals, and {who} can be asked for it."
    )


def deadline_expired() -> StanzaError:
    """Return ``not-acceptable``: the request, or its result, is later than the deadline."""
    return StanzaError(
        "not-acceptable",
        "The deadline had passed before the result was there.",
        application=(DeadlineExpired(),),
    )


def expired() -> StanzaError:
    """Return ``not-acceptable``: the question of an answer has expired. It is never a denial."""
    return StanzaError(
        "not-acceptable",
        "The question had lapsed before the answer came.",
        application=(Expired(),),
    )


def denied(helps: Helps = "nothing") -> StanzaError:
    """Return ``not-allowed``: the person who was asked declined."""
    text = "The person asked did not allow it."
    return StanzaError("not-allowed", text, application=(Denied(helps=helps),))


def confirmation_expired() -> StanzaError:
    """Return ``not-acceptable``: nobody confirmed the action in time. It is never a denial."""
    return StanzaError(
        "not-acceptable",
        "Nobody confirmed the action in time.",
        application=(ConfirmationExpired(),),
    )


def input_expired() -> StanzaError:
    """Return ``not-acceptable``: nobody answered the question in time."""
    return StanzaError(
        "not-acceptable",
        "Nobody answered the question in time.",
        application=(InputExpired(),),
    )


def conflict(reason: str) -> StanzaError:
    """Return ``conflict``: the request contradicts an earlier commit."""
    return StanzaError("conflict", reason, application=(Conflict(),))


def loop() -> StanzaError:
    """Return ``not-allowed``: the work has passed through this agent before."""
    return StanzaError(
        "not-allowed",
        "The work has passed through this agent before.",
        application=(Loop(),),
    )


def hops_exceeded() -> StanzaError:
    """Return ``not-allowed``: the work has passed through too many agents."""
    return StanzaError(
        "not-allowed",
        "The work has passed through more agents than it may.",
        application=(HopsExceeded(),),
    )


def budget_exhausted(helps: Helps = "budget") -> StanzaError:
    """Return ``not-acceptable``: the budget does not cover the work."""
    text = "The work takes more than the budget that came with it."
    if helps != "budget":
        text = "The work takes more than what is left of a budget of this agent."
    return StanzaError("not-acceptable", text, application=(BudgetExhausted(helps=helps),))


def too_big(limit: int | None = None) -> StanzaError:
    """Return ``policy-violation``: more than the agent accepts or may send; ``limit`` is
    in bytes.
    """
    text = "The request or its result is too big."
    if limit is not None:
        text = f"The request or its result is bigger than {limit} bytes."
    return StanzaError("policy-violation", text, application=(TooBig(limit=limit),))


def too_big_to_confirm(
    size: int, limit: int, lines: int | None = None, most_lines: int | None = None
) -> StanzaError:
    """Return ``policy-violation``: the parameters are too large to show to a person; sizes are
    bytes of JSON.
    """
    have, most = f"{size} bytes", f"{limit} bytes"
    if lines is not None:
        have, most = f"{have} and {lines} lines", f"{most} and {most_lines} lines"
    text = (
        f"A person has to confirm this, and its parameters are too long to be shown: {have},"
        f" of at most {most}. Send less at a time."
    )
    return StanzaError("policy-violation", text, application=(TooBig(limit=limit),))


def busy(after: int) -> StanzaError:
    """Return ``resource-constraint``: a limit is exceeded; retry in ``after`` seconds."""
    return StanzaError(
        "resource-constraint",
        f"Too much is under way. Try again in {after} seconds.",
        application=(Retry(after=after),),
    )


def over_quota(after: int) -> StanzaError:
    """Return ``resource-constraint``: a quota is used up; retry in ``after`` seconds."""
    return StanzaError(
        "resource-constraint",
        f"A quota is used up. Try again in {after} seconds.",
        application=(OverQuota(), Retry(after=after)),
    )


def timed_out(*, repeatable: bool) -> StanzaError:
    """Return ``remote-server-timeout``: the skill did not finish.

    Only an idempotent or read-only skill is ``repeatable``; for any other the type is ``cancel``
    instead of ``wait``, so that nobody runs it twice.
    """
    return StanzaError(
        "remote-server-timeout",
        "The skill did not finish in time. Whether it had an effect is not known.",
        type="wait" if repeatable else "cancel",
        application=(Timeout(),),
    )


def remote_failure(*, repeatable: bool) -> StanzaError:
    """Return ``remote-server-timeout``: another service failed; the type is as for
    ``timed_out``.
    """
    return StanzaError(
        "remote-server-timeout",
        "An agent or a service that this needs failed or could not be reached.",
        type="wait" if repeatable else "cancel",
        application=(RemoteFailure(),),
    )


def answer_not_kept() -> StanzaError:
    """Return the error for work that succeeded, but whose answer was removed for newer ones."""
    return StanzaError(
        "internal-server-error",
        "The request was carried out once and its answer is no longer kept. It is not run again.",
        application=(OutcomeUnknown(),),
    )


def outcome_unknown() -> StanzaError:
    """Return ``internal-server-error``: a step began without a record of its end."""
    return StanzaError(
        "internal-server-error",
        "The work was interrupted. Whether it had an effect is not known.",
        application=(OutcomeUnknown(),),
    )


def internal() -> StanzaError:
    """Return ``internal-server-error``: the agent failed; without details."""
    return StanzaError(
        "internal-server-error", "The agent failed to serve this.", application=(Internal(),)
    )
