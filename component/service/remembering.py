"""The memory of a service: its files, and the index over what is remembered."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import structlog
from anyio import to_thread

from component.audit.protocol import Event, Recorder
from component.memory import files
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
from component.settings import Settings
from component.storage import StorageError

_log = structlog.get_logger("component.memory")
_INDEX = ".index.db"


class Memories:
    """Everything that is remembered.

    Args:
        settings: the settings.
        index: the index, open.
        sharing: whose memories are whose.
        recorder: where every access is recorded.
    """

    def __init__(
        self, settings: Settings, index: Index, sharing: Sharing, recorder: Recorder
    ) -> None:
        self._recorder = recorder
        self.layout = Layout(settings.memory_path)
        texts = Texts(self.layout.root)
        self.workspace = Workspace(self.layout, texts)
        defaults = {entry.name: entry.persona for entry in settings.agents if entry.persona}
        self.personas = Personas(self.layout, texts, settings.personas, defaults=defaults)
        self.own_personas = OwnPersonas(self.layout, self.personas, settings.personas, recorder)
        self.drafts = Drafts(self.layout, texts)
        self.knowledge = Knowledge(index, sharing, settings.memory, recorder)
        self.sessions = Sessions(self.layout, settings.session, on_forget=self._forgotten)

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

    Raises StorageError: the directory cannot be used; PolicyError: the members of a scope are no
    addresses.
    """
    sharing = Sharing(Layout(settings.memory_path), settings.memory.scopes)
    index = await to_thread.run_sync(_open, settings)
    try:
        memories = Memories(settings, index, sharing, recorder)
        yield memories
    finally:
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(index.close)


def _open(settings: Settings) -> Index:
    root = settings.memory_path
    with files.explained(root, "made"):
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
    embedder: Embedder | None = None
    if settings.memory.vectors == "local":
        embedder = LocalEmbedder()
    return Index(root / _INDEX, embedder)


async def tidy(memories: Memories) -> None:
    """Let the index go of what is no more; a disk that refuses is a matter for the log."""
    try:
        await memories.knowledge.tidy()
    except StorageError as error:
        _log.warning("the index of memories could not be tidied", reason=str(error))
