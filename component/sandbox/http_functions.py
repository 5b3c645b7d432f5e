"""Requests of code in a sandbox, through the gate, with credentials that it never sees."""

from __future__ import annotations

from typing import Protocol

import msgspec

from component.sandbox import http_gate
from component.sandbox.http_gate import Headers, HttpError, HttpGate, HttpRefused
from component.skills.errors import CapabilityMissing
from component.skills.host import HostError, HttpRequest, HttpResponse

_REDACTED = b"[credential]"
_SHORTEST_SECRET = 6


class CredentialPort(Protocol):
    """The credentials of one skill."""

    def headers(self, name: str, url: str) -> Headers:
        """Return the headers that a credential adds to a request to a URL.

        Raises CapabilityMissing for one that is not declared, and HostError for one without a
        value, or that is not for the server.
        """


class GatedHttp:
    """Implements `component.skills.host.Http`.

    A credential goes only to the server of the request, not to one that it redirects to. If the
    response repeats it, as servers for tests do, it is replaced there.

    Args:
        skill: the name of the skill.
        gate: permits what the skill declares.
        credentials: those of the skill; None if it has none.
    """

    def __init__(
        self, skill: str, gate: HttpGate, credentials: CredentialPort | None = None
    ) -> None:
        self._skill = skill
        self._gate = gate
        self._credentials = credentials

    async def __call__(self, request: HttpRequest) -> HttpResponse:
        """Make a request. Raises HostError and CapabilityMissing."""
        secret: Headers = ()
        if request.credential:
            if self._credentials is None:
                raise CapabilityMissing(self._skill, f"credential:{request.credential}")
            secret = self._credentials.headers(request.credential, request.url)
        try:
            found = await self._gate.send(
                http_gate.HttpRequest(
                    url=request.url,
                    method=request.method,
                    headers=request.headers,
                    body=request.body,
                    secret_headers=secret,
                )
            )
        except HttpRefused as error:
            raise CapabilityMissing(self._skill, error.capability) from error
        except HttpError as error:
            raise HostError(str(error)) from error
        clean = redacted(found, secret)
        return HttpResponse(clean.status, clean.headers, clean.body)


def redacted(found: http_gate.HttpResponse, secret: Headers) -> http_gate.HttpResponse:
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
