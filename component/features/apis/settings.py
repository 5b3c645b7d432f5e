"""The sections about HTTP APIs that are skills: requests that an admin writes, and descriptions in
OpenAPI.
"""

import re
from collections.abc import Iterable
from typing import Annotated, Any, Final, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr, model_validator

from component.config.kinds import Count, FilePath, Headers, Seconds, Section, refusal, service_url
from component.config.model import Settings
from component.config.rest import RequestSeconds, ResponseBytes, RestSkill, Retries, skill_names
from component.config.sections import Top, named_tables
from component.config.skills import Effects, SourceTaint

_PREFIX: Final = r"([A-Za-z][A-Za-z0-9_-]{0,31})?"


def _document_url(value: str) -> str:
    if value:
        parts = urlsplit(value)
        service_url(parts._replace(query="", fragment="").geturl())
    return value


def _prefix(value: str | None) -> str | None:
    if value is not None and not re.fullmatch(_PREFIX, value):
        raise refusal("must begin with a letter and go on with letters, digits, _ and -")
    return value


class OpenApi(Section):
    """The operations of an API that a document in OpenAPI 3 describes, as skills named
    `NAME.operation`. See docs/how-to/rest.md.
    """

    document: FilePath | None = Field(default=None, examples=["/etc/xmpp-agent/petstore.json"])
    """File with the description, in JSON, or in YAML with the `openapi` extra."""
    url: Annotated[str, AfterValidator(_document_url)] = Field(
        default="", examples=["https://api.example.com/openapi.json"]
    )
    """URL of the description, instead of document."""
    sha256: Annotated[str, Field(pattern="^([0-9a-f]{64})?$")] = Field(
        default="", examples=["9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"]
    )
    """SHA-256 of the description that you have read and approve. Another one is not used, and the
    log names its hash.
    """
    server: Annotated[str, AfterValidator(service_url)] = Field(
        default="", examples=["https://api.example.com/v1"]
    )
    """Base URL of the API. Default: the one that the description names, if that is on the same
    server as url. Needed with document.
    """
    tags: tuple[str, ...] = Field(default=(), examples=[["pets"]])
    """Only operations with one of these tags."""
    operations: tuple[str, ...] = Field(default=(), examples=[["get*", "createPet"]])
    """Only operations with these ids; `*` and `?` are wildcards. With neither tags nor operations
    all are offered.
    """
    max_operations: Count = Field(default=64, le=1000)
    """Maximum number of skills. If more are selected, none is offered."""
    prefix: Annotated[str | None, AfterValidator(_prefix)] = Field(default=None, examples=["shop"])
    """Prefix of the names of its skills, in place of NAME. If it is empty, skills are named like
    the operations.
    """
    credentials: dict[str, SecretStr] = Field(default={}, examples=[{"api_key": "${PETSTORE_KEY}"}])
    """Credentials, by the name of the security scheme: an API key, a token, or `user:password` for
    HTTP Basic. Operations that need others are not offered.
    """
    headers: Headers = Field(default={}, examples=[{"X-Tenant": "example"}])
    """Header fields to add to each request."""
    annotations: dict[str, Effects] = Field(default={})
    """Effects of the operations whose ids match, in place of those of their methods. The first
    pattern that matches applies.
    """
    questions: dict[str, str] = Field(
        default={}, examples=[{"createPet": "May I add the pet {name}?"}]
    )
    """Questions that ask people to confirm the operations whose ids match, as `question` of
    `[rest.NAME]`. The first pattern that matches applies.
    """
    taint: SourceTaint = "web"
    refresh_s: Seconds = 300
    """Seconds after which the description is read again. If it cannot be read, the skills stay as
    they are.
    """
    timeout_s: RequestSeconds = 30
    retries: Retries = 2
    max_response_bytes: ResponseBytes = 1_048_576
    max_document_bytes: Count = Field(default=8_388_608, ge=1024)
    """Maximum size of the description in bytes."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.document is None) == (not self.url):
            raise refusal("needs document or url, and only one of them")
        if self.document is not None and not self.server:
            raise refusal("needs server, because a file does not say which server is trusted")
        return self


REST: Final = named_tables("rest", RestSkill, skill_names)
OPENAPI: Final = named_tables("openapi", OpenApi, skill_names)
SECTIONS: Final[tuple[Top[Any], ...]] = (REST, OPENAPI)


def is_used(settings: Settings) -> bool:
    """Return whether there are skills of APIs."""
    return bool(settings[REST] or settings[OPENAPI])


def described_sources(settings: Settings) -> Iterable[str]:
    """Yield the names of the APIs whose descriptions wait for an admin."""
    for name, entry in settings[OPENAPI].items():
        if entry.taint != "person" and not entry.sha256:
            yield f"openapi.{name}"
