"""The requests of urn:fluux:agent:0: the skills query, and those about tasks: execute, task, tasks,
events, cancel, answer, and the decisions of confirmations.
"""

from collections.abc import Awaitable, Callable
from decimal import Decimal
from typing import Final

import msgspec

from component.caches import LRUCache
from component.kernel.paging import page
from component.link.router.table import IQRoute, ReplyPayload, Request
from component.skills.errors import SearchError
from component.skills.registry import View
from component.skills.skill import Skill
from component.tasks.request import request_from
from component.tasks.service import TaskService
from xep import fluux_agent
from xep.binding import encode
from xep.fluux_agent import confirm, errors, execute, task
from xep.fluux_agent import skills as fluux
from xep.fluux_agent.confirm import Decision
from xep.fluux_agent.execute import Execute
from xep.fluux_agent.identifiers import check_identifier
from xep.fluux_agent.task import Cancel, Events, InputAnswer, Task
from xep.fluux_agent.task import Tasks as TaskList
from xep.jid import JID
from xep.result_sets import PAGE_ROOM, ResultSet, page_answer

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
        return self._answer(view, (self._complete(skill)[0],), page_answer((name,), 0, 1))

    def _page(self, view: View, query: fluux.SkillsQuery) -> fluux.SkillsQuery:
        try:
            names = view.names(query.search or "")
        except SearchError as error:
            raise errors.malformed(str(error)) from error
        describe = self._complete if query.schemas else self._describe

        def entry(name: str) -> tuple[fluux.SkillDescription | None, int]:
            skill = view.get(name)
            # One of a catalogue may turn out to be unusable.
            return (None, 0) if skill is None else describe(skill)

        chosen, which = page(names, query.page, entry, self._room, always_paged=True)
        return self._answer(view, tuple(filter(None, chosen)), which)

    def _answer(
        self, view: View, skills: tuple[fluux.SkillDescription, ...], which: ResultSet
    ) -> fluux.SkillsQuery:
        return fluux.SkillsQuery(version=view.version, ttl=self._ttl_s, skills=skills, page=which)

    def _complete(self, skill: Skill) -> tuple[fluux.SkillDescription, int]:
        """Return the description of a skill with its schemas, and its size in bytes."""
        description, size = self._describe(skill)
        schemas = _schemas(skill)
        size += sum(len(encode(each, fluux.NAMESPACE).encode()) for each in schemas)
        return msgspec.structs.replace(description, schemas=schemas), size

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


class ExecuteHandler:
    """Passes execute requests to the durable work, which admits all requests."""

    def __init__(self, tasks: TaskService) -> None:
        self._tasks = tasks

    def routes(self) -> tuple[IQRoute, ...]:
        """Return the routes of this handler."""
        return (IQRoute("set", Execute, self.execute, (fluux_agent.NAMESPACE, execute.NAMESPACE)),)

    def execute(self, request: Request[Execute]) -> ReplyPayload | Awaitable[ReplyPayload]:
        """Run a skill: at once if it never blocks, else in its own task.

        Raises the StanzaErrors of the specification's error table.
        """
        stanza = request.stanza
        answer_inline = self._tasks.answer_inline
        known = answer_inline(
            request.payload, request.sender, request.principal, request.to, stanza
        )
        if known is not None:
            return known
        return self._tasks.execute(
            request_from(
                request.payload,
                requester=request.sender,
                principal=request.principal,
                target=request.to,
                stanza_id=stanza.id or "",
                lang=stanza.lang,
            )
        )


class TasksHandler:
    """Answers a principal's requests about its tasks at the address that it uses.

    The owner of a task is not checked here: a task of another principal is handled in the same way,
    and answered like one that never existed (TSK-010).
    """

    def __init__(self, tasks: TaskService) -> None:
        self._tasks = tasks

    def routes(self) -> tuple[IQRoute, ...]:
        """Return the routes of this handler."""
        features = (task.NAMESPACE,)
        return (
            IQRoute("get", Task, self.task, features),
            IQRoute("get", TaskList, self.tasks, features),
            IQRoute("get", Events, self.events, features),
            IQRoute("set", Cancel, self.cancel, features),
            IQRoute("set", InputAnswer, self.answer, features),
            IQRoute("set", Decision, self.decide, (confirm.NAMESPACE,)),
        )

    def task(self, request: Request[Task]) -> Awaitable[Task]:
        """Return the whole task; only the `id` of the request matters."""
        check_identifier("task", "id", request.payload.id)
        return self._tasks.get(request.principal, request.to, request.payload.id)

    def tasks(self, request: Request[TaskList]) -> Awaitable[TaskList]:
        """Return one page of the principal's tasks."""
        if request.payload.context is not None:
            check_identifier("tasks", "context", request.payload.context)
        return self._tasks.list(request.principal, request.to, request.payload)

    def events(self, request: Request[Events]) -> Awaitable[Events]:
        """Return one page of the events of a task."""
        check_identifier("events", "id", request.payload.id)
        _revision("events", "since", request.payload.since)
        return self._tasks.events(request.principal, request.to, request.payload)

    def cancel(self, request: Request[Cancel]) -> Awaitable[Task]:
        """Cancel a task, and return the task after that (CAN-003)."""
        cancel = request.payload
        if (cancel.id is None) == (cancel.request is None):
            raise errors.malformed("cancel: expected either id or request")
        if cancel.id is not None:
            check_identifier("cancel", "id", cancel.id)
        if cancel.request is not None:
            check_identifier("cancel", "request", cancel.request)
        return self._tasks.cancel(request.principal, request.to, cancel)

    def answer(self, request: Request[InputAnswer]) -> Awaitable[Task]:
        """Answer a question of a task, and return the task after that (INP-008)."""
        answer = request.payload
        check_identifier("answer", "task", answer.task)
        check_identifier("answer", "input", answer.input)
        _revision("answer", "revision", answer.revision)
        if (answer.params is None) == (answer.form is None):
            raise errors.malformed("answer: expected either <params/> or a form")
        return self._tasks.answer(request.principal, request.to, answer)

    async def decide(self, request: Request[Decision]) -> None:
        """Answer a decision that counts, and its repetition, with an empty result (CNF-021)."""
        if request.payload.standing and request.payload.value == "deny":
            raise errors.malformed("decision: only an approval can be a standing one")
        await self._tasks.decide(
            request.principal, request.to.bare, request.payload, request.stanza.lang
        )


def _revision(element: str, attribute: str, number: int) -> None:
    """Raise StanzaError unless the number can be a revision."""
    if number < 0:
        raise errors.malformed(f"{element}: {attribute} cannot be negative")
