"""Personas that people make for themselves: written, read back, removed.

They lie in the directory of their conversation, `{jid}/personas/{id}`, as packages like those of
all (`component.memory.personas`), so that nobody else's turn or list ever looks there.
"""

import shutil
from pathlib import Path

import anyio

from component import system
from component.audit.protocol import AuditEvent, Recorder
from component.memory import files
from component.memory.lines import SessionKey
from component.memory.locks import KeyLocks
from component.memory.packages import ID, MANIFEST, PersonaError, parse
from component.memory.paths import Layout
from component.memory.persona_text import TEXTS, PersonaText, check, imported, manifest
from component.memory.personas import Personas
from component.memory.texts import MAX_TEXT
from component.settings import personas as settings
from component.skills.errors import printable
from xep.jid import JID

_LONGEST = 200  # characters of what is wrong with a damaged one
_SHARED_NOT = "Personas are not exported or imported here: the operator has not allowed it."
_MADE_NOT = "Nobody makes personas of their own here: the operator has not allowed it."


class OwnPersonas:
    """What people make for themselves, each for one agent.

    Everything raises PersonaError, a sentence for the person, where the settings allow it not, and
    MemoryStoreError.
    """

    def __init__(
        self,
        layout: Layout,
        personas: Personas,
        configured: settings.Personas,
        recorder: Recorder,
        *,
        threads: anyio.CapacityLimiter | None = None,
    ) -> None:
        """Take the packages of all, which no own one may be mistaken for."""
        self._layout = layout
        self._personas = personas
        self._settings = configured
        self._recorder = recorder
        self._threads = threads
        self._locks: KeyLocks[SessionKey] = KeyLocks()

    async def may_make(self, agent: str, who: JID, id_: str) -> None:
        """Raise PersonaError if somebody cannot make one more, with this id."""
        self._allowed()
        if (why := await self._personas.refusal(who, id_)) is not None:
            raise PersonaError(why)
        key = SessionKey(agent, who.bare)
        await system.in_thread(self._room, key, id_, limiter=self._threads)

    async def has(self, agent: str, who: JID, id_: str) -> bool:
        """Whether somebody has made one with this id, be it whole or not."""
        self._allowed()
        key = SessionKey(agent, who.bare)
        return id_ in await system.in_thread(self._ids, key, limiter=self._threads)

    async def save(self, agent: str, who: JID, written: PersonaText) -> None:
        """Keep one, in the place of one with this id that somebody has made before.

        Raises PersonaError if it is too long, there are too many, or there may be none such.
        """
        self._allowed()
        check(written)
        key = SessionKey(agent, who.bare)
        why = await self._personas.refusal(who, written.id)
        if why is not None and not await self.has(agent, who, written.id):
            raise PersonaError(why)
        async with self._locks.hold(key):
            await system.in_thread(self._save, key, written, limiter=self._threads)
        self._record(key, "stored", written.id)

    async def get(self, agent: str, who: JID, id_: str) -> PersonaText:
        """What somebody has written. Raises PersonaError if there is none, or it is damaged."""
        self._allowed()
        key = SessionKey(agent, who.bare)
        return await system.in_thread(self._get, key, id_, limiter=self._threads)

    async def remove(self, agent: str, who: JID, id_: str) -> bool:
        """Remove one for good; whether there was one."""
        self._allowed()
        key = SessionKey(agent, who.bare)
        async with self._locks.hold(key):
            gone = await system.in_thread(self._remove, key, id_, limiter=self._threads)
        if gone:
            self._record(key, "erased", id_)
        return gone

    async def read(self, text: str) -> PersonaText:
        """Read one that is imported. Raises PersonaError for whatever is no persona."""
        return await system.in_thread(imported, text, limiter=self._threads)

    @property
    def allowed(self) -> bool:
        """Whether people may have any."""
        return self._settings.allow_user_personas

    def may_share(self) -> None:
        """Raise PersonaError if nothing is exported or imported here."""
        self._allowed()
        if not self._settings.allow_sharing:
            raise PersonaError(_SHARED_NOT)

    def _allowed(self) -> None:
        if not self.allowed:
            raise PersonaError(_MADE_NOT)

    def _record(self, key: SessionKey, outcome: str, id_: str) -> None:
        self._recorder.record(
            AuditEvent(
                kind="memory",
                outcome=outcome,
                principal=str(key.who),
                agent=key.agent,
                subject=id_,
                detail="persona of their own",
            )
        )

    # In worker threads.

    def _ids(self, key: SessionKey) -> list[str]:
        folder = self._layout.own_personas(key)
        if not files.check_folder(self._layout.root, folder):
            return []
        with files.explained(folder, "read"):
            names = [each.name for each in folder.iterdir() if ID.fullmatch(each.name)]
            return [name for name in names if files.seen(folder / name / MANIFEST) is not None]

    def _room(self, key: SessionKey, id_: str) -> None:
        there, most = self._ids(key), self._settings.max_user_personas
        if id_ not in there and len(there) >= most:
            raise PersonaError(
                f"You have {len(there)} personas of your own, and {most} are the most. Delete one"
                f" first: /persona delete {min(there)}"
            )

    def _save(self, key: SessionKey, written: PersonaText) -> None:
        self._room(key, written.id)
        folder = self._layout.own_personas(key) / written.id
        files.make_folder(self._layout.root, folder)
        for kind in TEXTS:
            path, text = folder / f"{kind}.md", getattr(written, kind)
            if text:
                files.replace(path, text.encode())
            else:
                files.remove(path)
        # There is no persona before it has a manifest, nor one without its texts.
        files.replace(folder / MANIFEST, manifest(written).encode())

    def _get(self, key: SessionKey, id_: str) -> PersonaText:
        folder = self._layout.own_personas(key) / id_
        nothing = PersonaError(f"You have no persona {id_!r} of your own.")
        if ID.fullmatch(id_) is None or not files.check_folder(self._layout.root, folder):
            raise nothing
        text = _text(folder / MANIFEST)
        if text is None:
            raise nothing
        persona = parse(folder, text, own=True)
        if isinstance(persona, str):
            raise PersonaError(f"Your persona {id_!r} is damaged. {printable(persona, _LONGEST)}")
        return PersonaText(
            id=persona.id,
            name=persona.name,
            description=persona.description,
            icon=persona.icon,
            tier=persona.tier,
            skills=persona.skills,
            max_tokens_per_message=persona.max_tokens_per_message,
            **{kind: _text(folder / f"{kind}.md") or "" for kind in TEXTS},
        )

    def _remove(self, key: SessionKey, id_: str) -> bool:
        folder = self._layout.own_personas(key) / id_
        if ID.fullmatch(id_) is None or not files.check_folder(self._layout.root, folder):
            return False
        there = files.remove(folder / MANIFEST)  # from here on there is none, whatever happens
        with files.explained(folder, "removed"):
            shutil.rmtree(folder)
            files.sync_folder(folder.parent)
        return there


def _text(path: Path) -> str | None:
    found = files.read(path, MAX_TEXT)
    return None if found is None else found[0].decode("utf-8-sig", "replace")
