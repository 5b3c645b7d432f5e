"""Which descriptions of skills may be offered, and what admins do with the others.

The first offer of a source to a data directory is approved with its section in the settings. Later,
a new skill waits for an admin, and so does one whose description has changed. Until the admin
approves it, a skill whose texts alone have changed is offered with the texts that were approved,
and any other is not offered.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

import structlog

from component import system
from component.audit.protocol import AuditEvent, NoRecord, Recorder
from component.features.installed_skills.description_content import (
    as_approved,
    content_of,
    difference,
    digest_of,
)
from component.features.installed_skills.rows import DescriptionRows, Row
from component.features.installed_skills.seen_sources import SeenSources
from component.features.installed_skills.sheets import (
    InstalledError,
    InstalledSkill,
    SkillSheet,
    State,
    at_by,
)
from component.policy.flows import TRUSTED
from component.skills.skill import Skill

_log = structlog.get_logger("component.features.installed_skills")

_NAMES_SHOWN: Final = 10


def waiting_sentence(source: str, names: Sequence[str]) -> str:
    """Return one sentence for admins about skills whose descriptions wait for an approval."""
    more = len(names) - _NAMES_SHOWN
    shown = ", ".join(names[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
    return (
        f"The source {source} has new or changed descriptions, which wait for an approval: {shown}."
        " Read them with `xmpp-agent skills show NAME`."
    )


def waiting_in(rows: Sequence[Row]) -> Sequence[str]:
    """Return a sentence for each source of which rows wait for an approval."""
    sources = dict.fromkeys(row.source for row in rows if row.held)
    return [
        waiting_sentence(source, [row.skill for row in rows if row.source == source and row.held])
        for source in sources
    ]


class Descriptions:
    """What admins do with the descriptions of skills that the operator has not written.

    Args:
        rows: the descriptions in the database.
        sources: the names of the sources.
        seen: knows which sources have made an offer, also if the database is a new one.
        recorder: records approvals.
        tell: sends the admins a message.
        hold_first: whether the first offer of a source waits for an approval, too.
    """

    def __init__(
        self,
        rows: DescriptionRows,
        sources: Collection[str],
        seen: SeenSources,
        recorder: Recorder = NoRecord(),  # noqa: B008 - it holds nothing
        tell: Callable[[str], None] = lambda _sentence: None,
        *,
        hold_first: bool = False,
    ) -> None:
        self.sources = frozenset(sources)
        self._rows = rows
        self._seen = seen
        self._recorder = recorder
        self._tell = tell
        self._hold_first = hold_first
        self._offer_again: dict[str, Callable[[], None]] = {}
        self._there: dict[str, frozenset[str]] = {}
        """The names of the skills that each source has now."""
        self._waiting: dict[str, Sequence[Row]] = {}

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
        rows = await self._rows.offered(source, contents, hold_first=hold_first)
        if contents:
            await system.in_thread(self._seen.add, source)
        self._there[source] = frozenset(contents)
        self._say(source, rows)
        return await system.in_thread(_admitted, skills, contents, rows)

    def _say(self, source: str, rows: Mapping[str, Row]) -> None:
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

    # What admins do: `component.features.installed_skills.commands.Installed`.

    async def knows(self, name: str) -> bool:
        """Whether a skill is described by one of the sources. Raises StorageError."""
        return any(row.skill == name for row in await self._all())

    async def list(self) -> Sequence[InstalledSkill]:
        """Return the skills of the sources. Raises StorageError."""
        return [_listed(row, self._state(row)) for row in await self._all()]

    async def show(self, name: str) -> SkillSheet:
        """Return the description of a skill, and how it differs from the approved one.

        Raises InstalledError, StorageError.
        """
        row = await self._row(name)
        return await system.in_thread(_sheet, row, self._state(row))

    async def approve(
        self, name: str, by: str, *, digest: str = "", trusted: bool = False
    ) -> SkillSheet:
        """Approve the description of a skill that has this digest, and offer it.

        Raises InstalledError, StorageError.
        """
        row = await self._row(name)
        if trusted or not digest:
            raise InstalledError(
                f"{name} is described by {row.source}: it is approved with the digest of what you"
                f" have read (--digest): see `skills show {name}`."
            )
        content = row.held or row.approved
        if not digest_of(content).startswith(digest) or (
            row.held and not await self._rows.approve(row, by)
        ):
            raise InstalledError(
                f"{name} has changed: its digest is {digest_of(content)}. Look at it again before"
                " you approve it."
            )
        self._record(by, name, "approved", f"{digest_of(content)[:16]}, {row.source}")
        await self.reload((row.source,))
        return await self.show(name)

    async def revoke(self, name: str, by: str) -> SkillSheet:
        """Revoke the approval of a skill: it is not offered any more.

        Raises InstalledError, StorageError.
        """
        row = await self._row(name)
        if not row.approved:
            raise InstalledError(f"No skill called {name!r} is approved. See `skills list`.")
        await self._rows.revoke(row)
        self._record(by, name, "revoked", row.source)
        await self.reload((row.source,))
        return await self.show(name)

    async def reject(self, name: str, by: str) -> None:
        """Raise InstalledError: there is nothing to delete here."""
        raise InstalledError(
            f"{name} is not a proposal: {(await self._row(name)).source} has it. It is not offered"
            " until it is approved."
        )

    async def _all(self) -> Sequence[Row]:
        return [row for row in await self._rows.all() if row.source in self.sources]

    async def _row(self, name: str) -> Row:
        found = [row for row in await self._all() if row.skill == name]
        if not found:
            raise InstalledError(f"No skill called {name!r} is installed. See `skills list`.")
        return next((row for row in found if row.held), found[0])

    def _state(self, row: Row) -> tuple[State, str]:
        there = self._there.get(row.source)
        if there is not None and row.skill not in there:
            return "missing", f"{row.source} does not have it now"
        if not row.held:
            return "offered", ""
        if not row.approved:
            return "waiting", f"described by {row.source}; no admin has approved it"
        return "changed", f"{row.source} describes it differently now"

    def _record(self, by: str, name: str, outcome: str, detail: str) -> None:
        self._recorder.record(
            AuditEvent(
                kind="capability", outcome=outcome, principal=by, subject=name, detail=detail
            )
        )


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
    skills: Sequence[Skill], contents: Mapping[str, str], rows: Mapping[str, Row]
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


def _listed(row: Row, state: tuple[State, str]) -> InstalledSkill:
    return InstalledSkill(name=row.skill, state=state[0], kind=row.source, reason=state[1])


def _sheet(row: Row, state: tuple[State, str]) -> SkillSheet:
    """Return everything about a skill. Blocks."""
    return SkillSheet(
        name=row.skill,
        state=state[0],
        kind=row.source,
        reason=state[1],
        digest=digest_of(row.held or row.approved),
        approved=at_by(row.approved_by, row.approved_at) if row.approved else "",
        source=difference(row.approved, row.held),
    )
