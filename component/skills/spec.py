"""The description of a skill: all that callers, policies and models know of it before a call."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Mapping
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, get_type_hints

import msgspec

from component.policy.taint import TAINTS, Taint
from component.skills.errors import DeclarationError
from component.skills.free_texts import find_mistake
from component.skills.outputs import JSON, TEXT
from component.skills.question import names_in
from xep.characters import forbidden


class SkillSchedule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """When a skill is to run by itself; in a manifest the table `[skill.schedule]`. It does so only
    where the settings enable it (`[[skills.schedule]]`), which can say otherwise for each member.

    Attributes:
        when: a cron expression of five fields, or times as in `[[schedule]]`: `every monday at 9`.
        zone: the IANA time zone of local times; empty for that of the settings.
        principal: the bare JID of the person with whose rights it runs, and who gets the result;
            empty if the settings must name one.
        missed: what becomes of firings that were missed while the service was stopped: none of
            them takes place, the latest one does, or all of them do.
    """

    when: Annotated[str, msgspec.Meta(min_length=1)]
    zone: str = ""
    params: dict[str, Any] = msgspec.field(default_factory=dict)
    principal: str = ""
    missed: Literal["skip", "once", "all"] = "once"


DEFAULT_TIMEOUT: Final = 120.0
OPTIONAL: Final = "optional"
"""A tag of skills that are not offered to a model with a small context window."""

Schema = dict[str, Any]

_LONGEST_NAME = 128
_NAME = r"[A-Za-z][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*"
_VERSION = r"[!-~]{1,64}"
_CAPABILITY = r"[a-z][a-z0-9-]*(:(\[[0-9a-f:.]+\]|[^\s:*?\[\]]+))*"
_MEDIA_TYPE = r"[\w!#$&^.+-]+/[\w!#$&^.+*-]+(\s*;.*)?"
TAINT_CHOICES: Final = f"write {', '.join(map(repr, TAINTS[:-1]))} or {TAINTS[-1]!r}"


_visible: Final = attrgetter(
    *("name", "version", "title", "description", "tags", "examples"),
    *("input_media_types", "output_media_types", "annotations", "typical_duration", "cost_usd"),
    *("input_schema", "output_schema"),
)
"""Everything that a caller can see of a skill."""


class Annotations(msgspec.Struct, frozen=True):
    """The effects of a skill on the world, with the names and defaults of MCP's tool annotations.

    A skill without marks counts as destructive and open to the world. The annotations are claims of
    the skill's author.
    """

    read_only: bool = False
    destructive: bool = True
    idempotent: bool = False
    open_world: bool = True

    @classmethod
    def of(
        cls, *, read_only: bool, destructive: bool | None, idempotent: bool, open_world: bool
    ) -> Annotations:
        """Return the annotations for the marks of a skill. One that only reads is not destructive,
        and one that does not say whether it is, is.
        """
        harms = not read_only if destructive is None else destructive
        return cls(read_only, harms, idempotent, open_world)

    @property
    def repeatable(self) -> bool:
        """Whether running twice has the same effect as running once."""
        return self.read_only or self.idempotent


_UNMARKED: Final = Annotations()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SkillSpec:
    """The description of a skill.

    `description` is for models as well, `question` asks a person to confirm a call
    (`component.skills.question`). `undo` says how a person undoes a call, such as `/watch remove
    NAME`, and that it affects nobody else: then a person who asks for it herself is not asked to
    confirm it. `input_schema` is the JSON Schema (2020-12) of its parameters, an object, and
    `output_schema` that of its result, if it declares one. `timeout` and `typical_duration` are
    seconds, `cost_usd` is US dollars per call. A `hidden` skill is in nobody's view. All effects of
    a `durable` one are inside its steps, so the code between them may run again. Its tasks use the
    named `queue`, if it has one. A call that raises or times out is tried `attempts` times, after
    `backoff_s` seconds, and twice as long each time. `capabilities` are what it accesses, as in
    `network:api.example.com:443` or `memory:write`; an agent that calls it needs them all. `taint`
    is the least trusted possible author of its results. `source` names where the skill comes from,
    for admins. `digest` is a hash over everything that a caller can see, the same in every process.

    Raises DeclarationError for a description that would mislead callers or could not be sent to
    them.
    """

    name: str
    version: str = "1.0.0"
    title: str = ""
    description: str = ""
    question: str = ""
    tags: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    input_media_types: tuple[str, ...] = (TEXT, JSON)
    output_media_types: tuple[str, ...] = (TEXT, JSON)
    annotations: Annotations = _UNMARKED
    undo: str = ""
    typical_duration: float | None = None
    cost_usd: float | None = None
    timeout: float = DEFAULT_TIMEOUT
    hidden: bool = False
    durable: bool = False
    queue: str | None = None
    attempts: int = 1
    backoff_s: float = 1.0
    capabilities: tuple[str, ...] = ()
    taint: Taint | None = None
    schedule: SkillSchedule | None = None
    input_schema: Schema
    output_schema: Schema | None = None
    source: str = ""
    digest: bytes = dataclasses.field(init=False, repr=False)
    searched: str = dataclasses.field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Check the description."""
        if not self.title:
            object.__setattr__(self, "title", title_of(self.name))
        _check(self)

    if not TYPE_CHECKING:  # with it, types would allow any attribute

        def __getattr__(self, name: str) -> Any:
            """Compute a value that is used for the first time, whose slot is empty."""
            value: object
            if name == "searched":
                words = (self.name, self.title, self.description, *self.tags)
                value = "\n".join(words).casefold()
            elif name == "digest":
                seen = msgspec.json.encode(_visible(self), order="deterministic")
                value = hashlib.sha256(seen).digest()
            else:
                raise AttributeError(name)
            object.__setattr__(self, name, value)
            return value


