"""The sections about who may talk to the agent, who may use which skill, and which skills a model
may use after reading data of strangers.
"""

import re
from typing import Annotated, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from component.config.kinds import (
    Confirm,
    Count,
    DisplayText,
    Domains,
    FilePath,
    Jids,
    Seconds,
    Section,
    Zone,
    refusal,
)


class Flow(Section):
    """A rule for a model that has read data of strangers: which skills it may use, and whether a
    person confirms it.

    Without a matching rule such a model may use skills that stay within the agent, and those of the
    open world with values that the person has written. With other values, skills that only read the
    open world are refused, and all others need a confirmation. The first rule that matches applies.
    """

    of: tuple[Literal["peer", "web", "file", "room"], ...] = Field(
        min_length=1, examples=[["web", "file"]]
    )
    """Source of the data: other agents, the web, files."""
    to: tuple[str, ...] = Field(min_length=1, examples=[["network:*.example.com:443"]])
    """Capabilities of the skills to which the rule applies; `*` and `?` match any characters and
    any one character, `network` matches all that begin with `network:`. `*` also matches skills
    that declare none.
    """
    then: Literal["allow", "confirm", "refuse"] = Field(examples=["allow"])
    """allow runs such skills, confirm asks a person first, refuse rejects them."""


_SCHEMES: Final = ("http", "https", "mailto", "xmpp")
_PLACEHOLDER: Final = r"\{(\w*)\}"
_PLACEHOLDERS: Final = frozenset(("contact", "name", "operator"))


def _contact(value: str) -> str:
    if value:
        try:
            parts = urlsplit(value)
            usable = parts.scheme in _SCHEMES and bool(parts.netloc or parts.path)
        except ValueError:
            usable = False
        if not usable or " " in value:
            raise refusal("must be a URI such as xmpp:admin@example.com or mailto:it@example.com")
    return value


def _notice(value: str) -> str:
    for name in re.findall(_PLACEHOLDER, value):
        if name not in _PLACEHOLDERS:
            known = ", ".join(f"{{{each}}}" for each in sorted(_PLACEHOLDERS))
            raise refusal(f"contains {{{name}}}; only {known} are replaced")
    return value


class Agent(Section):
    """The agent, and who may talk to it. A sender must pass both lists."""

    name: DisplayText = Field(default="Assistant", min_length=1)
    """Name shown to people and in service discovery."""
    operator: DisplayText = Field(default="", examples=["Example Ltd"])
    """Person or organisation responsible for the agent, shown in its vCard, in service discovery
    and in notice. Default: the administrators of component_domain.
    """
    contact: Annotated[DisplayText, AfterValidator(_contact)] = Field(
        default="", examples=["mailto:it@example.com"]
    )
    """URI (xmpp:, mailto:, https:) at which people reach the operator; published in the vCard and
    in service discovery. Default: none.
    """
    avatar: FilePath | None = Field(default=None, examples=["./avatar.png"])
    """PNG file that clients show for the agent: at most 64 KiB and from 32 to 1024 pixels on each
    side; 64 by 64 pixels and less than 8 KB are best. Default: a pattern generated from the agent's
    address.
    """
    notice: Annotated[str, AfterValidator(_notice)] = (
        "I am {name}, an automated agent operated by {operator}. I am not a person, and what I say"
        " can be wrong."
    )
    """Notice that each person gets once, before the first answer. {name}, {operator} and {contact}
    are replaced. "" turns it off: first make sure that the law where your users are does not
    require it.
    """
    allowed_jids: Jids | None = Field(default=None, examples=[["admin@example.com"]])
    """Bare JIDs that may use the agent. Missing or `["*"]` means everybody of the allowed domains,
    an empty list means nobody.
    """
    allowed_domains: Domains | None = Field(default=None, examples=[["example.com"]])
    """Domains whose users may use the agent. Default: component_domain without its first label.
    `["*"]` means every domain that the server federates with, an empty list means none.
    """
    unknown_agents: Literal["ignore", "ask"] = "ignore"
    """What to do when an agent that is not admitted writes for the first time: ignore it, or ask
    the admins, who get the [[peer]] section to add. The agent gets no answer in either case.
    """
    drafts: Literal["off", "direct", "everywhere"] = "off"
    """Where answers are shown while the model writes them: nowhere, to clients of people that show
    chat states and corrections, or in rooms, too. Drafts are not archived; the answer corrects the
    last one, so clients mark each answer as edited.
    """
    zone: Zone = Field(default="UTC", min_length=1, examples=["Europe/Paris"])
    """IANA time zone of people whose own is not known, and of the work in the settings."""
    admins: Jids = Field(default=(), examples=[["admin@example.com"]])
    """Bare JIDs that may use the commands for admins, in chat and as forms: list and cancel the
    tasks of everybody, pause, status. They must also pass both lists.
    """


