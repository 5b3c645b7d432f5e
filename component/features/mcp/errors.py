"""How a server fails, and its texts for people, models and logs."""

from __future__ import annotations

import re
from typing import Final

from pydantic import ValidationError

from component.skills.errors import printable

_LONGEST: Final = 300
_MEMBER: Final = re.compile(r"[a-z_][A-Za-z0-9_]*")


class ServerFailed(Exception):  # noqa: N818 - the name says what happened
    """A server cannot be started, does not answer, or has ended. The text is one sentence."""


_LINK: Final = re.compile(r"\s*For further information visit https://errors\.pydantic\.dev/\S*")
_OF_THE_SDK: Final = (
    (
        re.compile(r"Failed to parse [\w ]+: [0-9]+ validation errors? for .*", re.DOTALL),
        "it sent an answer that is not a message of JSON-RPC 2.0",
    ),
    (re.compile(r"Failed to parse [\w ]+: (?P<what>.*)", re.DOTALL), "{what}"),
    (
        re.compile(r"Unexpected content type: (?P<what>.*)", re.DOTALL),
        "it answered with the content type {what!a} instead of JSON or events",
    ),
    (
        re.compile(r"SSE stream (ended|failed).*", re.DOTALL),
        "it ended the stream of events without an answer",
    ),
    (
        re.compile(r"server answered a request with 202 Accepted"),
        "it accepted the request and gave no answer",
    ),
)
"""What the SDK says in place of an answer, and how it is said here."""


def reason_of(error: BaseException) -> str:
    """Return what an exception says, in one line; of a group, what the first one says.

    Of what a library says about a message that is not valid, the place that is wrong is left.
    """
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, ValidationError):
        return printable(_wrong_in(error), _LONGEST)
    text = " ".join(plain(str(error)).split()) or type(error).__name__
    return printable(text, _LONGEST)


def plain(text: str) -> str:
    """Return a text of a server or the SDK without the links and the sentences of libraries."""
    for pattern, sentence in _OF_THE_SDK:
        if (found := pattern.fullmatch(text)) is not None:
            return sentence.format(**found.groupdict())
    return _LINK.sub("", text)


def _wrong_in(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    # The names of types, and of alternatives, stand between those of members.
    names = [
        str(one) for one in first["loc"] if isinstance(one, int) or _MEMBER.fullmatch(str(one))
    ]
    place = ".".join(names)
    if not place:
        return "it is not a message of the protocol"
    if first["type"] == "missing":
        return f"it has no {place}"
    return f"its {place} is not what the protocol says"
