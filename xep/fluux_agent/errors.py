"""urn:fluux:agent:0#errors, the conditions inside stanza errors (RFC 6120 §8.3.4).

Each condition has a function that makes the whole error, so that one failure always has one
stanza error. Texts are for people and never hold a traceback or a secret.
"""

from typing import Annotated, Final, get_args

from xep.binding import Attr, Name, Payload
from xep.fluux_agent import NAMESPACE as AGENT
from xep.stanza_error import StanzaError

NAMESPACE: Final = f"{AGENT}#errors"


class Malformed(Payload, frozen=True, kw_only=True):
    """The request does not fit its declaration."""

    xml = Name(NAMESPACE, "malformed")


class InvalidParam(Payload, frozen=True, kw_only=True):
    """The parameter ``name`` does not fit the skill's input schema."""

    xml = Name(NAMESPACE, "invalid-param")

    name: Annotated[str, Attr()]


class UnknownSkill(Payload, frozen=True, kw_only=True):
    """There is no such skill, as far as this requester is concerned."""

    xml = Name(NAMESPACE, "unknown-skill")


class ModeUnavailable(Payload, frozen=True, kw_only=True):
    """The skill cannot be run in the mode that was asked for."""

    xml = Name(NAMESPACE, "mode-unavailable")


class ConfirmationUnavailable(Payload, frozen=True, kw_only=True):
    """The skill needs a person's confirmation, and nobody can be asked."""

    xml = Name(NAMESPACE, "confirmation-unavailable")


class DeadlineExpired(Payload, frozen=True, kw_only=True):
    """The deadline had passed before the result was there."""

    xml = Name(NAMESPACE, "deadline-expired")


class TooBig(Payload, frozen=True, kw_only=True):
    """The request, or its result, is bigger than ``limit`` bytes, or too deep or too wide."""

    xml = Name(NAMESPACE, "too-big")

    limit: Annotated[int | None, Attr()] = None


class Retry(Payload, frozen=True, kw_only=True):
    """The refusal may pass: the same request may be sent again ``after`` so many seconds."""

    xml = Name(NAMESPACE, "retry")

    after: Annotated[int, Attr()]


class Timeout(Payload, frozen=True, kw_only=True):
    """The skill did not finish in time. Whether it had an effect is not known."""

    xml = Name(NAMESPACE, "timeout")


class Internal(Payload, frozen=True, kw_only=True):
    """Something is wrong with the agent, not with the request."""

    xml = Name(NAMESPACE, "internal")


class DelegationUnavailable(Payload, frozen=True, kw_only=True):
    """Work on behalf of somebody else is not taken here."""

    xml = Name(NAMESPACE, "delegation-unavailable")


class UnknownTask(Payload, frozen=True, kw_only=True):
    """There is no such task, as far as this requester is concerned."""

    xml = Name(NAMESPACE, "unknown-task")


class UnknownInput(Payload, frozen=True, kw_only=True):
    """The task never asked this question."""

    xml = Name(NAMESPACE, "unknown-input")


class UnknownConfirmation(Payload, frozen=True, kw_only=True):
    """There is no such confirmation, as far as this requester is concerned."""

    xml = Name(NAMESPACE, "unknown-confirmation")


class Forbidden(Payload, frozen=True, kw_only=True):
    """The requester may see this and may not do it."""

    xml = Name(NAMESPACE, "forbidden")


class Conflict(Payload, frozen=True, kw_only=True):
    """It contradicts what was committed before it."""

    xml = Name(NAMESPACE, "conflict")


class Expired(Payload, frozen=True, kw_only=True):
    """The answer came after the question had lapsed."""

    xml = Name(NAMESPACE, "expired")


class Denied(Payload, frozen=True, kw_only=True):
    """The person asked said no."""

    xml = Name(NAMESPACE, "denied")


class ConfirmationExpired(Payload, frozen=True, kw_only=True):
    """Nobody confirmed the action in time."""

    xml = Name(NAMESPACE, "confirmation-expired")


class InputExpired(Payload, frozen=True, kw_only=True):
    """Nobody answered the task's question in time."""

    xml = Name(NAMESPACE, "input-expired")


