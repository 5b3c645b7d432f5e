"""Commands about the service: help, ping and contact for everybody; status, pause and resume for
admins.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from datetime import datetime

import msgspec
import structlog

from component import system
from component.commands import (
    GROUPS,
    AnyCommand,
    Asking,
    CommandError,
    CommandResult,
    NoParams,
    Outline,
    span,
)
from component.features.service_commands.skill_commands import SkillCommands
from component.features.service_commands.skill_texts import first_line, skill_text
from component.kernel.pause_gate import PauseGate
from component.store import StorageError
from component.store.contacts import StoppedContacts
from component.store.shared import PAUSED, Switches
from component.tasks.admin import Counts, TaskAdmin
from component.zones import spoken_time
from xep.jid import JID

_log = structlog.get_logger("component.app")

_MORE_HELP = (
    "Send /help and the name of a command or a skill to see what it needs. You can also send help"
    " without the slash."
)


class HelpParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of help.

    Args:
        command: Command or skill to explain. Default: list all commands.
    """

    command: str = ""


class CommandHelp(msgspec.Struct, frozen=True):
    """A command in the help text."""

    name: str
    about: str


HELP = Outline(
    name="help",
    title="Help",
    about="list my commands; add a name to see what it needs",
    params=HelpParams,
    group="everyday",
    only_reads=True,
)
PING = Outline(
    name="ping",
    title="Ping",
    about="check whether I am online",
    params=NoParams,
    only_reads=True,
)
STOP = Outline(
    name="stop-contact",
    title="Stop contact",
    about="stop me from writing to you first; I still answer you",
    params=NoParams,
    group="contact",
)
START = Outline(
    name="start-contact",
    title="Start contact",
    about="let me write to you first again",
    params=NoParams,
    group="contact",
)


class Introduction(msgspec.Struct, frozen=True):
    """How the help text begins: the name of the agent, and whether it can talk."""

    name: str
    talks: bool

    @property
    def text(self) -> str:
        """The first lines of the help text."""
        if self.talks:
            return (
                f"Just write to me: I am {self.name}. Ask me something, or tell me what to do, in"
                " your own words. For some things there are commands as well:"
            )
        return (
            f"I am {self.name}. I can't talk yet, because no language model is set up for me. These"
            " commands work:"
        )


def everybody(
    introduction: Introduction,
    offered: Callable[[Asking], Sequence[AnyCommand]],
    skills: SkillCommands,
    contacts: StoppedContacts | None = None,
) -> tuple[AnyCommand, ...]:
    """Return the commands for everybody that are not about tasks. `offered` returns the commands
    that a caller may use. `contacts` are the contacts that opted out; without them the commands for
    that are missing.
    """

    async def help_(asking: Asking, params: HelpParams) -> CommandResult:
        found = {each.name: each for each in offered(asking)}
        if not params.command:
            helps = [CommandHelp(each.name, each.about) for each in found.values()]
            parts = (introduction.text, *_groups(found.values()), _MORE_HELP)
            return CommandResult("\n\n".join(parts), helps)
        name = params.command.strip()
        wanted = name.removeprefix("/").casefold()
        skill = None if name.startswith("/") and wanted in found else skills.named(asking, name)
        if skill is not None:
            return CommandResult(skill_text(skill), CommandHelp(skill.name, first_line(skill)))
        if wanted in found:
            command = found[wanted]
            return CommandResult(_explained(command), CommandHelp(wanted, command.about))
        raise CommandError(
            f"There is no command or skill called {name[:40]!r}. Send /help or /skills for a list.",
            "command",
        )

    async def ping(_asking: Asking, _params: NoParams) -> CommandResult:
        return CommandResult("pong")

    found = (*skills.commands(), HELP.done_by(help_), PING.done_by(ping))
    if contacts is None:
        return found
    known = contacts

    async def stop(asking: Asking, _params: NoParams) -> CommandResult:
        await known.stop(*_between(asking))
        return CommandResult(
            "I will not write to you first any more, but I still answer you. Send /start-contact"
            " to undo this. Your running tasks continue; /tasks lists them."
        )

    async def start(asking: Asking, _params: NoParams) -> CommandResult:
        await known.start(*_between(asking))
        return CommandResult("I may write to you first again.")

    return (*found, STOP.done_by(stop), START.done_by(start))


def _groups(commands: Iterable[AnyCommand]) -> Iterator[str]:
    """Yield each group of commands with its title."""
    found = list(commands)
    for group, title in GROUPS.items():
        lines = [f"/{each.name} - {each.about}" for each in found if each.group == group]
        if lines:
            yield "\n".join((f"{title}:", *lines))


def _explained(command: AnyCommand) -> str:
    lines = [f"/{command.name} - {command.about}"]
    required = command.schema["required"]
    for name, schema in command.schema["properties"].items():
        mark = "" if name in required else " (optional)"
        described = schema.get("description", "")
        lines.append(f"  {name}{mark}: {described}" if described else f"  {name}{mark}")
    return "\n".join(lines)


def _between(asking: Asking) -> tuple[JID, JID]:
    if asking.principal is None or asking.at is None:
        raise CommandError("This works only over XMPP.")
    return asking.at, asking.principal