_ROOM: Final = "room:"


class Rule(Section):
    """Restricts who sees and may execute the matching skills.

    A sender must pass `[agent]` and every rule that matches the skill. A skill that a sender may
    not execute is reported as unknown to them.
    """

    skills: tuple[str, ...] = Field(min_length=1, examples=[["report", "conformance.*"]])
    """Names of skills; `*` and `?` match any characters and any one character."""
    allowed_jids: Jids | None = Field(default=None, examples=[["admin@example.com"]])
    """Bare JIDs that may execute these skills; an empty list means nobody."""
    allowed_domains: Domains | None = Field(default=None, examples=[["example.com"]])
    """Domains whose users may execute these skills; an empty list means none."""
    confirm: Confirm | None = Field(default=None, examples=["never"])
    """When a person is asked before these skills run, instead of policy.confirm."""
    approvers: Jids | None = Field(default=None, min_length=1, examples=[["boss@example.com"]])
    """Those who confirm these skills instead of the person who executes them: bare JIDs, each of
    which is asked in its own conversation, and at most one room, as `room:` and its address, in
    which the agent asks. Without need, the first answer counts.
    """
    affiliation: Literal["owner", "admin", "member", "none"] | None = Field(
        default=None, examples=["admin"]
    )
    """Lowest affiliation with the room of occupants who can confirm: owner, admin, member, or none
    for everybody who enters it. Default: member; with hat, none.
    """
    hat: str | None = Field(default=None, min_length=1, examples=["urn:example:hats:oncall"])
    """URI of a hat (XEP-0317) that occupants of the room need to confirm. Default: no hat."""
    need: Count = Field(default=1, examples=[2])
    """How many different persons have to approve. The first denial counts at once."""
    not_requester: bool = False
    """Whether the approval of the person who requests the skill does not count."""

    @property
    def rooms(self) -> tuple[str, ...]:
        """The addresses of the rooms among the approvers."""
        named = [entry for entry in self.approvers or () if entry.startswith(_ROOM)]
        return tuple([entry.removeprefix(_ROOM) for entry in named])

    @property
    def least_affiliation(self) -> Literal["owner", "admin", "member", "none"]:
        """The lowest affiliation of occupants who can confirm."""
        return self.affiliation or ("member" if self.hat is None else "none")

    @model_validator(mode="after")
    def _narrows(self) -> Self:
        given = (self.allowed_jids, self.allowed_domains, self.confirm, self.approvers)
        if self.approvers is None and (self.need > 1 or self.not_requester):
            raise refusal("need and not_requester are about approvers: add them to the same rule")
        if (self.affiliation or self.hat) and not self.rooms:
            raise refusal(
                "affiliation and hat are about the occupants of a room: add the room to approvers,"
                f' such as "{_ROOM}ops@rooms.example.com"'
            )
        accounts = len(set(self.approvers or ()))
        if self.approvers is not None and not self.rooms and self.need > accounts:
            raise refusal(
                f"need = {self.need} can never be reached, because approvers names {accounts}: name"
                " more accounts or a room, or lower need"
            )
        if all(value is None for value in given):
            raise refusal(
                "restricts nothing: add allowed_jids, allowed_domains, confirm or approvers, or "
                "remove it"
            )
        return self


class Policy(Section):
    """Who may use which skill, and when a confirmation is needed."""

    confirm: Confirm = "destructive"
    """When a person is asked before a skill runs: destructive (for each skill that is not marked as
    harmless), always, or never. never applies to skills that people execute themselves; other
    agents never run destructive skills without one.
    """
    confirm_expires_s: Seconds = 86400
    """Seconds after which a confirmation expires, and the task that waits for it fails."""
    standing_days: Annotated[int, Field(ge=1, le=366)] = 30
    """Days for which a standing approval is valid: after three equal approvals, a person can allow
    such calls of a skill for that time.
    """
    standing_uses: Annotated[int, Field(ge=0, le=10_000)] = 50
    """How often a standing approval may be used. With 0 none are offered, and none are used."""
    rules: tuple[Rule, ...] = ()
    """Rules that restrict who may use which skills. For confirm and approvers, the first rule that
    matches a skill and sets the key applies.
    """
    flows: tuple[Flow, ...] = ()
    """Which skills a model may use after reading data from strangers."""
    scanner: Annotated[str, Field(pattern=r"^(|[\w.]+:\w+)$")] = Field(
        default="", examples=["my_classifier:Scanner"]
    )
    """Scanner that looks for prompt injections in data of strangers, as `package.module:object`,
    which is called without arguments and has a method scan(text). Default: one that finds hidden
    characters.
    """
