"""urn:fluux:agent:0#errors, the conditions inside stanza errors (RFC 6120 §8.3.4).

Each condition has a function that makes the whole error, so that one failure always has one
stanza error. Texts are for people and never hold a traceback or a secret.
"""

from typing import Annotated, Final

from xep.binding import Attr, Name, Payload
from xep.binding.escaping import without_forbidden
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


CONDITIONS: Final[tuple[type[Payload], ...]] = (
    Malformed,
    InvalidParam,
    UnknownSkill,
    ModeUnavailable,
    ConfirmationUnavailable,
    DeadlineExpired,
    TooBig,
    Retry,
    Timeout,
    Internal,
)
"""Every condition, as ``StanzaError.of`` wants to know them."""


def malformed(reason: str) -> StanzaError:
    """The request does not fit its declaration: ``bad-request``."""
    return StanzaError("bad-request", reason, application=(Malformed(),))


def invalid_param(name: str, reason: str) -> StanzaError:
    """A parameter does not fit the schema: ``bad-request``, naming it and the reason."""
    # A name can come out of JSON with characters that XML cannot carry.
    condition = InvalidParam(name=without_forbidden(name))
    return StanzaError("bad-request", f"{name}: {reason}", application=(condition,))


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


def too_big(limit: int | None = None) -> StanzaError:
    """More than the agent takes or may send: ``policy-violation``; ``limit`` in bytes."""
    text = "The request or its result is too big."
    if limit is not None:
        text = f"The request or its result is bigger than {limit} bytes."
    return StanzaError("policy-violation", text, application=(TooBig(limit=limit),))


def busy(after: int) -> StanzaError:
    """Over a share or a bound: ``resource-constraint``, to be tried again in ``after`` seconds."""
    return StanzaError(
        "resource-constraint",
        f"Too much is under way. Try again in {after} seconds.",
        application=(Retry(after=after),),
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


def internal() -> StanzaError:
    """The agent failed: ``internal-server-error``, without a word on how."""
    return StanzaError(
        "internal-server-error", "The agent failed to serve this.", application=(Internal(),)
    )
