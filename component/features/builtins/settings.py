"""The sections about built-in skills that reach outside. Each is off unless it has its section.

`[xmpp_send]` is in `component.config.skills`, because it also limits the messages of other
skills.
"""

import re
from typing import Annotated, Any, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr, field_validator, model_validator

from component.config.kinds import (
    Count,
    Headers,
    Port,
    Seconds,
    Section,
    refusal,
    service_url,
    standard_key,
    without_brackets,
)
from component.config.model import Settings
from component.config.rest import skill_names
from component.config.sections import Top, named_tables, optional_table

_HOST: Final = r"[a-z0-9*?.:_-]+"
MAILBOX: Final = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]{1,64}@[A-Za-z0-9.-]{1,253}"
"""Email addresses that need no quoting (RFC 5321 §4.1.2)."""
SEARCH_URLS: Final = {
    "tavily": "https://api.tavily.com",
    "perplexity": "https://api.perplexity.ai",
    "searxng": "",
}
"""The URLs of search services; SearXNG has none, because everybody runs their own."""


def _base(value: str) -> str:
    return service_url(value, "https://search.example.com")


def _hosts(value: tuple[str, ...]) -> tuple[str, ...]:
    for host in value:
        if not re.fullmatch(_HOST, host):
            raise refusal(
                f"has {host!r}: write host names in lower case such as example.com or *.example.com"
            )
    return value


def _origins(value: tuple[str, ...]) -> tuple[str, ...]:
    for each in value:
        service_url(each, "http://wiki.example.com:8080")
        if not each or urlsplit(each).path.strip("/"):
            raise refusal(f"has {each!r}: write scheme, host and port only")
    return value


def _mailbox(value: str) -> str:
    if not re.fullmatch(MAILBOX, value):
        raise refusal("must be an email address, such as agent@example.com")
    return value


BaseUrl = Annotated[str, AfterValidator(_base)]
HostPatterns = Annotated[tuple[str, ...], AfterValidator(_hosts)]
Origins = Annotated[tuple[str, ...], AfterValidator(_origins)]


class UrlFetch(Section):
    """The skill `url_fetch`, which reads web pages. It needs the `documents` extra. See
    docs/reference/skills-builtin.md.
    """

    enabled: bool = True
    """Whether the skill is offered."""
    hosts: HostPatterns = Field(default=("*",), examples=[["example.com", "*.example.org"]])
    """Hosts whose pages may be read; `*` and `?` are wildcards. Addresses that are not public are
    never reached, whatever name leads to them.
    """
    private_origins: Origins = Field(default=(), examples=[["http://wiki.example.com:8080"]])
    """Servers in private networks, or on unusual ports, whose pages may be read."""
    timeout_s: Seconds = 20
    """Seconds for a page with all redirects."""
    max_bytes: Count = Field(default=8_388_608, ge=1024)
    """Maximum size of a page or document in bytes."""
    max_characters: Count = Field(default=20_000, ge=500)
    """Maximum number of characters of text that one call returns. The rest is returned by further
    calls.
    """
    redirects: Annotated[int, Field(ge=0, le=20)] = 5
    """Maximum number of redirects. Each is checked like the first URL."""


