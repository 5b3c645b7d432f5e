"""The schema of the database: the tables of all packages and features."""

from collections.abc import Iterator
from itertools import chain
from typing import Final

from component.agent import rows as agent
from component.app import features
from component.app.migrations import MIGRATIONS
from component.audit import heads as audit
from component.budget import rows as budget
from component.kernel import started_work
from component.pubsub import rows as pubsub
from component.skill_directories import approvals as skill_directories
from component.store import notifications, told
from component.store import tables as storage
from component.store.schema import Schema, Table
from component.tasks import journal, leases, question_rows, replay
from component.tasks import rows as tasks


def _of_features() -> Iterator[Table]:
    for name in features.FEATURES:
        rows = features.rows_of(name)
        if rows is not None:
            yield from rows.TABLES


_PACKAGES: Final = (
    *(
        storage,
        tasks,
        journal,
        replay,
        question_rows,
        leases,
        agent,
        budget,
        audit,
        pubsub,
        skill_directories,
        notifications,
        told,
        started_work,
    ),
)


def make_schema() -> Schema:
    """Return the tables of all packages and features."""
    tables = (*chain.from_iterable(package.TABLES for package in _PACKAGES), *_of_features())
    return Schema(tables, MIGRATIONS)


SCHEMA: Final = make_schema()
