"""Commands of admins about the skills that they approve."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec

from component.audit.protocol import AuditEvent, Recorder
from component.commands import AnyCommand, Asking, CommandError, CommandResult, NoParams, Outline
from component.skill_directories.approvals import Approval
from component.skill_directories.content import SkillDirectory
from component.skill_directories.proposals import Proposal

PERSONA_KIND: Final = "persona"
"""The kind of proposed personas, among those of skills."""
SkillState: TypeAlias = Literal["offered", "changed", "waiting", "revoked", "failed", "missing"]
"""`offered`; `changed`: the approved version is offered, and the present one waits; `waiting` for
an approval; `revoked`; `failed`: it cannot be used; `missing`: its directory is gone."""


class InstalledError(CommandError):
    """An installed skill cannot be shown, approved or revoked; one sentence for the admin."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, "name")


class InstalledSkill(msgspec.Struct, frozen=True, kw_only=True):
    """An installed skill, in a list."""

    name: str
    state: SkillState
    kind: str = ""
    version: str = ""
    trusted: bool = False
    directory: str = ""
    reason: str = ""


class SkillSheet(InstalledSkill, frozen=True, kw_only=True):
    """Everything about an installed skill.

    `capabilities` are those that it declares; `added` and `removed` compare them with those that
    were approved last. `proposed` has sentences about a proposal, and `source` its files.
    """

    description: str = ""
    author: str = ""
    digest: str = ""
    capabilities: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    approved: str = ""
    revoked: str = ""
    proposed: tuple[str, ...] = ()
    source: str = ""


class Present(msgspec.Struct, frozen=True):
    """What there is of something that admins approve.

    Attributes:
        digest: of its content; empty if it cannot be used.
        problem: why it cannot be used.
        proposal: the record of one that was proposed.
    """

    digest: str
    problem: str = ""
    proposal: Proposal | None = None


def list_entry(
    name: str, found: SkillDirectory | None, approval: Approval | None, problem: str = ""
) -> InstalledSkill:
    """Return the line about a skill. `problem` says why an approved one is not offered."""
    content = None if found is None else found.content
    digest = "" if content is None else content.digest
    present = None if found is None else Present(digest, found.problem, found.proposal)
    state, reason = state_of(present, approval, problem)
    manifest = None if content is None else content.manifest.skill
    where = found or approval
    assert where is not None, "it is found or approved"
    return InstalledSkill(
        name=name,
        state=state,
        kind="" if manifest is None else manifest.execution.kind,
        version="" if manifest is None else manifest.version,
        trusted=approval is not None and approval.counts and approval.trusted,
        directory=str(where.directory),
        reason=reason,
    )


def sheet(
    short: InstalledSkill, found: SkillDirectory | None, approval: Approval | None
) -> SkillSheet:
    """Return everything about a skill of which `short` is in a list."""
    before = () if approval is None else approval.capabilities.described
    more: dict[str, Any] = {}
    if found is None or found.content is None:
        more["capabilities"] = before
    else:
        manifest = found.content.manifest.skill
        more = {
            "description": manifest.description,
            "author": manifest.author,
            "digest": found.content.digest,
            **compared(manifest.capabilities.described, before),
        }
        if found.proposal is not None:
            more["proposed"] = found.proposal.sentences(found.content.digest)
    return SkillSheet(**msgspec.structs.asdict(short), **decisions(approval), **more)


def compared(now: Sequence[str], before: Sequence[str]) -> dict[str, Any]:
    """Return the fields of a sheet about what something may do, and may have done before."""
    return {
        "capabilities": tuple(now),
        "added": _without(now, before),
        "removed": _without(before, now),
    }


def decisions(approval: Approval | None) -> dict[str, Any]:
    """Return the fields of a sheet about the latest approval."""
    if approval is None:
        return {}
    found = {"approved": at_by(approval.approved_by, approval.approved_at)}
    if approval.revoked_at is not None:
        found["revoked"] = at_by(approval.revoked_by or "", approval.revoked_at)
    return found


