"""The sections that declare agents, their personas and their budgets."""

from typing import Annotated

from pydantic import AfterValidator, Field

from component.config.kinds import EMPTY, Count, DisplayText, FilePath, Seconds, Section, refusal
from component.config.llm import ModelChoice, Tier, Usd


def _local(value: str) -> str:
    if not value or any(c in "@/ \"&'<>:+" or c.isspace() or c.isupper() for c in value):
        raise refusal("must be the part of an address before the @, in lower case: `researcher`")
    return value


class Budget(Section):
    """A budget. A call of a model that would exceed it is not made."""

    tokens: Count | None = Field(default=None, examples=[200000])
    """Maximum number of tokens. Default: no limit."""
    usd: Usd | None = Field(default=None, examples=[1.5])
    """Maximum amount in US dollars. Default: no limit."""


class Budgets(Section):
    """Budgets for language models. Each limit applies on its own, in tokens and in US dollars."""

    per_principal: Budget = EMPTY
    """Daily budget of one principal (UTC)."""
    per_task: Budget = EMPTY
    """Budget of one turn, from a message to its answer."""
    total: Budget = EMPTY
    """Daily budget of the whole service."""
    alert: Annotated[float, Field(gt=0, lt=1)] = 0.8
    """Fraction of a budget at which the admins are notified, once a day."""


class Loop(Section):
    """Limits for the turns of agents."""

    max_iterations: Count = 50
    """Maximum number of model calls per turn."""
    same_call: Count = Field(default=3, ge=2)
    """Number of calls with the same arguments and the same result in one turn from which on the
    model is warned.
    """
    tool_timeout_s: Seconds = 120
    """Timeout in seconds for one tool call; a skill may have a shorter one."""
    tool_result_tokens: Count = 4000
    """Maximum number of tokens of a tool's result that are sent to the model."""
    turns_total: Count = 100
    """Maximum number of turns that run at the same time; others wait."""
    waiting_per_principal: Count = 20
    """Maximum number of waiting messages of one principal."""
    depth: Annotated[int, Field(ge=0, le=8)] = 2
    """Maximum depth of sub-agents; 0 means no sub-agents."""
    children: Count = 4
    """Maximum number of sub-agents of one agent that run at the same time."""
    idle_s: Seconds = 300
    """Seconds without a message after which an agent counts as idle."""


class AgentEntry(Section):
    """An agent with its own address. Default: one agent, `assistant`."""

    name: Annotated[str, AfterValidator(_local)] = Field(examples=["researcher"])
    """Name of the agent: the part of its address before the @. `assistant` is the one that answers
    messages to the domain itself.
    """
    title: DisplayText = ""
    """Name shown to people. Default: agent.name for `assistant`, otherwise the name."""
    description: str = ""
    """One line that describes the agent; it is also in the vCard."""
    avatar: FilePath | None = Field(default=None, examples=["./researcher.png"])
    """PNG file that clients show for the agent. Default: agent.avatar for `assistant`, and a
    generated pattern for the others.
    """
    identity: str = ""
    """The agent's identity, for the model. Default: identity.md of the workspace."""
    personality: str = ""
    """The agent's style. Default: personality.md of the workspace."""
    instructions: str = ""
    """The agent's instructions. Default: instructions.md of the workspace."""
    persona: str = Field(default="", examples=["researcher"])
    """Id of the persona for people who have not chosen one. Default for `assistant`:
    personas.default.
    """
    tier: Tier = "standard"
    """Model tier of [llm] that the agent uses."""
    llm: ModelChoice | None = None
    """The agent's own model instead of that of [llm], which is the fallback. With the same provider
    it uses the base_url and api_key of [llm] unless it sets its own.
    """
    temperature: Annotated[float, Field(ge=0, le=2)] | None = Field(default=None, examples=[0.2])
    """Instead of llm.temperature."""
    capabilities: tuple[str, ...] = Field(
        default=("*",), examples=[["memory:*", "network:api.example.com:443"]]
    )
    """Capabilities that the agent's skills may need; other skills are not offered to it."""
    skills: tuple[str, ...] = Field(default=("*",), examples=[["memory_*", "report"]])
    """Names of the skills that are offered to the agent, out of those that the person may use; `*`
    and `?` as in policy rules.
    """
    spawn: bool = True
    """Whether it may have sub-agents."""
    max_iterations: Count | None = Field(default=None, examples=[20])
    """Instead of loop.max_iterations."""
    budget: Budget = EMPTY
    """Daily budget of the agent, including its sub-agents."""


def jid_pattern(value: str) -> str:
    """Return a pattern of addresses: a bare JID, in which `*` and `?` may match characters.

    Raises a `refusal` for a pattern that could match no address, so that no restriction is silently
    ineffective.
    """
    if not value or "/" in value or any(c.isspace() for c in value):
        raise refusal("must be an address without a resource; `*` and `?` match characters")
    if "*" in value or "?" in value:
        return value.lower()
    from xep.jid import JID, JIDError  # noqa: PLC0415 - only for who restricts somebody

    try:
        return str(JID.parse(value))
    except JIDError as error:
        raise refusal(f"is not an address (RFC 7622). {error}") from None


JidPattern = Annotated[str, AfterValidator(jid_pattern)]


class PersonaRestriction(Section):
    """Which personas some people or rooms can choose. The first entry that matches applies; without
    a match all can be chosen.
    """

    jid: JidPattern = Field(examples=["dev@conference.example.com"])
    """Bare address of a person or room; `*` and `?` match any characters and any one character."""
    allowed: tuple[str, ...] = Field(examples=[["coding-mentor", "code-*"]])
    """Ids of the personas, with `*` and `?` as above."""


class Personas(Section):
    """Personas that people can choose for the agent: packages in `personas/` of memory.path."""

    default: str = Field(default="", examples=["general-assistant"])
    """Id of the persona of `assistant` for people who have not chosen one. Default: none."""
    allow_user_personas: bool = False
    """People may create personas for themselves. Off by default, because such a persona replaces
    the texts in identity.md and personality.md (not instructions.md). Existing ones are used only
    while this is on.
    """
    max_user_personas: Count = Field(default=5, le=1000)
    """Maximum number of personas that one person may create with one agent."""
    allow_sharing: bool = False
    """People may export the personas that they created as a text, and import such texts. Off by
    default, because the agent treats an imported text as written by the person, although somebody
    else may have written it.
    """
    restrictions: tuple[PersonaRestriction, ...] = ()
