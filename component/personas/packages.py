"""A persona package: its manifest `persona.toml`, its texts, and both as one TOML text that people
export and import.

Input of people is untrusted until it is checked: everything is bounded, unknown keys are refused,
and each refusal is one sentence.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from msgspec.structs import fields
from pydantic_core import PydanticCustomError

from component.config import agents as settings
from component.config.llm import Tier
from component.skills.errors import printable

MANIFEST: Final = "persona.toml"
ID: Final = r"[a-z0-9][a-z0-9._-]{0,63}"

VERBS: Final = ("list", "reset", "create", "edit", "delete", "export", "import", "cancel")
"""The words of the command about personas, which cannot be ids of people's own personas."""

TEXTS: Final = ("identity", "personality", "instructions")
"""The texts of a persona that people write; also the names of their files."""

LONGEST_TEXT: Final = 4_000
"""Characters of one of these texts, since they are in every prompt."""

LONGEST_RIGHT: Final = 128
"""Characters of the name of a skill or a capability."""

_LONGEST_NAME: Final = 64
_LONGEST_LINE: Final = 200
_LONGEST_ICON: Final = 16
_LONGEST_KEY: Final = 64
_LONGEST_REASON: Final = 200
_MOST_NAMES: Final = 64
_LARGEST: Final = 1 << 16  # bytes of a persona as one text
_DEEPEST: Final = 16  # parts of a key; the longest known key has three

_INVISIBLE: Final = r"[\x00-\x1f\x7f-\x9f\ufffe\uffff]"  # XML carries few of them
_FORBIDDEN: Final = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ufffe\uffff]"
_LETTERS: Final = (
    "a name is made of small letters, digits, dots, hyphens and underscores, up to 64 of them, and"
    " begins with a letter or a digit"
)
_UNKNOWN: Final = r"(?s)Object contains unknown field `(.*?)`(?: - at `\$\.([\w.]*)`)?"
_TIERS: Final[tuple[Tier, ...]] = ("light", "standard", "heavy")  # in order of weight


class PersonaError(Exception):
    """A persona cannot be chosen, created or changed; the message is for the person."""


class DescribedPersona(msgspec.Struct, frozen=True, kw_only=True):
    """What a package for all and one of a person have in common.

    Attributes:
        tier: replaces that of the agent, if it is set.
        skills: names of the skills that the agent is offered, with `*` and `?` as in policy rules.
        capabilities: the capabilities that these skills may need, likewise.
        read_only: whether it may use only skills that only read.
        max_tokens_per_message: the maximum length of one answer.
        max_iterations: the maximum number of model calls of a turn.
    """

    id: str
    name: str = ""
    description: str = ""
    icon: str = ""
    tier: Tier | None = None
    skills: tuple[str, ...] | None = None
    capabilities: tuple[str, ...] | None = None
    read_only: bool = False
    max_tokens_per_message: int | None = None
    max_iterations: int | None = None

    @property
    def described(self) -> dict[str, Any]:
        """These values by their names, without those that only one kind of package has."""
        return {each: getattr(self, each) for each in DescribedPersona.__struct_fields__}


class Persona(DescribedPersona, frozen=True, kw_only=True):
    """One package.

    Attributes:
        folder: the directory with its texts.
        own: whether a person has created it for themselves, and not the operator for all.
    """

    folder: Path
    allowed_jids: tuple[str, ...] = ()
    own: bool = False


class PersonaText(DescribedPersona, frozen=True, kw_only=True):
    """What a person has written for a persona of their own; missing texts are empty."""

    identity: str = ""
    personality: str = ""
    instructions: str = ""


_Positive = Annotated[int, msgspec.Meta(ge=1)]


class _Defaults(msgspec.Struct, frozen=True):
    tier: Tier | None = None
    skills: tuple[str, ...] | None = None


class _Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    # An unknown key is refused: a misspelt restriction would have no effect.
    capabilities: tuple[str, ...] | None = None
    read_only: bool = False
    max_tokens_per_message: _Positive | None = None
    max_iterations: _Positive | None = None


class _Restrictions(_Limits, frozen=True, forbid_unknown_fields=True):
    allowed_jids: tuple[str, ...] = ()


class _Table(msgspec.Struct, frozen=True):
    id: str
    name: str = ""
    description: str = ""
    icon: str = ""


class _PersonaTable(_Table, frozen=True):
    defaults: _Defaults = _Defaults()
    restrictions: _Restrictions = _Restrictions()


class _Manifest(msgspec.Struct, frozen=True):
    persona: _PersonaTable


# An imported text has no `allowed_jids`, and no unknown keys.


class _ImportedDefaults(_Defaults, frozen=True, forbid_unknown_fields=True):
    pass


class _ImportedTexts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    identity: str = ""
    personality: str = ""
    instructions: str = ""


