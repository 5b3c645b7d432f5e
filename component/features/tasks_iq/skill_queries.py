"""Skill discovery (urn:fluux:agent:0#skills): the skills, and how each is used."""

from collections.abc import Callable
from decimal import Decimal
from typing import Final

import msgspec
from cachebox import LRUCache

from component.kernel.paging import page
from component.router.table import IQRoute, Request
from component.skills.errors import SearchError
from component.skills.registry import View
from component.skills.skill import Skill
from xep.binding import encode
from xep.fluux_agent import errors
from xep.fluux_agent import skills as fluux
from xep.jid import JID
from xep.result_sets import PAGE_ROOM, ResultSet, page_answer
from xep.stanza_error import StanzaError

_DESCRIPTIONS_KEPT: Final = 4096


class SkillsHandler:
    """Answers the skills query.

    Args:
        view: the skills that a principal sees.
        ttl_s: seconds for which an answer may be kept.
        room: the bytes that the entries of a page may take.
    """

    def __init__(
        self, view: Callable[[JID], View], ttl_s: int = 3600, room: int = PAGE_ROOM
    ) -> None:
        self._room = room
        self._view = view
        self._ttl_s = ttl_s
        self._described: LRUCache[str, tuple[Skill, fluux.SkillDescription, int]] = LRUCache(
            _DESCRIPTIONS_KEPT
        )

    def routes(self) -> tuple[IQRoute, ...]:
        """Return the routes of this handler."""
        return (IQRoute("get", fluux.SkillsQuery, self.skills, (fluux.NAMESPACE,)),)

    def skills(self, request: Request[fluux.SkillsQuery]) -> fluux.SkillsQuery:
        """List skills a page at a time, search them by words, or describe one completely."""
        query = request.payload
        view = self._view(request.principal)
        if query.version is not None and query.version == view.version:
            return fluux.SkillsQuery(version=view.version, ttl=self._ttl_s, unchanged=True)
        if query.skill is not None:
            return self._one(view, query.skill)
        return self._page(view, query)

    def _one(self, view: View, name: str) -> fluux.SkillsQuery:
        skill = view.get(name)
        if skill is None:
            raise errors.unknown_skill()
        description = msgspec.structs.replace(self._describe(skill)[0], schemas=_schemas(skill))
        return self._answer(view, (description,), page_answer((name,), 0, 1))

    def _page(self, view: View, query: fluux.SkillsQuery) -> fluux.SkillsQuery:
        try:
            names = view.names(query.search or "")
        except SearchError as error:
            raise errors.malformed(str(error)) from error
        chosen, which = page(
            names,
            query.page,
            lambda name: self._describe(_known(view, name)),
            self._room,
            always_paged=True,
        )
        return self._answer(view, chosen, which)

    def _answer(
        self, view: View, skills: tuple[fluux.SkillDescription, ...], which: ResultSet
    ) -> fluux.SkillsQuery:
        return fluux.SkillsQuery(version=view.version, ttl=self._ttl_s, skills=skills, page=which)

    def _describe(self, skill: Skill) -> tuple[fluux.SkillDescription, int]:
        """Return the description of a skill, and its size in bytes; cached with the skill that it
        was made of, since a source may offer another one of this name.
        """
        found = self._described.get(skill.name)
        if found is None or found[0] is not skill:
            description = describe(skill)
            found = skill, description, len(encode(description, fluux.NAMESPACE).encode())
            self._described[skill.name] = found
        return found[1:]


def _known(view: View, name: str) -> Skill:
    skill = view.get(name)
    if skill is None:  # the view listed the name itself
        raise StanzaError("internal-server-error")
    return skill


def describe(skill: Skill) -> fluux.SkillDescription:
    """Return the description of a skill, without schemas."""
    marks = skill.annotations
    typical = None
    if skill.typical_duration is not None or skill.cost_usd is not None:
        typical = fluux.Typical(
            duration_ms=None
            if skill.typical_duration is None
            else round(skill.typical_duration * 1000),
            cost_usd=None if skill.cost_usd is None else Decimal(str(skill.cost_usd)).normalize(),
        )
    return fluux.SkillDescription(
        name=skill.name,
        version=skill.version,
        titles=(fluux.Title(text=skill.title, lang="en"),),
        descriptions=_descriptions(skill.description),
        tags=skill.tags,
        examples=tuple(fluux.Example(text=text, lang="en") for text in skill.examples),
        media=(
            *(fluux.Media(direction="input", type=type_) for type_ in skill.input_media_types),
            *(fluux.Media(direction="output", type=type_) for type_ in skill.output_media_types),
        ),
        params=tuple(
            fluux.ParamDescription(
                name=param.name,
                type=param.type,
                required=param.required,
                descriptions=_descriptions(param.description),
            )
            for param in skill.inputs.params
        ),
        annotations=fluux.Annotations(
            read_only=marks.read_only,
            destructive=marks.destructive,
            idempotent=marks.idempotent,
            open_world=marks.open_world,
        ),
        typical=typical,
    )


def _descriptions(text: str | None) -> tuple[fluux.Description, ...]:
    return (fluux.Description(text=text, lang="en"),) if text else ()


def _schemas(skill: Skill) -> tuple[fluux.Schema, ...]:
    given = [fluux.Schema(direction="input", json=_json(skill.input_schema))]
    if skill.output_schema is not None:
        given.append(fluux.Schema(direction="output", json=_json(skill.output_schema)))
    return tuple(given)


def _json(schema: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(schema))
