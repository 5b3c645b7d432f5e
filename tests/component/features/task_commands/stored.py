"""Tasks as rows, written as the engine writes them."""

from typing import Any

import msgspec

from component.storage.database import Database
from component.tasks.changes import change
from component.tasks.request import Request
from component.tasks.rows import Row
from tests.component.tasks.ledger import Ledger
from xep.binding import encode
from xep.fluux_agent.execute import Execute, Output, Param, Result
from xep.fluux_agent.task import Failure
from xep.jid import JID
from xep.stanza_error import StanzaError

RETENTION_MS = 3_600_000
ALICE, BOB = "alice@a.example", "bob@b.example"
AGENT = "assistant@agent.example"


def insert(
    database: Database, task: str, *, principal: str = ALICE, owner: str | None = None, **more: Any
) -> Row:
    """A task that was accepted just now."""
    request = Request(
        execute=encode(
            Execute(skill="report", request="r-1", params=(Param(name="topic", text="rivers"),))
        ),
        arguments=msgspec.Raw(b'{"topic":"rivers"}'),
        id="r-1",
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
    change(database, row, "running", owner="dead")
    result = Result(skill="report", outputs=(Output(name="summary", text=text),))
    change(database, row, "completed", result, retention_ms=RETENTION_MS)


def fail(database: Database, row: Row, error: StanzaError) -> None:
    change(database, row, "running", owner="dead")
    change(database, row, "failed", Failure.of(error), retention_ms=RETENTION_MS)
