"""Service discovery (XEP-0030): agents, features and skills."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from component.handlers.paging import check_page, page
from component.messages.inbound import THUMBS_DOWN, THUMBS_UP
from component.router.table import Host, IQRoute, Request
from component.skills.registry import View
from xep import caps, data_forms, disco, fluux_agent, pubsub, reactions, result_sets
from xep.binding import encode
from xep.fluux_agent import skills as fluux
from xep.jid import JID
from xep.result_sets import PAGE_ROOM, ResultSet
from xep.stanza_error import StanzaError

_PEP = disco.Identity(category="pubsub", type="pep")
_LEAF = disco.Identity(category="pubsub", type="leaf")
_SERVICE = disco.Identity(category="pubsub", type="service")
_SERVER_INFO = "http://jabber.org/network/serverinfo"
_SKILL_NODE = fluux.NAMESPACE + "/"
"""The prefix of a skill's node in disco#items entries, before the skill's name."""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about the service that discovery shows, besides the features of the table.

    Attributes:
        domain: the address of the component; that of the account for a client.
        name: the name shown to people.
        node: the URI that identifies the software in capabilities (XEP-0115 §4).
        form: values of the XEP-0128 form of ``urn:fluux:agent:0``, by field.
        contact: a URI of the operator (XEP-0157), or empty.
    """

    domain: JID
    name: str
    node: str
    form: Mapping[str, str]
    contact: str = ""


class Nodes(Protocol):
    """Nodes of other handlers. None: the node is not one of them."""

    def info(self, request: Request[disco.InfoQuery]) -> disco.InfoQuery | None:
        """Return the identity and features of the node."""

    def items(self, request: Request[disco.ItemsQuery]) -> disco.ItemsQuery | None:
        """Return the items of the node."""


class PubSubNodes(Protocol):
    """The nodes of the PubSub service: `component.handlers.pubsub_nodes.NodeOverview`."""

    async def names(self, request: Request[disco.ItemsQuery]) -> Sequence[tuple[str, str]]:
        """Return the nodes that the sender may see, sorted, each with its title."""

    async def info(self, request: Request[disco.InfoQuery]) -> disco.InfoQuery:
        """Return the identity and metadata of a node. Raises StanzaError."""

    async def items(self, request: Request[disco.ItemsQuery]) -> disco.ItemsQuery:
        """Return the items of a node. Raises StanzaError."""


