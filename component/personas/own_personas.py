"""Personas that people create for themselves, and the drafts of those that they are asked about.

Both are in the directory of the conversation. The packages, `{jid}/personas/{id}`, have the form of
those for all (`component.personas.personas`). A draft is stored, so that the questions continue
after a restart.
"""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import structlog

from component import system
from component.audit.protocol import Recorder
from component.config import agents as settings
from component.memory_directory import files
from component.memory_directory.files import KeyLocks
from component.memory_directory.layout import DRAFT, Layout, SessionKey, memory_event
from component.memory_directory.texts import MAX_TEXT, TextReader, Texts
from component.personas.packages import (
    ID,
    MANIFEST,
    TEXTS,
    PersonaError,
    PersonaText,
    check_persona,
    imported,
    manifest,
    parse_manifest,
)
from component.personas.personas import Personas
from component.skills.errors import printable
from component.store.directory import sync_directory

log = structlog.get_logger("component.memory")

LAPSE_S: Final = 3600.0
"""Seconds without an answer after which a draft lapses: later messages are for the agent."""

_LONGEST: Final = 200  # characters of the error of a damaged package
_SHARED_NOT: Final = "Personas are not exported or imported here: the operator has not allowed it."
_MADE_NOT: Final = "Nobody makes personas of their own here: the operator has not allowed it."


class OwnPersonas:
    """The personas of people, each for one agent.

    All methods raise PersonaError if the settings do not allow it, and MemoryStoreError.

    Args:
        personas: the packages for all, whose ids own ones cannot have.

    Attributes:
        settings: what the settings allow; they may be replaced.
    """

    def __init__(
        self, layout: Layout, personas: Personas, configured: settings.Personas, recorder: Recorder
    ) -> None:
        self._layout = layout
        self._personas = personas
        self.settings = configured
        self._recorder = recorder
        self._locks: KeyLocks[SessionKey] = KeyLocks()

    async def may_make(self, key: SessionKey, id_: str) -> None:
        """Raise PersonaError if a person cannot create a persona with this id."""
        self._allowed()
        if (why := await self._personas.refusal(key.who, id_)) is not None:
            raise PersonaError(why)
        await system.in_thread(self._check_room, key, id_)

    async def has(self, key: SessionKey, id_: str) -> bool:
        """Whether a person has a persona with this id, even a damaged one."""
        self._allowed()
        return id_ in await system.in_thread(self._ids, key)

    async def save(self, key: SessionKey, written: PersonaText) -> None:
        """Store a persona, replacing the person's own one with this id.

        Raises PersonaError if it is too long, there are too many, or the id is not allowed.
        """
        self._allowed()
        check_persona(written)
        why = await self._personas.refusal(key.who, written.id)
        if why is not None and not await self.has(key, written.id):
            raise PersonaError(why)
        async with self._locks.hold(key):
            await system.in_thread(self._save, key, written)
        self._record(key, "stored", written.id)

    async def get(self, key: SessionKey, id_: str) -> PersonaText:
        """Return a persona of a person. Raises PersonaError if it does not exist or is damaged."""
        self._allowed()
        return await system.in_thread(self._get, key, id_)

    async def remove(self, key: SessionKey, id_: str) -> bool:
        """Delete a persona; return whether it existed."""
        self._allowed()
        async with self._locks.hold(key):
            removed = await system.in_thread(self._remove, key, id_)
        if removed:
            self._record(key, "erased", id_)
        return removed

    async def read(self, text: str) -> PersonaText:
        """Read an exported persona. Raises PersonaError for any other text."""
        return await system.in_thread(imported, text)

    @property
    def allowed(self) -> bool:
        """Whether people may have personas of their own."""
        return self.settings.allow_user_personas

    def may_share(self) -> None:
        """Raise PersonaError if personas cannot be exported and imported."""
        self._allowed()
        if not self.settings.allow_sharing:
            raise PersonaError(_SHARED_NOT)

    def _allowed(self) -> None:
        if not self.allowed:
            raise PersonaError(_MADE_NOT)

    def _record(self, key: SessionKey, outcome: str, id_: str) -> None:
        self._recorder.record(memory_event(key, outcome, id_, "persona of their own"))

    # In worker threads.

    def _ids(self, key: SessionKey) -> list[str]:
        folder = self._layout.own_personas(key)
        if not files.check_folder(self._layout.root, folder):
            return []
        with files.explained(folder, "read"):
            names = [each.name for each in folder.iterdir() if re.fullmatch(ID, each.name)]
            return [name for name in names if files.state_of(folder / name / MANIFEST) is not None]

    def _check_room(self, key: SessionKey, id_: str) -> None:
        ids, most = self._ids(key), self.settings.max_user_personas
        if id_ not in ids and len(ids) >= most:
            raise PersonaError(
                f"You have {len(ids)} personas of your own, and {most} are the most. Delete one"
                f" first: /persona delete {min(ids)}"
            )

    def _save(self, key: SessionKey, written: PersonaText) -> None:
        self._check_room(key, written.id)
        folder = self._layout.own_personas(key) / written.id
        files.make_folder(self._layout.root, folder)
        for kind in TEXTS:
            path, text = folder / f"{kind}.md", getattr(written, kind)
            if text:
                files.replace(path, text.encode())
            else:
                files.remove(path)
        # Last, because a package without a manifest is ignored.
        files.replace(folder / MANIFEST, manifest(written).encode())

    def _get(self, key: SessionKey, id_: str) -> PersonaText:
        folder = self._layout.own_personas(key) / id_
        missing = PersonaError(f"You have no persona {id_!r} of your own.")
        if re.fullmatch(ID, id_) is None or not files.check_folder(self._layout.root, folder):
            raise missing
        text = _text(folder / MANIFEST)
        if text is None:
            raise missing
        persona = parse_manifest(folder, text, own=True)
        if isinstance(persona, str):
            raise PersonaError(f"Your persona {id_!r} is damaged. {printable(persona, _LONGEST)}")
        texts = {kind: _text(folder / f"{kind}.md") or "" for kind in TEXTS}
        return PersonaText(**(persona.described | texts))

    def _remove(self, key: SessionKey, id_: str) -> bool:
        folder = self._layout.own_personas(key) / id_
        if re.fullmatch(ID, id_) is None or not files.check_folder(self._layout.root, folder):
            return False
        # First, so that an interruption leaves no usable package.
        existed = files.remove(folder / MANIFEST)
        with files.explained(folder, "removed"):
            shutil.rmtree(folder)
            sync_directory(folder.parent)
        return existed


