"""Budgets and their usage: kept in memory, and stored soon after."""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, NoReturn, TypeVar

import anyio
import msgspec
import structlog
from anyio.abc import TaskStatus

from component import system
from component.audit.protocol import AuditEvent, Recorder
from component.budget.allotments import (
    CHANNEL,
    NOTHING,
    Allotment,
    AllotmentGrant,
    AllotmentRequest,
    BudgetAccount,
    Units,
    charge_dead,
    forget_empty,
    gives,
    settle,
    spent_part,
    would_help,
)
from component.budget.protocol import (
    Amount,
    BudgetExceededError,
    BudgetLimits,
    BudgetUsage,
    Reservation,
    Scope,
    Spender,
    exceeded_text,
    usage_text,
)
from component.budget.rows import (
    TASKS,
    Key,
    add,
    forget_spending,
    open_tasks,
    spending_of_day,
    spending_since,
)
from component.config.agents import Budget
from component.store.database import Database
from component.store.errors import StorageError
from component.store.outages import log_failure
from component.store.storage import Storage
from xep.jid import JID

N = TypeVar("N", int, float)

_log = structlog.get_logger("component.budget")
_ALL: Final = "all"
_NO_LIMIT: Final = Budget()
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
_IDLE_S: Final = 5.0
"""After this time without costs, amounts that are held ahead of time are returned."""
_CALLS_AHEAD: Final = 2
"""An instance holds as much ahead of time as this number of calls can cost, if enough is left."""
_WAITS_S: Final = (0.05, 0.1, 0.2, 0.4, 0.8)
"""How long a call waits for amounts of other instances before it checks again."""
_IN_VAIN_S: Final = 2.0
"""The time for which the others are not asked again for an amount that they did not have."""


