"""The memory of a service: its files, and the index over the memories."""

from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import structlog

from component import system
from component.audit.protocol import AuditEvent, Recorder
from component.config import Settings
from component.conversations import directories
from component.memory.index import Index
from component.memory.knowledge import Knowledge
from component.memory.sharing import Sharing
from component.memory_directory import files
from component.memory_directory.layout import Layout, SessionKey
from component.memory_directory.texts import Texts
from component.private import make_directory
from component.store import Storage, StorageError
from component.store.outages import log_failure
from xep.jid import JID

if TYPE_CHECKING:
    from component.conversations.sessions import Sessions
    from component.conversations.stored_files import StoredFiles
    from component.memory.embedding import LocalEmbedder
    from component.personas.own_personas import Drafts, OwnPersonas
    from component.personas.personas import Personas
    from component.personas.workspace import Workspace

_log = structlog.get_logger("component.memory")
_INDEX = ".index.db"

EVERY_S: Final = 3600.0


class Memories:
    """Conversations, personas, memories and the files of agents. What only agents use is imported
    when it is first used: a service without a model starts faster.

    Attributes:
        sub_agents_keep_s: seconds for which the directory of a sub-agent is kept; 0 for ever.
    """

    def __init__(
        self, settings: Settings, index: Index, sharing: Sharing, recorder: Recorder
    ) -> None:
        self._settings = settings
        self._recorder = recorder
        self.sub_agents_keep_s = settings.session.sub_agents_keep_days * 86400
        self.layout = Layout(settings.memory_path)
        self.sharing = sharing
        self._texts = Texts(self.layout.root)
        self.knowledge = Knowledge(index, sharing, settings.memory, recorder)

    @cached_property
    def workspace(self) -> "Workspace":
        """The texts that describe the agents."""
        from component.personas.workspace import Workspace  # noqa: PLC0415

        return Workspace(self.layout, self._texts)

    @cached_property
    def personas(self) -> "Personas":
        """The personas that people choose."""
        from component.personas.personas import Personas  # noqa: PLC0415

        settings = self._settings
        return Personas(
            *(self.layout, self._texts, settings.personas),
            defaults=_default_personas(settings),
            approved=settings.proposals_path is not None,
        )

    @cached_property
    def own_personas(self) -> "OwnPersonas":
        """The personas that people have created."""
        from component.personas.own_personas import OwnPersonas  # noqa: PLC0415

        return OwnPersonas(self.layout, self.personas, self._settings.personas, self._recorder)

    @cached_property
    def drafts(self) -> "Drafts":
        """The personas that people are creating."""
        from component.personas.own_personas import Drafts  # noqa: PLC0415

        return Drafts(self.layout, self._texts)

    @cached_property
    def sessions(self) -> "Sessions":
        """The conversations."""
        from component.conversations.sessions import Sessions  # noqa: PLC0415

        return Sessions(self.layout, self._settings.session, on_forget=self._forgotten)

    @cached_property
    def files(self) -> "StoredFiles":
        """The files of people, rooms and scopes."""
        from component.conversations.stored_files import StoredFiles  # noqa: PLC0415

        return StoredFiles(self.layout)

    def replace(self, settings: Settings) -> None:
        """Apply what these settings say about personas from now on."""
        self._settings = settings
        self.personas.configure(
            settings.personas,
            _default_personas(settings),
            approved=settings.proposals_path is not None,
        )
        self.own_personas.settings = settings.personas

    async def remove_sub_agent(self, folder: Path) -> None:
        """Remove the directory of a sub-agent that has ended. Raises StorageError."""
        owners = await system.in_thread(directories.remove_sub_agent, self.layout, folder)
        await self.knowledge.tidy(owners)
        self._recorder.record(
            AuditEvent(
                kind="memory",
                outcome="erased",
                subject=folder.relative_to(self.layout.root).as_posix(),
                detail="sub-agent that has ended, its conversation and memories",
            )
        )

    async def _forgotten(self, key: SessionKey) -> None:
        await self.knowledge.erase(SessionKey(key.agent, key.who))
        self._recorder.record(
            AuditEvent(
                kind="memory",
                outcome="erased",
                principal=str(key.who),
                agent=key.agent,
                detail="conversation, notes and memories",
            )
        )


