"""Commands for operators: status, pause and resume."""

from collections.abc import Callable
from datetime import datetime

import msgspec

from component import system
from component.commands.definition import AnyCommand, Asking, CommandResult, NoParams, Outline
from component.commands.pause_gate import PauseGate
from component.commands.views import span, when
from component.storage.shared import PAUSED, Switches
from component.tasks.admin import Counts, TaskAdmin


class Vitals(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the service. Times are UTC; `storage` is the kind of database.

    `started` is None if no service runs, `connected_since` is None while it is not connected.
    `warnings` are sentences about what an admin has to decide or correct.
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
    warnings: tuple[str, ...] = ()


class Status(Vitals, frozen=True, kw_only=True):
    """The status of the service. `uptime_s` is in whole seconds."""

    paused: bool
    uptime_s: int | None
    tasks: Counts


STATUS = Outline(
    name="status",
    title="Status",
    about="show the state of the service",
    params=NoParams,
    who="admin",
)
PAUSE = Outline(
    name="pause",
    title="Pause",
    about="reject new requests on all instances until resume, except from admins",
    params=NoParams,
    who="admin",
)
RESUME = Outline(
    name="resume", title="Resume", about="accept new requests again", params=NoParams, who="admin"
)


class AdminCommands:
    """The commands about the service itself.

    Args:
        vitals: returns the state of the service.
        task_admin: the tasks of all principals.
        switches: the switches for all instances.
        gate: rejects new requests in this process at once when paused; None without a service.
        now: returns the time.
    """

    def __init__(
        self,
        vitals: Callable[[], Vitals],
        task_admin: TaskAdmin,
        switches: Switches,
        gate: PauseGate | None = None,
        now: Callable[[], datetime] = system.now,
    ) -> None:
        self._vitals = vitals
        self._task_admin = task_admin
        self._switches = switches
        self._gate = gate
        self._now = now

    def commands(self) -> tuple[AnyCommand, ...]:
        """Return the commands."""
        return (
            STATUS.done_by(self._status),
            PAUSE.done_by(self._pause),
            RESUME.done_by(self._resume),
        )

    async def _status(self, _asking: Asking, _params: NoParams) -> CommandResult:
        vitals = self._vitals()
        started = vitals.started
        status = Status(
            **msgspec.structs.asdict(vitals),
            paused=await self._switches.is_on(PAUSED),
            uptime_s=None if started is None else int((self._now() - started).total_seconds()),
            tasks=await self._task_admin.counts(),
        )
        return CommandResult("\n".join(_status_lines(status)), status)

    async def _pause(self, _asking: Asking, _params: NoParams) -> CommandResult:
        if not await self._turn(on=True):
            return CommandResult("The service is already paused.")
        return CommandResult(
            "Paused: new requests are rejected, except from admins, on all instances and after a"
            " restart too, until you resume. Running tasks continue."
        )

    async def _resume(self, _asking: Asking, _params: NoParams) -> CommandResult:
        if not await self._turn(on=False):
            return CommandResult("The service is not paused.")
        return CommandResult("New requests are accepted again.")

    async def _turn(self, *, on: bool) -> bool:
        changed = await self._switches.turn(PAUSED, on=on)
        if self._gate is not None:
            self._gate.paused = on
        return changed


def _status_lines(status: Status) -> list[str]:
    lines = [f"{status.software} {status.version} for {status.domain}"]
    if status.started is None:
        lines.append("The service is not running here.")
    else:
        lines.append(f"Up for {span(status.uptime_s or 0)}, since {when(status.started)}.")
        if status.connected_since is None:
            lines.append("Not connected to the XMPP server.")
        else:
            lines.append(f"Connected since {when(status.connected_since)}.")
    if status.paused:
        lines.append("Paused: new requests are rejected, except from admins.")
    lines += [f"Warning: {each}" for each in status.warnings]
    counts = status.tasks
    states = (name for name in Counts.__struct_fields__ if name not in ("queued", "owned"))
    kept = [f"{getattr(counts, name)} {name}" for name in states if getattr(counts, name)]
    lines.append(f"Tasks: {', '.join(kept).replace('_', '-') or 'none'}.")
    lines.append(f"{counts.owned} running, {counts.queued} waiting.")
    lines.append(f"{status.skills} skills. Storage: {status.storage}.")
    lines.append(f"Python {status.python}, {status.backend}.")
    return lines
