"""The sections that declare agents, and what they may spend."""

from typing import Annotated

from pydantic import AfterValidator, Field

from component.settings.kinds import Count, Seconds, Section, Shown, refusal
from component.settings.llm import ModelChoice, Tier, Usd


def _local(value: str) -> str:
    if not value or any(c in "@/ \"&'<>:+" or c.isspace() or c.isupper() for c in value):
        raise refusal("must be the part of an address before the @, in lower case: `researcher`")
    return value


class Budget(Section):
    """A limit of what may be spent. A call of a model that would exceed it is not made."""

    tokens: Count | None = Field(
        default=None, examples=[200000], description="Most tokens; no limit unless set."
    )
    usd: Usd | None = Field(
        default=None, examples=[1.5], description="Most US dollars; no limit unless set."
    )


class Budgets(Section):
    """What may be spent on models; each limit holds by itself, and in tokens as in US dollars."""

    per_principal: Budget = Field(
        default=Budget(), description="What one principal may spend in a day (UTC)."
    )
    per_task: Budget = Field(
        default=Budget(), description="What one turn may cost, from a message to its answer."
    )
    total: Budget = Field(default=Budget(), description="What all together may spend in a day.")
    alert: Annotated[float, Field(gt=0, lt=1)] = Field(
        default=0.8,
        description="The part of a budget at which the admins are told, once a day.",
    )


class Loop(Section):
    """What keeps an agent from running away."""

    max_iterations: Count = Field(default=50, description="Most calls of the model in one turn.")
    same_tool: Count = Field(
        default=8, ge=2, description="Calls of the same tool in a row that count as a loop."
    )
    ping_pong: Count = Field(
        default=4, ge=2, description="Times that two tools alternate that count as a loop."
    )
    same_call: Count = Field(
        default=3, ge=2, description="Calls with the same arguments that count as a loop."
    )
    tool_timeout_s: Seconds = Field(
        default=120,
        description="Seconds that one call of a tool may run at most; its skill may allow less.",
    )
    tool_result_tokens: Count = Field(
        default=4000, description="Most tokens of a tool's result that the model is shown."
    )
    turns_total: Count = Field(
        default=100, description="Turns that are worked on at the same time; others wait."
    )
    waiting_per_principal: Count = Field(
        default=20, description="Messages of one principal that may wait for their turn."
    )
    depth: Annotated[int, Field(ge=0, le=8)] = Field(
        default=2, description="How deep sub-agents may spawn sub-agents; 0 means none at all."
    )
    children: Count = Field(
        default=4, description="Sub-agents that one agent may have at work at the same time."
    )
    idle_s: Seconds = Field(
        default=300, description="Seconds without a message after which an agent counts as idle."
    )


class AgentEntry(Section):
    """An agent of its own address. Without any there is one, `assistant`."""

    name: Annotated[str, AfterValidator(_local)] = Field(
        examples=["researcher"],
        description="The part of its address before the @. `assistant` is the one that answers"
        " messages to the domain itself.",
    )
    title: Shown = Field(
        default="", description="Name shown to people; agent.name, or the name itself, unless set."
    )
    description: str = Field(default="", description="One line on what it is for.")
    identity: str = Field(
        default="", description="Who it is, for the model; the workspace's identity.md unless set."
    )
    personality: str = Field(
        default="", description="How it speaks; the workspace's personality.md unless set."
    )
    instructions: str = Field(
        default="", description="What it must keep to; the workspace's instructions.md unless set."
    )
    persona: str = Field(
        default="",
        examples=["researcher"],
        description="Id of the persona that it has for who has chosen none; for `assistant` that of"
        " personas.default unless set.",
    )
    tier: Tier = Field(default="standard", description="Which model of [llm] it uses.")
    llm: ModelChoice | None = Field(
        default=None,
        description="A model of its own instead of one of [llm], which stands in for it. One of the"
        " same provider has the address and key of [llm], unless it names its own.",
    )
    temperature: Annotated[float, Field(ge=0, le=2)] | None = Field(
        default=None, examples=[0.2], description="Instead of llm.temperature."
    )
    capabilities: tuple[str, ...] = Field(
        default=("*",),
        examples=[["memory:*", "network:api.example.com:443"]],
        description="What its skills may touch; a skill that needs more is not offered to it.",
    )
    skills: tuple[str, ...] = Field(
        default=("*",),
        examples=[["memory_*", "report"]],
        description="Names of the skills it is offered, of those that the person it talks with may"
        " use; `*` and `?` as in policy rules.",
    )
    spawn: bool = Field(default=True, description="Whether it may have sub-agents.")
    max_iterations: Count | None = Field(
        default=None, examples=[20], description="Instead of loop.max_iterations."
    )
    budget: Budget = Field(
        default=Budget(), description="What the agent may spend in a day, its sub-agents included."
    )
