"""The memory of a service: its files, and the index over what is remembered."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import structlog
from anyio import to_thread

from component.audit.protocol import Event, Recorder
from component.memory import files, sub_agents
from component.memory.index import Index
from component.memory.knowledge import Knowledge
from component.memory.lines import SessionKey
from component.memory.own_personas import OwnPersonas
from component.memory.paths import Layout
from component.memory.persona_drafts import Drafts
from component.memory.personas import Personas
from component.memory.sessions import Sessions
from component.memory.sharing import Sharing
from component.memory.texts import Texts
from component.memory.vectors import Embedder, LocalEmbedder
from component.memory.workspace import Workspace
from component.private import make_directory
from component.settings import Settings
from component.storage import Storage, StorageError

_log = structlog.get_logger("component.memory")
_INDEX = ".index.db"

EVERY_S: Final = 3600.0


class Memories:
    """Everything that is remembered.

    Args:
        settings: the settings.
        index: the index, open.
        sharing: whose memories are whose.
        recorder: where every access is recorded.

    Attributes:
        sub_agents_keep_s: seconds for which the directory of a sub-agent is kept; 0 is for ever.
    """

    def __init__(
        self, settings: Settings, index: Index, sharing: Sharing, recorder: Recorder
    ) -> None:
        self._recorder = recorder
        self.sub_agents_keep_s = settings.session.sub_agents_keep_days * 86400
        self.layout = Layout(settings.memory_path)
        texts = Texts(self.layout.root)
        self.workspace = Workspace(self.layout, texts)
        defaults = {entry.name: entry.persona for entry in settings.agents if entry.persona}
        self.personas = Personas(self.layout, texts, settings.personas, defaults=defaults)
        self.own_personas = OwnPersonas(self.layout, self.personas, settings.personas, recorder)
        self.drafts = Drafts(self.layout, texts)
        self.knowledge = Knowledge(index, sharing, settings.memory, recorder)
        self.sessions = Sessions(self.layout, settings.session, on_forget=self._forgotten)

    async def remove_sub_agent(self, folder: Path) -> None:
        """Remove the directory of a sub-agent that has ended. Raises StorageError."""
        owners = await to_thread.run_sync(sub_agents.remove, self.layout, folder)
        await self.knowledge.tidy(owners)
        self._recorder.record(
            Event(
                kind="memory",
                outcome="erased",
                subject=folder.relative_to(self.layout.root).as_posix(),
                detail="sub-agent that has ended, its conversation and memories",
            )
        )

    async def _forgotten(self, key: SessionKey) -> None:
        await self.knowledge.erase(key.agent, key.who)
        self._recorder.record(
            Event(
                kind="memory",
                outcome="erased",
                principal=str(key.who),
                agent=key.agent,
                detail="conversation, notes and memories",
            )
        )


@asynccontextmanager
async def remembering(settings: Settings, recorder: Recorder) -> AsyncIterator[Memories]:
    """The memory, for the time of the context.

    Raises StorageError: the directory cannot be used, and where it is set; PolicyError: the members
    of a scope are no addresses.
    """
    sharing = Sharing(Layout(settings.memory_path), settings.memory.scopes)
    try:
        index = await to_thread.run_sync(_open, settings)
    except files.MemoryStoreError as error:
        raise files.MemoryStoreError(f"{error} {named(settings)}") from error
    try:
        memories = Memories(settings, index, sharing, recorder)
        yield memories
    finally:
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(index.close)


def named(settings: Settings) -> str:
    """Where the directory of the memory is set, in a sentence."""
    if settings.memory.path is not None:
        return "It is what path in [memory] names."
    return "It is in what path in [storage] names; path in [memory] can name another one."


def _open(settings: Settings) -> Index:
    root = settings.memory_path
    with files.explained(root, "made"):
        make_directory(root)
    embedder: Embedder | None = None
    if settings.memory.vectors == "local":
        embedder = LocalEmbedder()
    return Index(root / _INDEX, embedder)


async def keep(
    memories: Memories,
    storage: Storage,
    home: str,
    *,
    every_s: float = EVERY_S,
    clock: Callable[[], float] = time.time,
) -> None:
    """Let the index go of what is no more, and remove sub-agents that ended long ago: at once and
    every `every_s` seconds, until cancelled. A disk that refuses is a matter for the log.

    `storage` has the turns that are not over, those of this data directory by its `home`. `clock`
    gives seconds since 1970.
    """
    try:
        await memories.knowledge.tidy()
    except StorageError as error:
        _log.warning("the index of memories could not be tidied", reason=str(error))
    while memories.sub_agents_keep_s:
        try:
            await remove_sub_agents(memories, storage, home, clock())
        except StorageError as error:
            _log.warning("sub-agents that have ended could not be removed", reason=str(error))
        await anyio.sleep(every_s)


async def remove_sub_agents(memories: Memories, storage: Storage, home: str, now: float) -> None:
    """Remove those that ended long ago, at a time in seconds since 1970. Raises StorageError."""
    before = now - memories.sub_agents_keep_s
    found = await to_thread.run_sync(sub_agents.left, memories.layout, before)
    if not found:
        return
    # Nobody pays for the loop who has no model, and so no sub-agents.
    from component.agent import turns  # noqa: PLC0415

    # Asked after they were found: a turn is in there before it makes any, so one that is not there
    # now is over, and those it made never come back.
    unanswered = await storage.read(partial(turns.sessions, home=home))
    for folder in found:
        if not await to_thread.run_sync(sub_agents.needed, memories.layout, folder, unanswered):
            await memories.remove_sub_agent(folder)
