"""The nodes in accounts, at the servers of others (XEP-0163): in that of the person, or in that of
the agent, which shares each node with its person.

The agent uses a node in the account of the person in one of two ways: on behalf of the person, if
the person has consented and the server lets the agent do that (XEP-0356), or else as itself, if the
person has made it a publisher.
"""

import math
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import structlog

from component.config import Settings
from component.features.memory_nodes.agent_nodes import node_of
from component.features.memory_nodes.items import NodeItem
from component.features.memory_nodes.privileges import (
    Consents,
    NodeClient,
    PrivilegedCall,
    Privileges,
)
from component.features.memory_nodes.rows import AccountConsentStore
from component.kernel.check import Check
from component.kernel.environment import Environment
from component.kernel.options import privileged_domains
from component.kernel.stream import StreamSubsystem
from component.memory.store import KnowledgeError, Past, StoreUnavailableError, Watcher
from component.memory_directory.layout import SessionKey
from component.pubsub.client import PubSubClient
from xep import pubsub
from xep.binding import RawXML
from xep.data_forms import Field, Form
from xep.disco import InfoQuery
from xep.fluux_agent.memory import NAMESPACE
from xep.jid import JID
from xep.pubsub import AffiliationName, Item
from xep.pubsub_event import Event, Retract
from xep.pubsub_owner import Affiliation, Affiliations, PubsubOwner
from xep.stanza_error import StanzaError

_IMPOSSIBLE: Final = "is not possible"

_log = structlog.get_logger("component.memory")

_PRIVATE_CONFIG: Final = (("access_model", "whitelist"), ("persist_items", "true"))
"""Configuration that a node must have for publishing. ejabberd 23.01 rejects `max_items` here."""
_NEW_CONFIG: Final = (*_PRIVATE_CONFIG, ("max_items", "max"), ("send_last_published_item", "never"))
"""Configuration of new nodes, which keep all items."""
_OWNER_CONFIG: Final = (*_PRIVATE_CONFIG, ("max_items", "max"))
"""Configuration that a node must have for publishing on behalf of its owner. A publish request to a
missing node creates it with this configuration."""
_REFUSED_FOR_GOOD: Final = frozenset(("not-acceptable", "policy-violation", "bad-request"))
_MOST_RETRACTED: Final = 10_000
"""Deleted items of a person that are known at a time; a server may announce more than there are."""
_NOT_ALLOWED: Final = frozenset(("forbidden", "not-authorized", "not-allowed", "conflict"))


class Location(NamedTuple):
    """The place of a node, and the agent's address that sends requests to it.

    `shares` says that the account is the agent's own, which creates the node for the person.
    """

    service: JID
    node: str
    requester: JID
    shares: bool


