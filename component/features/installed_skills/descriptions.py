"""Descriptions of skills by others: which may be offered, and what admins do with the rest.

The first offer of a source to a data directory is approved with its section in the settings. Later,
a new skill waits for an admin, and so does one whose description has changed. Until the admin
approves it, a skill whose texts alone have changed is offered with the texts that were approved,
and any other is not offered. What is approved is the description in canonical JSON, by its digest.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import os
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec
import structlog
from anyio.abc import TaskStatus

from component import system
from component.audit.protocol import Recorder
from component.config import Settings
from component.features.installed_skills import rows as described
from component.features.installed_skills.commands import (
    Installed,
    InstalledError,
    InstalledSkill,
    SkillSheet,
    SkillState,
    at_by,
    has_changed,
    not_there,
)
from component.features.installed_skills.rows import DescriptionRow
from component.kernel.check import Check
from component.policy.flows import TRUSTED
from component.private import FILE_MODE
from component.skills.errors import DeclarationError, DuplicateSkillError, SkillLoadError
from component.skills.inputs import schema_inputs
from component.skills.registry import Entry
from component.skills.skill import Skill
from component.skills.sources import Offer, SkillSource
from component.store.errors import StorageError, explained
from component.store.storage import Storage, peek

_TEXTS: Final = ("title", "description", "tags", "examples")
_SCHEMAS: Final = ("input_schema", "output_schema")
_TEXTS_OF_SCHEMAS: Final = ("title", "description", "$comment")


def content_of(skill: Skill) -> str:
    """Return everything that a source says about a skill, in canonical JSON (RFC 8785).

    Raises ValueError for a description that has no canonical form, such as one with a number that
    JavaScript could not read.
    """
    import rfc8785  # noqa: PLC0415 - only where others describe skills

    fields = {name: getattr(skill, name) for name in (*_TEXTS, *_SCHEMAS, "claims")}
    try:
        return rfc8785.dumps(fields).decode()
    except (rfc8785.CanonicalizationError, RecursionError) as error:
        raise ValueError(str(error)) from None


def description_digest(content: str) -> str:
    """Return the SHA-256 of a content, in hexadecimal digits."""
    return hashlib.sha256(content.encode()).hexdigest()


def as_approved(skill: Skill, content: str, approved: str) -> Skill | None:
    """Return a skill with the texts that were approved, if nothing but texts has changed since."""
    before, now = msgspec.json.decode(approved), msgspec.json.decode(content)
    if _without_texts(before) != _without_texts(now):
        return None
    texts: dict[str, Any] = {name: before[name] for name in (*_TEXTS, *_SCHEMAS)}
    texts |= {name: tuple(texts[name]) for name in ("tags", "examples")}
    try:
        inputs = schema_inputs(before["input_schema"], adds_defaults=False)
        return dataclasses.replace(skill, **texts, inputs=inputs)
    except DeclarationError:  # an earlier release has approved it
        return None


def _without_texts(content: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _schema_without_texts(value) for name, value in content.items() if name not in _TEXTS
    }


def _schema_without_texts(node: Any) -> Any:
    if isinstance(node, dict):
        return {
            key: _schema_without_texts(value)
            for key, value in node.items()
            if not (key in _TEXTS_OF_SCHEMAS and isinstance(value, str))
        }
    return list(map(_schema_without_texts, node)) if isinstance(node, list) else node


def difference(before: str, now: str) -> str:
    """Return what has changed between two contents, line by line, or all of one if the other is
    empty. Characters that cannot be seen are escaped.
    """
    old, new = _lines(before), _lines(now)
    if not (old and new):
        return "\n".join(new or old)
    return "\n".join(list(difflib.unified_diff(old, new, n=2, lineterm=""))[2:])


def _lines(content: str) -> list[str]:
    lines: list[str] = []
    for name, value in msgspec.json.decode(content or "{}").items():
        if value in ("", [], {}, None):
            continue
        encoded = msgspec.json.format(msgspec.json.encode(value), indent=2)
        text = value if isinstance(value, str) else encoded.decode()
        lines += [f"{name}:", *(f"  {_visible(line)}" for line in text.split("\n"))]
    return lines


def _visible(line: str) -> str:
    if line.isprintable():
        return line
    return "".join(
        char if char.isprintable() else f"\\u{ord(char):04x}" for char in line.replace("\t", "    ")
    )


_log = structlog.get_logger("component.features.installed_skills")

_NAMES_SHOWN: Final = 10
SEEN_FILE: Final = "described-sources"


class SeenSources:
    """The names of the sources that have made an offer, in a file with one in each line. Methods
    block, and raise StorageError.

    The database has their descriptions. It may be replaced by a new one or an older copy. Then the
    file shows that a source has made an offer before, so that its skills wait for an approval
    instead of being approved as a first offer.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / SEEN_FILE

    def has(self, source: str) -> bool:
        """Return whether a source has made an offer."""
        return source in self._names()

    def add(self, source: str) -> None:
        """Note that a source has made an offer."""
        if self.has(source):
            return
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        with explained(self._path), os.fdopen(os.open(self._path, flags, FILE_MODE), "ab") as file:
            file.write(f"{source}\n".encode())
            file.flush()
            os.fsync(file.fileno())

    def _names(self) -> list[str]:
        with explained(self._path):
            try:
                return self._path.read_text("utf-8", "replace").splitlines()
            except FileNotFoundError:
                return []


