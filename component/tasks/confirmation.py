"""The action that a person is asked to confirm, and the digest over it (CNF-011 to CNF-019).

Everything here is computed from the message alone, without rows or a clock.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from datetime import datetime
from enum import Enum
from functools import lru_cache
from typing import Any, Final, Literal

import msgspec

from component.policy import ConfirmationRule
from component.policy.persons import Persons
from component.skills.inputs import Arguments
from component.skills.skill import Skill
from component.tasks.request import Confirmation, Request
from xep.binding.conversion import format_datetime
from xep.characters import forbidden
from xep.fluux_agent import errors
from xep.fluux_agent.confirm import Action, ActionParam, ActionParams, Confirm, Risk
from xep.hashes import Hash
from xep.jid import JID

ALGORITHM: Final = "sha-256"

MOST_BYTES: Final = 16_384
"""The maximum size of the parameters as JSON: a person cannot review more."""

MOST_LINES: Final = 100
"""The maximum number of lines of the texts in the parameters."""

_LARGEST: Final = 2**53 - 1
"""Up to here every JSON reader sees the same integer (RFC 7493 §2.2)."""


def confirm_for(
    request: Request,
    skill: Skill,
    arguments: Arguments,
    *,
    task: str,
    question: str,
    expires: datetime,
) -> Confirm:
    """Return the message that asks for the confirmation of a request to run `skill`.

    `question` is the id of the question, new for every one; `expires` is an aware datetime.

    Raises StanzaError: `invalid-param` (CNF-019), or `too-big` if the parameters are too large to
    show to a person (CNF-051).
    """
    action = action_of(skill, arguments)
    _refuse_unless_showable(parameters_of(action))
    needed = request.confirmation
    confirm = Confirm(
        id=question,
        task=task,
        principal=request.principal.bare,
        action=action,
        risk=Risk(level="medium" if needed is None else needed.risk),
        expires=expires,
    )
    digest = Hash(algo=ALGORITHM, digest=digest_of(request.target, confirm))
    return msgspec.structs.replace(confirm, hash=digest)


def check_size(size: int) -> None:
    """Raise StanzaError, `policy-violation` with the limit, if `size` bytes of parameters are too
    large to show to a person.
    """
    if size > MOST_BYTES:
        raise errors.too_big_to_confirm(size, MOST_BYTES)


def action_of(skill: Skill, arguments: Arguments) -> Action:
    """Return the skill and all its parameters, with the defaults of the input schema (CNF-013).

    Call it before anything is committed: it raises StanzaError, `invalid-param`, for a value
    without an RFC 8785 form, which no digest can cover (CNF-019).
    """
    texts: list[ActionParam] = []
    others: dict[str, Any] = {}
    # Sets have no order of their own, so they are sorted: the order must not depend on the process.
    values = msgspec.to_builtins(arguments, str_keys=True, order="deterministic")
    for name, value in values.items():
        _refuse_unless_canonical(name, value)
        if isinstance(value, str) and forbidden.search(value) is None:
            texts.append(ActionParam(name=name, text=value))
        else:
            others[name] = value
    return Action(
        type=skill.name,
        version=skill.version,
        params=tuple(texts),
        json_params=ActionParams(json=msgspec.Raw(msgspec.json.encode(others))) if others else None,
    )


def digest_of(agent: JID, confirm: Confirm) -> bytes:
    """Return the SHA-256 digest over the values of CNF-018, computed from the message alone.

    `agent` is the sender of the message. Everyone who has the message computes the same digest; a
    value that is missing in `confirm` counts as null.

    Raises ValueError if a parameter has no RFC 8785 form.
    """
    import rfc8785  # noqa: PLC0415 - only who confirms something pays for it

    expires = confirm.expires
    covered = {
        "agent": str(agent.bare),
        "confirmation": confirm.id,
        "expires": None if expires is None else format_datetime(expires),
        "params": parameters_of(confirm.action),
        "principal": None if confirm.principal is None else str(confirm.principal),
        "skill": confirm.action.type,
        "task": confirm.task,
        "version": confirm.action.version,
    }
    return hashlib.sha256(rfc8785.dumps(covered)).digest()


def covers(confirm: Confirm, request: Request, skill: Skill, arguments: Arguments) -> bool:
    """Return whether the action that would run now is exactly the one confirmed (CNF-040,
    CNF-041).
    """
    now = msgspec.structs.replace(
        confirm, principal=request.principal.bare, action=action_of(skill, arguments)
    )
    return confirm.hash is not None and digest_of(request.target, now) == confirm.hash.digest


def parameters_of(action: Action) -> dict[str, Any]:
    """Return all parameters of an action, those given as text first.

    Raises ValueError if its JSON is not an object.
    """
    values: dict[str, Any] = {param.name: param.text for param in action.params}
    if action.json_params is not None:
        # RFC 8785 §3.1: a number that is not a safe integer is a double.
        more = json.loads(
            bytes(action.json_params.json), parse_int=_number, parse_constant=_no_number
        )
        if not isinstance(more, dict):
            raise ValueError("the parameters of the action are not a JSON object")
        values |= more
    return values


def lapses(now: int, seconds: float, deadline: int | None) -> int:
    """Return when a question asked at `now` expires; all times but `seconds` are milliseconds since
    1970.

    The result is a whole second, so that people and programs read the same time, and never after
    the deadline of the request (CNF-015, INP-014).
    """
    wanted = -(-(now + round(seconds * 1000)) // 1000) * 1000
    if deadline is None:
        return wanted
    # Rows store deadlines rounded up to a millisecond, so this may be after the exact deadline.
    return min(wanted, deadline - (deadline % 1000 != 0))


def _refuse_unless_showable(values: Mapping[str, Any]) -> None:
    size = len(json.dumps(values, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    lines = 0
    left: list[Any] = list(values.values())
    while left:
        value = left.pop()
        if isinstance(value, dict):
            left += value.values()
        elif isinstance(value, list):
            left += value
        lines += len(value.splitlines()) if isinstance(value, str) else 0
    lines += sum(not isinstance(value, str) for value in values.values())
    if size > MOST_BYTES or lines > MOST_LINES:
        raise errors.too_big_to_confirm(size, MOST_BYTES, lines, MOST_LINES)


def _refuse_unless_canonical(name: str, value: Any) -> None:
    import rfc8785  # noqa: PLC0415

    try:
        rfc8785.dumps(value)
    except rfc8785.IntegerDomainError:
        reason = (
            f"contains an integer beyond {_LARGEST}, which no digest can cover; send it as text"
        )
    except rfc8785.FloatDomainError:
        reason = "contains a number that is not finite, which no digest can cover"
    except (ValueError, RecursionError):
        reason = (
            "contains a value without a canonical JSON form (RFC 8785), so no digest can cover it"
        )
    else:
        return
    raise errors.invalid_param(name, reason)


def _number(text: str) -> int | float:
    # Longer integers have no exact double, and parsing them is slow.
    number = int(text) if len(text) <= len(str(_LARGEST)) + 1 else 2 * _LARGEST
    return number if abs(number) <= _LARGEST else float(text)


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is not JSON")


_MOST_REMEMBERED: Final = 4096


class Unknown(Enum):
    """The confirmers are not known yet."""

    UNKNOWN = "unknown"


UNKNOWN: Final = Unknown.UNKNOWN


class Approvers:
    """Decides who has to confirm that a skill runs.

    Args:
        asking: gives the policy's confirmation rule for a skill by its name.
        persons: tells which addresses are persons.
        expires_s: seconds until a confirmation expires.
    """

    def __init__(
        self,
        asking: Callable[[str], ConfirmationRule],
        persons: Persons,
        expires_s: float = 86400.0,
    ) -> None:
        self._asking = asking
        self._is_person = persons.is_person
        self._known = persons.known
        self._expires_s = expires_s
        self._always = lru_cache(_MOST_REMEMBERED)(lambda name: asking(name).when == "always")

    def needed(self, request: Request, skill: Skill) -> bool:
        """Return whether a confirmation may be needed before this skill runs. Never waits.

        What the principal has approved needs only the confirmation of other approvers.
        """
        asker = request.caller_context.asker
        if asker == "approved":
            return bool(self._asking(skill.name).approvers)
        always = self._always
        return skill.annotations.destructive or asker == "misled model" or always(skill.name)

    def at_once(self, request: Request, skill: Skill) -> Confirmation | Unknown | None:
        """Return the result of `find` if it is known without waiting, else UNKNOWN.

        Raises StanzaError, as `find` does. Never waits.
        """
        if not self.needed(request, skill):
            return None
        said = self._asking(skill.name)
        never = self._is_never_asked(request, said)
        person = None
        if never or not said.approvers:
            person = self._known(request.principal, request.requester)
        if never and person is not False:
            return UNKNOWN if person is None else None
        if said.approvers:
            return self._confirmation(skill, said.approvers)
        if person is None:
            return UNKNOWN
        if person:
            return self._confirmation(skill, (request.principal.bare,))
        raise errors.confirmation_unavailable()

    async def find(self, request: Request, skill: Skill) -> Confirmation | None:
        """Return who has to confirm that `skill` runs for a request; None if nobody has to.

        The rule `never` applies to a principal's own requests, not to those of a model (CNF-001).

        Raises StanzaError: `confirmation-unavailable`, if a confirmation is needed and nobody can
        give it (CNF-005).
        """
        if not self.needed(request, skill):
            return None
        said = self._asking(skill.name)
        who = (request.principal, request.requester, request.target)
        person: bool | None = None
        if self._is_never_asked(request, said):
            person = await self._is_person(*who)
            if person:
                return None
        if said.approvers:
            return self._confirmation(skill, said.approvers)
        if person is None:
            person = await self._is_person(*who)
        if person:
            return self._confirmation(skill, (request.principal.bare,))
        raise errors.confirmation_unavailable()

    @staticmethod
    def _is_never_asked(request: Request, said: ConfirmationRule) -> bool:
        return said.when == "never" and request.caller_context.asker == "caller"

    def _confirmation(self, skill: Skill, asked: tuple[JID, ...]) -> Confirmation:
        return Confirmation(asked=asked, risk=risk_of(skill), expires_s=self._expires_s)


def risk_of(skill: Skill) -> Literal["low", "medium", "high"]:
    """Return the risk of a skill, derived from its author's annotations."""
    if skill.annotations.destructive:
        return "high"
    return "low" if skill.annotations.read_only else "medium"