class AccountNodes:
    """Implements `component.features.memory_nodes.store.MemoryNodes`, and
    `component.kernel.events.EventListener`.

    The agent subscribes to each node that it lists, so that it is notified of edits. Servers do not
    announce every change (Prosody announces no deletion with notify=false), so the nodes have to be
    listed from time to time.

    Args:
        consents: makes requests on behalf of people; None if that is never possible.
    """

    def __init__(
        self,
        client: NodeClient,
        consents: Consents | None,
        locate: Callable[[SessionKey], Location],
        stream: StreamSubsystem,
    ) -> None:
        self._client = client
        self._consents = consents
        self._locate = locate
        self._stream = stream
        self._watchers: list[Watcher] = []
        self._followed: dict[tuple[JID, str], SessionKey] = {}
        self._services: Counter[JID] = Counter()
        self._prepared: set[SessionKey] = set()
        self._retracted: dict[SessionKey, set[str]] = {}
        self._emptied: set[SessionKey] = set()
        self._checked: set[str] = set()
        self._unsuitable: set[str] = set()

    def is_reachable(self, whose: SessionKey) -> bool:
        """Whether there is a session, and people can correct items on the server."""
        domain = self._locate(whose).service.domain
        return self._stream.is_connected() and domain not in self._unsuitable

    def watch(self, watcher: Watcher) -> None:
        """Call `watcher` when a server notifies of changed items."""
        self._watchers.append(watcher)

    def disconnected(self) -> None:
        """Discard the state of the session. Never waits."""
        self._prepared.clear()

    def is_service(self, address: JID) -> bool:
        """Whether the agent is subscribed to a node of this account, which may send
        notifications.
        """
        return self._services[address.bare] > 0

    def notified(self, subscriber: JID, service: JID, event: Event) -> None:
        """Handle a notification. Never waits."""
        node, keys = changed_items(event)
        whose = self._followed.get((service, node))
        if whose is None or self._stream.addresses.agent_at(subscriber) != whose.agent:
            return
        self._note(whose, event)
        for watcher in self._watchers:
            watcher(whose, keys)

    def _note(self, whose: SessionKey, event: Event) -> None:
        """Note which items were deleted, and which of them are there again."""
        if event.purge is not None or event.delete is not None:
            self._emptied.add(whose)
        retracted = self._retracted.pop(whose, set())
        for each in event.items.items if event.items is not None else ():
            if not isinstance(each, Retract):
                retracted.discard(each.id or "")
            elif len(retracted) < _MOST_RETRACTED:
                retracted.add(each.id)
        if retracted:
            self._retracted[whose] = retracted

    async def items(self, whose: SessionKey, ids: Sequence[str] = ()) -> Sequence[NodeItem]:
        """Return the items of the node; empty if there is no node or item."""
        place = self._locate(whose)
        await self._check_server(place)
        client = await self._client_for(whose, place)
        if not ids:
            await self._follow(whose, place)
        try:
            found = await _items(client, place, ids)
        except StanzaError as error:
            if error.condition == "item-not-found":
                return []
            raise self._unavailable(whose, error) from error
        return [
            NodeItem(each.id, each.payloads[0].text if each.payloads else "")
            for each in found
            if each.id
        ]

    async def past(self, whose: SessionKey) -> Past:
        """Return which items the server has announced as deleted."""
        retracted = dict.fromkeys(self._retracted.get(whose, ()), math.inf)
        return Past(None, retracted, whose in self._emptied)

    async def settled(self, whose: SessionKey, past: Past) -> None:
        """Discard what `past` says about deleted items."""
        if past.is_emptied:
            self._emptied.discard(whose)
        if whose in self._retracted:
            self._retracted[whose] -= past.retracted.keys()
            if not self._retracted[whose]:
                del self._retracted[whose]

    async def publish(
        self, whose: SessionKey, id_: str, payload: RawXML, replaces: NodeItem | None
    ) -> None:
        """Publish an item, if nobody else can read the node."""
        place = self._locate(whose)
        await self._check_server(place)
        if place.shares:
            await self._share(whose, place)
        client = await self._client_for(whose, place)
        options = None
        if not place.shares:
            is_own = client is self._client
            options = _form(pubsub.PUBLISH_OPTIONS, _PRIVATE_CONFIG if is_own else _OWNER_CONFIG)
        try:
            item = Item(id=id_, payloads=(payload,))
            await client.publish(place.service, place.node, item, place.requester, options=options)
        except StanzaError as error:
            if error.condition in _REFUSED_FOR_GOOD:
                raise KnowledgeError(f"{place.service} does not accept {id_}: {error}") from error
            raise self._unavailable(whose, error) from error

    async def retract(self, whose: SessionKey, items: Sequence[NodeItem]) -> None:
        """Delete items."""
        place = self._locate(whose)
        client = await self._client_for(whose, place)
        for item in items:
            try:
                await client.retract(place.service, place.node, (item.id,), place.requester)
            except StanzaError as error:
                if error.condition != "item-not-found":
                    raise self._unavailable(whose, error) from error

    async def leave(self, whose: SessionKey) -> None:
        """Stop using the node on behalf of its owner: give up the affiliation with it and the
        subscription. Raises StanzaError.
        """
        place, consents = self._locate(whose), self._consents
        self._prepared.discard(whose)
        self._forget(place)
        with suppress(StanzaError):  # there may be no subscription
            await self._client.unsubscribe(place.service, place.node, place.requester)
        if consents is not None and consents.may_own(whose):
            await consents.client.set_owned(
                place.service, _affiliated(place, place.requester, "none")
            )

    async def _client_for(self, whose: SessionKey, place: Location) -> NodeClient:
        """Return the client for requests to the node: as the agent, or on behalf of the person."""
        consents = self._consents
        if consents is None or place.shares or not await consents.allows(whose):
            return self._client
        if whose not in self._prepared:
            await self._prepare(consents, whose, place)
            self._prepared.add(whose)
        return consents.client

    async def _prepare(self, consents: Consents, whose: SessionKey, place: Location) -> None:
        """Create the person's node if needed, and make the agent a member, which may subscribe.

        Prosody 0.12.3 reports all errors of the account as internal-server-error, so an existing
        node cannot be distinguished from one that cannot be created; the next request shows it.
        """
        with suppress(StanzaError):
            form = _form(pubsub.NODE_CONFIG, _NEW_CONFIG)
            await consents.client.create(place.service, place.node, place.requester, form)
        if consents.may_own(whose):
            try:
                request = _affiliated(place, place.requester, "member")
                await consents.client.set_owned(place.service, request)
            except StanzaError as error:
                _log.warning(
                    "edits of memories are noticed late: cannot become a member of the node",
                    principal=str(whose.who),
                    reason=str(error),
                )

    async def _follow(self, whose: SessionKey, place: Location) -> None:
        """Subscribe to the node before it is listed. Without a subscription, edits are detected
        when everything is compared.
        """
        try:
            await self._client.subscribe(place.service, place.node, place.requester)
        except StanzaError as error:
            _log.debug("no subscription to memories", principal=str(whose.who), reason=str(error))
            self._forget(place)
            return
        if (place.service, place.node) not in self._followed:
            self._followed[place.service, place.node] = whose
            self._services[place.service] += 1

    def _forget(self, place: Location) -> None:
        if self._followed.pop((place.service, place.node), None) is not None:
            self._services[place.service] -= 1

    async def _check_server(self, place: Location) -> None:
        """Raise StoreUnavailableError if people could not correct what the agent publishes.

        ejabberd (23.01, measured) forbids the owners of a node to overwrite items of other
        publishers.
        """
        domain = place.service.domain
        if domain in self._checked:
            return
        try:
            info = await self._stream.get(JID(None, domain), InfoQuery(), InfoQuery)
        except StanzaError as error:
            raise StoreUnavailableError(f"{domain} does not say what it is: {error}") from error
        software = server_software(info)
        if not is_suitable(software):
            self._unsuitable.add(domain)
            raise StoreUnavailableError(
                f"{domain} runs {software}, where people cannot correct what an agent has published"
                " in an account. Memories of these accounts stay in the files"
                " (docs/how-to/memory-nodes.md)."
            )
        self._checked.add(domain)

    async def _share(self, whose: SessionKey, place: Location) -> None:
        if whose in self._prepared:
            return
        try:
            await self._client.create(
                place.service, place.node, place.requester, _form(pubsub.NODE_CONFIG, _NEW_CONFIG)
            )
        except StanzaError as error:
            if error.condition != "conflict":
                raise self._unavailable(whose, error) from error
        try:
            await self._client.set_owned(place.service, _affiliated(place, whose.who, "owner"))
        except StanzaError as error:
            raise self._unavailable(whose, error) from error
        self._prepared.add(whose)

    def _unavailable(self, whose: SessionKey, error: StanzaError) -> StoreUnavailableError:
        place = self._locate(whose)
        self._prepared.discard(whose)  # the node may be gone
        if error.condition in _NOT_ALLOWED and not place.shares:
            return StoreUnavailableError(
                f"{whose.who} has not allowed {place.requester} to publish at {NAMESPACE}, or the"
                " node is not a whitelist with room for all items (docs/how-to/memory-nodes.md):"
                f" {error}"
            )
        return StoreUnavailableError(f"{place.service} refuses: {error}")


