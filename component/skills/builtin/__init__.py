"""The skills of every installation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from component.skills.builtin.clock import current_time
from component.skills.builtin.echo import echo

if TYPE_CHECKING:
    from component.skills.skill import Skill

__all__ = ["builtin_skills", "current_time", "echo"]


def builtin_skills() -> tuple[Skill, ...]:
    """Return the built-in skills, for the service to offer."""
    return (echo, current_time)
