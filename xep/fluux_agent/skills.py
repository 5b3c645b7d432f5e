"""urn:fluux:agent:0#skills, skill discovery: which skills there are and how each is used."""

from decimal import Decimal
from typing import Annotated, Final, Literal

import msgspec

from xep.binding import Attr, Child, Lang, Name, Payload, Text, TextChild
from xep.fluux_agent import NAMESPACE as AGENT
from xep.result_sets import ResultSet

NAMESPACE: Final = f"{AGENT}#skills"
"""Also the disco node at which skills are items."""


class Title(Payload, frozen=True, kw_only=True):
    """A short name for people; one per language."""

    xml = Name(NAMESPACE, "title")

    text: Annotated[str, Text()]
    lang: Lang = None


class Description(Payload, frozen=True, kw_only=True):
    """What a skill or a parameter is for; one per language."""

    xml = Name(NAMESPACE, "description")

    text: Annotated[str, Text()]
    lang: Lang = None


class Example(Payload, frozen=True, kw_only=True):
    """A request in a person's words that the skill can serve."""

    xml = Name(NAMESPACE, "example")

    text: Annotated[str, Text()]
    lang: Lang = None


class Media(Payload, frozen=True, kw_only=True):
    """A media type that the skill takes as input or gives as output."""

    xml = Name(NAMESPACE, "media")

    direction: Annotated[Literal["input", "output"], Attr("for")]
    type: Annotated[str, Attr()]


class ParamDescription(Payload, frozen=True, kw_only=True):
    """One parameter.

    ``type`` is a type of JSON Schema (string, integer, number, boolean, array, object, null), or
    ``any`` where there is no single one. It tells a person what to write; what is accepted is
    said by the input schema.
    """

    xml = Name(NAMESPACE, "param")

    name: Annotated[str, Attr()]
    type: Annotated[str, Attr(always=True)] = "string"
    required: Annotated[bool, Attr(always=True)] = False
    descriptions: Annotated[tuple[Description, ...], Child()] = ()


class Annotations(Payload, frozen=True, kw_only=True):
    """What running the skill may do, with the names and defaults of MCP's tool annotations.

    A peer's annotations are its claim and never decide what is allowed. All four are always
    written, so that nobody has to know the defaults.
    """

    xml = Name(NAMESPACE, "annotations")

    read_only: Annotated[bool, Attr(always=True)] = False
    destructive: Annotated[bool, Attr(always=True)] = True
    idempotent: Annotated[bool, Attr(always=True)] = False
    open_world: Annotated[bool, Attr(always=True)] = True


class Typical(Payload, frozen=True, kw_only=True):
    """What one run usually takes: milliseconds, and US dollars. A hint, not a promise."""

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
    """One skill. ``schemas`` are there only when the skill was asked for by name."""

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
    """The question and its answer.

    In the question ``skill`` asks for one skill with its schemas, ``search`` for skills that fit
    some words, and ``version`` is the hash of an earlier answer. In the answer ``version`` is the
    hash over everything this principal sees, schemas included, whatever was asked for: it is the
    same on every page and for every search. ``ttl`` is for how many seconds the answer may be
    kept. When the question's ``version`` is still the right one, the answer is ``unchanged`` and
    holds no skills.

    A skill that cannot be decoded is left out, so that one peer's mistake does not hide the rest.
    """

    xml = Name(NAMESPACE, "query")

    skill: Annotated[str | None, Attr()] = None
    search: Annotated[str | None, Attr()] = None
    version: Annotated[str | None, Attr()] = None
    ttl: Annotated[int | None, Attr()] = None
    unchanged: Annotated[bool, Attr()] = False
    skills: Annotated[tuple[SkillDescription, ...], Child(malformed="drop")] = ()
    page: Annotated[ResultSet | None, Child()] = None
