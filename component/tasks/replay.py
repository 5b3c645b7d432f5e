"""What was answered to whom, so that nothing runs twice (specification, "Admission and Replay").

In memory for what just ran, and for what is under way; in rows for what must not run again.
"""

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, TypeAlias

import anyio
import msgspec

from component.storage.database import Database
from component.tasks.rows import Change, Row, change
from component.tasks.states import TERMINAL
from xep.binding import encode, read
from xep.fluux_agent import errors
from xep.fluux_agent.execute import Accepted, Execute, Result, State
from xep.fluux_agent.task import Failure
from xep.jid import JID
from xep.stanza_error import StanzaError

Answer: TypeAlias = Result | Accepted | StanzaError

_MOST_ENTRIES = 10_000
_MOST_BYTES = 16 * 1024 * 1024
_LARGEST_EXACT: Final = 2**53
_ENTRY_BYTES = 512
"""About what an entry takes beside its texts."""


def key_of(requester: JID, target: JID, request: str | None, stanza_id: str) -> str:
    """By what a repetition of a request is known (RPL-005, RPL-006), as 64 hex digits.

    `requester` is the full address it came from, `target` the one it was sent to, `request` the
    attribute of that name, `stanza_id` the id of its IQ.
    """
    if request is None:
        parts = ("iq", str(requester), str(target), stanza_id)
    else:
        parts = ("request", str(requester.bare), str(target), request)
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()


def digest_of(execute: Execute) -> str:
    """A digest over the content of a request: equal exactly for the same content, as 64 hex digits.

    The specification ("The Same Request Again") says what counts: not the order of parameters of
    different names, not white space, not how JSON was written.
    """
    delegation = execute.delegation
    parts = (
        execute.skill,
        execute.mode,
        execute.priority,
        execute.context,
        execute.thread,
        [earlier.task for earlier in execute.earlier],
        None if execute.deadline is None else repr(execute.deadline.timestamp()),
        execute.texts(),
        delegation
        and (
            str(delegation.origin),
            delegation.max_hops,
            None if delegation.budget_usd is None else str(delegation.budget_usd.normalize()),
            delegation.budget_tokens,
            delegation.trace,
            [str(via) for via in delegation.via],
        ),
    )
    digest = hashlib.sha256(_encode(parts))
    if execute.json_params is not None:
        digest.update(_canonical(bytes(execute.json_params.json)))
    return digest.hexdigest()


def _canonical(json: bytes) -> bytes:
    """The same bytes for all the ways to write a JSON value, apart from numbers that are not exact.

    Members are sorted, and a float that is an integer is written as one. RFC 8785 would do the same
    for a hundred times the time, and nobody but this process reads these digests.
    """
    try:
        return b"json " + _encode(_decode(json))
    except (ValueError, RecursionError):
        return b"text " + json  # refused later, and until then equal to itself


def _float(text: str) -> float:
    """1.0 and 1e0 are the number 1 (specification, "The Same Request Again")."""
    value = float(text)
    return int(value) if value.is_integer() and abs(value) < _LARGEST_EXACT else value


_encode: Final = msgspec.json.Encoder(order="deterministic").encode
_decode: Final = msgspec.json.Decoder(float_hook=_float).decode


def kept(answer: Answer) -> str:
    """The XML to keep of an answer."""
    return answer.encode() if isinstance(answer, StanzaError) else encode(answer)


def unkept(text: str) -> Answer:
    """The answer that `kept` wrote."""
    if text.startswith("<error "):
        return StanzaError.read(text, errors.CONDITIONS)
    answer = read(text, Result, Accepted)
    assert isinstance(answer, Result | Accepted)
    return answer


def given(answer: Answer) -> Result | Accepted:
    """Return an answer, or raise it."""
    if isinstance(answer, StanzaError):
        raise again(answer)
    return answer


def again(error: StanzaError) -> StanzaError:
    """Return the same error as another exception: what is raised grows a traceback."""
    return StanzaError(
        error.condition,
        error.text,
        type=error.type,
        application=error.application,
        lang=error.lang,
    )


