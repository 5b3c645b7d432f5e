"""The tables of durable tasks for tests without an engine, and rows to put in."""

import sqlite3
from collections.abc import Sequence
from typing import Any

import msgspec

from component.audit.protocol import AuditEvent
from component.store.database import Database, Dialect, Rows, Value
from component.tasks.changes import Change
from component.tasks.protocol import TaskLimits
from component.tasks.request import Request
from component.tasks.rows import Row, event_of, load
from tests.direct_database import expect
from tests.memory_database import memory_database
from xep.binding import encode
from xep.fluux_agent.execute import Output
from xep.fluux_agent.task import Input, InputSchema, Question, Task
from xep.jid import JID

ALICE = JID.parse("alice@a.example")
PHONE = JID.parse("alice@a.example/phone")
BOB = JID.parse("bob@b.example")
AGENT = JID.parse("assistant@agent.example.com")
OTHER = JID.parse("other@agent.example.com")
NOON = 1_795_521_600_000
"""2026-11-24T12:00:00Z in milliseconds."""
DAY = 86_400_000


class InMemory:
    """SQLite in memory; a connection that is given keeps its shape."""

    dialect: Dialect = "sqlite"
    now = settled = steady = 0

    def __init__(self, connection: sqlite3.Connection | None = None) -> None:
        if connection is None:
            connection = memory_database()
        self._connection = connection

    def execute(self, sql: str, parameters: Sequence[Value] = (), /) -> Rows:
        return self._connection.execute(sql, parameters)

    def expect(self, sql: str, parameters: Sequence[Value] = (), /) -> bool:
        return expect(self, sql, parameters)

    def notify(self, channel: str, /) -> None:
        pass


class Ledger:
    """A `Database` whose transaction never ends, with a clock that is set by hand.

    Args:
        database: a transaction on a real database; without one SQLite in memory.

    Attributes:
        asked: the statements it was given.
    """

    def __init__(self, database: Database | None = None) -> None:
        self.now = NOON
        self.asked: list[str] = []
        self.limits = TaskLimits(retention_s=DAY / 1000)
        self.instance = "this instance"
        self.make_receipt = None
        self.audited: list[AuditEvent] = []
        self._database = database or InMemory()
        self.dialect: Dialect = self._database.dialect
        self.skew = 0

    @property
    def settled(self) -> int:
        return self.now

    @property
    def steady(self) -> int:
        return self.now - self.skew

    def jump(self, seconds: int) -> None:
        """Set the wall clock; the steady clock goes on."""
        self.now += seconds * 1000
        self.skew += seconds * 1000

    def execute(self, sql: str, parameters: Sequence[Value] = (), /) -> Rows:
        self.asked.append(sql)
        return self._database.execute(sql, parameters)

    def expect(self, sql: str, parameters: Sequence[Value] = (), /) -> bool:
        return expect(self, sql, parameters)

    def notify(self, channel: str, /) -> None:
        pass

    def count(self, table: str) -> int:
        """How many rows a table has."""
        row = self.execute(f"SELECT count(*) FROM {table}").fetchone()
        assert row is not None
        return int(row[0])

    def add(
        self,
        task: str = "t-1",
        *,
        request: Request | None = None,
        principal: JID = ALICE,
        **columns: Any,
    ) -> Row:
        """A task that has been accepted now, by default one of Alice's at the agent."""
        asked = asked_for(principal, target=JID.parse(columns.get("target", str(AGENT))))
        row = Row(
            **{
                "id": task,
                "principal": str(principal),
                "requester": f"{principal}/phone",
                "target": str(AGENT),
                "skill": "report",
                "version": "1.0.0",
                "request": msgspec.json.encode(request or asked).decode(),
                "context": None,
                "state": "accepted",
                "revision": 0,
                "priority": 0,
                "owner": None,
                "fence": 0,
                "progress": None,
                "result": None,
                "failure": None,
                "promoted": 1,
                "unsent_revision": None,
                "wake_at": None,
                "deadline": None,
                "created": self.now,
                "updated": self.now,
                "retain_until": self.now + DAY,
                "share": str(principal),
            }
            | columns
        )
        self.execute(
            f"INSERT INTO tasks ({', '.join(Row.__struct_fields__)})"
            f" VALUES ({', '.join('?' * len(Row.__struct_fields__))})",
            msgspec.structs.astuple(row),
        )
        return row

    def row(self, task: str = "t-1") -> Row:
        """The row of a task as it is."""
        row = load(self, task)
        assert row is not None
        return row

    def ask(self, task: str, question: Input, revision: int) -> None:
        """A question of a task that is open, in place of any other."""
        self.execute("UPDATE inputs SET state = 'withdrawn' WHERE task = ?", (task,))
        self.execute(
            "INSERT INTO inputs (id, task, step, kind, question, revision, expires, state)"
            " VALUES (?, ?, 'ask', 'input', ?, ?, ?, 'open')",
            (question.id, task, encode(question), revision, self.now + DAY),
        )
        self.execute("INSERT INTO asked (input, jid) VALUES (?, ?)", (question.id, str(ALICE)))

    def part(self, task: str, part: Output) -> None:
        """A part of an artifact."""
        self.execute(
            "INSERT INTO parts (task, name, part, last, output) VALUES (?, ?, ?, ?, ?)",
            (task, part.name, part.part, int(part.last), encode(part)),
        )

    def replay(self, key: str, expires: int, task: str | None = None) -> None:
        """A record of an answer."""
        self.execute(
            "INSERT INTO replay (key, digest, task, expires) VALUES (?, 'd', ?, ?)",
            (key, task, expires),
        )


def asked_for(principal: JID = ALICE, **fields: Any) -> Request:
    """A request to run `report`."""
    return Request(
        **{
            "skill": "report",
            "principal": principal,
            "requester": JID.parse(f"{principal}/phone"),
            "target": AGENT,
            "json": msgspec.Raw(b"{}"),
        }
        | fields
    )


def event_in(change: Change) -> Task:
    """The event of a change."""
    return event_of(change.row, change.detail)


def question(identifier: str, revision: int) -> Input:
    """A question in words."""
    return Input(
        id=identifier,
        revision=revision,
        questions=(Question(text="Which river?", lang="en"),),
        schema=InputSchema(json=msgspec.Raw(b'{"type":"object"}')),
    )