def state_of(
    present: Present | None, approval: Approval | None, problem: str
) -> tuple[SkillState, str]:
    """Return the state of something that admins approve, and the reason for it. `problem` says why
    an approved one is not offered; `present` is None if it is gone.
    """
    approved = approval is not None and approval.counts
    if present is None:
        return "missing", "its directory is gone"
    if problem:
        return "failed", problem
    if not present.digest:
        return ("changed" if approved else "failed"), present.problem
    if approval is None:
        by = "" if present.proposal is None else f"proposed by {present.proposal.principal}; "
        return "waiting", f"{by}no admin has approved it"
    if not approval.counts:
        return "revoked", f"its approval was revoked by {approval.revoked_by}"
    if approval.digest != present.digest:
        return "changed", "its files have changed since it was approved"
    return "offered", ""


def _without(these: Sequence[str], those: Sequence[str]) -> tuple[str, ...]:
    return tuple(each for each in these if each not in those)


def at_by(who: str, at: int) -> str:
    """Return when, in milliseconds since 1970, somebody did something, and who."""
    return f"{datetime.fromtimestamp(at / 1000, UTC):%Y-%m-%d %H:%M} UTC by {who}"


class Installed(ABC):
    """What admins approve: `SkillDirectories`, `Descriptions` or `ProposedPersonas`.

    Methods raise StorageError, and those about one skill InstalledError.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    @abstractmethod
    async def knows(self, name: str) -> bool:
        """Whether a skill of this name is among them, or was approved and is gone."""

    @abstractmethod
    async def list(self) -> Sequence[InstalledSkill]:
        """Return the installed skills."""

    @abstractmethod
    async def show(self, name: str) -> SkillSheet:
        """Return everything about a skill."""

    @abstractmethod
    async def approve(
        self, name: str, by: str, *, digest: str = "", trusted: bool = False
    ) -> SkillSheet:
        """Approve the present content of a skill, or only that with a digest, and offer it."""

    @abstractmethod
    async def revoke(self, name: str, by: str) -> SkillSheet:
        """Revoke the approval of a skill: it is not offered any more."""

    @abstractmethod
    async def reject(self, name: str, by: str) -> None:
        """Delete a proposal that is not approved."""

    def _record(self, by: str, name: str, outcome: str, detail: str = "") -> None:
        self._recorder.record(
            AuditEvent(
                kind="capability", outcome=outcome, principal=by, subject=name, detail=detail
            )
        )


def not_there(name: str, what: str = "installed") -> InstalledError:
    """Return the error for a skill that is not installed, approved or proposed."""
    return InstalledError(f"No skill called {name!r} is {what}. See `skills list`.")


def has_changed(name: str, digest: str) -> InstalledError:
    """Return the error for an approval of other content than the present one."""
    return InstalledError(
        f"{name} has changed: its digest is {digest}. Look at it again before you approve it."
    )


def is_proposal(name: str) -> InstalledError:
    """Return the error for an approval of a proposal that does not say what was read."""
    return InstalledError(
        f"{name} is a proposal: it is always confined, and approved with the digest of what you"
        f" have read (--digest): see `skills show {name}`."
    )


def is_approved(name: str) -> InstalledError:
    """Return the error for a rejection of what is approved."""
    return InstalledError(f"{name} is approved: revoke it first.")


class SkillParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of a command about one skill.

    Args:
        name: Name of an installed skill, or persona: and the id of a proposed persona.
    """

    name: Annotated[str, msgspec.Meta(title="Skill")]


class ApproveParams(SkillParams, frozen=True, forbid_unknown_fields=True):
    """The parameters of an approval.

    Args:
        digest: Beginning of the digest of the content that is approved, at least 8 characters. On
            the command line, the default is the present content.
        trusted: Run it inside the service, where nothing limits it. For Python only.
    """

    digest: Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{8,64})?$")] = ""
    trusted: bool = False


INSTALLED_SKILLS = Outline(
    name="installed-skills",
    title="Installed skills",
    about="list the skills that admins approve, and whether they are offered",
    params=NoParams,
    who="admin",
    group="skills",
    only_reads=True,
)
SHOW_SKILL = Outline(
    name="show-skill",
    title="Show a skill",
    about="show what an installed skill may do, and what has changed since it was approved",
    params=SkillParams,
    who="admin",
    group="skills",
    only_reads=True,
)
APPROVE_SKILL = Outline(
    name="approve-skill",
    title="Approve a skill",
    about="offer an installed skill, with the capabilities that it declares",
    params=ApproveParams,
    who="admin",
    group="skills",
)
REVOKE_SKILL = Outline(
    name="revoke-skill",
    title="Revoke a skill",
    about="stop offering an installed skill, and stop its calls",
    params=SkillParams,
    who="admin",
    group="skills",
)
REJECT_SKILL = Outline(
    name="reject-skill",
    title="Reject a proposed skill",
    about="delete a proposed skill that is not approved",
    params=SkillParams,
    who="admin",
    group="skills",
)


