"""Service discovery (XEP-0030): agents, features and skills; and queries that every entity answers:
ping, software version, time (XEP-0199, XEP-0092, XEP-0202).

The profile of an agent in a contact list is its name, avatar, vCard and operator. A server stores
them for its accounts. A component has no account, so it answers for its addresses itself: the vCard
by IQ (XEP-0054), and three PubSub nodes as on an account's server: the vCard (XEP-0292), the avatar
and its metadata (XEP-0084).
"""

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timezone
from typing import Any, Final

import msgspec

from component import system
from component.kernel.disco import Disco
from component.kernel.paging import address_asked, check_page, items_page, sized
from component.kernel.profiles import NODES, Profiles
from component.link.router.table import IQHandler, IQRoute, Request
from component.pubsub.config import NodeConfig
from component.pubsub.rows import StoredItem
from component.pubsub.service import ComputedNode, PubSubService
from component.skills.registry import View
from xep import disco, entity_time, ping, pubsub, result_sets, vcard4, vcard_temp, version
from xep.binding import Payload, encode
from xep.fluux_agent import skills as fluux
from xep.jid import JID
from xep.result_sets import PAGE_ROOM, ResultSet
from xep.stanza_error import StanzaError
from xep.vcard_temp import VCard

_LEAF: Final = disco.Identity(category="pubsub", type="leaf")
_SKILL_NODE: Final = fluux.NAMESPACE + "/"
"""The prefix of a skill's node in disco#items entries, before the skill's name."""


class Discovery:
    """Answers disco#info and disco#items at the component's domain and at each agent. `pubsub` is
    the PubSub service; None without one. `room` is the number of bytes that the entries of a page
    may take.
    """

    def __init__(
        self,
        disco: Disco,
        view: Callable[[JID], View],
        pubsub: PubSubService | None = None,
        room: int = PAGE_ROOM,
    ) -> None:
        self._disco = disco
        self._view = view
        self._pubsub = pubsub
        self._room = room

    def routes(self) -> tuple[IQRoute, ...]:
        """Return the routes of this handler."""
        return (
            IQRoute(
                "get", disco.InfoQuery, self.info, (disco.INFO,), for_occupants=self._is_about_agent
            ),
            IQRoute("get", disco.ItemsQuery, self.items, (disco.ITEMS, result_sets.NAMESPACE)),
        )

    def _is_about_agent(self, query: disco.InfoQuery) -> bool:
        """Whether a query is not about a node, but about the agent and its capabilities."""
        return query.node is None or query.node.startswith(f"{self._disco.facts.node}#")

    def info(
        self, request: Request[disco.InfoQuery]
    ) -> disco.InfoQuery | Awaitable[disco.InfoQuery]:
        """Return the identities and features of an address (XEP-0030 §3)."""
        node = request.payload.node
        own = self._disco.info(request.host, request.to.local)
        if node is None:
            return own
        if node == fluux.NAMESPACE:
            return self._skills_info()
        if node.startswith(_SKILL_NODE):
            skill = self._view(request.principal).entry(node.removeprefix(_SKILL_NODE))
            if skill is not None:
                return _node_info(node, "leaf", skill.title)
        elif node == self._disco.caps_node(request.host, request.to.local):
            return msgspec.structs.replace(own, node=node)
        for nodes in self._disco.nodes:
            found = nodes.info(request)
            if found is not None:
                return found
        raise StanzaError("item-not-found", "this address has no such node")

    def items(
        self, request: Request[disco.ItemsQuery]
    ) -> disco.ItemsQuery | Awaitable[disco.ItemsQuery]:
        """List the agents, the PubSub nodes, or the skills at their node (XEP-0030 §4)."""
        query = request.payload
        if query.node is None:
            if self._pubsub is not None:
                check_page(query.page)  # a handler can raise it only before it suspends
                return self._nodes_page(request, self._pubsub)
            if request.host == "agent":
                return disco.ItemsQuery(page=ResultSet(count=0))
            return self._agents_page(query)
        if query.node == fluux.NAMESPACE:
            return self._skills_page(address_asked(request), query, self._view(request.principal))
        for nodes in self._disco.nodes:
            found = nodes.items(request)
            if found is not None:
                return found
        raise StanzaError("item-not-found", "this address has no such node")

    async def _nodes_page(
        self, request: Request[disco.ItemsQuery], service: PubSubService
    ) -> disco.ItemsQuery:
        """Return the agents at the domain, and the nodes of the address (XEP-0060 §5.2)."""
        address = request.to.bare
        visible = await service.visible(service.requester(request.to, request.sender))
        entries = {
            f"#{node}": disco.Item(jid=address, node=node, name=title or None)
            for node, title in visible
        }
        if request.host == "component":
            domain = self._disco.facts.domain.domain
            for local, name in self._disco.agents.items():
                entries[local] = disco.Item(jid=JID(local, domain), name=name)
        return items_page(
            request.payload, sorted(entries), lambda key: sized(entries[key]), self._room
        )

    def _agents_page(self, query: disco.ItemsQuery) -> disco.ItemsQuery:
        domain = self._disco.facts.domain.domain
        agents = self._disco.agents
        return items_page(
            query,
            sorted(agents),
            lambda name: sized(disco.Item(jid=JID(name, domain), name=agents[name])),
            self._room,
        )

    def _skills_page(self, to: JID, query: disco.ItemsQuery, view: View) -> disco.ItemsQuery:
        def item(name: str) -> tuple[disco.Item, int]:
            skill = view.entry(name)
            title = None if skill is None else skill.title
            return sized(disco.Item(jid=to, node=_SKILL_NODE + name, name=title))

        return items_page(query, view.names(), item, self._room)

    def _skills_info(self) -> disco.InfoQuery:
        """Describe the node of skills, which has disco#items and PubSub items."""
        answer = _node_info(fluux.NAMESPACE, "branch", "Skills")
        if self._pubsub is None:
            return answer
        return msgspec.structs.replace(
            answer,
            identities=(*answer.identities, _LEAF),
            features=(*answer.features, disco.Feature(var=pubsub.NAMESPACE)),
        )


