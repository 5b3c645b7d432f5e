"""The source of skills that are installed in directories.

Only content that an admin has approved is offered, from a copy that nobody else changes. When files
change, the approved version stays until an admin approves the new one; calls under way end with the
version that they began with. A revoked version ends at once, with its calls.
"""

from __future__ import annotations

import functools
import shutil
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final, Literal, TypeAlias
from weakref import WeakSet

import anyio
import msgspec
import structlog
from anyio.abc import TaskStatus

from component import system
from component.audit.protocol import Recorder
from component.config import Settings
from component.features.installed_skills.commands import (
    Installed,
    InstalledError,
    InstalledSkill,
    SkillSheet,
    has_changed,
    is_approved,
    is_proposal,
    list_entry,
    not_there,
    sheet,
)
from component.kernel.check import Check
from component.skill_directories.approvals import Approval, Approvals
from component.skill_directories.content import (
    APPROVED,
    ContentStore,
    SkillDirectory,
    installed,
    read_roots,
    source_of,
)
from component.skill_directories.version import Runners, Version, new_approval
from component.skills.errors import SkillLoadError
from component.skills.manifest import ManifestError
from component.skills.sources import Offer
from component.store.errors import StorageError
from component.store.outages import log_failure
from component.store.storage import Storage

_log = structlog.get_logger("component.skills")

SETTINGS: Final = "settings"
"""Who approves what the settings approve."""
_LOOK_S: Final = 30.0
"""Seconds between two looks at the directories where no change is reported, as on network file
systems."""

AutoApprove: TypeAlias = Literal["never", "confined", "trusted"]


