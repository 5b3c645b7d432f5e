"""The description of a skill as an admin approves it: canonical JSON, its digest, and how it is
shown.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from component.skills.errors import DeclarationError
from component.skills.inputs import schema_inputs
from component.skills.skill import Skill

_TEXTS: Final = ("title", "description", "tags", "examples")
_SCHEMAS: Final = ("input_schema", "output_schema")
_TEXTS_OF_SCHEMAS: Final = ("title", "description", "$comment")
_NOTHING: Final = "{}"


def content_of(skill: Skill) -> str:
    """Return everything that a source says about a skill, in canonical JSON (RFC 8785).

    Raises ValueError for a description that has no canonical form, such as one with a number that
    JavaScript could not read.
    """
    import rfc8785  # noqa: PLC0415 - only where others describe skills

    fields = {name: getattr(skill, name) for name in (*_TEXTS, *_SCHEMAS, "claims")}
    try:
        return rfc8785.dumps(fields).decode()
    except (rfc8785.CanonicalizationError, RecursionError) as error:
        raise ValueError(str(error)) from None


def description_digest(content: str) -> str:
    """Return the SHA-256 of a content, in hexadecimal digits."""
    return hashlib.sha256(content.encode()).hexdigest()


def as_approved(skill: Skill, content: str, approved: str) -> Skill | None:
    """Return a skill with the texts that were approved, if nothing but texts has changed since."""
    before, now = msgspec.json.decode(approved), msgspec.json.decode(content)
    if _without_texts(before) != _without_texts(now):
        return None
    texts: dict[str, Any] = {name: before[name] for name in (*_TEXTS, *_SCHEMAS)}
    texts |= {name: tuple(texts[name]) for name in ("tags", "examples")}
    try:
        inputs = schema_inputs(before["input_schema"], adds_defaults=False)
        return dataclasses.replace(skill, **texts, inputs=inputs)
    except DeclarationError:  # an earlier release has approved it
        return None


def _without_texts(content: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _schema_without_texts(value) for name, value in content.items() if name not in _TEXTS
    }


def _schema_without_texts(node: Any) -> Any:
    if isinstance(node, dict):
        return {
            key: _schema_without_texts(value)
            for key, value in node.items()
            if not (key in _TEXTS_OF_SCHEMAS and isinstance(value, str))
        }
    return list(map(_schema_without_texts, node)) if isinstance(node, list) else node


def difference(before: str, now: str) -> str:
    """Return what has changed between two contents, line by line, or all of one if the other is
    empty. Characters that cannot be seen are escaped.
    """
    old, new = _lines(before), _lines(now)
    if not (old and new):
        return "\n".join(new or old)
    return "\n".join(list(difflib.unified_diff(old, new, n=2, lineterm=""))[2:])


def _lines(content: str) -> list[str]:
    lines: list[str] = []
    for name, value in msgspec.json.decode(content or _NOTHING).items():
        if value in ("", [], {}, None):
            continue
        text = value if isinstance(value, str) else _json(value)
        lines += [f"{name}:", *(f"  {_visible(line)}" for line in text.split("\n"))]
    return lines


def _json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def _visible(line: str) -> str:
    if line.isprintable():
        return line
    return "".join(
        char if char.isprintable() else f"\\u{ord(char):04x}" for char in line.replace("\t", "    ")
    )
