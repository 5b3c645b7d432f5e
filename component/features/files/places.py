"""The directories with files that a person may read with an agent."""

from collections.abc import Sequence

from component import DEFAULT_AGENT
from component.conversations.stored_files import (
    FileLimits,
    FileRefusedError,
    StoredFile,
    StoredFiles,
)
from component.features.files.settings import Files
from component.memory.sharing import AGENT, PRIVATE, Place, Sharing
from component.memory_directory.layout import SessionKey
from component.policy.taint import Taint, worst


class PersonFiles:
    """The files of a person, or of a room, and those that are shared with them.

    Args:
        shared: whether agents write for everybody who talks with them.
    """

    def __init__(
        self, stored: StoredFiles, sharing: Sharing, limits: FileLimits, *, shared: bool = False
    ) -> None:
        self._stored = stored
        self._sharing = sharing
        self._limits = limits
        self._written_in = AGENT if shared else PRIVATE

    async def list(self, whose: SessionKey) -> Sequence[tuple[Place, StoredFile]]:
        """Return all files, the person's own first, and the oldest of each place first."""
        places = self._sharing.visible(_person(whose))
        return [(place, file) for place in places for file in await self._stored.list(place.folder)]

    async def find(self, whose: SessionKey, name: str) -> tuple[Place, StoredFile]:
        """Return a file by its name. Raises FileRefusedError."""
        for place in self._sharing.visible(_person(whose)):
            if (found := await self._stored.find(place.folder, name)) is not None:
                return place, found
        raise FileRefusedError(f"There is no file {name}.")

    async def content(self, place: Place, file: StoredFile) -> bytes:
        """Return the content of a file. Raises FileRefusedError: it was deleted meanwhile."""
        data = await self._stored.read(place.folder, file.sha256)
        if data is None:
            raise FileRefusedError(f"There is no file {file.name}.")
        return data

    async def text(self, place: Place, file: StoredFile) -> str:
        """Return the text of a document. Raises FileRefusedError, and DocumentError."""
        text = await self._stored.text(place.folder, file)
        if text is None:
            raise FileRefusedError(f"There is no file {file.name}.")
        return text

    async def write(
        self, whose: SessionKey, name: str, text: str, taint: Taint | None, *, append: bool
    ) -> StoredFile:
        """Store a text file of an agent, or append to one. Raises FileRefusedError."""
        person = _person(whose)
        place = self._sharing.place(self._written_in, person)
        assert place is not None, "everybody may write for the agent"
        file = StoredFile(name=name, by=str(whose.who), taint=taint)
        return await self._stored.write(place.folder, file, text, self._limits, append=append)

    def checked(self, name: str, text: str) -> bytes:
        """Return a text as the content of a file. Raises FileRefusedError: it is too large."""
        data = text.encode()
        if len(data) > self._limits.file_bytes:
            raise FileRefusedError(
                f"{name} would have more than {self._limits.file_bytes:,} bytes, the maximum."
            )
        return data

    async def delete(self, whose: SessionKey, name: str, scope: str = "") -> StoredFile:
        """Delete a file, of a scope if it is given, and return it. Raises FileRefusedError."""
        person = _person(whose)
        place = self._sharing.deletable(scope or PRIVATE, person)
        found = None if place is None else await self._stored.find(place.folder, name)
        if found is None and not scope and self._written_in != PRIVATE:
            place = self._sharing.place(self._written_in, person)
            found = None if place is None else await self._stored.find(place.folder, name)
        if place is None or found is None:
            raise FileRefusedError(f"There is no file {name}{f' in {scope}' if scope else ''}.")
        if not (place.may_write or found.by == str(whose.who)):
            raise FileRefusedError(f"You may not delete files of {place.scope}.")
        await self._stored.delete(place.folder, (found.name,))
        return found

    async def delete_all(self, whose: SessionKey) -> int:
        """Delete the files of the person alone, and return how many there were."""
        folder = self._sharing.private(_person(whose)).folder
        return await self._stored.delete(
            folder, [file.name for file in await self._stored.list(folder)]
        )

    async def share(self, whose: SessionKey, name: str, scope: str) -> StoredFile:
        """Copy a file of the person to a scope, where it stays until it is deleted. Raises
        FileRefusedError.
        """
        person = _person(whose)
        file = await self._stored.find(self._sharing.private(person).folder, name)
        if file is None:
            raise FileRefusedError(f"You have no file {name}.")
        place = self._sharing.place(scope, person)
        if scope == PRIVATE or place is None:
            known = [one.scope for one in self._sharing.visible(person) if one.scope != PRIVATE]
            raise FileRefusedError(f"There is no scope {scope}; there are: {', '.join(known)}.")
        if not place.may_write:
            raise FileRefusedError(f"You may not add anything to {scope}.")
        data = await self.content(self._sharing.private(person), file)
        draft = StoredFile(name=file.name, by=str(whose.who), taint=file.taint)
        return await self._stored.add(place.folder, draft, data, self._limits)


def limits_of(settings: Files) -> FileLimits:
    """Return the limits of the files of one person."""
    return FileLimits(settings.quota_bytes, settings.max_files, settings.max_file_bytes)


def taint_for(place: Place, file: StoredFile, whose: SessionKey) -> Taint | None:
    """Return the taint of a file for a person: one of somebody else has at least that of a file."""
    is_own = place.scope == PRIVATE or file.by == str(whose.who)
    return file.taint if is_own else worst((file.taint, "file"))


def _person(whose: SessionKey) -> SessionKey:
    """Return the key of the agent that people know, whose files its sub-agents use."""
    return SessionKey(whose.agent.partition("/")[0] or DEFAULT_AGENT, whose.who)