def title_of(name: str) -> str:
    """Return a name as words for people: `Postal code` for `postal_code`."""
    words = re.sub(r"[._-]+", " ", name).strip()
    return words[:1].upper() + words[1:]


def _check(spec: SkillSpec) -> None:
    where = f"The skill {spec.name!r}"
    if len(spec.name) > _LONGEST_NAME or not re.fullmatch(_NAME, spec.name):
        raise DeclarationError(
            f"{where} has no usable name: begin with a letter, go on with letters, digits, '_', "
            f"'-' and single dots, at most {_LONGEST_NAME} characters of ASCII."
        )
    if not re.fullmatch(_VERSION, spec.version):
        raise DeclarationError(f"{where} has no usable version: write it like 1.2.0.")
    if spec.annotations.read_only and spec.annotations.destructive:
        raise DeclarationError(f"{where} is read-only and destructive: it cannot be both.")
    if spec.undo and spec.annotations.destructive:
        raise DeclarationError(
            f"{where} says how it is undone, and is destructive: it cannot be both. Remove undo, or"
            " declare destructive=False."
        )
    check_texts(spec)
    _check_execution(spec, where)
    if spec.taint is not None and spec.taint not in TAINTS:
        raise DeclarationError(f"{where} has taint={spec.taint!r}: {TAINT_CHOICES}.")
    for capability in spec.capabilities:
        if not re.fullmatch(_CAPABILITY, capability):
            raise DeclarationError(
                f"{where} names the capability {capability!r}: write it like memory:write or "
                "network:api.example.com:443, without * and ?."
            )
    for media_type in (*spec.input_media_types, *spec.output_media_types):
        if not re.fullmatch(_MEDIA_TYPE, media_type):
            raise DeclarationError(f"{where} names {media_type!r}, which is not a media type.")


def _check_execution(spec: SkillSpec, where: str) -> None:
    if not 0 < spec.timeout < float("inf"):
        raise DeclarationError(f"{where} has a time-out that is not a number of seconds above 0.")
    for value, what in ((spec.typical_duration, "duration"), (spec.cost_usd, "cost")):
        if value is not None and not 0 <= value < float("inf"):
            raise DeclarationError(f"{where} has a {what} that is not a number of at least 0.")
    if spec.queue is not None and not re.fullmatch(_NAME, spec.queue):
        raise DeclarationError(f"{where} has queue={spec.queue!r}: write it like mail.")
    if spec.attempts < 1 or not 0 < spec.backoff_s < float("inf"):
        raise DeclarationError(f"{where} needs attempts from 1 up and a backoff_s above 0.")
    if spec.attempts > 1 and not (spec.durable or spec.annotations.repeatable):
        raise DeclarationError(
            f"{where} has attempts and must not run twice: declare it durable=True and put its"
            " effects into steps, or read_only=True or idempotent=True if that is what it is."
        )


def check_texts(spec: SkillSpec) -> None:
    """Raise DeclarationError for a text that no reply could contain, and for a parameter that must
    not be marked as a free text.
    """
    properties = spec.input_schema.get("properties", {})
    if mistake := find_mistake(properties):
        raise DeclarationError(f"In the skill {spec.name!r}, {mistake}")
    described = [
        each["description"]
        for each in properties.values()
        if isinstance(each, Mapping) and isinstance(each.get("description"), str)
    ]
    _check_question(spec, properties)
    for text in (
        spec.title,
        spec.description,
        spec.question,
        *spec.tags,
        *spec.examples,
        *described,
    ):
        found = forbidden.search(text)
        if found is not None:
            raise DeclarationError(
                f"The skill {spec.name!r} is described by a text that cannot be sent: XML"
                f" cannot carry U+{ord(found.group()):04X}, found at position {found.start()}."
            )


def _check_question(spec: SkillSpec, properties: Mapping[str, object]) -> None:
    try:
        names = names_in(spec.question)
    except ValueError as error:
        raise DeclarationError(f"The question of the skill {spec.name!r} {error}.") from None
    # The parameters of a function are read after its description.
    unknown = [name for name in names if name not in properties]
    if unknown and "properties" in spec.input_schema:
        raise DeclarationError(
            f"The question of the skill {spec.name!r} names {unknown[0]!r}, which is not one of its"
            f" parameters: {', '.join(properties) or 'it has none'}."
        )


_FIELDS: Final = {
    field.name: field
    for field in dataclasses.fields(SkillSpec)
    if field.init and field.name != "source"
}


def spec_json(spec: SkillSpec) -> str:
    """Return the fields as a JSON object, except the source and what has its default."""
    found = {name: getattr(spec, name) for name in _FIELDS}
    return msgspec.json.encode(
        {name: value for name, value in found.items() if value != _FIELDS[name].default}
    ).decode()


def spec_fields(description: str | bytes) -> dict[str, Any]:
    """Return the fields of a description by `spec_json`, except the source, or raise ValueError."""
    return msgspec.structs.asdict(_decoder().decode(description))


@cache
def _decoder() -> msgspec.json.Decoder[msgspec.Struct]:
    types = get_type_hints(SkillSpec)
    fields: list[Any] = [
        (name, types[name])
        if field.default is dataclasses.MISSING
        else (name, types[name], field.default)
        for name, field in _FIELDS.items()
    ]
    struct = msgspec.defstruct("Description", fields, kw_only=True, forbid_unknown_fields=True)
    return msgspec.json.Decoder(struct)
