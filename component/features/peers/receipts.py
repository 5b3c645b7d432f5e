"""Receipts about delegated work: those that our agents sign, and those of peers.

All instances share the keys, and each remembers those of today.
"""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from itertools import accumulate
from typing import Any, Final, cast

import anyio
import structlog
from anyio.abc import TaskStatus

from component import system
from component.agent_addresses import canonical_address
from component.audit.protocol import AuditEvent
from component.budget.protocol import Amount, BudgetUsage
from component.features.peers import grant_rows, rows
from component.features.peers.agent_keys import AgentKeys
from component.features.peers.rows import Call
from component.features.peers.shares import Shares
from component.grants import SigningKey, digest
from component.grants.receipt import (
    Receipt,
    ReceiptError,
    Spent,
    receipt_key,
    verify_receipt,
    write_receipt,
)
from component.kernel.kernel import Kernel
from component.store.database import Database
from component.store.errors import StorageError
from component.store.outages import log_failure
from component.tasks.receipts import Ending
from xep.binding import read
from xep.fluux_agent.execute import Execute, Result
from xep.fluux_agent.grant import SignedReceipt
from xep.fluux_agent.task import Failure
from xep.jid import JID
from xep.stanza_error import StanzaError

_log = structlog.get_logger("component.features.peers")

_MOST_BYTES: Final = 8192
"""The maximum size of the receipts of others that a receipt contains; they contain further ones."""
_RETRY_S: Final = 30
_DAY_S: Final = 86_400.0


class Receipts:
    """Signs and verifies receipts. `agents` are the addresses of our agents."""

    def __init__(
        self, kernel: Kernel, keys: AgentKeys, agents: Sequence[JID], shares: Shares
    ) -> None:
        self._shares = shares
        self._storage = kernel.storage
        self._recorder = kernel.environment.monitoring.recorder
        self._keys = keys
        self._agents = agents
        self._agents_here = kernel.agents
        self._signing: Mapping[str, SigningKey] = {}

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Make a key for each agent, and a new one in time, until cancelled."""

        def op(database: Database) -> dict[str, SigningKey]:
            names = map(str, self._agents)
            return {name: grant_rows.current_key(database, name).key for name in names}

        while True:
            try:
                self._signing = await self._storage.write(op)
            except StorageError as error:
                log_failure(_log, "keys of agents cannot be stored", error)
            task_status.started()
            task_status = anyio.TASK_STATUS_IGNORED
            await anyio.sleep(_DAY_S if self._signing else _RETRY_S)

    def make(self, ending: Ending) -> SignedReceipt | None:
        """Return a receipt about delegated work that has ended; None if there is no key yet."""
        request, delegation = ending.request, ending.request.delegation
        assert delegation is not None, "the work is delegated"
        usage = self._usage(ending)
        self._shares.ended(request, usage, ending.database)
        if ending.database is None:  # else this is the thread of an operation of the database
            self._shares.wake()
        agent = str(canonical_address(request.target))
        key = self._signing.get(agent)
        if key is None and ending.database is not None:
            key = grant_rows.current_key(ending.database, agent).key
        if key is None:
            return None
        further: tuple[str, ...] = ()
        if ending.database is not None:
            further = _fitting(rows.receipts_of(ending.database, ending.work))
        receipt = Receipt(
            iss=agent,
            aud=str(request.principal),
            sub=str(delegation.origin),
            iat=int(system.now().timestamp()),
            jti=system.token_hex(8),
            skill=request.skill,
            state=cast("Any", ending.state),
            request=request.name,
            task=None if ending.database is None else ending.work,
            trace=delegation.trace_id or None,
            grant=digest(delegation.grants[-1].jws) if delegation.grants else None,
            usage=usage,
            receipts=further,
        )
        return SignedReceipt(jws=write_receipt(receipt, key))

    def _usage(self, ending: Ending) -> Spent:
        """Return what the work has taken: what its result says, or what is known of it."""
        if ending.result is not None:
            return rows.spent_in(ending.result, None)
        models: Amount | BudgetUsage = Amount()
        agents = rows.Costs()
        if self._agents_here is not None and ending.work:
            models = self._agents_here.budgets.spent("task", ending.work)
        if ending.database is not None:
            # An open call may still cost all that it was allowed.
            for is_ended in (True, False):
                agents = agents.plus(rows.costs_of(ending.database, ending.work, ended=is_ended))
        output = models.output + agents.output
        return Spent(
            tokens_in=models.tokens + agents.tokens - output,
            tokens_out=output,
            cost_usd=Decimal(f"{models.usd + agents.usd:.9f}").normalize(),
        )

    async def ended(self, call: Call, outcome: Result | Failure) -> str | None:
        """Record the end of a call; return its receipt, if there is one and it is valid."""
        given = read(call.request, Execute)
        receipt = None if outcome.receipt is None else await self._valid(call, outcome.receipt.jws)
        how = "has completed it" if isinstance(outcome, Result) else "has not completed it"
        self._recorder.record(
            AuditEvent(
                kind="execute",
                outcome="delegated",
                principal="" if given.delegation is None else str(given.delegation.origin),
                trace="" if given.delegation is None else given.delegation.trace_id,
                subject=f"{call.peer}.{given.skill}",
                task=call.task,
                detail=f"{call.address} {how}, {'with' if receipt else 'without'} a receipt",
            )
        )
        return receipt

    async def _valid(self, call: Call, compact: str) -> str | None:
        """Return a receipt about a call; None if it is not valid."""
        issuer = JID.parse(call.address)
        try:
            keys = await self._keys.of(issuer, JID.parse(call.sender), receipt_key(compact))
            receipt = verify_receipt(compact, keys)
        except (ReceiptError, StanzaError) as error:
            _log.warning("a receipt does not count", peer=call.peer, reason=str(error))
            return None
        execute = read(call.request, Execute)
        given = execute.delegation
        said = (receipt.iss, receipt.aud, receipt.sub, receipt.request)
        origin = "" if given is None else str(given.origin)
        if said != (str(canonical_address(issuer)), call.sender, origin, execute.request):
            _log.warning("a receipt is about other work", peer=call.peer, call=call.id)
            return None
        return compact


def _fitting(receipts: Sequence[str]) -> tuple[str, ...]:
    """Return the first receipts that are not too large together."""
    sizes = accumulate(map(len, receipts))
    return tuple(one for one, size in zip(receipts, sizes, strict=True) if size <= _MOST_BYTES)
