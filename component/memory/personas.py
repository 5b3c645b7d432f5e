"""Personas: packages of a character that people choose from.

Each is a directory `personas/{id}` below the root, with a `persona.toml` and any of `identity.md`,
`personality.md`, `instructions.md` and `context.md`. What somebody has chosen stands in the
`active_persona.txt` of the conversation.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import anyio
import msgspec
import structlog
from anyio import to_thread
from pydantic_core import PydanticCustomError

from component.memory import files
from component.memory.files import MemoryStoreError
from component.memory.lines import SessionKey
from component.memory.locks import KeyLocks
from component.memory.paths import DEFAULT_AGENT, Layout
from component.memory.texts import Look, Texts
from component.policy.globs import pattern
from component.settings import personas as settings
from component.settings.llm import Tier
from xep.jid import JID

log = structlog.get_logger("component.memory")

_CHOICE = "active_persona.txt"
_MANIFEST = "persona.toml"
_WARNED = 256  # warnings that are remembered as given

_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\ufffe\uffff]")  # XML carries few of them
_Positive = Annotated[int, msgspec.Meta(ge=1)]


class Persona(msgspec.Struct, frozen=True, kw_only=True):
    """One package. `folder` holds its texts.

    `tier` replaces that of the agent where it is set; `skills` are names of those that the agent is
    offered, with `*` and `?` as in policy rules. `max_tokens_per_message` is the most that one
    answer may have.
    """

    id: str
    name: str
    folder: Path
    description: str = ""
    icon: str = ""
    tier: Tier | None = None
    skills: tuple[str, ...] | None = None
    allowed_jids: tuple[str, ...] = ()
    max_tokens_per_message: int | None = None


class PersonaError(Exception):
    """A persona cannot be chosen; the text is a sentence for the person."""


class _Defaults(msgspec.Struct, frozen=True):
    tier: Tier | None = None
    skills: tuple[str, ...] | None = None


# Nothing unknown in here: a restriction that is misspelt must not be none.
class _Restrictions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    allowed_jids: tuple[str, ...] = ()
    max_tokens_per_message: _Positive | None = None


class _Described(msgspec.Struct, frozen=True):
    id: str
    name: str = ""
    description: str = ""
    icon: str = ""
    defaults: _Defaults = _Defaults()
    restrictions: _Restrictions = _Restrictions()


class _Manifest(msgspec.Struct, frozen=True):
    persona: _Described


class Personas:
    """The packages, who may choose which, and what each has chosen."""

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
        self._defaults = {DEFAULT_AGENT: configured.default} | dict(defaults or {})
        self._restrictions = [
            (pattern([each.jid]), pattern(each.allowed)) for each in configured.restrictions
        ]
        self._threads = threads
        self._locks: KeyLocks[SessionKey] = KeyLocks()
        self._warned: dict[str, None] = {}

    async def list(self, who: JID) -> tuple[Persona, ...]:
        """The personas that somebody may choose, by id. A damaged package is left out, with a
        warning. Raises MemoryStoreError.
        """
        names = await to_thread.run_sync(self._names, limiter=self._threads)
        found = await self._texts.gather(
            names, lambda look: [self._package(look, name) for name in names]
        )
        return tuple(each for each in found if each is not None and self._admits(each, who))

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
        persona = None if chosen is None else _named(chosen, await self.list(who))
        async with self._locks.hold(key):
            await to_thread.run_sync(self._keep, key, persona, limiter=self._threads)
        return await self.active(agent, who) if persona is None else persona

    async def fault(self, name: str) -> str | None:
        """Why nobody can have the persona of this id, in a sentence; None if it is whole. For who
        looks whether the settings can be kept to. Raises MemoryStoreError.
        """
        if _ID.fullmatch(name) is None:
            return f"{name!r} is no id: small letters, digits, dots, hyphens and underscores."
        manifest = self._layout.personas / name / _MANIFEST
        parsed = await self._texts.gather(("fault", name), lambda look: self._read(look, manifest))
        if parsed is None:
            return f"There is no {manifest}."
        return f"{manifest}: {parsed}" if isinstance(parsed, str) else None

    def _active(self, look: Look, key: SessionKey) -> Persona | None:
        if "/" in key.agent:
            return None
        folder = self._layout.folder(key)
        if look.folder(folder):
            chosen = (look.text(folder / _CHOICE) or "").strip()
            if chosen and (persona := self._allowed(look, chosen, key.who)) is not None:
                return persona
        default = self._defaults.get(key.agent)
        return self._allowed(look, default, key.who) if default else None

    def _allowed(self, look: Look, name: str, who: JID) -> Persona | None:
        persona = self._package(look, name) if _ID.fullmatch(name) else None
        if persona is None:
            self._warn("a persona that was chosen is not there", persona=name, who=str(who))
        elif not self._admits(persona, who):
            self._warn("a persona that was chosen is not allowed", persona=name, who=str(who))
            persona = None
        return persona

    def _package(self, look: Look, name: str) -> Persona | None:
        path = self._layout.personas / name / _MANIFEST
        parsed = self._read(look, path)
        if isinstance(parsed, str):
            self._warn("a persona cannot be used", file=str(path), why=parsed)
            return None
        return parsed

    def _read(self, look: Look, path: Path) -> Persona | str | None:
        """What a manifest says; a text says what is wrong with it. None if there is none."""
        try:
            text = look.text(path, linked=True)
        except MemoryStoreError as error:
            return str(error)
        return None if text is None else _parse(path.parent, text)

    def _admits(self, persona: Persona, who: JID) -> bool:
        address = str(who.bare)
        if persona.allowed_jids and not pattern(persona.allowed_jids).fullmatch(address):
            return False
        for people, allowed in self._restrictions:
            if people.fullmatch(address):
                return allowed.fullmatch(persona.id) is not None
        return True

    def _warn(self, event: str, **values: str) -> None:
        told = repr((event, values))
        if told not in self._warned:
            if len(self._warned) >= _WARNED:
                self._warned.clear()
            self._warned[told] = None
            log.warning(event, **values)

    # In worker threads.

    def _names(self) -> tuple[str, ...]:
        with files.explained(self._layout.personas, "read"):
            try:
                return tuple(
                    each.name
                    for each in sorted(self._layout.personas.iterdir())
                    if each.name[0] != "." and each.is_dir()
                )
            except FileNotFoundError:
                return ()

    def _keep(self, key: SessionKey, persona: Persona | None) -> None:
        folder = self._layout.folder(key)
        if persona is not None:
            files.make_folder(self._layout.root, folder)
            files.replace(folder / _CHOICE, f"{persona.id}\n".encode())
        elif files.check_folder(self._layout.root, folder):
            files.remove(folder / _CHOICE)


def _parse(folder: Path, text: str) -> Persona | str:
    """Read a manifest; a text says what is wrong with it."""
    try:
        manifest = msgspec.toml.decode(text, type=_Manifest).persona
        allowed = tuple(map(settings.jid_pattern, manifest.restrictions.allowed_jids))
    except PydanticCustomError as error:
        return f"An entry of allowed_jids {error}."
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        return f"{error}."
    if _ID.fullmatch(manifest.id) is None:
        return f"Its id {manifest.id!r} is not made of small letters, digits, dots and hyphens."
    if _UNSEEN.search(manifest.name + manifest.description + manifest.icon):
        return "Its name, description or icon holds control characters, which nobody can be shown."
    if manifest.id != folder.name:
        return f"Its id is {manifest.id!r} and its directory {folder.name!r}. Name them alike."
    return Persona(
        id=manifest.id,
        name=manifest.name or manifest.id,
        folder=folder,
        description=manifest.description,
        icon=manifest.icon,
        tier=manifest.defaults.tier,
        skills=manifest.defaults.skills,
        allowed_jids=allowed,
        max_tokens_per_message=manifest.restrictions.max_tokens_per_message,
    )


def _named(chosen: str, offered: tuple[Persona, ...]) -> Persona:
    wanted = chosen.strip().casefold()
    by_name = {each.name.casefold(): each for each in reversed(offered)}
    found = {**by_name, **{each.id: each for each in offered}}.get(wanted)
    if found is not None:
        return found
    there = f"There are: {', '.join(each.id for each in offered)}." if offered else ""
    raise PersonaError(f"There is no persona {chosen.strip()!r} for you. {there}".strip())
