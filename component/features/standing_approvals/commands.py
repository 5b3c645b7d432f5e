"""The command about standing approvals: list and revoke them. It uses no model."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Final, Literal

import msgspec

from component import system
from component.audit.protocol import AuditEvent, Recorder
from component.commands import (
    AnyCommand,
    Asking,
    CommandError,
    CommandResult,
    Outline,
    person_or_caller,
    short_ids,
    whole_id,
)
from component.kernel.contacts import PersonZones
from component.store import Storage
from component.store.database import Database
from component.tasks import standing_rows
from component.tasks.standing_rows import StandingApproval
from component.zones import spoken_time
from xep.jid import JID

_ALL: Final = "all"


class ApprovalsParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of the command.

    Args:
        action: list or revoke.
        approval: With revoke: ID of the standing approval, or its beginning, or all for all of
            them.
        person: Address of the person, such as juliet@example.com. Only for admins. Default: you, or
            everybody on the command line.
    """

    action: Literal["list", "revoke"] = "list"
    approval: Annotated[str, msgspec.Meta(title="Standing approval")] = ""
    person: str = ""


class ApprovalLine(msgspec.Struct, frozen=True, kw_only=True):
    """A standing approval in a list: `text` is what the person has read. `uses` are left; times are
    UTC, and `used` is that of the latest use.
    """

    id: str
    person: str
    agent: str
    skill: str
    text: str
    uses: int
    granted: datetime
    used: datetime | None


APPROVALS: Final = Outline(
    name="approvals",
    title="Standing approvals",
    about="list or revoke what I may do without asking you",
    params=ApprovalsParams,
    group="plans",
)


class ApprovalCommands:
    """The command about standing approvals. `zones` finds the time zones of people."""

    def __init__(self, storage: Storage, zones: PersonZones, recorder: Recorder) -> None:
        self._storage = storage
        self._zones = zones
        self._recorder = recorder

    def commands(self) -> tuple[AnyCommand, ...]:
        """Return all of them."""
        return (APPROVALS.done_by(self._run, {"approval": self._titles}),)

    async def _run(self, asking: Asking, params: ApprovalsParams) -> CommandResult:
        person = person_or_caller(asking, params.person)
        found = await self._listed(asking, person)
        if params.action == "list":
            if params.approval:
                raise CommandError("An ID goes with revoke: /approvals revoke ID", "approval")
            return await self._list(asking, person, found)
        if not params.approval:
            raise CommandError("Say which one: /approvals revoke ID", "approval")
        wanted = params.approval.strip()
        if wanted.casefold() == _ALL:
            if person is None:
                raise CommandError("Say whose standing approvals: give person.", "person")
            return await self._revoke(asking, found)
        id_ = whole_id(wanted, [one.id for one in found], "approval")
        one = [each for each in found if each.id == id_]
        if not one:
            raise CommandError(
                "There is no such standing approval: /approvals lists those that I can use.",
                "approval",
            )
        return await self._revoke(asking, one)

    async def _listed(self, asking: Asking, person: JID | None) -> Sequence[StandingApproval]:
        agent = asking.at if person == asking.principal else None
        return await self._storage.read(lambda db: standing_rows.listed(db, person, agent))

    async def _list(
        self, asking: Asking, person: JID | None, found: Sequence[StandingApproval]
    ) -> CommandResult:
        lines = [_line(one) for one in found]
        if not lines:
            return CommandResult("There are no standing approvals.", lines)
        zone, now = await self._zones.of_caller(asking), system.now()
        ids = short_ids([line.id for line in lines])
        texts: list[str] = []
        for line in lines:
            whose = f"{line.person}, {line.agent}: " if person is None else ""
            used = "not used yet"
            if line.used is not None:
                used = f"last used {spoken_time(line.used, now, zone)}"
            texts.append(f"- {ids[line.id]}: {whose}{line.text} ({line.uses} left, {used})")
        return CommandResult("\n".join(texts), lines, only_read=True)

    async def _revoke(self, asking: Asking, which: Sequence[StandingApproval]) -> CommandResult:
        def op(database: Database) -> list[StandingApproval]:
            return [one for one in which if standing_rows.revoke(database, one.id)]

        revoked = [_line(one) for one in await self._storage.write(op)]
        for line in revoked:
            self._recorder.record(
                AuditEvent(
                    kind="confirmation",
                    outcome="revoked",
                    principal=asking.caller,
                    subject=line.skill,
                    detail=f"standing approval {line.id} of {line.person}",
                )
            )
        if len(revoked) == 1:
            return CommandResult(f"Revoked, I will ask each time: {revoked[0].text}", revoked)
        return CommandResult(f"{len(revoked)} standing approvals revoked.", revoked)

    async def _titles(self, asking: Asking) -> Mapping[str, str]:
        found = [_line(one) for one in await self._listed(asking, asking.principal)]
        titles = {line.id: line.text for line in found}
        return {**titles, _ALL: "All of them"} if titles else {}


def _line(one: StandingApproval) -> ApprovalLine:
    content = one.content
    assert content.standing is not None, "the question has offered it"
    return ApprovalLine(
        id=one.id,
        person=one.person,
        agent=one.agent,
        skill=content.action.type,
        text=content.standing.text.text,
        uses=one.uses,
        granted=datetime.fromtimestamp(one.granted / 1000, UTC),
        used=None if one.used is None else datetime.fromtimestamp(one.used / 1000, UTC),
    )
