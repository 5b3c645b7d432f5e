"""Queries for the principal of tasks: one task, a page of the list, the events of one.

Every function takes the `Database` of one storage operation. `who` is the principal, a bare JID,
and `at` the component's address that it asks: only tasks that it started at that address are found.
A task of somebody else, one that never existed and one no longer retained are one query
(`component.tasks.rows.find`) without a row, so neither the answer nor its timing distinguishes them
(TSK-010, TSK-011).
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Final, TypeVar

import msgspec

from component.policy.taint import Taint
from component.store.database import Database
from component.tasks import question_rows, rows
from component.tasks.protocol import TaskLimits
from component.tasks.rows import TERMINAL, Row
from xep.binding import ContentError, Payload, encode, read
from xep.fluux_agent import errors
from xep.fluux_agent.confirm import Confirm
from xep.fluux_agent.execute import Output, Result
from xep.fluux_agent.task import Events, Failure, Gap, Input, Progress, Task, Tasks
from xep.jid import JID
from xep.result_sets import PAGE_ROOM, First, ResultSet, page_bounds
from xep.stanza_error import StanzaError

E = TypeVar("E")
P = TypeVar("P", bound=Payload)

MOST: Final = 50
"""Entries in a page (COM-024)."""
FAR: Final = 2**53
"""Greater than any number that is counted here, and within the range of both databases."""


class Window(msgspec.Struct, frozen=True):
    """The requested page: `size` entries, after the first `skip` ones, between `after` and
    `before`. A page that is read `backwards` ends before `before`.
    """

    size: int
    skip: int
    after: str | None
    before: str | None
    backwards: bool


def window(request: ResultSet | None) -> Window:
    """Return the window of a request, None for the first page. Raises StanzaError (COM-026)."""
    if request is None:
        return Window(MOST, 0, None, None, backwards=False)
    try:
        page_bounds((), request, MOST)  # the checks are the same for every set
    except ContentError as error:
        raise errors.malformed(str(error)) from error
    return Window(
        size=MOST if request.max is None else min(request.max, MOST),
        skip=min(request.index or 0, FAR),
        after=request.after,
        before=request.before or None,  # an empty element means no limit (XEP-0059 §2.5)
        backwards=request.before is not None,
    )


def number(key: str) -> int:
    """Return the number in a key of a result set. Raises StanzaError: `malformed`."""
    if not (key.isascii() and key.isdigit() and len(key) <= 16):
        raise errors.malformed("set: the key is not from a result set of this agent")
    return min(int(key), FAR)


def fill(found: Iterable[E], made: Callable[[E], P], room: int = PAGE_ROOM) -> list[P]:
    """Return entries made of one element each, at least one, until they take `room` bytes."""
    page: list[P] = []
    for element in found:
        entry = made(element)
        room -= len(encode(entry).encode())
        if room < 0 and page:
            break
        page.append(entry)
    return page


def described(keys: list[str], start: int | None, count: int | None) -> ResultSet:
    """Return the set for a page of these keys, whose first entry is number `start` of `count`; both
    are None if counting would take long (XEP-0059 §2.2).
    """
    if not keys:
        return ResultSet(count=count)
    return ResultSet(first=First(key=keys[0], index=start), last=keys[-1], count=count)


class Found(msgspec.Struct, frozen=True):
    """A task, and what a model has to know of it.

    Attributes:
        task: the task.
        authors: the possible authors of its outcome.
        rests: whether it has ended, or waits for a person, a time or other tasks.
        asks: whether it, or a task that is a part of it, waits for a person.
        room: the room that was asked, if it is not the person alone.
    """

    task: Task
    authors: tuple[Taint, ...] = ()
    rests: bool = False
    asks: bool = False
    room: JID | None = None


def look_up(database: Database, who: JID, at: JID, task: str) -> Found | None:
    """Return a task with what a model has to know of it; None if there is no such task."""
    row = rows.find(database, who, at, task)
    if row is None:
        return None
    waits = row.owner is None and (row.waits > 0 or row.not_before is not None)
    asking = row.id if row.state == "input-required" else None
    if row.children and row.state not in TERMINAL:
        asking = asking or rows.asked_below(database, row.id)
    question = None if asking is None else question_rows.open_of(database, asking)
    approvals = None
    if question is not None and isinstance(question.content, Confirm):
        approvals = question.content.approvals
    return Found(
        whole_task(database, row),
        row.authors,
        rests=row.state in TERMINAL or asking is not None or waits,
        asks=asking is not None,
        room=None if approvals is None or approvals.room is None else approvals.room.jid,
    )


def get(database: Database, who: JID, at: JID, task: str) -> Task | None:
    """Return the whole task (TSK-007); None if there is no such task."""
    row = rows.find(database, who, at, task)
    return None if row is None else whole_task(database, row)


def earlier(database: Database, who: JID, at: JID, tasks: Sequence[str]) -> bool:
    """Return whether all of these are tasks of the principal (EXE-001)."""
    return all(rows.find(database, who, at, task) is not None for task in dict.fromkeys(tasks))


def whole_task(database: Database, row: Row) -> Task:
    """Return the whole task of a row (TSK-007): its artifacts so far, or its outcome."""
    asked = question_rows.open_of(database, row.id) if row.state == "input-required" else None
    return _task(
        row,
        outputs=() if row.state in TERMINAL else _artifacts(database, row.id),
        question=None if asked is None else asked.content,
    )


def list_(database: Database, who: JID, at: JID, query: Tasks, limits: TaskLimits) -> Tasks:
    """Return one page of the tasks that match the filters of `query`, the newest first.

    A key is the position of a task, not the task itself: paging continues there even if that task
    has been deleted. An index leads to the page, so the cost does not depend on the number of
    tasks. The tasks are not counted, so only a page that contains all of them has a count. The
    number of retained ended tasks is counted up to its limit.

    Raises StanzaError: `malformed`; the request describes no page. `feature-not-implemented`; the
    page is requested by `<index/>` (XEP-0059 §2.6).
    """
    asked = window(query.page)
    if asked.skip:
        raise StanzaError(
            "feature-not-implemented", "set: <index/> is not supported; use <after/> or <before/>"
        )
    ended, ended_bytes = rows.kept_of(database, str(who), limits.kept.most_tasks)
    found = _listed(database, rows.theirs(database, who, at), query, asked)
    page = fill(found[: asked.size], _task, limits.page_room)
    everything = asked.after is None and asked.before is None and len(page) == len(found)
    from_start = asked.after is None and (everything or not asked.backwards)
    if asked.backwards:
        page.reverse()
    keys = [f"{rows.milliseconds(task.created)}-{task.id}" for task in page if task.created]
    return Tasks(
        ended=ended,
        ended_bytes=ended_bytes,
        state=query.state,
        context=query.context,
        since=query.since,
        tasks=tuple(page),
        page=described(keys, 0 if from_start else None, len(keys) if everything else None),
    )


def _listed(database: Database, meant: rows.Filter, query: Tasks, asked: Window) -> list[Row]:
    """Return the rows of a page, in the requested order, and the one after them."""
    for condition, value in (("state = ?", query.state), ("context = ?", query.context)):
        if value is not None:
            meant[condition] = (value,)
    if asked.after is not None:
        meant["created <= ? AND (created < ? OR id > ?)"] = _place(asked.after)
    if asked.before is not None:
        meant["created >= ? AND (created > ? OR id < ?)"] = _place(asked.before)
    tail = ", id DESC" if asked.backwards else " DESC, id"
    most = asked.size + 1
    if query.since is None:
        return rows.listed(database, meant, f"created{tail}", most)
    # Tasks that changed since a time are those created since, found by the index of the list, and
    # those created earlier that changed since: few, as they were in progress then. The second part
    # uses the index of changes; an expression keeps the database from using the other index.
    since = rows.milliseconds(query.since)
    meant["updated >= ?"] = (since,)
    parts = [("created >= ?", "created"), ("created + 0 < ?", "created + 0")]
    found: list[Row] = []
    for condition, order in reversed(parts) if asked.backwards else parts:
        part = {**meant, condition: (since,)}
        found += rows.listed(database, part, order + tail, most - len(found))
        if len(found) == most:
            break
    return found


def events(
    database: Database, who: JID, at: JID, query: Events, room: int = PAGE_ROOM
) -> Events | None:
    """Return one page of the events of a task after the revision `query.since`; None: there is no
    such task.

    The page with the first event lists the gaps. Events that are dropped between two pages are in
    neither; the missing revisions show it, because revisions are the keys. Raises StanzaError:
    `malformed`; the request describes no page.
    """
    asked = window(query.page)
    after = 0 if asked.after is None else number(asked.after)
    before = FAR if asked.before is None else number(asked.before)
    row = rows.find(database, who, at, query.id)
    if row is None:
        return None
    since = max(0, min(query.since, row.revision))
    later = "SELECT revision FROM events WHERE task = ? AND revision > ? ORDER BY revision"
    kept = rows.column(database, later, row.id, since)
    gaps = _gaps(since, kept, row.revision)
    here = [revision for revision in kept if after < revision < before][asked.skip :]
    here = here[-asked.size :] if asked.backwards and asked.size else here[: asked.size]
    first = here[:1] == kept[:1]
    room -= sum(len(encode(gap)) for gap in gaps) if first else 0
    edges = (here[0], here[-1]) if here else (1, 0)
    found = rows.events_of(database, row, *edges, backwards=asked.backwards)
    page = fill(found, lambda event: rows.event_of(*event), room)
    if asked.backwards:
        page.reverse()
    shown = [task.revision for task in page]
    return Events(
        id=row.id,
        since=query.since,
        revision=row.revision,
        gaps=gaps if first and shown[:1] == here[:1] else (),
        tasks=tuple(page),
        page=described(
            [str(revision) for revision in shown],
            kept.index(shown[0] or 0) if shown else 0,
            len(kept),
        ),
    )


def _place(key: str) -> tuple[int, int, str]:
    created, _, task = key.partition("-")
    return number(created), number(created), task


def _gaps(since: int, kept: Sequence[int], present: int) -> tuple[Gap, ...]:
    """Return the revisions after `since` whose events are no longer stored."""
    edges = [since, *kept, present + 1]
    return tuple(
        Gap(first=before + 1, last=after - 1)
        for before, after in pairwise(edges)
        if after - before > 1
    )


def _task(
    row: Row, outputs: tuple[Output, ...] = (), question: Input | Confirm | None = None
) -> Task:
    """Return the task of a row. A result or failure that the row lacks is left out."""
    request = rows.request_of(row)
    return msgspec.structs.replace(
        rows.event_of(row, question),
        poll_after=None if row.state in TERMINAL else request.poll_after,
        request=request.name,
        thread=request.thread or None,
        progress=None if row.progress is None else read(row.progress, Progress),
        outputs=outputs,
        result=None if row.result is None else read(row.result, Result),
        failure=None if row.failure is None else read(row.failure, Failure),
    )


def _artifacts(database: Database, task: str) -> tuple[Output, ...]:
    """Return the artifacts so far, each with all its parts joined (ART-003)."""
    joined: dict[str, list[Output]] = {}
    for part in rows.parts_of(database, task):
        joined.setdefault(part.name, []).append(part)
    return tuple(
        Output(
            name=name,
            type=parts[0].type,
            part=parts[-1].part,
            last=parts[-1].last,
            text="".join([part.text for part in parts]),
            file=parts[-1].file,
        )
        for name, parts in joined.items()
    )
