"""Requests of code in a sandbox, through the gate, with credentials that it never sees."""

from __future__ import annotations

from typing import TYPE_CHECKING

from component.http import gate as http_gate
from component.http.gate import Headers, HttpError, HttpGate, HttpRefused
from component.rest.requests import redacted
from component.skills.errors import CapabilityMissing
from component.skills.host import HostError, HttpRequest, HttpResponse

if TYPE_CHECKING:
    from component.skill_directories.host_functions import Credentials


async def send_request(
    skill: str, gate: HttpGate, credentials: Credentials | None, request: HttpRequest
) -> HttpResponse:
    """Make a request of a skill through a gate. Raises HostError and CapabilityMissing.

    A credential goes only to the server of the request, not to one that it redirects to. If the
    response repeats it, as servers for tests do, it is replaced there.
    """
    secret: Headers = ()
    if request.credential:
        if credentials is None:
            raise CapabilityMissing(skill, f"credential:{request.credential}")
        secret = credentials.headers(request.credential, request.url)
    try:
        found = await gate.send(
            http_gate.HttpRequest(
                url=request.url,
                method=request.method,
                headers=request.headers,
                body=request.body,
                secret_headers=secret,
            )
        )
    except HttpRefused as error:
        raise CapabilityMissing(skill, error.capability) from error
    except HttpError as error:
        raise HostError(str(error)) from error
    clean = redacted(found, secret)
    return HttpResponse(clean.status, clean.headers, clean.body)
