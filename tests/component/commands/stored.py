"""Tasks as rows, written as the engine writes them."""

from typing import Any

import msgspec

from component.storage.database import Database
from component.tasks.request import Request
from component.tasks.rows import COLUMNS, Row, change
from xep.binding import encode
from xep.fluux_agent.execute import Execute, Output, Param, Result
from xep.fluux_agent.task import Failure
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
    row = Row(
        id=task,
        principal=principal,
        requester=f"{principal}/phone",
        target=AGENT,
        skill="report",
        version="1.0",
        request=request.encoded(),
        context=None,
        state="accepted",
        revision=0,
        priority=0,
        owner=owner,
        token=0,
        progress=None,
        result=None,
        failure=None,
        visible=1,
        untold=None,
        due=None,
        deadline=None,
        created=database.now,
        updated=database.now,
        retain_until=database.now + RETENTION_MS,
    )
    values = msgspec.structs.astuple(row)
    database.execute(
        f"INSERT INTO tasks ({COLUMNS}) VALUES ({', '.join('?' * len(values))})", values
    )
    return row


def complete(database: Database, row: Row, text: str = "done") -> None:
    change(database, row, "running", owner="dead")
    result = Result(skill="report", outputs=(Output(name="summary", text=text),))
    change(database, row, "completed", result, retention_ms=RETENTION_MS)


def fail(database: Database, row: Row, error: StanzaError) -> None:
    change(database, row, "running", owner="dead")
    change(database, row, "failed", Failure.of(error), retention_ms=RETENTION_MS)
