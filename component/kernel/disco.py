"""What service discovery (XEP-0030) and capabilities (XEP-0115) say about our addresses."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol

import msgspec

from component.link.messages.inbound import THUMBS_DOWN, THUMBS_UP
from component.link.router.table import Host, Request
from xep import caps, data_forms, disco, fluux_agent, reactions
from xep.jid import JID

_PEP: Final = disco.Identity(category="pubsub", type="pep")
_SERVICE: Final = disco.Identity(category="pubsub", type="service")
_SERVER_INFO: Final = "http://jabber.org/network/serverinfo"


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about the service that discovery shows, besides the features of the table.

    Attributes:
        domain: the address of the component; that of the account for a client.
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
    """Nodes that service discovery describes. None: the node is not one of them."""

    def info(
        self, request: Request[disco.InfoQuery]
    ) -> disco.InfoQuery | Awaitable[disco.InfoQuery] | None:
        """Return the identity and features of the node."""

    def items(
        self, request: Request[disco.ItemsQuery]
    ) -> disco.ItemsQuery | Awaitable[disco.ItemsQuery] | None:
        """Return the items of the node."""


class Disco:
    """Describes the component's domain and the agents.

    Args:
        agents: the hosted agents, by localpart, with the name shown to people.
        features: returns the features served at a host.
        has_pubsub: whether the addresses have PubSub nodes of their own; those of an account are
            its server's (XEP-0163).

    Attributes:
        nodes: describe other nodes.
    """

    def __init__(
        self,
        facts: Facts,
        agents: Mapping[str, str],
        features: Callable[[Host], tuple[str, ...]],
        *,
        has_pubsub: bool,
    ) -> None:
        self.facts = facts
        self.agents = agents
        self.has_pubsub = has_pubsub
        self.nodes: list[Nodes] = []
        self._features = features
        self._info: dict[tuple[Host, str | None], disco.InfoQuery] = {}
        self._caps: dict[tuple[Host, str | None], caps.Caps] = {}

    def changed(self) -> None:
        """Rebuild the answers, because the features have changed."""
        self._info.clear()
        self._caps.clear()

    def caps(self, host: Host, agent: str | None) -> caps.Caps:
        """Return the capabilities that presence from a host carries (XEP-0115 §4)."""
        key = (host, agent)
        found = self._caps.get(key)
        if found is None:  # cached: every presence includes them, and computing them is slow
            answer = self.info(host, agent)
            ver = caps.verification_string(answer.identities, answer.features, answer.forms)
            found = self._caps[key] = caps.Caps(hash="sha-1", node=self.facts.node, ver=ver)
        return found

    def caps_node(self, host: Host, agent: str | None) -> str:
        """Return the node that has the features with these capabilities (XEP-0115 §6.2)."""
        return f"{self.facts.node}#{self.caps(host, agent).ver}"

    def info(self, host: Host, agent: str | None) -> disco.InfoQuery:
        """Return the identities and features of an address (XEP-0030 §3)."""
        key = (host, agent)
        found = self._info.get(key)
        if found is None:
            found = self._info[key] = self._make_info(host, agent)
        return found

    def _make_info(self, host: Host, agent: str | None) -> disco.InfoQuery:
        identities: tuple[disco.Identity, ...]
        if host == "component":
            identity = disco.Identity(category="component", type="generic", name=self.facts.name)
            identities = (identity, _SERVICE) if self.has_pubsub else (identity,)
        else:
            name = self.agents.get(agent or "", self.facts.name)
            identity = disco.Identity(category="client", type="bot", name=name)
            identities = (identity, _PEP) if self.has_pubsub else (identity,)
        fields = (
            data_forms.form_type_field(fluux_agent.NAMESPACE),
            data_forms.field("agent_name", identity.name),
            *(data_forms.field(var, value) for var, value in sorted(self.facts.form.items())),
        )
        forms = [data_forms.Form(type="result", fields=fields)]
        features = self._features(host)
        if reactions.NAMESPACE in features:
            forms.append(_reactions_form())
        if self.facts.contact:
            forms.append(_contact_form(self.facts.contact))
        return disco.InfoQuery(
            identities=identities,
            features=tuple(disco.Feature(var=var) for var in features),
            forms=tuple(forms),
        )


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
