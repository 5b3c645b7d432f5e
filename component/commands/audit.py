"""The command about the record: what was done and decided, and whether the record is whole."""

import itertools
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Final, Literal, TypeVar

import msgspec
from anyio import to_thread

from component.audit.lines import Line, Link
from component.audit.protocol import Kind
from component.audit.query import Query, latest, moment
from component.audit.verify import Verdict, verify_beside
from component.commands.definition import Answer, AnyCommand, Asking, CommandError, Outline
from component.storage import StorageError

T = TypeVar("T")

_SHOWN: Final = 10
"""Findings that are told; there may be as many as lines."""


class AuditParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What of the record."""

    do: Annotated[
        Literal["query", "verify"],
        msgspec.Meta(
            title="What to do", description="Show the last lines, or verify the whole record."
        ),
    ] = "query"
    principal: Annotated[
        str | None, msgspec.Meta(title="Principal", description="Only lines about this bare JID.")
    ] = None
    kind: Annotated[
        Kind | None, msgspec.Meta(title="Kind", description="Only lines of this kind.")
    ] = None
    outcome: Annotated[
        str | None,
        msgspec.Meta(title="Outcome", description="Only lines with this outcome, such as refused."),
    ] = None
    agent: Annotated[
        str | None, msgspec.Meta(title="Agent", description="Only lines about this agent.")
    ] = None
    subject: Annotated[
        str | None,
        msgspec.Meta(title="Subject", description="Only lines about this skill, key or model."),
    ] = None
    trace: Annotated[
        str | None, msgspec.Meta(title="Trace", description="Only lines of this turn or task.")
    ] = None
    task: Annotated[
        str | None, msgspec.Meta(title="Task", description="Only lines about this task.")
    ] = None
    since: Annotated[
        str | None,
        msgspec.Meta(
            title="Since", description="Only from this time on: 2026-03-01T12:00:00Z, or 30m, 7d."
        ),
    ] = None
    until: Annotated[
        str | None, msgspec.Meta(title="Until", description="Only before this time.")
    ] = None
    limit: Annotated[
        int, msgspec.Meta(title="Limit", description="At most so many lines.", ge=1, le=500)
    ] = 20


AUDIT = Outline(
    name="audit",
    title="The record",
    about="what was done and decided, the latest last; or verify that the record is whole",
    params=AuditParams,
    who="admin",
)


class AuditCommands:
    """The command about the record.

    Args:
        directory: where the files of the record are.
        known: the lines of it that the database knows.
        settled: waits until what was recorded is in the files. Raises StorageError.
    """

    def __init__(
        self,
        directory: Path,
        known: Callable[[], Awaitable[Sequence[Link]]],
        settled: Callable[[], Awaitable[None]],
    ) -> None:
        self._directory = directory
        self._known = known
        self._settled = settled

    def commands(self) -> tuple[AnyCommand, ...]:
        """All of them."""
        return (AUDIT.done_by(self._run),)

    async def _run(self, _asking: Asking, params: AuditParams) -> Answer:
        query = query_of(params)
        try:
            await self._settled()
        except StorageError as error:
            raise CommandError(str(error)) from None
        if params.do == "verify":
            known = await self._known()
            verdict = await _beside(partial(verify_beside, self._directory, known))
            return Answer(told_verdict(verdict), verdict)
        found = await _beside(partial(_last, self._directory, query, params.limit))
        return Answer("\n".join(map(told_line, found)) or "There are no such lines.", found)


def query_of(params: AuditParams) -> Query:
    """The filters of the command. Raises CommandError: a time that is none."""
    return Query(
        kind=params.kind,
        outcome=params.outcome,
        principal=params.principal,
        agent=params.agent,
        subject=params.subject,
        trace=params.trace,
        task=params.task,
        since=_time("since", params.since),
        until=_time("until", params.until),
    )


def told_line(line: Line) -> str:
    """A line of the record in words."""
    moment_, rest = line.time[:19].replace("T", " "), [line.kind, line.outcome]
    rest += [each for each in (line.principal, line.agent, line.subject) if each]
    if line.task:
        rest.append(f"task {line.task}")
    if line.detail:
        rest.append(f"({line.detail})")
    return f"{moment_} {' '.join(rest)}"


def told_verdict(verdict: Verdict) -> str:
    """What a record was found to be, in words."""
    notes = list(verdict.notes)
    if not verdict.whole:
        left = len(verdict.findings) - _SHOWN
        more = [f"… and {left} more."] if left > 0 else []
        return "\n".join(
            [
                "The record is not whole:",
                *(each.sentence for each in verdict.findings[:_SHOWN]),
                *more,
                *notes,
                "Keep the files as they are, and compare them with a backup.",
            ]
        )
    if not verdict.lines:
        return "\n".join(["There is no record yet.", *notes])
    said = (
        f"The record is whole: {verdict.lines} lines in {_files(verdict.files)}, from"
        f" {verdict.since} to {verdict.until}. The last one is {verdict.last}:{verdict.hash}"
    )
    return "\n".join([said, *notes])


def _files(number: int) -> str:
    return "1 file" if number == 1 else f"{number} files"


def _time(name: str, text: str | None) -> str | None:
    if text is None:
        return None
    try:
        return moment(text)
    except ValueError as error:
        raise CommandError(str(error), name) from None


def _last(directory: Path, query: Query, limit: int) -> list[Line]:
    found = list(itertools.islice(latest(directory, query), limit))
    for line in found:
        line.prev = ""  # of no use to who reads
    return found[::-1]


async def _beside(work: Callable[[], T]) -> T:
    """Read files, beside everything else; whoever asked may go away meanwhile."""
    try:
        return await to_thread.run_sync(work, abandon_on_cancel=True)
    except OSError as error:
        raise CommandError(f"The record cannot be read: {error.strerror or error}.") from None
