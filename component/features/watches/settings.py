"""The sections about watches: events on XMPP that start work."""

import re
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from component.config.kinds import (
    Count,
    Expression,
    Seconds,
    Section,
    address,
    different_names,
    nickname,
    refusal,
)
from component.config.model import Settings
from component.config.sections import Top, list_of_tables, table
from component.config.work import WorkEntry, known_agents_only

_RATE: Final = r"([1-9][0-9]{0,8})/(s|min|h|d)"
_SECONDS: Final = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def read_rate(text: str) -> tuple[int, float]:
    """Return the number of starts and the seconds of a rate such as `10/min`. Raises ValueError."""
    found = re.fullmatch(_RATE, text.strip())
    if found is None:
        raise ValueError("must be a number for a time: 10/min, 5/h, 100/s or 3/d")
    return int(found[1]), _SECONDS[found[2]]


def _rate(value: str) -> str:
    try:
        read_rate(value)
    except ValueError as error:
        raise refusal(str(error)) from None
    return value


def _service(value: str) -> str:
    jid = address(value)
    if jid.resource is not None:
        raise refusal("must be an address without a resource, such as pubsub.example.com")
    return str(jid)


def _params(value: dict[str, Any]) -> dict[str, Any]:
    # Imported only where there is a watch, as in `WatchCondition`.
    from component.features.watches import filters  # noqa: PLC0415

    try:
        filters.check_expressions(value)
    except filters.FilterError as error:
        raise refusal(f"cannot be used: {error}") from None
    return value


Rate = Annotated[str, AfterValidator(_rate)]
Service = Annotated[str, AfterValidator(_service)]


class WatchLimits(Section):
    """The limits of all watches, and of those that people add in chat. See
    docs/how-to/watches.md.
    """

    per_person: Annotated[int, Field(ge=0)] = 20
    """Maximum number of watches of one person. Those in `[[watch]]` do not count."""
    services: tuple[str, ...] = Field(default=(), examples=[["pubsub.example.com"]])
    """PubSub services whose nodes people may watch from chat; `*` and `?` match characters. The
    agent reads a node with its own rights, so list only services whose nodes all people may read.
    Everybody may watch their own account.
    """
    max_hops: Count = Field(default=5, le=64)
    """An event that was caused by a chain of this many agents starts no work."""
    check_s: Seconds = 300
    """Seconds between two checks of a subscription; each also reads the node's items."""


class WatchCondition(Section):
    """A condition on the XML payload of an item. It is met if one matching element meets it."""

    element: str = Field(default="", examples=["entry/title"])
    """Path to the element: local names separated by `/`, that of the payload first; `*` matches any
    name. Default: the payload itself.
    """
    attribute: str = Field(default="", examples=["state"])
    """Attribute to compare. Default: the text of the element."""
    namespace: str = ""
    """Namespace of the element. Default: any."""
    equals: str | None = Field(default=None, examples=["failed"])
    """The value is this text."""
    contains: str | None = Field(default=None, examples=["urgent"])
    """The value contains this text, in any case."""
    above: float | None = Field(default=None, examples=[30])
    """The value is a number greater than this."""
    below: float | None = Field(default=None, examples=[0])
    """The value is a number less than this."""
    exists: bool | None = Field(default=None, examples=[True])
    """Whether there is such an element or attribute."""

    @model_validator(mode="after")
    def _usable(self) -> Self:
        from component.features.watches import filters  # noqa: PLC0415

        try:
            filters.check_condition(filters.Condition(**self.model_dump()))
        except filters.FilterError as error:
            raise refusal(f"cannot be used: {error}") from None
        return self


class _Events(Section):
    # The first fields of a watch: those of a base class come before its own.

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")] = Field(
        examples=["failed-builds"]
    )
    """Name of the watch; it must be unique."""
    service: Service = Field(examples=["pubsub.example.com"])
    """Address of the PubSub service, or of the account whose node it is."""
    node: str = Field(min_length=1, max_length=1024, examples=["builds"])
    """Name of the node; `presence` for the presence of an account, `room` for the occupants of a
    room.
    """
    nick: Annotated[str, AfterValidator(nickname)] = Field(default="", examples=["Librarian"])
    """Nickname of the agent in the room. Default: its name."""
    where: tuple[WatchCondition, ...] = ()
    json_filter: Expression = Field(default="", examples=["status == 'failed'"])
    """JMESPath expression that must hold for a JSON payload (XEP-0335)."""


class WatchEntry(WorkEntry, _Events):
    """A watch: work that starts when an item is published, or a person's presence changes."""

    params: Annotated[dict[str, Any], AfterValidator(_params)] = Field(
        default={}, examples=[{"title": "{json.title}"}]
    )
    """Parameters of the skill. A string in braces is a JMESPath expression over the event, such as
    `{text}`, `{item}` or `{json.title}`.
    """
    rate: Rate = "60/min"
    """Maximum number of starts in a second (`s`), minute (`min`), hour (`h`) or day (`d`)."""
    thinning: Literal["latest", "digest", "drop"] = "digest"
    """How to handle events above the rate: latest handles only the newest of them when the time is
    over, digest handles them together, drop ignores them.
    """
    starts_per_hour: Count = 1000
    """Number of starts in an hour at which the watch is stopped, because it looks like a loop."""

    @model_validator(mode="after")
    def _presence_of_an_account(self) -> Self:
        if self.node == "presence" and "@" not in self.service:
            raise refusal("must be an account if node is presence", key="service")
        if self.nick and (self.node != "room" or "@" not in self.service):
            raise refusal('is for a room: set node = "room", and the room as service', key="nick")
        return self


LIMITS: Final = table("watches", WatchLimits)
ENTRIES: Final = list_of_tables("watch", WatchEntry, different_names("watches"))
SECTIONS: Final[tuple[Top[Any], ...]] = (LIMITS, ENTRIES)


def check(settings: Settings) -> None:
    """Raise a refusal if a watch names an agent that is not known."""
    known_agents_only(settings.agent_names, "watch", settings[ENTRIES])
