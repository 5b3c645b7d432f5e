"""Personas: packages of a character that people choose from.

Each is a directory `personas/{id}` below the root, with a `persona.toml` and any of `identity.md`,
`personality.md`, `instructions.md` and `context.md`. Those that were proposed and that an admin has
approved are in a directory of their own, which the service writes. Those that a person has created
(`component.personas.own_personas`) are in the directory of their conversation, where only that
person's requests look. The choice of a person is there too, in `active_persona.txt`.
"""

import re
from collections.abc import Mapping
from pathlib import Path

import structlog

from component import DEFAULT_AGENT, system
from component.config import agents as settings
from component.memory_directory import files
from component.memory_directory.files import KeyLocks, MemoryStoreError
from component.memory_directory.layout import Layout, SessionKey
from component.memory_directory.texts import TextReader, Texts
from component.personas.packages import ID, MANIFEST, Persona, PersonaError, parse_manifest
from component.policy.globs import pattern
from xep.jid import JID

log = structlog.get_logger("component.memory")

_CHOICE = "active_persona.txt"
_WARNED = 256  # different warnings that are given once


class Personas:
    """The packages, who may choose which, and what each person has chosen.

    If a person's own persona has the id of one for all, the own one is used, unless a restriction
    applies to the person: its ids are those of packages that the operator knows.

    Args:
        defaults: the persona of each agent for people who have chosen none, by id.
        approved: whether those that were proposed and approved are offered.
    """

    def __init__(
        self,
        layout: Layout,
        texts: Texts,
        configured: settings.Personas,
        *,
        defaults: Mapping[str, str] | None = None,
        approved: bool = False,
    ) -> None:
        self._layout = layout
        self._texts = texts
        self._locks: KeyLocks[SessionKey] = KeyLocks()
        self._warned: set[str] = set()
        self.configure(configured, defaults or {}, approved=approved)

    def configure(
        self, configured: settings.Personas, defaults: Mapping[str, str], *, approved: bool = False
    ) -> None:
        """Apply these settings from now on; see the arguments of the class."""
        self._approved = approved
        self._allow_own = configured.allow_user_personas
        self._defaults = {DEFAULT_AGENT: configured.default} | dict(defaults)
        self._restrictions = [
            (pattern([each.jid]), pattern(each.allowed)) for each in configured.restrictions
        ]

    async def list(self, key: SessionKey) -> tuple[Persona, ...]:
        """Return the personas that a person may choose for an agent: their own, then the others,
        each sorted by id. A damaged package is omitted, with a warning. Raises MemoryStoreError.
        """
        names, own = await system.in_thread(self._names, key)
        return await self._texts.cached(
            ("personas", key, names, own),
            lambda reader: tuple(
                each
                for name in dict.fromkeys((*own, *names))
                if (each := self._chosen(reader, name, key)) is not None
                and self._admits(each, key.who)
            ),
        )

    async def active(self, key: SessionKey, named: str = "") -> Persona | None:
        """Return the persona of an agent for a person: the chosen one, else that of the agent's
        declaration or, for `assistant`, of personas.default. None for a sub-agent, and if the
        package does not exist or is not allowed (any more). Raises MemoryStoreError.

        `named` is the id of the one that the settings of a room name, before the others.
        """
        return await self._texts.cached(
            (_CHOICE, key, named), lambda reader: self._active(reader, key, named)
        )

    async def choose(self, key: SessionKey, chosen: str | None) -> Persona | None:
        """Store the choice of a person, by id or name; None for the default. Return the persona
        that is active now.

        Raises PersonaError if the person has no such persona; MemoryStoreError.
        """
        persona = None if chosen is None else find_persona(chosen, await self.list(key))
        async with self._locks.hold(key):
            await system.in_thread(self._store, key, persona)
        return await self.active(key) if persona is None else persona

    async def fault(self, name: str) -> str | None:
        """Return a sentence that says why the persona with this id cannot be used; None if it can.
        For checks of the settings. Raises MemoryStoreError.
        """
        if re.fullmatch(ID, name) is None:
            return f"{name!r} is no id: small letters, digits, dots, hyphens and underscores."

        def check(reader: TextReader) -> str | None:
            for folder in self._folders_of(name):
                parsed = _read(reader, folder)
                if parsed is not None:
                    manifest = folder / MANIFEST
                    return f"{manifest}: {parsed}" if isinstance(parsed, str) else None
            return f"There is no {self._layout.personas / name / MANIFEST}."

        return await self._texts.cached(("fault", name), check)

    async def refusal(self, who: JID, name: str) -> str | None:
        """Return a sentence that says why a person may not create a persona with this id; None if
        the person may. Raises MemoryStoreError.
        """
        if (allowed := self._allowed(who)) is not None and allowed.fullmatch(name) is None:
            return f"You may not have a persona {name!r} here: the operator has said which ones."
        if await system.in_thread(self.is_for_all, name):
            return f"There is a persona {name!r} for all already. Take another name."
        return None

    def is_for_all(self, name: str, *, approved: bool = True) -> bool:
        """Whether there is a package with this id for all, even a damaged one; with `approved` also
        one that was proposed and approved. Blocks. Raises MemoryStoreError.
        """
        folders = self._folders_of(name) if approved else (self._layout.personas / name,)
        return any(files.state_of(folder / MANIFEST) is not None for folder in folders)

    def _active(self, reader: TextReader, key: SessionKey, named: str) -> Persona | None:
        if "/" in key.agent:
            return None
        if named:
            found = self._for_all(reader, named)
            if (persona := self._usable(found, named, key.who)) is not None:
                return persona
        folder = self._layout.folder(key)
        if reader.has_folder(folder):
            chosen = (reader.text(folder / _CHOICE) or "").strip()
            if chosen:
                found = self._chosen(reader, chosen, key) if re.fullmatch(ID, chosen) else None
                if (persona := self._usable(found, chosen, key.who)) is not None:
                    return persona
        default = self._defaults.get(key.agent)
        if not default:
            return None
        return self._usable(self._for_all(reader, default), default, key.who)

    def _for_all(self, reader: TextReader, name: str) -> Persona | None:
        return self._first(reader, name) if re.fullmatch(ID, name) is not None else None

    def _first(self, reader: TextReader, name: str) -> Persona | None:
        for folder in self._folders_of(name):
            parsed = _read(reader, folder)
            if parsed is not None:  # one that is damaged counts: it may restrict who may use it
                return self._usable_package(folder, parsed)
        return None

    def _folders_of(self, name: str) -> tuple[Path, ...]:
        """Return where a package for all may be; the first counts, which is the operator's."""
        folder = self._layout.personas / name
        return (folder, self._layout.approved_personas / name) if self._approved else (folder,)

    def _usable(self, persona: Persona | None, name: str, who: JID) -> Persona | None:
        if persona is None:
            self._warn("a persona that was chosen is not there", persona=name, who=str(who))
        elif not self._admits(persona, who):
            self._warn("a persona that was chosen is not allowed", persona=name, who=str(who))
            persona = None
        return persona

    def _chosen(self, reader: TextReader, name: str, key: SessionKey) -> Persona | None:
        for_all = self._first(reader, name)
        if not self._allow_own or (for_all is not None and self._allowed(key.who) is not None):
            return for_all
        folder = self._layout.own_personas(key) / name
        own = self._usable_package(folder, _read(reader, folder, own=True))
        return for_all if own is None else own

    def _usable_package(self, folder: Path, parsed: Persona | str | None) -> Persona | None:
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
        address = str(who.bare)
        for people, allowed in self._restrictions:
            if people.fullmatch(address):
                return allowed
        return None

    def _warn(self, event: str, **values: str) -> None:
        warning = repr((event, values))
        if warning not in self._warned:
            if len(self._warned) >= _WARNED:
                self._warned.clear()
            self._warned.add(warning)
            log.warning(event, **values)

    # In worker threads.

    def _names(self, key: SessionKey) -> tuple[tuple[str, ...], tuple[str, ...]]:
        layout = self._layout
        of_all, own = _folders(layout.personas), layout.own_personas(key)
        if self._approved:
            of_all = tuple(sorted((*of_all, *_folders(layout.approved_personas))))
        if not self._allow_own or not files.check_folder(layout.root, own):
            return of_all, ()
        return of_all, _folders(own)

    def _store(self, key: SessionKey, persona: Persona | None) -> None:
        folder = self._layout.folder(key)
        if persona is not None:
            files.make_folder(self._layout.root, folder)
            files.replace(folder / _CHOICE, f"{persona.id}\n".encode())
        elif files.check_folder(self._layout.root, folder):
            files.remove(folder / _CHOICE)


def find_persona(chosen: str, offered: tuple[Persona, ...]) -> Persona:
    """Return the persona with this id, or else the first with this name, ignoring case.

    Raises PersonaError.
    """
    wanted = chosen.strip().casefold()
    by_name = {each.name.casefold(): each for each in reversed(offered)}
    found = {**by_name, **{each.id: each for each in offered}}.get(wanted)
    if found is not None:
        return found
    there = f"There are: {', '.join(each.id for each in offered)}." if offered else ""
    raise PersonaError(f"There is no persona {chosen.strip()!r} for you. {there}".strip())


def _read(reader: TextReader, folder: Path, *, own: bool = False) -> Persona | str | None:
    """Read a package; return a sentence if it is invalid, and None if it does not exist.

    In the directory of a person no link is followed.
    """
    try:
        if own and not reader.has_folder(folder):
            return None
        text = reader.text(folder / MANIFEST, linked=not own)
    except MemoryStoreError as error:
        return str(error)
    return None if text is None else parse_manifest(folder, text, own=own)


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
