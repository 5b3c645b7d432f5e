"""Who may spend how much, and has: known in memory, written down behind it."""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, Literal

import anyio
import msgspec
import structlog
from anyio.abc import TaskStatus

from component.audit.protocol import Event, Recorder
from component.budget.protocol import (
    Amount,
    BudgetExceededError,
    Reservation,
    Scope,
    Spender,
)
from component.budget.rows import TASKS, Key, More, Row, add, forget, open_tasks, rows_of
from component.storage.database import Database, Transactions
from component.storage.errors import StorageError
from xep.jid import JID

_log = structlog.get_logger("component.budget")
_ALL: Final = "all"
_AGAIN_S: Final = 1.0
_LONG_AGAIN_S: Final = 60.0
_MOST_TOKENS: Final = 2**53
"""Tokens of one call. More is a fault of whoever counted, and would overflow the database."""
_GATHER_S: Final = 0.05
"""For so long what is spent is gathered: the calls of a turn share a commit."""


class Limit(msgspec.Struct, frozen=True):
    """Most tokens and most US dollars; None for what has no limit."""

    tokens: int | None = None
    usd: float | None = None


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Every budget there is. `alert` is the part of one at which somebody is told."""

    agents: Mapping[str, Limit] = {}
    principal: Limit = Limit()
    task: Limit = Limit()
    day: Limit = Limit()
    alert: float = 0.8


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody has spent: a row of the report. The limits are None where there is none.

    To people the scope `day` is called `total`, as in the settings.
    """

    scope: Scope | Literal["total"]
    of: str
    tokens: int
    usd: float
    calls: int
    limit_tokens: int | None = None
    limit_usd: float | None = None


class _Account:
    """What one has spent and set aside, and how much of it is not on disk yet."""

    __slots__ = ("alerted", "calls", "held_tokens", "held_usd", "new", "tokens", "usd")

    def __init__(self, tokens: int = 0, usd: float = 0.0, calls: int = 0) -> None:
        self.tokens, self.usd, self.calls = tokens, usd, calls
        self.held_tokens, self.held_usd = 0, 0.0
        self.new = (0, 0.0, 0)
        self.alerted = False


