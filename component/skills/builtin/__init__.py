"""The skills that every installation has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from component.skills.builtin.clock import current_time
from component.skills.builtin.echo import echo

if TYPE_CHECKING:
    from component.skills.declare import AnySkill

__all__ = ["builtin_skills", "current_time", "echo"]


def builtin_skills() -> tuple[AnySkill, ...]:
    """Return the built-in skills, for the service to offer."""
    return (echo, current_time)
