"""Where a piece of text comes from, as far as trust in it goes."""

from typing import Literal, TypeAlias

Taint: TypeAlias = Literal["person", "peer", "web", "file"]
"""Who could have written it: the person talked with, another agent, anybody on the web, or whoever
wrote a file. What comes from our own computation has none."""
