"""`skill.toml`, the manifest of a skill that is a directory.

The structs below are the declaration: `protocol_schemas/skill.schema.json` is made from them, and
a manifest is read by them. Reading is strict. A key that does not exist, a value of another type
and a text that could be read in two ways are errors, with the place and how to correct it.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from component.policy.taint import Taint
from component.skills.capabilities import (
    SCHEMES,
    AbsolutePath,
    Capabilities,
    CredentialName,
    Endpoint,
    ModelName,
    RecipientAddress,
)
from component.skills.errors import DeclarationError
from component.skills.spec import Annotations, SkillSchedule, SkillSpec

FILE: Final = "skill.toml"
MOST_BYTES: Final = 262_144
"""The maximum size of a manifest."""
_MB: Final = 1_048_576

Kind: TypeAlias = Literal["python", "wasm", "process", "rest", "plan"]
EntryPath: TypeAlias = Annotated[
    str, Meta(min_length=1, max_length=200, description="Path of a file of the directory.")
]

Method: TypeAlias = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]


class ManifestError(ValueError):
    """A manifest cannot be used. The message says where, what is wrong and how to correct it."""


class ManifestAnnotations(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`[skill.annotations]`: its effects, with the names and defaults of MCP's tool annotations."""

    read_only: bool = False
    destructive: bool | None = None
    idempotent: bool = False
    open_world: bool = True


