"""The numbers of tasks are those of the rows, regardless of which connection changes them."""

from collections.abc import Callable, Sequence

from hypothesis import given
from hypothesis import strategies as st

from component.app.schema import SCHEMA
from component.store.database import Database
from component.store.postgres import PostgreSQL
from component.store.writes import Queued, read_once
from component.tasks import admin
from component.tasks.admin import Counts
from component.tasks.changes import TRANSITIONS
from component.tasks.rows import TERMINAL, fold_counts
from tests.component.tasks.ledger import Ledger

_STATES = st.sampled_from(sorted(TRANSITIONS))
_NUMBERS = st.integers(0, 4)
_CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("add"), _NUMBERS, _STATES, st.booleans()),
        st.tuples(st.just("change"), _NUMBERS, _STATES, st.booleans()),
        st.tuples(st.just("touch"), _NUMBERS, _STATES, st.booleans()),
        st.tuples(st.just("delete"), _NUMBERS, _STATES, st.booleans()),
        st.tuples(st.just("delete all"), _NUMBERS, _STATES, st.booleans()),
    ),
    max_size=20,
)


def by_looking(database: Database) -> Counts:
    """What is counted row by row."""
    found = database.execute("SELECT state, owner FROM tasks").fetchall()
    states = [state for state, _ in found]
    return Counts(
        **{state.replace("-", "_"): states.count(state) for state in TRANSITIONS},
        owned=sum(owner is not None for _, owner in found),
        queued=sum(owner is None and state in ("accepted", "running") for state, owner in found),
    )


@given(_CHANGES)
def test_the_numbers_follow_every_change(
    new_ledger: Callable[[], Ledger], changes: Sequence[tuple[str, int, str, bool]]
) -> None:
    ledger = new_ledger()
    for what, number, state, owned in changes:
        task, owner = f"t-{number}", "me" if owned and state not in TERMINAL else None
        match what:
            case "add" if not ledger.execute(
                "SELECT 1 FROM tasks WHERE id = ?", (task,)
            ).fetchone():
                ledger.add(task, state=state, owner=owner)
            case "change":
                ledger.execute(
                    "UPDATE tasks SET state = ?, owner = ? WHERE id = ?", (state, owner, task)
                )
            case "touch":
                ledger.execute("UPDATE tasks SET updated = updated + 1 WHERE id = ?", (task,))
            case "delete":
                ledger.execute("DELETE FROM tasks WHERE id = ?", (task,))
            case "delete all":
                ledger.execute("DELETE FROM tasks WHERE state = ?", (state,))
        assert admin.count(ledger) == by_looking(ledger)


def _written(engine: PostgreSQL, op: Callable[[Database], object]) -> None:
    write: Queued[object] = Queued(op)
    engine.commit([write])
    assert write.error is None


def test_connections_that_have_gone_are_added_up(migrated_url: str) -> None:
    """Each has numbers of its own, so that no writer waits for another; they must not pile up."""
    rows = "SELECT count(DISTINCT shard) FROM task_counts WHERE shard <> 0"
    for number in range(3):
        engine = PostgreSQL.open(migrated_url, SCHEMA)
        _written(engine, lambda db, number=number: Ledger(db).add(f"t-{number}", state="failed"))  # type: ignore[misc]  # mypy sees no default
        engine.close()
    here = PostgreSQL.open(migrated_url, SCHEMA)
    other = PostgreSQL.open(migrated_url, SCHEMA)
    for engine, task in ((here, "t-mine"), (other, "t-theirs")):
        _written(engine, lambda db, task=task: Ledger(db).add(task, state="running"))  # type: ignore[misc]  # as above
    before = read_once(here, admin.count)
    assert (before.failed, before.running) == (3, 2)
    # The server may still be at the end of a connection that was closed.
    while True:
        _written(here, fold_counts)
        shards = read_once(here, lambda db: db.execute(rows).fetchone())
        assert shards is not None
        if shards[0] == 2:  # of those that are open
            break
    assert read_once(here, admin.count) == before
    _written(other, lambda db: db.execute("DELETE FROM tasks WHERE state = 'failed'"))
    assert read_once(here, admin.count) == Counts(running=2, queued=2)
    here.close()
    other.close()
