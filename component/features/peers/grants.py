"""Grants for calls of peers.

A call is signed in the commit that stores it, if the key of the peer is known, and otherwise just
before it is sent for the first time. Either way its request is stored with its grants, so all
repetitions have the same ones.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import TypeAlias, cast

import msgspec

from component import system
from component.agent_addresses import canonical_address
from component.config import Settings
from component.config.peers import Peer
from component.features.peers import grant_rows, rows
from component.features.peers.agent_keys import AgentKeys
from component.features.peers.rows import Call
from component.grants import Budget, Grant, PublicKey, covers, digest, narrowed, read_grant
from component.grants.grant import Confirmation
from component.kernel.kernel import Kernel
from component.kernel.options import addresses
from component.store.database import Database
from xep.binding import encode, read
from xep.fluux_agent import errors
from xep.fluux_agent.delegation import Delegation
from xep.fluux_agent.execute import Execute
from xep.fluux_agent.grant import GrantStatus, SignedGrant
from xep.jid import JID
from xep.stanza_error import StanzaError

Sign: TypeAlias = Callable[[Database], Execute]
"""Signs a call, in a transaction."""


def agents_of(settings: Settings) -> tuple[JID, ...]:
    """Return the addresses of our agents, which stand for them in grants."""
    ours = addresses(settings)
    return tuple(canonical_address(ours.address_of(name)) for name in settings.agent_names)


class PeerGrants:
    """Makes grants. `peers` are the sections of the settings."""

    def __init__(self, kernel: Kernel, keys: AgentKeys, peers: Sequence[Peer]) -> None:
        self._storage = kernel.storage
        self._has_node = kernel.disco.has_pubsub
        self._keys = keys
        self._peers = {peer.name: peer for peer in peers}

    def known_keys(self, call: Call) -> Mapping[str, PublicKey] | None:
        """Return the keys of the peer that is called, if they are remembered."""
        return self._keys.known(JID.parse(call.address))

    def signing(self, call: Call, keys: Mapping[str, PublicKey] | None) -> Sign | None:
        """Return what signs a call and stores it, in a transaction; None if it needs no grant, or
        the keys of the peer are neither given nor remembered. It raises StanzaError, before any
        change, if the grants that came with the work do not permit the call.
        """
        execute = read(call.request, Execute)
        given, peer = execute.delegation, self._peers.get(call.peer)
        if given is None or peer is None or not _needs_grant(given):
            return None
        if execute.request != call.id:
            return None  # the peer may have got it, and the repetition must be the same
        if not self._has_node:
            return None  # nobody could get the key: the nodes of an account are its server's
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
        keys = await self._keys.of(JID.parse(call.address), JID.parse(call.sender))
        sign = self.signing(call, keys)
        return execute if sign is None else await self._storage.write(sign)

    async def status(self, asked: GrantStatus) -> GrantStatus:
        """Return the state of a grant made here, and what is left of its budget. Raises StanzaError
        (``item-not-found``).
        """
        return await self._storage.read(lambda db: _status(db, asked))

    async def set_aside(self, asked: GrantStatus) -> GrantStatus:
        """Set aside a part of the budget of a grant for one that follows from it; return the state
        of the grant, and that part. Raises StanzaError (``item-not-found``).
        """
        if asked.child is None:
            raise errors.malformed("status: child is missing")
        if (asked.budget_usd or 0) < 0 or (asked.budget_tokens or 0) < 0:
            raise errors.malformed("status: a budget must not be negative")
        return await self._storage.write(lambda db: _status(db, asked))


def _status(database: Database, asked: GrantStatus) -> GrantStatus:
    found = grant_rows.state_of(database, asked.digest)
    if found is None:
        raise StanzaError("item-not-found", "This agent has made no such grant.")
    grant, state = found
    if asked.child is None:
        rest = grant_rows.left(database, grant)
    elif state == "active":
        wanted = Budget(usd=asked.budget_usd, tokens=asked.budget_tokens)
        rest = grant_rows.set_aside(database, grant, asked.child, wanted)
    else:
        rest = Budget(usd=Decimal(0), tokens=0)
    return GrantStatus(
        digest=grant.digest,
        child=asked.child,
        state=state,
        expires=datetime.fromtimestamp(grant.expires / 1000, UTC),
        budget_usd=rest.usd,
        budget_tokens=rest.tokens,
    )


def _needs_grant(given: Delegation) -> bool:
    """Return whether only the grant of this service is missing."""
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