def _form(form_type: str, options: Sequence[tuple[str, str]]) -> Form:
    fields = [Field(var="FORM_TYPE", type="hidden", values=(form_type,))]
    fields += [Field(var=f"pubsub#{name}", values=(value,)) for name, value in options]
    return Form(type="submit", fields=tuple(fields))


def _affiliated(place: Location, who: JID, affiliation: AffiliationName) -> PubsubOwner:
    made = Affiliation(jid=who, affiliation=affiliation)
    return PubsubOwner(affiliations=Affiliations(node=place.node, affiliations=(made,)))


async def _items(client: PubSubClient, place: Location, ids: Sequence[str]) -> list[Item]:
    service, node, requester, _ = place
    if ids:
        return list(await client.items(service, node, requester, ids=ids))
    found: list[Item] = []
    async for page in client.pages(service, node, requester):
        if not page.complete:
            raise StoreUnavailableError(
                f"{service} returns the items of {node} in no stanza that is small enough to be"
                " received."
            )
        found += page.items
    return found


def is_suitable(software: str) -> bool:
    """Whether people can correct the items that an agent publishes in their account."""
    return "ejabberd" not in software.casefold()


def changed_items(event: Event) -> tuple[str, frozenset[str] | None]:
    """Return the node of a notification, and the ids of its changed items; None if any item may
    have changed.
    """
    if event.items is not None:
        ids = frozenset(each.id for each in event.items.items if each.id)
        return event.items.node, ids if len(ids) == len(event.items.items) else None
    for part in (event.purge, event.delete):
        if part is not None:
            return part.node, None
    return "", frozenset()


