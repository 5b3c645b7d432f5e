"""A persona package as its `persona.toml` describes it."""

import re
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from msgspec.structs import fields
from pydantic_core import PydanticCustomError

from component.settings import agents as settings
from component.settings.llm import Tier
from component.skills.errors import printable

MANIFEST = "persona.toml"
ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\ufffe\uffff]")
"""Control characters, and others of which XML carries few."""

_BY_WEIGHT: Final[tuple[Tier, ...]] = ("light", "standard", "heavy")

_LONGEST_KEY: Final = 64

Positive = Annotated[int, msgspec.Meta(ge=1)]


class Persona(msgspec.Struct, frozen=True, kw_only=True):
    """One package. `folder` holds its texts.

    `tier` replaces that of the agent where it is set; `skills` are names of those that the agent is
    offered, with `*` and `?` as in policy rules. `max_tokens_per_message` is the most that one
    answer may have. `own` says that a person made it for themselves, and not the operator for all.
    """

    id: str
    name: str
    folder: Path
    description: str = ""
    icon: str = ""
    tier: Tier | None = None
    skills: tuple[str, ...] | None = None
    allowed_jids: tuple[str, ...] = ()
    max_tokens_per_message: int | None = None
    own: bool = False


def tier_of(persona: Persona | None, tier: Tier, *, own_model: bool) -> Tier | None:
    """The tier that a persona has in place of its agent's, which is `tier`; None if it has none.

    One that a person has made may be lighter, and not heavier, than what the operator has chosen;
    nor may it take the place of a model that the agent has for its own.
    """
    if persona is None or persona.tier is None or not persona.own:
        return None if persona is None else persona.tier
    lighter = _BY_WEIGHT[: _BY_WEIGHT.index(tier)] if tier in _BY_WEIGHT else ()
    return persona.tier if persona.tier in lighter and not own_model else None


class PersonaError(Exception):
    """A persona cannot be chosen, made or changed; the text is a sentence for the person."""


class _Defaults(msgspec.Struct, frozen=True):
    tier: Tier | None = None
    skills: tuple[str, ...] | None = None


# Nothing unknown in here: a restriction that is misspelt must not be none.
class _Restrictions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    allowed_jids: tuple[str, ...] = ()
    max_tokens_per_message: Positive | None = None


class _Described(msgspec.Struct, frozen=True):
    id: str
    name: str = ""
    description: str = ""
    icon: str = ""
    defaults: _Defaults = _Defaults()
    restrictions: _Restrictions = _Restrictions()


class _Manifest(msgspec.Struct, frozen=True):
    persona: _Described


_UNKNOWN: Final = re.compile(
    r"Object contains unknown field `(.*?)`(?: - at `\$\.([\w.]*)`)?", re.DOTALL
)


def misspelt(error: Exception, manifest: type[msgspec.Struct]) -> str | None:
    """A sentence about a key that is not known, and those that are; None for any other error."""
    found = _UNKNOWN.fullmatch(str(error))
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


def parse(folder: Path, text: str, *, own: bool = False) -> Persona | str:
    """Read the manifest of a directory; a text says what is wrong with it."""
    try:
        manifest = msgspec.toml.decode(text, type=_Manifest).persona
        allowed = tuple(map(settings.jid_pattern, manifest.restrictions.allowed_jids))
    except PydanticCustomError as error:
        return f"An entry of allowed_jids {error}."
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        return misspelt(error, _Manifest) or f"{error}."
    if ID.fullmatch(manifest.id) is None:
        return f"Its id {manifest.id!r} is not made of small letters, digits, dots and hyphens."
    if UNSEEN.search(manifest.name + manifest.description + manifest.icon):
        return "Its name, description or icon holds control characters, which nobody can be shown."
    if manifest.id != folder.name:
        return f"Its id is {manifest.id!r} and its directory {folder.name!r}. Name them alike."
    return Persona(
        id=manifest.id,
        name=manifest.name or manifest.id,
        folder=folder,
        description=manifest.description,
        icon=manifest.icon,
        tier=manifest.defaults.tier,
        skills=manifest.defaults.skills,
        allowed_jids=allowed,
        max_tokens_per_message=manifest.restrictions.max_tokens_per_message,
        own=own,
    )
