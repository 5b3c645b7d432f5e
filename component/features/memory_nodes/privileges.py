"""Requests to accounts on behalf of their owners, which a server can permit (XEP-0356).

A server permits them for a namespace and all of its accounts. The agent makes fewer: only requests
about the memory node of people who have consented.
"""

from collections.abc import Callable, Collection
from typing import Final, Literal, TypeVar

import structlog

from component import system
from component.features.memory_nodes.rows import AccountConsentStore
from component.link.router.table import Request, StanzaRoute
from component.memory_directory.layout import SessionKey
from component.pubsub.client import IQCall, PubSubClient
from xep import pubsub, pubsub_errors, pubsub_owner
from xep.binding import ContentError, Payload, keep
from xep.forwarding import ForwardedIQ, as_received
from xep.jid import JID, JIDError
from xep.privilege import IQTypes, Privilege, PrivilegedIQ
from xep.pubsub_owner import PubsubOwner
from xep.result_sets import ResultSet
from xep.stanza_error import StanzaError

P = TypeVar("P", bound=Payload)

_BOTH: Final[IQTypes] = frozenset(("get", "set"))
_ID_BYTES: Final = 9
_REFINEMENTS: Final = (pubsub.Configure, pubsub.PublishOptions, ResultSet)
"""Children that say more about what another child requests."""

_log = structlog.get_logger("component.memory")


