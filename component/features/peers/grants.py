"""Grants of our own for calls of peers, and the verification of those that come with requests.

A call is signed just before it is sent for the first time, and stored with its grant in one commit.
The keys of other agents are fetched from their own addresses over our stream, and remembered for an
hour.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, TypeAlias, cast

import anyio
import msgspec
import structlog
from anyio.abc import TaskStatus

from component import system
from component.agent_addresses import canonical_address
from component.audit.protocol import AuditEvent
from component.caches import LRUCache
from component.config import Settings
from component.config.peers import Peer
from component.features.peers import grant_rows, rows
from component.features.peers.rows import Call
from component.grants import (
    Budget,
    Grant,
    GrantError,
    Presented,
    PublicKey,
    SigningKey,
    covers,
    digest,
    narrowed,
    read_grant,
    verify,
)
from component.grants.grant import Confirmation, key_named_by
from component.grants.receipt import (
    Receipt,
    ReceiptError,
    Spent,
    receipt_key,
    verify_receipt,
    write_receipt,
)
from component.kernel.kernel import Kernel
from component.kernel.options import addresses
from component.skills.skill import Skill
from component.store.database import Database
from component.store.errors import StorageError
from component.store.outages import log_failure
from component.tasks.delegation import MOST_VIA
from component.tasks.receipts import Ending
from component.tasks.request import Request
from xep import pubsub
from xep.binding import ContentError, encode, read
from xep.fluux_agent import errors
from xep.fluux_agent.delegation import Delegation
from xep.fluux_agent.execute import Execute, Result
from xep.fluux_agent.grant import GrantStatus, SignedGrant, SignedReceipt
from xep.fluux_agent.keys import NAMESPACE as KEYS
from xep.fluux_agent.keys import Key
from xep.fluux_agent.task import Failure
from xep.jid import JID
from xep.pubsub import Pubsub
from xep.stanza_error import StanzaError

_log = structlog.get_logger("component.features.peers")

_KEPT_S: Final = 3600.0
"""Seconds for which the keys of another agent are used without a look at its node."""
_LEAST_S: Final = 60.0
"""Seconds between two looks, when a key is not there."""
_MOST_AGENTS: Final = 1000
_MOST_KEYS: Final = 16
_MOST_RECEIPTS: Final = 8
_RETRY_S: Final = 30
_DAY_S: Final = 86_400.0


def agents_of(settings: Settings) -> tuple[JID, ...]:
    """Return the addresses of our agents, which stand for them in grants."""
    ours = addresses(settings)
    return tuple(canonical_address(ours.address_of(name)) for name in settings.agent_names)


class AgentKeys:
    """The public keys of other agents."""

    def __init__(self, kernel: Kernel) -> None:
        self._get = kernel.stream.get
        self._known: LRUCache[JID, tuple[float, Mapping[str, PublicKey]]] = LRUCache(_MOST_AGENTS)

    async def of(self, agent: JID, from_: JID, wanted: str = "") -> Mapping[str, PublicKey]:
        """Return the keys that an agent publishes, by their names, the newest last; empty if it
        publishes none. If the `wanted` one is not among those that are remembered, they are fetched
        again. Raises StanzaError: its server cannot be reached, or nobody answers.
        """
        known = self.known(agent)
        if known is not None and (
            not wanted or wanted in known or anyio.current_time() - self._known[agent][0] < _LEAST_S
        ):
            return known
        keys = await self._fetch(agent, from_)
        self._known[agent] = anyio.current_time(), keys
        return keys

    def known(self, agent: JID) -> Mapping[str, PublicKey] | None:
        """Return the keys of an agent that are remembered; None if they must be fetched."""
        found = self._known.get(agent)
        if found is None or anyio.current_time() - found[0] >= _KEPT_S:
            return None
        return found[1]

    async def _fetch(self, agent: JID, from_: JID) -> Mapping[str, PublicKey]:
        asked = Pubsub(items=pubsub.Items(node=KEYS))
        try:
            answer = await self._get(agent, asked, Pubsub, from_)
        except StanzaError as error:
            if error.type == "wait" or error.condition.startswith("remote-server"):
                raise
            return {}  # it has no such node, or answers nobody that it does not know
        items = () if answer.items is None else answer.items.items
        keys: dict[str, PublicKey] = {}
        for raw in [raw for item in items[-_MOST_KEYS:] for raw in item.payloads]:
            try:
                key = read(raw.text, Key)
                public = PublicKey(x=key.x)
                keys[public.kid] = public
            except (ContentError, ValueError) as error:
                _log.warning("ignored a key of an agent", agent=str(agent), reason=str(error))
        return keys


Sign: TypeAlias = Callable[[Database], Execute]
"""Signs a call, in a transaction."""


class PeerGrants:
    """Makes and verifies grants."""

    def __init__(self, kernel: Kernel, peers: Sequence[Peer]) -> None:
        self._kernel = kernel
        self._storage = kernel.storage
        self._peers = {canonical_address(JID.parse(peer.jid)): peer for peer in peers}
        self._by_name = {peer.name: peer for peer in peers}
        self.keys = AgentKeys(kernel)
        self._signing: Mapping[str, SigningKey] = {}
        self.agents = agents_of(kernel.settings)

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Make a key for each agent, and a new one in time, until cancelled."""

        def op(database: Database) -> dict[str, SigningKey]:
            names = map(str, self.agents)
            return {name: grant_rows.current_key(database, name).key for name in names}

        while True:
            try:
                self._signing = await self._storage.write(op)
            except StorageError as error:
                log_failure(_log, "keys of agents cannot be stored", error)
            task_status.started()
            task_status = anyio.TASK_STATUS_IGNORED
            await anyio.sleep(_DAY_S if self._signing else _RETRY_S)

    # Receipts.

    def make_receipt(self, ending: Ending) -> SignedReceipt | None:
        """Return a receipt about delegated work that has ended; None if there is no key yet."""
        request, delegation, outcome = ending.request, ending.request.delegation, ending.outcome
        assert delegation is not None, "the work is delegated"
        agent = str(canonical_address(request.target))
        key = self._signing.get(agent)
        if key is None and ending.database is not None:
            key = grant_rows.current_key(ending.database, agent).key
        if key is None:
            return None
        usage = outcome.usage if isinstance(outcome, Result) else None
        further: tuple[str, ...] = ()
        if ending.database is not None:
            further = rows.receipts_of(ending.database, ending.task)
        receipt = Receipt(
            iss=agent,
            aud=str(request.principal),
            sub=str(delegation.origin),
            iat=int(system.now().timestamp()),
            jti=system.token_hex(8),
            skill=request.skill,
            state=cast("Any", ending.state),
            request=request.name,
            task=ending.task or None,
            trace=delegation.trace_id or None,
            grant=digest(delegation.grants[-1].jws) if delegation.grants else None,
            usage=Spent() if usage is None else msgspec.convert(usage, Spent, from_attributes=True),
            receipts=further[:_MOST_RECEIPTS],
        )
        return SignedReceipt(jws=write_receipt(receipt, key))

    async def ended(self, call: Call, outcome: Result | Failure) -> str | None:
        """Record the end of a call; return its receipt, if there is one and it is valid."""
        given = read(call.request, Execute)
        receipt = None if outcome.receipt is None else await self._valid(call, outcome.receipt.jws)
        how = "has completed it" if isinstance(outcome, Result) else "has not completed it"
        self._kernel.environment.monitoring.recorder.record(
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
            keys = await self.keys.of(issuer, JID.parse(call.sender), receipt_key(compact))
            receipt = verify_receipt(compact, keys)
        except (ReceiptError, StanzaError) as error:
            _log.warning("a receipt does not count", peer=call.peer, reason=str(error))
            return None
        given = read(call.request, Execute).delegation
        said = (receipt.iss, receipt.aud, receipt.sub, receipt.request)
        origin = "" if given is None else str(given.origin)
        if said != (str(canonical_address(issuer)), call.sender, origin, call.id):
            _log.warning("a receipt is about other work", peer=call.peer, call=call.id)
            return None
        return compact

    # Calls of peers.

    def signing(self, call: Call, keys: Mapping[str, PublicKey] | None = None) -> Sign | None:
        """Return what signs a call and stores it, in a transaction; None if it needs no grant, or
        the keys of the peer are neither given nor remembered. It raises StanzaError, before any
        change, if the grants that came with the work do not permit the call.
        """
        execute = read(call.request, Execute)
        given, peer = execute.delegation, self._by_name.get(call.peer)
        if given is None or peer is None or not _needs_grant(given):
            return None
        if not self._kernel.disco.has_pubsub:
            return None  # nobody could get the key: the nodes of an account are its server's
        if keys is None:
            keys = self.keys.known(JID.parse(call.address))
        if keys is None:
            return None
        next_key = list(keys.values())[-1] if keys else None
        return partial(_issue, call=call, execute=execute, peer=peer, next_key=next_key)

    async def signed(self, call: Call) -> Execute:
        """Return the request of a call, with its chain of grants.

        Work that has come without grants is passed on without any. Raises StanzaError: the grants
        that came with the work do not permit it, or the peer cannot be reached.
        """
        execute = read(call.request, Execute)
        if execute.delegation is None or not _needs_grant(execute.delegation):
            return execute
        keys = await self.keys.of(JID.parse(call.address), JID.parse(call.sender))
        sign = self.signing(call, keys)
        return execute if sign is None else await self._storage.write(sign)

    # Requests of peers.

    async def check(self, request: Request, skill: Skill) -> None:
        """Check the grants of a request. Raises StanzaError."""
        delegation = request.delegation
        assert delegation is not None, "it has grants"
        try:
            await self._verify(request, delegation)
            if self._asks_back(request, skill):
                await self._ask_back(delegation.grants[0].jws, request, skill)
        except GrantError as error:
            raise errors.invalid_grant(error.reason, str(error)) from None

    async def _verify(self, request: Request, delegation: Delegation) -> None:
        """Verify the grants of a request. Raises GrantError; StanzaError: there are no keys now."""
        chain = [each.jws for each in delegation.grants]
        if len(chain) > MOST_VIA:
            raise GrantError("wrong-path", "There are more grants than agents in the path.")
        issuer = JID.parse(read_grant(chain[0]).iss)
        if not self._believes(issuer, delegation.origin):
            raise GrantError(
                "wrong-origin", f"{issuer} does not speak for {delegation.origin} here."
            )
        try:
            address, key = _domain_of(issuer), key_named_by(chain[0])
            keys = await self.keys.of(address, request.target, key)
        except StanzaError as error:
            _log.info("the keys of an agent are not there", agent=str(issuer), reason=str(error))
            raise errors.busy(_RETRY_S) from error
        verify(chain, keys, _presented(request, delegation))

    def _believes(self, issuer: JID, origin: JID) -> bool:
        """Whether an agent may begin work for a person: as a peer, one in whose name it may ask.
        Otherwise the default agent of the domain of the person, or of one directly below: nobody
        but the server has that address, and every account could publish keys.
        """
        policy = self._kernel.environment.catalog.rights.policy
        if policy.is_peer(issuer):
            return policy.believes(issuer, origin)
        above = issuer.domain.partition(".")[2]
        return _domain_of(issuer).local is None and origin.domain in (issuer.domain, above)

    def _asks_back(self, request: Request, skill: Skill) -> bool:
        peer = self._peers.get(canonical_address(request.principal))
        when = "costly" if peer is None else peer.asks_back
        costs = bool(skill.cost_usd) or skill.annotations.destructive
        return when == "always" or (when == "costly" and costs)

    async def _ask_back(self, first: str, request: Request, skill: Skill) -> None:
        """Ask the agent that has made the first grant whether it holds. Raises StanzaError,
        GrantError.
        """
        asked, issuer = GrantStatus(digest=digest(first)), JID.parse(read_grant(first).iss)
        try:
            status = await self._kernel.stream.get(issuer, asked, GrantStatus, request.target)
        except StanzaError as error:
            if error.condition == "item-not-found":
                raise GrantError("revoked", f"{issuer} knows nothing of the grant.") from None
            raise errors.busy(_RETRY_S) from error
        if status.state != "active" or status.digest != asked.digest:
            raise GrantError("revoked", f"{issuer} says that the grant is {status.state}.")
        if skill.cost_usd and status.budget_usd is not None and skill.cost_usd > status.budget_usd:
            raise errors.budget_exhausted()

    async def status(self, asked: GrantStatus) -> GrantStatus:
        """Return the state of a grant of ours. Raises StanzaError (``item-not-found``)."""
        found = await self._storage.read(lambda db: grant_rows.state_of(db, asked.digest))
        if found is None:
            raise StanzaError("item-not-found", "This agent has made no such grant.")
        grant, state = found
        return GrantStatus(
            digest=grant.digest,
            state=state,
            expires=datetime.fromtimestamp(grant.expires / 1000, UTC),
            budget_usd=grant.budget.usd,
            budget_tokens=grant.budget_tokens,
        )


def _domain_of(agent: JID) -> JID:
    """Return the domain of a default agent, for which it stands; another agent itself."""
    domain = JID(None, agent.domain)
    return domain if canonical_address(agent) == canonical_address(domain) else agent


def _presented(request: Request, delegation: Delegation) -> Presented:
    deadline = request.deadline
    return Presented(
        delegation=delegation,
        skill=request.skill,
        sender=request.principal,
        receiver=request.target.bare,
        deadline=None if deadline is None else deadline.timestamp(),
        now=system.now().timestamp(),
    )


def _needs_grant(given: Delegation) -> bool:
    """Return whether a grant of ours is missing, and no other one."""
    return len(given.via) - len(given.grants) == 1


def _issue(
    database: Database, call: Call, execute: Execute, peer: Peer, next_key: PublicKey | None
) -> Execute:
    """Sign a call that is stored without grants, and store it; return its request. Raises
    StanzaError.
    """
    stored = rows.load(database, call.id, lock=True)
    if stored is None or stored.request != call.request:
        return read((stored or call).request, Execute)  # it was signed meanwhile
    given = cast("Delegation", execute.delegation)
    agent = call.sender
    parent = read_grant(given.grants[-1].jws) if given.grants else None
    made = _grant(call, execute, peer, parent, next_key)
    key: grant_rows.StoredKey | None
    if parent is None:
        key = grant_rows.current_key(database, agent)
    else:
        assert parent.cnf is not None, "_grant demands it"
        key = grant_rows.key_named(database, agent, parent.cnf.jwk.kid)
    if key is None:
        raise errors.invalid_grant("wrong-key", "The key that the grant names has expired.")
    compact = grant_rows.issue(database, made, key, agent, call.id, call.task)
    delegation = msgspec.structs.replace(given, grants=(*given.grants, SignedGrant(jws=compact)))
    deadline = datetime.fromtimestamp(made.exp, UTC)
    request = msgspec.structs.replace(execute, deadline=deadline, delegation=delegation)
    rows.change(database, call.id, request=encode(request), deadline=made.exp * 1000)
    return request


def _grant(
    call: Call, execute: Execute, peer: Peer, parent: Grant | None, next_key: PublicKey | None
) -> Grant:
    """Return the claims of the grant for a call. Raises StanzaError: its parent does not permit
    it.
    """
    given = cast("Delegation", execute.delegation)
    depth = given.max_hops - len(given.via) if peer.onward and next_key is not None else 0
    skills, exp = (execute.skill, *peer.onward), call.deadline // 1000
    if parent is not None:
        if parent.cnf is None or parent.depth == 0:
            raise errors.hops_exceeded()
        if not covers(parent.skills, execute.skill):
            raise errors.invalid_grant(
                "wider-skills", f"The grant of {parent.iss} does not include {execute.skill}."
            )
        depth = max(0, min(depth, parent.depth - 1))
        skills, exp = narrowed(parent.skills, skills), min(exp, parent.exp)
    now = system.now()
    return Grant(
        iss=call.sender,
        sub=str(given.origin),
        aud=call.address,
        skills=tuple(dict.fromkeys(skills)),
        depth=depth,
        exp=exp,
        iat=int(now.timestamp()),
        jti=system.token_hex(8),
        budget=Budget(usd=given.budget_usd, tokens=given.budget_tokens),
        par=digest(given.grants[-1].jws) if given.grants else None,
        cnf=Confirmation(jwk=next_key) if depth and next_key is not None else None,
    )
