"""The documents of agents: the files in their `knowledge` folders, kept in the index.

Texts in `knowledge/` may have been written by anybody and are labelled `file`. Those in
`knowledge/trusted/` count as the operator's own words and have no label.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import anyio
import structlog

from component import system
from component.memory import document_reader
from component.memory.document_reader import (
    KINDS,
    LIMITS,
    DocumentError,
    DocumentLimits,
    DocumentPart,
)
from component.memory.file_store import CurrentIndex
from component.memory.index import Index, IndexedDocument
from component.memory.index_search import Hit
from component.memory.knowledge_lines import Item
from component.memory.sharing import DOCUMENTS, Place
from component.memory_directory import files
from component.memory_directory.files import FileState, MemoryStoreError
from component.memory_directory.layout import AGENTS, KNOWLEDGE
from component.policy.taint import Taint
from component.store.errors import StorageError

TRUSTED: Final = "trusted"
EVERY_S: Final = 10.0
"""Seconds between two comparisons of the folders with the index."""

_DOCUMENTS: Final = 10_000  # of one folder, at most
_DEPTH: Final = 8  # of folders below it

_log = structlog.get_logger("component.memory")


class Documents:
    """Updates the index when documents of agents change."""

    def __init__(
        self, index: Index, current: CurrentIndex, root: Path, limits: DocumentLimits = LIMITS
    ) -> None:
        self._index = index
        self._current = current
        self._root = root
        self._limits = limits
        self._known: dict[str, dict[str, IndexedDocument]] = {}
        self._refused: dict[str, str] = {}
        self._changed = anyio.Event()

    async def run(self) -> None:
        """Compare all folders repeatedly, until cancelled. Errors are logged."""
        while True:
            self._changed = anyio.Event()
            try:
                await self.refresh()
            except StorageError as error:
                _log.warning("documents could not be read", why=str(error))
            with anyio.move_on_after(EVERY_S):
                await self._changed.wait()

    async def refresh(self) -> None:
        """Read the documents that have changed, and remove deleted ones from the index.

        A folder or document that cannot be read is a warning in the log. Raises StorageError.
        """
        folders = await system.in_thread(self._folders)
        owners = {folder.relative_to(self._root).as_posix(): folder for folder in folders}
        for name in await self._current.read(self._index.names):
            if Path(name).name == KNOWLEDGE:
                owners.setdefault(name, self._root / name)
        for owner, folder in owners.items():
            async with self._current.locks.hold(owner):
                try:
                    await self._refresh(owner, folder)
                except MemoryStoreError as error:
                    if self._refused.get(owner) != str(error):
                        _log.warning("documents cannot be read", why=str(error))
                    self._refused[owner] = str(error)

    def searched(self, place: Place | None) -> Place | None:
        """Return the folder if it has documents to search."""
        return place if place is not None and self._known.get(place.owner) else None

    def current(self, found: Sequence[tuple[Place, Hit]]) -> list[tuple[Place, Hit]]:
        """Return the hits without parts of documents that have changed since they were indexed."""
        return [
            (place, hit)
            for place, hit in found
            if place.scope != DOCUMENTS or self._is_current(place, hit.item.key)
        ]

    def _is_current(self, place: Place, key: str) -> bool:
        name = key.rpartition("#")[0]
        known = self._known.get(place.owner, {}).get(name)
        try:
            if known is not None and files.state_of(place.folder / name) == known.seen:
                return True
        except MemoryStoreError as error:
            _log.warning("a document cannot be looked at", why=str(error))
        self._changed.set()
        return False

    async def _refresh(self, owner: str, folder: Path) -> None:
        known = self._known[owner] = await self._current.read(self._index.documents, owner)
        there = await system.in_thread(self._list, folder)
        for name in [name for name in known if name not in there]:
            await self._current.write(self._index.remove_document, owner, name)
            del known[name]
        for name, seen in there.items():
            if name not in known or known[name].seen != seen:
                known[name] = await self._read(owner, folder, name, seen)

    async def _read(self, owner: str, folder: Path, name: str, seen: FileState) -> IndexedDocument:
        path, error, items = folder / name, "", []
        try:
            parts = await document_reader.read_document(path, self._limits)
            taint: Taint | None = None if name.startswith(f"{TRUSTED}/") else "file"
            items = [
                Item(
                    key=f"{name}#{number}",
                    title=_title(name, part),
                    body=part.text,
                    version=1,
                    versions=1,
                    taint=taint,
                )
                for number, part in enumerate(parts, 1)
            ]
        except DocumentError as refused:
            error = str(refused)
            _log.warning("a document cannot be read", file=str(path), why=error)
        await self._current.write(self._index.put_document, owner, name, seen, items, error)
        return IndexedDocument(seen, len(items), error)

    # In worker threads.

    def _folders(self) -> list[Path]:
        found = [self._root / KNOWLEDGE]
        agents = self._root / AGENTS
        if files.check_folder(self._root, agents):
            with files.explained(agents, "read"):
                found += [each / KNOWLEDGE for each in agents.iterdir()]
        return [folder for folder in found if folder.is_dir()]

    def _list(self, folder: Path) -> dict[str, FileState]:
        """Return the state of each document, without symbolic links and hidden files."""
        found: dict[str, FileState] = {}
        if not files.check_folder(self._root, folder):
            return found
        for path in _below(folder, _DEPTH):
            seen = files.state_of(path)
            name = path.relative_to(folder).as_posix()
            if seen is None or path.suffix.lower() not in KINDS or not name.isprintable():
                continue
            if len(found) >= _DOCUMENTS:
                _log.warning("a folder has too many documents", folder=str(folder), most=_DOCUMENTS)
                break
            found[name] = seen
        return found


def _below(folder: Path, depth: int) -> Iterator[Path]:
    with files.explained(folder, "read"), os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.name.startswith("."):
                continue
            if entry.is_file(follow_symlinks=False):
                yield Path(entry.path)
            elif depth and entry.is_dir(follow_symlinks=False):
                yield from _below(Path(entry.path), depth - 1)


def _title(name: str, part: DocumentPart) -> str:
    return f"{name}, {part.where}" if part.where else name
