"""The skill `create_skill`: proposes a skill, which an admin has to approve."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import anyio
import anyio.to_thread
import msgspec
from anyio.abc import TaskStatus
from msgspec import Meta

from component import system
from component.audit.protocol import AuditEvent, Recorder
from component.config.skills import Proposals
from component.features.proposals.draft import (
    FORMAT,
    Checked,
    DraftError,
    SkillDraft,
    UnreadableDraftError,
    check_draft,
    try_out,
    write_files,
    writing_prompt,
)
from component.kernel.kernel import Kernel
from component.private import make_directory
from component.skill_directories.approvals import Approvals
from component.skill_directories.content import (
    RECORD_FILE,
    Proposal,
    SkillDirectory,
    WrittenBy,
    read_proposal,
    read_roots,
)
from component.skills.context import Context
from component.skills.declare import own_skill
from component.skills.errors import InvalidParam, SkillError, SkillLoadError, printable
from component.skills.outputs import Output, SkillResult
from component.skills.skill import Skill
from component.skills.sources import Offer
from component.store.directory import sync_directory
from component.store.errors import StorageError
from xep.jid import JID

_TIMEOUT_S: Final = 600.0
_LONGEST_DESCRIPTION: Final = 4_000
_LONGEST: Final = 65_536
"""Of each text of a proposal; the settings limit it further."""
_LONGEST_SHOWN: Final = 500
_LONGEST_REASON: Final = 300
_AT_ONCE: Final = 2
"""Proposals that are tested at the same time; the others wait."""
_NEW: Final = ".new-"
_OLD: Final = ".old-"


class ProposalFolder:
    """A directory of proposals, by the names of skills. Methods block and raise OSError."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory.absolute()

    def path(self, name: str) -> Path:
        """Return the directory of a proposal."""
        return self._directory / name

    def recover(self) -> None:
        """Make the directory, and complete or undo what an interrupted change has left."""
        make_directory(self._directory)
        for entry in list(self._directory.iterdir()):
            if entry.name.startswith(_OLD) and not self.path(entry.name[len(_OLD) :]).exists():
                entry.rename(self.path(entry.name[len(_OLD) :]))
            elif entry.name.startswith((_NEW, _OLD)):
                shutil.rmtree(entry, ignore_errors=True)

    def all(self) -> Mapping[str, Proposal]:
        """Return the records of all proposals, by the names of the skills."""
        found = {}
        for entry in self._directory.iterdir():
            if entry.name.startswith("."):
                continue
            try:
                proposal = read_proposal(entry)
            except (SkillLoadError, NotADirectoryError):
                proposal = None
            found[entry.name] = proposal or Proposal(principal="")
        return found

    def put(self, name: str, files: Mapping[str, str], proposal: Proposal) -> None:
        """Write a proposal, in place of one of the same name; it is on disk afterwards."""
        make_directory(self._directory)
        made = Path(tempfile.mkdtemp(dir=self._directory, prefix=_NEW))
        try:
            record = msgspec.json.encode(proposal).decode()
            write_files(made, {**files, RECORD_FILE: record})
            target, old = self.path(name), self.path(_OLD + name)
            if target.exists():
                target.rename(old)
            made.rename(target)
            sync_directory(self._directory)
            shutil.rmtree(old, ignore_errors=True)
        except BaseException:
            shutil.rmtree(made, ignore_errors=True)
            raise


class ServiceView:
    """What proposals need of the rest of the service."""

    def __init__(self, kernel: Kernel) -> None:
        self._catalog = kernel.environment.catalog
        self._approvals = Approvals(kernel.storage)
        self._roots = [root.absolute() for root in kernel.settings.skill_roots]
        self._found: Mapping[Path, SkillDirectory] = {}
        self.announce = kernel.contacts.tell_admins

    async def taken(self) -> Mapping[str, str]:
        """Return the names of all skills that are offered or installed, with the directories of
        those that are installed but not offered; it is empty for the others. Raises SkillError.
        """
        try:
            approvals = await self._approvals.all()
        except StorageError:
            raise SkillError("The database is temporarily unavailable.") from None
        self._found, _ = await system.in_thread(read_roots, self._roots, self._found)
        names = {one.name: one.directory for one in approvals}
        # Of two directories with one name, the first counts.
        names |= {one.name: str(one.directory) for one in reversed(list(self._found.values()))}
        return names | dict.fromkeys(self._catalog.registry.names(), "")

    def is_admin(self, principal: str) -> bool:
        """Whether a principal is an admin."""
        return JID.parse(principal) in self._catalog.admins


