"""The addresses of this service, and what each of them is.

The router and the handlers do not know whether the agent is attached as a component or as a client:
they ask here. A component has a domain with all its localparts, a client has one account.
"""

from collections.abc import Set as AbstractSet
from typing import Final, TypeAlias

from component.link.router.table import Host
from xep.jid import JID, JIDError

RESOURCE: Final = "agent"
"""The resource whose presence agents send: clients such as Gajim show a contact as offline, and
offer none of its commands, unless a resource of it is online.
"""
IN_ROOMS: Final = "rooms"
"""The resource with which agents are in rooms. It is always the same: a room sends everything to
each resource of an occupant.
"""
_RESOURCES: Final = frozenset((RESOURCE, IN_ROOMS))


def online(address: JID) -> JID:
    """Return the full address that is online at a bare address of a component."""
    return JID(address.local, address.domain, RESOURCE)


class ComponentAddresses:
    """The addresses of a component (XEP-0114): its domain, and a localpart for each agent.

    Args:
        domain: the component's domain.
        agents: localparts of the agents, which are their names.
        default_agent: the agent that speaks at the domain itself.
    """

    def __init__(
        self, domain: JID, agents: AbstractSet[str] = frozenset(), default_agent: str = "assistant"
    ) -> None:
        self._domain = domain
        self._agents = agents
        self._default_agent = default_agent

    @property
    def default(self) -> JID:
        """The domain: it answers stanzas without a ``to``, and sends what no agent does."""
        return self._domain

    def all(self) -> tuple[JID, ...]:
        """Return the bare addresses: the domain, and that of each agent."""
        return self._domain, *map(self.address_of, sorted(self._agents))

    def find(self, text: str | None, *, iq: bool) -> tuple[JID, Host | None]:
        """Return the address in the ``to`` of a stanza, and what it is; None if nothing here has
        it. ``iq`` says whether the stanza is an IQ. Never raises.

        A message is handled in the same way for each resource (RFC 6121 §8.5.3.2.1): the address
        keeps it, and the answer is sent from there. An IQ to one that is online is one to the bare
        address; to any other one it is refused (§8.5.3.2.3).
        """
        if text is None:
            return self._domain, "component"
        try:
            to = JID.parse(text)
        except JIDError:
            return self._domain, None
        if to.domain != self._domain.domain:
            return to, None
        if iq and to.resource is not None:
            if to.resource not in _RESOURCES:
                return to, None
            to = to.bare
        if to.local is None:
            return to, "component"
        return to, "agent" if to.local in self._agents else None

    def is_own(self, address: JID) -> bool:
        """Return whether it is an address of the domain. A stanza from one can only be our own:
        servers loop back stanzas.
        """
        return address.domain == self._domain.domain

    def agent_at(self, address: JID) -> str:
        """Return the name of the agent that speaks at an address; the default one at the domain."""
        return address.local or self._default_agent

    def address_of(self, agent: str) -> JID:
        """Return the bare address at which an agent speaks."""
        return JID(agent, self._domain.domain)

    def agent_address(self, address: JID) -> JID:
        """Return the bare address of the agent that speaks at an address."""
        return JID(address.local or self._default_agent, self._domain.domain)


class AccountAddresses:
    """The address of a client: one account with one agent.

    IQs reach the client's full address, because its server answers those to the bare one; messages
    reach either (RFC 6121 §8.5). Handlers see only the bare address, which stays the same when the
    server gives the client another resource.

    Args:
        account: the bare address.
        agent: the name of the agent.
    """

    def __init__(self, account: JID, agent: str = "assistant") -> None:
        self._account = account.bare
        self._agent = agent

    @property
    def default(self) -> JID:
        """The account. The server adds the resource to outgoing stanzas (RFC 6120 §8.1.2.1)."""
        return self._account

    def all(self) -> tuple[JID, ...]:
        """Return the account."""
        return (self._account,)

    def find(self, text: str | None, *, iq: bool) -> tuple[JID, Host | None]:
        """Return the account, if the text is its bare address or one of its resources."""
        if text is None:
            return self._account, "agent"
        try:
            to = JID.parse_delivered(text)
        except JIDError:
            return self._account, None
        return (self._account, "agent") if to.bare == self._account else (to, None)

    def is_own(self, address: JID) -> bool:
        """Return whether it is the account, or another client of the account."""
        return address.bare == self._account

    def agent_at(self, address: JID) -> str:
        """Return the only agent."""
        return self._agent

    def address_of(self, agent: str) -> JID:
        """Return the account."""
        return self._account

    def agent_address(self, address: JID) -> JID:
        """Return the account."""
        return self._account


Addresses: TypeAlias = ComponentAddresses | AccountAddresses
"""The addresses of this service."""