class Running(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`[skill.execution]`: what runs, and its limits for each call.

    `entry` is the file that runs, or that has the plan; not for `rest`. `fuel` is the number of
    instructions that a WebAssembly module may execute; None for no limit but the time. With
    `durable` all its effects are in steps, so that it may run again. A call that fails is tried
    `attempts` times, after `backoff_s` seconds, and twice as long each time.
    """

    kind: Kind
    entry: EntryPath = ""
    args: tuple[str, ...] = ()
    timeout_s: Annotated[float, Meta(gt=0, le=86_400)] = 30.0
    memory_bytes: Annotated[int, Meta(ge=_MB, le=4096 * _MB)] = 256 * _MB
    fuel: Annotated[int, Meta(ge=1)] | None = None
    output_bytes: Annotated[int, Meta(ge=1, le=64 * _MB)] = _MB
    durable: bool = False
    attempts: Annotated[int, Meta(ge=1, le=100)] = 1
    backoff_s: Annotated[float, Meta(gt=0, le=86_400)] = 1.0
    queue: str | None = None


class RestRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`[skill.request]`: `{name}` in the texts stands for the value of a parameter.

    The keys mean the same as in a section `[rest.NAME]` of the settings (docs/how-to/rest.md).
    Header fields are public; secrets are credentials.
    """

    url: Annotated[str, Meta(min_length=1, max_length=2000)]
    method: Method = "GET"
    query: dict[str, str] = {}
    headers: dict[str, str] = {}
    body: dict[str, Any] | None = None
    credential: CredentialName | None = None


class RestResponse(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`[skill.response]`: what becomes of the response.

    `error` is a JMESPath expression that selects an error from the JSON, if there is one. `select`
    is one that selects a part of the JSON, `output` a text with such expressions in braces; without
    it the result is the JSON.
    """

    error: str = ""
    select: str = ""
    output: Annotated[str, Meta(max_length=2000)] = ""
    max_bytes: Annotated[int, Meta(ge=1024, le=64 * _MB)] = 1_048_576


class SkillTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`[skill]`.

    `question` asks a person to confirm a call: `{name}` stands for the value of a parameter.
    `undo` says how a person undoes a call, and that it affects nobody else.
    `input_schema` and `output_schema` are JSON Schemas, as tables or as names of JSON files of the
    directory. A Python skill may leave them out: its function says what it takes. `request` and
    `response` describe a skill of the kind `rest`.
    """

    name: str
    version: str
    title: str = ""
    description: str = ""
    question: str = ""
    undo: str = ""
    author: str = ""
    license: str = ""
    tags: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    input_schema: dict[str, Any] | EntryPath | None = None
    output_schema: dict[str, Any] | EntryPath | None = None
    input_media_types: tuple[str, ...] = ()
    output_media_types: tuple[str, ...] = ()
    taint: Taint | None = None
    typical_duration: Annotated[float, Meta(ge=0)] | None = None
    cost_usd: Annotated[float, Meta(ge=0)] | None = None
    annotations: ManifestAnnotations | None = None
    capabilities: Capabilities = Capabilities()
    execution: Running
    schedule: SkillSchedule | None = None
    request: RestRequest | None = None
    response: RestResponse | None = None


_OPTIONAL: Final = (
    *("title", "description", "question", "undo", "tags", "examples"),
    *("input_media_types", "output_media_types"),
    *("typical_duration", "cost_usd", "taint", "schedule"),
)
"""The keys that are fields of a description as they are."""


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A whole manifest."""

    skill: SkillTable

    @property
    def schema_files(self) -> tuple[str, ...]:
        """The files of the directory that have its schemas."""
        named = (self.skill.input_schema, self.skill.output_schema)
        return tuple(each for each in named if isinstance(each, str))

    def spec(self, said: Mapping[str, Any], source: str) -> SkillSpec:
        """Return the description of the skill.

        `said` are the fields that its code says, and the schemas; what the manifest says counts.
        Raises ManifestError.
        """
        fields: dict[str, Any] = {**said, **self.described(), "source": source}
        if fields.get("taint") is None and fields.get("annotations", Annotations()).open_world:
            fields["taint"] = "web"  # as for every skill: anybody may have written its results
        try:
            return SkillSpec(**fields)
        except DeclarationError as error:
            raise ManifestError(f"{FILE}: {error}") from None

    def described(self) -> dict[str, Any]:
        """Return the fields of a description that the manifest says, apart from the schemas."""
        said, runs = self.skill, self.skill.execution
        effects = None
        if said.annotations is not None:
            effects = Annotations.of(**msgspec.structs.asdict(said.annotations))
            if said.undo and said.annotations.destructive is None:
                effects = msgspec.structs.replace(effects, destructive=False)
        elif said.undo:
            effects = Annotations(destructive=False)
        chosen = {name: getattr(said, name) for name in _OPTIONAL}
        durable = runs.durable or runs.kind == "plan"
        chosen |= {"annotations": effects, "durable": durable, "queue": runs.queue}
        return {
            "name": said.name,
            "version": said.version,
            "timeout": runs.timeout_s,
            "attempts": runs.attempts,
            "backoff_s": runs.backoff_s,
            "capabilities": said.capabilities.texts,
            **{key: value for key, value in chosen.items() if value},
        }


def read_manifest(text: str | bytes) -> Manifest:
    """Read a manifest. Raises ManifestError."""
    if len(text) > MOST_BYTES:
        raise ManifestError(f"{FILE} has more than {MOST_BYTES} bytes: move schemas into files.")
    try:
        said = tomllib.loads(text.decode() if isinstance(text, bytes) else text)
    except UnicodeDecodeError:
        raise ManifestError(f"{FILE} is not in UTF-8: save it as UTF-8.") from None
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise ManifestError(f"{FILE} is not TOML: {error or 'nested too deeply'}.") from None
    try:
        manifest = msgspec.convert(said, Manifest, dec_hook=_read_text)
    except (msgspec.ValidationError, RecursionError) as error:
        raise ManifestError(f"{FILE}: {_explained(str(error))}.") from None
    _check(manifest)
    return manifest


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of manifests, for editors and other programs."""
    schema = msgspec.json.schema(Manifest, schema_hook=_TEXTS.__getitem__)
    # Through JSON, because msgspec leaves tuples in it as defaults.
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(schema))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"{FILE}, the manifest of a skill",
    } | found


def check_entry(path: str, where: str) -> None:
    """Raise ManifestError for a path that could lead out of the directory."""
    parts = path.split("/")
    plain = path.isprintable() and not any(each in path for each in "\\:%")
    if not plain or any(part in ("", ".", "..") or part.startswith((".", "~")) for part in parts):
        raise ManifestError(
            f"{FILE}: {where} is {path!r}: write the path of a file of this directory, such as"
            " main.py or lib/main.py."
        )


_TEXTS: Final[Mapping[type, dict[str, Any]]] = {
    Endpoint: {
        "type": "string",
        "pattern": rf"^({'|'.join(SCHEMES)})://[^/?#@%*]+$",
        "examples": ["https://api.example.com:443"],
    },
    AbsolutePath: {"type": "string", "pattern": "^/[^\\\\%$*?: ]+$"},
    CredentialName: {"type": "string", "pattern": "^[a-z0-9]+([._-][a-z0-9]+)*$", "maxLength": 64},
    RecipientAddress: {
        "type": "string",
        "pattern": "^[^/*?]+$",
        "examples": ["juliet@example.com"],
    },
    ModelName: {"type": "string", "maxLength": 128},
}
"""The texts with one spelling, and their JSON Schemas."""


