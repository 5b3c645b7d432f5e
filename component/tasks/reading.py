"""What a principal is shown of its tasks: one, a page of all, the events of one.

Every function takes the `Database` of one operation of the storage. `who` is the principal, a bare
JID, and `at` the address of ours that it asks: only what it began there is there. Whatever else
could be asked for, never was or is not any more takes the one query of `find` and finds nothing,
so neither the answer nor its time tells those apart (TSK-010, TSK-011).
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from component.storage.database import Database, Value
from component.tasks.kept import kept_of
from component.tasks.pages import FAR, ROOM, described, fill, number, window
from component.tasks.request import request_of
from component.tasks.rows import COLUMNS, Row, decoded, event_of, milliseconds, moment
from component.tasks.states import TERMINAL
from xep.binding import encode, read
from xep.fluux_agent.confirm import Confirm
from xep.fluux_agent.execute import Output, Result, State
from xep.fluux_agent.task import Events, Failure, Gap, Input, Progress, Task, Tasks
from xep.jid import JID

# No list: SQLite makes an index of it, once a row is there to be held against it. That takes 50 µs,
# by which a task that is no longer kept could be told from one that never was (TSK-011).
_OPEN: Final = " AND ".join(f"state <> '{state}'" for state in sorted(TERMINAL))
_THEIRS: Final = (
    f"principal = ? AND target = ? AND visible = 1 AND (({_OPEN}) OR retain_until >= ?)"
)
_LISTED: Final = ", ".join(
    "NULL" if name in ("result", "failure") else name for name in Row.__struct_fields__
)


def find(database: Database, who: JID, at: JID, task: str, *, lock: bool = False) -> Row | None:
    """The row of a task of this principal at this address; None if there is none to be seen.

    With `lock` nobody else changes it before the end of the transaction.
    """
    locked = " FOR NO KEY UPDATE" if lock and database.dialect == "postgresql" else ""
    found = database.execute(
        f"SELECT {COLUMNS} FROM tasks WHERE id = ? AND {_THEIRS}{locked}",  # noqa: S608
        (task, *_theirs(database, who, at)),
    ).fetchone()
    return None if found is None else Row(*found)


def get(database: Database, who: JID, at: JID, task: str) -> Task | None:
    """The whole task (TSK-007)."""
    row = find(database, who, at, task)
    return None if row is None else whole(database, row)


def whole(database: Database, row: Row) -> Task:
    """The whole task of a row: until its end what there is so far, from then on how it ended."""
    return _task(
        row,
        outputs=() if row.state in TERMINAL else _artifacts(database, row.id),
        question=_question(database, row.id) if row.state == "input-required" else None,
    )


def earlier(database: Database, who: JID, at: JID, tasks: Sequence[str]) -> bool:
    """Whether all of these are tasks of the principal (EXE-001)."""
    return all(find(database, who, at, task) is not None for task in dict.fromkeys(tasks))


def list_(database: Database, who: JID, at: JID, query: Tasks) -> Tasks:
    """One page of the tasks that meet the filters of `query`, the one created last first.

    A key names the place of a task, not the task: it says where to go on when that has gone.

    Raises:
        StanzaError: `malformed`; no such page can be meant.
    """
    asked = window(query.page)
    meant, values = [_THEIRS], _theirs(database, who, at)
    filters: tuple[tuple[str, Value], ...] = (
        ("state = ?", query.state),
        ("context = ?", query.context),
        ("updated >= ?", None if query.since is None else milliseconds(query.since)),
    )
    for condition, value in filters:
        if value is not None:
            meant.append(condition)
            values.append(value)
    here, bounds = list(meant), list(values)
    if asked.after is not None:
        here.append("created <= ? AND (created < ? OR id > ?)")
        bounds += _place(asked.after)
    if asked.before is not None:
        here.append("created >= ? AND (created > ? OR id < ?)")
        bounds += _place(asked.before)
    order = "created, id DESC" if asked.backwards else "created DESC, id"
    rows = database.execute(
        f"SELECT {_LISTED} FROM tasks WHERE {' AND '.join(here)}"  # noqa: S608
        f" ORDER BY {order} LIMIT ? OFFSET ?",
        (*bounds, asked.size, asked.skip),
    )
    page = fill(rows, lambda *columns: _task(Row(*columns)))
    if asked.backwards:
        page.reverse()
    keys = [f"{milliseconds(task.created)}-{task.id}" for task in page if task.created]
    count, start = database.execute(
        "SELECT count(*), count(CASE WHEN created > ? OR (created = ? AND id < ?) THEN 1 END)"  # noqa: S608
        f" FROM tasks WHERE {' AND '.join(meant)}",
        (*(_place(keys[0]) if keys else (0, 0, "")), *values),
    ).fetchone() or (0, 0)
    ended, ended_bytes = kept_of(database, str(who))
    return Tasks(
        ended=ended,
        ended_bytes=ended_bytes,
        state=query.state,
        context=query.context,
        since=query.since,
        tasks=tuple(page),
        page=described(keys, start, count),
    )


def events(database: Database, who: JID, at: JID, query: Events) -> Events | None:
    """One page of the events of a task after the revision `query.since`; None: no such task.

    The gaps stand in the page that begins with the first event. Events that are dropped between
    two pages are in neither; that their revisions are missing shows it, for they are the keys.

    Raises:
        StanzaError: `malformed`; no such page can be meant.
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
    room = ROOM - sum(len(encode(gap)) for gap in gaps) if first else ROOM
    rows = database.execute(
        "SELECT revision, state, at, retain, detail FROM events WHERE task = ?"  # noqa: S608
        f" AND revision BETWEEN ? AND ? ORDER BY revision {'DESC' if asked.backwards else ''}",
        (row.id, here[0], here[-1]) if here else (row.id, 1, 0),
    )

    def told(revision: int, state: State, at: int, retain: int, detail: str | None) -> Task:
        return event_of(
            row, state=state, revision=revision, at=at, retain=retain, detail=decoded(detail)
        )

    page = fill(rows, told, room)
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
    return [str(who), str(at), database.now]


def _place(key: str) -> tuple[int, int, str]:
    """The parameters that compare with the place of a task in the list."""
    created, _, task = key.partition("-")
    return number(created), number(created), task


def _gaps(since: int, kept: Sequence[int], present: int) -> tuple[Gap, ...]:
    """The revisions after `since` up to the present one of which no event is kept."""
    edges = [since, *kept, present + 1]
    return tuple(
        Gap(first=before + 1, last=after - 1)
        for before, after in pairwise(edges)
        if after - before > 1
    )


def _task(
    row: Row, outputs: tuple[Output, ...] = (), question: Input | Confirm | None = None
) -> Task:
    """The task of a row. Its result and failure are left out where the row lacks them."""
    request = request_of(row)
    return Task(
        id=row.id,
        skill=row.skill,
        state=row.state,
        revision=row.revision,
        created=moment(row.created),
        updated=moment(row.updated),
        retain_until=moment(row.retain_until),
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
    """The question that the task waits for; `inputs.question` is its XML."""
    found = database.execute(
        "SELECT question FROM inputs WHERE task = ? AND state = 'open'"
        " ORDER BY revision DESC LIMIT 1",
        (task,),
    ).fetchone()
    question = None if found is None else decoded(found[0])
    return question if isinstance(question, Input | Confirm) else None


def _artifacts(database: Database, task: str) -> tuple[Output, ...]:
    """The artifacts so far: of each all its parts in one (ART-003). `parts.output` is XML."""
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