def waiting_sentence(source: str, names: Sequence[str]) -> str:
    """Return one sentence for admins about skills whose descriptions wait for an approval."""
    more = len(names) - _NAMES_SHOWN
    shown = ", ".join(names[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
    return (
        f"The source {source} has new or changed descriptions, which wait for an approval: {shown}."
        " Read them with `xmpp-agent skills show NAME`."
    )


def waiting_in(rows: Sequence[DescriptionRow]) -> Sequence[str]:
    """Return a sentence for each source of which rows wait for an approval."""
    sources = dict.fromkeys(row.source for row in rows if row.held)
    return [
        waiting_sentence(source, [row.skill for row in rows if row.source == source and row.held])
        for source in sources
    ]


class Descriptions(Installed):
    """What admins do with the descriptions of skills that the operator has not written.

    Args:
        hold_first: whether the first offer of a source waits for an approval, too.
    """

    def __init__(
        self,
        storage: Storage,
        sources: Collection[str],
        recorder: Recorder,
        tell: Callable[[str], None] = lambda _sentence: None,
        *,
        hold_first: bool = False,
    ) -> None:
        super().__init__(recorder)
        self.sources = frozenset(sources)
        self._storage = storage
        self._seen = SeenSources(storage.directory)
        self._tell = tell
        self._hold_first = hold_first
        self._offer_again: dict[str, Callable[[], None]] = {}
        self._there: dict[str, frozenset[str]] = {}
        """The names of the skills that each source has now."""
        self._waiting: dict[str, Sequence[DescriptionRow]] = {}

    def describe(self, sources: Collection[str]) -> None:
        """Pin these sources from now on, in place of those before."""
        self.sources = frozenset(sources)
        self._there = {name: self._there[name] for name in self.sources & self._there.keys()}
        self._waiting = {name: self._waiting[name] for name in self.sources & self._waiting.keys()}

    def pin(self, source: SkillSource) -> SkillSource:
        """Return the source that is run in place of one: the same unless it is described here."""
        return PinnedSource(source, self) if source.name in self.sources else source

    def follow(self, source: str, offer_again: Callable[[], None]) -> None:
        """Call `offer_again`, which must not wait, when an approval of a source has changed."""
        self._offer_again[source] = offer_again

    def warnings(self) -> Sequence[str]:
        """Return a sentence for each source whose descriptions wait for an approval."""
        return waiting_in([row for rows in self._waiting.values() for row in rows])

    def held_sources(self) -> Sequence[str]:
        """Return the names of the sources of which descriptions wait for an approval."""
        return [source for source, held in self._waiting.items() if held]

    async def admit(self, source: str, skills: Sequence[Skill]) -> Sequence[Skill]:
        """Return what may be offered of the skills that a source has now. Raises StorageError."""
        # In a thread: a server may list hundreds of tools with large schemas.
        contents = await system.in_thread(_contents, source, skills)
        hold_first = self._hold_first or await system.in_thread(self._seen.has, source)
        rows = await described.offered(self._storage, source, contents, hold_first=hold_first)
        if contents:
            await system.in_thread(self._seen.add, source)
        self._there[source] = frozenset(contents)
        self._say(source, rows)
        return await system.in_thread(_admitted, skills, contents, rows)

    def _say(self, source: str, rows: Mapping[str, DescriptionRow]) -> None:
        before = {row.skill for row in self._waiting.get(source, ())}
        self._waiting[source] = [row for row in rows.values() if row.held]
        new = [row for row in self._waiting[source] if row.skill not in before]
        for sentence in waiting_in(new):
            _log.warning(
                "descriptions wait for an approval",
                source=source,
                skills=[row.skill for row in new],
            )
            self._tell(sentence)

    async def reload(self, sources: Collection[str] | None) -> None:
        """Offer again what other instances may have approved or revoked."""
        for source, offer_again in self._offer_again.items():
            if sources is None or source in sources:
                offer_again()

    # What admins do.

    async def knows(self, name: str) -> bool:
        """Whether a skill is described by one of the sources."""
        return any(row.skill == name for row in await self._all())

    async def list(self) -> Sequence[InstalledSkill]:
        """See `Installed`."""
        return [InstalledSkill(**self._short(row)) for row in await self._all()]

    async def show(self, name: str) -> SkillSheet:
        """Return the description of a skill, and how it differs from the approved one."""
        row = await self._row(name)
        return await system.in_thread(_sheet, row, self._short(row))

    async def approve(
        self, name: str, by: str, *, digest: str = "", trusted: bool = False
    ) -> SkillSheet:
        """Approve the description of a skill that has this digest, and offer it."""
        row = await self._row(name)
        if trusted or not digest:
            raise InstalledError(
                f"{name} is described by {row.source}: it is approved with the digest of what you"
                f" have read (--digest): see `skills show {name}`."
            )
        content = row.held or row.approved
        if not description_digest(content).startswith(digest) or (
            row.held
            and not await self._storage.write(lambda database: described.approve(database, row, by))
        ):
            raise has_changed(name, description_digest(content))
        self._record(by, name, "approved", f"{description_digest(content)[:16]}, {row.source}")
        await self.reload((row.source,))
        return await self.show(name)

    async def revoke(self, name: str, by: str) -> SkillSheet:
        """See `Installed`."""
        row = await self._row(name)
        if not row.approved:
            raise not_there(name, "approved")
        await self._storage.write(lambda database: described.revoke(database, row))
        self._record(by, name, "revoked", row.source)
        await self.reload((row.source,))
        return await self.show(name)

    async def reject(self, name: str, by: str) -> None:
        """Raise InstalledError: there is nothing to delete here."""
        raise InstalledError(
            f"{name} is not a proposal: {(await self._row(name)).source} has it. It is not offered"
            " until it is approved."
        )

    async def _all(self) -> Sequence[DescriptionRow]:
        rows = await self._storage.read(described.all_rows)
        return [row for row in rows if row.source in self.sources]

    async def _row(self, name: str) -> DescriptionRow:
        found = [row for row in await self._all() if row.skill == name]
        if not found:
            raise not_there(name)
        return next((row for row in found if row.held), found[0])

    def _short(self, row: DescriptionRow) -> dict[str, Any]:
        """Return the fields of a list."""
        state, reason = self._state(row)
        return {"name": row.skill, "state": state, "kind": row.source, "reason": reason}

    def _state(self, row: DescriptionRow) -> tuple[SkillState, str]:
        there = self._there.get(row.source)
        if there is not None and row.skill not in there:
            return "missing", f"{row.source} does not have it now"
        if not row.held:
            return "offered", ""
        if not row.approved:
            return "waiting", f"described by {row.source}; no admin has approved it"
        return "changed", f"{row.source} describes it differently now"


def _is_own(skill: Skill) -> bool:
    """Return whether the operator has described a skill, or trusts who has."""
    return skill.described_by in (None, *TRUSTED)


def _contents(source: str, skills: Sequence[Skill]) -> Mapping[str, str]:
    """Return the contents to approve, by the names of skills. Blocks."""
    contents: dict[str, str] = {}
    for one in skills:
        if not _is_own(one):
            try:
                contents[one.name] = content_of(one)
            except ValueError as error:
                _log.warning(
                    "a skill cannot be offered", source=source, skill=one.name, reason=str(error)
                )
    return contents


def _admitted(
    skills: Sequence[Skill], contents: Mapping[str, str], rows: Mapping[str, DescriptionRow]
) -> Sequence[Skill]:
    """Return what may be offered of some skills. Blocks."""
    admitted: list[Skill | None] = []
    for one in skills:
        content, row = contents.get(one.name), rows.get(one.name)
        if _is_own(one):
            admitted.append(one)
        elif content is not None and row is not None and row.approved:
            same = row.approved == content
            admitted.append(one if same else as_approved(one, content, row.approved))
    return [one for one in admitted if one is not None]


def _sheet(row: DescriptionRow, short: Mapping[str, Any]) -> SkillSheet:
    return SkillSheet(
        **short,
        digest=description_digest(row.held or row.approved),
        approved=at_by(row.approved_by, row.approved_at) if row.approved else "",
        source=difference(row.approved, row.held),
    )


class PinnedSource(TaskStatus[None]):
    """A source whose skills are offered with the descriptions that were approved."""

    def __init__(self, source: SkillSource, descriptions: Descriptions) -> None:
        self.name = source.name
        self._source = source
        self._descriptions = descriptions
        self._skills: Sequence[Skill] | None = None
        self._started = False
        self._changed = anyio.Event()

    def __eq__(self, other: object) -> bool:
        """Return whether the other one offers the skills of the same source in the same way."""
        return (
            isinstance(other, PinnedSource)
            and self._source == other._source
            and self._descriptions is other._descriptions
        )

    __hash__ = None  # type: ignore[assignment]  # neither are most sources

    async def run(self, offer: Offer, *, task_status: TaskStatus[None]) -> None:
        """See `SkillSource`."""
        self._started = False
        self._descriptions.follow(self.name, self._changed_now)
        failed: list[SkillLoadError] = []

        async def stop_at_failure(run: Callable[[], Awaitable[None]]) -> None:
            try:
                await run()
            except SkillLoadError as error:
                failed.append(error)
            except StorageError as error:
                failed.append(SkillLoadError(str(error)))
            group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(stop_at_failure, lambda: self._offer_changes(offer, task_status))
            group.start_soon(
                stop_at_failure, lambda: self._source.run(self._note, task_status=self)
            )
        if failed:
            raise failed[0]

    async def _offer_changes(self, offer: Offer, task_status: TaskStatus[None]) -> None:
        while True:
            await self._changed.wait()
            self._changed = anyio.Event()
            started = self._started
            if self._skills is not None:
                offer(await self._descriptions.admit(self.name, self._skills))
            if started:
                task_status.started()

    def _note(self, skills: Sequence[Entry], part: str = "") -> Sequence[DuplicateSkillError]:
        del part  # sources whose skills an admin approves have neither parts nor catalogues
        self._skills = [one for one in skills if isinstance(one, Skill)]
        self._changed_now()
        return ()

    def started(self, value: None = None) -> None:
        """Note that the source has started."""
        self._started = True
        self._changed_now()

    def _changed_now(self) -> None:
        self._changed.set()


def check_descriptions(settings: Settings) -> Check | None:
    """Whether descriptions of skills by others wait for an approval; None if none do. Blocks."""
    if not settings.described_sources:
        return None
    postgres = settings.storage.postgres.get_secret_value()
    try:
        rows = peek(settings.storage.path, postgres, described.all_rows) or ()
    except StorageError:
        return None  # the check of the storage says why
    warnings = waiting_in([row for row in rows if row.source in settings.described_sources])
    return Check("descriptions", "warning", "\n".join(warnings)) if warnings else None