class Privileges:
    """Handles the messages by which servers grant privileges, and stores these for the session.

    Args:
        servers: the domains whose grants count, each for its own accounts.
    """

    def __init__(self, servers: Collection[str]) -> None:
        self._listeners: list[Callable[[], None]] = []
        self._servers = frozenset(servers)
        self._granted: dict[str, dict[str, IQTypes]] = {}

    def is_server(self, sender: JID) -> bool:
        """Whether grants by this address count: it must be one of the configured domains."""
        return sender.local is None and sender.resource is None and sender.domain in self._servers

    def routes(self) -> tuple[StanzaRoute, ...]:
        """The routes of this handler."""
        return (
            StanzaRoute(
                "message",
                frozenset(("normal",)),
                self._received,
                hosts=frozenset(("component",)),
                payload=Privilege,
                admits=self.is_server,
            ),
        )

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` after a server has granted privileges. It must not wait."""
        self._listeners.append(listener)

    def _received(self, request: Request[None]) -> None:
        try:
            privilege = request.stanza.require(Privilege)
        except ContentError as error:
            _log.warning("ignored bad privileges", sender=str(request.sender), reason=str(error))
            return
        self.granted(request.sender, privilege)

    def granted(self, server: JID, privilege: Privilege) -> None:
        """Store the privileges that a server grants, in place of its earlier ones. Never waits."""
        if not self.is_server(server):
            _log.warning(
                "ignored privileges that are not granted by the server", sender=str(server)
            )
            return
        found = privilege.iq_namespaces()
        self._granted[server.domain] = found
        _log.info(
            "the server grants privileges",
            server=server.domain,
            namespaces=", ".join(sorted(found)) or "none",
        )
        for listener in self._listeners:
            listener()

    def clear(self) -> None:
        """Forget all privileges at the end of a session; servers grant them again in the
        next one.
        """
        self._granted.clear()

    def may_use_nodes(self, account: JID) -> bool:
        """Whether nodes of the account can be read and written on behalf of its owner."""
        return self._types(account, pubsub.NAMESPACE) == _BOTH

    def may_own_nodes(self, account: JID) -> bool:
        """Whether affiliations with nodes of the account can be changed on behalf of its owner."""
        return "set" in self._types(account, pubsub_owner.NAMESPACE)

    def _types(self, account: JID, namespace: str) -> IQTypes:
        return self._granted.get(account.domain, {}).get(namespace, frozenset())


class PrivilegedCall:
    """Makes IQs on behalf of the account that they are sent to; implements `IQCall`.

    Args:
        call: makes ordinary IQs.
        node: the only node that a request may be about.
    """

    def __init__(self, call: IQCall, node: str) -> None:
        self._call = call
        self._node = node

    async def __call__(
        self,
        type_: Literal["get", "set"],
        to: JID,
        payload: Payload,
        expected: type[P],
        *,
        from_: JID | None = None,
    ) -> P | None:
        """Send an IQ and return the payload of its result; None if it has none.

        Raises:
            StanzaError: the error of the account or of its server, or ``undefined-condition`` if
                what comes back is not the account's answer to this request.
            ValueError: the request is about something other than the node.
        """
        if _nodes_of(payload) != {self._node}:
            raise ValueError(f"a privileged request must be about {self._node} only")
        account = to.bare
        iq = ForwardedIQ(
            type=type_,
            id=system.token_urlsafe(_ID_BYTES),
            to=str(account),
            payloads=(keep(payload),),
        )
        answer = await self._call(type_, account, PrivilegedIQ(iq=iq), Privilege, from_=from_)
        inner = None if answer is None or answer.forwarded is None else answer.forwarded.iq
        if inner is None or not _is_answer(inner, iq.id, account):
            raise StanzaError(
                "undefined-condition", f"the server of {account} forwarded something else"
            )
        received = as_received(inner)
        if inner.type == "error":
            raise received.error(pubsub_errors.CONDITIONS)
        if not received.payload_names:
            return None
        try:
            return received.require(expected)
        except ContentError as error:
            raise StanzaError(
                "undefined-condition", f"{account} answered something else: {error}"
            ) from error


def _is_answer(inner: ForwardedIQ, id_: str, account: JID) -> bool:
    if inner.type not in ("result", "error") or inner.id != id_:
        return False
    return all(_is(address, account) for address in (inner.from_, inner.to))


def _is(address: str | None, account: JID) -> bool:
    """An account may leave its own address out (RFC 6120 §8.1.2.1)."""
    if address is None:
        return True
    try:
        return JID.parse_delivered(address) == account
    except JIDError:
        return False


def _nodes_of(payload: Payload) -> set[str]:
    if not isinstance(payload, pubsub.Pubsub | pubsub_owner.PubsubOwner):
        return {""}
    found = set()
    for field in payload.__struct_fields__:
        child = getattr(payload, field)
        node = getattr(child, "node", "")
        if child is not None and (node or not isinstance(child, _REFINEMENTS)):
            found.add(node)
    return found


class NodeClient(PubSubClient):
    """Makes requests of publishers and of owners of nodes."""

    async def set_owned(self, service: JID, request: PubsubOwner) -> None:
        """Send a request of the owner of a node. Raises StanzaError."""
        await self._call("set", service, request, PubsubOwner)


class Consents:
    """The consents of people, and the client for requests on their behalf.

    `address_of` returns the bare address of an agent.
    """

    def __init__(
        self,
        store: AccountConsentStore,
        privileges: Privileges,
        client: NodeClient,
        address_of: Callable[[str], JID],
    ) -> None:
        self.client = client
        self._store = store
        self._privileges = privileges
        self._address_of = address_of

    async def allows(self, whose: SessionKey) -> bool:
        """Whether the person has consented and the server permits it now. Raises StorageError."""
        return self.is_offered(whose) and await self.has(whose)

    def may_own(self, whose: SessionKey) -> bool:
        """Whether the server permits to change affiliations."""
        return self._privileges.may_own_nodes(whose.who)

    def is_offered(self, whose: SessionKey) -> bool:
        """Whether the server of the person permits it now."""
        return self._privileges.may_use_nodes(whose.who)

    async def has(self, whose: SessionKey) -> bool:
        """Whether the person has consented. Raises StorageError."""
        return await self._store.has(self._address_of(whose.agent), whose.who)

    async def give(self, whose: SessionKey) -> None:
        """The person consents. Raises StorageError."""
        await self._store.put(self._address_of(whose.agent), whose.who)

    async def withdraw(self, whose: SessionKey) -> bool:
        """The person withdraws the consent; False if there was none. Raises StorageError."""
        return await self._store.remove(self._address_of(whose.agent), whose.who)
