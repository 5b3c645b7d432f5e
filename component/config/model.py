"""All settings. Each section has its own module in this package.

Each key is defined there with its type, its default and, below it, its documentation, the only
place that explains it: `xmpp-agent init` and docs/reference/configuration.md are made from it.
Names that end in `_s` are seconds, names that end in `_bytes` are bytes.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    PrivateAttr,
    SecretStr,
    create_model,
    model_validator,
)

from component import DEFAULT_AGENT
from component.config.agents import AgentEntry, Budgets, Loop, Personas
from component.config.kinds import EMPTY, Domains, OnUse, different_names, refusal
from component.config.limits import RequestLimits, Tasks
from component.config.llm import LLM
from component.config.memory import Memory, Session
from component.config.peers import Peers
from component.config.policy import Agent, Policy
from component.config.sections import Top
from component.config.server import Server
from component.config.service import Audit, Http, Log, PubSub, Storage, Traces, Uploads
from component.config.skills import Conformance, Skills, XmppSend
from component.config.work import Notifications

NO_SERVER = Server.model_construct(
    component_domain="worker.invalid", component_secret=SecretStr("none")
)
"""The server of a configuration that has only a worker; the domain does not exist (RFC 6761)."""

ENV_PREFIX = "XMPP_AGENT_"
ENV_DELIMITER = "__"


T = TypeVar("T")


class Settings(BaseModel):
    """The settings that no feature declares; `with_sections` returns a subclass that has all.

    `component.config.load` makes them from a file and the environment. Made by hand, as in
    `Settings(server=Server(...))`, they read neither; a wrong value then raises
    `pydantic.ValidationError`.
    """

    model_config = ConfigDict(
        extra="forbid", hide_input_in_errors=True, validate_default=True, defer_build=True
    )

    checks: ClassVar[Sequence[Callable[[Any], None]]] = ()
    """Check the sections of features beside the others; each raises a refusal."""

    described: ClassVar[Sequence[Callable[[Any], Iterable[str]]]] = ()
    """Return the names of `described_sources` that features have."""

    _digest: str = PrivateAttr(default="")
    """Of the files that the settings were read from; empty without any."""

    backend: Literal["trio", "asyncio"] = "trio"
    """Event loop that the service runs on."""
    server: Server
    agent: OnUse[Agent] = EMPTY
    policy: OnUse[Policy] = EMPTY
    peer: OnUse[Peers] = ()
    limits: OnUse[RequestLimits] = EMPTY
    tasks: OnUse[Tasks] = EMPTY
    conformance: OnUse[Conformance] = EMPTY
    skills: OnUse[Skills] = EMPTY
    storage: OnUse[Storage] = EMPTY
    uploads: OnUse[Uploads] = EMPTY
    http: OnUse[Http] = EMPTY
    log: OnUse[Log] = EMPTY
    llm: OnUse[LLM | None] = None
    agents: Annotated[OnUse[tuple[AgentEntry, ...]], AfterValidator(different_names("agents"))] = ()
    loop: OnUse[Loop] = EMPTY
    budgets: OnUse[Budgets] = EMPTY
    memory: OnUse[Memory] = EMPTY
    session: OnUse[Session] = EMPTY
    personas: OnUse[Personas] = EMPTY
    pubsub: OnUse[PubSub] = EMPTY
    audit: OnUse[Audit] = EMPTY
    traces: OnUse[Traces] = EMPTY
    notifications: OnUse[Notifications] = EMPTY
    xmpp_send: OnUse[XmppSend | None] = None

    @model_validator(mode="after")
    def _checks_of_features(self) -> Self:
        for check in type(self).checks:
            check(self)
        return self

    @model_validator(mode="after")
    def _own_domain(self) -> Self:
        if self.agent.allowed_domains is None:
            parent = self.server.parent_domain
            if not parent:
                raise refusal(
                    "is needed, because component_domain has only one label: name the domains "
                    'whose users may use the agent, or ["*"]',
                    key="agent.allowed_domains",
                )
            self.agent = self.agent.model_copy(update={"allowed_domains": (parent,)})
        return self

    @model_validator(mode="after")
    def _one_agent_of_a_client(self) -> Self:
        others = self.agent_names[1:]
        if self.server.mode == "client" and others:
            raise refusal(
                f'has {others[0]!r}, which has no address: with server.mode = "client" one account '
                f"is one agent. Call it {DEFAULT_AGENT!r}, or run it with another account in "
                "another "
                "process",
                key="agents",
            )
        return self

    def __getitem__(self, key: Top[T]) -> T:
        """Return the value of a section that a feature declares; its default if these settings
        have no such feature.
        """
        value: T = getattr(self, key.name, key.default)
        return value

    @property
    def digest(self) -> str:
        """A hash of the files that the settings were read from; empty if they were made by hand."""
        return self._digest

    @property
    def agent_names(self) -> tuple[str, ...]:
        """The names of the agents that this service has; the default agent is the first."""
        others = (entry.name for entry in self.agents if entry.name != DEFAULT_AGENT)
        return (DEFAULT_AGENT, *others)

    @property
    def allowed_domains(self) -> Domains:
        """The domains whose users may use the agent, with the default applied."""
        domains = self.agent.allowed_domains
        assert domains is not None, "computed when the settings were created"
        return domains

    @property
    def is_worker(self) -> bool:
        """Whether this is the configuration of a worker, which has no XMPP server."""
        return self.server == NO_SERVER

    @property
    def memory_path(self) -> Path:
        """The directory of the memory."""
        return self.memory.path or self.storage.path / "memory"

    @property
    def proposals_path(self) -> Path | None:
        """The directory of proposed skills; None if none can be proposed."""
        section = self.skills.proposals
        if section is None or not section.enabled:
            return None
        return section.directory or self.storage.path / "proposed-skills"

    @property
    def skill_roots(self) -> tuple[Path, ...]:
        """The directories in which skills are installed; that of proposals is the last."""
        proposed = self.proposals_path
        return (*self.skills.directories, *(() if proposed is None else (proposed,)))

    @property
    def described_sources(self) -> tuple[str, ...]:
        """The names of the sources whose skills somebody else describes, and whose descriptions
        neither the settings pin nor a `taint` trusts.
        """
        return tuple(name for described in type(self).described for name in described(self))

    @property
    def later(self) -> tuple[str, ...]:
        """The keys in the file that this release does not support: `skills.web_search`, …"""
        return tuple(f"skills.{key}" for key in self.skills.later)

    @property
    def speechless(self) -> str | None:
        """One sentence if agents are declared but no model is configured; None otherwise."""
        if not self.agents or self.llm is not None:
            return None
        return "agents are declared in [[agents]], but they need a model: add [llm]"

    @property
    def notice(self) -> str | None:
        """One sentence for the log at start about keys that are not supported yet, or None."""
        if not self.later:
            return None
        return f"not supported by this release and ignored: {', '.join(self.later)}"


def with_sections(
    sections: Iterable[Top[Any]],
    checks: Iterable[Callable[[Settings], None]],
    described: Iterable[Callable[[Settings], Iterable[str]]] = (),
) -> type[Settings]:
    """Return the class of settings that have the sections of features, too.

    Each of `checks` looks at the whole settings and raises a refusal; each of `described` returns
    names of `Settings.described_sources`.
    """
    fields: dict[str, Any] = {each.name: (each.annotation, each.default) for each in sections}
    model = create_model("Settings", __base__=Settings, __doc__=Settings.__doc__, **fields)
    model.checks = tuple(checks)
    model.described = tuple(described)
    return model
