"""The sections about HTTP APIs that are skills: requests that an admin writes, and descriptions in
OpenAPI.
"""

import re
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr, model_validator

from component.settings.effects import Effects, SourceTaint, Taint
from component.settings.expressions import Expression, check
from component.settings.headers import Headers
from component.settings.kinds import Count, Seconds, Section, refusal, service_url
from component.settings.placeholders import names_in

Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
SKILL_NAME: Final = re.compile(r"(?=.{1,64}$)[A-Za-z][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*")
_PREFIX: Final = re.compile(r"([A-Za-z][A-Za-z0-9_-]{0,31})?")
RequestSeconds = Annotated[Seconds, Field(description="Seconds for one request.")]
Retries = Annotated[
    int,
    Field(
        ge=0,
        le=5,
        description="Number of times that a request that may be repeated is sent again when the"
        " server fails or asks to wait.",
    ),
]
ResponseBytes = Annotated[Count, Field(ge=1024, description="Maximum size of a response in bytes.")]


def skill_names(value: dict[str, Any]) -> None:
    """Check that the keys can be names of skills. Raises a refusal."""
    for name in value:
        if not SKILL_NAME.fullmatch(name):
            raise refusal(
                f"has {name!r}, which cannot be the name of a skill: begin with a letter, go on"
                " with letters, digits, _, - and single dots"
            )


def _url(value: str) -> str:
    base, brace, rest = value.partition("{")
    if brace and urlsplit(base).path in ("", None):
        raise refusal("must not have a placeholder before the path")
    if "?" in value or "#" in value:
        raise refusal("must have no query: write it into query")
    service_url(base, "https://api.example.com/cities/{city}")
    if not value:
        raise refusal("must be an http or https address")
    return base + brace + rest


def _document_url(value: str) -> str:
    if value:
        parts = urlsplit(value)
        service_url(parts._replace(query="", fragment="").geturl())
    return value


def _prefix(value: str | None) -> str | None:
    if value is not None and not _PREFIX.fullmatch(value):
        raise refusal("must begin with a letter and go on with letters, digits, _ and -")
    return value


class RestSkill(Section):
    """A skill that is one HTTP request. NAME is the name of the skill. See docs/rest.md."""

    description: str = Field(
        min_length=1,
        max_length=2000,
        examples=["Return the current weather at a place."],
        description="What it does, for people and models.",
    )
    title: str = Field(default="", examples=["Weather"], description="Title for people.")
    tags: tuple[str, ...] = Field(
        default=(), examples=[["weather"]], description="Words by which it is found."
    )
    method: Method = Field(default="GET", description="HTTP method.")
    url: Annotated[str, AfterValidator(_url)] = Field(
        examples=["https://api.example.com/cities/{city}"],
        description="URL without a query. `{name}` in the path stands for a parameter; its value"
        " becomes one segment of the path.",
    )
    parameters: dict[str, dict[str, Any]] = Field(
        default={},
        examples=[{"city": {"type": "string", "description": "Name of the city."}}],
        description="Parameters of the skill: a JSON Schema for each. Those without a default are"
        " required.",
    )
    optional: tuple[str, ...] = Field(
        default=(),
        examples=[["unit"]],
        description="Parameters that may be omitted although they have no default.",
    )
    query: dict[str, SecretStr] = Field(
        default={},
        examples=[{"unit": "{unit}", "key": "${API_KEY}"}],
        description="Fields of the query, with placeholders. One whose parameter was omitted is"
        " left out.",
    )
    headers: Headers = Field(
        default={},
        examples=[{"Authorization": "Bearer ${API_KEY}"}],
        description="Header fields, with placeholders. They are sent to the server of url only.",
    )
    body: dict[str, Any] | None = Field(
        default=None,
        examples=[{"title": "{title}", "labels": "{labels}"}],
        description="JSON to send, with placeholders. A text that is nothing but a placeholder"
        " becomes the value itself, and is left out if the parameter was omitted.",
    )
    select: Expression = Field(
        default="",
        examples=["current"],
        description="JMESPath expression that selects the part of the JSON response to return.",
    )
    output: str = Field(
        default="",
        max_length=2000,
        examples=["It is {temperature} degrees in {city.name}."],
        description="Text to return about the selected JSON, with JMESPath expressions as"
        " placeholders; for an array one line for each member. Default: the JSON itself.",
    )
    annotations: Effects = Field(
        default=Effects(),
        description="Effects, in place of those of the method: GET and HEAD change nothing; PUT and"
        " DELETE are idempotent; all but GET and HEAD count as destructive.",
    )
    taint: Taint = "web"
    timeout_s: RequestSeconds = 30
    retries: Retries = 2
    max_response_bytes: ResponseBytes = 1_048_576

    @model_validator(mode="after")
    def _parameters_exist(self) -> Self:
        secret = {
            "query": {key: value.get_secret_value() for key, value in self.query.items()},
            "headers": {key: value.get_secret_value() for key, value in self.headers.items()},
        }
        for key, value in {"url": self.url, "body": self.body, **secret}.items():
            if unknown := sorted(names_in(value) - set(self.parameters)):
                raise refusal(
                    f"uses {{{unknown[0]}}} in {key}, and parameters has no {unknown[0]}"
                    if key not in ("query", "headers")
                    else f"uses a placeholder in {key} that is not in parameters"
                )
        if unknown := sorted(set(self.optional) - set(self.parameters)):
            raise refusal(f"has {unknown[0]} in optional, and parameters has no {unknown[0]}")
        if self.body is not None and self.method in ("GET", "HEAD"):
            raise refusal(f"has a body, which a {self.method} request does not send: remove it")
        for name in sorted(names_in(self.output)):
            check(name)
        if in_path := sorted(names_in(self.url) & set(self.optional)):
            raise refusal(f"has {in_path[0]} in optional, and the path needs it")
        return self