class Vitals(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the service. Times are UTC; `storage` is the kind of database, `models` are the
    provider and the name of each model.

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
    models: tuple[str, ...] = ()
    started: datetime | None = None
    connected_since: datetime | None = None
    warnings: tuple[str, ...] = ()


class ServiceStatus(Vitals, frozen=True, kw_only=True):
    """The status of the service. `uptime_s` is in whole seconds. `tasks` is None while the database
    cannot be read.
    """

    paused: bool
    uptime_s: int | None
    tasks: Counts | None


STATUS = Outline(
    name="status",
    title="Status",
    about="show the state of the service",
    params=NoParams,
    who="admin",
    only_reads=True,
)


class PauseParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of pause.

    Args:
        reason: Why, for the log.
    """

    reason: tuple[str, ...] = ()


PAUSE = Outline(
    name="pause",
    title="Pause",
    about="reject new requests on all instances until resume, except from admins",
    params=PauseParams,
    who="admin",
)
RESUME = Outline(
    name="resume", title="Resume", about="accept new requests again", params=NoParams, who="admin"
)
RELOAD = Outline(
    name="reload",
    title="Reload",
    about="apply the changes in the configuration file, and say what needs a restart",
    params=NoParams,
    who="admin",
)


async def _utc(_asking: Asking) -> str:
    return "UTC"


class AdminCommands:
    """The commands about the service itself.

    Args:
        vitals: returns the state of the service, with times in the time zone of this name.
        gate: rejects new requests in this process at once when paused; None without a service.
        zone_of: returns the name of the time zone of the caller. Raises StorageError.
    """

    def __init__(
        self,
        vitals: Callable[[str], Vitals],
        task_admin: TaskAdmin,
        switches: Switches,
        gate: PauseGate | None = None,
        zone_of: Callable[[Asking], Awaitable[str]] = _utc,
    ) -> None:
        self._vitals = vitals
        self._task_admin = task_admin
        self._switches = switches
        self._gate = gate
        self._zone_of = zone_of

    def commands(self) -> tuple[AnyCommand, ...]:
        """Return the commands."""
        return (
            STATUS.done_by(self._status),
            PAUSE.done_by(self._pause),
            RESUME.done_by(self._resume),
        )

    async def _status(self, asking: Asking, _params: NoParams) -> CommandResult:
        outage = await self._task_admin.find_outage()
        paused, tasks = self._gate is not None and self._gate.paused, None
        now, zone = system.now(), "UTC"
        try:
            zone = await self._zone_of(asking)
            paused, tasks = await self._switches.is_on(PAUSED), await self._task_admin.counts()
        except StorageError:
            if outage is None:
                raise
        vitals = self._vitals(zone)
        if outage is not None:
            since = spoken_time(outage.since, now, zone)
            sentence = f"The database cannot be used since {since}. {outage.reason}"
            warnings = (sentence, *vitals.warnings)
            vitals = msgspec.structs.replace(vitals, warnings=warnings)
        started = vitals.started
        status = ServiceStatus(
            **msgspec.structs.asdict(vitals),
            paused=paused,
            uptime_s=None if started is None else int((now - started).total_seconds()),
            tasks=tasks,
        )
        return CommandResult("\n".join(_status_lines(status, now, zone)), status)

    async def _pause(self, asking: Asking, params: PauseParams) -> CommandResult:
        if not await self._turn(on=True):
            return CommandResult("The service is already paused.")
        reason = " ".join(params.reason)
        _log.warning("paused: new requests are rejected", by=asking.caller, reason=reason)
        return CommandResult(
            "Paused: new requests are rejected, except from admins, on all instances and after a"
            " restart too, until you resume. Running tasks continue."
        )

    async def _resume(self, asking: Asking, _params: NoParams) -> CommandResult:
        if not await self._turn(on=False):
            return CommandResult("The service is not paused.")
        _log.info("resumed: requests are accepted", by=asking.caller)
        return CommandResult("New requests are accepted again.")

    async def _turn(self, *, on: bool) -> bool:
        async with self._switches.one_at_a_time:
            changed = await self._switches.turn(PAUSED, on=on)
            if self._gate is not None:
                self._gate.paused = on
        return changed


def _status_lines(status: ServiceStatus, now: datetime, zone: str) -> list[str]:
    lines = [f"{status.software} {status.version} for {status.domain}"]
    if status.started is None:
        lines.append("The service is not running here.")
    else:
        since = spoken_time(status.started, now, zone)
        lines.append(f"Up for {span(status.uptime_s or 0)}, since {since}.")
        if status.connected_since is None:
            lines.append("Not connected to the XMPP server.")
        else:
            lines.append(f"Connected since {spoken_time(status.connected_since, now, zone)}.")
    if status.paused:
        lines.append("Paused: new requests are rejected, except from admins.")
    lines += [f"Warning: {each}" for each in status.warnings]
    if (counts := status.tasks) is not None:
        lines += _counts_lines(counts)
    lines.append(f"Models: {', '.join(status.models) or 'none'}.")
    lines.append(f"{status.skills} skills. Storage: {status.storage}.")
    lines.append(f"Python {status.python}, {status.backend}.")
    return lines


def _counts_lines(counts: Counts) -> list[str]:
    states = (name for name in Counts.__struct_fields__ if name not in ("queued", "owned"))
    kept = [f"{getattr(counts, name)} {name}" for name in states if getattr(counts, name)]
    return [
        f"Tasks: {', '.join(kept).replace('_', '-') or 'none'}.",
        f"{counts.owned} running, {counts.queued} waiting.",
    ]