def _default_personas(settings: Settings) -> dict[str, str]:
    return {entry.name: entry.persona for entry in settings.agents if entry.persona}


@asynccontextmanager
async def open_memories(
    settings: Settings, recorder: Recorder, admins: Collection[JID] = ()
) -> AsyncIterator[Memories]:
    """Yield the open memory. `admins` are those of every moment, by their bare addresses.

    Raises StorageError: the directory cannot be used; the message says which setting names it.
    PolicyError: a member of a scope is not an address.
    """
    sharing = Sharing(Layout(settings.memory_path), settings.memory.scopes, admins)
    try:
        index = await system.in_thread(_open, settings)
    except files.MemoryStoreError as error:
        raise files.MemoryStoreError(f"{error} {location_hint(settings)}") from error
    try:
        memories = Memories(settings, index, sharing, recorder)
        yield memories
    finally:
        with anyio.CancelScope(shield=True):
            await system.in_thread(_close, index)


def location_hint(settings: Settings) -> str:
    """Return a sentence that says which setting names the directory of the memory."""
    if settings.memory.path is not None:
        return "The directory is set by path in [memory]."
    return "The directory is below path in [storage]; path in [memory] sets another one."


def _open(settings: Settings) -> Index:
    root = settings.memory_path
    with files.explained(root, "made"):
        make_directory(root)
    return Index(root / _INDEX, _embedder(settings))


def _embedder(settings: Settings) -> "LocalEmbedder | None":
    """Return the model of the settings; none, with a warning, if the extra is not installed."""
    if settings.memory.vectors == "off":
        return None
    from component.memory.embedding import LocalEmbedder  # noqa: PLC0415 - only for vectors

    try:
        return LocalEmbedder()
    except StorageError as error:
        _log.warning("memories are found without vectors", why=str(error))
        return None


def _close(index: Index) -> None:
    index.close()
    if index.embedder is not None:
        index.embedder.close()


async def tidy(
    memories: Memories,
    storage: Storage,
    home: str,
    *,
    every_s: float = EVERY_S,
    clock: Callable[[], float] = system.time,
) -> None:
    """Remove deleted files from the index once, and the directories of sub-agents that ended long
    ago every `every_s` seconds, until cancelled. Errors of the disk are logged.

    `storage` has the turns that have not ended, under `home` those of this data directory. `clock`
    gives seconds since 1970.
    """
    try:
        await memories.knowledge.tidy()
    except StorageError as error:
        log_failure(_log, "the index of memories could not be tidied", error)
    while memories.sub_agents_keep_s:
        try:
            # The earlier of two clocks: a wall clock that has jumped ahead removes nothing.
            steady = await storage.read(lambda database: database.steady)
            await remove_sub_agents(memories, storage, home, min(clock(), steady / 1000))
        except StorageError as error:
            log_failure(_log, "sub-agents that have ended could not be removed", error)
        await anyio.sleep(every_s)


async def remove_sub_agents(memories: Memories, storage: Storage, home: str, now: float) -> None:
    """Remove the directories of sub-agents that ended long before `now`, in seconds since 1970.

    Raises StorageError.
    """
    before = now - memories.sub_agents_keep_s
    found = await system.in_thread(directories.unused_sub_agents, memories.layout, before)
    if not found:
        return
    # Imported only where there are sub-agents: a service without a model starts faster.
    from component.agent import rows  # noqa: PLC0415
    from component.kernel.agent_work import working_for  # noqa: PLC0415

    # Read after they were found: a turn is stored before it creates sub-agents, and so is the task
    # of each. So one of which neither is stored now has ended, and is never used again.
    unanswered = await storage.read(partial(rows.sessions, home=home))
    unanswered |= await storage.read(working_for)
    for folder in found:
        if not await system.in_thread(
            directories.is_used_sub_agent, memories.layout, folder, unanswered
        ):
            await memories.remove_sub_agent(folder)
