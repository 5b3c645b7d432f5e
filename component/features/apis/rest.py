"""The source of skills that are HTTP requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import anyio
import structlog
from anyio.abc import TaskStatus

from component.features.apis.invoker import invoker, whole_timeout
from component.http.targets import network_capability
from component.rest.answers import Answers
from component.rest.template import RequestTemplate, effects_of
from component.skills.errors import DeclarationError
from component.skills.schema_inputs import schema_inputs
from component.skills.skill import Skill
from component.skills.sources import Offer
from component.skills.spec import Schema

if TYPE_CHECKING:
    from component.settings.rest import RestSkill

_log = structlog.get_logger("component.features.apis")


class RestSource:
    """The skills of the sections `[rest.NAME]`.

    Args:
        entries: the sections by the names of the skills.
    """

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
    answers = Answers(entry.select, entry.output)
    annotations = effects_of(entry.method, entry.annotations)
    repeatable = annotations.repeatable
    schema = _schema(entry)
    return Skill(
        name=name,
        title=entry.title,
        description=entry.description,
        tags=entry.tags,
        annotations=annotations,
        input_schema=schema,
        inputs=schema_inputs(schema),
        kind="async",
        wants_context=True,
        invoke=invoker(template.origin, template.request, answers, entry, repeatable=repeatable),
        timeout=whole_timeout(entry),
        capabilities=(network_capability(template.origin),),
        taint=entry.taint,
        source=f"rest.{name}",
        versioned_by_content=True,
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
