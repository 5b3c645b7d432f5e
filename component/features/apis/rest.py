"""The source of skills that are HTTP requests, and how skills of APIs are called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import anyio
import structlog
from anyio.abc import TaskStatus

from component.http.gate import HttpGate, HttpLimits, HttpRequest, access_to
from component.http.targets import network_capability
from component.rest.answers import ResponseConverter
from component.rest.requests import request
from component.rest.template import RequestTemplate, effects_of
from component.skills.context import Context
from component.skills.errors import DeclarationError
from component.skills.inputs import schema_inputs
from component.skills.outputs import SkillResult
from component.skills.skill import Skill
from component.skills.sources import Offer
from component.skills.spec import Schema

if TYPE_CHECKING:
    from component.config.rest import RestSkill
    from component.features.apis.settings import OpenApi

_log = structlog.get_logger("component.features.apis")

_GRACE_S = 30.0
"""Seconds for the waits between the repetitions of a request."""


def api_skill(
    settings: RestSkill | OpenApi,
    base: str,
    build: Callable[[Mapping[str, Any]], HttpRequest],
    answers: ResponseConverter,
    **fields: Any,
) -> Skill:
    """Return a skill whose requests go to the server of `base`, and only there; `fields` are the
    others of `Skill`. Raises DeclarationError.
    """
    repeatable = fields["annotations"].repeatable
    gate = HttpGate(
        (access_to(base),),
        HttpLimits(timeout_s=settings.timeout_s, response_bytes=settings.max_response_bytes),
    )

    async def invoke(arguments: Any, _context: Context | None) -> SkillResult:
        wanted = build(arguments)
        response = await request(gate, wanted, repeatable=repeatable, retries=settings.retries)
        return await answers.result(response)

    return Skill(
        kind="async",
        wants_context=True,
        invoke=invoke,
        timeout=settings.timeout_s * (1 + settings.retries) + _GRACE_S,
        capabilities=(network_capability(base),),
        taint=settings.taint,
        versioned_by_content=True,
        **fields,
    )


class RestSource:
    """The skills of the sections `[rest.NAME]`."""

    name = "rest"

    def __init__(self, entries: Mapping[str, RestSkill]) -> None:
        self._entries = entries

    async def run(self, offer: Offer, *, task_status: TaskStatus[None]) -> None:
        """Offer the skills. One that cannot be declared is logged."""
        skills = []
        for name, entry in self._entries.items():
            try:
                skills.append(rest_skill(name, entry))
            except DeclarationError as error:
                _log.error("a skill cannot be offered", section=f"rest.{name}", reason=str(error))
        offer(skills)
        task_status.started()
        await anyio.sleep_forever()


def rest_skill(name: str, entry: RestSkill) -> Skill:
    """Return the skill of a section. Raises DeclarationError."""
    template = RequestTemplate(entry)
    schema = _schema(entry)
    return api_skill(
        entry,
        template.origin,
        template.request,
        ResponseConverter(entry.select, entry.output),
        name=name,
        title=entry.title,
        description=entry.description,
        tags=entry.tags,
        annotations=effects_of(entry.method, entry.annotations),
        input_schema=schema,
        inputs=schema_inputs(schema),
        source=f"rest.{name}",
    )


def _schema(entry: RestSkill) -> Schema:
    required = [
        name
        for name, schema in entry.parameters.items()
        if "default" not in schema and name not in entry.optional
    ]
    return {
        "type": "object",
        "properties": entry.parameters,
        "required": required,
        "additionalProperties": False,
    }
