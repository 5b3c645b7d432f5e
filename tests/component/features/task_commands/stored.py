"""Tasks as rows, written as the engine writes them."""

from typing import Any

import msgspec

from component.store.database import Database
from component.tasks.changes import Transaction, change
from component.tasks.protocol import TaskLimits
from component.tasks.request import Request
from component.tasks.rows import Row
from tests.component.tasks.ledger import Ledger
from xep.fluux_agent.execute import Output, Result
from xep.fluux_agent.task import Failure
from xep.jid import JID
from xep.stanza_error import StanzaError

RETENTION_MS = 3_600_000
LIMITS = TaskLimits(retention_s=3600)
ALICE, BOB = "alice@a.example", "bob@b.example"
AGENT = "assistant@agent.example"


def insert(
    database: Database, task: str, *, principal: str = ALICE, owner: str | None = None, **more: Any
) -> Row:
    """A task that was accepted just now."""
    request = Request(
        skill="report",
        principal=JID.parse(principal),
        requester=JID.parse(f"{principal}/phone"),
        target=JID.parse(AGENT),
        json=msgspec.Raw(b'{"topic":"rivers"}'),
        name="r-1",
        **more,
    )
    return Ledger(database).add(
        task,
        request=request,
        principal=JID.parse(principal),
        target=AGENT,
        version="1.0",
        owner=owner,
        created=database.now,
        updated=database.now,
        retain_until=database.now + RETENTION_MS,
    )


def complete(database: Database, row: Row, text: str = "done") -> None:
    tx = Transaction(database, LIMITS)
    change(tx, row, "running", owner="dead")
    result = Result(skill="report", outputs=(Output(name="summary", text=text),))
    change(tx, row, "completed", result)


def fail(database: Database, row: Row, error: StanzaError) -> None:
    tx = Transaction(database, LIMITS)
    change(tx, row, "running", owner="dead")
    change(tx, row, "failed", Failure.of(error))
