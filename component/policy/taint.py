"""Where a piece of text comes from, as far as trust in it goes."""

from collections.abc import Iterable
from typing import Final, Literal, TypeAlias, get_args

Taint: TypeAlias = Literal["person", "peer", "web", "file"]
"""Who could have written it: the person talked with, another agent, anybody on the web, or whoever
wrote a file. What comes from our own computation has none."""

TAINTS: Final[tuple[Taint, ...]] = get_args(Taint)
_WORST: Final[tuple[Taint, ...]] = ("web", "peer", "file", "person")


def worst(taints: Iterable[Taint | None]) -> Taint | None:
    """The taint of what holds texts of all these; None if none of them has one."""
    found = set(taints)
    return next((taint for taint in _WORST if taint in found), None)
