"""The settings themselves: each key with its type, its default and its own documentation.

The descriptions are the only place where a key is explained: `xmpp-agent init`, the reference page
docs/configuration.md and the error sentences are all made from them. Names that end in `_s` are
seconds, names that end in `_bytes` are bytes.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from component.settings.agents import AgentEntry, Budgets, Loop
from component.settings.audit import Audit, Metrics, Traces
from component.settings.flows import Flow
from component.settings.kinds import (
    Confirm,
    Count,
    Domain,
    Domains,
    Jids,
    Later,
    Port,
    Seconds,
    Section,
    Shown,
    refusal,
)
from component.settings.llm import LLM
from component.settings.memory import Memory, Session
from component.settings.personas import Personas

ENV_PREFIX = "XMPP_AGENT_"
ENV_DELIMITER = "__"


def _component_only(value: object) -> object:
    if value == "client":
        raise PydanticCustomError(
            "client_mode",
            'is "client": running as an ordinary account comes with the `client` extra in a later '
            'release; use mode = "component" and give the agent a domain of its own',
        )
    return value


class Server(Section):
    """The XMPP server and the component connection to it (XEP-0114)."""

    host: str = Field(
        default="localhost",
        min_length=1,
        description="Name or address of the machine where the XMPP server listens for components.",
    )
    port: Port = Field(
        default=5275,
        description="TCP port for components. Prosody listens on 5347 unless told otherwise; "
        "Openfire and most ejabberd examples use 5275.",
    )
    mode: Annotated[Literal["component"], BeforeValidator(_component_only)] = Field(
        default="component",
        description="How the agent is attached: as a component with a domain of its own. "
        '"client" (an ordinary account) comes in a later release.',
    )
    component_domain: Domain = Field(
        examples=["agent.example.com"],
        description="The agent's own domain, as the server's configuration names it.",
    )
    component_secret: SecretStr = Field(
        min_length=1,
        examples=["${AGENT_SECRET}"],
        description="The secret shared with the server. Keep it out of this file: `${NAME}` is "
        "read from the environment, or from the file of the same name that ends in .env.",
    )
    tls: bool = Field(
        default=False,
        description="Use TLS from the first byte. Needed when the way to the server is not "
        "private: without it the stanzas travel in the clear.",
    )
    tls_ca: Path | None = Field(
        default=None,
        examples=["/etc/ssl/private-ca.pem"],
        description="File of PEM certificates to trust instead of the system's. Only with tls.",
    )
    tls_verify: bool = Field(
        default=True,
        description="Check the server's certificate and name. Turn it off for tests only.",
    )
    tls_server_name: str | None = Field(
        default=None,
        min_length=1,
        examples=["xmpp.example.com"],
        description="Name to expect in the server's certificate; host unless set. Only with tls.",
    )
    connect_timeout_s: Seconds = Field(
        default=10,
        description="Seconds to wait for a connection, TLS and handshake together.",
    )
    keepalive_s: Seconds = Field(
        default=30,
        description="Seconds without anything sent after which one space is sent, so that "
        "firewalls keep the connection open.",
    )
    read_timeout_s: Seconds = Field(
        default=90,
        description="Seconds of silence from the server after which a probe is sent: an IQ to the "
        "agent's own domain, which the server sends back.",
    )
    probe_timeout_s: Seconds = Field(
        default=15,
        description="Seconds to wait for the probe before the connection counts as dead.",
    )
    reconnect_min_s: Seconds = Field(
        default=1,
        description="Longest wait in seconds before the first attempt to reconnect. It doubles "
        "with each failure; each wait is drawn at random up to it.",
    )
    reconnect_max_s: Seconds = Field(
        default=60,
        description="Longest wait in seconds before any attempt to reconnect.",
    )
    drain_s: Seconds = Field(
        default=15,
        description="Seconds given to work in flight when the service is told to stop.",
    )
    max_stanza_bytes: Count = Field(
        default=262144,
        ge=10000,  # RFC 6120 §13.12: no limit may be below this
        description="Largest stanza accepted, in bytes as received; at least 10000.",
    )
    max_depth: Count = Field(
        default=64,
        ge=8,
        description="Deepest nesting of elements accepted in a stanza.",
    )
    max_elements: Count = Field(
        default=10000,
        ge=64,
        description="Largest number of elements accepted in a stanza.",
    )

    @field_validator("reconnect_max_s")
    @classmethod
    def _in_order(cls, value: float, info: ValidationInfo) -> float:
        if value < info.data.get("reconnect_min_s", value):
            raise refusal("must not be smaller than server.reconnect_min_s")
        return value

    @field_validator("tls_ca", "tls_server_name", "tls_verify")
    @classmethod
    def _only_with_tls(cls, value: Any, info: ValidationInfo) -> Any:
        # Somebody who names a certificate believes that it is checked.
        unset = value is None or value is True
        if not unset and info.data.get("tls") is False:
            raise refusal("has no effect while server.tls is false: set tls = true or remove it")
        return value


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


class Limits(Section):
    """How much one principal (a bare JID) and all of them together may ask for at a time."""

    requests_per_principal: Count = Field(
        default=64,
        description="Requests of one principal in work or waiting. One more is refused at once "
        "with `resource-constraint` and a hint when to retry.",
    )
    requests_total: Count = Field(
        default=1024,
        description="Requests of everybody in work or waiting; refused in the same way.",
    )
    threads_per_principal: Count = Field(
        default=8,
        description="Worker threads that the plain (not async) skills of one principal may hold.",
    )
    threads_total: Count = Field(
        default=32, description="Worker threads for plain skills altogether."
    )
    retry_after_s: Count = Field(
        default=2,
        description="Hint in whole seconds, sent with a refusal for want of room.",
    )
    inline_s: Seconds = Field(
        default=10,
        description="Seconds a skill may take to answer within its IQ.",
    )
    iq_timeout_s: Seconds = Field(
        default=30, description="Seconds to wait for the answer to an IQ of the agent's own."
    )
    output_bytes: Count = Field(
        default=8388608,
        ge=262144,
        description="Bytes that may wait to be sent to a server that reads slowly; at least "
        "262144. At the bound new requests are refused until the server has caught up.",
    )

    @field_validator("requests_total", "threads_total")
    @classmethod
    def _holds_a_share(cls, value: int, info: ValidationInfo) -> int:
        share = f"{str(info.field_name).removesuffix('_total')}_per_principal"
        if value < info.data.get(share, value):
            raise refusal(f"must not be smaller than limits.{share}")
        return value


class Tasks(Section):
    """Work that outlives its request: how much of it there may be, and how long it is kept."""

    per_principal: Count = Field(
        default=100,
        description="Tasks of one principal that may be open: waiting, running, or asking "
        "something. One more is refused with `resource-constraint` and a hint when to retry.",
    )
    running_total: Count = Field(
        default=64,
        description="Tasks that run at the same time; the others wait for their turn.",
    )
    running_per_principal: Count = Field(
        default=16,
        description="Tasks of one principal that run at the same time.",
    )
    replay_s: Seconds = Field(
        default=86400,
        description="Seconds for which a request that is sent again gets the answer of the first.",
    )
    retention_s: Seconds = Field(
        default=604800,
        description="Seconds for which a task and its result are kept after its end.",
    )
    ask_s: Seconds = Field(
        default=86400,
        description="Seconds after which a question of a skill lapses that names no other time.",
    )
    poll_after_s: Count = Field(
        default=5,
        description="Hint in whole seconds to callers: how long to wait before asking for a task.",
    )


class Conformance(Section):
    """The fixtures that a conformance kit calls."""

    enabled: bool = Field(
        default=False,
        description="Offer the skills named `conformance.*`. Leave it off in production.",
    )


class Skills(Section):
    """Skills of your own. Other keys of this section wait for a later release."""

    modules: tuple[str, ...] = Field(
        default=(),
        examples=[["my_skills", "./skills/report.py"]],
        description="Python modules (dotted names) or files whose @skill functions are offered.",
    )
    _later: tuple[str, ...] = PrivateAttr(default=())

    @property
    def later(self) -> tuple[str, ...]:
        """Names of the keys in this section that no part of this release reads."""
        return self._later

    @model_validator(mode="wrap")
    @classmethod
    def _accept_the_rest(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if not isinstance(data, Mapping):
            return handler(data)
        known = {key: value for key, value in data.items() if key in cls.model_fields}
        section = handler(known)
        section._later = tuple(sorted(key for key in data if key not in known))  # noqa: SLF001 its own
        return section


class Storage(Section):
    """What the agent keeps, and where."""

    path: Path = Field(
        default=Path("./data"),
        description="Data directory; made if it is missing. A relative path counts from the "
        "directory in which the service is started.",
    )
    postgres: SecretStr = Field(
        default=SecretStr(""),
        examples=["${AGENT_DATABASE}"],
        description="Connection string of a PostgreSQL database, such as "
        "`postgresql://agent:password@db.example.com/agent`: tasks and subscriptions are kept "
        "there instead of in path, and several processes may share it, each with a path of its "
        "own. It needs the `postgres` extra. Empty means SQLite. It holds a password: keep it out "
        "of this file.",
    )


class Log(Section):
    """What is written to stderr."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least important level that is still written."
    )
    format: Literal["auto", "human", "json"] = Field(
        default="auto",
        description="human for people, json for one JSON object a line; auto is human on a "
        "terminal and json otherwise.",
    )


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
    def notice(self) -> str | None:
        """One sentence for the log at start about what is set but not read yet, or None."""
        if not self.later:
            return None
        return f"not served by this release and left unread: {', '.join(self.later)}"


LATER: tuple[str, ...] = tuple(
    name for name, field in Settings.model_fields.items() if field.annotation is bool
)
"""The sections that later releases serve: accepted, and not looked into."""
