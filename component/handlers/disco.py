"""Service discovery (XEP-0030): who is here, what is served, which skills there are."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from component.handlers.paging import page
from component.router.table import Host, IQRoute, Request
from component.skills.registry import View
from xep import caps, data_forms, disco, fluux_agent, result_sets
from xep.binding import encode
from xep.fluux_agent import skills as fluux
from xep.jid import JID
from xep.stanza_error import StanzaError

_SKILL_NODE = fluux.NAMESPACE + "/"
"""What stands before a skill's name in the node that its disco#items entry names."""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What discovery says of the service, beside the features that the table announces.

    Attributes:
        domain: the component's address.
        name: the name shown to people.
        node: the URI that identifies the software in capabilities (XEP-0115 §4).
        form: values of the XEP-0128 form of ``urn:fluux:agent:0``, by field.
    """

    domain: JID
    name: str
    node: str
    form: Mapping[str, str]


class Nodes(Protocol):
    """Nodes that belong to another face. None: the node is none of them."""

    def info(self, request: Request[disco.InfoQuery]) -> disco.InfoQuery | None:
        """What the node is."""

    def items(self, request: Request[disco.ItemsQuery]) -> disco.ItemsQuery | None:
        """What belongs to the node."""


class Discovery:
    """Answers disco#info and disco#items at the component's domain and at each agent.

    Args:
        facts: what to say.
        agents: the agents hosted, by localpart, with the name shown to people.
        features: the features served at a host.
        view: the skills that a principal sees.
        nodes: who answers for other nodes.
    """

    def __init__(
        self,
        facts: Facts,
        agents: Mapping[str, str],
        features: Callable[[Host], tuple[str, ...]],
        view: Callable[[JID], View],
        nodes: Sequence[Nodes] = (),
    ) -> None:
        self._facts = facts
        self._agents = agents
        self._features = features
        self._view = view
        self._nodes = nodes
        self._info: dict[tuple[Host, str | None], disco.InfoQuery] = {}

    def routes(self) -> tuple[IQRoute, ...]:
        """The routes of this handler."""
        return (
            IQRoute("get", disco.InfoQuery, self.info, (disco.INFO,)),
            IQRoute("get", disco.ItemsQuery, self.items, (disco.ITEMS, result_sets.NAMESPACE)),
        )

    def caps(self, host: Host, agent: str | None) -> caps.Caps:
        """The capabilities that presence from a host carries (XEP-0115 §4)."""
        answer = self._own_info(host, agent)
        ver = caps.verification_string(answer.identities, answer.features, answer.forms)
        return caps.Caps(hash="sha-1", node=self._facts.node, ver=ver)

    def info(self, request: Request[disco.InfoQuery]) -> disco.InfoQuery:
        """Say what this address is and serves (XEP-0030 §3)."""
        node = request.payload.node
        own = self._own_info(request.host, request.to.local)
        if node is None:
            return own
        if node == fluux.NAMESPACE:
            return _node_info(node, "branch", "Skills")
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
        raise StanzaError("item-not-found", "there is no such node here")

    def items(self, request: Request[disco.ItemsQuery]) -> disco.ItemsQuery:
        """List the agents, or the skills at their node, a page at a time (XEP-0030 §4)."""
        query = request.payload
        if query.node is None:
            return self._agents_page(request.host, query)
        if query.node == fluux.NAMESPACE:
            return self._skills_page(request.to.bare, query, self._view(request.principal))
        for nodes in self._nodes:
            found = nodes.items(request)
            if found is not None:
                return found
        raise StanzaError("item-not-found", "there is no such node here")

    def _agents_page(self, host: Host, query: disco.ItemsQuery) -> disco.ItemsQuery:
        names = sorted(self._agents) if host == "component" else []
        domain = self._facts.domain.domain
        items, which = page(
            names,
            query.page,
            lambda name: sized(disco.Item(jid=JID(name, domain), name=self._agents[name])),
        )
        return disco.ItemsQuery(items=items, page=which)

    @staticmethod
    def _skills_page(to: JID, query: disco.ItemsQuery, view: View) -> disco.ItemsQuery:
        def item(name: str) -> tuple[disco.Item, int]:
            skill = view.get(name)
            title = None if skill is None else skill.title
            return sized(disco.Item(jid=to, node=_SKILL_NODE + name, name=title))

        items, which = page(view.names(), query.page, item)
        return disco.ItemsQuery(node=query.node, items=items, page=which)

    def _own_info(self, host: Host, agent: str | None) -> disco.InfoQuery:
        key = (host, agent)
        found = self._info.get(key)
        if found is None:
            found = self._info[key] = self._make_info(host, agent)
        return found

    def _make_info(self, host: Host, agent: str | None) -> disco.InfoQuery:
        if host == "component":
            identity = disco.Identity(category="component", type="generic", name=self._facts.name)
        else:
            name = self._agents.get(agent or "", self._facts.name)
            identity = disco.Identity(category="client", type="bot", name=name)
        fields = (
            data_forms.form_type_field(fluux_agent.NAMESPACE),
            data_forms.field("agent_name", identity.name),
            *(data_forms.field(var, value) for var, value in sorted(self._facts.form.items())),
        )
        return disco.InfoQuery(
            identities=(identity,),
            features=tuple(disco.Feature(var=var) for var in self._features(host)),
            forms=(data_forms.Form(type="result", fields=fields),),
        )

    def _caps_node(self, host: Host, agent: str | None) -> str:
        return f"{self._facts.node}#{self.caps(host, agent).ver}"


def sized(item: disco.Item) -> tuple[disco.Item, int]:
    """An item, and its bytes on the stream."""
    return item, len(encode(item, disco.ITEMS).encode())


def _node_info(node: str, type_: str, name: str) -> disco.InfoQuery:
    return disco.InfoQuery(
        node=node,
        identities=(disco.Identity(category="hierarchy", type=type_, name=name),),
        features=(disco.Feature(var=disco.INFO), disco.Feature(var=disco.ITEMS)),
    )