def _node_info(node: str, type_: str, name: str) -> disco.InfoQuery:
    return disco.InfoQuery(
        node=node,
        identities=(disco.Identity(category="hierarchy", type=type_, name=name),),
        features=(disco.Feature(var=disco.INFO), disco.Feature(var=disco.ITEMS)),
    )


def _for_occupants(payload: type[Payload], handler: IQHandler[Any], *features: str) -> IQRoute:
    """Return the route of a query that the clients of occupants of a room may make, too."""
    return IQRoute("get", payload, handler, features, for_occupants=lambda _: True)


class CommonQueries:
    """Answers queries that are not about agents. `now` returns the time with its zone; the system's
    clock by default.
    """

    def __init__(
        self,
        software: str,
        release: str,
        now: Callable[[], datetime] = lambda: system.now().astimezone(),
    ) -> None:
        # The operating system is not disclosed (XEP-0092 §5).
        self._version = version.Version(name=software, version=release)
        self._now = now

    def routes(self) -> tuple[IQRoute, ...]:
        """Return the routes of this handler."""
        return (
            _for_occupants(ping.Ping, self.pong, ping.NAMESPACE),
            _for_occupants(version.VersionQuery, self.version, version.NAMESPACE),
            _for_occupants(entity_time.TimeQuery, self.time, entity_time.NAMESPACE),
        )

    def pong(self, _request: Request[ping.Ping]) -> None:
        """Answer a ping with an empty result (XEP-0199 §4)."""

    def version(self, _request: Request[version.VersionQuery]) -> version.Version:
        """Return the name and version of the software."""
        return self._version

    def time(self, _request: Request[entity_time.TimeQuery]) -> entity_time.Time:
        """Return the time and the time zone."""
        now = self._now()
        offset = now.utcoffset()
        return entity_time.Time(tzo=UTC if offset is None else timezone(offset), utc=now)


class ContactProfiles:
    """Answers requests for vCards."""

    def __init__(self, profiles: Profiles) -> None:
        self._profiles = profiles

    def routes(self) -> tuple[IQRoute, ...]:
        """Return the routes of this handler."""
        return (
            _for_occupants(VCard, self.vcard, vcard_temp.NAMESPACE, vcard4.NAMESPACE),
            IQRoute("set", VCard, self.refuse_vcard),
        )

    def vcard(self, request: Request[VCard]) -> VCard:
        """Return the vCard (XEP-0054 §3.3)."""
        return self._profiles[request.to.local].vcard_temp()

    def refuse_vcard(self, _request: Request[VCard]) -> VCard:
        """Refuse to change the vCard of somebody else (XEP-0054 §3.2)."""
        raise StanzaError("forbidden", "only the operator can change this vCard")


class ProfileNode(ComputedNode):
    """A PubSub node for a part of the profile."""

    config = NodeConfig(access_model="open")
    is_compared = True

    def __init__(self, name: str, profiles: Profiles) -> None:
        self.name = name
        self._profiles = profiles
        self._since = system.now()

    def is_at(self, service: JID) -> bool:
        """Return whether the address has this node."""
        return service.local in self._profiles

    async def items(self, service: JID, principal: JID) -> Sequence[StoredItem]:
        """Return the only item."""
        id_, content = self._profiles[service.local].content(self.name)
        return [
            StoredItem(
                id=id_, payload=encode(content), publisher=str(service), published=self._since
            )
        ]


def profile_nodes(profiles: Profiles) -> tuple[ProfileNode, ...]:
    """Return the nodes of the profiles."""
    return tuple(ProfileNode(name, profiles) for name in NODES)