class WebSearch(Section):
    """The skill `web_search`. See docs/reference/skills-builtin.md."""

    provider: Literal["tavily", "perplexity", "searxng"] = Field(examples=["searxng"])
    """Search service."""
    api_key: SecretStr = Field(default=SecretStr(""), examples=["${TAVILY_API_KEY}"])
    """API key of the service; SearXNG needs none. Keep it out of this file."""
    base_url: BaseUrl = Field(default="", examples=["https://search.example.com"])
    """URL of the service. Default: the public URL of Tavily or Perplexity; needed for searxng."""
    results: Annotated[int, Field(ge=1, le=20)] = 5
    """Number of results that a call returns if it asks for no other."""
    timeout_s: Seconds = 20
    """Seconds for one search."""
    cost_usd: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = Field(
        default=None, examples=[0.008]
    )
    """Price of one search in US dollars, which callers see."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.provider == "searxng" and not self.base_url:
            raise refusal("is needed: the URL of your SearXNG", key="web_search.base_url")
        if self.provider != "searxng" and not self.api_key.get_secret_value():
            raise refusal(f"is needed for {self.provider}", key="web_search.api_key")
        return self

    @property
    def url(self) -> str:
        """The URL of the service, without a slash at the end."""
        return self.base_url or SEARCH_URLS[self.provider]


class HttpWebhook(Section):
    """A URL to which the skill `http_webhook` sends events. NAME is the target that callers name.
    See docs/reference/skills-builtin.md.
    """

    url: SecretStr = Field(examples=["https://hooks.example.com/agents"])
    """URL that events are posted to. It is never shown, because some services put a secret into it.
    """
    description: str = Field(default="", max_length=300, examples=["Starts a build."])
    """What the target does with events, for people and models."""
    secret: SecretStr = Field(default=SecretStr(""), examples=["${BUILDS_SECRET}"])
    """Secret by which deliveries are signed as Standard Webhooks do: `whsec_` and 24 to 64 bytes in
    base64. Without one they are not signed. Keep it out of this file.
    """
    headers: Headers = Field(default={}, examples=[{"Authorization": "Bearer ${BUILDS_TOKEN}"}])
    """Header fields to add."""
    timeout_s: Seconds = 20
    """Seconds for a delivery."""

    @field_validator("url")
    @classmethod
    def _usable_url(cls, value: SecretStr) -> SecretStr:
        parts = urlsplit(value.get_secret_value())
        if not parts.netloc:
            raise refusal("must be an http or https address")
        service_url(parts._replace(query="").geturl(), "https://hooks.example.com/agents")
        return value

    @field_validator("secret")
    @classmethod
    def _usable_secret(cls, value: SecretStr) -> SecretStr:
        if value.get_secret_value() and standard_key(value.get_secret_value()) is None:
            raise refusal(
                "must be whsec_ and 24 to 64 bytes in base64: make one with"
                ' `echo "whsec_$(openssl rand -base64 32)"`'
            )
        return value


class EmailSend(Section):
    """The skill `email_send`, by which an agent sends email through an SMTP server on behalf of a
    person. See docs/reference/skills-builtin.md.
    """

    host: Annotated[str, AfterValidator(without_brackets)] = Field(
        min_length=1, examples=["smtp.example.com"]
    )
    """Host of the SMTP server."""
    port: Port | None = Field(default=None, examples=[587])
    """Port. Default: 465 for tls, 587 for starttls, 25 for none."""
    security: Literal["tls", "starttls", "none"] = "tls"
    """Encryption of the connection."""
    username: str = Field(default="", examples=["agent@example.com"])
    """User name, if one is needed."""
    password: SecretStr = Field(default=SecretStr(""), examples=["${SMTP_PASSWORD}"])
    """Password of the user. Keep it out of this file."""
    sender: Annotated[str, AfterValidator(_mailbox)] = Field(examples=["agent@example.com"])
    """Address that the mail comes from."""
    recipients: tuple[str, ...] = Field(min_length=1, examples=[["*@example.com"]])
    """Addresses that may be written to; `*` and `?` are wildcards."""
    per_hour: Count = 20
    """Maximum number of mails per hour on behalf of one person."""
    max_characters: Count = 20_000
    """Maximum number of characters of a mail."""
    timeout_s: Seconds = 30
    """Seconds for each step with the server."""

    @model_validator(mode="after")
    def _password_is_encrypted(self) -> Self:
        if self.username and self.security == "none":
            raise refusal("needs tls or starttls, because the password would be readable")
        return self

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the server."""
        usual = {"tls": 465, "starttls": 587, "none": 25}
        return self.host, self.port or usual[self.security]


class GitHub(Section):
    """The skills `github_issues`, `github_issue_create`, `github_comment` and
    `github_pull_requests`. See docs/reference/skills-builtin.md.
    """

    token: SecretStr = Field(examples=["${GITHUB_TOKEN}"])
    """Token with access to the issues and pull requests of the repositories, best a fine-grained
    one for them only. Keep it out of this file.
    """
    repositories: tuple[str, ...] = Field(min_length=1, examples=[["example/garden"]])
    """Repositories that may be used, as owner/name; `*` and `?` are wildcards."""
    base_url: BaseUrl = "https://api.github.com"
    """URL of the API, for GitHub Enterprise."""
    timeout_s: Seconds = 20
    """Seconds for a request."""


URL_FETCH: Final = optional_table("url_fetch", UrlFetch)
WEB_SEARCH: Final = optional_table("web_search", WebSearch)
HTTP_WEBHOOK: Final = named_tables("http_webhook", HttpWebhook, skill_names)
EMAIL_SEND: Final = optional_table("email_send", EmailSend)
GITHUB: Final = optional_table("github", GitHub)
SECTIONS: Final[tuple[Top[Any], ...]] = (
    *(URL_FETCH, WEB_SEARCH, HTTP_WEBHOOK),
    *(EMAIL_SEND, GITHUB),
)


def is_used(settings: Settings) -> bool:
    """Return whether the settings have one of the sections."""
    return settings.xmpp_send is not None or any(settings[section] for section in SECTIONS)
