"""What admins see of the skills that are installed in directories."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal, TypeAlias

import msgspec

from component.skill_directories.approvals import Approval
from component.skill_directories.found import Found
from component.skills.capabilities import Capabilities

State: TypeAlias = Literal["offered", "changed", "waiting", "revoked", "failed", "missing"]
"""`offered`; `changed`: the approved version is offered, and the present one waits; `waiting` for
an approval; `revoked`; `failed`: it cannot be used; `missing`: its directory is gone."""


class InstalledError(Exception):
    """An installed skill cannot be shown, approved or revoked; one sentence for the admin."""


class InstalledSkill(msgspec.Struct, frozen=True, kw_only=True):
    """An installed skill, in a list."""

    name: str
    state: State
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


def listed(found: Found | None, approval: Approval | None, problem: str = "") -> InstalledSkill:
    """Return what a list shows. `problem` says why an approved skill is not offered."""
    state, reason = _state(found, approval, problem)
    content = None if found is None else found.content
    manifest = None if content is None else content.manifest.skill
    return InstalledSkill(
        name=found.name if approval is None and found is not None else _name(approval),
        state=state,
        kind="" if manifest is None else manifest.execution.kind,
        version="" if manifest is None else manifest.version,
        trusted=approval is not None and approval.counts and approval.trusted,
        directory=str(found.directory) if found is not None else _directory(approval),
        reason=reason,
    )


def sheet(found: Found | None, approval: Approval | None, problem: str = "") -> SkillSheet:
    """Return everything about a skill."""
    short = msgspec.structs.asdict(listed(found, approval, problem))
    content = None if found is None else found.content
    now = Capabilities() if content is None else content.manifest.skill.capabilities
    before = Capabilities() if approval is None else approval.capabilities
    gone = content is None
    return SkillSheet(
        **short,
        description="" if content is None else content.manifest.skill.description,
        author="" if content is None else content.manifest.skill.author,
        digest="" if content is None else content.digest,
        capabilities=before.described if gone else now.described,
        added=() if gone else _without(now.described, before.described),
        removed=() if gone else _without(before.described, now.described),
        approved="" if approval is None else at_by(approval.approved_by, approval.approved_at),
        revoked=""
        if approval is None or approval.revoked_at is None
        else at_by(approval.revoked_by or "", approval.revoked_at),
        proposed=()
        if content is None or found is None or found.proposal is None
        else found.proposal.sentences(content.digest),
    )


def _state(found: Found | None, approval: Approval | None, problem: str) -> tuple[State, str]:
    approved = approval is not None and approval.counts
    if found is None:
        return "missing", "its directory is gone"
    if problem:
        return "failed", problem
    if found.content is None:
        return ("changed" if approved else "failed"), found.problem
    if approval is None:
        by = "" if found.proposal is None else f"proposed by {found.proposal.principal}; "
        return "waiting", f"{by}no admin has approved it"
    if not approval.counts:
        return "revoked", f"its approval was revoked by {approval.revoked_by}"
    if approval.digest != found.content.digest:
        return "changed", "its files have changed since it was approved"
    return "offered", ""


def _name(approval: Approval | None) -> str:
    assert approval is not None, "found or approved"
    return approval.name


def _directory(approval: Approval | None) -> str:
    assert approval is not None, "found or approved"
    return approval.directory


def _without(these: Sequence[str], those: Sequence[str]) -> tuple[str, ...]:
    return tuple(each for each in these if each not in those)


def at_by(who: str, at: int) -> str:
    """Return when, in milliseconds since 1970, somebody did something, and who."""
    return f"{datetime.fromtimestamp(at / 1000, UTC):%Y-%m-%d %H:%M} UTC by {who}"
