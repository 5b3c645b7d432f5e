"""The errors of calls: an exception for each condition of urn:fluux:agent:0#errors."""

from typing import ClassVar, Final

import msgspec

from xep.binding import Payload
from xep.fluux_agent import errors as wire
from xep.fluux_agent.task import Failure
from xep.stanza_error import StanzaError


class CallError(Exception):
    """The base of all errors of this package. Its text is a sentence for a person."""


class NoAnswerError(CallError):
    """No answer came in time, or the stream was lost and did not come back.

    Whether the request had an effect is not known. Execute again with the same `request`: if it has
    run already, its result is returned.

    Attributes:
        request: the id of an execute request; None if it was another one.
    """

    request: str | None = None


class InvalidAnswerError(CallError):
    """The answer does not conform to the protocol."""


class AgentError(CallError):
    """The agent, or a server on the way to it, answered with an error, or a task failed.

    Raised itself if there is no condition of the protocol, as in the error of a server.

    Attributes:
        condition: the condition of the protocol, such as ``unknown-skill``; of this class.
        stanza_condition: the one of RFC 6120 §8.3.3, such as ``item-not-found``; empty for the
            failure of a task.
        text: the reason in words; may be empty.
        repeatable: whether the same work may be requested again without having an effect twice.
        after: the number of seconds after which a repetition makes sense, if that is known.
        param: the name of the parameter that is invalid, if that is known.
        limit: the maximum size in bytes, if the request or its result is too big.
        helps: what can lead to another answer: ``nothing``, the ``approval`` of another person, a
            ``later`` time, or a larger ``budget``; None if it is not a refusal.
    """

    condition: ClassVar[str] = ""

    def __init__(
        self,
        text: str = "",
        *,
        stanza_condition: str = "",
        repeatable: bool = False,
        after: int | None = None,
        param: str | None = None,
        limit: int | None = None,
        helps: wire.Helps | None = None,
    ) -> None:
        named = self.condition or stanza_condition
        super().__init__(f"{named}: {text}" if text and named else text or named)
        self.stanza_condition = stanza_condition
        self.text = text
        self.repeatable = repeatable
        self.after = after
        self.param = param
        self.limit = limit
        self.helps = helps


class MalformedError(AgentError):
    """The request does not conform to the protocol."""

    condition = "malformed"


class InvalidParamError(AgentError):
    """A parameter does not match the input schema of the skill; `param` is its name."""

    condition = "invalid-param"


class UnknownSkillError(AgentError):
    """The skill does not exist, or you may not use it."""

    condition = "unknown-skill"


class UnknownTaskError(AgentError):
    """The task does not exist, is not yours, or is no longer stored."""

    condition = "unknown-task"


class UnknownInputError(AgentError):
    """The task never asked this question."""

    condition = "unknown-input"


class UnknownConfirmationError(AgentError):
    """The confirmation does not exist, or somebody else was asked."""

    condition = "unknown-confirmation"


class ForbiddenError(AgentError):
    """You may see this, and not change it."""

    condition = "forbidden"


class ModeUnavailableError(AgentError):
    """The skill cannot be run in the requested mode."""

    condition = "mode-unavailable"


class DelegationUnavailableError(AgentError):
    """The agent accepts no work on behalf of others."""

    condition = "delegation-unavailable"


class GrantRequiredError(AgentError):
    """The agent accepts work on behalf of others only with a signed grant of each agent."""

    condition = "grant-required"


class InvalidGrantError(AgentError):
    """The signed grants of the request do not permit it; the text says why."""

    condition = "invalid-grant"


class ConfirmationUnavailableError(AgentError):
    """A person has to confirm this, and nobody can be asked."""

    condition = "confirmation-unavailable"


class DeniedError(AgentError):
    """The person who was asked declined; `text` is the reason, and `helps` says what can lead to
    another decision.
    """

    condition = "denied"


class ConfirmationExpiredError(AgentError):
    """Nobody confirmed the action in time."""

    condition = "confirmation-expired"


class InputExpiredError(AgentError):
    """Nobody answered the question of the task in time."""

    condition = "input-expired"


class ExpiredError(AgentError):
    """The answer arrived after the question had expired."""

    condition = "expired"


class DeadlineExpiredError(AgentError):
    """The deadline passed before there was a result."""

    condition = "deadline-expired"


class ConflictError(AgentError):
    """It contradicts an earlier request or decision."""

    condition = "conflict"


class OverQuotaError(AgentError):
    """A quota is used up; `after` says when there is a new one."""

    condition = "over-quota"


class BudgetExhaustedError(AgentError):
    """The budget does not cover the work; `helps` says whether a larger one makes it possible."""

    condition = "budget-exhausted"


class TooBigError(AgentError):
    """The request or its result is too big; `limit` is in bytes."""

    condition = "too-big"


class RetryError(AgentError):
    """The refusal is temporary: try again `after` so many seconds."""

    condition = "retry"


class LoopError(AgentError):
    """The work has passed through this agent before."""

    condition = "loop"


class HopsExceededError(AgentError):
    """The work has passed through more agents than allowed."""

    condition = "hops-exceeded"


class WorkTimeoutError(AgentError):
    """The skill did not finish in time. Unless it is `repeatable`, it may have had an effect."""

    condition = "timeout"


class RemoteFailureError(AgentError):
    """An agent or a service that the work needs failed, or could not be reached."""

    condition = "remote-failure"


class OutcomeUnknownError(AgentError):
    """The work was interrupted, and may have had an effect. Find out before you repeat it."""

    condition = "outcome-unknown"


class InternalError(AgentError):
    """The agent has an internal error; its log has the details."""

    condition = "internal"


class TaskCancelledError(AgentError):
    """The task was cancelled, so it has no result."""

    condition = "cancelled"


_CLASSES: Final = {one.condition: one for one in AgentError.__subclasses__()}


def error_of(error: StanzaError) -> AgentError:
    """Return the exception for a stanza error, decoded with `xep.fluux_agent.errors.CONDITIONS`."""
    return _error(
        error.application,
        error.text,
        stanza_condition=error.condition,
        repeatable=error.type == "wait",
    )


def error_of_failure(failure: Failure | None, state: str) -> AgentError:
    """Return the exception for a task that ended in ``state``, such as ``failed``."""
    if state == "cancelled":
        return TaskCancelledError()
    if failure is None:
        return AgentError(f"The task is {state}.")
    text = failure.texts[0].text if failure.texts else ""
    return _error(failure.conditions, text, repeatable=failure.repeatable)


def _error(
    conditions: tuple[Payload, ...],
    text: str,
    *,
    repeatable: bool,
    stanza_condition: str = "",
) -> AgentError:
    """Return the exception for the first condition; ``<retry/>`` counts if it is the only one."""
    named = [one for one in conditions if not isinstance(one, wire.Retry)] or list(conditions)
    found = _CLASSES.get(named[0].xml.local, AgentError) if named else AgentError
    helps = wire.helps_of(conditions)
    error = found(text, stanza_condition=stanza_condition, repeatable=repeatable, helps=helps)
    for one in conditions:
        details = msgspec.structs.asdict(one)
        error.after = details.get("after", error.after)
        error.param = details.get("name", error.param)
        error.limit = details.get("limit", error.limit)
    return error