class ProposalSource:
    """The source of the skill `create_skill`: tests proposals, and keeps those whose tests pass."""

    name = "proposals"

    def __init__(
        self, settings: Proposals, folder: ProposalFolder, service: ServiceView, recorder: Recorder
    ) -> None:
        self._settings = settings
        self._folder = folder
        self._service = service
        self._recorder = recorder
        self._testing = anyio.Semaphore(_AT_ONCE)
        self._writing = anyio.Lock()
        self.skill = create_skill_skill(self)

    async def run(self, offer: Offer, *, task_status: TaskStatus[None]) -> None:
        """Offer the skill. Raises SkillLoadError if the directory cannot be used."""
        try:
            await system.in_thread(self._folder.recover)
        except OSError as error:
            raise SkillLoadError(f"Proposals cannot be kept: {error}") from error
        offer([self.skill])
        task_status.started()
        await anyio.sleep_forever()

    async def propose(self, context: Context, description: str, draft: SkillDraft | None) -> str:
        """Propose what a caller has written, or without a draft have the model write it, and return
        what became of it. Raises SkillError.
        """
        try:
            if draft is None:
                return await self._written(context, description)
            return await self._tried(draft, context, description, written_by="caller")
        except (DraftError, SkillError) as error:
            self._record(context, "refused", "create_skill", str(error))
            if isinstance(error, SkillError):
                raise
            hint = f"\n\n{FORMAT}" if isinstance(error, UnreadableDraftError) else ""
            raise SkillError(f"Nothing was proposed. {error}{hint}") from error

    async def _written(self, context: Context, description: str) -> str:
        """Have the model write a skill, and again with the reason when it is refused."""
        await self._check_quota(context.principal, "")  # before a model is paid
        draft: SkillDraft | None = None
        problem = ""
        attempts = self._settings.attempts
        for attempt in range(attempts):
            await context.progress(attempt / attempts, "writing the skill")
            asked = writing_prompt(description, draft, problem)
            draft = await context.llm(
                asked, SkillDraft, max_tokens=self._settings.max_tokens, key=attempt
            )
            try:
                return await self._tried(draft, context, description, written_by="model")
            except DraftError as error:
                problem = str(error)
        raise SkillError(
            f"Nothing was proposed: the model wrote {attempts} drafts, and the last was refused."
            f" {problem}"
        )

    async def _tried(
        self, draft: SkillDraft, context: Context, description: str, *, written_by: WrittenBy
    ) -> str:
        """Raises DraftError: it may be written again; SkillError: that would not help."""
        checked = await system.in_thread(check_draft, draft, self._settings.max_bytes)
        await self._check_quota(context.principal, checked.name)
        async with self._testing:
            digest = await try_out(checked)
        proposal = Proposal(
            principal=context.principal,
            agent=context.agent,
            description=printable(" ".join(description.split()), _LONGEST_SHOWN),
            written_by=written_by,
            taints=context.taints,
            proposed_at=int(system.time() * 1000),
            digest=digest,
            tests=tuple(printable(case.name, 100) for case in checked.cases),
        )
        async with self._writing:
            known = await self._check_quota(context.principal, checked.name)
            put = partial(self._folder.put, checked.name, draft.files(), proposal)
            try:
                await system.in_thread(put)
            except OSError as error:
                raise SkillError("Proposals cannot be kept at the moment.") from error
        capabilities = checked.manifest.skill.capabilities
        detail = ", ".join((digest[:16], *capabilities.texts, *_warned(proposal)))
        self._record(context, "proposed", checked.name, detail)
        if not known:
            self._service.announce(_announcement(checked, proposal))
        return (
            f"{checked.name} is proposed; tests passed: {len(checked.cases)}. It can be used when"
            f" an admin has approved it (xmpp-agent skills approve {checked.name})."
        )

    async def _check_quota(self, principal: str, name: str) -> bool:
        """Return whether a proposal of the person is replaced. Raises DraftError, SkillError."""
        taken = await self._service.taken()
        try:
            proposals = await system.in_thread(self._folder.all)
        except OSError as error:
            raise SkillError("Proposals cannot be kept at the moment.") from error
        mine = str(self._folder.path(name))
        known = proposals.get(name)
        if name in taken and taken[name] != mine:
            raise DraftError(f"A skill called {name} exists: choose another name.")
        if known is not None:
            if known.principal != principal and not self._service.is_admin(principal):
                raise DraftError(f"Somebody has proposed {name} already: choose another name.")
            return True
        waiting = [one for key, one in proposals.items() if taken.get(key) != ""]
        own = [one for one in waiting if one.principal == principal]
        if len(waiting) >= self._settings.total or len(own) >= self._settings.per_principal:
            raise SkillError(
                "Too many proposals wait for an admin. Ask an admin to approve or reject some."
            )
        return False

    def _record(self, context: Context, outcome: str, name: str, detail: str) -> None:
        self._recorder.record(
            AuditEvent(
                kind="capability",
                outcome=outcome,
                principal=context.principal,
                agent=context.agent,
                trace=context.trace,
                subject=name,
                detail=printable(" ".join(detail.split()), _LONGEST_REASON),
            )
        )