class OutcomeUnknown(Payload, frozen=True, kw_only=True):
    """A step had begun and left no record. Whether it had an effect is not known."""

    xml = Name(NAMESPACE, "outcome-unknown")


class OverQuota(Payload, frozen=True, kw_only=True):
    """The requester has used up what it may have for now."""

    xml = Name(NAMESPACE, "over-quota")


class BudgetExhausted(Payload, frozen=True, kw_only=True):
    """The work takes more money or tokens than were given for it."""

    xml = Name(NAMESPACE, "budget-exhausted")


class Loop(Payload, frozen=True, kw_only=True):
    """The work has passed through this agent before."""

    xml = Name(NAMESPACE, "loop")


class HopsExceeded(Payload, frozen=True, kw_only=True):
    """The work has passed through more agents than it may."""

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
"""Every condition, as ``StanzaError.of`` wants to know them."""


def malformed(reason: str) -> StanzaError:
    """The request does not fit its declaration: ``bad-request``."""
    return StanzaError("bad-request", reason, application=(Malformed(),))


def invalid_param(name: str, reason: str) -> StanzaError:
    """A parameter does not fit the schema: ``bad-request``, naming it and the reason."""
    return StanzaError("bad-request", f"{name}: {reason}", application=(InvalidParam(name=name),))


def unknown_skill() -> StanzaError:
    """No such skill, or none for this requester: ``item-not-found``, always in the same words."""
    return StanzaError(
        "item-not-found", "There is no such skill here.", application=(UnknownSkill(),)
    )


def mode_unavailable(mode: str) -> StanzaError:
    """The mode asked for cannot be had: ``feature-not-implemented``."""
    return StanzaError(
        "feature-not-implemented",
        f"This skill cannot be run in mode {mode}.",
        application=(ModeUnavailable(),),
    )


def unknown_task() -> StanzaError:
    """No such task, or none of this requester's: ``item-not-found``, always in the same words."""
    return StanzaError(
        "item-not-found", "There is no such task here.", application=(UnknownTask(),)
    )


def unknown_input() -> StanzaError:
    """The task asked no such question: ``item-not-found``."""
    return StanzaError(
        "item-not-found", "The task asks no such question.", application=(UnknownInput(),)
    )


def unknown_confirmation() -> StanzaError:
    """No such confirmation, or not for this one to give: ``item-not-found``, in the same words."""
    return StanzaError(
        "item-not-found",
        "There is no such confirmation here.",
        application=(UnknownConfirmation(),),
    )


def forbidden(reason: str) -> StanzaError:
    """It is there for this requester, and not to be touched: ``forbidden``."""
    return StanzaError("forbidden", reason, application=(Forbidden(),))


def delegation_unavailable() -> StanzaError:
    """Work on behalf of somebody else is not taken: ``feature-not-implemented``."""
    return StanzaError(
        "feature-not-implemented",
        "This agent takes no delegated work.",
        application=(DelegationUnavailable(),),
    )


def confirmation_unavailable() -> StanzaError:
    """A skill that needs a confirmation is refused: ``not-allowed``."""
    return StanzaError(
        "not-allowed",
        "This skill needs the confirmation of a person, and nobody can be asked for it.",
        application=(ConfirmationUnavailable(),),
    )


def deadline_expired() -> StanzaError:
    """The request came, or its result would come, too late: ``not-acceptable``."""
    return StanzaError(
        "not-acceptable",
        "The deadline had passed before the result was there.",
        application=(DeadlineExpired(),),
    )


def expired() -> StanzaError:
    """The answer to a question that has lapsed: ``not-acceptable``. It is never a denial."""
    return StanzaError(
        "not-acceptable",
        "The question had lapsed before the answer came.",
        application=(Expired(),),
    )


def denied() -> StanzaError:
    """The person asked said no: ``not-allowed``."""
    return StanzaError("not-allowed", "The person asked did not allow it.", application=(Denied(),))


def confirmation_expired() -> StanzaError:
    """Nobody confirmed the action in time: ``not-acceptable``. It is never a denial."""
    return StanzaError(
        "not-acceptable",
        "Nobody confirmed the action in time.",
        application=(ConfirmationExpired(),),
    )


