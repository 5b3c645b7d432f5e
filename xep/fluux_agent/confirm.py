"""urn:fluux:agent:0#confirm, confirmation: a person is asked before something happens."""

import hashlib
import json
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec

from xep.binding import Attr, Child, Lang, Name, Payload, Text, TextChild
from xep.binding.conversion import format_datetime
from xep.fluux_agent import NAMESPACE as AGENT
from xep.hashes import Hash
from xep.jid import JID

NAMESPACE: Final = f"{AGENT}#confirm"
LARGEST_EXACT: Final = 2**53 - 1
"""Up to here every JSON reader sees the same integer (RFC 7493 §2.2)."""
_PRECISIONS: Final = ("auto", "seconds", "milliseconds", "microseconds")
"""How precisely programs write times, by the names of `datetime.isoformat`."""


class ActionParam(Payload, frozen=True, kw_only=True):
    """One parameter of the action, as text."""

    xml = Name(NAMESPACE, "param")

    name: Annotated[str, Attr()]
    text: Annotated[str, Text()] = ""


class ActionParams(Payload, frozen=True, kw_only=True):
    """Parameters of the action as one JSON object, for values that text cannot express."""

    xml = Name(NAMESPACE, "params")

    type: Annotated[Literal["application/json"], Attr(always=True)] = "application/json"
    json: Annotated[msgspec.Raw, Text()]


class Action(Payload, frozen=True, kw_only=True):
    """The action: ``type`` is the skill, in ``version``.

    A parameter whose value is a text is in ``params``, every other one in ``json_params``.
    """

    xml = Name(NAMESPACE, "action")

    type: Annotated[str, Attr()]
    version: Annotated[str | None, Attr()] = None
    params: Annotated[tuple[ActionParam, ...], Child()] = ()
    json_params: Annotated[ActionParams | None, Child()] = None


class Risk(Payload, frozen=True, kw_only=True):
    """The risk of the action."""

    xml = Name(NAMESPACE, "risk")

    level: Annotated[Literal["low", "medium", "high"], Attr()]


Rank: TypeAlias = Literal["owner", "admin", "member", "none"]
"""An affiliation with a room (XEP-0045 §5.2), from the highest to the lowest."""


class ApproverRoom(Payload, frozen=True, kw_only=True):
    """The room whose occupants can decide: those with at least this affiliation and, if one is
    named, this hat (XEP-0317).
    """

    xml = Name(NAMESPACE, "room")

    jid: Annotated[JID, Attr()]
    affiliation: Annotated[Rank, Attr()] = "none"
    hat: Annotated[str | None, Attr()] = None


class Approvals(Payload, frozen=True, kw_only=True):
    """How many persons have to approve, and how many have done so; ``requester`` says whether the
    approval of the one who wants the action counts. Besides those who are asked themselves, the
    occupants of ``room`` can decide.
    """

    xml = Name(NAMESPACE, "approvals")

    need: Annotated[int, Attr(always=True)] = 1
    given: Annotated[int, Attr()] = 0
    requester: Annotated[bool, Attr()] = True
    room: Annotated[ApproverRoom | None, Child()] = None


class StandingText(Payload, frozen=True, kw_only=True):
    """What an agent may do without asking, in words."""

    xml = Name(NAMESPACE, "text")

    text: Annotated[str, Text()]
    lang: Lang = None


class FreeText(Payload, frozen=True, kw_only=True):
    """A parameter that may have any text."""

    xml = Name(NAMESPACE, "free")

    name: Annotated[str, Attr()]


class Standing(Payload, frozen=True, kw_only=True):
    """The offer of a standing approval: before the time ``until`` and at most ``uses`` times,
    actions that differ from this one in the ``free`` parameters only may run without a question.
    ``hash`` covers that.
    """

    xml = Name(NAMESPACE, "standing")

    until: Annotated[datetime, Attr()]
    uses: Annotated[int, Attr()]
    text: Annotated[StandingText, Child()]
    free: Annotated[tuple[FreeText, ...], Child()] = ()
    hash: Annotated[Hash | None, Child()] = None


class Confirm(Payload, frozen=True, kw_only=True):
    """A request for confirmation, in a message whose body asks the same in words.

    ``principal`` is the bare JID for whom the action would run. ``agent`` is the agent that will
    act, if it is not the sender, which passes its question on. ``hash`` covers exactly that
    action. After ``expires`` no answer counts; the first public draft always gives one, and without
    it the question stays open as long as its task. Without ``approvals``, the first answer decides.
    With ``standing``, the answer can also be a standing approval.
    """

    xml = Name(NAMESPACE, "confirm")

    id: Annotated[str, Attr()]
    task: Annotated[str | None, Attr()] = None
    principal: Annotated[JID | None, Attr()] = None
    agent: Annotated[JID | None, Attr()] = None
    action: Annotated[Action, Child()]
    risk: Annotated[Risk | None, Child()] = None
    hash: Annotated[Hash | None, Child()] = None
    expires: Annotated[datetime | None, TextChild()] = None
    approvals: Annotated[Approvals | None, Child()] = None
    standing: Annotated[Standing | None, Child(malformed="drop")] = None


