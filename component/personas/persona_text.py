"""A persona as one text, TOML, that people hand on; and what one may hold.

What comes from people is hostile until it has been read: everything here is bounded, unknown keys
are refused, and each refusal is one sentence.
"""

import json
import re
from collections.abc import Iterator
from typing import Final

import msgspec

from component.personas.packages import ID, UNSEEN, PersonaError, Positive, misspelt
from component.settings.llm import Tier
from component.skills.errors import printable

VERBS: Final = ("list", "reset", "create", "edit", "delete", "export", "import", "cancel")
"""What can be done about personas, by word: no persona of one's own is called so."""

TEXTS: Final = ("identity", "personality", "instructions")
"""The texts of a persona that people write, as their files are called."""

LONGEST_TEXT: Final = 4_000  # characters of one of them: they stand in every prompt
_LONGEST_NAME: Final = 64
_LONGEST_LINE: Final = 200
_LONGEST_ICON: Final = 16
_MOST_SKILLS: Final = 64
_LARGEST: Final = 1 << 16  # bytes of a persona as one text
_DEEPEST: Final = 16  # parts of a key; the longest known key has three
_LONGEST_REASON: Final = 200

_FORBIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ufffe\uffff]")
_LETTERS: Final = (
    "a name is made of small letters, digits, dots, hyphens and underscores, up to 64 of them, and"
    " begins with a letter or a digit"
)


class PersonaText(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What somebody has written for a persona of their own; empty what they left out."""

    id: str
    name: str = ""
    description: str = ""
    icon: str = ""
    tier: Tier | None = None
    skills: tuple[str, ...] | None = None
    max_tokens_per_message: int | None = None
    identity: str = ""
    personality: str = ""
    instructions: str = ""


class _Defaults(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tier: Tier | None = None
    skills: tuple[str, ...] | None = None


class _Restrictions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    max_tokens_per_message: Positive | None = None


class _Texts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    identity: str = ""
    personality: str = ""
    instructions: str = ""


class _Persona(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    name: str = ""
    description: str = ""
    icon: str = ""
    defaults: _Defaults = _Defaults()
    restrictions: _Restrictions = _Restrictions()
    texts: _Texts = _Texts()


class _Shared(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    persona: _Persona


def id_of(name: str) -> str:
    """The id for a name: in small letters, with hyphens for blanks.

    Raises PersonaError, which says what is allowed.
    """
    found = "-".join(name.lower().split())
    _check_id(found, name)
    return found


def check(written: PersonaText) -> None:
    """Raise PersonaError for the first thing that a persona of one's own may not have."""
    _check_id(written.id, written.id)
    lines = {
        "name": (written.name, _LONGEST_NAME),
        "description": (written.description, _LONGEST_LINE),
        "icon": (written.icon, _LONGEST_ICON),
    }
    for key, (line, most) in lines.items():
        if len(line) > most:
            raise PersonaError(f"Its {key} has {len(line)} characters, and {most} are the most.")
        if UNSEEN.search(line):
            raise PersonaError(f"Its {key} holds control characters or is no single line.")
    for key in TEXTS:
        text: str = getattr(written, key)
        if len(text) > LONGEST_TEXT:
            raise PersonaError(
                f"Its {key} has {len(text)} characters, and {LONGEST_TEXT} are the most."
            )
        if _FORBIDDEN.search(text):
            raise PersonaError(f"Its {key} holds control characters, which are no text.")
    skills = written.skills or ()
    if len(skills) > _MOST_SKILLS or any(len(each) > _LONGEST_NAME for each in skills):
        raise PersonaError(
            f"It may name {_MOST_SKILLS} skills, each with {_LONGEST_NAME} characters at most."
        )
    if any(UNSEEN.search(each) for each in skills):
        raise PersonaError("A name among its skills holds control characters.")
    if not any(getattr(written, key).strip() for key in TEXTS):
        raise PersonaError("It says nothing: who it is, how it speaks, or by which rules.")


def manifest(written: PersonaText) -> str:
    """The `persona.toml` of a package."""
    return "\n".join(_lines(written)) + "\n"


def exported(written: PersonaText) -> str:
    """A persona as one text, which `imported` reads.

    Raises PersonaError for one that was written by hand and could not be imported.
    """
    check(written)
    lines = [*_lines(written), "", "[persona.texts]"]
    lines += [f"{key} = {_value(getattr(written, key))}" for key in TEXTS if getattr(written, key)]
    return "\n".join(lines) + "\n"


def imported(text: str) -> PersonaText:
    """Read what somebody hands in. Raises PersonaError, whatever it is."""
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > _LARGEST:
        raise PersonaError(f"It has {size} bytes, and a persona has {_LARGEST} at most.")
    if _is_deep(text):
        raise PersonaError("It is no persona: it has keys of more parts than any persona has.")
    try:
        found = msgspec.toml.decode(text, type=_Shared).persona
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        if (sentence := misspelt(error, _Shared)) is not None:
            raise PersonaError(sentence) from None
        why = printable(str(error), _LONGEST_REASON).rstrip(".")
        raise PersonaError(f"It is no persona in TOML: {why or 'nothing is there'}.") from None
    written = PersonaText(
        id=found.id,
        name=found.name or found.id,
        description=found.description,
        icon=found.icon,
        tier=found.defaults.tier,
        skills=found.defaults.skills,
        max_tokens_per_message=found.restrictions.max_tokens_per_message,
        identity=found.texts.identity,
        personality=found.texts.personality,
        instructions=found.texts.instructions,
    )
    check(written)
    return written


def _check_id(id_: str, said: str) -> None:
    if ID.fullmatch(id_) is None:
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
    if written.max_tokens_per_message is not None:
        yield ""
        yield "[persona.restrictions]"
        yield f"max_tokens_per_message = {written.max_tokens_per_message}"


def _string(text: str) -> str:
    # A basic string of TOML is one of JSON, but for control characters, which `check` refuses.
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
    """Whether a line has more dots outside of texts than a known key can have.

    `tomllib` takes the square of the parts of a key: 64 KiB of them cost it half a minute.
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
                return False  # a text without an end, which the parser says
            at = end.end()
    return False
