"""Recognizes the refusals of a server over HTTP that does not know a session any more, as after a
restart (MCP 2025-11-25, Transports, Session Management).

The protocol says 404. Servers also answer 400, and others, with the JSON-RPC error or the text of
their library.
"""

from __future__ import annotations

import re
from typing import Final, Literal

import msgspec
from mcp_types import (
    CONNECTION_CLOSED,
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    PARSE_ERROR,
    REQUEST_TIMEOUT,
    UNSUPPORTED_PROTOCOL_VERSION,
)

SESSION_LOST: Final = -31_404
"""The code of the error that takes the place of such a refusal. No protocol uses it."""
ENDED: Final = "it has ended the session"
"""What is said of a server that has lost a session."""

_SESSION: Final = re.compile(
    r"\b(no|not|invalid|missing|unknown|unrecogni[sz]ed|expired|stale)\b.{0,20}\bsession"
    r"|session.{0,40}\b(not|no longer|unknown|invalid|expired|missing|required|terminated|closed"
    r"|ended|lost|gone)\b"
    r"|\bnot (been )?initiali[sz]ed",
    re.IGNORECASE | re.DOTALL,
)
_OF_THE_REQUEST: Final = frozenset(
    {
        METHOD_NOT_FOUND,
        INVALID_PARAMS,
        PARSE_ERROR,
        HEADER_MISMATCH,
        MISSING_REQUIRED_CLIENT_CAPABILITY,
        UNSUPPORTED_PROTOCOL_VERSION,
    }
)
"""Codes of errors about one request, which another session would not change."""
_GONE: Final = (404, 410)
_HANDSHAKES: Final = ("initialize", "server/discover")
_LONGEST_READ: Final = 10_000

Loss = Literal["refused", "perhaps"]
"""How a request met the loss of its session: it was refused, so nothing has begun, or the server
does not say so."""


class Sent(msgspec.Struct, frozen=True):
    """A message of JSON-RPC that was sent, as far as it is needed here."""

    method: str = ""
    id: str | int | None = None


class _Error(msgspec.Struct, frozen=True):
    code: int
    message: str = ""


class _Answer(msgspec.Struct, frozen=True):
    error: _Error
    id: str | int | None = None
    jsonrpc: str = "2.0"


_sent: Final = msgspec.json.Decoder(Sent)
_answer: Final = msgspec.json.Decoder(_Answer)


def sent_in(content: bytes) -> Sent:
    """Return the message in the body of a request; an empty one if there is none."""
    try:
        return _sent.decode(content)
    except (msgspec.DecodeError, RecursionError):
        return Sent()


def error_in(number: str | int | None, code: int, text: str) -> bytes:
    """Return the body of a response with an error of JSON-RPC."""
    return msgspec.json.encode(_Answer(_Error(code, text), number))


def is_error(body: bytes) -> bool:
    """Return whether the body of a response has an error of JSON-RPC."""
    return _error_in(body) is not None


def _error_in(body: bytes) -> _Error | None:
    try:
        return _answer.decode(body).error
    except (msgspec.DecodeError, RecursionError):
        return None


def loss_in(status: int, body: bytes, sent: Sent, *, in_session: bool) -> Loss | None:
    """Return whether the response to a message, or to a request for events, says that the session
    is lost.

    Args:
        status: the HTTP status of the response, 400 or above.
        body: its body.
        sent: the message; an empty one for a request for events.
        in_session: whether the request named a session.
    """
    if status >= 500 or sent.method in _HANDSHAKES or not (in_session or sent.method):
        return None
    error = _error_in(body)
    text = error.message if error else body[:_LONGEST_READ].decode(errors="replace")
    if in_session and status in _GONE:
        return None if error and error.code == METHOD_NOT_FOUND else "refused"
    if error and error.code in _OF_THE_REQUEST:
        return None
    if _speaks_of_session(text):
        return "refused"
    if not in_session or status != 400 or error is None:
        return None
    if error.code in (INVALID_REQUEST, REQUEST_TIMEOUT):  # the latter is "not found" in the SDKs
        return "refused"
    return None if error.code == INTERNAL_ERROR else "perhaps"


def is_loss(code: int, text: str) -> bool:
    """Return whether an error of JSON-RPC in a response with success says that the session is
    lost.
    """
    return code == SESSION_LOST or (
        code in (INVALID_REQUEST, REQUEST_TIMEOUT, CONNECTION_CLOSED) and _speaks_of_session(text)
    )


def _speaks_of_session(text: str) -> bool:
    return _SESSION.search(text) is not None