class Flight:
    """A request under way. Whoever repeats it waits for the same answer.

    `answer` is None while there is none, and stays so if the request was refused and left nothing.
    """

    __slots__ = ("_done", "_ended", "answer", "digest", "key")

    def __init__(self, key: str, digest: str, ended: "Callable[[Flight], None]") -> None:
        self.key = key
        self.digest = digest
        self.answer: Answer | None = None
        self._done = anyio.Event()
        self._ended = ended

    @property
    def landed(self) -> bool:
        """Whether it is over."""
        return self._done.is_set()

    def land(self, answer: Answer | None) -> None:
        """Say how it ended; only the first answer counts."""
        if not self._done.is_set():
            self.answer = answer
            self._ended(self)
            self._done.set()

    async def wait(self) -> Answer | None:
        """Wait for the end of it."""
        await self._done.wait()
        return self.answer


class _Entry(msgspec.Struct, frozen=True):
    digest: str
    answer: Answer
    size: int
    until: float


class Memory:
    """Answers of the last while, bounded in number and bytes, and the requests under way.

    Args:
        window_s: seconds for which an answer is kept, as advertised.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        window_s: float,
        *,
        entries: int = _MOST_ENTRIES,
        size: int = _MOST_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._window_s = window_s
        self._most_entries = entries
        self._most_bytes = size
        self._clock = clock
        self._bytes = 0
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._flights: dict[str, Flight] = {}

    def __len__(self) -> int:
        """How many answers are kept."""
        return len(self._entries)

    def get(self, key: str, digest: str) -> Result | Accepted | None:
        """The answer to a repetition, if it is here.

        Raises StanzaError: the recorded error, or `conflict` for other content.
        """
        entry = self._entries.get(key)
        if entry is None:
            flight = self._flights.get(key)
            if flight is not None:
                same(flight.digest, digest)
            return None
        if entry.until <= self._clock():
            self._drop(key)
            return None
        same(entry.digest, digest)
        return given(entry.answer)

    def knows(self, key: str) -> bool:
        """Whether a request of this key is under way, or its answer is here."""
        return key in self._flights or key in self._entries

    def put(self, key: str, digest: str, answer: Answer) -> None:
        """Keep an answer, and forget the oldest ones if there are too many."""
        size = _ENTRY_BYTES + size_of(answer)
        if key in self._entries:
            self._drop(key)
        if size > self._most_bytes:
            return
        self._entries[key] = _Entry(digest, answer, size, self._clock() + self._window_s)
        self._bytes += size
        while self._bytes > self._most_bytes or len(self._entries) > self._most_entries:
            self._drop(next(iter(self._entries)))

    def flight(self, key: str, digest: str) -> Flight | None:
        """The same request, if it is under way. Raises StanzaError: `conflict`."""
        flight = self._flights.get(key)
        if flight is not None:
            same(flight.digest, digest)
        return flight

    def begin(self, key: str, digest: str) -> Flight:
        """A request is under way from now on, until its flight lands."""
        flight = self._flights[key] = Flight(key, digest, self._landed)
        return flight

    def _landed(self, flight: Flight) -> None:
        self._flights.pop(flight.key, None)
        if flight.answer is not None:
            self.put(flight.key, flight.digest, flight.answer)

    def _drop(self, key: str) -> None:
        self._bytes -= self._entries.pop(key).size


def same(recorded: str, digest: str) -> None:
    """Raise StanzaError, `conflict`, if the content is another (RPL-012)."""
    if recorded != digest:
        raise errors.conflict("An earlier request had this identifier and other content.")


def size_of(answer: Answer) -> int:
    """About how many bytes an answer takes."""
    if isinstance(answer, Result):
        return sum(len(output.text) * 2 + len(output.name) for output in answer.outputs)
    return len(answer.text) if isinstance(answer, StanzaError) else 0


_SHORT_ANSWER: Final = 1024


class Found(msgspec.Struct, frozen=True):
    """A record that was there. Neither `task` nor `answer`: begun inline, and not recorded."""

    digest: str
    task: str | None
    answer: str | None
    owner: str | None
    alive: bool
    """Whether `owner` is an instance that still beats."""


_OF_OPEN: Final = (
    "EXISTS (SELECT 1 FROM tasks t WHERE t.id = replay.task AND t.state IN"
    " ('accepted', 'running', 'input-required', 'cancelling'))"
)


_RECORD: Final = (
    "INSERT INTO replay (key, digest, task, answer, owner, expires) VALUES (?, ?, ?, ?, ?, ?)"  # noqa: S608
    " ON CONFLICT (key) DO UPDATE SET digest = excluded.digest, task = excluded.task,"
    " answer = excluded.answer, owner = excluded.owner, expires = excluded.expires,"
    " principal = NULL, bytes = 0"
    f" WHERE replay.expires <= ? AND NOT {_OF_OPEN}"
)
"""One whose time is over makes room."""


def find(database: Database, key: str) -> Found | None:
    """The record of a key, if its time is not over. That of an open task never is."""
    found = database.execute(
        "SELECT digest, task, answer, owner,"  # noqa: S608 - texts of ours
        " EXISTS (SELECT 1 FROM instances i WHERE i.id = replay.owner)"
        f" FROM replay WHERE key = ? AND (expires > ? OR {_OF_OPEN})",
        (key, database.now),
    ).fetchone()
    if found is None:
        return None
    digest, task, answer, owner, alive = found
    return Found(digest, task, answer, owner, bool(alive))


def record(
    database: Database,
    key: str,
    digest: str,
    *,
    window_ms: int,
    owner: str,
    task: str | None = None,
    answer: Answer | None = None,
) -> Found | None:
    """Make the record of a request; if there is one already, return that and change nothing."""
    made = database.execute(
        _RECORD,
        (
            *(key, digest, task, None if answer is None else kept(answer), owner),
            database.now + window_ms,
            database.now,
        ),
    )
    return find(database, key) if made.rowcount == 0 else None


def answer_record(
    database: Database,
    key: str,
    answer: Answer | None,
    *,
    task: str | None = None,
    principal: str | None = None,
) -> None:
    """Write what became of a request into its record.

    A long answer counts against what is kept for the `principal` (`component.tasks.kept`).
    """
    text = None if answer is None else kept(answer)
    size = counted(text)
    database.execute(
        "UPDATE replay SET task = coalesce(?, task), answer = coalesce(?, answer), principal = ?,"
        " bytes = ? WHERE key = ?",
        (task, text, principal if size else None, size, key),
    )


def counted(text: str | None) -> int:
    """The bytes of an answer that count; short ones are no more than the record itself."""
    size = 0 if text is None else len(text.encode())
    return size if size > _SHORT_ANSWER else 0


def answer_of(database: Database, task: str) -> str | None:
    """What is recorded as the answer to the request of a task, if anything is."""
    found = database.execute(
        "SELECT answer FROM replay WHERE task = ? AND answer IS NOT NULL", (task,)
    ).fetchone()
    return None if found is None else found[0]


def accept_record(database: Database, task: str, accepted: Accepted) -> None:
    """Write into the record of a task that it was answered as one, if it has no answer yet."""
    database.execute(
        "UPDATE replay SET answer = ? WHERE task = ? AND answer IS NULL", (kept(accepted), task)
    )


def end(
    database: Database,
    row: Row,
    to: State,
    outcome: Result | StanzaError | None,
    *,
    repeatable: bool = False,
    retention_ms: int,
) -> Change:
    """End a task, and answer its request with that if it was not answered as a task (RPL-013).

    `repeatable` says of a failure that nothing happens twice if it is asked for again (TSK-009).
    Past the deadline it fails with `deadline-expired` instead.
    """
    assert to in TERMINAL
    detail = (
        Failure.of(outcome, repeatable=repeatable) if isinstance(outcome, StanzaError) else outcome
    )
    made = change(database, row, to, detail, retention_ms=retention_ms)
    if not row.visible:
        answer = outcome if made.row.state == to else errors.deadline_expired()
        text = kept(answer or errors.outcome_unknown())
        size = counted(text)
        database.execute(
            "UPDATE replay SET answer = ?, principal = ?, bytes = ?"
            " WHERE task = ? AND answer IS NULL",
            (text, row.principal if size else None, size, row.id),
        )
    return made


def ended_with(made: Change, wanted: Answer | None = None) -> Answer:
    """What answers a request whose task has ended so, where `wanted` was to be its end.

    The deadline may have come between, or others than its run may have ended it.
    """
    if isinstance(made.detail, Result):
        return made.detail
    if made.row.state == "failed" and isinstance(made.detail, Failure):
        for condition in made.detail.conditions:
            if isinstance(condition, errors.DeadlineExpired):
                return errors.deadline_expired()
    return wanted or errors.outcome_unknown()
