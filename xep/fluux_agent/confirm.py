"""urn:fluux:agent:0#confirm, confirmation: a person is asked before something happens."""

from datetime import datetime
from typing import Annotated, Final, Literal

import msgspec

from xep.binding import Attr, Child, Name, Payload, Text, TextChild
from xep.fluux_agent import NAMESPACE as AGENT
from xep.hashes import Hash
from xep.jid import JID

NAMESPACE: Final = f"{AGENT}#confirm"


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


class Confirm(Payload, frozen=True, kw_only=True):
    """A request for confirmation, in a message whose body asks the same in words.

    ``principal`` is the bare JID for whom the action would run. ``agent`` is the agent that will
    act, if it is not the sender, which passes its question on. ``hash`` covers exactly that
    action. After ``expires`` no answer counts; the first public draft always gives one, and without
    it the question stays open as long as its task.
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


class Decision(Payload, frozen=True, kw_only=True):
    """The answer to the confirmation ``id``.

    ``hash`` repeats that of the question, and shows that the decision is about this action.
    """

    xml = Name(NAMESPACE, "decision")

    id: Annotated[str, Attr()]
    value: Annotated[Literal["approve", "deny"], Attr()]
    reason: Annotated[str | None, TextChild()] = None
    hash: Annotated[Hash | None, Child()] = None
