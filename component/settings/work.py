"""What schedules, watches and webhooks have in common: the work that they start."""

from collections.abc import Collection, Sequence
from decimal import Decimal
from typing import Annotated, Any, Literal, Protocol, Self

from pydantic import AfterValidator, Field, model_validator

from component.settings.kinds import Account, Section, refusal
from component.settings.llm import Usd
from component.settings.templates import NotificationTemplate

PayerScope = Literal["agent", "principal", "day"]
AgentName = Annotated[str, Field(min_length=1, description="Name of the agent that does the work.")]
Recipients = Annotated[
    tuple[Account, ...],
    Field(
        examples=[["romeo@example.com"]],
        description="Addresses of the people who get the result. Default: the principal.",
    ),
]
Silent = Annotated[
    bool,
    Field(description="Send the result to nobody. The principal is still notified of failures."),
]
Priority = Annotated[
    Literal["low", "normal", "high"],
    Field(description="Priority of the task and of its notification."),
]


def read_payer(text: str) -> tuple[PayerScope, str]:
    """Return the scope of a budget and its owner, from `agent:NAME`, `principal:JID` or `total`.

    Raises ValueError.
    """
    from xep.jid import JID, JIDError  # noqa: PLC0415 - most settings need none of it

    scope, _, of = text.partition(":")
    if text == "total":
        return "day", ""
    if scope == "agent" and of:
        return "agent", of
    if scope == "principal":
        try:
            person = JID.parse(of)
        except JIDError as error:
            raise ValueError(f"names {of!r}, which is not an address: {error}") from None
        if person.local is not None and person.resource is None:
            return "principal", str(person)
    raise ValueError("must be agent:NAME, principal:ADDRESS or total")


def _payer(value: str) -> str:
    try:
        if value:
            read_payer(value)
    except ValueError as error:
        raise refusal(str(error)) from None
    return value


class WorkEntry(Section):
    """Work that an agent starts by itself. Either `goal` or `skill` is set."""

    principal: Account = Field(
        examples=["juliet@example.com"],
        description="Address of the person whose rights the work has, and whose budget pays.",
    )
    agent: AgentName = "assistant"
    goal: str = Field(
        default="",
        max_length=20_000,
        examples=["Sum it up in three sentences."],
        description="What the agent does, in words. It needs a model. Either this or `skill`.",
    )
    skill: str = Field(
        default="", examples=["report"], description="Name of the skill that is run."
    )
    params: dict[str, Any] = Field(
        default={}, examples=[{"topic": "rivers"}], description="Parameters of the skill."
    )
    tell: Recipients = ()
    silent: Silent = False
    deliver: Literal["now", "online"] = Field(
        default="now",
        description="When people get the result: now, or online to hold it until they are"
        " online. Quiet hours apply to both.",
    )
    priority: Priority = "normal"
    template: NotificationTemplate = Field(
        default="",
        examples=["Deployment: $text"],
        description="Text of the notification. It can insert $text, $first_line, $name,"
        " $source and $agent; $$ is a dollar sign. Default: the result alone.",
    )
    payer: Annotated[str, AfterValidator(_payer)] = Field(
        default="",
        examples=["agent:assistant"],
        description="Budget that pays for a goal instead of those of the principal and the agent:"
        " `agent:NAME`, `principal:ADDRESS`, or `total` for that of the whole service alone.",
    )
    budget_usd: Usd | None = Field(
        default=None,
        examples=[0.5],
        description="Maximum cost of a goal in US dollars, each time it starts. What it costs is"
        " charged to the budgets that pay, which limit it, too. Default: no maximum of its own.",
    )

    @model_validator(mode="after")
    def _goal_or_skill(self) -> Self:
        if bool(self.goal) == bool(self.skill):
            raise refusal("needs either goal or skill, and not both", key="goal")
        if self.params and not self.skill:
            raise refusal("is for a skill: set skill, too", key="params")
        for key in ("payer", "budget_usd"):
            if self.skill and getattr(self, key) not in ("", None):
                raise refusal("is for the calls of models: it needs a goal, not a skill", key=key)
        return self

    @property
    def budget(self) -> Decimal | None:
        """The maximum cost of each start, in US dollars; None for no additional limit."""
        return None if self.budget_usd is None else Decimal(str(self.budget_usd))


class OfAgent(Protocol):
    """An entry that names the agent that does its work."""

    @property
    def agent(self) -> str:
        """The name of the agent."""


def known_agents_only(known: Collection[str], section: str, entries: Sequence[OfAgent]) -> None:
    """Raise a refusal if an entry of a list of tables names an agent that is not known."""
    there_are = f"there are: {', '.join(sorted(known))}"
    for index, entry in enumerate(entries):
        if entry.agent not in known:
            raise refusal(
                f"is {entry.agent!r}, and no agent is called that; {there_are}",
                key=f"{section}[{index}].agent",
            )
        scope, _, payer = getattr(entry, "payer", "").partition(":")
        if scope == "agent" and payer not in known:
            raise refusal(
                f"names the agent {payer!r}, and no agent is called that; {there_are}",
                key=f"{section}[{index}].payer",
            )
