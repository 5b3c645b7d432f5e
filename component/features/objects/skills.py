"""The skills by which models, people and other agents store and find objects."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from component.features.objects.objects import Caller, Objects
from component.features.objects.params import (
    DeletedObject,
    NewObject,
    NewSchema,
    ObjectName,
    ObjectQuery,
)
from component.features.objects.stored import Author, ObjectError
from component.memory.sharing import PRIVATE
from component.memory_directory.layout import SessionKey
from component.policy.taint import Taint
from component.skills.context import Context
from component.skills.declare import own_skill
from component.skills.errors import InvalidParam, SkillError
from component.skills.outputs import JSON, Output, SkillResult
from component.skills.skill import Skill
from component.skills.spec import OPTIONAL
from component.store.errors import StorageError
from xep.jid import JID

_SAME: Final[Any] = {
    "idempotent": True,
    "open_world": False,
    "tags": ("objects", OPTIONAL),
    "cost_usd": 0.0,
}
_READS: Final[Any] = {
    **_SAME,
    "read_only": True,
    "capabilities": ("object:read",),
    "taint": "web",
    "output_media_types": (JSON,),
    "typical_duration": 0.03,
}
_WRITES: Final[Any] = {**_SAME, "capabilities": ("object:write",), "typical_duration": 0.02}


class FoundObjects(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A page of objects for programs. `total` is the number on all pages; `cursor` is that for the
    next page, if there is one.
    """

    objects: list[Any]
    total: int
    cursor: str = ""


class StoredVersion(msgspec.Struct, frozen=True):
    """What was stored: the object has this version now."""

    type: str
    id: str
    version: int


def object_skills(objects: Callable[[], Objects]) -> tuple[Skill, ...]:
    """Return the skills about objects. `objects` is called only while one of them runs: skills are
    declared before the database is open.
    """

    @own_skill(
        title="Store an object",
        question="May I store[ {id}] as {type}[, with the tags {tags}][ (change only these members:"
        " {merge})][, if it has version {if_version}][, for {scope}]: {data}?",
        destructive=False,  # the version before is kept, for /objects undo
        output_media_types=(JSON,),
        examples=("Note that the report is due on Friday.",),
        **_WRITES,
    )
    async def object_put(new: NewObject, /, context: Context) -> SkillResult:
        """Store structured data of the person: tasks, events, contacts, notes and so on.

        Use it for lists and records that are queried and changed later. What is only to be
        remembered in words belongs into a memory. With an id that exists, it stores a new version
        of that object. Returns the id and the version.
        """
        with _skill_errors():
            made = await objects().put(_caller(context), new)
        return _json(StoredVersion(made.type, made.id, made.version), ())

    @own_skill(title="Get an object", question="May I read the {type} {id}[ of {scope}]?", **_READS)
    async def object_get(name: ObjectName, /, context: Context) -> SkillResult:
        """Return one object by its type and id, with its version, and who has stored it when."""
        with _skill_errors():
            found = await objects().get(_caller(context), name)
        return _json(found.objects[0], found.taints)

    @own_skill(
        title="Find objects",
        question="May I look for objects[ of the type {type}][ of {scope}]?",
        examples=("open tasks of this week",),
        **_READS,
    )
    async def object_query(query: ObjectQuery, /, context: Context) -> SkillResult:
        """Find objects by their members, words and tags, in an order, a page at a time.

        object_types lists the types there are. Without a filter, words and tags it returns all.
        """
        with _skill_errors():
            found = await objects().query(_caller(context), query)
        page = FoundObjects(objects=list(found.objects), total=found.total, cursor=found.cursor)
        return _json(page, found.taints)

    @own_skill(
        title="Delete an object",
        question="May I delete the {type} {id}[ of {scope}][, if it has version {if_version},] for"
        " good?",
        destructive=True,
        **_WRITES,
    )
    async def object_delete(deleted: DeletedObject, /, context: Context) -> str:
        """Delete an object for good. It cannot be undone."""
        with _skill_errors():
            was_there = await objects().delete(_caller(context), deleted, deleted.if_version)
        name = f"{deleted.type} {deleted.id}"
        return f"Deleted the {name}." if was_there else f"There is no {name}."

    @own_skill(
        title="List types of objects",
        question="May I list the types of your objects[ of {scope}]?",
        **_READS,
    )
    async def object_types(
        context: Context,
        scope: Annotated[
            str,
            Meta(
                description="Whose objects: private (this person's or this room's alone), or a"
                " scope that several people share.",
                max_length=64,
            ),
        ] = PRIVATE,
    ) -> SkillResult:
        """List the types of objects there are, how many of each, and their JSON Schemas."""
        with _skill_errors():
            found, taints = await objects().types(_caller(context), scope)
        return _json(found, taints)

    @own_skill(
        title="Set the schema of a type",
        question="May I demand that each {type}[ of {scope}] fits the schema {schema} from now on?",
        destructive=False,
        **_WRITES,
    )
    async def object_schema(new: NewSchema, /, context: Context) -> str:
        """Set the JSON Schema that the data of each object of a type must fit from now on."""
        with _skill_errors():
            await objects().set_schema(_caller(context), new)
        if new.schema is None:
            return f"The type {new.type} has no schema of its own any more."
        return f"What is stored as {new.type} must fit the schema from now on."

    return (object_put, object_get, object_query, object_delete, object_types, object_schema)


def _caller(context: Context) -> Caller:
    return Caller(
        SessionKey(context.agent, JID.parse(context.owner)),
        # Work of a model has a trace, and so has work that a schedule or an event starts.
        Author(context.principal, context.agent if context.trace else ""),
        context.taints,
        bool(context.room),
        context.key,
    )


def _json(value: Any, taints: tuple[Taint, ...]) -> SkillResult:
    return SkillResult((Output(msgspec.json.encode(value).decode(), JSON),), taints=taints)


@contextmanager
def _skill_errors() -> Iterator[None]:
    try:
        yield
    except ObjectError as error:
        if error.param:
            raise InvalidParam(error.param, str(error).rstrip(".")) from None
        raise SkillError(str(error)) from None
    except StorageError as error:
        raise SkillError("Objects cannot be used at the moment.") from error