class Discovery:
    """Answers disco#info and disco#items at the component's domain and at each agent.

    Args:
        facts: the facts about the service.
        agents: the hosted agents, by localpart, with the name shown to people.
        features: returns the features served at a host.
        view: the skills that a principal sees.
        nodes: answer for other nodes.
        pubsub: the nodes of the PubSub service; None without one.
    """

    def __init__(
        self,
        facts: Facts,
        agents: Mapping[str, str],
        features: Callable[[Host], tuple[str, ...]],
        view: Callable[[JID], View],
        nodes: Sequence[Nodes] = (),
        pubsub: PubSubNodes | None = None,
        room: int = PAGE_ROOM,
    ) -> None:
        self._room = room
        self._facts = facts
        self._agents = agents
        self._features = features
        self._view = view
        self._nodes = nodes
        self._pubsub = pubsub
        self._info: dict[tuple[Host, str | None], disco.InfoQuery] = {}
        self._caps: dict[tuple[Host, str | None], caps.Caps] = {}

    def routes(self) -> tuple[IQRoute, ...]:
        """Return the routes of this handler."""
        return (
            IQRoute("get", disco.InfoQuery, self.info, (disco.INFO,)),
            IQRoute("get", disco.ItemsQuery, self.items, (disco.ITEMS, result_sets.NAMESPACE)),
        )

    def features_changed(self) -> None:
        """Rebuild the answers, because the features have changed."""
        self._info.clear()
        self._caps.clear()

    def caps(self, host: Host, agent: str | None) -> caps.Caps:
        """Return the capabilities that presence from a host carries (XEP-0115 §4)."""
        key = (host, agent)
        found = self._caps.get(key)
        if found is None:  # cached: every presence includes them, and computing them is slow
            answer = self._own_info(host, agent)
            ver = caps.verification_string(answer.identities, answer.features, answer.forms)
            found = self._caps[key] = caps.Caps(hash="sha-1", node=self._facts.node, ver=ver)
        return found

    def info(
        self, request: Request[disco.InfoQuery]
    ) -> disco.InfoQuery | Awaitable[disco.InfoQuery]:
        """Return the identities and features of an address (XEP-0030 §3)."""
        node = request.payload.node
        own = self._own_info(request.host, request.to.local)
        if node is None:
            return own
        if node == fluux.NAMESPACE:
            return self._skills_info()
        if node.startswith(_SKILL_NODE):
            skill = self._view(request.principal).get(node.removeprefix(_SKILL_NODE))
            if skill is not None:
                return _node_info(node, "leaf", skill.title)
        elif node == self._caps_node(request.host, request.to.local):
            return msgspec.structs.replace(own, node=node)
        for nodes in self._nodes:
            found = nodes.info(request)
            if found is not None:
                return found
        if self._pubsub is not None:
            return self._pubsub.info(request)
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
        for nodes in self._nodes:
            found = nodes.items(request)
            if found is not None:
                return found
        if self._pubsub is not None:
            check_page(query.page)
            return self._pubsub.items(request)
        raise StanzaError("item-not-found", "this address has no such node")

    async def _nodes_page(
        self, request: Request[disco.ItemsQuery], nodes: PubSubNodes
    ) -> disco.ItemsQuery:
        """Return the agents at the domain, and the nodes of the address (XEP-0060 §5.2)."""
        address = request.to.bare
        entries = {
            f"#{node}": disco.Item(jid=address, node=node, name=title or None)
            for node, title in await nodes.names(request)
        }
        if request.host == "component":
            domain = self._facts.domain.domain
            for local, name in self._agents.items():
                entries[local] = disco.Item(jid=JID(local, domain), name=name)
        items, which = page(
            sorted(entries), request.payload.page, lambda key: sized(entries[key]), self._room
        )
        return disco.ItemsQuery(items=items, page=which)

    def _agents_page(self, query: disco.ItemsQuery) -> disco.ItemsQuery:
        domain = self._facts.domain.domain
        items, which = page(
            sorted(self._agents),
            query.page,
            lambda name: sized(disco.Item(jid=JID(name, domain), name=self._agents[name])),
            self._room,
        )
        return disco.ItemsQuery(items=items, page=which)

    def _skills_page(self, to: JID, query: disco.ItemsQuery, view: View) -> disco.ItemsQuery:
        def item(name: str) -> tuple[disco.Item, int]:
            skill = view.get(name)
            title = None if skill is None else skill.title
            return sized(disco.Item(jid=to, node=_SKILL_NODE + name, name=title))

        items, which = page(view.names(), query.page, item, self._room)
        return disco.ItemsQuery(node=query.node, items=items, page=which)

    def _own_info(self, host: Host, agent: str | None) -> disco.InfoQuery:
        key = (host, agent)
        found = self._info.get(key)
        if found is None:
            found = self._info[key] = self._make_info(host, agent)
        return found

    def _make_info(self, host: Host, agent: str | None) -> disco.InfoQuery:
        identities: tuple[disco.Identity, ...]
        if host == "component":
            identity = disco.Identity(category="component", type="generic", name=self._facts.name)
            identities = (identity, _SERVICE) if self._pubsub is not None else (identity,)
        else:
            name = self._agents.get(agent or "", self._facts.name)
            identity = disco.Identity(category="client", type="bot", name=name)
            identities = (identity, _PEP) if self._pubsub is not None else (identity,)
        fields = (
            data_forms.form_type_field(fluux_agent.NAMESPACE),
            data_forms.field("agent_name", identity.name),
            *(data_forms.field(var, value) for var, value in sorted(self._facts.form.items())),
        )
        forms = [data_forms.Form(type="result", fields=fields)]
        features = self._features(host)
        if reactions.NAMESPACE in features:
            forms.append(_reactions_form())
        if self._facts.contact:
            forms.append(_contact_form(self._facts.contact))
        return disco.InfoQuery(
            identities=identities,
            features=tuple(disco.Feature(var=var) for var in features),
            forms=tuple(forms),
        )

    def _skills_info(self) -> disco.InfoQuery:
        """Return the identities and features of the node of skills: it has disco#items, and PubSub
        items.
        """
        answer = _node_info(fluux.NAMESPACE, "branch", "Skills")
        if self._pubsub is None:
            return answer
        return msgspec.structs.replace(
            answer,
            identities=(*answer.identities, _LEAF),
            features=(*answer.features, disco.Feature(var=pubsub.NAMESPACE)),
        )

    def _caps_node(self, host: Host, agent: str | None) -> str:
        return f"{self._facts.node}#{self.caps(host, agent).ver}"


def address_asked(request: Request[disco.ItemsQuery]) -> JID:
    """Return the address of this service that the requester can send the next query to: a client's
    full address, because its server answers IQs to the bare one.
    """
    return request.to if request.stanza.to is None else JID.parse_delivered(request.stanza.to)


def sized(item: disco.Item) -> tuple[disco.Item, int]:
    """Return an item, and its size in bytes on the stream."""
    return item, len(encode(item, disco.ITEMS).encode())


def _reactions_form() -> data_forms.Form:
    """Return the form of the reactions that answer a question; one per person (XEP-0444 §2.1)."""
    fields = (
        data_forms.form_type_field(reactions.RESTRICTIONS),
        data_forms.field("max_reactions_per_user", "1"),
        data_forms.Field(var="allowlist", values=(THUMBS_UP, THUMBS_DOWN)),
    )
    return data_forms.Form(type="result", fields=fields)


def _contact_form(address: str) -> data_forms.Form:
    """Return the form with the operator's address (XEP-0157 §3)."""
    fields = (
        data_forms.form_type_field(_SERVER_INFO),
        data_forms.Field(var="support-addresses", type="list-multi", values=(address,)),
    )
    return data_forms.Form(type="result", fields=fields)


def _node_info(node: str, type_: str, name: str) -> disco.InfoQuery:
    return disco.InfoQuery(
        node=node,
        identities=(disco.Identity(category="hierarchy", type=type_, name=name),),
        features=(disco.Feature(var=disco.INFO), disco.Feature(var=disco.ITEMS)),
    )
