"""HTTP requests of built-in skills and of skills that are APIs, with errors that callers see."""

from __future__ import annotations

import re
from itertools import count
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
import msgspec

from component.http.gate import (
    Headers,
    HttpError,
    HttpFailed,
    HttpGate,
    HttpRequest,
    HttpResponse,
    HttpTimeout,
)
from component.skills.errors import SkillError, SkillUnavailable
from xep.binding.json_bounds import decoded_json

_SHOWN: Final = 300
_FIRST_WAIT_S: Final = 0.5
_LONGEST_WAIT_S: Final = 10.0
_TEMPORARY: Final = frozenset({429, 502, 503, 504})
_NOT_BEGUN: Final = frozenset({429})
_REDACTED: Final = b"[credential]"
_SHORTEST_SECRET: Final = 6
_SECONDS: Final = re.compile(r"[0-9]{1,6}")


async def request(
    gate: HttpGate, wanted: HttpRequest, *, repeatable: bool, retries: int = 0, hidden: Headers = ()
) -> HttpResponse:
    """Send a request to a service that an admin has configured, and return its response if the
    status is 2xx. A `repeatable` one is sent again, at most `retries` times, when the service fails
    or asks to wait; any other only when it asks to wait, because it was not carried out then
    (RFC 6585 §4). Values of `hidden` headers are replaced in the response.

    Raises SkillUnavailable when the service cannot be reached or fails, and SkillError when it
    refuses the request.
    """
    wait = _FIRST_WAIT_S
    for attempt in count():
        last = attempt >= retries
        try:
            response = redacted(await gate.send(wanted), hidden)
        except (HttpFailed, HttpTimeout) as error:
            if last or not repeatable:
                begun = error.begun if isinstance(error, HttpFailed) else True
                raise SkillUnavailable(str(error), begun=begun) from error
            response = None
        except HttpError as error:
            raise SkillError(str(error)) from error
        again = _TEMPORARY if repeatable else _NOT_BEGUN
        if response is not None and (last or response.status not in again):
            return _successful(response, wanted, repeatable=repeatable)
        await anyio.sleep(_retry_after(response, wait))
        wait *= 2
    raise AssertionError("the loop ends by return or by an error")


def _successful(response: HttpResponse, wanted: HttpRequest, *, repeatable: bool) -> HttpResponse:
    server = urlsplit(wanted.url).hostname
    if 200 <= response.status < 300:
        return response
    if response.status in (401, 403):
        raise SkillError(
            f"{server} does not permit this, or not with the credentials that are configured for it"
            f" (status {response.status}){_reason_in(response)}."
        )
    if response.status == 429:
        raise SkillUnavailable(
            f"{server} refuses further requests for now (status 429).", begun=False
        )
    if response.status >= 500:
        reason = f"{server} has failed (status {response.status})."
        raise SkillUnavailable(reason, begun=not repeatable)
    raise SkillError(f"{server} answered with status {response.status}{_reason_in(response)}.")


def _retry_after(response: HttpResponse | None, usual: float) -> float:
    """Return the seconds to wait (RFC 9110 §10.2.3, as a number)."""
    told = "" if response is None else response.header("retry-after")
    return min(float(told), _LONGEST_WAIT_S) if _SECONDS.fullmatch(told) else usual


def response_json(response: HttpResponse) -> Any:
    """Return the JSON of a response. Raises SkillError if it is not JSON, or too large."""
    try:
        return decoded_json(response.body)
    except ValueError as error:
        server = urlsplit(response.url).hostname
        raise SkillError(
            f"The answer of {server} is not JSON that can be read: {error}."
        ) from error


def in_one_line(text: str, longest: int = _SHOWN) -> str:
    """Return a text of somebody else in one line of at most so many characters."""
    line = " ".join(text[: longest * 4].split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def _reason_in(response: HttpResponse) -> str:
    media_type = response.header("content-type")
    if not ("json" in media_type or media_type.startswith("text/plain")):
        return ""
    text = in_one_line(response.body[: _SHOWN * 4].decode(errors="replace"))
    return f": {text}" if text else ""


def redacted(found: HttpResponse, secret: Headers) -> HttpResponse:
    """Return a response without the values of secret headers, which some servers repeat."""
    headers, body = found.headers, found.body
    # `Bearer abc`, and `abc` alone.
    values = {part for _, value in secret for part in (value, *value.split())}
    for value in sorted(values, key=len, reverse=True):
        if len(value) < _SHORTEST_SECRET:
            continue
        body = body.replace(value.encode(), _REDACTED)
        headers = tuple((name, text.replace(value, _REDACTED.decode())) for name, text in headers)
    return msgspec.structs.replace(found, headers=headers, body=body)
