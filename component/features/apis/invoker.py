"""Calls an API: sends the request of a call, and converts the response."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from component.http.gate import HttpGate, HttpLimits, HttpRequest, access_to
from component.rest.answers import Answers
from component.rest.requests import request
from component.skills.context import Context
from component.skills.outputs import SkillResult
from component.skills.skill import Invoke

if TYPE_CHECKING:
    from component.features.apis.settings import OpenApi
    from component.settings.rest import RestSkill

_GRACE_S = 30.0
"""Seconds for the waits between the repetitions of a request."""


def invoker(
    base: str,
    build: Callable[[Mapping[str, Any]], HttpRequest],
    answers: Answers,
    settings: RestSkill | OpenApi,
    *,
    repeatable: bool,
) -> Invoke:
    """Return what calls a skill whose requests go to the server of `base`, and only there."""
    gate = HttpGate(
        (access_to(base),),
        HttpLimits(timeout_s=settings.timeout_s, response_bytes=settings.max_response_bytes),
    )

    async def invoke(arguments: Any, _context: Context | None) -> SkillResult:
        wanted = build(arguments)
        response = await request(gate, wanted, repeatable=repeatable, retries=settings.retries)
        return await answers.result(response)

    return invoke


def whole_timeout(settings: RestSkill | OpenApi) -> float:
    """Return the seconds that a call may take with all repetitions."""
    return settings.timeout_s * (1 + settings.retries) + _GRACE_S