class BudgetBook:
    """The budgets of language models: a reservation before each call, its cost after it.

    Costs are kept in memory and stored soon after; nobody waits for the database, except an
    instance that shares a budget with others and has to ask for more of it. A killed process loses
    the costs of its last moment.

    Args:
        limits: the budgets; the same for all instances that share the storage.
        recorder: records stops and alerts.
        instance: returns the name under which this instance sends heartbeats; None if it is the
            only one that uses the storage.
        alert: called with a sentence when a part of a budget is spent: once a day, on one of the
            instances.
        now: returns the time; a day ends at midnight, UTC.
    """

    def __init__(
        self,
        storage: Storage,
        limits: BudgetLimits,
        recorder: Recorder,
        *,
        instance: Callable[[], str] | None = None,
        alert: Callable[[str], None] = lambda _: None,
        now: Callable[[], datetime] = system.now,
    ) -> None:
        self._storage = storage
        self.limits = limits
        self._recorder = recorder
        self._instance = instance
        self._alert = alert
        self._now = now
        self._accounts: dict[Key, BudgetAccount] = {}
        self._dirty: set[Key] = set()
        self._ended: list[str] = []
        self._work = anyio.Event()
        self._writing = anyio.Lock()
        self._ids = itertools.count(1)
        self._day = ""
        self._loaded_from = ""
        """The first day whose stored usage is in memory, with that of all later ones."""
        self._holder = system.token_hex(16)
        self._allotments: dict[Key, Allotment] = {}
        self._rooms: dict[str, Budget] = {}
        """The budgets of rooms that have paid since the start."""
        self._in_vain: dict[Key, float] = {}
        """When the other instances were last asked in vain."""
        self._unknown: set[Key] = set()
        """It is unknown whether the database has the last write of these."""
        self._acts = 0
        """The number of calls that began and ended, to notice whether there are any."""

    # For the agent loop.

    async def acquire(self, who: Spender, most: Amount) -> Reservation:
        """Reserve a cost, waiting for other instances. Raises BudgetExceededError, StorageError."""
        if self._today() < self._loaded_from:
            await self._load()  # the clock was set back
        while short := [key for key in self._checked_keys(who, most) if self._is_short(key, most)]:
            await self._obtain(short, most, who)
        return self.reserve(who, most)

    def reserve(self, who: Spender, most: Amount) -> Reservation:
        """Reserve the maximum cost in budgets that are not shared, or raise BudgetExceededError."""
        for key in self._checked_keys(who, most):
            self._account(key).hold(most)
            if self._is_shared(key):
                self._allotment(key).call = Units.of(most)
        self._acts += 1
        return Reservation(next(self._ids), who, most, self._day)

    def _checked_keys(self, who: Spender, most: Amount) -> Sequence[Key]:
        """The budgets of today of a call. Raises BudgetExceededError for one that is not shared."""
        payer = who.payer
        if payer is not None and payer.scope == "room" and payer.usd is not None:
            self._rooms[payer.of] = Budget(usd=payer.usd)
        keys = tuple(keys_of(who, self._today()))
        for key in keys:
            if not self._is_shared(key):
                self._check(key, most, who)
        return keys

    async def _obtain(self, keys: Sequence[Key], most: Amount, who: Spender) -> None:
        """Get allotments with room for a call. Raises BudgetExceededError, StorageError."""
        wants = dict.fromkeys(keys, Units.of(most))
        for wait in (*_WAITS_S, None):
            now = anyio.current_time()
            recall = all(now - self._in_vain.get(key, -_IN_VAIN_S) >= _IN_VAIN_S for key in keys)
            await self._write(wants, recall=recall)
            lacking = next((key for key in keys if self._is_short(key, most)), None)
            if lacking is None:
                return
            account = self._account(lacking)
            is_final = _is_spent(account, most, self._limit(lacking)) or not recall
            if wait is None and not is_final:
                self._in_vain[lacking] = now
            if wait is None or is_final:
                self._refuse(lacking, account, who)
            await anyio.sleep(wait)

    def settle(self, reservation: Reservation, spent: Amount) -> None:
        """Record the cost of a call; in place of an impossible cost, the reserved amount."""
        if not _can_be(spent):
            _log.warning("a provider reported an impossible cost", turn=reservation.who.task)
            spent = reservation.most
        more = msgspec.structs.replace(spent, calls=1)
        for key in keys_of(reservation.who, reservation.day):
            account = self._account(key)
            account.let_go(reservation.most)
            if not spent.tokens and not spent.usd:
                continue
            account.spent = account.spent.plus(more)
            account.new = account.new.plus(more)
            self._dirty.add(key)
            self._watch(key, account)
        self._acts += 1
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
        return self._row((day, scope, of), self._accounts.get((day, scope, of), BudgetAccount()))

    async def usage(
        self, agent: str, principal: JID, room: JID | None = None
    ) -> Sequence[BudgetUsage]:
        """Return the usage of a person who talks with an agent, or that of the room in which they
        talk, and that of the agent. Raises StorageError.
        """
        own: tuple[Scope, str] = ("principal", str(principal.bare))
        if room is not None:
            own = ("room", str(room.bare))
        wanted: tuple[tuple[Scope, str], ...] = (own, ("agent", agent))
        if self._instance is None:
            return tuple(self.spent(scope, of) for scope, of in wanted)
        found = {(row.scope, row.of): row for row in await self.report()}
        return tuple(
            found.get((scope, of)) or self._row((self._day, scope, of), BudgetAccount())
            for scope, of in wanted
        )

    async def report(self, day: str | None = None) -> Sequence[BudgetUsage]:
        """Return the usage of a day (today unless given, as 2026-11-22), the highest first, of all
        instances. Raises StorageError.
        """
        if self._instance is not None:
            await self._storage.write(lambda db: charge_dead(db, self._holder))
        await self.flush()
        wanted = day or self._today()
        rows = await self._storage.read(lambda db: spending_of_day(db, wanted))
        return [self._row(key, BudgetAccount(spent)) for key, spent in rows.items()]

    # Start and stop.

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Store costs until cancelled; started once the usage of the day is loaded.

        Raises StorageError: the database refuses at the start.
        """
        await self._load()
        async with anyio.create_task_group() as group:
            if self._instance is not None:
                await group.start(self._give_back_when_asked)
                group.start_soon(self._give_back_when_idle)
            task_status.started()
            await self._write_behind()

    async def _load(self) -> None:
        """Load the usage of today, and of later days: the clock may have been ahead."""
        today = self._today()

        def op(database: Database) -> dict[Key, Amount]:
            return spending_since(database, today) | open_tasks(database)

        for key, spent in (await self._storage.read(op)).items():
            if key in self._accounts:
                continue
            account = self._accounts[key] = BudgetAccount(spent)
            # These alerts were sent when it was spent.
            account.alerted = spent_part(spent, self._limit(key)) >= self.limits.alert
        self._loaded_from = today

    async def close(self) -> None:
        """Store the remaining costs, and return to other instances what is not spent."""
        with anyio.move_on_after(_LAST_S, shield=True):
            try:
                await self.flush()
            except StorageError as error:
                log_failure(_log, "could not store the cost of a call", error)
        if self._instance is not None:
            with anyio.move_on_after(_IDLE_S, shield=True):
                await self._give_back(recalled=False)

    async def _write_behind(self) -> None:
        while True:
            await self._work.wait()
            await anyio.sleep(_GATHER_S)
            self._work = anyio.Event()
            try:
                await self.flush()
            except StorageError as error:
                log_failure(_log, "could not store the cost of a call", error)
                await anyio.sleep(_AGAIN_S)
                self._work.set()
            except Exception:  # noqa: BLE001 - no fault in accounting ends the service
                _log.exception("could not store the cost of a call")
                await anyio.sleep(_LONG_AGAIN_S)
                self._work.set()

    async def flush(self) -> None:
        """Wait until new costs are stored. Raises StorageError, and then keeps them."""
        await self._write()

    async def _write(
        self,
        wants: Mapping[Key, Units] = {},
        *,
        recall: bool = False,
        returning: bool = False,
        recalled: bool = False,
    ) -> None:
        """Store new costs, and request the allotments in `wants`.

        With `recall` the other instances are asked for amounts that they do not need, if that would
        help. With `returning` nothing is held ahead of time any more; with `recalled` another
        instance waits for that. Raises StorageError, and then nothing is lost.
        """
        async with self._writing:
            ended, self._ended = self._ended, []
            keys, self._dirty = self._dirty, set()
            new = self._take_new(keys)
            asks = self._asks(new, wants, returning=returning)
            if not new and not ended and not asks:
                return
            holder, instance = self._holder, self._instance() if self._instance else ""

            def op(database: Database) -> tuple[dict[Key, Amount], dict[Key, AllotmentGrant]]:
                for task in ended:
                    forget_spending(database, (TASKS, "task", task))
                totals: dict[Key, Amount] = {}
                got: dict[Key, AllotmentGrant] = {}
                for key in sorted(new.keys() | asks.keys()):  # in the same order everywhere
                    if key in asks:
                        got[key] = settle(database, holder, instance, asks[key])
                    totals[key] = got[key].total if key in got else add(database, key, new[key])
                if (recall and any(would_help(asks[key], one) for key, one in got.items())) or (
                    recalled and any(gives(ask) for ask in asks.values())
                ):
                    database.notify(CHANNEL)
                return totals, got

            try:
                totals, got = await self._storage.write(op)
            except BaseException:
                self._put_back(new, ended)
                self._unknown |= asks.keys()
                raise
            finally:
                for key in asks:
                    self._allotments[key].writing = Amount()
            self._unknown -= got.keys()
            for key, given in got.items():
                self._allotments[key].may = self._allotments[key].written = given.allotment
            for key, total in totals.items():
                account = self._accounts.get(key)
                if account is not None:  # others may have spent from the same budget
                    account.spent = total.plus(account.new)
            for key, given in got.items():
                if given.alert:
                    self._tell(key, self._account(key))

    def _asks(
        self, new: Mapping[Key, Amount], wants: Mapping[Key, Units], *, returning: bool
    ) -> dict[Key, AllotmentRequest]:
        """Return the requests. From now on at most the expected remainder may be spent."""
        today, asks = self._today(), {}
        keys = {key for key in (*new, *wants) if self._is_shared(key)}
        keys |= self._unknown
        if returning:
            keys |= self._spare_keys()
        for key in keys:
            account, mine, limit = self._account(key), self._allotment(key), self._limit(key)
            mine.writing = new.get(key, Amount())
            calls = 0 if returning or key[0] != today else _CALLS_AHEAD
            call = wants.get(key, mine.call)
            free = mine.free(account)
            ahead = Units(
                min(free.tokens, calls * call.tokens), min(free.nanos, calls * call.nanos)
            )
            keep = Units.of(account.held) + ahead
            mine.may = keep + Units.of(mine.writing)
            asks[key] = AllotmentRequest(
                key=key,
                limit=limit,
                alert_at=self.limits.alert,
                spent=mine.writing,
                had=mine.written,
                keep=keep,
                want=(wants.get(key, NOTHING) - ahead).positive,
                spare=Units(calls * call.tokens, calls * call.nanos) - ahead,
                call=call,
            )
        return asks

    def _take_new(self, keys: Iterable[Key]) -> dict[Key, Amount]:
        new: dict[Key, Amount] = {}
        for key in keys:
            account = self._accounts.get(key)
            if account is not None:
                new[key], account.new = account.new, Amount()
        return new

    def _put_back(self, new: Mapping[Key, Amount], ended: list[str]) -> None:
        self._ended += ended
        for key, more in new.items():
            account = self._accounts.get(key)
            if account is not None:
                account.new = more.plus(account.new)
                self._dirty.add(key)

    # Budgets that instances share.

    async def _give_back_when_idle(self) -> None:
        while True:
            before = self._acts
            await anyio.sleep(_IDLE_S)
            if before == self._acts and self._spare_keys():
                await self._give_back(recalled=False)

    async def _give_back_when_asked(self, *, task_status: TaskStatus[None]) -> None:
        async with self._storage.listen(CHANNEL) as notified:
            task_status.started()
            async for _ in notified:
                await self._give_back(recalled=True)

    async def _give_back(self, *, recalled: bool) -> None:
        try:
            await self._write(returning=True, recalled=recalled)
            if not recalled and not self._unknown:
                await self._storage.write(lambda db: forget_empty(db, self._holder))
        except StorageError as error:
            log_failure(_log, "could not release the unused part of a budget", error)

    def _is_shared(self, key: Key) -> bool:
        """Whether instances share the budget, and it has a limit. A turn has one instance."""
        if self._instance is None:
            return False
        limit = self._limit(key)
        return key[1] != "task" and (limit.tokens is not None or limit.usd is not None)

    def _allotment(self, key: Key) -> Allotment:
        return self._allotments.setdefault(key, Allotment())

    def _is_short(self, key: Key, most: Amount) -> bool:
        """Return whether this instance has to ask before it may spend this much."""
        if not self._is_shared(key):
            return False
        free = self._allotment(key).free(self._account(key))
        return Units.of(most).exceeds(free, self._limit(key))

    def _spare_keys(self) -> set[Key]:
        """Return the budgets of which something is held ahead of time."""
        return {
            key
            for key, mine in self._allotments.items()
            if mine.written is not None and mine.free(self._account(key)) != NOTHING
        }

    # Limits.

    def _limit(self, key: Key) -> Budget:
        _, scope, of = key
        match scope:
            case "agent":
                return self.limits.agents.get(of, _NO_LIMIT)
            case "principal":
                return self.limits.principal
            case "room":
                return self._rooms.get(of, self.limits.principal)
            case "task":
                return self.limits.task
        return self.limits.day

    def _check(self, key: Key, most: Amount, who: Spender) -> None:
        limit = self._limit(key)
        if key[1] == "task":
            limit = Budget(
                tokens=smaller(limit.tokens, who.limit_tokens),
                usd=smaller(limit.usd, who.limit_usd),
            )
        if limit.tokens is None and limit.usd is None:
            return
        account = self._accounts.get(key) or BudgetAccount()
        if _is_spent(account, most, limit):
            self._refuse(key, account, who)

    def _refuse(self, key: Key, account: BudgetAccount, who: Spender) -> NoReturn:
        _, scope, of = key
        agent = who.agents[0] if who.agents else ""
        self._record("stopped", key, account, str(who.principal), agent, trace=who.task)
        payer = who.payer
        is_payer = payer is not None and (payer.scope, payer.of) == (scope, of)
        is_named = (is_payer and scope != "room") or (
            scope == "task" and (who.limit_usd, who.limit_tokens) != (None, None)
        )
        raise BudgetExceededError(exceeded_text(scope, is_named=is_named), scope, of)

    def _watch(self, key: Key, account: BudgetAccount) -> None:
        # The alert about a shared budget is sent once its costs are stored.
        if account.alerted or key[1] == "task" or self._is_shared(key):
            return
        if spent_part(account.spent, self._limit(key)) >= self.limits.alert:
            self._tell(key, account)

    def _tell(self, key: Key, account: BudgetAccount) -> None:
        account.alerted = True
        part, row = spent_part(account.spent, self._limit(key)), self._row(key, account)
        whose = "all together" if row.scope == "day" else row.of
        said = f"{round(part * 100)} % of the budget of {whose} is spent: {usage_text(row)}."
        _log.warning("a budget is nearly used up", scope=key[1], of=key[2], part=round(part, 2))
        of = key[2]
        principal, agent = (of if key[1] == scope else "" for scope in ("principal", "agent"))
        self._record("alert", key, account, principal, agent)
        self._alert(said)

    def _record(
        self, outcome: str, key: Key, account: BudgetAccount, *who: str, trace: str = ""
    ) -> None:
        principal, agent = who
        self._recorder.record(
            AuditEvent(
                kind="budget",
                outcome=outcome,
                principal=principal,
                agent=agent,
                trace=trace,
                subject=f"{key[1]} {key[2]}".strip(),
                detail=usage_text(self._row(key, account)),
            )
        )

    def _row(self, key: Key, account: BudgetAccount) -> BudgetUsage:
        limit = self._limit(key)
        return BudgetUsage(
            scope=key[1],
            of=key[2],
            tokens=account.spent.tokens,
            usd=round(account.spent.usd, 6),
            calls=account.spent.calls,
            cached=account.spent.cached,
            reasoning=account.spent.reasoning,
            output=account.spent.output,
            limit_tokens=limit.tokens,
            limit_usd=limit.usd,
        )

    def _account(self, key: Key) -> BudgetAccount:
        account = self._accounts.get(key)
        if account is None:
            account = self._accounts[key] = BudgetAccount()
        return account

    def _today(self) -> str:
        day = self._now().astimezone(UTC).date().isoformat()
        if day > self._day:
            # Stored costs of earlier days need not be kept; others are kept until they are stored.
            for key in [k for k in self._accounts if k[0] < day]:
                if key not in self._dirty and self._is_over(key):
                    del self._accounts[key]
            self._loaded_from = max(day, self._loaded_from)
        self._day = day
        return day

    def _is_over(self, key: Key) -> bool:
        """Return whether an account of an earlier day can be forgotten."""
        mine = self._allotments.get(key)
        if self._accounts[key].under_way or (mine and mine.written not in (None, NOTHING)):
            return False
        self._allotments.pop(key, None)
        return True


def smaller(one: N | None, other: N | None) -> N | None:
    """Return the smaller of two limits; None stands for no limit."""
    return min((each for each in (one, other) if each is not None), default=None)


def _is_spent(account: BudgetAccount, most: Amount, limit: Budget) -> bool:
    """Whether too little is left for a call, whatever other instances return."""
    used = Units.of(account.spent) + Units.of(account.held) + Units.of(most)
    return used.exceeds(Units.of(limit), limit)


def _can_be(spent: Amount) -> bool:
    counts = (spent.tokens, spent.cached, spent.reasoning, spent.output)
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
