"""Commands for those who run the service: how it is, and whether it takes on new work."""

from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

from component.commands.definition import Answer, AnyCommand, Asking, NoParams, Outline
from component.commands.intake import Intake
from component.commands.tasks import Ledger
from component.commands.views import span, when
from component.tasks.ledger import Counts


class Vitals(msgspec.Struct, frozen=True, kw_only=True):
    """What a service says of itself. Times are UTC; `storage` is the kind of database.

    `started` is None where no service runs, `connected_since` while it is not connected.
    """

    software: str
    version: str
    domain: str
    storage: str
    skills: int
    python: str
    backend: str
    started: datetime | None = None
    connected_since: datetime | None = None


class Status(Vitals, frozen=True, kw_only=True):
    """How the service is. `uptime_s` is in whole seconds."""

    paused: bool
    uptime_s: int | None
    tasks: Counts


STATUS = Outline(
    name="status", title="Status", about="how the service is", params=NoParams, who="admin"
)
PAUSE = Outline(
    name="pause",
    title="Pause",
    about="take on no new work but that of admins, until resume or a restart",
    params=NoParams,
    who="admin",
)
RESUME = Outline(
    name="resume", title="Resume", about="take on new work again", params=NoParams, who="admin"
)


class AdminCommands:
    """The commands about the service itself.

    Args:
        vitals: what the service says of itself now.
        ledger: everybody's tasks.
        intake: whether new work is taken on; None where no service runs, and then nobody can pause.
        now: the time.
    """

    def __init__(
        self,
        vitals: Callable[[], Vitals],
        ledger: Ledger,
        intake: Intake | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._vitals = vitals
        self._ledger = ledger
        self._intake = intake
        self._now = now

    def commands(self) -> tuple[AnyCommand, ...]:
        """All that can be done."""
        status = STATUS.done_by(self._status)
        if self._intake is None:
            return (status,)
        gate = _Gate(self._intake)
        return (status, PAUSE.done_by(gate.pause), RESUME.done_by(gate.resume))

    async def _status(self, _asking: Asking, _params: NoParams) -> Answer:
        vitals = self._vitals()
        started = vitals.started
        status = Status(
            **msgspec.structs.asdict(vitals),
            paused=self._intake is not None and self._intake.paused,
            uptime_s=None if started is None else int((self._now() - started).total_seconds()),
            tasks=await self._ledger.counts(),
        )
        return Answer("\n".join(_told(status)), status)


class _Gate:
    def __init__(self, intake: Intake) -> None:
        self._intake = intake

    async def pause(self, _asking: Asking, _params: NoParams) -> Answer:
        before, self._intake.paused = self._intake.paused, True
        if before:
            return Answer("It is paused already.")
        return Answer(
            "Paused: new work of all but admins is refused for the time being. What has begun goes"
            " on. A restart of the service ends the pause."
        )

    async def resume(self, _asking: Asking, _params: NoParams) -> Answer:
        before, self._intake.paused = self._intake.paused, False
        return Answer("New work is taken on again." if before else "It is not paused.")


def _told(status: Status) -> list[str]:
    lines = [f"{status.software} {status.version} for {status.domain}"]
    if status.started is None:
        lines.append("The service does not run here.")
    else:
        lines.append(f"Up for {span(status.uptime_s or 0)}, since {when(status.started)}.")
        if status.connected_since is None:
            lines.append("Not connected to the XMPP server.")
        else:
            lines.append(f"Connected since {when(status.connected_since)}.")
    if status.paused:
        lines.append("Paused: new work of all but admins is refused.")
    counts = status.tasks
    states = (name for name in Counts.__struct_fields__ if name not in ("queued", "owned"))
    kept = [f"{getattr(counts, name)} {name}" for name in states if getattr(counts, name)]
    lines.append(f"Tasks: {', '.join(kept).replace('_', '-') or 'none'}.")
    lines.append(f"{counts.owned} at work, {counts.queued} waiting for their turn.")
    lines.append(f"{status.skills} skills. Storage: {status.storage}.")
    lines.append(f"Python {status.python}, {status.backend}.")
    return lines
