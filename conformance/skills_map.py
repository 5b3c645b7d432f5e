"""The skills under test: the fixtures named `conformance.*`, or the target's own equivalents."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

ROLES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "echo": ("text",),
        "add": ("a", "b"),
        "types": ("colour", "flag", "ratio", "words", "note", "point"),
        "sleep": ("seconds",),
        "count": ("key",),
        "progress": ("steps",),
        "fail": ("message",),
        "erase": ("target",),
        "hidden": (),
        "ask": ("question", "expires"),
        "say": ("question",),
        "steps": ("steps", "seconds"),
        "big": ("bytes",),
        "delegate": ("peer", "text"),
        "spend": ("tokens",),
        "remember": ("key", "text"),
        "recall": ("key",),
        "reveal": ("shown",),
        "shy": (),
    }
)
"""The roles that checks call, each with its parameters (docs/how-to/conformance.md)."""


@dataclass(frozen=True)
class Skill:
    """The skill for one role.

    Attributes:
        name: the skill's own name at the target.
        params: the target's names of the role's parameters, where they differ.
        fixed: additional parameters that it needs, as text.
    """

    name: str
    params: Mapping[str, str] = field(default_factory=dict)
    fixed: Mapping[str, str] = field(default_factory=dict)

    def param(self, name: str) -> str:
        """Return the target's name for a parameter of the role."""
        return self.params.get(name, name)


def fixtures() -> dict[str, Skill]:
    """Return the fixtures, for a target that offers them."""
    return {role: Skill(f"conformance.{role}") for role in ROLES}


def read_map(path: Path) -> dict[str, Skill]:
    """Read a mapping file; roles that it does not name use the fixtures.

    Raises:
        ValueError: the file is invalid; the message says where.
        OSError: it cannot be read.
    """
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path}: this is no TOML: {error}") from None
    return fixtures() | {role: _skill(path, role, entry) for role, entry in data.items()}


def _skill(path: Path, role: str, entry: Any) -> Skill:
    if role not in ROLES:
        raise ValueError(f"{path}: [{role}] is no role; the roles are {', '.join(ROLES)}.")
    name = entry.get("skill") if isinstance(entry, dict) else None
    if not isinstance(name, str) or not name:
        raise ValueError(f'{path}: [{role}] needs skill = "its name at the target".')
    params = _texts(path, role, "params", entry)
    for param in params:
        if param not in ROLES[role]:
            known = ", ".join(ROLES[role]) or "none"
            raise ValueError(f"{path}: {role} has no parameter {param}; it has: {known}.")
    unknown = set(entry) - {"skill", "params", "with"}
    if unknown:
        raise ValueError(f"{path}: [{role}] knows skill, params and with, not {min(unknown)}.")
    return Skill(name, params, _texts(path, role, "with", entry))


def _texts(path: Path, role: str, key: str, entry: Mapping[str, Any]) -> dict[str, str]:
    table = entry.get(key, {})
    if not isinstance(table, dict) or not all(isinstance(one, str) for one in table.values()):
        raise ValueError(f"{path}: {key} of [{role}] is a table of texts.")
    return table
