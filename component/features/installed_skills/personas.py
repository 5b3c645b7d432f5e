"""Personas that were proposed. One that an admin has approved is a package for everybody.

An approval is for one text, which it stores; the package is made from that text. So whatever
happens to the proposal, people get what was approved, on all instances that share the database.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec
import structlog

from component import system
from component.audit.protocol import Recorder
from component.features.installed_skills.commands import (
    PERSONA_KIND,
    Installed,
    InstalledError,
    InstalledSkill,
    Present,
    SkillSheet,
    compared,
    decisions,
    has_changed,
    is_approved,
    is_proposal,
    not_there,
    state_of,
)
from component.memory_directory import files
from component.memory_directory.files import MemoryStoreError
from component.memory_directory.layout import Layout
from component.personas.packages import (
    MANIFEST,
    PersonaError,
    PersonaText,
    files_of,
    imported,
    rights_of,
)
from component.skill_directories.approvals import Approval, Approvals
from component.skill_directories.proposals import (
    PERSONA,
    PERSONA_FILE,
    PackageFolder,
    Proposal,
    ProposalFolder,
    persona_digest,
)
from component.store.outages import log_failure
from component.store.storage import Storage

_log = structlog.get_logger("component.skills")

_MOST_BYTES: Final = 1 << 17


class ProposedPersona(msgspec.Struct, frozen=True, kw_only=True):
    """A proposal as it is now; `persona` is None if it cannot be used, and `problem` says why."""

    directory: Path
    proposal: Proposal
    text: str = ""
    persona: PersonaText | None = None
    problem: str = ""

    @property
    def present(self) -> Present:
        """What there is to approve."""
        digest = "" if self.persona is None else persona_digest(self.text)
        return Present(digest, self.problem, self.proposal)


class ProposedPersonas(Installed):
    """The proposed personas, and what admins do with them.

    Args:
        folder: the directory of all proposals.
        layout: says where the packages are.
    """

    def __init__(
        self, folder: ProposalFolder, layout: Layout, storage: Storage, recorder: Recorder
    ) -> None:
        super().__init__(recorder)
        self._folder = folder
        self._packages = PackageFolder(layout.approved_personas)
        self._of_operator = layout.personas
        self._stored = Approvals(storage, "persona")
        self._changing = anyio.Lock()

    async def reload(self, _names: Collection[str] | None) -> None:
        """Make the packages that are approved, and delete those that are not any more. Raises
        StorageError; problems of the disk are logged.
        """
        async with self._changing:
            try:
                await self._update()
            except MemoryStoreError as error:
                log_failure(_log, "approved personas cannot be written", error)

    async def _update(self) -> None:
        wanted = {
            one.name.removeprefix(PERSONA): one.text
            for one in await self._stored.all()
            if one.counts
        }
        await system.in_thread(self._make_packages, wanted)

    def _make_packages(self, wanted: Mapping[str, str]) -> None:
        """Make exactly these packages. Blocks."""
        there = self._packages.names()
        if not there and not wanted:
            return
        with files.explained(self._packages.path(""), "changed"):
            self._packages.recover()
            for id_ in there - wanted.keys():
                self._packages.remove(id_)
            for id_, text in wanted.items():
                try:
                    package = files_of(imported(text))
                except PersonaError as error:  # another release has approved it
                    _log.warning("a persona cannot be used", persona=id_, reason=str(error))
                    continue
                if not _has_files(self._packages.path(id_), package):
                    self._packages.put(id_, package)

    # What admins do.

    async def knows(self, name: str) -> bool:
        """See `Installed`."""
        if not name.startswith(PERSONA):
            return False
        found, approvals = await self._all()
        return name in found or name in approvals

    async def list(self) -> Sequence[InstalledSkill]:
        """Return the proposed personas, and those that are approved, by name."""
        found, approvals = await self._all()

        def entries() -> list[InstalledSkill]:
            return [
                self._entry(name, found.get(name), approvals.get(name))
                for name in sorted({*found, *approvals})
            ]

        return await system.in_thread(entries)

    async def show(self, name: str) -> SkillSheet:
        """See `Installed`."""
        found, approvals = await self._all()
        if name not in found and name not in approvals:
            raise not_there(name)
        return await system.in_thread(self._sheet, name, found.get(name), approvals.get(name))

    async def approve(
        self, name: str, by: str, *, digest: str = "", trusted: bool = False
    ) -> SkillSheet:
        """See `Installed`. A text that changes meanwhile is not approved."""
        async with self._changing:
            found, _ = await self._all()
            one = found.get(name)
            if one is None:
                raise not_there(name, "proposed")
            if one.persona is None:
                raise InstalledError(f"{name} cannot be approved: {one.problem}")
            if trusted or not digest:
                raise is_proposal(name)
            present = one.present.digest
            if not present.startswith(digest):
                raise has_changed(name, present)
            if problem := await system.in_thread(self._problem, name):
                raise InstalledError(f"{name} cannot be approved: {problem}")
            approval = Approval(
                *(name, present, str(one.directory), one.text, one.persona.description),
                trusted=False,
                approved_by=by,
            )
            await self._stored.put(approval)
            detail = ", ".join((present[:16], *rights_of(one.persona)))
            self._record(by, name, "approved", detail)
            await self._update()
        return await self.show(name)

    async def revoke(self, name: str, by: str) -> SkillSheet:
        """See `Installed`. Those who have chosen the persona get the default one."""
        async with self._changing:
            if not await self._stored.revoke(name, by):
                raise not_there(name, "approved")
            self._record(by, name, "revoked")
            await self._update()
        return await self.show(name)

    async def reject(self, name: str, by: str) -> None:
        """See `Installed`."""
        async with self._changing:
            found, approvals = await self._all()
            approval = approvals.get(name)
            if name not in found:
                raise not_there(name, "proposed")
            if approval is not None and approval.counts:
                raise is_approved(name)
            await system.in_thread(shutil.rmtree, found[name].directory)
            self._record(by, name, "rejected")

    async def _all(self) -> tuple[Mapping[str, ProposedPersona], Mapping[str, Approval]]:
        """Return the proposals and the approvals, by name. Raises StorageError."""
        found = await system.in_thread(proposed_personas, self._folder)
        return found, {one.name: one for one in await self._stored.all()}

    # In worker threads.

    def _entry(
        self, name: str, found: ProposedPersona | None, approval: Approval | None
    ) -> InstalledSkill:
        where = found or approval
        assert where is not None, "it is proposed or approved"
        state, reason = state_of(None if found is None else found.present, approval, "")
        if found is None and approval is not None and approval.counts:
            state, reason = "offered", "its proposal is gone"
        if state == "offered":
            problem = self._problem(name)
            state, reason = ("failed", problem) if problem else (state, reason)
        return InstalledSkill(
            name=name, state=state, kind=PERSONA_KIND, directory=str(where.directory), reason=reason
        )

    def _sheet(
        self, name: str, found: ProposedPersona | None, approval: Approval | None
    ) -> SkillSheet:
        before: Sequence[str] = ()
        if approval is not None:
            try:
                before = rights_of(imported(approval.text))
            except PersonaError as error:
                raise InstalledError(
                    f"The approved text of {name} cannot be read: {error}"
                ) from None
        more: dict[str, Any] = {"capabilities": tuple(before)}
        if found is not None:
            present = found.present
            more = {
                "digest": present.digest,
                "source": f"----- {PERSONA_FILE}\n{found.text.rstrip()}",
            }
            if found.persona is not None:
                more |= compared(rights_of(found.persona), before)
                more["description"] = found.persona.description
                more["proposed"] = found.proposal.sentences(present.digest)
        entry = self._entry(name, found, approval)
        return SkillSheet(**msgspec.structs.asdict(entry), **decisions(approval), **more)

    def _problem(self, name: str) -> str:
        """Return why a persona is not offered although it is approved; empty if it is."""
        path = self._of_operator / name.removeprefix(PERSONA)
        if files.state_of(path / MANIFEST) is None:
            return ""
        return f"{path} has a persona of that id: remove or rename one of them"


def proposed_personas(folder: ProposalFolder) -> Mapping[str, ProposedPersona]:
    """Return the personas among proposals, by name. Blocks. Raises MemoryStoreError."""
    with files.explained(folder.path(""), "read"):
        records = {name: one for name, one in folder.all().items() if name.startswith(PERSONA)}
        return {
            name: _proposed(folder.path(name), name, record) for name, record in records.items()
        }


def _proposed(directory: Path, name: str, proposal: Proposal) -> ProposedPersona:
    try:
        with (directory / PERSONA_FILE).open("rb") as file:
            text = file.read(_MOST_BYTES).decode()
        persona = imported(text)
    except (OSError, UnicodeError, PersonaError) as error:
        problem = str(error) if isinstance(error, PersonaError) else f"{PERSONA_FILE}: {error}"
        return ProposedPersona(directory=directory, proposal=proposal, problem=problem)
    if persona.id != name.removeprefix(PERSONA):
        problem = f"Its id is {persona.id!r}, which is not that of its directory."
        return ProposedPersona(directory=directory, proposal=proposal, problem=problem)
    return ProposedPersona(directory=directory, proposal=proposal, text=text, persona=persona)


def _has_files(directory: Path, package: Mapping[str, str]) -> bool:
    """Whether a directory has exactly these files. Blocks. Raises OSError."""
    if not directory.is_dir() or {path.name for path in directory.iterdir()} != package.keys():
        return False
    return all((directory / name).read_bytes() == text.encode() for name, text in package.items())


def waiting_personas(proposals: Path, memory: Path) -> Sequence[str]:
    """Return the names of proposed personas that are not approved, with who has proposed them.
    Blocks. Raises MemoryStoreError.
    """
    approved = Layout(memory).approved_personas
    with files.explained(approved, "read"):
        return [
            f"{name} (by {one.proposal.principal})"
            for name, one in proposed_personas(ProposalFolder(proposals)).items()
            if one.persona is not None
            and not _has_files(approved / one.persona.id, files_of(one.persona))
        ]