def _read_text(kind: Any, value: object) -> object:
    if not isinstance(value, str):
        raise TypeError(f"Expected `str`, got `{type(value).__name__}`")
    if len(value) > 4096:
        raise ValueError("the text has more than 4096 characters")
    return kind.parse(value)


_PLACE = r"(?s)(?P<what>.*?)(?: - at `(?:key in )?\$\.?(?P<where>[^`]*)`)?"
_UNKNOWN = r"(?s)Object contains unknown field `(?P<key>.*)`"
_MISSING = r"(?s)Object missing required field `(?P<key>.*)`"
_TABLES: Final[Mapping[str, type[msgspec.Struct]]] = {
    "": Manifest,
    "skill": SkillTable,
    "skill.annotations": ManifestAnnotations,
    "skill.execution": Running,
    "skill.schedule": SkillSchedule,
    "skill.capabilities": Capabilities,
    "skill.request": RestRequest,
    "skill.response": RestResponse,
}
_IN_THE_SEED: Final = {
    "id": "call it name",
    "max_execution_time": "call it timeout_s",
    "cron": "call it when",
    "notify": "call it principal",
    "destructive": "move it to [skill.annotations]",
    "tier": "remove it",
    "browser": "remove it",
}
"""Keys of similar manifests, and what to do about them."""


def _explained(error: str) -> str:
    """Return what is wrong, with the place, and the key that was probably meant."""
    found = re.fullmatch(_PLACE, error)
    assert found is not None, "the pattern matches everything"
    what, where = found["what"], found["where"] or ""
    place = where or "the file"
    if unknown := re.fullmatch(_UNKNOWN, what):
        key = unknown["key"]
        table = _TABLES.get(where)
        known = () if table is None else table.__struct_encode_fields__
        import difflib  # noqa: PLC0415 - only a mistake needs it

        near = difflib.get_close_matches(key, known, 1)
        hint = _IN_THE_SEED.get(key) or (f"did you mean {near[0]}?" if near else "")
        hint = hint or f"there are {', '.join(known) or 'no keys'}"
        return f"{place} has the key {key!r}, which does not exist: {hint}".rstrip(".")
    if missing := re.fullmatch(_MISSING, what):
        return f"{place} lacks the key {missing['key']!r}: add it"
    return f"{place}: {what}".rstrip(".")


def _check(manifest: Manifest) -> None:
    """Check what the types cannot say. Raises ManifestError."""
    said, runs = manifest.skill, manifest.skill.execution
    for path, where in (
        (runs.entry, "skill.execution.entry"),
        (said.input_schema, "skill.input_schema"),
        (said.output_schema, "skill.output_schema"),
    ):
        if isinstance(path, str) and path:
            check_entry(path, where)
    if (runs.kind == "rest") != (runs.entry == ""):
        hint = "remove it" if runs.entry else "name the file that runs"
        raise ManifestError(f"{FILE}: skill.execution.entry of the kind {runs.kind!r}: {hint}.")
    if runs.kind == "rest" and said.request is None:
        raise ManifestError(f"{FILE}: skill lacks the table 'request': add [skill.request].")
    for value, where, kind in (
        (said.request, "skill.request", "rest"),
        (said.response, "skill.response", "rest"),
        (runs.args or None, "skill.execution.args", "process"),
        (runs.fuel, "skill.execution.fuel", "wasm"),
    ):
        if value is not None and runs.kind != kind:
            raise ManifestError(f"{FILE}: {where} is for the kind {kind!r} only: remove it.")
    if runs.kind in ("python", "process") and (said.capabilities.clock or said.capabilities.random):
        raise ManifestError(
            f"{FILE}: skill.capabilities has clock or random: a process can always read the time"
            " and use random numbers, so there is nothing to approve. Remove it, or use the kind"
            " 'wasm'."
        )
    if said.input_schema is None and runs.kind != "python":
        raise ManifestError(
            f"{FILE}: skill lacks the key 'input_schema': add the JSON Schema of the parameters, or"
            " the name of its file."
        )
    # The texts of the description are checked as those of every skill.
    manifest.spec({"input_schema": {"type": "object"}}, FILE)


def schema_text() -> str:
    """Return `protocol_schemas/skill.schema.json`."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    print(schema_text(), end="")  # noqa: T201 - python -m component.skills.manifest
