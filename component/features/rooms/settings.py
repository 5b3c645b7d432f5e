"""The sections about conversations in rooms."""

from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import AfterValidator, Field, SecretStr

from component import DEFAULT_AGENT
from component.config.agents import JidPattern
from component.config.kinds import Count, Domain, Section, address, nickname, refusal
from component.config.llm import Usd
from component.config.model import Settings
from component.config.sections import Top, list_of_tables, table

Answer: TypeAlias = Literal["mention", "reply", "always", "never"]


def _room(value: str) -> str:
    jid = address(value)
    if jid.local is None or jid.resource is not None:
        raise refusal("must be the address of a room, such as lobby@conference.example.com")
    return str(jid)


def _principal(value: str) -> str:
    jid = address(value) if value else None
    if jid is not None and jid.resource is not None:
        raise refusal("must be an address without a resource, such as guest@example.com")
    return "" if jid is None else str(jid)


def _emoji(value: str) -> str:
    if len(value) > 16 or (value and (value.isascii() or value[0].isalnum())):
        raise refusal("must be one emoji, such as 👀, or empty")
    return value


class Conversing(Section):
    """What an agent does in a room."""

    answer: Answer = "mention"
    """Which messages it answers: mention for those that mention it or contain its nickname, and
    replies to its own; reply for replies to its own alone; always for all messages of people; never
    for none, so that it is only there.
    """
    skills: tuple[str, ...] = Field(default=("*",), examples=[["weather", "wiki.*"]])
    """Names of the skills that occupants without a known account may use; `*` and `?` match any
    characters and any one character.
    """
    read_only: bool = True
    """Those occupants may use only skills that only read."""
    accounts: Literal["server", "all", "none"] = "server"
    """Whose real addresses the room can vouch for: server for the accounts of the server above the
    room's, such as example.com for rooms.example.com; all for every account, if you trust the
    operator of the room's server as you trust your own; none for nobody, so that all occupants have
    the rights of the room.
    """
    budget_usd: Usd | None = Field(default=None, examples=[2.0])
    """Maximum cost of all answers in the room, in US dollars a day (UTC). Default: that of one
    person.
    """
    persona: str = Field(default="", examples=["concierge"])
    """Id of the persona that the agent has in the room. Default: its own."""
    agents: bool = False
    """Other agents and bots may ask it, too. It answers them at most twice in a row without a
    message of a person.
    """
    history: Annotated[int, Field(ge=0, le=100)] = 50
    """Number of messages of the discussion so far that it asks for when it enters."""
    acknowledge: Annotated[str, AfterValidator(_emoji)] = Field(default="", examples=["👀"])
    """The reaction by which it shows that it works on an answer. Default: none."""
    answers_per_minute: Count = 10
    """Maximum number of messages that it writes in a minute. It says once that this is reached."""
    answers_per_occupant: Count = 5
    """Maximum number of answers to one occupant in a minute."""


class _Place(Section):
    # The first fields of a room: those of the last base class come first.

    jid: Annotated[str, AfterValidator(_room)] = Field(examples=["lobby@conference.example.com"])
    """Address of the room."""
    nick: Annotated[str, AfterValidator(nickname)] = Field(default="", examples=["FluuxBot"])
    """Nickname of the agent in the room. Default: its name."""
    password: SecretStr = SecretStr("")
    """Password of the room. Default: none."""
    agent: str = DEFAULT_AGENT
    """Name of the agent."""


class RoomEntry(Conversing, _Place):
    """A room in which an agent takes part. See docs/how-to/rooms.md."""

    principal: Annotated[str, AfterValidator(_principal)] = Field(
        default="", examples=["guest@example.com"]
    )
    """Address whose rights occupants without a known account have. Default: that of the room."""
    people: tuple[JidPattern, ...] = Field(default=(), examples=[["ann@example.com"]])
    """Addresses of those who may give commands about the agent in the room, besides the admins of
    the service; `*` and `?` as above. Default: the owners and admins of the room, if it shows their
    accounts.
    """


class Invitations(Conversing):
    """Invitations to rooms, and what an agent does in rooms to which it was invited or sent with
    /room join.
    """

    accept: Literal["admins", "admitted", "nobody"] = "admins"
    """Whose invitations are accepted: those of the admins of the service, of everybody who may use
    the agent, or of nobody. Only a direct invitation (XEP-0249) shows whose it is.
    """
    servers: tuple[Domain, ...] = Field(default=(), examples=[["conference.example.com"]])
    """Servers whose rooms may be entered. Default: all."""
    most: Count = 20
    """Maximum number of rooms in which one agent is because of invitations."""


def _different(entries: tuple[RoomEntry, ...]) -> tuple[RoomEntry, ...]:
    keys = [(entry.agent, entry.jid) for entry in entries]
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice is not None:
        raise refusal(f"has {twice[1]!r} twice for the agent {twice[0]!r}: keep one of them")
    return entries


ROOMS: Final = list_of_tables("rooms", RoomEntry, _different)
INVITATIONS: Final = table("room_invitations", Invitations)
SECTIONS: Final[tuple[Top[Any], ...]] = (ROOMS, INVITATIONS)


def check(settings: Settings) -> None:
    """Raise a refusal if a room names an agent that is not known."""
    known = settings.agent_names
    for index, entry in enumerate(settings[ROOMS]):
        if entry.agent not in known:
            raise refusal(
                f"is {entry.agent!r}, and no agent is called that; there are:"
                f" {', '.join(sorted(known))}",
                key=f"rooms[{index}].agent",
            )
