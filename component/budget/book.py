"""Budgets and their usage: kept in memory, and stored soon after."""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, NoReturn

import anyio
import structlog
from anyio.abc import TaskStatus

from component import system
from component.audit.protocol import AuditEvent, Recorder
from component.budget.protocol import (
    Amount,
    BudgetExceededError,
    Reservation,
    Scope,
    Spender,
)
from component.budget.rows import TASKS, Key, More, Row, add, forget, open_tasks, rows_of
from component.budget.shapes import BudgetLimits, BudgetUsage, Limit, sentence, usage_text
from component.storage.database import Database
from component.storage.errors import StorageError
from component.storage.storage import Storage
from xep.jid import JID

__all__ = ["BudgetBook", "BudgetLimits", "BudgetUsage", "Limit"]

_log = structlog.get_logger("component.budget")
_ALL: Final = "all"
_AGAIN_S: Final = 1.0
_LAST_S: Final = 5.0
"""Seconds for the last write at the end."""
_LONG_AGAIN_S: Final = 60.0
_MOST_TOKENS: Final = 2**53
"""The maximum number of tokens of one call. A larger number is a provider's error, and would
overflow the database.
"""
_GATHER_S: Final = 0.05
"""Costs are collected for this time: the calls of a turn share a commit."""


class Account:
    """What was spent and reserved, and how much of it is not on disk yet."""

    __slots__ = ("alerted", "held_tokens", "held_usd", "new", "spent", "under_way")

    def __init__(self, spent: More = More()) -> None:  # noqa: B008 - immutable
        """Start with the amounts that were spent before."""
        self.spent = spent
        self.held_tokens, self.held_usd, self.under_way = 0, 0.0, 0
        self.new = More()
        self.alerted = False

    @property
    def tokens(self) -> int:
        """The tokens that were spent."""
        return self.spent.tokens

    @property
    def usd(self) -> float:
        """The US dollars that were spent."""
        return self.spent.usd

    def hold(self, most: Amount) -> None:
        """Reserve the maximum cost of a call."""
        self.held_tokens += most.tokens
        self.held_usd += most.usd
        self.under_way += 1

    def let_go(self, most: Amount) -> None:
        """Release the reservation of a call that has ended."""
        self.under_way = max(0, self.under_way - 1)  # a turn may end before its last call
        # Floating-point sums leave a remainder, which must be zero without reservations.
        self.held_tokens = max(0, self.held_tokens - most.tokens) if self.under_way else 0
        self.held_usd = max(0.0, self.held_usd - most.usd) if self.under_way else 0.0


