"""urn:fluux:agent:0#execute, execution: a request to run a skill, and its outcome."""

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, Final, Literal

import msgspec

from xep.binding import Attr, Child, ContentError, Name, Payload, Text
from xep.file_sharing import FileSharing
from xep.fluux_agent import NAMESPACE as AGENT
from xep.fluux_agent.delegation import Delegation
from xep.fluux_agent.grant import SignedReceipt

NAMESPACE: Final = f"{AGENT}#execute"

State = Literal[
    "accepted",
    "running",
    "input-required",
    "cancelling",
    "completed",
    "failed",
    "rejected",
    "cancelled",
]
"""The state of a task; the last four are final."""


class Param(Payload, frozen=True, kw_only=True):
    """One parameter as verbatim text, converted by the skill's input schema.

    A name that occurs more than once is an array.
    """

    xml = Name(NAMESPACE, "param")

    name: Annotated[str, Attr()]
    text: Annotated[str, Text()] = ""


class Params(Payload, frozen=True, kw_only=True):
    """Parameters as one JSON object, for values that text cannot express."""

    xml = Name(NAMESPACE, "params")

    type: Annotated[Literal["application/json"], Attr(always=True)] = "application/json"
    json: Annotated[msgspec.Raw, Text()]


class Earlier(Payload, frozen=True, kw_only=True):
    """A task of the same principal that this one continues."""

    xml = Name(NAMESPACE, "earlier")

    task: Annotated[str, Attr()]


class Execute(Payload, frozen=True, kw_only=True):
    """A request to run ``skill``, in ``version`` if one is named.

    ``mode``: ``inline`` requests the result in the answer to this IQ, ``async`` a task, ``auto``
    leaves it to the agent. ``request`` is the caller's own id, which identifies repetitions.
    ``deadline`` is when the result becomes useless. ``priority`` orders the caller's waiting tasks.
    ``context`` groups tasks, ``earlier`` names some of them, ``thread`` is the thread of messages
    about the work. ``delegation`` is present when an agent asks on behalf of somebody else.
    """

    xml = Name(NAMESPACE, "execute")

    skill: Annotated[str, Attr()]
    version: Annotated[str | None, Attr()] = None
    mode: Annotated[Literal["auto", "inline", "async"], Attr()] = "auto"
    request: Annotated[str | None, Attr()] = None
    deadline: Annotated[datetime | None, Attr()] = None
    priority: Annotated[Literal["low", "normal", "high"], Attr()] = "normal"
    context: Annotated[str | None, Attr()] = None
    thread: Annotated[str | None, Attr()] = None
    params: Annotated[tuple[Param, ...], Child()] = ()
    json_params: Annotated[Params | None, Child()] = None
    earlier: Annotated[tuple[Earlier, ...], Child()] = ()
    delegation: Annotated[Delegation | None, Child()] = None

    @property
    def size(self) -> int:
        """Return the approximate size of its parameters in bytes."""
        json = 0 if self.json_params is None else len(bytes(self.json_params.json))
        return json + sum([len(param.name) + len(param.text) for param in self.params])

    def texts(self) -> dict[str, list[str]]:
        """Return the texts given for each parameter name, in order."""
        texts: dict[str, list[str]] = {}
        for param in self.params:
            texts.setdefault(param.name, []).append(param.text)
        return texts

    def values(self) -> dict[str, Any]:
        """Return the parameters given as JSON.

        Raises:
            ContentError: they are not a JSON object, or one of them is also given as text.
        """
        if self.json_params is None:
            return {}
        values = msgspec.json.decode(self.json_params.json)
        if not isinstance(values, dict):
            raise ContentError("params", "expected a JSON object")
        for param in self.params:
            if param.name in values:
                raise ContentError("execute", f"{param.name} is given both as text and as JSON")
        return values


class Output(Payload, frozen=True, kw_only=True):
    """One named artifact of a result; JSON is text too. ``file`` replaces the text.

    Before the end of a task an artifact may be sent in parts: ``part`` counts them from 0, and the
    ``last`` one is marked.
    """

    xml = Name(NAMESPACE, "output")

    name: Annotated[str, Attr()]
    type: Annotated[str, Attr(always=True)] = "text/plain"
    part: Annotated[int | None, Attr()] = None
    last: Annotated[bool, Attr()] = True
    text: Annotated[str, Text()] = ""
    file: Annotated[FileSharing | None, Child()] = None


class Usage(Payload, frozen=True, kw_only=True):
    """The resources used: milliseconds, model tokens, US dollars. A missing value is unknown."""

    xml = Name(NAMESPACE, "usage")

    duration_ms: Annotated[int | None, Attr()] = None
    tokens_in: Annotated[int | None, Attr()] = None
    tokens_out: Annotated[int | None, Attr()] = None
    cost_usd: Annotated[Decimal | None, Attr()] = None


class Result(Payload, frozen=True, kw_only=True):
    """The result of a skill. ``is_error`` means that it ran and reports an error, which is an
    answer, not a failure. ``receipt`` is there when another agent has delegated the work.
    """

    xml = Name(NAMESPACE, "result")

    skill: Annotated[str, Attr()]
    is_error: Annotated[bool, Attr(always=True)] = False
    outputs: Annotated[tuple[Output, ...], Child()] = ()
    usage: Annotated[Usage | None, Child()] = None
    receipt: Annotated[SignedReceipt | None, Child()] = None


class Accepted(Payload, frozen=True, kw_only=True):
    """The work is stored as a task and continues.

    ``retain_until`` is how long its result is available, ``poll_after`` the number of seconds after
    which polling makes sense.
    """

    xml = Name(NAMESPACE, "accepted")

    task: Annotated[str, Attr()]
    state: Annotated[State, Attr(always=True)] = "accepted"
    revision: Annotated[int, Attr(always=True)] = 0
    retain_until: Annotated[datetime | None, Attr()] = None
    poll_after: Annotated[int | None, Attr()] = None
