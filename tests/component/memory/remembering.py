"""Memories in a real directory, with an audit log in memory."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio.to_thread

from component.audit.protocol import AuditEvent
from component.config.memory import Memory, MemoryScope
from component.memory.embedding import LocalEmbedder
from component.memory.index import Index, owners_of
from component.memory.index_database import FILE_NAME
from component.memory.index_search import Finder, Hit, Search
from component.memory.knowledge import Knowledge, Memo, Remembered
from component.memory.sharing import PRIVATE, Sharing
from component.memory_directory.files import open_root
from component.memory_directory.layout import Layout, SessionKey
from xep.jid import JID

AGENT = "assistant"
ANN = JID.parse("ann@example.com")
BOB = JID.parse("bob@example.com")
EVE = JID.parse("eve@example.net")


class Recording:
    """An audit log in memory."""

    def __init__(self) -> None:
        self.events: list[AuditEvent] = []

    def record(self, event: AuditEvent) -> None:
        self.events.append(event)

    async def settled(self) -> None:
        pass


class Room:
    """The memories, with the objects that tests inspect."""

    def __init__(self, root: Path, sharing: Sharing, index: Index, settings: Memory) -> None:
        self.root = root
        self.index = index
        self.record = Recording()
        self.knowledge = Knowledge(index, sharing, settings, self.record)

    def file(self, who: JID = ANN) -> Path:
        return self.root / str(who) / "knowledge.jsonl"

    async def store(self, key: str, body: str, who: JID = ANN, **more: Any) -> Remembered:
        scope = more.pop("scope", PRIVATE)
        return await self.knowledge.store(SessionKey(AGENT, who), Memo(key, body, **more), scope)

    async def recall(self, words: str, who: JID = ANN, most: int = 5) -> list[str]:
        return [one.key for one in await self.knowledge.recall(SessionKey(AGENT, who), words, most)]

    async def get(self, key: str, who: JID = ANN) -> str | None:
        found = await self.knowledge.get(SessionKey(AGENT, who), key)
        return found[0].item.body if found else None


@asynccontextmanager
async def remembering(
    path: Path,
    scopes: Sequence[MemoryScope] = (),
    embedder: LocalEmbedder | None = None,
    admins: Sequence[JID] = (),
    **limits: Any,
) -> AsyncIterator[Room]:
    root = await anyio.to_thread.run_sync(open_root, path)
    index = await anyio.to_thread.run_sync(Index, root / FILE_NAME, embedder)
    try:
        yield Room(root, Sharing(Layout(root), scopes, admins), index, Memory(**limits))
    finally:
        index.close()


def among(index: Index, owners: Sequence[str], search: Search) -> list[Hit]:
    """Return the results of a search in the index for these owners."""
    with index.database.reading() as connection:
        return Finder(index).search_owners(connection, owners_of(connection, owners), search)