class BudgetBook:
    """Implements `component.budget.protocol.Budgets`; see there for what its methods do.

    A process that is killed forgets what was spent in the moment before: what is settled is written
    down at once, but nobody waits for it. Several instances on one database see what the others
    have spent whenever they write.

    Args:
        storage: where spending is kept.
        limits: the budgets.
        recorder: where stops and alerts are recorded.
        alert: is told a sentence when somebody has spent so much of a budget, once a day.
        now: the time; a day ends at midnight, UTC.
    """

    def __init__(
        self,
        storage: Transactions,
        limits: Limits,
        recorder: Recorder,
        alert: Callable[[str], None] = lambda _: None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._storage = storage
        self._limits = limits
        self._recorder = recorder
        self._alert = alert
        self._now = now
        self._accounts: dict[Key, _Account] = {}
        self._dirty: set[Key] = set()
        self._ended: list[str] = []
        self._work = anyio.Event()
        self._ids = itertools.count(1)
        self._day = ""

    # What the loop asks.

    def reserve(self, who: Spender, most: Amount) -> Reservation:
        """Set aside what a call can cost at most."""
        day = self._today()
        keys = tuple(_keys(who, day))
        for key in keys:
            self._check(key, most, who)
        for key in keys:
            account = self._account(key)
            account.held_tokens += most.tokens
            account.held_usd += most.usd
        return Reservation(next(self._ids), who, most, day)

    def settle(self, reservation: Reservation, spent: Amount) -> None:
        """Say what it has cost. What cannot be true is logged, and what was set aside counts."""
        if not _can_be(spent):
            _log.warning(
                "what a call is said to have cost cannot be true", turn=reservation.who.task
            )
            spent = reservation.most
        for key in _keys(reservation.who, reservation.day):
            account = self._account(key)
            account.held_tokens = max(0, account.held_tokens - reservation.most.tokens)
            account.held_usd = max(0.0, account.held_usd - reservation.most.usd)
            if not spent.tokens and not spent.usd:
                continue
            account.tokens += spent.tokens
            account.usd += spent.usd
            account.calls += 1
            tokens, usd, calls = account.new
            account.new = (tokens + spent.tokens, usd + spent.usd, calls + 1)
            self._dirty.add(key)
            self._watch(key, account)
        self._work.set()

    def ended(self, task: str) -> None:
        """A turn or a durable task is over: what it has spent need not be known any longer."""
        self._ended.append(task)
        self._accounts.pop((TASKS, "task", task), None)
        self._dirty.discard((TASKS, "task", task))
        self._work.set()

    # What is told.

    def spent(self, scope: Scope, of: str) -> Spent:
        """What one has spent today, or a task since it began."""
        day = TASKS if scope == "task" else self._today()
        return self._row((day, scope, of), self._accounts.get((day, scope, of), _Account()))

    def usage(self, agent: str, principal: JID) -> Sequence[Spent]:
        """What concerns somebody who talks with an agent, for `/usage`."""
        return (self.spent("principal", str(principal.bare)), self.spent("agent", agent))

    async def report(self, day: str | None = None) -> Sequence[Spent]:
        """What was spent on a day (today unless given, as 2026-11-22), most first.

        Raises StorageError.
        """
        await self.flush()
        wanted = day or self._today()
        rows = await self._storage.read(lambda db: rows_of(db, wanted))
        return [self._row(row.key, _Account(row.tokens, row.usd, row.calls)) for row in rows]

    # Its life.

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Write down what is spent until cancelled; it has started when it knows the day's.

        Raises StorageError: the database refuses before it has begun.
        """
        today = self._today()

        def op(database: Database) -> list[Row]:
            return [*rows_of(database, today), *open_tasks(database)]

        for row in await self._storage.read(op):
            account = self._accounts[row.key] = _Account(row.tokens, row.usd, row.calls)
            # That was told before this life of the process.
            account.alerted = self._part(row.key, account) >= self._limits.alert
        task_status.started()
        while True:
            await self._work.wait()
            await anyio.sleep(_GATHER_S)
            self._work = anyio.Event()
            try:
                await self.flush()
            except StorageError as error:
                _log.error("what was spent could not be written down", reason=str(error))
                await anyio.sleep(_AGAIN_S)
                self._work.set()
            except Exception:  # noqa: BLE001 - no fault in accounting ends the service
                _log.exception("what was spent could not be written down")
                await anyio.sleep(_LONG_AGAIN_S)
                self._work.set()

    async def flush(self) -> None:
        """Write down what is not yet. Raises StorageError; then it is kept for the next time."""
        ended, self._ended = self._ended, []
        keys, self._dirty = self._dirty, set()
        new: dict[Key, More] = {}
        for key in keys:
            account = self._accounts.get(key)
            if account is not None:
                new[key], account.new = account.new, (0, 0.0, 0)
        if not new and not ended:
            return

        def op(database: Database) -> dict[Key, More]:
            for task in ended:
                forget(database, (TASKS, "task", task))
            return {key: add(database, key, more) for key, more in new.items()}

        try:
            totals = await self._storage.write(op)
        except BaseException:
            self._put_back(new, ended)
            raise
        for key, (tokens, usd, calls) in totals.items():
            account = self._accounts.get(key)
            if account is not None:  # others may have spent from the same budget
                account.tokens = tokens + account.new[0]
                account.usd = usd + account.new[1]
                account.calls = calls + account.new[2]

    def _put_back(self, new: Mapping[Key, More], ended: list[str]) -> None:
        self._ended += ended
        for key, (tokens, usd, calls) in new.items():
            account = self._accounts.get(key)
            if account is not None:
                since = account.new
                account.new = (tokens + since[0], usd + since[1], calls + since[2])
                self._dirty.add(key)

    # Limits.

    def _limit(self, key: Key) -> Limit:
        _, scope, of = key
        match scope:
            case "agent":
                return self._limits.agents.get(of, Limit())
            case "principal":
                return self._limits.principal
            case "task":
                return self._limits.task
        return self._limits.day

    def _check(self, key: Key, most: Amount, who: Spender) -> None:
        limit = self._limit(key)
        if limit.tokens is None and limit.usd is None:
            return
        account = self._accounts.get(key) or _Account()
        tokens = account.tokens + account.held_tokens + most.tokens
        usd = account.usd + account.held_usd + most.usd
        if (limit.tokens is None or tokens <= limit.tokens) and (
            limit.usd is None or usd <= limit.usd
        ):
            return
        _, scope, of = key
        self._recorder.record(
            Event(
                kind="budget",
                outcome="stopped",
                principal=str(who.principal),
                agent=who.agents[0] if who.agents else "",
                trace=who.task,
                subject=f"{scope} {of}".strip(),
                detail=_told(self._row(key, account)),
            )
        )
        raise BudgetExceededError(_sentence(scope), scope, of)

    def _part(self, key: Key, account: _Account) -> float:
        """The part of a budget that is spent."""
        limit = self._limit(key)
        return max(
            account.tokens / limit.tokens if limit.tokens else 0.0,
            account.usd / limit.usd if limit.usd else 0.0,
        )

    def _watch(self, key: Key, account: _Account) -> None:
        part = self._part(key, account)
        if account.alerted or part < self._limits.alert or key[1] == "task":
            return
        account.alerted = True
        row = self._row(key, account)
        whose = "all together" if row.scope == "day" else row.of
        said = f"{round(part * 100)} % of the budget of {whose} is spent: {_told(row)}."
        _log.warning("a budget is nearly spent", scope=key[1], of=key[2], part=round(part, 2))
        self._recorder.record(
            Event(
                kind="budget",
                outcome="alert",
                principal=key[2] if key[1] == "principal" else "",
                agent=key[2] if key[1] == "agent" else "",
                subject=f"{key[1]} {key[2]}".strip(),
                detail=_told(row),
            )
        )
        self._alert(said)

    def _row(self, key: Key, account: _Account) -> Spent:
        limit = self._limit(key)
        return Spent(
            scope=key[1],
            of=key[2],
            tokens=account.tokens,
            usd=round(account.usd, 6),
            calls=account.calls,
            limit_tokens=limit.tokens,
            limit_usd=limit.usd,
        )

    def _account(self, key: Key) -> _Account:
        account = self._accounts.get(key)
        if account is None:
            account = self._accounts[key] = _Account()
        return account

    def _today(self) -> str:
        day = self._now().astimezone(UTC).date().isoformat()
        if day != self._day:
            self._day = day
            # What is written down of days before need not be known; what is not is kept till then.
            for key in [k for k in self._accounts if k[0] not in (day, TASKS)]:
                if key not in self._dirty and not self._accounts[key].held_tokens:
                    del self._accounts[key]
        return day


def _can_be(spent: Amount) -> bool:
    return 0 <= spent.tokens <= _MOST_TOKENS and spent.usd >= 0 and math.isfinite(spent.usd)


def _keys(who: Spender, day: str) -> Iterator[Key]:
    for agent in who.agents:
        yield day, "agent", agent
    yield day, "principal", str(who.principal)
    yield TASKS, "task", who.task
    yield day, "day", _ALL


def _told(row: Spent) -> str:
    parts: Iterable[str] = (
        f"{row.tokens} tokens" + (f" of {row.limit_tokens}" if row.limit_tokens else ""),
        f"{row.usd:.4f} USD" + (f" of {row.limit_usd:g}" if row.limit_usd else ""),
    )
    return ", ".join(parts)


def _sentence(scope: Scope) -> str:
    match scope:
        case "task":
            return (
                "I stop here: answering this would cost more than one answer may. Ask for less at"
                " a time."
            )
        case "principal":
            return (
                "I cannot think about this today: your budget for today would not last. It begins"
                " anew at midnight UTC; /usage shows it."
            )
        case "agent":
            return "I cannot think about this today: my own budget for today would not last."
    return "I cannot think about this today: the budget of this service for today would not last."