class AccountMemories:
    """Memories in accounts: in those of people, or in that of an agent in client mode.

    Attributes:
        is_consent_possible: whether people can let the agent act on their behalf.
    """

    def __init__(self, environment: Environment, stream: StreamSubsystem) -> None:
        settings, ours = environment.settings, stream.addresses
        self._listeners: list[Callable[[SessionKey], None]] = []
        self.privileges = Privileges(privileged_domains(settings))
        privileged = PrivilegedCall(stream.call_optional, NAMESPACE)
        self._consents = Consents(
            AccountConsentStore(environment.storage),
            self.privileges,
            NodeClient(privileged),
            ours.address_of,
        )
        is_person = settings.memory.home == "person"

        def locate(whose: SessionKey) -> Location:
            requester = ours.address_of(whose.agent)
            if is_person:
                return Location(whose.who, NAMESPACE, requester, shares=False)
            return Location(requester, node_of(whose.who), requester, shares=True)

        self.is_consent_possible = is_person and settings.server.mode == "component"
        consents = self._consents if self.is_consent_possible else None
        client = NodeClient(stream.call_optional)
        self.nodes = AccountNodes(client, consents, locate, stream)

    def disconnected(self) -> None:
        """Discard the state of the session. Never waits."""
        self.privileges.clear()
        self.nodes.disconnected()

    def listen(self, listener: Callable[[SessionKey], None]) -> None:
        """Call `listener` when a person has consented. It must not wait."""
        self._listeners.append(listener)

    # For the command.

    def is_offered(self, whose: SessionKey) -> bool:
        """Whether the server of the person permits it now."""
        return self._consents.is_offered(whose)

    async def is_allowed(self, whose: SessionKey) -> bool:
        """Whether the person has consented. Raises StorageError."""
        return await self._consents.has(whose)

    async def allow(self, whose: SessionKey) -> None:
        """The person consents. Raises StorageError."""
        await self._consents.give(whose)
        for listener in self._listeners:
            listener(whose)

    async def stop(self, whose: SessionKey) -> bool:
        """The person withdraws the consent; False if there was none. Raises StorageError, and
        StanzaError if the server did not do its part.
        """
        withdrawn = await self._consents.withdraw(whose)
        if withdrawn:
            await self.nodes.leave(whose)
        return withdrawn


def server_software(info: InfoQuery) -> str:
    """Return the name of the software of a server, from its identity in disco#info."""
    servers = [each for each in info.identities if each.category == "server"]
    return next((each.name or "" for each in servers), "")


async def check_homes(
    settings: Settings, software: Callable[[JID], Awaitable[str]], privileges: Privileges
) -> Check | None:
    """Check which homes of memories are possible on this server, and why others are not. Returns
    None if memories are only in files.

    Args:
        software: returns the name of the software of a domain. Raises StanzaError.
        privileges: the privileges that servers have granted on this connection.
    """
    if settings.memory.store == "files":
        return None
    lines: list[str] = []
    works = False
    if settings.server.mode == "client":
        account = JID.parse(settings.server.address)
        name, reason = await _checked_software(account.domain, software)
        works = not reason
        lines.append(f"agent: {reason or f'in the account {account}'}")
    else:
        lines.append("agent: at the addresses of the agents, on every server")
        works = settings.memory.home == "agent"
    for domain in sorted(privileged_domains(settings)) if settings.server.mode != "client" else ():
        name, reason = await _checked_software(domain, software)
        lines.append(f"person, as a publisher: {reason or f'in the accounts of {domain} ({name})'}")
        granted = privileges.may_use_nodes(JID(None, domain))
        lines.append(f"person, with consent: {reason or _granted(domain, granted)}")
        works = works or not reason
    used = f"home = {settings.memory.home} is used"
    if not works:
        used = f"home = {settings.memory.home} {_IMPOSSIBLE}: memories stay in the files"
    return Check("memory homes", "ok" if works else "warning", "\n".join((used, *lines)))


def _granted(domain: str, granted: bool) -> str:
    if granted:
        return f"{domain} lets the agent act on behalf of people"
    return (
        f"{_IMPOSSIBLE}, because {domain} does not let the agent act on behalf of people (XEP-0356;"
        " mod_privilege of Prosody, see docs/how-to/memory-nodes.md)"
    )


async def _checked_software(
    domain: str, software: Callable[[JID], Awaitable[str]]
) -> tuple[str, str]:
    """Return the name of the software of a domain, and why accounts there cannot be homes."""
    try:
        name = await software(JID(None, domain))
    except StanzaError as error:
        return "", f"{_IMPOSSIBLE}, because {domain} does not say what it is: {error}"
    if not is_suitable(name):
        return name, (
            f"{_IMPOSSIBLE} at {domain}, because people cannot correct there what an agent has"
            f" published ({name}, which has no IQ privileges either)"
        )
    return name or "unknown software", ""