def _text(path: Path) -> str | None:
    found = files.read(path, MAX_TEXT)
    return None if found is None else found[0].decode("utf-8-sig", "replace")


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A persona that a person is being asked about.

    Attributes:
        edits: whether the answers change an existing persona with this id.
        answers: the answers so far, as they were given.
        asked: the time of the last question, in seconds since 1970.
    """

    id: str
    name: str
    edits: bool = False
    answers: tuple[str, ...] = ()
    asked: float = 0.0


class Drafts:
    """The drafts: a person has at most one with each agent. All methods raise MemoryStoreError."""

    def __init__(
        self, layout: Layout, texts: Texts, *, clock: Callable[[], float] = system.time
    ) -> None:
        self._layout = layout
        self._texts = texts
        self._clock = clock
        self._locks: KeyLocks[SessionKey] = KeyLocks()

    async def get(self, key: SessionKey) -> Draft | None:
        """Return the draft of a person; None if there is none or it has lapsed."""
        draft = await self._texts.cached((DRAFT, key), lambda reader: self._read(reader, key))
        if draft is None or not 0 <= self._clock() - draft.asked <= LAPSE_S:
            return None
        return draft

    async def put(self, key: SessionKey, draft: Draft) -> None:
        """Store a draft with the current time; it is on the disk when this returns."""
        await self._store(key, msgspec.structs.replace(draft, asked=self._clock()))

    async def drop(self, key: SessionKey) -> bool:
        """Delete the draft of a person; return whether there was one."""
        existed = await self.get(key) is not None
        await self._store(key, None)
        return existed

    async def _store(self, key: SessionKey, draft: Draft | None) -> None:
        async with self._locks.hold(key):
            await system.in_thread(self._write, key, draft)

    # In worker threads.

    def _read(self, reader: TextReader, key: SessionKey) -> Draft | None:
        folder = self._layout.folder(key)
        text = reader.text(folder / DRAFT) if reader.has_folder(folder) else None
        if text is None:
            return None
        try:
            draft = msgspec.json.decode(text, type=Draft)
        except (msgspec.DecodeError, RecursionError) as error:
            log.warning("a draft is damaged", file=str(folder / DRAFT), why=str(error))
            return None
        return draft if re.fullmatch(ID, draft.id) else None

    def _write(self, key: SessionKey, draft: Draft | None) -> None:
        folder = self._layout.folder(key)
        if draft is not None:
            files.make_folder(self._layout.root, folder)
            files.replace(folder / DRAFT, msgspec.json.encode(draft))
        elif files.check_folder(self._layout.root, folder):
            files.remove(folder / DRAFT)
