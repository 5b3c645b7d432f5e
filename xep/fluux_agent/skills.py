"""urn:fluux:agent:0#skills, skill discovery: the skills, and how each is used."""

from decimal import Decimal
from typing import Annotated, Final, Literal

import msgspec

from xep.binding import Attr, Child, Lang, Name, Payload, Text, TextChild
from xep.fluux_agent import NAMESPACE as AGENT
from xep.result_sets import ResultSet

NAMESPACE: Final = f"{AGENT}#skills"
"""Also the disco node whose items are the skills."""


class Title(Payload, frozen=True, kw_only=True):
    """A short name for people; one per language."""

    xml = Name(NAMESPACE, "title")

    text: Annotated[str, Text()]
    lang: Lang = None


class Description(Payload, frozen=True, kw_only=True):
    """The purpose of a skill or a parameter; one per language."""

    xml = Name(NAMESPACE, "description")

    text: Annotated[str, Text()]
    lang: Lang = None


class Example(Payload, frozen=True, kw_only=True):
    """A request in a person's words that the skill can serve."""

    xml = Name(NAMESPACE, "example")

    text: Annotated[str, Text()]
    lang: Lang = None


class Media(Payload, frozen=True, kw_only=True):
    """A media type that the skill takes as input or returns as output."""

    xml = Name(NAMESPACE, "media")

    direction: Annotated[Literal["input", "output"], Attr("for")]
    type: Annotated[str, Attr()]


class ParamDescription(Payload, frozen=True, kw_only=True):
    """One parameter.

    ``type`` is a type of JSON Schema (string, integer, number, boolean, array, object, null), or
    ``any`` if there is no single one. It helps a person to write a value; the input schema says
    what is accepted.
    """

    xml = Name(NAMESPACE, "param")

    name: Annotated[str, Attr()]
    type: Annotated[str, Attr(always=True)] = "string"
    required: Annotated[bool, Attr(always=True)] = False
    descriptions: Annotated[tuple[Description, ...], Child()] = ()


class Annotations(Payload, frozen=True, kw_only=True):
    """The effects that running the skill may have, with the names and defaults of MCP's tool
    annotations.

    A peer's annotations are its claim and never decide what is allowed. All four are always
    written, so that nobody has to know the defaults.
    """

    xml = Name(NAMESPACE, "annotations")

    read_only: Annotated[bool, Attr(always=True)] = False
    destructive: Annotated[bool, Attr(always=True)] = True
    idempotent: Annotated[bool, Attr(always=True)] = False
    open_world: Annotated[bool, Attr(always=True)] = True


class Typical(Payload, frozen=True, kw_only=True):
    """The typical cost of one run: milliseconds, and US dollars. A hint, not a promise."""

    xml = Name(NAMESPACE, "typical")

    duration_ms: Annotated[int | None, Attr()] = None
    cost_usd: Annotated[Decimal | None, Attr()] = None


class Schema(Payload, frozen=True, kw_only=True):
    """The JSON Schema of the input or the output."""

    xml = Name(NAMESPACE, "schema")

    direction: Annotated[Literal["input", "output"], Attr("for")]
    type: Annotated[Literal["application/schema+json"], Attr(always=True)] = (
        "application/schema+json"
    )
    json: Annotated[msgspec.Raw, Text()]


class SkillDescription(Payload, frozen=True, kw_only=True):
    """One skill. ``schemas`` are present only when they were requested, or the skill by name."""

    xml = Name(NAMESPACE, "skill")

    name: Annotated[str, Attr()]
    version: Annotated[str | None, Attr()] = None
    titles: Annotated[tuple[Title, ...], Child()] = ()
    descriptions: Annotated[tuple[Description, ...], Child()] = ()
    tags: Annotated[tuple[str, ...], TextChild("tag")] = ()
    examples: Annotated[tuple[Example, ...], Child()] = ()
    media: Annotated[tuple[Media, ...], Child()] = ()
    params: Annotated[tuple[ParamDescription, ...], Child()] = ()
    annotations: Annotated[Annotations, Child()] = Annotations()
    typical: Annotated[Typical | None, Child()] = None
    schemas: Annotated[tuple[Schema, ...], Child()] = ()


class SkillsQuery(Payload, frozen=True, kw_only=True):
    """The skills query and its answer.

    In the query ``skill`` requests one skill with its schemas, ``search`` requests skills that
    match some words, ``schemas`` requests the schemas of all of them, and ``version`` is the hash
    of an earlier answer. In the answer ``version`` is the hash over everything that this principal
    sees, schemas included, regardless of the request:
    it is the same on every page and for every search. ``ttl`` is the number of seconds for which
    the answer may be cached. When the query's ``version`` is still current, the answer is
    ``unchanged`` and contains no skills.

    A skill that cannot be decoded is left out, so that one peer's mistake does not hide the rest.
    """

    xml = Name(NAMESPACE, "query")

    skill: Annotated[str | None, Attr()] = None
    search: Annotated[str | None, Attr()] = None
    version: Annotated[str | None, Attr()] = None
    ttl: Annotated[int | None, Attr()] = None
    schemas: Annotated[bool, Attr()] = False
    unchanged: Annotated[bool, Attr()] = False
    skills: Annotated[tuple[SkillDescription, ...], Child(malformed="drop")] = ()
    page: Annotated[ResultSet | None, Child()] = None
