"""The commands about objects: list, find, show, undo, delete and export."""

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

import msgspec

from component.commands import (
    SEVERAL_LINES,
    AnyCommand,
    Asking,
    CommandError,
    CommandResult,
    Outline,
    PersonParams,
    agent_of,
    conversation_of,
    person_of,
    shorten,
)
from component.features.objects.objects import Caller, Objects
from component.features.objects.params import ObjectName, ObjectQuery
from component.features.objects.stored import Author, ObjectError, ObjectSheet
from component.memory.sharing import PRIVATE
from component.memory_directory.layout import SessionKey

_LONGEST_SHOWN: Final = 200
_ALL: Final = "*"
_MOST_EXPORTED: Final = 60_000
"""The maximum number of bytes of an export in the chat."""


class ObjectParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is done with the objects.

    Args:
        action: list the types, or the objects of one; find by words or by a filter; show, undo (the
            version before), delete or export.
        type: Type of the objects.
        id: Id of the object; * with delete for all of the type.
        text: With find: words, or a filter such as {"status": "open"}; in the chat, the type and
            these.
        scope: Whose objects. Default: private, which only you can see.
    """

    action: Literal["list", "find", "show", "undo", "delete", "export"] = "list"
    type: str = ""
    id: str = ""
    text: Annotated[str, SEVERAL_LINES] = ""
    scope: str = PRIVATE


class ExportParams(PersonParams, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The person, the agent and the type.

    Args:
        type: Type of the objects. Default: all types.
    """

    type: str = ""


class Export(msgspec.Struct, frozen=True, kw_only=True):
    """The objects of a person with an agent."""

    agent: str
    person: str
    objects: list[ObjectSheet]


OBJECTS = Outline(
    name="objects",
    title="Objects",
    about="list the types of your objects, or list TYPE; find TYPE WORDS, show TYPE ID, undo TYPE"
    " ID, delete TYPE ID, or export",
    params=ObjectParams,
    verbatim={"find": "text"},
    group="plans",
)
EXPORT_OBJECTS = Outline(
    name="export-objects",
    title="Export objects",
    about="print the objects of a person with an agent, as JSON",
    params=ExportParams,
    who="admin",
    group="people",
    only_reads=True,
)


class ObjectCommands:
    """The commands about objects.

    Args:
        agents: the names of the agents, the default one first.
    """

    def __init__(self, objects: Objects, agents: Sequence[str]) -> None:
        self._objects = objects
        self._agents = agents

    def commands(self) -> tuple[AnyCommand, ...]:
        """Return all of them."""
        return (OBJECTS.done_by(self._mine), EXPORT_OBJECTS.done_by(self._export_of))

    async def _mine(self, asking: Asking, params: ObjectParams) -> CommandResult:
        caller = self._caller(asking)
        try:
            return await self._done(caller, params)
        except ObjectError as error:
            known = error.param if error.param in params.__struct_fields__ else None
            raise CommandError(str(error), known) from None

    async def _done(self, caller: Caller, params: ObjectParams) -> CommandResult:
        match params.action:
            case "list" if not params.type:
                return await self._types(caller, params.scope)
            case "list":
                query = ObjectQuery(type=params.type, scope=params.scope)
                return await self._found(caller, query)
            case "find":
                return await self._found(caller, _query_of(params))
            case "export":
                return await self._export(caller.whose, params.type, _MOST_EXPORTED)
        name = _name_of(params)
        if params.action == "show":
            (sheet,) = (await self._objects.get(caller, name)).objects
            return CommandResult(_described(sheet), sheet, only_read=True)
        if params.action == "undo":
            made = await self._objects.undo(caller, name)
            return CommandResult(f"{name.type} {name.id} is as it was before, as {made.version}.")
        if name.id == _ALL:
            number = await self._objects.delete_all(caller, name.type, name.scope)
            return CommandResult(f"Deleted {number} {name.type} objects.")
        was_there = await self._objects.delete(caller, name)
        if not was_there:
            return CommandResult(f"There is no {name.type} {name.id}.")
        return CommandResult(f"Deleted {name.type} {name.id}.")

    async def _types(self, caller: Caller, scope: str) -> CommandResult:
        found, _ = await self._objects.types(caller, scope)
        lines = [f"- {each.type}: {each.number}" for each in found]
        none = "There are no objects. Ask me, for example: keep a list of my tasks."
        return CommandResult("\n".join(lines) or none, found, only_read=True)

    async def _found(self, caller: Caller, query: ObjectQuery) -> CommandResult:
        found = await self._objects.query(caller, query)
        lines = [_line(each) for each in found.objects]
        if found.total > len(lines):
            lines.append(f"… and {found.total - len(lines)} more")
        text = "\n".join(lines) or "There are no such objects."
        return CommandResult(text, found.objects, only_read=True)

    async def _export_of(self, _asking: Asking, params: ExportParams) -> CommandResult:
        whose = SessionKey(agent_of(params.agent, self._agents), person_of(params.person))
        return await self._export(whose, params.type)

    async def _export(self, whose: SessionKey, type_: str, most: int = 0) -> CommandResult:
        found = await self._objects.export(whose, type_)
        export = Export(agent=whose.agent, person=str(whose.who), objects=found)
        text = msgspec.json.format(msgspec.json.encode(export), indent=2).decode()
        if most and len(text.encode()) > most:
            raise CommandError(
                f"The export has more than {most} bytes, which is too much for the chat: export one"
                " type, or ask an admin for all."
            )
        return CommandResult(text, export, only_read=True)

    def _caller(self, asking: Asking) -> Caller:
        whose = conversation_of(asking, self._agents[0])
        return Caller(whose, Author(str(asking.principal)), in_room=asking.room is not None)


def _query_of(params: ObjectParams) -> ObjectQuery:
    """Return the query of a type and words or a filter."""
    type_, text = params.type, params.text.strip()
    if not type_:
        type_, _, text = text.partition(" ")
    text = text.strip()
    if not type_:
        raise CommandError("Say what to find: /objects find TYPE WORDS", "text")
    if not text.startswith("{"):
        return ObjectQuery(type=type_, text=text, scope=params.scope)
    try:
        wanted = msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise CommandError(f"The filter is not a JSON object: {error}.", "text") from None
    return ObjectQuery(type=type_, filter=wanted, scope=params.scope)


def _name_of(params: ObjectParams) -> ObjectName:
    if not params.type or not params.id:
        raise CommandError(f"Say which one: /objects {params.action} TYPE ID", "id")
    return ObjectName(type=params.type, id=params.id, scope=params.scope)


def _line(sheet: ObjectSheet) -> str:
    text = ", ".join(f"{name}: {_shown(value)}" for name, value in sheet.data.items())
    return f"- {sheet.type} {sheet.id}: {shorten(text, _LONGEST_SHOWN)}"


def _described(sheet: ObjectSheet) -> str:
    via = f" (by {sheet.updated_via})" if sheet.updated_via else ""
    about = f"version {sheet.version}, {sheet.updated[:16]}Z, {sheet.updated_by}{via}"
    lines = [f"{sheet.type} {sheet.id} ({about})"]
    lines += [f"- {name}: {_shown(value)}" for name, value in sheet.data.items()]
    if sheet.tags:
        lines.append(f"Tags: {', '.join(sheet.tags)}")
    return "\n".join(lines)


def _shown(value: object) -> str:
    if isinstance(value, str):
        return " ".join(value.split())
    return msgspec.json.encode(value).decode()
