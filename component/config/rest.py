"""The section about skills that are one HTTP request, which an admin writes."""

import re
from typing import Annotated, Any, Final, Literal, Self, TypeVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr, model_validator

from component.config.kinds import (
    EMPTY,
    Count,
    Expression,
    Headers,
    Seconds,
    Section,
    check_expression,
    refusal,
    service_url,
)
from component.config.skills import Effects, Taint

_BRACES: Final = r"\{\{|\}\}|\{([^{}]+)\}|[{}]"


def pieces_of(text: str) -> tuple[tuple[str, str], ...]:
    """Return the text as pairs of a literal text and the placeholder after it, which is empty after
    the last one. Raises ValueError for a single brace.
    """
    found: list[tuple[str, str]] = []
    literal, end = "", 0
    for token in re.finditer(_BRACES, text):
        literal += text[end : token.start()]
        end = token.end()
        if token[0] in ("{{", "}}"):
            literal += token[0][0]
        elif token[1] is None:
            raise ValueError(f"a single {token[0]}: write {token[0] * 2} for a brace")
        else:
            found.append((literal, token[1].strip()))
            literal = ""
    return (*found, (literal + text[end:], ""))


def names_in(value: object) -> set[str]:
    """Return the placeholders in all texts of a JSON value. Raises a refusal."""
    match value:
        case str():
            try:
                return {name for _, name in pieces_of(value) if name}
            except ValueError as error:
                raise refusal(f"has {error}") from None
        case dict():
            return {name for each in value.values() for name in names_in(each)}
        case list() | tuple():
            return {name for each in value for name in names_in(each)}
    return set()


T = TypeVar("T")
Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
SKILL_NAME: Final = r"(?=.{1,64}$)[A-Za-z][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*"
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


def skill_names(value: dict[str, T]) -> dict[str, T]:
    """Return the sections. Raises a refusal if a key cannot be the name of a skill."""
    for name in value:
        if not re.fullmatch(SKILL_NAME, name):
            raise refusal(
                f"has {name!r}, which cannot be the name of a skill: begin with a letter, go on"
                " with letters, digits, _, - and single dots"
            )
    return value


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


class RestSkill(Section):
    """A skill that is one HTTP request. NAME is the name of the skill. See docs/how-to/rest.md."""

    description: str = Field(
        min_length=1, max_length=2000, examples=["Return the current weather at a place."]
    )
    """What it does, for people and models."""
    title: str = Field(default="", examples=["Weather"])
    """Title for people."""
    question: str = Field(default="", max_length=300, examples=["May I book a table for {guests}?"])
    """Question that asks a person to confirm a call: {name} stands for the value of a parameter. A
    part in brackets is left out unless its parameters differ from their defaults. Default: the
    title and the parameters.
    """
    tags: tuple[str, ...] = Field(default=(), examples=[["weather"]])
    """Words by which it is found."""
    method: Method = "GET"
    """HTTP method."""
    url: Annotated[str, AfterValidator(_url)] = Field(
        examples=["https://api.example.com/cities/{city}"]
    )
    """URL without a query. `{name}` in the path stands for a parameter; its value becomes one
    segment of the path.
    """
    parameters: dict[str, dict[str, Any]] = Field(
        default={}, examples=[{"city": {"type": "string", "description": "Name of the city."}}]
    )
    """Parameters of the skill: a JSON Schema for each. Those without a default are required."""
    optional: tuple[str, ...] = Field(default=(), examples=[["unit"]])
    """Parameters that may be omitted although they have no default."""
    query: dict[str, SecretStr] = Field(
        default={}, examples=[{"unit": "{unit}", "key": "${API_KEY}"}]
    )
    """Fields of the query, with placeholders. One whose parameter was omitted is left out."""
    headers: Headers = Field(default={}, examples=[{"Authorization": "Bearer ${API_KEY}"}])
    """Header fields, with placeholders. They are sent to the server of url only."""
    body: dict[str, Any] | None = Field(
        default=None, examples=[{"title": "{title}", "labels": "{labels}"}]
    )
    """JSON to send, with placeholders. A text that is nothing but a placeholder becomes the value
    itself, and is left out if the parameter was omitted.
    """
    error: Expression = Field(default="", examples=["!ok && error"])
    """JMESPath expression about the JSON response that selects an error, for an API that reports
    errors with the status 200. If it is true, the call fails with what it selects as the reason.
    False for JMESPath are: false, null, and empty texts, arrays and objects.
    """
    select: Expression = Field(default="", examples=["current"])
    """JMESPath expression that selects the part of the JSON response to return."""
    output: str = Field(
        default="", max_length=2000, examples=["It is {temperature} degrees in {city.name}."]
    )
    """Text to return about the selected JSON, with JMESPath expressions as placeholders; for an
    array one line for each member. Default: the JSON itself.
    """
    annotations: Effects = EMPTY
    """Effects, in place of those of the method: GET and HEAD change nothing; PUT and DELETE are
    idempotent; all but GET and HEAD count as destructive.
    """
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
            check_expression(name)
        if in_path := sorted(names_in(self.url) & set(self.optional)):
            raise refusal(f"has {in_path[0]} in optional, and the path needs it")
        return self