class OpenApi(Section):
    """The operations of an API that a document in OpenAPI 3 describes, as skills named
    `NAME.operation`. See docs/rest.md.
    """

    document: Path | None = Field(
        default=None,
        examples=["/etc/xmpp-agent/petstore.json"],
        description="File with the description, in JSON, or in YAML with the `openapi` extra.",
    )
    url: Annotated[str, AfterValidator(_document_url)] = Field(
        default="",
        examples=["https://api.example.com/openapi.json"],
        description="URL of the description, instead of document.",
    )
    sha256: Annotated[str, Field(pattern="^([0-9a-f]{64})?$")] = Field(
        default="",
        examples=["9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"],
        description="SHA-256 of the description that you have read and approve. Another one is not"
        " used, and the log names its hash.",
    )
    server: Annotated[str, AfterValidator(service_url)] = Field(
        default="",
        examples=["https://api.example.com/v1"],
        description="Base URL of the API. Default: the one that the description names, if that is"
        " on the same server as url. Needed with document.",
    )
    tags: tuple[str, ...] = Field(
        default=(), examples=[["pets"]], description="Only operations with one of these tags."
    )
    operations: tuple[str, ...] = Field(
        default=(),
        examples=[["get*", "createPet"]],
        description="Only operations with these ids; `*` and `?` are wildcards. With neither tags"
        " nor operations all are offered.",
    )
    max_operations: Count = Field(
        default=64,
        le=1000,
        description="Maximum number of skills. If more are selected, none is offered.",
    )
    prefix: Annotated[str | None, AfterValidator(_prefix)] = Field(
        default=None,
        examples=["shop"],
        description="Prefix of the names of its skills, in place of NAME. If it is empty, skills"
        " are named like the operations.",
    )
    credentials: dict[str, SecretStr] = Field(
        default={},
        examples=[{"api_key": "${PETSTORE_KEY}"}],
        description="Credentials, by the name of the security scheme: an API key, a token, or"
        " `user:password` for HTTP Basic. Operations that need others are not offered.",
    )
    headers: Headers = Field(
        default={},
        examples=[{"X-Tenant": "example"}],
        description="Header fields to add to each request.",
    )
    annotations: dict[str, Effects] = Field(
        default={},
        description="Effects of the operations whose ids match, in place of those of their methods."
        " The first pattern that matches applies.",
    )
    taint: SourceTaint = "web"
    refresh_s: Seconds = Field(
        default=300,
        description="Seconds after which the description is read again. If it cannot be read, the"
        " skills stay as they are.",
    )
    timeout_s: RequestSeconds = 30
    retries: Retries = 2
    max_response_bytes: ResponseBytes = 1_048_576
    max_document_bytes: Count = Field(
        default=8_388_608, ge=1024, description="Maximum size of the description in bytes."
    )

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.document is None) == (not self.url):
            raise refusal("needs document or url, and only one of them")
        if self.document is not None and not self.server:
            raise refusal("needs server, because a file does not say which server is trusted")
        return self
