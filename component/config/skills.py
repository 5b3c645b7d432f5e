"""The sections about skills besides the built-in ones, and the effects of those that somebody else
describes.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    SecretStr,
    field_validator,
    model_validator,
)

from component.config.kinds import (
    EMPTY,
    Account,
    Count,
    FilePath,
    Section,
    Zone,
    located,
    located_file,
    refusal,
)
from component.config.work import AgentName, Priority, Recipients, Silent

Taint = Annotated[
    Literal["person", "peer", "web", "file"],
    Field(
        description="Least trusted possible author of the texts in its results. person means that"
        " instructions in them may be followed."
    ),
]
SourceTaint = Annotated[
    Literal["person", "peer", "web", "file"],
    Field(
        description="Least trusted possible author of the texts in its results, and of its"
        " descriptions of tools. person means that instructions in them may be followed."
    ),
]


def _module(value: str) -> str:
    # A name without a slash is that of a file if it ends like one; see component.skills.loading.
    return str(located(Path(value))) if value.endswith(".py") else located_file(value)


Module = Annotated[str, AfterValidator(_module)]


class Effects(Section):
    """The effects of skills that somebody else describes, in place of those that follow from it."""

    read_only: bool | None = Field(default=None, examples=[True])
    """Whether calls change nothing."""
    destructive: bool | None = Field(default=None, examples=[False])
    """Whether calls may destroy something. People are asked before such a call."""
    idempotent: bool | None = Field(default=None, examples=[True])
    """Whether calling twice has the same effect as calling once. Only such calls, and those that
    change nothing, are ever repeated.
    """

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.read_only and self.destructive:
            raise refusal("says read_only and destructive, which exclude each other: remove one")
        return self


class XmppSend(Section):
    """The skill `xmpp_send`, by which an agent writes to others on behalf of a person. See
    docs/reference/skills-builtin.md.
    """

    recipients: tuple[str, ...] = Field(min_length=1, examples=[["*@example.com"]])
    """Bare addresses that may be written to; `*` and `?` are wildcards."""
    first_contact: Literal["refuse", "introduce"] = "refuse"
    """What happens to a message to somebody who does not share presence with the agent: refuse, or
    introduce (the agent says who it is first).
    """
    per_hour: Count = 20
    """Maximum number of messages per hour on behalf of one person."""
    per_recipient_per_hour: Count = 5
    """Maximum number of messages per hour to one recipient."""
    max_characters: Count = 4000
    """Maximum number of characters of a message."""


class Conformance(Section):
    """The fixtures for the conformance kit."""

    enabled: bool = False
    """Offer the skills named `conformance.*`. Leave it off in production."""


class SkillScheduleEntry(Section):
    """Enables the schedule that a skill brings. See docs/how-to/schedules.md."""

    skill: str = Field(min_length=1, examples=["report"])
    """Name of a skill that brings a schedule."""
    principal: Account | Literal[""] = Field(default="", examples=["juliet@example.com"])
    """Address of the person whose rights the skill has, and who gets the result. Default: the
    person that the skill names.
    """
    agent: AgentName = "assistant"
    when: str = Field(default="", examples=["every monday at 9"])
    """When it fires, as in `[[schedule]]`. Default: the time that the skill names."""
    zone: Zone = Field(default="", examples=["Europe/Paris"])
    """IANA time zone of `when`. Default: that of the skill, or agent.zone."""
    params: dict[str, Any] = Field(default={}, examples=[{"topic": "rivers"}])
    """Parameters in place of those of the skill, each by itself."""
    tell: Recipients = ()
    silent: Silent = False
    priority: Priority = "normal"


class SkillCredential(Section):
    """A secret that the service adds to requests of skills that declare it; they never see it."""

    value: SecretStr = Field(examples=["${GITHUB_TOKEN}"])
    """The secret. Keep it out of this file."""
    hosts: tuple[str, ...] = Field(min_length=1, examples=[["api.github.com"]])
    """Hosts that it is sent to, whatever a skill asks for."""
    header: str = "Authorization"
    """Header that it is sent in."""
    prefix: str = "Bearer "
    """Text before it in the header."""


class Proposals(Section):
    """Lets people and models propose skills with the skill `create_skill`, and agents with
    `agent_create`. An admin decides about each. See docs/how-to/install-skills.md.
    """

    enabled: bool = True
    """Whether skills and agents can be proposed, and approved ones are offered."""
    principals: tuple[Account | Literal["*"], ...] = Field(
        default=(), examples=[["juliet@example.com"]]
    )
    """Addresses that may propose besides the admins; `*` is everybody."""
    directory: FilePath | None = Field(default=None, examples=["/srv/xmpp-agent/proposals"])
    """Directory of the proposals. Instances that share a database need a shared one. Default:
    `proposed-skills` in the directory of `storage.path`.
    """
    per_principal: Count = 3
    """Maximum number of proposals of one person that wait for an admin."""
    total: Count = 20
    """Maximum number of proposals that wait for an admin."""
    max_bytes: Annotated[Count, Field(ge=1024, le=65_536)] = 32_768
    """Maximum size of a manifest, of code and of tests, each."""
    attempts: Annotated[int, Field(ge=1, le=5)] = 3
    """How often the model is asked for a draft when it is not valid or its tests fail."""
    max_tokens: Count = 6_000
    """Maximum number of tokens of one answer of the model."""


class Skills(Section):
    """Your own skills. Other keys of this section are reserved for a later release."""

    modules: tuple[Module, ...] = Field(default=(), examples=[["my_skills", "./skills/report.py"]])
    """Python modules (dotted names) or files whose @skill functions are offered."""
    directories: tuple[FilePath, ...] = Field(default=(), examples=[["./skills"]])
    """Directories of skills with a manifest (`skill.toml`), each in a directory of its own. They
    are offered when an admin has approved them: `xmpp-agent skills list`.
    """
    auto_approve: Literal["never", "confined", "trusted"] = "never"
    """Approve every version of the skills in `directories` without an admin, for a machine on which
    skills are written: `confined` limits them to the capabilities of their manifests, `trusted`
    runs those in Python inside the service.
    """
    hold_first_descriptions: bool = False
    """Whether the first descriptions that an MCP server, an API or workers give of their tools wait
    for an admin, as later changes do: `xmpp-agent skills list`.
    """
    credentials: dict[str, SkillCredential] = EMPTY
    """Credentials by the names that skills declare: `[skills.credentials.NAME]`."""
    schedule: tuple[SkillScheduleEntry, ...] = ()
    proposals: Proposals | None = None
    _later: tuple[str, ...] = PrivateAttr(default=())

    @field_validator("schedule")
    @classmethod
    def _schedules_differ(
        cls, value: tuple[SkillScheduleEntry, ...]
    ) -> tuple[SkillScheduleEntry, ...]:
        keys = [(entry.skill, entry.principal) for entry in value]
        if twice := next((key for key in keys if keys.count(key) > 1), None):
            raise refusal(f"enables the schedule of {twice[0]!r} twice for the same person")
        return value

    @property
    def later(self) -> tuple[str, ...]:
        """The keys in this section that this release does not support."""
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
