"""Commands about an agent's memories: list, search, change, delete, export and import."""

from collections.abc import Sequence
from typing import Annotated, Final

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
from component.memory.index_search import Search
from component.memory.knowledge import Knowledge, KnowledgeError, Memo, Remembered
from component.memory.sharing import PRIVATE
from component.memory.store import MissingDecision
from component.memory_directory.layout import SessionKey
from component.policy.taint import Taint

_SHOWN: Final = 20
_LONGEST_SHOWN: Final = 300
_LONGEST_KEY: Final = 200
_FORMAT: Final = 1


class MemoryRow(msgspec.Struct, frozen=True):
    """A memory in a list."""

    key: str
    title: str
    body: str
    scope: str
    version: int


class ExportedMemory(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A memory in an export. Times are in RFC 3339 format; `origin` is its possible author."""

    key: str
    body: str
    title: str = ""
    topic: str = ""
    tags: tuple[str, ...] = ()
    version: int = 0
    created: str = ""
    updated: str = ""
    expires: str = ""
    origin: Taint | None = None


class Export(msgspec.Struct, frozen=True, kw_only=True):
    """The private memories of a person with an agent; `format` is the version of this format."""

    format: int
    agent: str
    person: str
    memories: tuple[ExportedMemory, ...]


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """How many memories were stored, and the errors of the others."""

    stored: int
    refused: tuple[str, ...] = ()


class MemoryParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of the command for everybody.

    Args:
        words: Words to search for. Or: set and a key to write a memory, forget and a key to delete
            one, export to get all of your own as JSON, import to store those of an export. Default:
            list the latest.
        scope: With forget: the scope of the memory, shown in brackets in the list. Default:
            private, which only you can see.
        text: With set: what to remember; in the chat, the key and what to remember. With import:
            the JSON that export has printed.
    """

    words: tuple[str, ...] = ()
    scope: str = ""
    text: Annotated[str, SEVERAL_LINES] = ""


class MissingParams(PersonParams, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The person, the agent, and what is done with the missing memories.

    Args:
        decision: restore: publish the memories in the account of the person again. delete: the
            person has deleted them there, so delete them here as well.
    """

    decision: MissingDecision


class ImportParams(PersonParams, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The person, the agent, and the memories to store.

    Args:
        memories: The JSON that an export has printed.
    """

    memories: Annotated[str, SEVERAL_LINES]


MEMORY = Outline(
    name="memory",
    title="Memory",
    about="list what I remember about you; add words to search, set KEY TEXT to write a memory,"
    " forget KEY to delete one, export or import",
    params=MemoryParams,
    verbatim={"import": "text", "set": "text"},
    group="everyday",
)
EXPORT_MEMORY = Outline(
    name="export-memory",
    title="Export memory",
    about="print what an agent remembers about a person, as JSON",
    params=PersonParams,
    who="admin",
    group="people",
    only_reads=True,
)
IMPORT_MEMORY = Outline(
    name="import-memory",
    title="Import memory",
    about="store the memories of an export for a person",
    params=ImportParams,
    who="admin",
    group="people",
)


MISSING_MEMORIES = Outline(
    name="missing-memories",
    title="Missing memories",
    about="restore or delete memories that are missing in the account of a person, where the server"
    " does not say whether the person has deleted them",
    params=MissingParams,
    who="admin",
    group="people",
    only_reads=True,
)


class MemoryCommands:
    """The commands about memories.

    Args:
        agents: the names of the agents, the default one first.
    """

    def __init__(self, knowledge: Knowledge, agents: Sequence[str]) -> None:
        self._knowledge = knowledge
        self._agents = agents

    def commands(self) -> tuple[AnyCommand, ...]:
        """Return all of them."""
        return (
            MEMORY.done_by(self._memory),
            EXPORT_MEMORY.done_by(self._export_of),
            IMPORT_MEMORY.done_by(self._import_for),
            MISSING_MEMORIES.done_by(self._missing),
        )

    async def _memory(self, asking: Asking, params: MemoryParams) -> CommandResult:
        whose = conversation_of(asking, self._agents[0])
        verb = params.words[0].casefold() if params.words else ""
        key = " ".join(params.words[1:])
        if verb == "forget" and key:
            return await self._forget(whose, key, params.scope)
        if params.scope:
            raise CommandError(
                "A scope can only be given with forget and a key; the list shows all scopes.",
                "scope",
            )
        if verb == "set" and (key or params.text):
            return await self._set(whose, key, params.text)
        if verb == "import" and params.text:
            return await self._import(whose, params.text, "text")
        if verb == "export" and not key:
            return await self._export(whose)
        return await self._search(whose, " ".join(params.words), asking)

    async def _search(self, whose: SessionKey, words: str, asking: Asking) -> CommandResult:
        search = Search(words, most=_SHOWN, common=True)
        found = await self._knowledge.search(whose, search)
        if not found:
            about = "you" if asking.room is None else "this room"
            none = f"I remember nothing {'like that' if words else f'about {about}'}."
            return CommandResult(none, ())
        rows = [
            MemoryRow(one.item.key, one.item.title, one.item.body, one.scope, one.item.version)
            for one in found
        ]
        return CommandResult("\n".join(_line(row) for row in rows), rows)

    async def _set(self, whose: SessionKey, key: str, text: str) -> CommandResult:
        text = text.strip()
        if not key:
            key, _, text = text.partition(" ")
        key, text = " ".join(key.split()), text.strip()
        if not text:
            raise CommandError(f"What should I remember as {key}? Send /memory set {key} TEXT")
        if len(key) > _LONGEST_KEY:
            raise CommandError(f"A key has at most {_LONGEST_KEY} characters.", "words")
        former = await self._private(whose, key)
        memo = Memo(key, text) if former is None else _changed(former, text)
        try:
            stored = await self._knowledge.store(whose, memo)
        except KnowledgeError as error:
            raise CommandError(str(error), "text") from None
        return CommandResult(f"Remembered {key} (version {stored.item.version}).")

    async def _private(self, whose: SessionKey, key: str) -> Remembered | None:
        found = await self._knowledge.get(whose, key)
        return next((one for one in found if one.scope == PRIVATE), None)

    async def _forget(self, whose: SessionKey, key: str, scope: str) -> CommandResult:
        try:
            deleted = await self._knowledge.forget(whose, key, scope or PRIVATE)
        except KnowledgeError as error:
            raise CommandError(str(error), "scope" if scope else "words") from None
        where = f" in {scope}" if scope else ""
        if deleted:
            return CommandResult(f"Deleted {key}{where}.")
        others = [one.scope for one in await self._knowledge.get(whose, key)]
        if not others:
            return CommandResult(f"I remember nothing called {key}{where}.")
        return CommandResult(
            f"I remember nothing called {key} in {scope or PRIVATE}, but there is one in"
            f" {', '.join(others)}. To delete it, send /memory forget {key} scope={others[0]}"
        )

    async def _export_of(self, _asking: Asking, params: PersonParams) -> CommandResult:
        return await self._export(self._named(params))

    async def _import_for(self, _asking: Asking, params: ImportParams) -> CommandResult:
        return await self._import(self._named(params), params.memories, "memories")

    async def _missing(self, _asking: Asking, params: MissingParams) -> CommandResult:
        whose = self._named(params)
        count = await self._knowledge.decide_missing(whose, params.decision)
        if not count:
            return CommandResult(f"No memories are missing in the account of {whose.who}.")
        done = "restored there" if params.decision == "restore" else "deleted here"
        return CommandResult(f"{count} {'memory is' if count == 1 else 'memories are'} {done}.")

    async def _export(self, whose: SessionKey) -> CommandResult:
        found = await self._knowledge.own(whose)
        export = Export(
            format=_FORMAT,
            agent=whose.agent,
            person=str(whose.who),
            memories=tuple(_exported(one) for one in found),
        )
        text = msgspec.json.format(msgspec.json.encode(export), indent=2).decode()
        return CommandResult(text, export)

    async def _import(self, whose: SessionKey, text: str, param: str) -> CommandResult:
        try:
            export = msgspec.json.decode(text, type=Export)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise CommandError(f"This is not an export of memories: {error}.", param) from None
        if export.format != _FORMAT:
            raise CommandError(
                f"This export has format {export.format}, and only {_FORMAT} can be imported.",
                param,
            )
        stored, refused = 0, list[str]()
        for one in export.memories:
            memo = Memo(
                *(one.key, one.body, one.title, one.topic, one.tags, one.origin), one.expires
            )
            try:
                await self._knowledge.store(whose, memo)
            except KnowledgeError as error:
                refused.append(f"{one.key}: {error}")
            else:
                stored += 1
        lines = [f"Imported {stored} of {len(export.memories)} memories.", *refused]
        return CommandResult("\n".join(lines), Imported(stored=stored, refused=tuple(refused)))

    def _named(self, params: PersonParams) -> SessionKey:
        return SessionKey(agent_of(params.agent, self._agents), person_of(params.person))


def _changed(former: Remembered, text: str) -> Memo:
    return msgspec.structs.replace(former.item, body=text, taint=None)


def _exported(one: Remembered) -> ExportedMemory:
    exported = msgspec.convert(one.item, ExportedMemory, from_attributes=True)
    return msgspec.structs.replace(exported, origin=one.item.taint)


def _line(row: MemoryRow) -> str:
    text = row.body if not row.title else f"{row.title}: {row.body}"
    text = shorten(" ".join(text.split()), _LONGEST_SHOWN)
    where = "" if row.scope == PRIVATE else f" [{row.scope}]"
    return f"- {row.key}{where}: {text}"