class Decision(Payload, frozen=True, kw_only=True):
    """The answer to the confirmation ``id``.

    ``hash`` repeats that of the question, and shows that the decision is about this action.
    ``standing`` also accepts the offer of a standing approval; then ``hash`` is that of the offer.
    """

    xml = Name(NAMESPACE, "decision")

    id: Annotated[str, Attr()]
    value: Annotated[Literal["approve", "deny"], Attr()]
    standing: Annotated[bool, Attr()] = False
    reason: Annotated[str | None, TextChild()] = None
    hash: Annotated[Hash | None, Child()] = None


def digest_of(agent: JID, confirm: Confirm) -> bytes:
    """Return the SHA-256 digest over the values of CNF-018, computed from the message alone, which
    `agent` sends; a value that is missing counts as null. Raises ValueError if a parameter has no
    RFC 8785 form.
    """
    expires = confirm.expires
    return _digest(agent, confirm, None if expires is None else format_datetime(expires))


def has_digest(agent: JID, confirm: Confirm) -> bool:
    """Return whether the digest in a message that `agent` has sent is right. How exactly the time
    was written in it is not known any more, so each usual form is tried. Raises ValueError as
    `digest_of` does.
    """
    at, given = confirm.expires, confirm.hash
    texts: set[str | None] = {None}
    if at is not None:
        utc = at.astimezone(UTC).replace(tzinfo=None)
        texts = {f"{utc.isoformat(timespec=each)}Z" for each in _PRECISIONS if _fits(utc, each)}
    return given is not None and any(
        _digest(agent, confirm, text) == given.digest for text in texts
    )


def _fits(at: datetime, precision: str) -> bool:
    """Return whether a time written with a precision is still the same."""
    return datetime.fromisoformat(at.isoformat(timespec=precision)) == at


def _digest(agent: JID, confirm: Confirm, expires: str | None) -> bytes:
    import rfc8785  # noqa: PLC0415 - only who confirms something pays for it

    covered = {
        "agent": str(agent.bare),
        "confirmation": confirm.id,
        "expires": expires,
        "params": parameters_of(confirm.action),
        "principal": None if confirm.principal is None else str(confirm.principal),
        "skill": confirm.action.type,
        "task": confirm.task,
        "version": confirm.action.version,
    }
    return hashlib.sha256(rfc8785.dumps(covered)).digest()


def standing_digest_of(agent: JID, confirm: Confirm) -> bytes:
    """Return the SHA-256 digest over the values of CNF-081: what the offer of a standing approval
    covers, which `agent` has made. Values of free parameters do not count. Raises ValueError as
    `digest_of` does.
    """
    import rfc8785  # noqa: PLC0415 - only who confirms something pays for it

    offer = confirm.standing
    assert offer is not None, "the question offers no standing approval"
    free = sorted({one.name for one in offer.free})
    fixed = without_parameters(confirm.action, free)
    covered = {
        "agent": str(agent.bare),
        "confirmation": confirm.id,
        "free": free,
        "params": parameters_of(fixed),
        "principal": None if confirm.principal is None else str(confirm.principal),
        "skill": confirm.action.type,
        "text": offer.text.text,
        "until": format_datetime(offer.until),
        "uses": offer.uses,
        "version": confirm.action.version,
    }
    return hashlib.sha256(rfc8785.dumps(covered)).digest()


def parameters_of(action: Action) -> dict[str, Any]:
    """Return all parameters of an action. Raises ValueError if its JSON is not an object."""
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


def without_parameters(action: Action, names: Collection[str]) -> Action:
    """Return an action without some of its parameters. Raises ValueError as `parameters_of`."""
    texts = tuple([one for one in action.params if one.name not in names])
    others = parameters_of(msgspec.structs.replace(action, params=()))
    others = {name: value for name, value in others.items() if name not in names}
    json_params = ActionParams(json=msgspec.Raw(msgspec.json.encode(others))) if others else None
    return msgspec.structs.replace(action, params=texts, json_params=json_params)


def _number(text: str) -> int | float:
    # Longer integers have no exact double, and parsing them is slow.
    number = int(text) if len(text) <= len(str(LARGEST_EXACT)) + 1 else 2 * LARGEST_EXACT
    return number if abs(number) <= LARGEST_EXACT else float(text)


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is not JSON")
