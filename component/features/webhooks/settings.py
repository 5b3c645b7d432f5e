"""The sections about webhooks: HTTP requests of other services that start work."""

import re
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field, SecretStr, ValidationInfo, field_validator

from component.config.kinds import (
    Count,
    Expression,
    Seconds,
    Section,
    different_names,
    refusal,
    standard_key,
)
from component.config.model import Settings
from component.config.sections import Top, list_of_tables, table
from component.config.work import WorkEntry, known_agents_only

WEBHOOK_NAME: Final = r"[a-z0-9][a-z0-9-]{0,63}"
_PATH: Final = r"(/[A-Za-z0-9._~-]{1,128}){1,8}"
_SHORTEST_SECRET: Final = 16
_PUBLIC_KEY: Final = r"[0-9A-Fa-f]{64}"


def _name(value: str) -> str:
    if not re.fullmatch(WEBHOOK_NAME, value):
        raise refusal("must be a word of lower-case letters, digits and -, such as deployments")
    return value


def _path(value: str) -> str:
    if value and not re.fullmatch(_PATH, value):
        raise refusal("must be the path of a URL without a query, such as /hooks/deployments")
    return value


class WebhookLimits(Section):
    """Limits of the requests to webhooks, which the listener of [http] receives."""

    max_body_bytes: Count = Field(default=1_048_576, ge=1024, le=26_214_400)
    """Maximum size of a request in bytes, from 1024 to 26214400 (the largest that GitHub sends)."""
    max_depth: Count = Field(default=32, le=200)
    """Maximum depth of nested arrays and objects in the JSON."""
    body_timeout_s: Seconds = 10
    """Seconds in which the whole of a request has to arrive."""
    requests_total: Count = 32
    """Maximum number of requests that are received at the same time."""
    replay_window_s: Seconds = 300
    """Maximum number of seconds by which the signed time of a generic delivery may differ from the
    clock of this machine.
    """
    remember_s: Seconds = 604_800
    """Seconds for which the id of a delivery is stored. A delivery that arrives again in this time
    starts nothing.
    """


