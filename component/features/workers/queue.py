"""The database of a queue: where procrastinate's tables and ours are, and the statements on ours.

procrastinate brings a call to a worker that has its skill: there is one of its queues, a *lane*,
for each version of a skill. Its jobs contain only the id of a call. What happens to a call is
decided by its row in `calls`, under PostgreSQL's locks and clock:

    waiting -> running -> ended

- A call begins once: only the job that changes its row from `waiting` to `running` runs the skill.
  Jobs that are delivered twice, or too late, find it changed and do nothing.
- `fence` is a fencing token. A worker that was counted as lost cannot write the outcome any more.
- A running call whose worker is lost waits again if its skill is repeatable (read-only or
  idempotent); otherwise it ends, and its outcome is unknown.
"""

from __future__ import annotations

import hashlib
from importlib import resources
from typing import Any, Final

from psycopg import Connection
from psycopg.conninfo import conninfo_to_dict, make_conninfo

SCHEMA: Final = "xmpp_agent_queue"
TASK: Final = "xmpp_agent.call"
"""The name of procrastinate's task."""
MOST_ATTEMPTS: Final = 5
"""How many times a repeatable call begins: one that always ends its worker is given up then."""
FORGET: Final = "1 hour"
"""How long a skill stays known without a worker that has it."""
KEEP: Final = "7 days"
"""How long an ended call is recognised."""
KEEP_OUTCOME: Final = "1 hour"
"""How long the outcome is kept after a service has read it: it may read it again after a crash."""
ENDED: Final = "e"
PROGRESS: Final = "p"
"""How the notifications of a service begin: the id of a call follows, or a `Progress` as JSON."""
_LOCK: Final = 0x786D_7070_7175  # for the transaction that creates the tables

_TABLES: Final = """
CREATE SEQUENCE IF NOT EXISTS fences;
CREATE TABLE IF NOT EXISTS workers (
    id text PRIMARY KEY,
    queue text NOT NULL,
    name text NOT NULL,
    lanes text[] NOT NULL,
    lost_after interval NOT NULL,
    seen timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE IF NOT EXISTS offers (
    queue text NOT NULL,
    lane text NOT NULL,
    skill text NOT NULL,
    description text NOT NULL,
    seen timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (queue, lane)
);
CREATE TABLE IF NOT EXISTS calls (
    id text PRIMARY KEY,
    queue text NOT NULL,
    lane text NOT NULL,
    message bytea NOT NULL,
    repeatable boolean NOT NULL,
    priority integer NOT NULL,
    state text NOT NULL DEFAULT 'waiting',
    attempts integer NOT NULL DEFAULT 0,
    fence bigint,
    job bigint,
    worker text,
    channel text NOT NULL,
    expires timestamptz NOT NULL,
    outcome bytea,
    failed boolean NOT NULL DEFAULT false,
    asked boolean NOT NULL DEFAULT false,
    ended timestamptz,
    taken timestamptz
);
CREATE INDEX IF NOT EXISTS calls_running ON calls (worker) WHERE state = 'running';
CREATE INDEX IF NOT EXISTS calls_waiting ON calls (queue) WHERE state = 'waiting';
CREATE INDEX IF NOT EXISTS calls_ended ON calls (ended) WHERE state = 'ended';
"""


def conninfo(database: str) -> str:
    """Return the connection string for connections that see only the tables of queues.

    Raises ProgrammingError (psycopg): it is not a connection string.
    """
    options = str(conninfo_to_dict(database).get("options") or "")
    return make_conninfo(database, options=f"{options} -c search_path={SCHEMA}".strip())


def lane_of(queue: str, description: str) -> str:
    """Return the lane of a version of a skill. PostgreSQL limits the length of such names."""
    return hashlib.sha256(f"{queue}\n{description}".encode()).hexdigest()[:32]


def create_tables(connection: Connection[Any]) -> None:
    """Create the tables if they do not exist. Several processes may do this at the same time."""
    found = connection.execute(f"SELECT to_regclass('{SCHEMA}.calls')").fetchone()
    if found != (None,):
        return
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
        found = connection.execute(f"SELECT to_regclass('{SCHEMA}.procrastinate_jobs')").fetchone()
        if found == (None,):
            file = resources.files("procrastinate.sql") / "schema.sql"
            connection.execute(file.read_bytes())
        connection.execute(_TABLES)
