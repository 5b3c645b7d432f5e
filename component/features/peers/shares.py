"""What is left of the budgets of grants: asked, set aside before work begins, and given back.

Each agent that has made a grant keeps account of what it is used for by those further on. So an
agent that grants the same budget to two others cannot have it spent twice, if these ask.
"""

from collections import deque
from collections.abc import Sequence
from decimal import Decimal
from functools import partial
from typing import Final, Literal

import anyio
import msgspec
import structlog
from anyio.abc import TaskStatus

from component.caches import LRUCache
from component.features.peers import grant_rows
from component.grants import Budget, Grant, GrantError, digest, read_grant, smaller
from component.grants.receipt import Spent
from component.kernel.kernel import Kernel
from component.skills.skill import Skill
from component.store.database import Database
from component.tasks.request import Request, key_of
from xep.fluux_agent import errors
from xep.fluux_agent.delegation import Delegation
from xep.fluux_agent.grant import GrantStatus
from xep.jid import JID
from xep.stanza_error import StanzaError

_log = structlog.get_logger("component.features.peers")

_RETRY_S: Final = 30
_MOST_SHARES: Final = 10_000
_LOOK_S: Final = 60.0


class _Share(msgspec.Struct, frozen=True):
    """What was set aside at `issuer`, from our address `sender`, for a grant that follows from the
    one with this digest.
    """

    issuer: JID
    sender: JID
    digest: str
    child: str


class Shares:
    """Asks agents about their grants, and gives back what work has not spent."""

    def __init__(self, kernel: Kernel) -> None:
        self._storage, self._stream = kernel.storage, kernel.stream
        self._held: LRUCache[str, None] = LRUCache(_MOST_SHARES)
        """The digests of the last grants for which something is set aside; those that were there
        before this process are in the database only.
        """
        self._spent: deque[tuple[_Share, Spent]] = deque()
        self._news = anyio.Event()

    async def ask(self, request: Request, skill: Skill) -> Request:
        """Ask whether the first grant of a request holds; return the request with the budget that
        is left for it.

        The budget of its last grant is set aside by the agent that has made the grant before that.
        Raises StanzaError: it is not enough, or nobody answers. Raises GrantError: a grant does not
        hold.
        """
        delegation = request.delegation
        assert delegation is not None, "it has grants"
        chain = [each.jws for each in delegation.grants]
        grants = [read_grant(each) for each in chain]
        wanted = Budget(usd=delegation.budget_usd, tokens=delegation.budget_tokens)
        has_parent = len(chain) > 1
        is_limited = wanted != Budget()
        sets_aside = has_parent and is_limited and not skill.at_once
        found = None
        if len(chain) != 2 or not sets_aside:
            found = await self._asked(grants[0], chain[0], request)
        if sets_aside:
            found = await self._set_aside(grants, request, wanted)
        assert found is not None, "one of them was asked"
        left = Budget(
            usd=smaller(wanted.usd, found.usd), tokens=smaller(wanted.tokens, found.tokens)
        )
        if not _suffices(left, wanted, skill):
            self.ended(request, Spent(tokens_in=0, cost_usd=Decimal(0)))
            self.wake()
            raise errors.budget_exhausted()
        if left == wanted:
            return request
        return msgspec.structs.replace(request, delegation=_limited(delegation, left))

    async def _set_aside(self, grants: Sequence[Grant], request: Request, wanted: Budget) -> Budget:
        share = _share_of(request)
        assert share is not None, "there are two grants"
        op = partial(
            grant_rows.use, digest_=share.child, request=key_of(request).text, exp=grants[-1].exp
        )
        if not await self._storage.write(op):
            raise GrantError(
                "replayed", f"{grants[-1].iss} has sent the grant with another request."
            )
        self._held[share.child] = None
        return await self._ask(share, "set", wanted)

    async def _asked(self, grant: Grant, written: str, request: Request) -> Budget:
        asked = _Share(JID.parse(grant.iss), request.target.bare, digest(written), "")
        return await self._ask(asked, "get", Budget())

    async def _ask(self, share: _Share, kind: Literal["get", "set"], wanted: Budget) -> Budget:
        """Ask an agent about its grant. Raises StanzaError, GrantError."""
        try:
            status = await self._status(share, kind, wanted)
        except StanzaError as error:
            if error.condition == "item-not-found":
                text = f"{share.issuer} knows nothing of the grant."
                raise GrantError("revoked", text) from None
            raise errors.busy(_RETRY_S) from error
        if status.state != "active" or status.digest != share.digest:
            raise GrantError("revoked", f"{share.issuer} says that the grant is {status.state}.")
        return Budget(usd=status.budget_usd, tokens=status.budget_tokens)

    async def _status(
        self, share: _Share, kind: Literal["get", "set"], wanted: Budget
    ) -> GrantStatus:
        query = GrantStatus(
            digest=share.digest,
            child=share.child or None,
            budget_usd=wanted.usd,
            budget_tokens=wanted.tokens,
        )
        call = self._stream.router.call
        return await call(kind, share.issuer, query, GrantStatus, from_=share.sender)

    def ended(self, request: Request, spent: Spent, database: Database | None = None) -> None:
        """Give back what ended work has not spent, after `wake`. It is called in the transaction
        that ends the work, if there is one.
        """
        share = _share_of(request)
        if share is not None and (
            share.child in self._held
            or (database is not None and grant_rows.is_used(database, share.child))
        ):
            self._spent.append((share, spent))

    def wake(self) -> None:
        """Give back what ended work has not spent, now."""
        if self._spent:
            self._news.set()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Give back what was not spent until cancelled."""
        task_status.started()
        while True:
            with anyio.move_on_after(_LOOK_S):
                await self._news.wait()
            self._news = anyio.Event()
            async with anyio.create_task_group() as group:
                while self._spent:
                    group.start_soon(partial(self._give_back, *self._spent.popleft()))

    async def _give_back(self, share: _Share, spent: Spent) -> None:
        tokens = None if spent.tokens_in is None else spent.tokens_in + (spent.tokens_out or 0)
        if spent.cost_usd is None or tokens is None:
            return  # what is not known counts as spent (DLG-025)
        self._held.pop(share.child, None)
        try:
            await self._status(share, "set", Budget(usd=spent.cost_usd, tokens=tokens))
        except StanzaError as error:
            # It stays set aside until the grant ends.
            _log.info("a budget cannot be given back", agent=str(share.issuer), reason=str(error))


def _share_of(request: Request) -> _Share | None:
    """Return what is set aside for a request, if anything is."""
    delegation = request.delegation
    if delegation is None or len(delegation.grants) < 2:
        return None
    parent, child = (each.jws for each in delegation.grants[-2:])
    issuer = JID.parse(read_grant(parent).iss)
    return _Share(issuer, request.target.bare, digest(parent), digest(child))


def _suffices(left: Budget, wanted: Budget, skill: Skill) -> bool:
    """Return whether work can begin with what is left of the budget that it wants."""
    for rest, asked in ((left.usd, wanted.usd), (left.tokens, wanted.tokens)):
        if rest is not None and rest <= 0 and (asked is None or asked > 0):
            return False
    return not skill.cost_usd or left.usd is None or skill.cost_usd <= left.usd


def _limited(delegation: Delegation, left: Budget) -> Delegation:
    return msgspec.structs.replace(delegation, budget_usd=left.usd, budget_tokens=left.tokens)