class _ImportedTable(_Table, frozen=True, forbid_unknown_fields=True):
    defaults: _ImportedDefaults = _ImportedDefaults()
    restrictions: _Limits = _Limits()
    texts: _ImportedTexts = _ImportedTexts()


class _Imported(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    persona: _ImportedTable


def tier_of(persona: Persona | None, tier: Tier, *, own_model: bool) -> Tier | None:
    """Return the tier that a persona sets instead of `tier`, that of its agent; None if it sets
    none.

    The persona of a person may set a lighter tier than the operator has chosen, but no heavier one,
    and none if the agent has a model of its own.
    """
    if persona is None or persona.tier is None or not persona.own:
        return None if persona is None else persona.tier
    return persona.tier if persona.tier in lighter(tier) and not own_model else None


def lighter(tier: Tier) -> tuple[Tier, ...]:
    """Return the tiers that are lighter than another one."""
    return _TIERS[: _TIERS.index(tier)] if tier in _TIERS else ()


def rights_of(persona: DescribedPersona) -> tuple[str, ...]:
    """Return what an agent with a persona may do at most, for people: each is a verb phrase."""
    found = ["use all skills of the agent"] if persona.skills is None else []
    found += [f"use the skill {each}" for each in persona.skills or ()]
    found += [f"use the capability {each}" for each in persona.capabilities or ()]
    found += ["use only skills that only read"] if persona.read_only else []
    found += [f"use the model tier {persona.tier}"] if persona.tier else []
    if persona.max_tokens_per_message is not None:
        found.append(f"answer with up to {persona.max_tokens_per_message:,} tokens")
    if persona.max_iterations is not None:
        found.append(f"call the model up to {persona.max_iterations:,} times for an answer")
    return tuple(found)


def parse_manifest(folder: Path, text: str, *, own: bool = False) -> Persona | str:
    """Read the manifest of a package; return a sentence if it is invalid."""
    try:
        table = msgspec.toml.decode(text, type=_Manifest).persona
        allowed = tuple(map(settings.jid_pattern, table.restrictions.allowed_jids))
    except PydanticCustomError as error:
        return f"An entry of allowed_jids {error}."
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        return _unknown_key(error, _Manifest) or f"{error}."
    if re.fullmatch(ID, table.id) is None:
        return f"Its id {table.id!r} is not made of small letters, digits, dots and hyphens."
    if re.search(_INVISIBLE, table.name + table.description + table.icon):
        return "Its name, description or icon holds control characters, which nobody can be shown."
    if table.id != folder.name:
        return f"Its id is {table.id!r} and its directory {folder.name!r}. Name them alike."
    return Persona(**_described(table), folder=folder, allowed_jids=allowed, own=own)


def _described(table: "_PersonaTable | _ImportedTable") -> dict[str, Any]:
    return {
        "id": table.id,
        "name": table.name or table.id,
        "description": table.description,
        "icon": table.icon,
        "tier": table.defaults.tier,
        "skills": table.defaults.skills,
        **{key: getattr(table.restrictions, key) for key in _Limits.__struct_fields__},
    }


def _unknown_key(error: Exception, manifest: type[msgspec.Struct]) -> str | None:
    """Return a sentence about an unknown key and the known ones; None for any other error."""
    found = re.fullmatch(_UNKNOWN, str(error))
    if found is None:
        return None
    key, section = found.groups()
    types: dict[str, Any] = {each.name: each.type for each in fields(manifest)}
    for name in section.split(".") if section else ():
        if name not in types:
            return None
        types = {each.name: each.type for each in fields(types[name])}
    where = f"[{section}]" if section else "It"
    shown = printable(key, _LONGEST_KEY)
    return f"{where} has {shown!r}, which is not known; its keys are {', '.join(types)}."


def id_of(name: str) -> str:
    """Return the id for a name: in lower case, with hyphens for blanks. Raises PersonaError."""
    found = "-".join(name.lower().split())
    _check_id(found, name)
    return found


def check_persona(written: PersonaText) -> None:
    """Raise PersonaError for the first part that is not allowed in a persona of a person."""
    _check_id(written.id, written.id)
    lines = {
        "name": (written.name, _LONGEST_NAME),
        "description": (written.description, _LONGEST_LINE),
        "icon": (written.icon, _LONGEST_ICON),
    }
    for key, (line, most) in lines.items():
        if len(line) > most:
            raise PersonaError(f"Its {key} has {len(line)} characters, and {most} are the most.")
        if re.search(_INVISIBLE, line):
            raise PersonaError(f"Its {key} holds control characters or is no single line.")
    for key in TEXTS:
        text: str = getattr(written, key)
        if len(text) > LONGEST_TEXT:
            raise PersonaError(
                f"Its {key} has {len(text)} characters, and {LONGEST_TEXT} are the most."
            )
        if re.search(_FORBIDDEN, text):
            raise PersonaError(f"Its {key} holds control characters, which are no text.")
    for what in ("skills", "capabilities"):
        names = getattr(written, what) or ()
        if len(names) > _MOST_NAMES or any(len(each) > LONGEST_RIGHT for each in names):
            raise PersonaError(
                f"It may name {_MOST_NAMES} {what}, each with {LONGEST_RIGHT} characters at most."
            )
        if any(re.search(_INVISIBLE, each) for each in names):
            raise PersonaError(f"A name among its {what} holds control characters.")
    if not any(getattr(written, key).strip() for key in TEXTS):
        raise PersonaError("It says nothing: who it is, how it speaks, or by which rules.")


def manifest(written: PersonaText) -> str:
    """Return the `persona.toml` of a package."""
    return "\n".join(_lines(written)) + "\n"


def files_of(written: PersonaText) -> dict[str, str]:
    """Return the files of a package, by their names."""
    texts = {f"{kind}.md": text for kind in TEXTS if (text := getattr(written, kind))}
    return {MANIFEST: manifest(written), **texts}


def exported(written: PersonaText) -> str:
    """Return a persona as one text, which `imported` reads.

    Raises PersonaError if it was written by hand and could not be imported.
    """
    check_persona(written)
    lines = [*_lines(written), "", "[persona.texts]"]
    lines += [f"{key} = {_value(getattr(written, key))}" for key in TEXTS if getattr(written, key)]
    return "\n".join(lines) + "\n"


def imported(text: str) -> PersonaText:
    """Read an exported persona. Raises PersonaError for any other text."""
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > _LARGEST:
        raise PersonaError(f"It has {size} bytes, and a persona has {_LARGEST} at most.")
    if _is_deep(text):
        raise PersonaError("It is no persona: it has keys of more parts than any persona has.")
    try:
        found = msgspec.toml.decode(text, type=_Imported).persona
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        if (sentence := _unknown_key(error, _Imported)) is not None:
            raise PersonaError(sentence) from None
        why = printable(str(error), _LONGEST_REASON).rstrip(".")
        raise PersonaError(f"It is no persona in TOML: {why or 'nothing is there'}.") from None
    written = PersonaText(**_described(found), **msgspec.structs.asdict(found.texts))
    check_persona(written)
    return written


def _check_id(id_: str, said: str) -> None:
    if re.fullmatch(ID, id_) is None:
        raise PersonaError(f"{printable(said, _LONGEST_NAME)!r} cannot be its name: {_LETTERS}.")
    if id_ in VERBS:
        raise PersonaError(f"{id_!r} cannot be its name: /persona {id_} has a meaning already.")


def _lines(written: PersonaText) -> Iterator[str]:
    yield "[persona]"
    for key in ("id", "name", "description", "icon"):
        if value := getattr(written, key):
            yield f"{key} = {_string(value)}"
    if written.tier is not None or written.skills is not None:
        yield ""
        yield "[persona.defaults]"
    if written.tier is not None:
        yield f"tier = {_string(written.tier)}"
    if written.skills is not None:
        yield f"skills = [{', '.join(map(_string, written.skills))}]"
    limits = list(_limit_lines(written))
    if limits:
        yield ""
        yield "[persona.restrictions]"
        yield from limits


def _limit_lines(written: PersonaText) -> Iterator[str]:
    if written.capabilities is not None:
        yield f"capabilities = [{', '.join(map(_string, written.capabilities))}]"
    if written.read_only:
        yield "read_only = true"
    for key in ("max_tokens_per_message", "max_iterations"):
        if (value := getattr(written, key)) is not None:
            yield f"{key} = {value}"


def _string(text: str) -> str:
    # A JSON string is a basic string of TOML except for control characters, which are refused.
    return json.dumps(text, ensure_ascii=False)


def _value(text: str) -> str:
    if "\n" not in text:
        return _string(text)
    return '"""\n' + "\n".join(_string(line)[1:-1] for line in text.split("\n")) + '"""'


_SIGN = re.compile("\"\"\"|'''|[\"'#.\\n]")
_ENDS: Final = {
    '"': re.compile(r'(?:\\.|[^"\\\n])*+"'),
    "'": re.compile(r"[^'\n]*+'"),
    '"""': re.compile(r'(?:\\[\s\S]|[^"\\]|"(?!""))*+"{3,5}'),
    "'''": re.compile(r"(?:[^']|'(?!''))*+'{3,5}"),
}


def _is_deep(text: str) -> bool:
    """Whether a line has more dots outside of strings than a known key can have.

    `tomllib` takes time in the square of the parts of a key: half a minute for 64 KiB.
    """
    at = dots = 0
    while (found := _SIGN.search(text, at)) is not None:
        sign, at = found[0], found.end()
        if sign == ".":
            dots += 1
            if dots > _DEEPEST:
                return True
        elif sign == "\n":
            dots = 0
        elif sign == "#":
            at = text.find("\n", at)
            if at < 0:
                return False
        else:
            end = _ENDS[sign].match(text, at)
            if end is None:
                return False  # a string without an end, which the parser reports
            at = end.end()
    return False