class _Deliveries(Section):
    # The first fields of a webhook: those of a base class come before its own.

    name: Annotated[str, AfterValidator(_name)] = Field(examples=["deployments"])
    """Name of the webhook, in the log and notifications."""
    path: Annotated[str, AfterValidator(_path)] = Field(default="", examples=["/hooks/deployments"])
    """Path of its URL. Default: `/` and the name. Webhooks with the same kind and secret can share
    one: the first whose events and filter fit does the work.
    """
    kind: Literal["github", "slack", "discord", "generic"] = "generic"
    """How deliveries are signed: as by GitHub, Slack or Discord (docs/how-to/integrations.md), or
    generic for any sender that follows Standard Webhooks (webhook-id, webhook-timestamp and
    webhook-signature).
    """
    public_key: str = Field(default="", examples=["${DISCORD_PUBLIC_KEY}"])
    """For discord, in place of a secret: the public key of the application, 64 hexadecimal digits.
    """
    secret: SecretStr = Field(default=SecretStr(""), examples=["${DEPLOYMENTS_SECRET}"])
    """The secret shared with the sender, of at least 16 characters; for slack the signing secret of
    the app. For generic: `whsec_` and 24 to 64 bytes in base64. Keep it out of this file.
    """
    previous_secret: SecretStr = Field(
        default=SecretStr(""), examples=["${DEPLOYMENTS_SECRET_OLD}"]
    )
    """The secret before the last change. It is accepted, too, until you remove it."""
    events: tuple[str, ...] = Field(default=(), examples=[["push", "release"]])
    """GitHub events that start work; the others are ignored. Default: all."""
    filter: Expression = Field(default="", examples=["ref == 'refs/heads/main'"])
    """JMESPath expression on the JSON of a delivery. Only deliveries for which it is true start
    work. False for JMESPath are: false, null, and empty texts, arrays and objects.
    """
    select: Expression = Field(
        default="", examples=["{repository: repository.full_name, by: sender.login}"]
    )
    """JMESPath expression that selects the part of the JSON that the agent sees. Default: all of
    it.
    """

    @field_validator("secret", "previous_secret")
    @classmethod
    def _usable_secret(cls, value: SecretStr, info: ValidationInfo) -> SecretStr:
        text, kind = value.get_secret_value(), info.data.get("kind")
        if text and kind == "discord":
            raise refusal('has no effect with kind = "discord": set public_key, and remove it')
        if kind == "discord" or (not text and info.field_name == "previous_secret"):
            return value
        if kind == "generic" and standard_key(text) is None:
            raise refusal(
                "must be whsec_ and 24 to 64 bytes in base64: make one with"
                ' `echo "whsec_$(openssl rand -base64 32)"`'
            )
        if len(text) < _SHORTEST_SECRET:
            raise refusal(
                f"must have at least {_SHORTEST_SECRET} characters: make one with"
                " `openssl rand -hex 32`"
            )
        return value

    @field_validator("events")
    @classmethod
    def _only_github(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if value and info.data.get("kind") not in (None, "github"):
            raise refusal('has no effect unless kind = "github": use filter instead')
        return value

    @field_validator("public_key")
    @classmethod
    def _only_discord(cls, value: str, info: ValidationInfo) -> str:
        kind = info.data.get("kind")
        if kind == "discord" and not re.fullmatch(_PUBLIC_KEY, value):
            raise refusal(
                "must be 64 hexadecimal digits: copy the public key from General Information of"
                " the application at https://discord.com/developers/applications"
            )
        if value and kind not in (None, "discord"):
            raise refusal('has no effect unless kind = "discord": remove it')
        return value


class WebhookReply(Section):
    """A skill that sends the result of the work to where the delivery came from."""

    skill: str = Field(min_length=1, examples=["discord.followup"])
    """Name of the skill. It is called with the rights of the principal."""
    params: dict[str, Expression] = Field(
        default={}, examples=[{"application": "application_id", "token": "token"}]
    )
    """Parameters of the skill: for each a JMESPath expression about the JSON of the delivery."""
    text: str = Field(default="text", min_length=1)
    """Parameter of the skill that is set to the result. What exceeds its maxLength is cut off."""
    failed: str = "Sorry, this did not work."
    """What is sent if the work fails. Empty to send nothing."""


class WebhookEntry(WorkEntry, _Deliveries):
    """A webhook: a URL to which another service sends events, and what is done about them."""

    params: dict[str, Expression] = Field(
        default={}, examples=[{"repository": "repository.full_name"}]
    )
    """Parameters of the skill: for each a JMESPath expression about the JSON. What selects nothing
    is left out.
    """
    reply: WebhookReply | None = None
    per_minute: Count = 60
    """Maximum number of deliveries per minute that start work. Further ones are answered with 429,
    so the sender delivers them later.
    """

    @property
    def url_path(self) -> str:
        """The path of its URL."""
        return self.path or f"/{self.name}"

    @property
    def sender(self) -> tuple[object, ...]:
        """What webhooks at the same path have in common."""
        return self.kind, self.public_key, self.secret, self.previous_secret


def _differ(entries: tuple[WebhookEntry, ...]) -> tuple[WebhookEntry, ...]:
    different_names("webhooks")(entries)
    senders: dict[str, tuple[object, ...]] = {}
    for entry in entries:
        if senders.setdefault(entry.url_path, entry.sender) != entry.sender:
            raise refusal(
                f"has two webhooks at the path {entry.url_path!r} that differ in kind, secret or"
                " public_key: change the path of one of them"
            )
    return entries


LIMITS: Final = table("webhooks", WebhookLimits)
ENTRIES: Final = list_of_tables("webhook", WebhookEntry, _differ)
SECTIONS: Final[tuple[Top[Any], ...]] = (LIMITS, ENTRIES)


def is_used(settings: Settings) -> bool:
    """Return whether there are webhooks."""
    return bool(settings[ENTRIES])


def check(settings: Settings) -> None:
    """Raise a refusal if webhooks cannot be received, or their work cannot be done."""
    entries = settings[ENTRIES]
    if entries and settings.http.port is None:
        raise refusal(
            "is missing: webhooks are declared, but there is no port to listen on",
            key="http.port",
        )
    for index, entry in enumerate(entries):
        if entry.goal and settings.llm is None:
            raise refusal("needs a model: add [llm], or use a skill", key=f"webhook[{index}].goal")
    known_agents_only(settings.agent_names, "webhook", entries)
