"""Texts and schemas with which somebody else describes a skill: bounded, and without characters
that people do not see.
"""

import unicodedata
from typing import TYPE_CHECKING, Any, Final

from component.policy.flows import TRUSTED

if TYPE_CHECKING:
    from component.skills.skill import Skill

_INVISIBLE: Final = frozenset(("Cc", "Cf", "Cs", "Co", "Cn"))
_DEEPEST: Final = 64


def clean(text: str, longest: int) -> str:
    """Return at most so many characters of a text, without control characters except line breaks
    and tabs, and without invisible ones, in which instructions to models can be hidden.
    """
    text = text[: longest * 2]
    if not text.isprintable():
        text = "".join(
            char for char in text if char in "\n\t" or unicodedata.category(char) not in _INVISIBLE
        )
    text = text.strip()
    return text if len(text) <= longest else text[: longest - 1] + "…"


def line(text: str, longest: int) -> str:
    """Return a cleaned text in one line."""
    return clean(" ".join(text[: longest * 2].split()), longest)


def trusted_line(skill: "Skill", longest: int) -> str:
    """Return what a skill does, in one line for a model; empty if a stranger has described it."""
    if skill.described_by not in (None, *TRUSTED):
        return ""
    return line(skill.description.strip().partition("\n\n")[0], longest)


def clean_schema(schema: Any, longest: int, depth: int = 0) -> Any:
    """Return a JSON Schema with clean texts. Raises ValueError if it is nested too deeply."""
    if depth > _DEEPEST:
        raise ValueError(f"it is nested more than {_DEEPEST} levels deep")
    if isinstance(schema, dict):
        return {
            key: clean(value, longest)
            if key in ("title", "description", "$comment") and isinstance(value, str)
            else clean_schema(value, longest, depth + 1)
            for key, value in schema.items()
        }
    if isinstance(schema, list):
        return [clean_schema(each, longest, depth + 1) for each in schema]
    return schema
