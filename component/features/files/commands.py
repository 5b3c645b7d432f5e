"""The commands about the files of a person: list, show, share and delete."""

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec

from component.commands import (
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
from component.conversations.stored_files import FileRefusedError, StoredFile
from component.features.files.places import PersonFiles
from component.memory.content_types import READERS
from component.memory.document_reader import DocumentError
from component.memory.sharing import PRIVATE, Place
from component.memory_directory.layout import SessionKey

_SHOWN: Final = 50
_LONGEST_SHOWN: Final = 1_500


class FileRow(msgspec.Struct, frozen=True):
    """A file in a list. Its size is in bytes; `at` is when it was stored (RFC 3339)."""

    name: str
    media_type: str
    size: int
    at: str
    scope: str
    url: str = ""


class FilesParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is done with the files.

    Args:
        words: Words in names. Or: show and a name for the details and the beginning of a file,
            delete and a name (or all) to delete, share, a name and a scope to copy a file to a
            scope. Default: list all.
        scope: With delete: the scope of the file, shown in brackets in the list. Default: private,
            which only you can see.
    """

    words: tuple[str, ...] = ()
    scope: str = ""


class PersonFilesParams(PersonParams, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The person, the agent, and the file to delete.

    Args:
        delete: Name of a file to delete, or all. Default: list the files.
    """

    delete: Annotated[str, msgspec.Meta(max_length=500)] = ""


FILES = Outline(
    name="files",
    title="Files",
    about="list the files that you have sent and those that I keep for you; show NAME, delete NAME,"
    " delete all, or share NAME SCOPE",
    params=FilesParams,
    group="tasks",
)
PERSON_FILES = Outline(
    name="person-files",
    title="Files of a person",
    about="list or delete the files of a person with an agent",
    params=PersonFilesParams,
    who="admin",
    group="people",
)


class FileCommands:
    """The commands about files.

    Args:
        agents: the names of the agents, the default one first.
    """

    def __init__(self, files: PersonFiles, agents: Sequence[str]) -> None:
        self._files = files
        self._agents = agents

    def commands(self) -> tuple[AnyCommand, ...]:
        """Return both of them."""
        return (FILES.done_by(self._mine), PERSON_FILES.done_by(self._theirs))

    async def _mine(self, asking: Asking, params: FilesParams) -> CommandResult:
        whose = conversation_of(asking, self._agents[0])
        verb, name = (
            (params.words[0].casefold() if params.words else ""),
            " ".join(params.words[1:]),
        )
        if params.scope and verb != "delete":
            raise CommandError("A scope can only be given with delete and a name.", "scope")
        try:
            if verb == "show" and name:
                return await self._show(whose, name)
            if verb == "delete" and name:
                return await self._delete(whose, name, params.scope)
            if verb == "share" and len(params.words) > 2:
                name, scope = " ".join(params.words[1:-1]), params.words[-1]
                file = await self._files.share(whose, name, scope)
                return CommandResult(f"Everybody in {scope} can read {file.name} now.")
        except FileRefusedError as error:
            raise CommandError(str(error), "words") from None
        return await self._list(whose, " ".join(params.words))

    async def _theirs(self, _asking: Asking, params: PersonFilesParams) -> CommandResult:
        whose = SessionKey(agent_of(params.agent, self._agents), person_of(params.person))
        if not params.delete:
            return await self._list(whose, "")
        try:
            return await self._delete(whose, params.delete, PRIVATE)
        except FileRefusedError as error:
            raise CommandError(str(error), "delete") from None

    async def _list(self, whose: SessionKey, words: str) -> CommandResult:
        found = [
            _row(place, file)
            for place, file in reversed(await self._files.list(whose))
            if words.casefold() in file.name.casefold()
        ]
        if not found:
            none = f"There is no file with {words} in its name." if words else "There are no files."
            return CommandResult(none, (), only_read=True)
        lines = [_line(row) for row in found[:_SHOWN]]
        if len(found) > _SHOWN:
            lines.append(f"… and {len(found) - _SHOWN} more")
        return CommandResult("\n".join(lines), found, only_read=True)

    async def _show(self, whose: SessionKey, name: str) -> CommandResult:
        place, file = await self._files.find(whose, name)
        row, lines = _row(place, file), [_line(_row(place, file))]
        if file.url:
            lines.append(f"It was sent as {file.url}")
        if file.media_type in READERS:
            try:
                text = await self._files.text(place, file)
                lines += ["", shorten(text, _LONGEST_SHOWN)]
            except DocumentError as error:
                lines.append(f"It cannot be read: {error}.")
        return CommandResult("\n".join(lines), row, only_read=True)

    async def _delete(self, whose: SessionKey, name: str, scope: str) -> CommandResult:
        if name.casefold() == "all" and scope in ("", PRIVATE):
            count = await self._files.delete_all(whose)
            return CommandResult(f"Deleted {count} {'file' if count == 1 else 'files'}.")
        file = await self._files.delete(whose, name, scope)
        return CommandResult(f"Deleted {file.name}.")


def _row(place: Place, file: StoredFile) -> FileRow:
    return FileRow(file.name, file.media_type, file.size, file.at, place.scope, file.url)


def _line(row: FileRow) -> str:
    size = f"{row.size:,} bytes" if row.size < 1000 else f"{row.size / 1000:,.0f} KB"
    where = "" if row.scope == PRIVATE else f" [{row.scope}]"
    return f"- {row.name}{where}: {row.media_type}, {size}, {row.at[:16].replace('T', ' ')} UTC"
