"""Measures the delay for others when the service connects and announces itself to 20,000
subscribers.

A ping is always in progress: the benchmark counts how many announcements are sent before its
answer, and how long it takes. The peer is the same service without subscribers.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import processes
from benchmarks.report import Line, Target, percentile
from benchmarks.wire_end import DOMAIN, Acceptor
from component.app.schema import SCHEMA
from component.features.presence.handlers import SLICE
from component.store.schema import make_sqlite

MANY = 20_000
_PINGS = 2_000
_MOST = 1 << 18
_PROGRAM = Path(sys.executable).parent / "xmpp-agent"
_PING = (
    "<iq type='get' id='{id}' to='{to}' from='juliet@localhost/balcony'>"
    "<ping xmlns='urn:xmpp:ping'/></iq>"
)
_PRESENCE = b"</presence>"


@dataclass(slots=True)
class _Found:
    ahead: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    announced: int = 0
    took: float = 0.0
    megabytes: float = 0.0


def measure(runs: int) -> Iterator[Line]:
    """Yield the delay of a ping during an announcement, the duration of the announcement, and its
    memory.
    """
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        many = [_connected(directory / f"many-{run}", MANY) for run in range(runs)]
        none = [_connected(directory / f"none-{run}", 0) for run in range(runs)]
    yield Line(
        f"announcements before the answer to a ping, at most, of {MANY:,}",
        "",
        [max(one.ahead) for one in many],
        target=Target(2 * SLICE, "at most", "ours"),
    )
    for which in ("p50", "p99"):
        yield Line(
            f"a ping beside announcements to {MANY:,} subscribers / to none, {which}",
            "µs",
            [percentile(one.seconds, which) * 1e6 for one in many],
            [percentile(one.seconds, which) * 1e6 for one in none],
        )
    yield Line(f"announcing to {MANY:,} subscribers", "s", [one.took for one in many])
    yield Line(
        f"resident after announcing to {MANY:,} subscribers / to none",
        "MB",
        [one.megabytes for one in many],
        [one.megabytes for one in none],
        Target(1.2, "at most"),
    )


def _connected(directory: Path, subscribers: int) -> _Found:
    """Connect a service, and ping it until it has announced itself."""
    directory.mkdir()
    with Acceptor() as acceptor, contextlib.ExitStack() as stack:
        config = processes.agent_toml(directory, acceptor.port)
        _subscribe(processes.data_of(directory, acceptor.port), subscribers)
        command = [str(_PROGRAM), "run", "--config", str(config)]
        pid = stack.enter_context(processes.running(command)).pid
        start = acceptor.accept()
        found = _Found()
        number = 0
        while found.announced < subscribers or number < _PINGS:
            number += 1
            _ping(acceptor, f"p{number}", found)
            if found.announced == subscribers and not found.took:
                found.took = time.perf_counter() - start
        found.megabytes = processes.resident_megabytes(pid)
        return found


def _ping(acceptor: Acceptor, id_: str, found: _Found) -> None:
    start = time.perf_counter()
    acceptor.socket.sendall(_PING.format(id=id_, to=DOMAIN).encode())
    heard = b""
    answer = f"id='{id_}'".encode()
    while answer not in heard or not heard.endswith(b">"):
        more = acceptor.socket.recv(_MOST)
        assert more, "the stream ended"
        heard += more
    found.seconds.append(time.perf_counter() - start)
    found.ahead.append(heard.partition(answer)[0].count(_PRESENCE))
    found.announced += heard.count(_PRESENCE)


def _subscribe(data: Path, count: int) -> None:
    data.mkdir(mode=0o700)
    path = data / "agent.db"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        make_sqlite(connection, path, SCHEMA)
        connection.execute("BEGIN")
        connection.executemany(
            "INSERT INTO subscriptions (owner, contact, state, ask) VALUES (?, ?, 'from', 0)",
            ((f"assistant@{DOMAIN}", f"u{number}@localhost") for number in range(count)),
        )
        connection.execute("COMMIT")
    path.chmod(0o600)
    os.sync()
