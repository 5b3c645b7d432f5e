"""Commands of admins about the skills that they approve."""

from collections.abc import Awaitable, Sequence
from typing import Annotated, Protocol, TypeVar

import msgspec

from component.commands import (
    AnyCommand,
    Asking,
    CommandError,
    CommandResult,
    NoParams,
    Outline,
)
from component.features.installed_skills.sheets import InstalledError, InstalledSkill, SkillSheet

T = TypeVar("T")


class Installed(Protocol):
    """Skills that admins approve: `SkillDirectories` or `Descriptions`."""

    async def knows(self, name: str) -> bool:
        """Whether a skill of this name is among them. Raises StorageError."""

    async def list(self) -> Sequence[InstalledSkill]:
        """Return the installed skills. Raises StorageError."""

    async def show(self, name: str) -> SkillSheet:
        """Return everything about a skill. Raises InstalledError, StorageError."""

    async def approve(
        self, name: str, by: str, *, digest: str = "", trusted: bool = False
    ) -> SkillSheet:
        """Approve the present content of a skill. Raises InstalledError, StorageError."""

    async def revoke(self, name: str, by: str) -> SkillSheet:
        """Revoke the approval of a skill. Raises InstalledError, StorageError."""

    async def reject(self, name: str, by: str) -> None:
        """Delete a proposal. Raises InstalledError, StorageError."""


Name = Annotated[str, msgspec.Meta(title="Skill", description="Name of an installed skill.")]


class SkillParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of a command about one skill."""

    name: Name


class ApproveParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of an approval."""

    name: Name
    digest: Annotated[
        str,
        msgspec.Meta(
            title="Digest",
            description="Beginning of the digest of the content that is approved, at least 8"
            " characters. On the command line, the default is the present content.",
            pattern="^([0-9a-f]{8,64})?$",
        ),
    ] = ""
    trusted: Annotated[
        bool,
        msgspec.Meta(
            title="Trusted",
            description="Run it inside the service, where nothing limits it. For Python only.",
        ),
    ] = False


INSTALLED_SKILLS = Outline(
    name="installed-skills",
    title="Installed skills",
    about="list the skills that admins approve, and whether they are offered",
    params=NoParams,
    who="admin",
)
SHOW_SKILL = Outline(
    name="show-skill",
    title="Show a skill",
    about="show what an installed skill may do, and what has changed since it was approved",
    params=SkillParams,
    who="admin",
)
APPROVE_SKILL = Outline(
    name="approve-skill",
    title="Approve a skill",
    about="offer an installed skill, with the capabilities that it declares",
    params=ApproveParams,
    who="admin",
)
REVOKE_SKILL = Outline(
    name="revoke-skill",
    title="Revoke a skill",
    about="stop offering an installed skill, and stop its calls",
    params=SkillParams,
    who="admin",
)
REJECT_SKILL = Outline(
    name="reject-skill",
    title="Reject a proposed skill",
    about="delete a proposed skill that is not approved",
    params=SkillParams,
    who="admin",
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
        found = await _done((await self._of(params.name)).show(params.name))
        return CommandResult(shown(found), found)

    async def _approve(self, asking: Asking, params: ApproveParams) -> CommandResult:
        if asking.principal is not None and not params.digest:
            # On a terminal, the command line passes the digest of what it has just shown.
            raise CommandError(
                f"Give the digest of what you approve: {SHOW_SKILL.name} shows what"
                f" {params.name} may do, and its digest.",
                "digest",
            )
        installed = await self._of(params.name)
        found = await _done(
            installed.approve(
                params.name, _by(asking), digest=params.digest, trusted=params.trusted
            )
        )
        offered = "offered" if found.state == "offered" else "approved, and not offered"
        return CommandResult(f"{found.name} is {offered}.\n{shown(found)}", found)

    async def _revoke(self, asking: Asking, params: SkillParams) -> CommandResult:
        installed = await self._of(params.name)
        found = await _done(installed.revoke(params.name, _by(asking)))
        ended = "; its calls have ended" if found.directory else ""
        return CommandResult(f"{found.name} is not offered any more{ended}.", found)

    async def _reject(self, asking: Asking, params: SkillParams) -> CommandResult:
        await _done((await self._of(params.name)).reject(params.name, _by(asking)))
        return CommandResult(f"{params.name} is deleted.", params)


async def _done(change: Awaitable[T]) -> T:
    try:
        return await change
    except InstalledError as error:
        raise CommandError(str(error), "name") from None


def _by(asking: Asking) -> str:
    return "operator" if asking.principal is None else str(asking.principal)


def shown(skill: SkillSheet) -> str:
    """Return everything about a skill as a text for people."""
    where = "inside the service, without limits" if skill.trusted else f"as {skill.kind}"
    lines = [
        f"{skill.name} {skill.version}: {skill.state}"
        + (f" - {skill.reason}" if skill.reason else "")
    ]
    lines += [skill.description.partition("\n")[0]] if skill.description else []
    lines += [f"Runs {where}, from {skill.directory}"] if skill.kind and skill.directory else []
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
