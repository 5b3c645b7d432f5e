"""Budgets that several instances share on PostgreSQL; see `component.budget.allotments`.

A call that fits into the allotment of its instance does not wait. Allotments are renewed in the
commit that stores the costs, so successive calls cost no additional commit. Only the first call
after a pause waits for one, and each call when a budget is nearly spent.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final

import anyio
import structlog
from anyio.abc import TaskStatus

from component import system
from component.audit.protocol import Recorder
from component.budget import allotments
from component.budget.allotments import NOTHING, Ask, Got, Units
from component.budget.book import Account, BudgetBook, keys_of
from component.budget.protocol import Amount, Reservation, Scope, Spender
from component.budget.rows import TASKS, Key, More, add, forget
from component.budget.shapes import BudgetLimits, BudgetUsage
from component.storage.database import Database
from component.storage.errors import StorageError
from component.storage.storage import Storage
from xep.jid import JID

_log = structlog.get_logger("component.budget")

_IDLE_S: Final = 5.0
"""After this time without costs, amounts that are held ahead of time are returned."""
_CALLS_AHEAD: Final = 2
"""An instance holds as much ahead of time as this number of calls can cost, if enough is left."""
_WAITS_S: Final = (0.05, 0.1, 0.2, 0.4, 0.8)
"""How long a call waits for amounts of other instances before it checks again."""
_IN_VAIN_S: Final = 2.0
"""The time for which the others are not asked again for an amount that they did not have."""
_NONE_SPENT: Final = More()


class _Allotment:
    """What this instance may spend of a budget without asking.

    `written` is the allotment as stored, None if there is none; `may` is less while some of it is
    being returned, and counts the amount `writing`, which is being stored. `call` is the size of
    the last call.
    """

    __slots__ = ("call", "may", "writing", "written")

    def __init__(self) -> None:
        self.may = self.call = NOTHING
        self.written: Units | None = None
        self.writing: More = _NONE_SPENT

    def free(self, account: Account) -> Units:
        """Return the rest of the allotment."""
        tokens = account.held_tokens + account.new[0] + self.writing[0]
        usd = account.held_usd + account.new[1] + self.writing[1]
        left = self.may - Units.of(tokens, usd)
        return Units(max(0, left.tokens), max(0, left.nanos))


class SharedBudgetBook(BudgetBook):
    """Implements `component.budget.protocol.Budgets` for one of several instances.

    Args:
        storage: the database.
        limits: the budgets; the same for all instances.
        recorder: records stops and alerts.
        instance: returns the name under which this instance sends heartbeats.
        alert: called with a sentence when a part of a budget is spent: once a day, on one of the
            instances.
        now: returns the time; a day ends at midnight, UTC.
    """

    def __init__(
        self,
        storage: Storage,
        limits: BudgetLimits,
        recorder: Recorder,
        instance: Callable[[], str],
        alert: Callable[[str], None] = lambda _: None,
        now: Callable[[], datetime] = system.now,
    ) -> None:
        super().__init__(storage, limits, recorder, alert, now)
        self._database = storage
        self._instance = instance
        self._holder = system.token_hex(16)
        self._allotments: dict[Key, _Allotment] = {}
        self._writing = anyio.Lock()
        self._in_vain: dict[Key, float] = {}
        """When the others were last asked in vain."""
        self._unknown: set[Key] = set()
        """It is unknown whether the database has the last write of these."""
        self._acts = 0
        """The number of calls that began and ended, to notice whether there are any."""

    # For the agent loop.

    async def acquire(self, who: Spender, most: Amount) -> Reservation:
        """Reserve the maximum cost of a call; wait until this instance may spend that much.

        Raises BudgetExceededError: too little is left, or other instances hold it for calls in
        progress; StorageError: an allotment is needed and cannot be obtained.
        """
        while True:
            day = self._today()
            keys = tuple(keys_of(who, day))
            for key in keys:
                if not self._is_shared(key):
                    self._check(key, most, who)
            short = [key for key in keys if self._is_short(key, most)]
            if not short:
                for key in keys:
                    if self._is_shared(key):
                        self._allotment(key).call = Units.of(most.tokens, most.usd)
                self._acts += 1
                return self._hold(who, keys, most, day)
            await self._obtain(short, most, who)

    def settle(self, reservation: Reservation, spent: Amount) -> None:
        """Record the cost of a call."""
        super().settle(reservation, spent)
        self._acts += 1

    async def _obtain(self, keys: Sequence[Key], most: Amount, who: Spender) -> None:
        """Get allotments with room for a call. Raises BudgetExceededError, StorageError."""
        wants = dict.fromkeys(keys, Units.of(most.tokens, most.usd))
        for wait in (*_WAITS_S, None):
            now = anyio.current_time()
            recall = all(now - self._in_vain.get(key, -_IN_VAIN_S) >= _IN_VAIN_S for key in keys)
            await self._write(wants, recall=recall)
            lacking = next((key for key in keys if self._is_short(key, most)), None)
            if lacking is None:
                return
            if self._is_spent(lacking, most) or not recall:
                self._refuse(lacking, self._account(lacking), who)
            if wait is None:
                self._in_vain[lacking] = now
                self._refuse(lacking, self._account(lacking), who)
            await anyio.sleep(wait)

    # Reports.

    async def usage(self, agent: str, principal: JID) -> Sequence[BudgetUsage]:
        """Return the usage of a person who talks with an agent, for `/usage`. Raises
        StorageError.
        """
        found = {(row.scope, row.of): row for row in await self.report()}
        wanted: tuple[tuple[Scope, str], ...] = (
            ("principal", str(principal.bare)),
            ("agent", agent),
        )
        return tuple(
            found.get((scope, of)) or self._row((self._day, scope, of), Account())
            for scope, of in wanted
        )

    async def report(self, day: str | None = None) -> Sequence[BudgetUsage]:
        """Return the usage of all instances on a day, the highest first. Raises StorageError."""
        await self._storage.write(lambda db: allotments.charge_dead(db, self._holder))
        return await super().report(day)

    # Start and stop.

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Store costs until cancelled; started once the usage of the day is loaded.

        Raises StorageError: the database refuses at the start.
        """
        async with anyio.create_task_group() as group:
            await group.start(self._give_back_when_asked)
            group.start_soon(self._give_back_when_idle)
            await group.start(super().run)
            task_status.started()

    async def close(self) -> None:
        """Store the remaining costs, and return everything that is not spent."""
        await super().close()
        with anyio.move_on_after(_IDLE_S, shield=True):
            await self._give_back(recalled=False)

    async def flush(self) -> None:
        """Store new costs. Raises StorageError; they are then kept for the next time."""
        await self._write()

    async def _give_back_when_idle(self) -> None:
        while True:
            before = self._acts
            await anyio.sleep(_IDLE_S)
            if before == self._acts and self._spare_keys():
                await self._give_back(recalled=False)

    async def _give_back_when_asked(self, *, task_status: TaskStatus[None]) -> None:
        async with self._database.listen(allotments.CHANNEL) as notified:
            task_status.started()
            async for _ in notified:
                await self._give_back(recalled=True)

    async def _give_back(self, *, recalled: bool) -> None:
        try:
            await self._write(returning=True, recalled=recalled)
            if not recalled and not self._unknown:
                await self._storage.write(lambda db: allotments.forget_empty(db, self._holder))
        except StorageError as error:
            _log.warning("could not release the unused part of a budget", reason=str(error))

    # The database.

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
            holder, instance = self._holder, self._instance()

            def op(database: Database) -> tuple[dict[Key, More], dict[Key, Got]]:
                for task in ended:
                    forget(database, (TASKS, "task", task))
                totals: dict[Key, More] = {}
                got: dict[Key, Got] = {}
                for key in sorted(new.keys() | asks.keys()):  # in the same order everywhere
                    if key in asks:
                        got[key] = allotments.settle(database, holder, instance, asks[key])
                    totals[key] = got[key].total if key in got else add(database, key, new[key])
                if (recall and any(_would_help(asks[key], one) for key, one in got.items())) or (
                    recalled and any(_gives(ask) for ask in asks.values())
                ):
                    database.notify(allotments.CHANNEL)
                return totals, got

            try:
                totals, got = await self._storage.write(op)
            except BaseException:
                self._put_back(new, ended)
                self._unknown |= asks.keys()
                raise
            finally:
                for key in asks:
                    self._allotments[key].writing = _NONE_SPENT
            self._unknown -= got.keys()
            for key, given in got.items():
                self._allotments[key].may = self._allotments[key].written = given.allotment
            self._know(totals)
            for key, given in got.items():
                if given.alert:
                    self._tell(key, self._account(key))

    def _asks(
        self, new: Mapping[Key, More], wants: Mapping[Key, Units], *, returning: bool
    ) -> dict[Key, Ask]:
        """Return the requests. From now on at most the expected remainder may be spent."""
        today, asks = self._today(), {}
        keys = {key for key in (*new, *wants) if self._is_shared(key)}
        keys |= self._unknown
        if returning:
            keys |= self._spare_keys()
        for key in keys:
            account, mine, limit = self._account(key), self._allotment(key), self._limit(key)
            mine.writing = new.get(key, _NONE_SPENT)
            calls = 0 if returning or key[0] != today else _CALLS_AHEAD
            call = wants.get(key, mine.call)
            free = mine.free(account)
            ahead = Units(
                min(free.tokens, calls * call.tokens), min(free.nanos, calls * call.nanos)
            )
            keep = Units.of(account.held_tokens, account.held_usd) + ahead
            mine.may = keep + Units.of(mine.writing[0], mine.writing[1])
            asks[key] = Ask(
                key=key,
                limit=limit,
                alert_at=self._limits.alert,
                spent=mine.writing,
                had=mine.written,
                keep=keep,
                want=_rest(wants.get(key, NOTHING), ahead),
                spare=Units(calls * call.tokens, calls * call.nanos) - ahead,
                call=call,
            )
        return asks

    # Selection of budgets.

    def _is_shared(self, key: Key) -> bool:
        """Return whether instances share the budget and it has a limit. A turn belongs to one
        instance.
        """
        limit = self._limit(key)
        return key[1] != "task" and (limit.tokens is not None or limit.usd is not None)

    def _allotment(self, key: Key) -> _Allotment:
        return self._allotments.setdefault(key, _Allotment())

    def _is_short(self, key: Key, most: Amount) -> bool:
        """Return whether this instance has to ask before it may spend this much."""
        if not self._is_shared(key):
            return False
        free = self._allotment(key).free(self._account(key))
        return Units.of(most.tokens, most.usd).exceeds(free, self._limit(key))

    def _is_spent(self, key: Key, most: Amount) -> bool:
        """Return whether too little is left for a call, whatever other instances return."""
        limit, account = self._limit(key), self._account(key)
        used = Units.of(account.tokens + account.held_tokens, account.usd + account.held_usd)
        all_ = Units.of(limit.tokens or 0, limit.usd or 0.0)
        return (used + Units.of(most.tokens, most.usd)).exceeds(all_, limit)

    def _spare_keys(self) -> set[Key]:
        """Return the budgets of which something is held ahead of time."""
        return {
            key
            for key, mine in self._allotments.items()
            if mine.written is not None and mine.free(self._account(key)) != NOTHING
        }

    def _watch(self, key: Key, account: Account) -> None:
        """Send an alert that a budget is nearly spent; for a shared one, once its costs
        are stored.
        """
        if not self._is_shared(key):
            super()._watch(key, account)

    def _is_over(self, key: Key) -> bool:
        mine = self._allotments.get(key)
        if not super()._is_over(key) or (mine is not None and mine.written not in (None, NOTHING)):
            return False
        self._allotments.pop(key, None)
        return True


def _rest(of: Units, without: Units) -> Units:
    """Return the difference, at least zero."""
    return Units(max(0, of.tokens - without.tokens), max(0, of.nanos - without.nanos))


def _would_help(ask: Ask, got: Got) -> bool:
    """Return whether others hold an amount that was requested and not granted."""
    missing = (ask.keep + ask.want).exceeds(got.allotment, ask.limit)
    return missing and got.others != NOTHING


def _gives(ask: Ask) -> bool:
    """Return whether an amount is returned that other instances may use."""
    needed = ask.keep + Units.of(ask.spent[0], ask.spent[1])
    return ask.had is not None and ask.had.exceeds(needed, ask.limit)
