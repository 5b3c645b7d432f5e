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


class GatedHttp:
    """Implements `component.skills.host.Http`.

    A credential goes only to the server of the request, not to one that it redirects to. If the
    response repeats it, as servers for tests do, it is replaced there.

    Args:
        skill: the name of the skill.
        gate: permits what the skill declares.
        credentials: those of the skill; None if it has none.
    """

    def __init__(self, skill: str, gate: HttpGate, credentials: Credentials | None = None) -> None:
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
