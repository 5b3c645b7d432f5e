"""This instance, and the others that serve the same addresses."""

from typing import Final

import msgspec

from component import system

FIRST: Final = 1 << 30
"""The first number of an instance; smaller ones are those of connections."""
TAG_LENGTH: Final = 9


class Instances(msgspec.Struct):
    """The instances that run. A tag is the number of an instance as 8 hex digits, and a point.

    Attributes:
        number: that of this instance.
        others: the tags of the others.
    """

    number: int
    others: frozenset[str] = frozenset()

    @property
    def tag(self) -> str:
        """The tag of this instance."""
        return tag_of(self.number)


def new_instance() -> Instances:
    """Return this instance with a new number, which no other one has."""
    return Instances(FIRST + int(system.token_hex(4), 16) % FIRST)


def tag_of(number: int) -> str:
    """Return the tag of an instance."""
    return f"{number:08x}."
