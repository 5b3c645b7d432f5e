"""How a proposal is made, of a skill or of a persona: it is written, checked, tried and kept.

A process that is killed on the way leaves the whole proposal, or nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import msgspec

from component import system
from component.audit.protocol import AuditEvent, Recorder
from component.config.skills import Proposals
from component.features.proposals.drafts import D, DraftError, Drafts, P, Prepared
from component.kernel.kernel import Kernel
from component.skill_directories.approvals import Approvals
from component.skill_directories.content import SkillDirectory, read_roots
from component.skill_directories.proposals import Proposal, ProposalFolder, WrittenBy
from component.skills.context import Context
from component.skills.errors import SkillError, printable
from component.store.errors import StorageError
from xep.jid import JID

_LONGEST_SHOWN: Final = 500
_LONGEST_REASON: Final = 300
_AT_ONCE: Final = 2
"""Proposals that are tested at the same time; the others wait."""


class Known(msgspec.Struct, frozen=True):
    """What exists besides proposals.

    Attributes:
        names: the names of what is offered or installed, with the directories of what is not
            offered; it is empty for the others.
        approved: the digests of approved contents.
    """

    names: Mapping[str, str]
    approved: frozenset[str] = frozenset()


class ServiceView:
    """What proposals need of the rest of the service."""

    def __init__(self, kernel: Kernel) -> None:
        self._catalog = kernel.environment.catalog
        self._skills = Approvals(kernel.storage)
        self._personas = Approvals(kernel.storage, "persona")
        self._roots = [root.absolute() for root in kernel.settings.skill_roots]
        self._found: Mapping[Path, SkillDirectory] = {}
        self.announce = kernel.contacts.tell_admins

    async def known(self) -> Known:
        """Return what exists. Raises SkillError."""
        try:
            skills, personas = await self._skills.all(), await self._personas.all()
        except StorageError:
            raise SkillError("The database is temporarily unavailable.") from None
        self._found, _ = await system.in_thread(read_roots, self._roots, self._found)
        names = {one.name: one.directory for one in (*skills, *personas)}
        # Of two directories with one name, the first counts.
        names |= {one.name: str(one.directory) for one in reversed(list(self._found.values()))}
        approved = frozenset([one.digest for one in (*skills, *personas) if one.counts])
        return Known(names | dict.fromkeys(self._catalog.registry.names(), ""), approved)

    def is_admin(self, principal: str) -> bool:
        """Whether a principal is an admin."""
        return JID.parse(principal) in self._catalog.admins


class Proposing:
    """Makes proposals, and keeps those that pass."""

    def __init__(
        self, settings: Proposals, folder: ProposalFolder, service: ServiceView, recorder: Recorder
    ) -> None:
        self.settings = settings
        self._folder = folder
        self._service = service
        self._recorder = recorder
        self._testing = anyio.Semaphore(_AT_ONCE)
        self._writing = anyio.Lock()

    async def written(self, context: Context, description: str, drafts: Drafts[D, P]) -> str:
        """Have the model write a draft, and again with the reason when it is refused; return the
        report for the caller. Raises SkillError.
        """
        try:
            return await self._written(context, description, drafts)
        except SkillError as error:
            self._record(context, "refused", context.skill, str(error))
            raise

    async def passed(
        self, context: Context, description: str, drafts: Drafts[D, P], draft: D
    ) -> str:
        """Propose a draft that the caller has written; return the report for the caller. Raises
        DraftError and SkillError.
        """
        try:
            return await self._tried(context, description, drafts, draft, written_by="caller")
        except (DraftError, SkillError) as error:
            self._record(context, "refused", context.skill, str(error))
            raise

    async def _written(self, context: Context, description: str, drafts: Drafts[D, P]) -> str:
        await self._check_quota(context.principal)  # before a model is paid
        draft: D | None = None
        problem = ""
        attempts = self.settings.attempts
        for attempt in range(attempts):
            await context.progress(attempt / attempts, "writing a draft")
            draft = await context.llm(
                drafts.prompt(draft, problem),
                drafts.schema,
                max_tokens=self.settings.max_tokens,
                key=attempt,
            )
            try:
                return await self._tried(context, description, drafts, draft, written_by="model")
            except DraftError as error:
                problem = str(error)
        raise SkillError(
            f"Nothing was proposed: the model wrote {attempts} drafts, and the last was refused."
            f" {problem}"
        )

    async def _tried(
        self,
        context: Context,
        description: str,
        drafts: Drafts[D, P],
        draft: D,
        *,
        written_by: WrittenBy,
    ) -> str:
        """Raises DraftError: it may be written again; SkillError: that would not help."""
        prepared = await system.in_thread(drafts.prepare, draft)
        await self._check_quota(context.principal, prepared)
        async with self._testing:
            tried = await drafts.try_out(prepared)
        proposal = Proposal(
            principal=context.principal,
            agent=context.agent,
            description=printable(" ".join(description.split()), _LONGEST_SHOWN),
            written_by=written_by,
            taints=tuple(dict.fromkeys((*context.taints, *tried.taints))),
            proposed_at=int(system.time() * 1000),
            digest=tried.digest,
            tests=tried.tests,
            answers=tried.answers,
            cost=tried.cost,
        )
        async with self._writing:
            replaced = await self._check_quota(context.principal, prepared)
            put = partial(self._folder.propose, prepared.name, prepared.files, proposal)
            try:
                await system.in_thread(put)
            except OSError as error:
                raise SkillError("Proposals cannot be kept at the moment.") from error
        detail = ", ".join((tried.digest[:16], *prepared.capabilities, *_warned(proposal)))
        self._record(context, "proposed", prepared.name, detail)
        if not replaced:
            self._service.announce(_announcement(prepared, proposal))
        return drafts.said(prepared, proposal)

    async def _check_quota(self, principal: str, new: Prepared | None = None) -> bool:
        """Return whether a proposal of the person is replaced. Raises DraftError, SkillError."""
        known = await self._service.known()
        try:
            proposals = await system.in_thread(self._folder.all)
        except OSError as error:
            raise SkillError("Proposals cannot be kept at the moment.") from error
        if new is not None:
            mine = str(self._folder.path(new.name))
            if known.names.get(new.name, mine) != mine:
                raise DraftError(f"A {new.kind} called {new.title} exists: choose another name.")
            if (before := proposals.get(new.name)) is not None:
                if before.principal != principal and not self._service.is_admin(principal):
                    raise DraftError(
                        f"Somebody has proposed {new.title} already: choose another name."
                    )
                return True
        waiting = [
            one
            for name, one in proposals.items()
            if known.names.get(name) != "" and one.digest not in known.approved
        ]
        own = [one for one in waiting if one.principal == principal]
        if len(waiting) >= self.settings.total or len(own) >= self.settings.per_principal:
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


def _announcement(prepared: Prepared, proposal: Proposal) -> str:
    uses = "; ".join(prepared.uses) or "nothing outside itself"
    how = f" ({prepared.how})" if prepared.how else ""
    warned = "".join(f" Warning: {each}." for each in _warned(proposal))
    return (
        f"{proposal.principal} proposes the {prepared.kind} {prepared.title}{how}. It would use:"
        f" {uses}.{warned} Read it with `xmpp-agent skills show {prepared.name}`, then approve or"
        " reject it."
    )


def _warned(proposal: Proposal) -> tuple[str, ...]:
    sources = proposal.untrusted_sources
    return (f"its author had read texts of strangers ({', '.join(sources)})",) if sources else ()
