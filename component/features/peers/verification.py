"""Verifies the grants that come with requests: their signatures, and whether the first one holds.

Three identities are compared. The *sender* is authorised, with or without grants. The *first agent*
answers for the person: what it has signed is its word, and is believed as far as the policy says.
The *person* at the beginning is who the grants are for.
"""

from collections.abc import Sequence
from typing import Final

import structlog

from component import system
from component.agent_addresses import canonical_address
from component.config.peers import Peer
from component.features.peers.agent_keys import AgentKeys
from component.features.peers.shares import Shares
from component.grants import GrantError, Presented, read_grant, verify
from component.grants.grant import key_named_by
from component.kernel.kernel import Kernel
from component.skills.skill import Skill
from component.tasks.delegation import MOST_VIA
from component.tasks.request import Request
from xep.fluux_agent import errors
from xep.fluux_agent.delegation import Delegation
from xep.jid import JID
from xep.stanza_error import StanzaError

_log = structlog.get_logger("component.features.peers")

_RETRY_S: Final = 30


class GrantVerifier:
    """Verifies the grants of requests. `peers` are the sections of the settings."""

    def __init__(
        self, kernel: Kernel, keys: AgentKeys, shares: Shares, peers: Sequence[Peer]
    ) -> None:
        self._kernel = kernel
        self._keys = keys
        self._shares = shares
        self._peers = {canonical_address(JID.parse(peer.jid)): peer for peer in peers}

    async def check(self, request: Request, skill: Skill) -> Request:
        """Check the grants of a request; return it with the budget that is left for it, if the
        first agent was asked. Raises StanzaError.
        """
        delegation = request.delegation
        assert delegation is not None, "it has grants"
        try:
            await self._verify(request, delegation)
            if self._asks_back(request, skill):
                return await self._shares.ask(request, skill)
        except GrantError as error:
            raise errors.invalid_grant(error.reason, str(error)) from None
        return request

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
            keys = await self._keys.of(address, request.target, key)
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
