"""The sections about who may talk to the agent, and who may use which skill."""

from typing import Self

from pydantic import Field, model_validator

from component.settings.flows import Flow
from component.settings.kinds import Confirm, Domains, Jids, Seconds, Section, Shown, refusal


class Agent(Section):
    """Who the agent is and who may talk to it. A sender must pass both lists."""

    name: Shown = Field(
        default="Assistant",
        min_length=1,
        description="Name shown to people and in service discovery.",
    )
    allowed_jids: Jids | None = Field(
        default=None,
        examples=[["admin@example.com"]],
        description='Bare JIDs that may use the agent. Missing or `["*"]` means everybody of the '
        "allowed domains, an empty list means nobody.",
    )
    allowed_domains: Domains | None = Field(
        default=None,
        examples=[["example.com"]],
        description="Domains whose users may use the agent: component_domain without its first "
        'label unless set. `["*"]` means every domain that the server federates with, an empty '
        "list means none.",
    )
    admins: Jids = Field(
        default=(),
        examples=[["admin@example.com"]],
        description="Bare JIDs that may use the commands for admins, in chat and as forms: see and "
        "end the tasks of everybody, pause, status. They must also pass both lists.",
    )


class Rule(Section):
    """Narrows who sees and may execute the skills it names.

    A sender must pass `[agent]` and every rule that matches the skill. A skill that somebody may
    not execute does not exist for them.
    """

    skills: tuple[str, ...] = Field(
        min_length=1,
        examples=[["report", "conformance.*"]],
        description="Names of skills; `*` and `?` stand for any characters and any one character.",
    )
    allowed_jids: Jids | None = Field(
        default=None,
        examples=[["admin@example.com"]],
        description="Bare JIDs that may execute these skills; an empty list means nobody.",
    )
    allowed_domains: Domains | None = Field(
        default=None,
        examples=[["example.com"]],
        description="Domains whose users may execute these skills; an empty list means none.",
    )
    confirm: Confirm | None = Field(
        default=None,
        examples=["never"],
        description="When a person is asked before these skills run, instead of policy.confirm.",
    )
    approvers: Jids | None = Field(
        default=None,
        min_length=1,
        examples=[["boss@example.com"]],
        description="Bare JIDs that are asked in place of whoever executes these skills. The first "
        "answer of any of them counts.",
    )

    @model_validator(mode="after")
    def _narrows(self) -> Self:
        if all(value is None for name, value in self if name != "skills"):
            raise refusal(
                "narrows nothing: add allowed_jids, allowed_domains, confirm or approvers, or"
                " remove it"
            )
        return self


class Policy(Section):
    """Who may use which skill, and when a person is asked first."""

    confirm: Confirm = Field(
        default="destructive",
        description="When a person is asked before a skill runs: destructive (each time one that "
        "is not marked as harmless is to run), always, or never. never holds for what people "
        "execute themselves; other agents are not trusted with destructive skills in any case.",
    )
    confirm_expires_s: Seconds = Field(
        default=86400,
        description="Seconds after which a question to confirm something lapses, and the task "
        "that waits for it fails.",
    )
    rules: tuple[Rule, ...] = Field(
        default=(),
        description="Rules that narrow who may use which skills. In confirm and approvers the "
        "first rule that matches a skill and sets it counts.",
    )
    flows: tuple[Flow, ...] = Field(
        default=(), description="What data of strangers may reach when a model acts on it."
    )