def input_expired() -> StanzaError:
    """Nobody answered the question in time: ``not-acceptable``."""
    return StanzaError(
        "not-acceptable",
        "Nobody answered the question in time.",
        application=(InputExpired(),),
    )


def conflict(reason: str) -> StanzaError:
    """It contradicts what was committed before: ``conflict``."""
    return StanzaError("conflict", reason, application=(Conflict(),))


def loop() -> StanzaError:
    """The work has been here before: ``not-allowed``."""
    return StanzaError(
        "not-allowed",
        "The work has passed through this agent before.",
        application=(Loop(),),
    )


def hops_exceeded() -> StanzaError:
    """The path is too long: ``not-allowed``."""
    return StanzaError(
        "not-allowed",
        "The work has passed through more agents than it may.",
        application=(HopsExceeded(),),
    )


def budget_exhausted() -> StanzaError:
    """The budget does not cover the work: ``not-acceptable``."""
    return StanzaError(
        "not-acceptable",
        "The work takes more than the budget that came with it.",
        application=(BudgetExhausted(),),
    )


def too_big(limit: int | None = None) -> StanzaError:
    """More than the agent takes or may send: ``policy-violation``; ``limit`` in bytes."""
    text = "The request or its result is too big."
    if limit is not None:
        text = f"The request or its result is bigger than {limit} bytes."
    return StanzaError("policy-violation", text, application=(TooBig(limit=limit),))


def too_big_to_confirm(
    size: int, limit: int, lines: int | None = None, most_lines: int | None = None
) -> StanzaError:
    """Parameters that a person cannot be shown: ``policy-violation``; sizes in bytes of JSON."""
    have, most = f"{size} bytes", f"{limit} bytes"
    if lines is not None:
        have, most = f"{have} and {lines} lines", f"{most} and {most_lines} lines"
    text = (
        f"A person has to confirm this, and its parameters are too long to be shown: {have},"
        f" of at most {most}. Send less at a time."
    )
    return StanzaError("policy-violation", text, application=(TooBig(limit=limit),))


def busy(after: int) -> StanzaError:
    """Over a share or a bound: ``resource-constraint``, to be tried again in ``after`` seconds."""
    return StanzaError(
        "resource-constraint",
        f"Too much is under way. Try again in {after} seconds.",
        application=(Retry(after=after),),
    )


def over_quota(after: int) -> StanzaError:
    """A quota is used up: ``resource-constraint``, to be tried again in ``after`` seconds."""
    return StanzaError(
        "resource-constraint",
        f"A quota is used up. Try again in {after} seconds.",
        application=(OverQuota(), Retry(after=after)),
    )


def timed_out(*, repeatable: bool) -> StanzaError:
    """The skill did not finish: ``remote-server-timeout``.

    Only an idempotent or read-only skill is ``repeatable``; for any other the type is ``cancel``
    instead of ``wait``, so that nobody makes it happen twice.
    """
    return StanzaError(
        "remote-server-timeout",
        "The skill did not finish in time. Whether it had an effect is not known.",
        type="wait" if repeatable else "cancel",
        application=(Timeout(),),
    )


def remote_failure(*, repeatable: bool) -> StanzaError:
    """Something further on failed: ``remote-server-timeout``, with a type as of ``timed_out``."""
    return StanzaError(
        "remote-server-timeout",
        "An agent or a service that this needs failed or could not be reached.",
        type="wait" if repeatable else "cancel",
        application=(RemoteFailure(),),
    )


def answer_not_kept() -> StanzaError:
    """The work was carried out, and its answer has made room for newer ones."""
    return StanzaError(
        "internal-server-error",
        "The request was carried out once and its answer is no longer kept. It is not run again.",
        application=(OutcomeUnknown(),),
    )


def outcome_unknown() -> StanzaError:
    """A step began and left no record: ``internal-server-error``."""
    return StanzaError(
        "internal-server-error",
        "The work was interrupted. Whether it had an effect is not known.",
        application=(OutcomeUnknown(),),
    )


def internal() -> StanzaError:
    """The agent failed: ``internal-server-error``, without a word on how."""
    return StanzaError(
        "internal-server-error", "The agent failed to serve this.", application=(Internal(),)
    )
