"""Measures queries of 10,000 objects of 500 bytes, beside SQLite's `json_extract` on the same rows.

Both return the 20 newest objects of those that fit, and the number of all of them.
"""

from __future__ import annotations

import sqlite3
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import anyio

from benchmarks.report import Line, Target
from component.app.schema import SCHEMA
from component.features.objects import rows
from component.features.objects.node import ObjectNodes
from component.features.objects.objects import Caller, Objects
from component.features.objects.params import NewObject, ObjectQuery
from component.features.objects.places import Places
from component.features.objects.rows import ObjectRow, ObjectType, Space
from component.features.objects.settings import ObjectLimits
from component.features.objects.snapshots import ObjectReader
from component.features.objects.stored import Author, Content, StoredObject
from component.link.router.addresses import ComponentAddresses
from component.memory.sharing import Sharing
from component.memory_directory.layout import Layout, SessionKey
from component.store import Storage
from component.store.database import Database
from xep.jid import JID

NUMBER: Final = 10_000
_REPEATED: Final = 20
_WHO: Final = JID.parse("juliet@example.com")
_SPACE: Final = Space("assistant", str(_WHO))
_CALLER: Final = Caller(SessionKey("assistant", _WHO), Author(str(_WHO)))
_CITIES: Final = ("Verona", "Mantua", "Padua", "Venice")
_NOTE: Final = "Two households, both alike in dignity, in fair Verona, where we lay our scene. "
_FILTER: Final[dict[str, Any]] = {
    "status": "open",
    "amount": {"$gte": 500},
    "address.city": {"$in": ["Verona", "Padua"]},
}
_SQL: Final = """
    SELECT content, count(*) OVER () FROM objects
    WHERE agent = ? AND owner = ? AND type = 'order'
    AND json_extract(content, '$.data.status') = 'open'
    AND json_extract(content, '$.data.amount') >= 500
    AND json_extract(content, '$.data.address.city') IN ('Verona', 'Padua')
    ORDER BY json_extract(content, '$.created') DESC, id LIMIT 20
"""


def measure(runs: int) -> Iterator[Line]:
    """Yield the milliseconds of queries, and of storing an object."""
    with tempfile.TemporaryDirectory() as name:
        found, sql = anyio.run(_measured, Path(name), runs)
    what = f"a query of {NUMBER:,} objects of 500 bytes"
    yield Line(f"{what} / json_extract", "ms", found["kept"], sql, Target(30.0, "at most", "ours"))
    yield Line(f"{what}, after another instance has changed one", "ms", found["changed"], sql)
    yield Line(f"{what}, the first since the start", "ms", found["first"], sql)
    yield Line(f"{what} by a regular expression", "ms", found["pattern"])
    yield Line(f"{what} by words", "ms", found["words"])
    yield Line("storing an object", "ms", found["put"])


async def _measured(directory: Path, runs: int) -> tuple[dict[str, list[float]], list[float]]:
    found: dict[str, list[float]] = {}
    sql: list[float] = []
    async with Storage.open(SCHEMA, directory) as storage:
        await storage.write(_fill)
        other = _opened(storage)

        async def timed(title: str, run: Callable[[], Awaitable[Any]], times: int = 1) -> None:
            start = time.perf_counter()
            for _ in range(times):
                await run()
            found.setdefault(title, []).append((time.perf_counter() - start) * 1000 / times)

        for run in range(runs):
            objects = _opened(storage)
            wanted = ObjectQuery(type="order", filter=_FILTER)
            pattern = ObjectQuery(type="order", filter={"title": {"$regex": "^Order .*7$"}})
            words = ObjectQuery(type="order", text="households 4711")
            await timed("first", lambda: objects.query(_CALLER, wanted))  # noqa: B023 - runs now
            await timed("kept", lambda: objects.query(_CALLER, wanted), _REPEATED)  # noqa: B023
            await timed("pattern", lambda: objects.query(_CALLER, pattern), _REPEATED)  # noqa: B023
            await objects.query(_CALLER, words)
            await timed("words", lambda: objects.query(_CALLER, words), _REPEATED)  # noqa: B023
            new = NewObject(type="order", id="o1", data=_data(run))
            await timed("put", lambda: other.put(_CALLER, new), _REPEATED)  # noqa: B023
            await timed("changed", lambda: objects.query(_CALLER, wanted))  # noqa: B023
            sql.append(_by_sql(storage.directory / "agent.db"))
    return found, sql


def _by_sql(path: Path) -> float:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(_SQL, _SPACE).fetchall()
        start = time.perf_counter()
        for _ in range(_REPEATED):
            connection.execute(_SQL, _SPACE).fetchall()
        return (time.perf_counter() - start) * 1000 / _REPEATED


def _opened(storage: Storage) -> Objects:
    """Return the objects, as an instance that has read none of them."""
    agents, settings = frozenset(("assistant",)), ObjectLimits()
    pubsub: Any = SimpleNamespace(interested=lambda _addresses, _node: set())
    reader = ObjectReader(storage, settings.cache_bytes)
    places = Places(Sharing(Layout(Path())), lambda _agent, _room: ())
    addresses = ComponentAddresses(JID.parse("agent.example.com"), agents)
    nodes = ObjectNodes(pubsub, reader, places, agents, addresses)
    return Objects(storage, nodes, settings, {}, lambda _: False)


def _fill(database: Database) -> None:
    author, size = Author(str(_WHO)), 0
    rows.lock(database, _SPACE, "order", "generation")
    for number in range(NUMBER):
        content = Content(
            data=_data(number), created=number, updated=number, creator=author, author=author
        )
        one = StoredObject("order", f"o{number}", 1, number + 1, content)
        bytes_ = len(rows.encoded(content))
        size += bytes_
        rows.put(database, _SPACE, ObjectRow(one, bytes_, None, ()))
    type_ = ObjectType("order", "generation", NUMBER, NUMBER, size, (), None)
    rows.put_type(database, _SPACE, type_)


def _data(number: int) -> dict[str, Any]:
    return {
        "title": f"Order number {number}",
        "status": ("open", "paid", "sent")[number % 3],
        "amount": number * 37 % 1000,
        "address": {"city": _CITIES[number % 4], "zip": f"{number:05}"},
        "tags": ["one", "two"],
        "note": (_NOTE * 5)[:330],
    }