class InstalledSkillCommands:
    """The commands about installed skills.

    Args:
        installed: the skills; of two with one name, those that come first.
    """

    def __init__(self, installed: Sequence[Installed]) -> None:
        self._installed = installed

    def commands(self) -> tuple[AnyCommand, ...]:
        """Return the commands."""
        return (
            INSTALLED_SKILLS.done_by(self._list),
            SHOW_SKILL.done_by(self._show),
            APPROVE_SKILL.done_by(self._approve),
            REVOKE_SKILL.done_by(self._revoke),
            REJECT_SKILL.done_by(self._reject),
        )

    async def _of(self, name: str) -> Installed:
        """Return the skills among which one is; any for an unknown one, which they refuse."""
        for one in self._installed:
            if await one.knows(name):
                return one
        return self._installed[0]

    async def _list(self, _asking: Asking, _params: NoParams) -> CommandResult:
        found = [skill for one in self._installed for skill in await one.list()]
        if not found:
            return CommandResult("No skills are installed.", ())
        lines = [
            f"{one.name} {one.version}: {one.state}" + (f" - {one.reason}" if one.reason else "")
            for one in found
        ]
        return CommandResult("\n".join(lines), found)

    async def _show(self, _asking: Asking, params: SkillParams) -> CommandResult:
        found = await (await self._of(params.name)).show(params.name)
        return CommandResult(sheet_text(found), found)

    async def _approve(self, asking: Asking, params: ApproveParams) -> CommandResult:
        if asking.principal is not None and not params.digest:
            # On a terminal, the command line passes the digest of what it has just shown.
            raise CommandError(
                f"Give the digest of what you approve: {SHOW_SKILL.name} shows what"
                f" {params.name} may do, and its digest.",
                "digest",
            )
        installed = await self._of(params.name)
        found = await installed.approve(
            params.name, asking.caller, digest=params.digest, trusted=params.trusted
        )
        offered = "offered" if found.state == "offered" else "approved, and not offered"
        return CommandResult(f"{found.name} is {offered}.\n{sheet_text(found)}", found)

    async def _revoke(self, asking: Asking, params: SkillParams) -> CommandResult:
        installed = await self._of(params.name)
        found = await installed.revoke(params.name, asking.caller)
        is_skill = found.directory and found.kind != PERSONA_KIND
        ended = "; its calls have ended" if is_skill else ""
        return CommandResult(f"{found.name} is not offered any more{ended}.", found)

    async def _reject(self, asking: Asking, params: SkillParams) -> CommandResult:
        await (await self._of(params.name)).reject(params.name, asking.caller)
        return CommandResult(f"{params.name} is deleted.", params)


def sheet_text(skill: SkillSheet) -> str:
    """Return everything about a skill as a text for people."""
    where = "inside the service, without limits" if skill.trusted else f"as {skill.kind}"
    lines = [
        f"{skill.name} {skill.version}: {skill.state}"
        + (f" - {skill.reason}" if skill.reason else "")
    ]
    lines += [skill.description.partition("\n")[0]] if skill.description else []
    if skill.kind == PERSONA_KIND:
        lines.append(f"A persona that people choose with /persona, in {skill.directory}")
    elif skill.kind and skill.directory:
        lines.append(f"Runs {where}, from {skill.directory}")
    lines += [f"Digest: {skill.digest}"] if skill.digest else []
    lines += [f"Approved: {skill.approved}"] if skill.approved else []
    lines += [f"Revoked: {skill.revoked}"] if skill.revoked else []
    lines += skill.proposed
    if skill.capabilities or skill.removed:
        lines.append("It may:")
    elif skill.directory:
        lines.append("It may use nothing outside itself.")
    lines += [f"  {'+' if one in skill.added else ' '} {one}" for one in skill.capabilities]
    lines += [f"  - {one}" for one in skill.removed]
    if skill.approved and (skill.added or skill.removed):
        lines.append("(+ and -: different from what was approved last)")
    lines += [skill.source] if skill.source else []
    return "\n".join(lines)
