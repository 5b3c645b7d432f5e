"""The answers to requests, on disk and in memory, so that none is executed twice (specification,
"Admission and Replay")."""

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

import anyio
import msgspec

from component.caches import LRUCache
from component.store.clock import seconds_since_boot
from component.store.database import Database, among, pairs_of
from component.store.schema import Table
from component.tasks.request import UNNAMED_WINDOW_S, RequestKey
from xep.binding import encode, read
from xep.fluux_agent import errors
from xep.fluux_agent.execute import Accepted, Result
from xep.fluux_agent.grant import SignedReceipt
from xep.stanza_error import StanzaError

TABLES: Final = (
    Table(
        name="replay",
        columns="""
            key TEXT PRIMARY KEY,
            digest TEXT NOT NULL,
            task TEXT,
            answer TEXT,
            owner TEXT,
            expires BIGINT NOT NULL,
            principal TEXT {C},
            bytes BIGINT NOT NULL DEFAULT 0,
            named INTEGER NOT NULL DEFAULT 1
        """,
        indexes={
            "replay_expires": "(expires)",
            "replay_task": "(task) WHERE task IS NOT NULL",
            "replay_kept": "(principal, expires, key, bytes) WHERE bytes > 0",
            "replay_principal": "(principal, expires)",
        },
        kept="part of a task",
    ),
)


RecordedAnswer: TypeAlias = Result | Accepted | StanzaError


def encode_answer(answer: RecordedAnswer) -> str:
    """Return the XML to store of an answer."""
    return answer.encode() if isinstance(answer, StanzaError) else encode(answer)


def decode_answer(text: str) -> RecordedAnswer:
    """Decode an answer that `encode_answer` encoded."""
    if text.startswith("<error "):
        return StanzaError.read(text, (*errors.CONDITIONS, SignedReceipt))
    answer = read(text, Result, Accepted)
    assert isinstance(answer, Result | Accepted)
    return answer


def return_or_raise(answer: RecordedAnswer) -> Result | Accepted:
    """Return an answer, or raise it."""
    if isinstance(answer, StanzaError):
        raise answer.copy()
    return answer


def check_same_content(recorded: str, digest: str) -> None:
    """Raise StanzaError, `conflict`, if the content differs (RPL-012)."""
    if recorded != digest:
        raise errors.conflict("An earlier request used this identifier with different content.")


def size_of(answer: RecordedAnswer) -> int:
    """Return the approximate size of an answer in bytes."""
    if not isinstance(answer, Result):
        return len(answer.text) if isinstance(answer, StanzaError) else 0
    size = 0
    for output in answer.outputs:
        size += len(output.text) * 2 + len(output.name)
    return size


_SHORT_ANSWER: Final = 1024


class ReplayRecord(msgspec.Struct, frozen=True):
    """A record that exists. Without `task` and `answer` the work has started within its IQ."""

    digest: str
    task: str | None
    answer: str | None
    owner: str | None
    alive: bool
    """Whether the instance `owner` still sends heartbeats."""
    left_ms: int
    """Milliseconds until the record expires; negative for an open task whose record outlives its
    expiry.
    """


_HOLDS: Final = (
    "(replay.expires > ? OR (replay.named = 1 AND EXISTS (SELECT 1 FROM tasks t WHERE"
    " t.id = replay.task AND t.state IN ('accepted', 'running', 'input-required', 'cancelling'))))"
)
"""A record recognises a repetition until it expires, and, if the request had a name, for as long as
its task is open (RPL-016).
"""

_RECORD: Final = (
    "INSERT INTO replay (key, digest, task, answer, owner, expires, named, principal)"  # noqa: S608
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (key) DO UPDATE SET digest = excluded.digest, task = excluded.task,"
    " answer = excluded.answer, owner = excluded.owner, expires = excluded.expires,"
    " named = excluded.named, principal = excluded.principal, bytes = 0"
    f" WHERE NOT {_HOLDS}"
)
"""Replaces a record that no longer recognises a repetition."""