def _text(description: str) -> Meta:
    return Meta(description=description, max_length=_LONGEST)


def create_skill_skill(source: ProposalSource) -> Skill:
    """Return the skill."""

    @own_skill(
        name="create_skill",
        title="Propose a skill",
        question="May I propose a skill: {description}[ ({manifest})][ ({code})][ ({tests})]?",
        destructive=False,
        idempotent=True,
        open_world=False,
        capabilities=("llm",),
        # The reasons of a refusal contain what the caller or the model has written.
        taint="web",
        tags=("skill",),
        examples=("Make a skill that splits a bill.",),
        timeout=_TIMEOUT_S,
        typical_duration=20.0,
    )
    async def create_skill(
        context: Context,
        description: Annotated[
            str,
            Meta(
                description="What the skill should do. Without the other parameters the model"
                " writes it.",
                min_length=1,
                max_length=_LONGEST_DESCRIPTION,
            ),
        ],
        manifest: Annotated[str, _text("skill.toml, in TOML.")] = "",
        code: Annotated[str, _text("main.py; empty for an HTTP request.")] = "",
        tests: Annotated[str, _text("tests/cases.toml, in TOML.")] = "",
    ) -> SkillResult:
        """Propose a new skill, in Python or as an HTTP request. Its tests run at once.

        Nobody can use it before an admin has read and approved it.
        """
        draft = None
        if manifest or code or tests:
            for name, value in (("manifest", manifest), ("tests", tests)):
                if not value:
                    raise InvalidParam(name, "must be given, too: a skill is written as a whole")
            draft = SkillDraft(manifest=manifest, code=code, tests=tests)
        said = await source.propose(context, description, draft)
        # The sentence contains the name of the skill, which the author of the proposal has chosen.
        return SkillResult((Output(said),), taints=context.taints)

    return create_skill


def _announcement(checked: Checked, proposal: Proposal) -> str:
    uses = "; ".join(checked.manifest.skill.capabilities.described) or "nothing outside itself"
    kind = checked.manifest.skill.execution.kind
    warned = "".join(f" Warning: {each}." for each in _warned(proposal))
    return (
        f"{proposal.principal} proposes the skill {checked.name} ({kind}). It would use: {uses}."
        f"{warned} Read it with `xmpp-agent skills show {checked.name}`, then approve or reject it."
    )


def _warned(proposal: Proposal) -> tuple[str, ...]:
    sources = proposal.untrusted_sources
    return (f"its author had read texts of strangers ({', '.join(sources)})",) if sources else ()
