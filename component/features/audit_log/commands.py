"""The command about the audit log: shows entries, and verifies that it is complete."""

import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeVar

import msgspec

from component import system
from component.audit.lines import Line
from component.audit.protocol import EventKind
from component.audit.record import Audit
from component.commands import AnyCommand, Asking, CommandError, CommandResult, Outline
from component.store import StorageError

if TYPE_CHECKING:
    from component.audit.query import AuditQuery
    from component.audit.verify import Verification

T = TypeVar("T")

_SHOWN: Final = 10
"""The maximum number of findings that are listed; there may be as many as lines."""


class AuditParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of the command.

    Args:
        do: Show the latest entries, or verify the whole log.
        principal: Only entries about this bare JID.
        kind: Only entries of this kind.
        outcome: Only entries with this outcome, such as refused.
        agent: Only entries about this agent.
        subject: Only entries about this skill, memory key or model.
        trace: Only entries of this turn or task.
        task: Only entries about this task.
        since: Only entries since this time: 2026-03-01T12:00:00Z, or 30m or 7d for so long ago.
        until: Only entries before this time.
        limit: Maximum number of entries.
    """

    do: Annotated[Literal["query", "verify"], msgspec.Meta(title="Action")] = "query"
    principal: str | None = None
    kind: EventKind | None = None
    outcome: str | None = None
    agent: str | None = None
    subject: str | None = None
    trace: str | None = None
    task: str | None = None
    since: str | None = None
    until: str | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=500)] = 20


AUDIT = Outline(
    name="audit",
    title="Audit log",
    about="show the audit log, the latest entry last, or verify that it is complete and unchanged",
    params=AuditParams,
    who="admin",
    only_reads=True,
)


class AuditCommands:
    """The command about the audit log."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit

    def commands(self) -> tuple[AnyCommand, ...]:
        """Return all of them."""
        return (AUDIT.done_by(self._run),)

    async def _run(self, _asking: Asking, params: AuditParams) -> CommandResult:
        query = audit_query(params)
        try:
            await self._audit.settled()
        except StorageError as error:
            raise CommandError(str(error)) from None
        if params.do == "verify":
            from component.audit.verify import verify_beside  # noqa: PLC0415 - most read entries

            known = await self._audit.known()
            verdict = await _beside(partial(verify_beside, self._audit.directory, known))
            return CommandResult(verdict_text(verdict), verdict)
        found = await _beside(partial(_last, self._audit.directory, query, params.limit))
        return CommandResult("\n".join(map(audit_line_text, found)) or "No entry matches.", found)


def audit_query(params: AuditParams) -> "AuditQuery":
    """Return the filters of the command. Raises CommandError for an invalid time."""
    from component.audit.query import AuditQuery  # noqa: PLC0415 - only when it is asked for

    given = msgspec.structs.asdict(params)
    times = {name: _time(name, given[name]) for name in ("since", "until")}
    return AuditQuery(**{name: given[name] for name in AuditQuery.__struct_fields__} | times)


def audit_line_text(line: Line) -> str:
    """Return a line of the audit log in words."""
    moment_, rest = line.time[:19].replace("T", " "), [line.kind, line.outcome]
    rest += [each for each in (line.principal, line.agent, line.subject) if each]
    if line.task:
        rest.append(f"task {line.task}")
    if line.detail:
        rest.append(f"({line.detail})")
    return f"{moment_} {' '.join(rest)}"


def verdict_text(verdict: "Verification") -> str:
    """Return the result of a verification in words."""
    if not verdict.whole:
        left = len(verdict.findings) - _SHOWN
        lines = [
            "The audit log is incomplete or was changed:",
            *(each.sentence for each in verdict.findings[:_SHOWN]),
            *([f"… and {left} more."] if left > 0 else []),
            *verdict.notes,
            "Keep the files unchanged, and compare them with a backup.",
        ]
    elif not verdict.lines:
        lines = ["There is no audit log yet.", *verdict.notes]
    else:
        files = "1 file" if verdict.files == 1 else f"{verdict.files} files"
        said = (
            f"The audit log is complete and unchanged: {verdict.lines} entries in {files}, from"
            f" {verdict.since} to {verdict.until}. The last one is {verdict.last}:{verdict.hash}"
        )
        lines = [said, *verdict.notes]
    return "\n".join(lines)


def _time(name: str, text: str | None) -> str | None:
    if text is None:
        return None
    from component.audit.query import parse_moment  # noqa: PLC0415

    try:
        return parse_moment(text)
    except ValueError as error:
        raise CommandError(str(error), name) from None


def _last(directory: Path, query: "AuditQuery", limit: int) -> list[Line]:
    from component.audit.query import latest  # noqa: PLC0415

    found = list(itertools.islice(latest(directory, query), limit))
    for line in found:
        line.prev = ""  # of no use to a reader
    return found[::-1]


async def _beside(work: Callable[[], T]) -> T:
    """Run work that reads files in a thread; the requester may be cancelled in the meantime."""
    try:
        return await system.in_thread(work, abandon_on_cancel=True)
    except OSError as error:
        raise CommandError(f"The audit log cannot be read: {error.strerror or error}.") from None