def find(database: Database, key: str) -> ReplayRecord | None:
    """Return the record of a key, if it still recognises a repetition."""
    found = database.execute(
        "SELECT digest, task, answer, owner,"  # noqa: S608 - constant texts
        " EXISTS (SELECT 1 FROM instances i WHERE i.id = replay.owner), expires"
        f" FROM replay WHERE key = ? AND {_HOLDS}",
        (key, database.steady),
    ).fetchone()
    if found is None:
        return None
    digest, task, answer, owner, alive, expires = found
    return ReplayRecord(digest, task, answer, owner, bool(alive), expires - database.steady)


class NewRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A record to insert: the bare JID of the requester, the instance that serves the request, and
    when it expires, in milliseconds of the steady clock; the task and the answer, if there are any.
    """

    principal: str
    owner: str
    expires: int
    task: str | None = None
    answer: RecordedAnswer | None = None


def record(database: Database, key: RequestKey, new: NewRecord) -> ReplayRecord | None:
    """Insert the record of a request; if one is still valid, return that and change nothing.

    The new one has to expire later than an expired one that it replaces.
    """
    answer = None if new.answer is None else encode_answer(new.answer)
    values = (
        *(key.text, key.digest, new.task, answer, new.owner),
        *(new.expires, int(key.named), new.principal, database.steady),
    )
    return None if database.expect(_RECORD, values) else find(database, key.text)


def answer_record(
    database: Database,
    key: RequestKey,
    expires: int | None,
    answer: RecordedAnswer | None,
    *,
    task: str | None = None,
) -> None:
    """Store the outcome of a request in its record, unless a later request has replaced the record.

    `expires` distinguishes the two; see `record`. A long answer counts against the principal's
    retention limits (`component.tasks.expiry`).
    """
    text = None if answer is None else encode_answer(answer)
    database.execute(
        "UPDATE replay SET task = coalesce(?, task), answer = coalesce(?, answer), bytes = ?"
        " WHERE key = ? AND expires = ?",
        (task, text, counted(text), key.text, expires),
    )


def counted(text: str | None) -> int:
    """Return the number of bytes of an answer that count; a short answer costs no more than its
    record.
    """
    size = 0 if text is None else len(text.encode())
    return size if size > _SHORT_ANSWER else 0


def answer_of(database: Database, task: str) -> str | None:
    """Return the recorded answer to the request of a task, if there is one."""
    found = database.execute(
        "SELECT answer FROM replay WHERE task = ? AND answer IS NOT NULL", (task,)
    ).fetchone()
    return None if found is None else found[0]


def accept_record(database: Database, task: str, accepted: Accepted) -> None:
    """Store in a task's record that the request was answered with the task, unless it has an
    answer.
    """
    database.execute(
        "UPDATE replay SET answer = ? WHERE task = ? AND answer IS NULL",
        (encode_answer(accepted), task),
    )


_MOST_ENTRIES: Final = 10_000

_MOST_BYTES: Final = 16 * 1024 * 1024

_EXPIRED_AT_ONCE: Final = 2
"""More than one, so that the expired ones become fewer at any rate of requests."""

_ENTRY_BYTES: Final = 512
"""The approximate size of an entry without its texts."""


def answer_task(database: Database, task: str, principal: str, answer: RecordedAnswer) -> None:
    """Store the outcome of a task in its record, unless its request has an answer."""
    text = encode_answer(answer)
    database.execute(
        "UPDATE replay SET answer = ?, principal = ?, bytes = ? WHERE task = ? AND answer IS NULL",
        (text, principal, counted(text), task),
    )


def keep_record(database: Database, task: str, until: int) -> None:
    """Keep the record of a named request at least as long as its task is retained."""
    database.execute(
        "UPDATE replay SET expires = ? WHERE task = ? AND named = 1 AND expires < ?",
        (until, task, until),
    )


def shorten_records(database: Database, until: Mapping[str, int]) -> None:
    """Let the records of tasks expire at these times, if they would expire later."""
    pairs, value = pairs_of(database, until)
    database.execute(
        f"UPDATE replay SET expires = CAST(until.value AS BIGINT) FROM {pairs} AS until"  # noqa: S608
        " WHERE replay.task = until.key AND expires > CAST(until.value AS BIGINT)",
        (value,),
    )


def rename_owner(database: Database, before: str, owner: str) -> None:
    """Give the requests in progress of an owner to another one that is the same instance."""
    database.execute(
        "UPDATE replay SET owner = ? WHERE owner = ? AND answer IS NULL", (owner, before)
    )


def any_records(database: Database) -> bool:
    """Return whether there is a record."""
    return database.execute("SELECT 1 FROM replay LIMIT 1").fetchone() is not None


def delete_of(database: Database, tasks: Sequence[str]) -> None:
    """Delete the records of tasks."""
    theirs, ids = among(database, "task", tasks)
    database.execute(f"DELETE FROM replay WHERE {theirs}", (ids,))  # noqa: S608


def delete_expired(database: Database, limit: int) -> int:
    """Delete records that have expired and whose task is no longer stored; return how many."""
    found = database.execute(
        "SELECT key FROM replay WHERE expires < ? AND (named = 0 OR task IS NULL OR NOT EXISTS"  # noqa: S608
        f" (SELECT 1 FROM tasks WHERE tasks.id = replay.task)) LIMIT ?{_skip(database)}",
        (database.steady, limit),
    ).fetchall()
    for (key,) in found:
        database.execute("DELETE FROM replay WHERE key = ?", (key,))
    return len(found)


def principals_over(database: Database, size: int) -> list[str]:
    """Return the principals whose recorded answers are larger together, in bytes."""
    found = database.execute(
        "SELECT principal FROM replay WHERE bytes > 0 AND principal IS NOT NULL"
        " GROUP BY principal HAVING sum(bytes) > ?",
        (size,),
    ).fetchall()
    return [principal for (principal,) in found]


def answer_bytes(database: Database, principal: str) -> int:
    """Return the size of the recorded answers of a principal, in bytes."""
    found = database.execute(
        "SELECT coalesce(sum(bytes), 0) FROM replay WHERE principal = ? AND bytes > 0",
        (principal,),
    ).fetchone()
    return 0 if found is None else int(found[0])


def oldest_answers(database: Database, principal: str, limit: int) -> list[tuple[str, int]]:
    """Return the keys and the sizes of the records with answers that expire first."""
    return database.execute(
        "SELECT key, bytes FROM replay WHERE principal = ? AND bytes > 0"  # noqa: S608 - constant texts
        f" ORDER BY expires, key LIMIT {limit:d}{_skip(database)}",
        (principal,),
    ).fetchall()


def drop_answer(database: Database, key: str) -> None:
    """Replace an answer by an error that says that it is no longer stored."""
    database.execute(
        "UPDATE replay SET answer = ?, bytes = 0 WHERE key = ?",
        (errors.answer_not_kept().encode(), key),
    )


def _skip(database: Database) -> str:
    return " FOR UPDATE SKIP LOCKED" if database.dialect == "postgresql" else ""


class Flight:
    """A request in progress. A repetition waits for the same answer.

    Attributes:
        key: the key of the request.
        until: the time, by the clock of the cache, until which a repetition of a request without a
            name is recognised.
        recorded: when its record on disk expires, in milliseconds of the steady clock; None without
            a record. It distinguishes the record from one that a later request made with the same
            key.
        answer: None until there is one, and afterwards if the request was refused and left nothing
            behind.
        unwanted: whether the caller has cancelled the request before there was a task.
    """

    __slots__ = ("_cache", "_done", "answer", "key", "recorded", "until", "unwanted")

    def __init__(self, key: RequestKey, until: float, cache: "ReplayCache") -> None:
        self.key = key
        self.until = until
        self.recorded: int | None = None
        self.answer: RecordedAnswer | None = None
        self.unwanted = False
        self._cache = cache
        self._done = anyio.Event()

    @property
    def left_s(self) -> float:
        """Seconds for which a record of the request must be valid from now on."""
        return self._cache.left_s(self)

    def expires(self, steady: int) -> int:
        """Return when a record made at `steady` expires, in milliseconds of that clock."""
        return steady + round(self.left_s * 1000)

    @property
    def landed(self) -> bool:
        """Whether the request has ended."""
        return self._done.is_set()

    def land(self, answer: RecordedAnswer | None) -> None:
        """Set the answer; only the first call counts."""
        if not self._done.is_set():
            self.answer = answer
            self._cache.landed(self)
            self._done.set()

    async def wait(self) -> RecordedAnswer | None:
        """Wait for the answer."""
        await self._done.wait()
        return self.answer


_Entry: TypeAlias = tuple[str, RecordedAnswer, float, int]
"""The digest of the request, its answer, the time until which it is valid, and its size."""


class _Half:
    """Half of a cache: answers in the order in which they were put, and their size in bytes."""

    __slots__ = ("bytes", "entries", "most_bytes")

    def __init__(self, most_bytes: int) -> None:
        self.entries: OrderedDict[str, _Entry] = OrderedDict()
        self.most_bytes = most_bytes
        self.bytes = 0

    def put(self, key: str, entry: _Entry, now: float) -> None:
        """Add an entry; remove the oldest while there are too many, and up to two expired ones."""
        entries = self.entries
        if key in entries:
            self.remove(key)
        entries[key] = entry
        self.bytes += entry[3]
        while self.bytes > self.most_bytes:
            self.bytes -= entries.popitem(last=False)[1][3]
        for _ in range(_EXPIRED_AT_ONCE):
            if next(iter(entries.values()))[2] > now:
                break
            self.bytes -= entries.popitem(last=False)[1][3]

    def remove(self, key: str) -> None:
        """Remove an entry."""
        self.bytes -= self.entries.pop(key)[3]


class ReplayCache:
    """Recent answers, limited in number and bytes, and the requests in progress.

    Answers to named and unnamed requests have half of the room each. In either half, the oldest are
    dropped first, and each new answer drops up to two that have expired.

    Args:
        window_s: seconds for which the answer to a named request is cached, as advertised.
        entries: the maximum number of answers.
        size: their approximate maximum size in bytes.
        clock: seconds that do not jump, and continue while the machine is suspended.
    """

    def __init__(
        self,
        window_s: float,
        *,
        entries: int = _MOST_ENTRIES,
        size: int = _MOST_BYTES,
        clock: Callable[[], float] = seconds_since_boot,
    ) -> None:
        self._window_s = window_s
        self._least = size // entries
        """The minimum size of each entry, so that the limit on bytes also limits their number."""
        self._clock = clock
        self._halves = (_Half(size // 2), _Half(size // 2))
        """For requests without a name, and for named ones."""
        self._flights: dict[str, Flight] = {}

    def __len__(self) -> int:
        """Return how many answers are kept."""
        return sum(len(half.entries) for half in self._halves)

    def get(self, key: RequestKey) -> Result | Accepted | None:
        """Return the answer to a repetition, if it is in memory.

        Raises StanzaError: the recorded error, or `conflict` for other content.
        """
        half = self._halves[key.named]
        entry = half.entries.get(key.text)
        if entry is None:
            if self._flights:
                self.flight(key)
            return None
        digest, answer, until, _ = entry
        if until <= self._clock():
            half.remove(key.text)
            return None
        check_same_content(digest, key.digest)
        return return_or_raise(answer)

    def knows(self, key: RequestKey) -> bool:
        """Return whether a request with this key is in progress, or its answer is in memory."""
        return self.flight(key) is not None or key.text in self._halves[key.named].entries

    def under_way(self, key: str) -> Flight | None:
        """Return the request in progress that has this key."""
        return self._flights.get(key)

    def put(self, key: RequestKey, answer: RecordedAnswer, left_s: float | None = None) -> None:
        """Store an answer: for `left_s` seconds, or as long as a repetition is recognised.

        If it is too large, no answer is stored for this request.
        """
        if left_s is None:
            left_s = self._window_s if key.named else UNNAMED_WINDOW_S
        half = self._halves[key.named]
        size = _ENTRY_BYTES + size_of(answer)
        if size > half.most_bytes or left_s <= 0:
            return
        size = max(size, self._least)
        now = self._clock()
        half.put(key.text, (key.digest, answer, now + left_s, size), now)

    def flight(self, key: RequestKey) -> Flight | None:
        """Return the same request, if it is in progress. Raises StanzaError: `conflict`."""
        flight = self._flights.get(key.text)
        if flight is None:
            return None
        if not key.named and flight.until <= self._clock():
            return None
        check_same_content(flight.key.digest, key.digest)
        return flight

    def begin(self, key: RequestKey) -> Flight:
        """Register a request as in progress, until its flight lands."""
        until = self._clock() + UNNAMED_WINDOW_S
        flight = self._flights[key.text] = Flight(key, until, self)
        return flight

    def left_s(self, flight: Flight) -> float:
        """Return the seconds for which a record of a request in progress must be valid from now on.

        Without a name the time is counted from the start of the request.
        """
        if flight.key.named:
            return self._window_s
        return max(0.0, flight.until - self._clock())

    def landed(self, flight: Flight) -> None:
        """Unregister a flight that has ended."""
        text = flight.key.text
        if self._flights.get(text) is not flight:
            return  # a later request without a name has the same key
        del self._flights[text]
        if flight.answer is not None:
            self.put(flight.key, flight.answer, self.left_s(flight))


_PRINCIPALS: Final = 10_000
"""Number of principals whose counts are cached; the records of others are counted more often."""

_LOOK: Final = 10
"""A principal may use a tenth of its remaining records before they are counted again. Several
instances on one database may each let so many pass unseen by the others.
"""


class RecordBound:
    """Refuses new work of a principal that has too many replay records.

    Args:
        most: the maximum number of records of one principal.
        retry_after_s: the minimum number of seconds after which a refused request may be retried.
    """

    def __init__(self, most: int, retry_after_s: int) -> None:
        self._most = most
        self._retry_after_s = retry_after_s
        self._left: LRUCache[str, int] = LRUCache(_PRINCIPALS)

    def check(self, database: Database, principal: str) -> None:
        """Check whether a new record is allowed, in the transaction that inserted it.

        Raises StanzaError: `busy`, with the seconds until the oldest record expires.
        """
        left = self._left.get(principal, 0)
        self._left[principal] = left - 1 if left > 0 else self._count(database, principal)

    def _count(self, database: Database, principal: str) -> int:
        """Return how many more records may be made until the records are counted again."""
        # Delete expired records first: there may be many, and `retention.forget` runs only every
        # ten minutes.
        database.execute(
            "DELETE FROM replay WHERE principal = ? AND named = 0 AND expires <= ?",
            (principal, database.steady),
        )
        count: int
        count, oldest = database.execute(
            "SELECT count(*), min(expires) FROM (SELECT expires FROM replay WHERE principal = ?"
            " AND expires > ? ORDER BY expires LIMIT ?) AS kept",
            (principal, database.steady, self._most + 1),
        ).fetchone() or (0, None)
        if count > self._most:
            seconds = math.ceil((oldest - database.steady) / 1000)
            raise errors.busy(max(seconds, self._retry_after_s))
        return (self._most - count) // _LOOK
