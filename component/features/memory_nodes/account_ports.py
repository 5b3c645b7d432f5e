"""The objects by which `account_nodes.py` reaches the nodes in accounts."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

import msgspec

from component.features.memory_nodes.consents import Consents, SetOwned
from component.memory.store import Whose
from component.pubsub.client import PubSubClient
from xep.jid import JID


class Location(NamedTuple):
    """The place of a node, and the agent's address that sends requests to it.

    `shares` says that the account is the agent's own, which creates the node for the person.
    """

    service: JID
    node: str
    requester: JID
    shares: bool


class AccountPorts(msgspec.Struct, frozen=True, kw_only=True):
    """The dependencies of `AccountNodes`.

    Attributes:
        client: makes requests as the agent.
        set_owned: makes requests of owners.
        on_behalf: makes requests on behalf of people; None if that is never possible.
        locate: returns the location of a node.
        agent_at: returns the name of the agent at an address.
        is_connected: whether there is a session.
        software: returns the name of the software of a domain, from its identity in disco#info.
            Raises StanzaError.
    """

    client: PubSubClient
    set_owned: SetOwned
    on_behalf: Consents | None
    locate: Callable[[Whose], Location]
    agent_at: Callable[[JID], str]
    is_connected: Callable[[], bool]
    software: Callable[[JID], Awaitable[str]]
