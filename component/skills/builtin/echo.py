"""The simplest skill: it returns its parameter."""

from __future__ import annotations

from typing import Annotated

import msgspec

from component.skills.declare import skill


@skill(
    read_only=True,
    idempotent=True,
    open_world=False,
    tags=("test",),
    examples=("hello",),
    typical_duration=0.0,
    cost_usd=0.0,
    inline=True,
)
def echo(text: Annotated[str, msgspec.Meta(description="What to say back.")]) -> str:
    """Return the text that was given, unchanged."""
    return text