class SkillDirectories(Installed):
    """Implements `component.skills.sources.SkillSource`, and what admins do with installed skills.

    Args:
        auto_approve: whether every version is approved by the settings.

    Attributes:
        rest_s: seconds after the start before the directories are read: approved skills need none
            of that, and the rest of the start is faster.
    """

    name = "directories"
    rest_s = 2.0

    def __init__(
        self,
        roots: Sequence[Path],
        storage: Storage,
        runners: Runners,
        recorder: Recorder,
        auto_approve: AutoApprove = "never",
    ) -> None:
        super().__init__(recorder)
        self._roots = tuple(root.absolute() for root in roots)
        self._stored = Approvals(storage)
        self._store = ContentStore(storage.directory / APPROVED)
        self._runners = runners
        self._auto = auto_approve
        self._offer: Offer = lambda skills, part="": ()
        self._found: Mapping[Path, SkillDirectory] = {}
        self._approvals: dict[str, Approval] = {}
        self._versions: dict[str, Version] = {}
        """What is offered, by name."""
        self._retired: WeakSet[Version] = WeakSet()
        """What was replaced, as long as a call that has begun, or waits, needs it."""
        self._needed: frozenset[str] = frozenset()
        """Digests of the copies that are needed."""
        self._problems: dict[str, str] = {}
        """Why approved skills are not offered, by name."""
        self._logged: dict[str, str] = {}
        self._refused: dict[str, str] = {}
        """Content that the settings approve and that cannot be loaded, by digest."""
        self._changing = anyio.Lock()
        self._loading = anyio.Lock()

    async def run(self, offer: Offer, *, task_status: TaskStatus[None]) -> None:
        """See `SkillSource`."""
        self._offer = offer
        try:
            async with self._runners.opened():
                await self._load_approvals()
                await self._offer_approved()
                expected = {one.name for one in self._approvals.values() if one.counts}
                if self._auto != "never" or expected - self._versions.keys():
                    await self.look()
                task_status.started()
                await anyio.sleep(self.rest_s)
                await self.look()
                await self.watch()
        except StorageError as error:
            raise SkillLoadError(str(error)) from error

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Read all, for a command without a running service. Raises StorageError."""
        async with self._runners.opened():
            await self._load_approvals()
            await self.look()
            yield

    async def reload(self, _names: Collection[str] | None) -> None:
        """Read the approvals, which other instances may change, again. Raises StorageError."""
        before = dict(self._approvals)
        await self._load_approvals()
        for name, version in self._versions.items():
            if not self._counts(name):  # do not wait until the directories are read
                version.revoke()
        if self._approvals != before:
            await self.look()

    async def watch(self) -> None:
        """Look again when the directories have changed, and from time to time, until cancelled."""
        from component.features.installed_skills.directory_watch import watch  # noqa: PLC0415 - after the start

        await watch(self._roots, _LOOK_S, self._look_again)

    async def _look_again(self) -> None:
        try:
            await self.look()
        except StorageError as error:
            log_failure(_log, "cannot look for changed skills", error)

    async def look(self) -> None:
        """Look at the directories, and offer what is approved. Raises StorageError."""
        async with self._changing:
            work = functools.partial(read_roots, self._roots, self._found)
            self._found, problems = await system.in_thread(work)
            for problem in problems:
                self._warn("", problem)
            if self._auto != "never":
                await self._approve_all()
            await self._update()

    # What admins do.

    async def knows(self, name: str) -> bool:
        """See `Installed`."""
        await self.look()
        return name in self._by_name() or name in self._approvals

    async def list(self) -> Sequence[InstalledSkill]:
        """Return the installed skills, and those that are approved and gone, by name."""
        await self.look()
        by_name = self._by_name()
        names = sorted({*by_name, *self._approvals})
        found = [
            list_entry(name, by_name.get(name), self._approvals.get(name), self._problem(name))
            for name in names
        ]
        shown = {one.directory for one in found}
        twice = [one for one in self._found.values() if str(one.directory) not in shown]
        return [*found, *(self._second(one) for one in twice)]

    async def show(self, name: str) -> SkillSheet:
        """See `Installed`."""
        await self.look()
        found = self._by_name().get(name)
        if found is None or found.proposal is None:
            return self._sheet(name)
        source = await system.in_thread(source_of, found.directory)
        return msgspec.structs.replace(self._sheet(name), source=source)

    def _sheet(self, name: str) -> SkillSheet:
        found, approval = self._by_name().get(name), self._approvals.get(name)
        if found is None and approval is None:
            raise not_there(name)
        try:
            return sheet(list_entry(name, found, approval, self._problem(name)), found, approval)
        except ManifestError as error:
            raise InstalledError(
                f"The approved manifest of {name} cannot be read: {error}"
            ) from None

    async def approve(
        self, name: str, by: str, *, digest: str = "", trusted: bool = False
    ) -> SkillSheet:
        """See `Installed`. Content that changes meanwhile is not approved."""
        await self.look()
        async with self._changing:
            found = self._by_name().get(name)
            if found is None:
                raise not_there(name)
            if found.content is None:
                raise InstalledError(f"{name} cannot be approved: {found.problem}")
            if found.proposal is not None and (trusted or not digest):
                raise is_proposal(name)
            if digest and not found.content.digest.startswith(digest):
                raise has_changed(name, found.content.digest)
            try:
                await self._approve(found, by, trusted=trusted)
            except (SkillLoadError, ManifestError) as error:
                raise InstalledError(f"{name} cannot be approved: {error}") from error
            await self._update()
        return self._sheet(name)

    async def revoke(self, name: str, by: str) -> SkillSheet:
        """See `Installed`. Its calls end."""
        if not await self._stored.revoke(name, by):
            raise not_there(name, "approved")
        self._record(by, name, "revoked")
        if name in self._versions:  # do not wait until another skill has been looked at
            self._versions[name].revoke()
        async with self._changing:
            await self._load_approvals()
            await self._update()
        return self._sheet(name)

    async def reject(self, name: str, by: str) -> None:
        """See `Installed`."""
        await self.look()
        async with self._changing:
            found, approval = self._by_name().get(name), self._approvals.get(name)
            if found is None or found.proposal is None:
                raise not_there(name, "proposed")
            if approval is not None and approval.counts:
                raise is_approved(name)
            await system.in_thread(shutil.rmtree, found.directory)
            self._record(by, name, "rejected")
        await self.look()

    # How it is done. The lock is held.

    async def _load_approvals(self) -> None:
        async with self._loading:  # otherwise older approvals could replace newer ones
            self._approvals = {one.name: one for one in await self._stored.all()}

    async def _offer_approved(self) -> None:
        """Offer what was approved and is installed still, without reading the directories."""
        there, copies = await system.in_thread(self._installed)
        for name, approval in self._approvals.items():
            if approval.counts and approval.digest in copies and approval.directory in there:
                with suppress(ValueError):  # it is described again when it is looked at
                    self._versions[name] = Version(approval, self._store, self._runners)
        self._offer([version.skill for version in self._versions.values()])

    def _installed(self) -> tuple[frozenset[str], frozenset[str]]:
        """Return the installed directories, and the digests of copies. Blocks."""
        there: set[str] = set()
        for root in self._roots:
            with suppress(OSError):
                there.update(map(str, installed(root)))
        return frozenset(there), self._store.names()

    async def _approve(self, found: SkillDirectory, by: str, *, trusted: bool) -> None:
        """Raises SkillLoadError, ManifestError, StorageError."""
        content = await system.in_thread(self._store.add, found.directory)
        assert found.content is not None, "the caller has checked it"
        if content.digest != found.content.digest:
            raise SkillLoadError("its files have changed meanwhile; look at it again.")
        approval = await new_approval(
            content, found.directory, self._store, self._runners, trusted=trusted
        )
        await self._stored.put(msgspec.structs.replace(approval, approved_by=by))
        detail = ", ".join((content.digest[:16], *content.manifest.skill.capabilities.texts))
        self._record(by, approval.name, "approved", detail)
        await self._load_approvals()

    async def _approve_all(self) -> None:
        """Approve what the settings approve: everything that can be loaded."""
        for name, found in self._by_name().items():
            approval, content = self._approvals.get(name), found.content
            if content is None or found.proposal is not None or content.digest in self._refused:
                continue
            trusted = self._auto == "trusted" and content.manifest.skill.execution.kind == "python"
            known = approval is not None and (approval.digest, approval.trusted) == (
                content.digest,
                trusted,
            )
            if known or (approval is not None and approval.revoked_at is not None):
                continue  # an admin who revokes a skill knows better than the settings
            try:
                await self._approve(found, SETTINGS, trusted=trusted)
            except (SkillLoadError, ManifestError) as error:
                self._refused[content.digest] = str(error)

    async def _update(self) -> None:
        """Offer what is approved and installed, and end what was revoked."""
        before, self._versions = self._versions, await self._wanted()
        for taken in self._offer([version.skill for version in self._versions.values()]):
            self._problems[taken.skill] = str(taken)
        self._retire(before)
        self._log_problems(self._by_name())
        await self._delete_copies()

    async def _wanted(self) -> dict[str, Version]:
        """Return the versions that are approved and installed, by name."""
        wanted: dict[str, Version] = {}
        self._problems.clear()
        by_name = self._by_name()
        directories = {str(one.directory) for one in self._found.values() if one.content is None}
        for name, approval in self._approvals.items():
            there = name in by_name or approval.directory in directories
            if not approval.counts or not there:
                continue
            known = self._versions.get(name)
            if known is not None and known.approval == approval:
                wanted[name] = known
                continue
            try:
                await self._ensure_copy(approval, by_name.get(name))
                wanted[name] = Version(approval, self._store, self._runners)
            except (SkillLoadError, ManifestError) as error:
                self._problems[name] = str(error)
            except ValueError:
                self._problems[name] = "another release has approved it; approve it again"
        return wanted

    def _retire(self, before: dict[str, Version]) -> None:
        """Retire the versions that are not offered any more, and end those that were revoked."""
        while before:
            name, version = before.popitem()
            if self._versions.get(name) is version:
                continue
            self._runners.forget(version.approval.digest)
            version.retire()
            if self._counts(name):
                self._retired.add(version)
            else:
                version.revoke()

    def _counts(self, name: str) -> bool:
        approval = self._approvals.get(name)
        return approval is not None and approval.counts

    async def _delete_copies(self) -> None:
        """Delete the copies that an approval or a call has needed until now."""
        before = self._needed
        self._needed = frozenset(
            [one.digest for one in self._approvals.values() if one.counts]
            + [version.approval.digest for version in self._retired]
        )
        dropped = before - self._needed
        await system.in_thread(self._store.clean, self._needed, dropped)

    async def _ensure_copy(self, approval: Approval, found: SkillDirectory | None) -> None:
        """Raise SkillLoadError if the approved content is nowhere."""
        if await system.in_thread(self._store.has, approval.digest):
            return
        content = None if found is None else found.content
        if found is None or content is None or content.digest != approval.digest:
            raise SkillLoadError("its approved files are missing; approve the present ones.")
        await system.in_thread(self._store.add, found.directory)

    def _by_name(self) -> dict[str, SkillDirectory]:
        """Return the installed skills by name; of two with one name, the first counts."""
        found: dict[str, SkillDirectory] = {}
        of_directory = {one.directory: one.name for one in self._approvals.values()}
        for one in self._found.values():
            # One that cannot be read any more is still the skill that was approved there.
            name = one.name
            if one.content is None:
                name = of_directory.get(str(one.directory), name)
            found.setdefault(name, one)
        return found

    def _problem(self, name: str) -> str:
        found = self._by_name().get(name)
        digest = "" if found is None or found.content is None else found.content.digest
        return self._problems.get(name) or self._refused.get(digest, "")

    def _second(self, one: SkillDirectory) -> InstalledSkill:
        first = self._by_name()[one.name].directory
        return InstalledSkill(
            name=one.name,
            state="failed",
            directory=str(one.directory),
            reason=f"{first} has a skill of that name: give one of them another name",
        )

    def _log_problems(self, by_name: Mapping[str, SkillDirectory]) -> None:
        """Log each problem once, until it is over."""
        problems = {
            name: self._problem(name) or found.problem
            for name, found in by_name.items()
            if self._problem(name) or found.problem
        }
        for name, problem in problems.items():
            self._warn(name, problem)
        self._logged = {key: self._logged[key] for key in problems if key in self._logged}

    def _warn(self, name: str, problem: str) -> None:
        if self._logged.get(name) != problem:
            self._logged[name] = problem
            _log.warning("a skill cannot be loaded", skill=name, reason=problem)


def check_directories(settings: Settings) -> Sequence[Check]:
    """Check the manifests of the skills that are installed in directories. Blocks."""
    if not settings.skill_roots:
        return ()
    proposed = settings.proposals_path
    roots = [one for one in settings.skill_roots if one != proposed or one.exists()]
    found, problems = read_roots([one.absolute() for one in roots], {})
    broken = [one for one in found.values() if one.content is None]
    checks = [Check("skills", "warning", problem) for problem in problems]
    checks += [
        Check("skills", "warning", f"{one.name} cannot be loaded: {one.problem}") for one in broken
    ]
    if not checks:
        text = f"{len(found)} skills are installed; `xmpp-agent skills list` says which are offered"
        checks.append(Check("skills", "ok", text))
    copies = ContentStore(settings.storage.path / APPROVED).names()
    waiting = [
        f"{one.name} (by {one.proposal.principal})"
        for one in found.values()
        if one.proposal is not None and one.content is not None and one.content.digest not in copies
    ]
    waiting += _waiting_personas(settings)
    if waiting:
        text = f"proposed and not approved: {', '.join(waiting)}; see `xmpp-agent skills show`"
        checks.append(Check("proposals", "warning", text))
    return checks


def _waiting_personas(settings: Settings) -> Sequence[str]:
    if settings.proposals_path is None:
        return ()
    from component.features.installed_skills.personas import waiting_personas  # noqa: PLC0415

    try:
        return waiting_personas(settings.proposals_path, settings.memory_path)
    except StorageError:
        return ()  # the check of the memory says why
