"""All settings together. Each section has a room of its own beside this one.

Each key stands there with its type, its default and its own documentation, the only place where it
is explained: `xmpp-agent init`, the reference page docs/configuration.md and the error sentences
are all made from it. Names that end in `_s` are seconds, names that end in `_bytes` are bytes.
"""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from component.settings.agents import AgentEntry, Budgets, Loop
from component.settings.audit import Audit, Metrics, Traces
from component.settings.kinds import Domains, Later, refusal
from component.settings.limits import Limits, Tasks
from component.settings.llm import LLM
from component.settings.log import Log
from component.settings.memory import Memory, Session
from component.settings.personas import Personas
from component.settings.policy import Agent, Policy
from component.settings.server import Server
from component.settings.skills import Conformance, Skills
from component.settings.storage import Storage

ENV_PREFIX = "XMPP_AGENT_"
ENV_DELIMITER = "__"


class Settings(BaseSettings):
    """Everything that can be configured.

    Made from a file and the environment by `component.settings.load`. Made by hand, as in
    `Settings(server=Server(...))`, it reads neither; a wrong value then raises
    `pydantic.ValidationError`.
    """

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX,
        env_nested_delimiter=ENV_DELIMITER,
        extra="forbid",
        hide_input_in_errors=True,
        validate_default=True,
    )

    backend: Literal["trio", "asyncio"] = Field(
        default="trio", description="Event loop that the service runs on."
    )
    server: Server
    agent: Agent = Agent()
    policy: Policy = Policy()
    limits: Limits = Limits()
    tasks: Tasks = Tasks()
    conformance: Conformance = Conformance()
    skills: Skills = Skills()
    storage: Storage = Storage()
    log: Log = Log()
    llm: LLM | None = None
    agents: tuple[AgentEntry, ...] = ()
    loop: Loop = Loop()
    budgets: Budgets = Budgets()
    memory: Memory = Memory()
    session: Session = Session()
    personas: Personas = Personas()
    audit: Audit = Audit()
    metrics: Metrics = Metrics()
    traces: Traces = Traces()

    rooms: Later = False

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        *_others: PydanticBaseSettingsSource,
        **_more: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read nothing but the arguments: `load` merges the file and the environment itself."""
        return (init_settings,)

    @field_validator("agents")
    @classmethod
    def _names_differ(cls, value: tuple[AgentEntry, ...]) -> tuple[AgentEntry, ...]:
        names = [entry.name for entry in value]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise refusal(f"has two agents called {twice!r}: give each a name of its own")
        return value

    @model_validator(mode="after")
    def _own_domain(self) -> Self:
        if self.agent.allowed_domains is None:
            parent = self.server.component_domain.partition(".")[2]
            if not parent:
                raise refusal(
                    "is needed, because component_domain has only one label: name the domains "
                    'whose users may use the agent, or ["*"]',
                    key="agent.allowed_domains",
                )
            self.agent = self.agent.model_copy(update={"allowed_domains": (parent,)})
        return self

    @property
    def allowed_domains(self) -> Domains:
        """The domains whose users may use the agent, the default worked out."""
        domains = self.agent.allowed_domains
        assert domains is not None, "worked out when the settings were made"
        return domains

    @property
    def memory_path(self) -> Path:
        """The directory of the memory."""
        return self.memory.path or self.storage.path / "memory"

    @property
    def later(self) -> tuple[str, ...]:
        """What the file sets that no part of this release reads: `llm`, `skills.web_search`, …"""
        sections = tuple(name for name in LATER if getattr(self, name))
        return sections + tuple(f"skills.{key}" for key in self.skills.later)

    @property
    def speechless(self) -> str | None:
        """One sentence if agents are declared and there is no model with which they talk."""
        if not self.agents or self.llm is not None:
            return None
        return "agents are declared in [[agents]], and cannot talk without a model: add [llm]"

    @property
    def notice(self) -> str | None:
        """One sentence for the log at start about what is set but not read yet, or None."""
        if not self.later:
            return None
        return f"not served by this release and left unread: {', '.join(self.later)}"


LATER: tuple[str, ...] = tuple(
    name for name, field in Settings.model_fields.items() if field.annotation is bool
)
"""The sections that later releases serve: accepted, and not looked into."""
