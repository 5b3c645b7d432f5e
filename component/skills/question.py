"""The question by which a person confirms a skill: a text for people, with its parameters.

In `May I remind you of {goal} {when}[ ({zone} time)]?` each name in braces stands for the value of
a parameter. A part in brackets is left out unless every parameter in it differs from its default.
"""

import re
from functools import lru_cache
from typing import Final

import msgspec

_LONGEST: Final = 300
_PIECE: Final = r"\{([^{}\[\]]+)\}|([^{}\[\]]+)"
_PART: Final = r"\[([^\[\]]*)\]|([^\[\]]+)"
_CACHED: Final = 1024


class Part(msgspec.Struct, frozen=True):
    """A part of a question: texts and names of parameters in turn, beginning with a text."""

    pieces: tuple[str, ...]
    optional: bool

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its parameters."""
        return self.pieces[1::2]


@lru_cache(_CACHED)
def read_question(text: str) -> tuple[Part, ...]:
    """Return the parts of a question. Raises ValueError with the reason, an unfinished sentence."""
    if len(text) > _LONGEST:
        raise ValueError(f"has {len(text)} characters, and the maximum is {_LONGEST}")
    if not text.isprintable():
        raise ValueError("must be one line without control characters")
    parts = [(found[1], found[2]) for found in re.finditer(_PART, text)]
    if sum(len(one) + 2 if one is not None else len(other) for one, other in parts) != len(text):
        raise ValueError("has a bracket that is not closed, not opened or within others")
    return tuple(
        Part(_pieces(other if one is None else one), optional=one is not None)
        for one, other in parts
    )


def _pieces(text: str) -> tuple[str, ...]:
    found: list[str] = [""]
    length = 0
    for token in re.finditer(_PIECE, text):
        length += len(token[0])
        if token[1] is None:
            found[-1] += token[2]
        else:
            found += (token[1].strip(), "")
    if length != len(text):
        raise ValueError("has a brace that is not closed, not opened or around no name")
    return tuple(found)


def names_in(text: str) -> tuple[str, ...]:
    """Return the names of the parameters in a question. Raises ValueError as `read_question`."""
    return tuple(name for part in read_question(text) for name in part.names)