class BudgetBook:
    """Implements `component.budget.protocol.Budgets`, which documents its methods.

    A killed process loses the costs of its last moment: they are stored at once, but nobody waits
    for that. Instances that share a database use `component.budget.shared.SharedBudgetBook`.

    Args:
        storage: stores the costs.
        limits: the budgets.
        recorder: records stops and alerts.
        alert: called with a sentence when a part of a budget is spent, once a day.
        now: returns the time; a day ends at midnight, UTC.
    """

    def __init__(
        self,
        storage: Storage,
        limits: BudgetLimits,
        recorder: Recorder,
        alert: Callable[[str], None] = lambda _: None,
        now: Callable[[], datetime] = system.now,
    ) -> None:
        self._storage = storage
        self._limits = limits
        self._recorder = recorder
        self._alert = alert
        self._now = now
        self._accounts: dict[Key, Account] = {}
        self._dirty: set[Key] = set()
        self._ended: list[str] = []
        self._work = anyio.Event()
        self._storing = anyio.Lock()
        self._ids = itertools.count(1)
        self._day = ""

    # For the agent loop.

    async def acquire(self, who: Spender, most: Amount) -> Reservation:
        """Reserve the maximum cost of a call."""
        return self.reserve(who, most)

    def reserve(self, who: Spender, most: Amount) -> Reservation:
        """Reserve the maximum cost of a call, without waiting."""
        day = self._today()
        keys = tuple(keys_of(who, day))
        for key in keys:
            self._check(key, most, who)
        return self._hold(who, keys, most, day)

    def _hold(self, who: Spender, keys: Sequence[Key], most: Amount, day: str) -> Reservation:
        for key in keys:
            self._account(key).hold(most)
        return Reservation(next(self._ids), who, most, day)

    def settle(self, reservation: Reservation, spent: Amount) -> None:
        """Record the cost of a call. An impossible cost is logged, and the reserved
        amount counts.
        """
        if not _can_be(spent):
            _log.warning("a provider reported an impossible cost", turn=reservation.who.task)
            spent = reservation.most
        more = More(spent.tokens, spent.usd, 1, spent.cached, spent.reasoning)
        for key in keys_of(reservation.who, reservation.day):
            account = self._account(key)
            account.let_go(reservation.most)
            if not spent.tokens and not spent.usd:
                continue
            account.spent = account.spent.plus(more)
            account.new = account.new.plus(more)
            self._dirty.add(key)
            self._watch(key, account)
        self._work.set()

    def ended(self, task: str) -> None:
        """Forget the costs of a turn or a durable task that has ended."""
        self._ended.append(task)
        self._accounts.pop((TASKS, "task", task), None)
        self._dirty.discard((TASKS, "task", task))
        self._work.set()

    # Reports.

    def spent(self, scope: Scope, of: str) -> BudgetUsage:
        """Return the usage of today, or of a task since it began."""
        day = TASKS if scope == "task" else self._today()
        return self._row((day, scope, of), self._accounts.get((day, scope, of), Account()))

    async def usage(self, agent: str, principal: JID) -> Sequence[BudgetUsage]:
        """Return the usage of a person who talks with an agent, for `/usage`. Raises
        StorageError.
        """
        return (self.spent("principal", str(principal.bare)), self.spent("agent", agent))

    async def report(self, day: str | None = None) -> Sequence[BudgetUsage]:
        """Return the usage of a day (today unless given, as 2026-11-22), the highest first.

        Raises StorageError.
        """
        await self.flush()
        wanted = day or self._today()
        rows = await self._storage.read(lambda db: rows_of(db, wanted))
        return [self._row(row.key, Account(row.spent)) for row in rows]

    # Start and stop.

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Store costs until cancelled; started once the usage of the day is loaded.

        Raises StorageError: the database refuses at the start.
        """
        today = self._today()

        def op(database: Database) -> list[Row]:
            return [*rows_of(database, today), *open_tasks(database)]

        for row in await self._storage.read(op):
            account = self._accounts[row.key] = Account(row.spent)
            # These alerts were sent before this run of the process.
            account.alerted = self._part(row.key, account) >= self._limits.alert
        task_status.started()
        await self._write_behind()

    async def close(self) -> None:
        """Store the remaining costs; nothing is spent any more."""
        with anyio.move_on_after(_LAST_S, shield=True):
            try:
                await self.flush()
            except StorageError as error:
                _log.error("could not store the cost of a call", reason=str(error))

    async def _write_behind(self) -> None:
        while True:
            await self._work.wait()
            await anyio.sleep(_GATHER_S)
            self._work = anyio.Event()
            try:
                await self.flush()
            except StorageError as error:
                _log.error("could not store the cost of a call", reason=str(error))
                await anyio.sleep(_AGAIN_S)
                self._work.set()
            except Exception:  # noqa: BLE001 - no fault in accounting ends the service
                _log.exception("could not store the cost of a call")
                await anyio.sleep(_LONG_AGAIN_S)
                self._work.set()

    async def flush(self) -> None:
        """Store new costs, and wait for those that are being stored.

        Raises StorageError; they are then kept for the next time.
        """
        async with self._storing:
            await self._flush()

    async def _flush(self) -> None:
        ended, self._ended = self._ended, []
        keys, self._dirty = self._dirty, set()
        new = self._take_new(sorted(keys))  # sorted, because all instances lock rows in this order
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
        self._know(totals)

    def _take_new(self, keys: Iterable[Key]) -> dict[Key, More]:
        new: dict[Key, More] = {}
        for key in keys:
            account = self._accounts.get(key)
            if account is not None:
                new[key], account.new = account.new, More()
        return new

    def _know(self, totals: Mapping[Key, More]) -> None:
        for key, total in totals.items():
            account = self._accounts.get(key)
            if account is not None:  # others may have spent from the same budget
                account.spent = total.plus(account.new)

    def _put_back(self, new: Mapping[Key, More], ended: list[str]) -> None:
        self._ended += ended
        for key, more in new.items():
            account = self._accounts.get(key)
            if account is not None:
                account.new = more.plus(account.new)
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
        if key[1] == "task" and who.limit_usd is not None:
            usd = who.limit_usd if limit.usd is None else min(limit.usd, who.limit_usd)
            limit = Limit(limit.tokens, usd)
        if limit.tokens is None and limit.usd is None:
            return
        account = self._accounts.get(key) or Account()
        tokens = account.tokens + account.held_tokens + most.tokens
        usd = account.usd + account.held_usd + most.usd
        if (limit.tokens is None or tokens <= limit.tokens) and (
            limit.usd is None or usd <= limit.usd
        ):
            return
        self._refuse(key, account, who)

    def _refuse(self, key: Key, account: Account, who: Spender) -> NoReturn:
        _, scope, of = key
        self._recorder.record(
            AuditEvent(
                kind="budget",
                outcome="stopped",
                principal=str(who.principal),
                agent=who.agents[0] if who.agents else "",
                trace=who.task,
                subject=f"{scope} {of}".strip(),
                detail=usage_text(self._row(key, account)),
            )
        )
        is_named = who.payer is not None and (who.payer.scope, who.payer.of) == (scope, of)
        is_named = is_named or (scope == "task" and who.limit_usd is not None)
        raise BudgetExceededError(sentence(scope, is_named=is_named), scope, of)

    def _part(self, key: Key, account: Account) -> float:
        """Return the spent part of a budget."""
        limit = self._limit(key)
        return max(
            account.tokens / limit.tokens if limit.tokens else 0.0,
            account.usd / limit.usd if limit.usd else 0.0,
        )

    def _watch(self, key: Key, account: Account) -> None:
        part = self._part(key, account)
        if account.alerted or part < self._limits.alert or key[1] == "task":
            return
        self._tell(key, account)

    def _tell(self, key: Key, account: Account) -> None:
        """Send an alert that a budget is nearly spent."""
        account.alerted = True
        part, row = self._part(key, account), self._row(key, account)
        whose = "all together" if row.scope == "day" else row.of
        said = f"{round(part * 100)} % of the budget of {whose} is spent: {usage_text(row)}."
        _log.warning("a budget is nearly used up", scope=key[1], of=key[2], part=round(part, 2))
        self._recorder.record(
            AuditEvent(
                kind="budget",
                outcome="alert",
                principal=key[2] if key[1] == "principal" else "",
                agent=key[2] if key[1] == "agent" else "",
                subject=f"{key[1]} {key[2]}".strip(),
                detail=usage_text(row),
            )
        )
        self._alert(said)

    def _row(self, key: Key, account: Account) -> BudgetUsage:
        limit = self._limit(key)
        return BudgetUsage(
            scope=key[1],
            of=key[2],
            tokens=account.tokens,
            usd=round(account.usd, 6),
            calls=account.spent.calls,
            cached=account.spent.cached,
            reasoning=account.spent.reasoning,
            limit_tokens=limit.tokens,
            limit_usd=limit.usd,
        )

    def _account(self, key: Key) -> Account:
        account = self._accounts.get(key)
        if account is None:
            account = self._accounts[key] = Account()
        return account

    def _today(self) -> str:
        day = self._now().astimezone(UTC).date().isoformat()
        if day != self._day:
            self._day = day
            # Stored costs of earlier days need not be kept; others are kept until they are stored.
            for key in [k for k in self._accounts if k[0] not in (day, TASKS)]:
                if key not in self._dirty and self._is_over(key):
                    del self._accounts[key]
        return day

    def _is_over(self, key: Key) -> bool:
        """Return whether an account of an earlier day can be forgotten."""
        return not self._accounts[key].under_way


def _can_be(spent: Amount) -> bool:
    counts = (spent.tokens, spent.cached, spent.reasoning)
    return all(0 <= count <= _MOST_TOKENS for count in counts) and 0 <= spent.usd < math.inf


def keys_of(who: Spender, day: str) -> Iterator[Key]:
    """Yield every budget that a spender uses."""
    if who.payer is None:
        for agent in who.agents:
            yield day, "agent", agent
        yield day, "principal", str(who.principal)
    elif who.payer.scope != "day":
        yield day, who.payer.scope, who.payer.of
    yield TASKS, "task", who.task
    yield day, "day", _ALL
