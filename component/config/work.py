"""The work that agents start by themselves, and the notifications about it."""

import functools
import re
from collections.abc import Collection, Sequence
from datetime import time
from decimal import Decimal
from string import Template
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self
from zoneinfo import ZoneInfo, available_timezones

from pydantic import AfterValidator, Field, model_validator

from component.config.kinds import Account, Count, Seconds, Section, refusal
from component.config.llm import Usd

PLACEHOLDERS: Final = ("agent", "first_line", "name", "source", "text")
"""The values that a template can insert: the agent's name, the first line of the result, the name
of the schedule, watch or webhook, the kind of source that started the work, and the result.
"""

_LONGEST: Final = 2_000


def template_fault(text: str) -> str | None:
    """Return why a text is not a template, as a clause; None if it is one."""
    template = Template(text)
    if len(text) > _LONGEST:
        return f"has {len(text)} characters; the maximum is {_LONGEST}"
    if not template.is_valid():
        return "has a $ without a placeholder: write $$ for a dollar sign"
    unknown = [name for name in template.get_identifiers() if name not in PLACEHOLDERS]
    if unknown:
        known = ", ".join(f"${name}" for name in PLACEHOLDERS)
        return f"has the placeholder ${unknown[0]}, which does not exist; available are {known}"
    return None


def _template(value: str) -> str:
    fault = template_fault(value)
    if fault is not None:
        raise refusal(fault)
    return value


NotificationTemplate = Annotated[str, AfterValidator(_template)]
"""A setting that contains a template; empty for the default one."""


_HOURS: Final = r"(\d{1,2}):(\d{2})\s*[-\u2013]\s*(\d{1,2}):(\d{2})"


def quiet_hours(text: str) -> tuple[time, time] | None:
    """Return the start and end of quiet hours such as `22:00-07:00`; None if the text has another
    form, or both times are equal.
    """
    found = re.fullmatch(_HOURS, text.strip())
    if found is None:
        return None
    try:
        begin, end = time(int(found[1]), int(found[2])), time(int(found[3]), int(found[4]))
    except ValueError:
        return None
    return None if begin == end else (begin, end)


def time_zone(name: str) -> ZoneInfo | None:
    """Return a time zone by its name in the IANA database, such as `Europe/Paris`; None
    if unknown.
    """
    return ZoneInfo(name) if name in _time_zones() else None


@functools.cache
def _time_zones() -> frozenset[str]:
    # Listing them reads hundreds of files.
    return frozenset(available_timezones())


def _quiet(value: str) -> str:
    if value and quiet_hours(value) is None:
        raise refusal("must be two different times, such as 22:00-07:00, or empty for none")
    return value


class Notifications(Section):
    """Notifications: messages about work that an agent started by itself."""

    quiet: Annotated[str, AfterValidator(_quiet)] = "22:00-07:00"
    """Hours in which nobody is notified unless they choose others with /quiet, in the time zone of
    each person. Empty for none.
    """
    window_s: Seconds = 600
    """Seconds to which per_window refers."""
    per_window: Count = 5
    """Maximum number of notifications that one person gets from one agent within window_s. Further
    ones are gathered and sent as one digest.
    """
    held_per_person: Count = 500
    """Maximum number of notifications that one agent holds for one person. If there are more, the
    oldest one of the lowest priority is dropped, and the person is told how many were dropped.
    """
    repeat_high_s: Seconds = 300
    """Seconds without a receipt after which a notification of high priority is sent once more."""
    repeat_s: Seconds = 3600
    """Seconds without a receipt after which a notification of normal priority is sent once more, to
    people whose clients send receipts.
    """


if TYPE_CHECKING:
    from component.config.skills import SkillScheduleEntry

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

    principal: Account = Field(examples=["juliet@example.com"])
    """Address of the person whose rights the work has, and whose budget pays."""
    agent: AgentName = "assistant"
    goal: str = Field(default="", max_length=20_000, examples=["Sum it up in three sentences."])
    """What the agent does, in words. It needs a model. Either this or `skill`."""
    skill: str = Field(default="", examples=["report"])
    """Name of the skill that is run."""
    params: dict[str, Any] = Field(default={}, examples=[{"topic": "rivers"}])
    """Parameters of the skill."""
    tell: Recipients = ()
    silent: Silent = False
    deliver: Literal["now", "online"] = "now"
    """When people get the result: now, or online to hold it until they are online. Quiet hours
    apply to both.
    """
    priority: Priority = "normal"
    template: NotificationTemplate = Field(default="", examples=["Deployment: $text"])
    """Text of the notification. It can insert $text, $first_line, $name, $source and $agent; $$ is
    a dollar sign. Default: the result alone.
    """
    payer: Annotated[str, AfterValidator(_payer)] = Field(default="", examples=["agent:assistant"])
    """Budget that pays for a goal instead of those of the principal and the agent: `agent:NAME`,
    `principal:ADDRESS`, or `total` for that of the whole service alone.
    """
    budget_usd: Usd | None = Field(default=None, examples=[0.5])
    """Maximum cost of a goal in US dollars, each time it starts. What it costs is charged to the
    budgets that pay, which limit it, too. Default: no maximum of its own.
    """

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


def known_agents_only(
    known: Collection[str], section: str, entries: "Sequence[WorkEntry | SkillScheduleEntry]"
) -> None:
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
