"""How a server fails."""

from __future__ import annotations

from typing import Final

from component.skills.errors import printable

_LONGEST: Final = 300


class ServerFailed(Exception):  # noqa: N818 - the name says what happened
    """A server cannot be started, does not answer, or has ended. The text is one sentence."""


def reason_of(error: BaseException) -> str:
    """Return what an exception says, in one line; of a group, what the first one says."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    text = " ".join(str(error).split()) or type(error).__name__
    return printable(text, _LONGEST)
