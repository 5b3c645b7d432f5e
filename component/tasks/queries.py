"""Queries for the principal of tasks: one task, a page of the list, the events of one.

Every function takes the `Database` of one storage operation. `who` is the principal, a bare JID,
and `at` the component's address that it asks: only tasks that it started at that address are found.
A task of somebody else, one that never existed and one no longer retained are one query of `find`
without a row, so neither the answer nor its timing distinguishes them (TSK-010, TSK-011).
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from component.storage.database import Database, Value
from component.tasks.request import request_of
from component.tasks.retention import DEFAULT_BOUNDS, Bounds, kept_of
from component.tasks.rows import COLUMNS, Row, decoded, event_of, milliseconds, moment
from component.tasks.states import TERMINAL
from xep.binding import ContentError, Payload, encode, read
from xep.fluux_agent import errors
from xep.fluux_agent.confirm import Confirm
from xep.fluux_agent.execute import Output, Result, State
from xep.fluux_agent.task import Events, Failure, Gap, Input, Progress, Task, Tasks
from xep.jid import JID
from xep.result_sets import PAGE_ROOM, First, ResultSet, page_bounds
from xep.stanza_error import StanzaError

# Not written as a list: SQLite builds an index for a list as soon as one row is compared with it.
# That takes 50 µs, which would distinguish a task that is no longer retained from one that never
# existed (TSK-011).
P = TypeVar("P", bound=Payload)

MOST: Final = 50
"""Entries in a page (COM-024)."""
FAR: Final = 2**53
"""Greater than any number that is counted here, and within the range of both databases."""


class Window(msgspec.Struct, frozen=True):
    """The requested page: `size` entries, after the first `skip` ones.

    It lies between `after` and `before`, both excluded; None means no limit. A page that is read
    `backwards` ends before `before`.
    """

    size: int
    skip: int
    after: str | None
    before: str | None
    backwards: bool


def window(request: ResultSet | None) -> Window:
    """Return the window of a request; None requests the first page.

    Raises: StanzaError: `malformed`; the request describes no page (COM-026).
    """
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
    """Return the number in a key of a result set.

    Raises:
        StanzaError: `malformed`; the key is not from a result set of this service.
    """
    if not (key.isascii() and key.isdigit() and len(key) <= 16):
        raise errors.malformed("set: the key is not from a result set of this agent")
    return min(int(key), FAR)


def fill(rows: Iterable[tuple[Any, ...]], made: Callable[..., P], room: int = PAGE_ROOM) -> list[P]:
    """Entries made of one row each, until they take `room` bytes; one at least if there is one."""
    page: list[P] = []
    for row in rows:
        entry = made(*row)
        room -= len(encode(entry).encode())
        if room < 0 and page:
            break
        page.append(entry)
    return page


def described(keys: list[str], start: int | None, count: int | None) -> ResultSet:
    """Return the set for a page of these keys, whose first entry is number `start` of `count`.

    Both are None if counting would take long (XEP-0059 §2.2).
    """
    if not keys:
        return ResultSet(count=count)
    return ResultSet(first=First(key=keys[0], index=start), last=keys[-1], count=count)


_OPEN: Final = " AND ".join(f"state <> '{state}'" for state in sorted(TERMINAL))
_THEIRS: Final = (
    f"principal = ? AND target = ? AND visible = 1 AND (({_OPEN}) OR retain_until >= ?)"
)
_LISTED: Final = ", ".join(
    "NULL" if name in ("result", "failure") else name for name in Row.__struct_fields__
)


def find(database: Database, who: JID, at: JID, task: str, *, lock: bool = False) -> Row | None:
    """Return the row of a task of this principal at this address; None if it is not visible.

    With `lock` nobody else changes it before the end of the transaction.
    """
    locked = " FOR NO KEY UPDATE" if lock and database.dialect == "postgresql" else ""
    found = database.execute(
        f"SELECT {COLUMNS} FROM tasks WHERE id = ? AND {_THEIRS}{locked}",  # noqa: S608
        (task, *_theirs(database, who, at)),
    ).fetchone()
    return None if found is None else Row(*found)


def get(database: Database, who: JID, at: JID, task: str) -> Task | None:
    """Return the whole task (TSK-007)."""
    row = find(database, who, at, task)
    return None if row is None else whole_task(database, row)


def whole_task(database: Database, row: Row) -> Task:
    """Return the whole task of a row: before its end the artifacts so far, afterwards its
    outcome.
    """
    return _task(
        row,
        outputs=() if row.state in TERMINAL else _artifacts(database, row.id),
        question=_question(database, row.id) if row.state == "input-required" else None,
    )


def earlier(database: Database, who: JID, at: JID, tasks: Sequence[str]) -> bool:
    """Return whether all of these are tasks of the principal (EXE-001)."""
    return all(find(database, who, at, task) is not None for task in dict.fromkeys(tasks))


def list_(
    database: Database,
    who: JID,
    at: JID,
    query: Tasks,
    bounds: Bounds = DEFAULT_BOUNDS,
    room: int = PAGE_ROOM,
) -> Tasks:
    """Return one page of the tasks that match the filters of `query`, the newest first.

    A key is the position of a task, not the task itself: paging continues there even if that task
    has been deleted. An index leads to the page, so the cost does not depend on the number of
    tasks. The tasks are not counted, so only a page that contains all of them has a count. The
    number of retained ended tasks is counted up to the limit in `bounds`.

    Raises:
        StanzaError: `malformed`; the request describes no page. `feature-not-implemented`; the page
            is requested by `<index/>` (XEP-0059 §2.6).
    """
    asked = window(query.page)
    if asked.skip:
        raise StanzaError(
            "feature-not-implemented",
            "set: <index/> is not supported; use <after/> or <before/>",
        )
    ended, ended_bytes = kept_of(database, str(who), bounds.most_tasks)
    found = _listed(database, who, at, query, asked)
    page = fill(found[: asked.size], lambda *columns: _task(Row(*columns)), room)
    everything = asked.after is None and asked.before is None and len(page) == len(found)
    from_start = asked.after is None and (everything or not asked.backwards)
    if asked.backwards:
        page.reverse()
    keys = [f"{milliseconds(task.created)}-{task.id}" for task in page if task.created]
    return Tasks(
        ended=ended,
        ended_bytes=ended_bytes,
        state=query.state,
        context=query.context,
        since=query.since,
        tasks=tuple(page),
        page=described(keys, 0 if from_start else None, len(keys) if everything else None),
    )


def _listed(
    database: Database, who: JID, at: JID, query: Tasks, asked: Window
) -> list[tuple[Any, ...]]:
    """Return the rows of a page, in the requested order, and the one after them."""
    meant, values = [_THEIRS], _theirs(database, who, at)
    for condition, value in (("state = ?", query.state), ("context = ?", query.context)):
        if value is not None:
            meant.append(condition)
            values.append(value)
    if asked.after is not None:
        meant.append("created <= ? AND (created < ? OR id > ?)")
        values += _place(asked.after)
    if asked.before is not None:
        meant.append("created >= ? AND (created > ? OR id < ?)")
        values += _place(asked.before)
    if query.since is not None:
        meant.append("updated >= ?")
        values.append(milliseconds(query.since))
    tail = ", id DESC" if asked.backwards else " DESC, id"
    found: list[tuple[Any, ...]] = []
    for conditions, order, more in _parts(query, backwards=asked.backwards):
        found += database.execute(
            f"SELECT {_LISTED} FROM tasks WHERE {' AND '.join((*meant, *conditions))}"  # noqa: S608
            # Not a parameter: PostgreSQL would make a new plan for each value.
            f" ORDER BY {order}{tail} LIMIT {asked.size + 1 - len(found)}",
            (*values, *more),
        ).fetchall()
        if len(found) > asked.size:
            break
    return found


_Part: TypeAlias = tuple[tuple[str, ...], str, tuple[Value, ...]]


def _parts(query: Tasks, *, backwards: bool) -> Sequence[_Part]:
    """Return the parts of a list in their order: a condition, a sort expression, and parameters.

    Tasks that changed since a time are those created since, found by the index of the list, and
    those created earlier that changed since: few, as they were in progress then. The second part
    uses the index of changes; an expression keeps the database from using the other index.
    """
    if query.since is None:
        return [((), "created", ())]
    since = (milliseconds(query.since),)
    newer: _Part = (("created >= ?",), "created", since)
    older: _Part = (("created + 0 < ?",), "created + 0", since)
    return [older, newer] if backwards else [newer, older]


def events(
    database: Database, who: JID, at: JID, query: Events, room: int = PAGE_ROOM
) -> Events | None:
    """One page of the events of a task after the revision `query.since`; None: no such task.

    The page with the first event lists the gaps. Events that are dropped between two pages are in
    neither; the missing revisions show it, because revisions are the keys.

    Raises:
        StanzaError: `malformed`; the request describes no page.
    """
    asked = window(query.page)
    after = 0 if asked.after is None else number(asked.after)
    before = FAR if asked.before is None else number(asked.before)
    row = find(database, who, at, query.id)
    if row is None:
        return None
    since = max(0, min(query.since, row.revision))
    kept = [
        revision
        for (revision,) in database.execute(
            "SELECT revision FROM events WHERE task = ? AND revision > ? ORDER BY revision",
            (row.id, since),
        ).fetchall()
    ]
    gaps = _gaps(since, kept, row.revision)
    here = [revision for revision in kept if after < revision < before][asked.skip :]
    here = here[-asked.size :] if asked.backwards and asked.size else here[: asked.size]
    first = here[:1] == kept[:1]
    room -= sum(len(encode(gap)) for gap in gaps) if first else 0
    rows = database.execute(
        "SELECT revision, state, at, retain, detail FROM events WHERE task = ?"  # noqa: S608
        f" AND revision BETWEEN ? AND ? ORDER BY revision {'DESC' if asked.backwards else ''}",
        (row.id, here[0], here[-1]) if here else (row.id, 1, 0),
    )

    def told(revision: int, state: State, at: int, retain: int, detail: str | None) -> Task:
        return event_of(
            row, state=state, revision=revision, at=at, retain=retain, detail=decoded(detail)
        )

    page = fill(iter(rows.fetchone, None), told, room)
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
            kept.index(shown[0]) if shown else 0,
            len(kept),
        ),
    )


def _theirs(database: Database, who: JID, at: JID) -> list[Value]:
    return [str(who), str(at), database.steady]


def _place(key: str) -> tuple[int, int, str]:
    """Return the parameters that compare with the position of a task in the list."""
    created, _, task = key.partition("-")
    return number(created), number(created), task


def _gaps(since: int, kept: Sequence[int], present: int) -> tuple[Gap, ...]:
    """Return the revisions after `since`, up to the `present` one, whose events are no longer
    stored.
    """
    edges = [since, *kept, present + 1]
    return tuple(
        Gap(first=before + 1, last=after - 1)
        for before, after in pairwise(edges)
        if after - before > 1
    )


def _task(
    row: Row,
    outputs: tuple[Output, ...] = (),
    question: Input | Confirm | None = None,
) -> Task:
    """Return the task of a row. A result or failure that the row lacks is left out."""
    request = request_of(row)
    return Task(
        id=row.id,
        skill=row.skill,
        state=row.state,
        revision=row.revision,
        created=moment(row.created),
        updated=moment(row.updated),
        retain_until=moment(row.shown_until),
        deadline=None if row.deadline is None else moment(row.deadline),
        poll_after=None if row.state in TERMINAL else request.poll_after,
        request=request.id,
        context=row.context,
        thread=request.thread or None,
        progress=None if row.progress is None else read(row.progress, Progress),
        outputs=outputs,
        input=question if isinstance(question, Input) else None,
        confirm=question if isinstance(question, Confirm) else None,
        result=None if row.result is None else read(row.result, Result),
        failure=None if row.failure is None else read(row.failure, Failure),
    )


def _question(database: Database, task: str) -> Input | Confirm | None:
    """Return the question that the task waits for; `inputs.question` is its XML."""
    found = database.execute(
        "SELECT question FROM inputs WHERE task = ? AND state = 'open'"
        " ORDER BY revision DESC LIMIT 1",
        (task,),
    ).fetchone()
    question = None if found is None else decoded(found[0])
    return question if isinstance(question, Input | Confirm) else None


def _artifacts(database: Database, task: str) -> tuple[Output, ...]:
    """Return the artifacts so far, each with all its parts joined (ART-003).
    `parts.output` is XML.
    """
    joined: dict[str, list[Output]] = {}
    for (output,) in database.execute(
        "SELECT output FROM parts WHERE task = ? ORDER BY name, part", (task,)
    ).fetchall():
        part = read(output, Output)
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
