"""Personas: packages of a character that people choose from.

Each is a directory `personas/{id}` below the root, with a `persona.toml` and any of `identity.md`,
`personality.md`, `instructions.md` and `context.md`; those that somebody has made for themselves
(`component.memory.own_personas`) are in the directory of their conversation, where nobody else's
are looked for. What somebody has chosen stands there too, in `active_persona.txt`.
"""

import re
from collections.abc import Mapping
from pathlib import Path

import anyio
import structlog

from component import system
from component.memory import files
from component.memory.files import MemoryStoreError
from component.memory.lines import SessionKey
from component.memory.locks import KeyLocks
from component.memory.packages import ID, MANIFEST, Persona, PersonaError, parse
from component.memory.paths import DEFAULT_AGENT, Layout
from component.memory.texts import Look, Texts
from component.policy.globs import pattern
from component.settings import personas as settings
from xep.jid import JID

log = structlog.get_logger("component.memory")

_CHOICE = "active_persona.txt"
_WARNED = 256  # warnings that are remembered as given


class Personas:
    """The packages, who may choose which, and what each has chosen.

    Of two with one id, a person's own counts before the one of all, but not for who is named by a
    restriction: the ids there are those of the packages that the operator knows.
    """

    def __init__(
        self,
        layout: Layout,
        texts: Texts,
        configured: settings.Personas,
        *,
        defaults: Mapping[str, str] | None = None,
        threads: anyio.CapacityLimiter | None = None,
    ) -> None:
        """Take the settings; `defaults` are the ids of what agents have for who has chosen none."""
        self._layout = layout
        self._texts = texts
        self._with_own = configured.allow_user_personas
        self._defaults = {DEFAULT_AGENT: configured.default} | dict(defaults or {})
        self._restrictions = [
            (pattern([each.jid]), pattern(each.allowed)) for each in configured.restrictions
        ]
        self._threads = threads
        self._locks: KeyLocks[SessionKey] = KeyLocks()
        self._warned: dict[str, None] = {}

    async def list(self, agent: str, who: JID) -> tuple[Persona, ...]:
        """The personas that somebody may choose for an agent: their own by id, then the others by
        id. A damaged package is left out, with a warning. Raises MemoryStoreError.
        """
        key = SessionKey(agent, who.bare)
        names, own = await system.in_thread(self._names, key, limiter=self._threads)
        return await self._texts.gather(
            ("personas", key, names, own),
            lambda look: tuple(
                each
                for name in dict.fromkeys((*own, *names))
                if (each := self._chosen(look, name, key)) is not None
                and self._admits(each, key.who)
            ),
        )

    async def active(self, agent: str, who: JID) -> Persona | None:
        """The persona that an agent has for somebody: the chosen one, else that of its declaration
        or, for `assistant`, of personas.default; None for a sub-agent, and if there is no such
        package or it is not allowed (any more). Raises MemoryStoreError.
        """
        key = SessionKey(agent, who.bare)
        return await self._texts.gather((_CHOICE, key), lambda look: self._active(look, key))

    async def choose(self, agent: str, who: JID, chosen: str | None) -> Persona | None:
        """Keep what somebody has chosen, by id or name, or go back to the default with None;
        returns what is active now.

        Raises PersonaError if there is no such persona for them, MemoryStoreError.
        """
        key = SessionKey(agent, who.bare)
        persona = None if chosen is None else named(chosen, await self.list(agent, who))
        async with self._locks.hold(key):
            await system.in_thread(self._keep, key, persona, limiter=self._threads)
        return await self.active(agent, who) if persona is None else persona

    async def fault(self, name: str) -> str | None:
        """Why nobody can have the persona of this id, in a sentence; None if it is whole. For who
        looks whether the settings can be kept to. Raises MemoryStoreError.
        """
        if ID.fullmatch(name) is None:
            return f"{name!r} is no id: small letters, digits, dots, hyphens and underscores."
        folder = self._layout.personas / name
        parsed = await self._texts.gather(("fault", name), lambda look: _read(look, folder))
        manifest = folder / MANIFEST
        if parsed is None:
            return f"There is no {manifest}."
        return f"{manifest}: {parsed}" if isinstance(parsed, str) else None

    async def refusal(self, who: JID, name: str) -> str | None:
        """Why somebody may not make a persona of their own with this id, in a sentence; None if
        they may. Raises MemoryStoreError.
        """
        if (allowed := self._allowed(who)) is not None and allowed.fullmatch(name) is None:
            return f"You may not have a persona {name!r} here: the operator has said which ones."
        there = self._layout.personas / name / MANIFEST
        if await system.in_thread(files.seen, there, limiter=self._threads) is not None:
            return f"There is a persona {name!r} for all already. Take another name."
        return None

    def _active(self, look: Look, key: SessionKey) -> Persona | None:
        if "/" in key.agent:
            return None
        folder = self._layout.folder(key)
        if look.folder(folder):
            chosen = (look.text(folder / _CHOICE) or "").strip()
            if chosen:
                found = self._chosen(look, chosen, key) if ID.fullmatch(chosen) else None
                if (persona := self._usable(found, chosen, key.who)) is not None:
                    return persona
        default = self._defaults.get(key.agent)
        if not default:
            return None
        found = (
            self._package(look, self._layout.personas / default) if ID.fullmatch(default) else None
        )
        return self._usable(found, default, key.who)

    def _usable(self, persona: Persona | None, name: str, who: JID) -> Persona | None:
        if persona is None:
            self._warn("a persona that was chosen is not there", persona=name, who=str(who))
        elif not self._admits(persona, who):
            self._warn("a persona that was chosen is not allowed", persona=name, who=str(who))
            persona = None
        return persona

    def _chosen(self, look: Look, name: str, key: SessionKey) -> Persona | None:
        """Of the two that can have this id, the one that is meant."""
        of_all = self._package(look, self._layout.personas / name)
        if not self._with_own or (of_all is not None and self._allowed(key.who) is not None):
            return of_all
        mine = self._package(look, self._layout.own_personas(key) / name, own=True)
        return of_all if mine is None else mine

    def _package(self, look: Look, folder: Path, *, own: bool = False) -> Persona | None:
        parsed = _read(look, folder, own=own)
        if isinstance(parsed, str):
            self._warn("a persona cannot be used", file=str(folder / MANIFEST), why=parsed)
            return None
        return parsed

    def _admits(self, persona: Persona, who: JID) -> bool:
        if persona.allowed_jids and not pattern(persona.allowed_jids).fullmatch(str(who.bare)):
            return False
        allowed = self._allowed(who)
        return allowed is None or allowed.fullmatch(persona.id) is not None

    def _allowed(self, who: JID) -> re.Pattern[str] | None:
        """The ids that somebody is restricted to; None for who is named by no restriction."""
        address = str(who.bare)
        for people, allowed in self._restrictions:
            if people.fullmatch(address):
                return allowed
        return None

    def _warn(self, event: str, **values: str) -> None:
        told = repr((event, values))
        if told not in self._warned:
            if len(self._warned) >= _WARNED:
                self._warned.clear()
            self._warned[told] = None
            log.warning(event, **values)

    # In worker threads.

    def _names(self, key: SessionKey) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The directories of packages, and those of the person's own."""
        own = self._layout.own_personas(key)
        if not self._with_own or not files.check_folder(self._layout.root, own):
            return _folders(self._layout.personas), ()
        return _folders(self._layout.personas), _folders(own)

    def _keep(self, key: SessionKey, persona: Persona | None) -> None:
        folder = self._layout.folder(key)
        if persona is not None:
            files.make_folder(self._layout.root, folder)
            files.replace(folder / _CHOICE, f"{persona.id}\n".encode())
        elif files.check_folder(self._layout.root, folder):
            files.remove(folder / _CHOICE)


def named(chosen: str, offered: tuple[Persona, ...]) -> Persona:
    """The persona of this id, else the first of this name, without regard to case.

    Raises PersonaError.
    """
    wanted = chosen.strip().casefold()
    by_name = {each.name.casefold(): each for each in reversed(offered)}
    found = {**by_name, **{each.id: each for each in offered}}.get(wanted)
    if found is not None:
        return found
    there = f"There are: {', '.join(each.id for each in offered)}." if offered else ""
    raise PersonaError(f"There is no persona {chosen.strip()!r} for you. {there}".strip())


def _read(look: Look, folder: Path, *, own: bool = False) -> Persona | str | None:
    """What a manifest says; a text says what is wrong with it. None if there is none.

    No link is followed to what is a person's own.
    """
    try:
        if own and not look.folder(folder):
            return None
        text = look.text(folder / MANIFEST, linked=not own)
    except MemoryStoreError as error:
        return str(error)
    return None if text is None else parse(folder, text, own=own)


def _folders(folder: Path) -> tuple[str, ...]:
    with files.explained(folder, "read"):
        try:
            return tuple(
                each.name
                for each in sorted(folder.iterdir())
                if each.name[0] != "." and each.is_dir()
            )
        except FileNotFoundError:
            return ()
