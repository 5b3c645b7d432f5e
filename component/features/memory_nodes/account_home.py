"""Memories in people's accounts: the nodes there, and the consent to use them."""

from collections.abc import Callable
from typing import Final

from component.features.memory_nodes.account_nodes import AccountNodes
from component.features.memory_nodes.account_ports import AccountPorts, Location
from component.features.memory_nodes.agent_nodes import node_of
from component.features.memory_nodes.consents import Consents, SetOwned
from component.features.memory_nodes.privileges import PrivilegedCall, Privileges
from component.features.memory_nodes.rows import AccountConsentStore
from component.kernel.environment import Environment
from component.kernel.options import privileged_domains
from component.kernel.stream import StreamSubsystem
from component.memory.store import Whose
from component.pubsub.client import IQCall, PubSubClient
from xep.disco import InfoQuery
from xep.fluux_agent.memory import NAMESPACE
from xep.jid import JID
from xep.pubsub_owner import PubsubOwner

_SERVER: Final = "server"


class AccountHome:
    """Memories in accounts: in those of people, or in that of an agent in client mode.

    Args:
        environment: the settings, and the database.
        stream: makes requests.

    Attributes:
        nodes: the nodes.
        privileges: what servers permit.
        available: called when a node may be usable that was not before; the owner of this object
            sets it.
    """

    def __init__(self, environment: Environment, stream: StreamSubsystem) -> None:
        settings, ours = environment.settings, stream.addresses
        self._stream = stream
        self.available: Callable[[Whose], None] = lambda _whose: None
        self.privileges = Privileges(privileged_domains(settings))
        privileged = PrivilegedCall(stream.call_optional, NAMESPACE)
        self._consents = Consents(
            AccountConsentStore(environment.storage),
            self.privileges,
            PubSubClient(privileged),
            _owner_requests(privileged),
            ours.address_of,
        )
        is_person = settings.memory.home == "person"

        def locate(whose: Whose) -> Location:
            requester = ours.address_of(whose.agent)
            if is_person:
                return Location(whose.who, NAMESPACE, requester, shares=False)
            return Location(requester, node_of(whose.who), requester, shares=True)

        self.is_consent_possible = is_person and settings.server.mode == "component"
        self.nodes = AccountNodes(
            AccountPorts(
                client=PubSubClient(stream.call_optional),
                set_owned=_owner_requests(stream.call_optional),
                on_behalf=self._consents if self.is_consent_possible else None,
                locate=locate,
                agent_at=ours.agent_at,
                is_connected=stream.is_connected,
                software=self._software,
            )
        )

    def disconnected(self) -> None:
        """The session is over. Never waits."""
        self.privileges.clear()
        self.nodes.disconnected()

    # For the command.

    def is_offered(self, whose: Whose) -> bool:
        """Whether the server of the person permits it now."""
        return self._consents.is_offered(whose)

    async def is_allowed(self, whose: Whose) -> bool:
        """Whether the person has consented. Raises StorageError."""
        return await self._consents.has(whose)

    async def allow(self, whose: Whose) -> None:
        """The person consents. Raises StorageError."""
        await self._consents.give(whose)
        self.available(whose)

    async def stop(self, whose: Whose) -> bool:
        """The person withdraws the consent; False if there was none. Raises StorageError, and
        StanzaError if the server did not do its part.
        """
        withdrawn = await self._consents.withdraw(whose)
        if withdrawn:
            await self.nodes.leave(whose)
        return withdrawn

    async def _software(self, domain: JID) -> str:
        return server_software(await self._stream.get(domain, InfoQuery(), InfoQuery))


def server_software(info: InfoQuery) -> str:
    """The name of the software of a server, as its identity in disco#info says."""
    servers = [each for each in info.identities if each.category == _SERVER]
    return next((each.name or "" for each in servers), "")


def _owner_requests(call: IQCall) -> SetOwned:
    async def set_owned(service: JID, request: PubsubOwner) -> None:
        await call("set", service, request, PubsubOwner)

    return set_owned
