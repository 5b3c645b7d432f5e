"""Personas that somebody is being asked about: what they have answered so far, on disk.

So a dialogue goes on after the service was killed in its middle.
"""

from collections.abc import Callable
from typing import Final

import anyio
import msgspec
import structlog

from component import system
from component.memory import files
from component.memory.lines import SessionKey
from component.memory.locks import KeyLocks
from component.memory.packages import ID
from component.memory.paths import Layout
from component.memory.texts import Look, Texts
from component.memory.upkeep import DRAFT
from xep.jid import JID

log = structlog.get_logger("component.memory")

LAPSE_S: Final = 3600.0
"""Seconds without an answer after which nobody is asked any more: what they say then is meant for
the agent."""


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """One that is being asked about: its id and name, and the answers so far, as they were given.

    `edits` says that there is one with this id which the answers change. `asked` is the time of the
    last question, in seconds since 1970.
    """

    id: str
    name: str
    edits: bool = False
    answers: tuple[str, ...] = ()
    asked: float = 0.0


class Drafts:
    """The drafts, one at most of a person with one agent. Everything raises MemoryStoreError."""

    def __init__(
        self,
        layout: Layout,
        texts: Texts,
        *,
        clock: Callable[[], float] = system.time,
        threads: anyio.CapacityLimiter | None = None,
    ) -> None:
        """Take the texts below the layout's root; `clock` gives seconds since 1970."""
        self._layout = layout
        self._texts = texts
        self._clock = clock
        self._threads = threads
        self._locks: KeyLocks[SessionKey] = KeyLocks()

    async def get(self, agent: str, who: JID) -> Draft | None:
        """What somebody is being asked about; None also if that was too long ago."""
        key = SessionKey(agent, who.bare)
        draft = await self._texts.gather((DRAFT, key), lambda look: self._read(look, key))
        if draft is None or not 0 <= self._clock() - draft.asked <= LAPSE_S:
            return None
        return draft

    async def put(self, agent: str, who: JID, draft: Draft) -> None:
        """Keep it, as of now: when this returns it is on the disk."""
        draft = msgspec.structs.replace(draft, asked=self._clock())
        key = SessionKey(agent, who.bare)
        async with self._locks.hold(key):
            await system.in_thread(self._write, key, draft, limiter=self._threads)

    async def drop(self, agent: str, who: JID) -> bool:
        """Ask no more; whether somebody was being asked."""
        asked = await self.get(agent, who) is not None
        key = SessionKey(agent, who.bare)
        async with self._locks.hold(key):
            await system.in_thread(self._write, key, None, limiter=self._threads)
        return asked

    # In worker threads.

    def _read(self, look: Look, key: SessionKey) -> Draft | None:
        folder = self._layout.folder(key)
        text = look.text(folder / DRAFT) if look.folder(folder) else None
        if text is None:
            return None
        try:
            draft = msgspec.json.decode(text, type=Draft)
        except (msgspec.DecodeError, RecursionError) as error:
            log.warning("a draft is damaged", file=str(folder / DRAFT), why=str(error))
            return None
        return draft if ID.fullmatch(draft.id) else None

    def _write(self, key: SessionKey, draft: Draft | None) -> None:
        folder = self._layout.folder(key)
        if draft is not None:
            files.make_folder(self._layout.root, folder)
            files.replace(folder / DRAFT, msgspec.json.encode(draft))
        elif files.check_folder(self._layout.root, folder):
            files.remove(folder / DRAFT)
