"""PubSub nodes in accounts (XEP-0163), as those of Prosody 0.12 (`mod_pep`, `util.pubsub`).

Nodes are whitelists: their owner, and who is a publisher or a member, may read them. What is
published is announced to the subscribers once; a retraction only if the publisher asks for that.
"""

from typing import Final

from demo_server.router import Router
from tests.kit.xmpp import Xmpp, parse
from xep.binding import Payload, RawXML
from xep.binding.escaping import escape_attribute
from xep.data_forms import Form
from xep.jid import JID
from xep.pubsub import Item, Items, Publish, Pubsub, Retract, Subscribe, Subscription
from xep.pubsub_owner import Affiliations, PubsubOwner
from xep.stanza import Incoming
from xep.stanza_error import StanzaError
from xep.stream import StreamError

_EVENT: Final = "http://jabber.org/protocol/pubsub#event"
_WRITERS: Final = ("owner", "publisher")
_WHITELIST: Final = "whitelist"


class PepNode:
    """A node of an account: the payloads of its items by id, and who may do what."""

    def __init__(self, owner: JID) -> None:
        self.items: dict[str, str] = {}
        self.affiliations: dict[JID, str] = {owner: "owner"}
        self.subscribers: set[JID] = set()


class Pep:
    """The nodes of the accounts of a host.

    Attributes:
        nodes: by account and name.
        is_down: whether all requests are refused, as when the storage of the server fails.
    """

    def __init__(self, xmpp: Xmpp, host: str) -> None:
        self.nodes: dict[tuple[JID, str], PepNode] = {}
        self.is_down = False
        tags = Pubsub.xml.tag, PubsubOwner.xml.tag
        self._router: Router = xmpp.serve_accounts(host, dict.fromkeys(tags, self.answer))

    def make(self, account: JID, name: str, publisher: str) -> None:
        """Make a node at which somebody else may publish, as its owner would."""
        node = self.nodes[account, name] = PepNode(account)
        node.affiliations[JID.parse(publisher)] = "publisher"

    def answer(self, account: JID, sender: JID, stanza: Incoming) -> Payload | None:
        """Answer a request to an account. Raises StanzaError."""
        if self.is_down:
            raise StanzaError("internal-server-error")
        if stanza.sole_child == PubsubOwner.xml.tag:
            affiliations = stanza.require(PubsubOwner).affiliations
            if stanza.type != "set" or affiliations is None:
                raise StanzaError("feature-not-implemented")
            return self._affiliate(account, sender, affiliations)
        request = stanza.require(Pubsub)
        if request.create is not None:
            return self._create(account, sender, request.create.node)
        if request.items is not None and stanza.type == "get":
            return self._items(account, sender, request.items)
        if request.subscribe is not None:
            return self._subscribe(account, sender, request.subscribe)
        if request.publish is not None:
            options = request.publish_options
            form = None if options is None else options.form
            return self._publish(account, sender, request.publish, form)
        if request.retract is not None:
            return self._retract(account, sender, request.retract)
        raise StanzaError("feature-not-implemented")

    def _node(self, account: JID, name: str) -> PepNode:
        found = self.nodes.get((account, name))
        if found is None:
            raise StanzaError("item-not-found")
        return found

    def _create(self, account: JID, sender: JID, name: str) -> None:
        if sender.bare != account:
            raise StanzaError("forbidden")
        if (account, name) in self.nodes:
            raise StanzaError("conflict")
        self.nodes[account, name] = PepNode(account)

    def _affiliate(self, account: JID, sender: JID, request: Affiliations) -> None:
        if sender.bare != account:
            raise StanzaError("forbidden")
        node = self._node(account, request.node)
        node.affiliations |= {one.jid: one.affiliation for one in request.affiliations}

    def _items(self, account: JID, sender: JID, request: Items) -> Pubsub:
        node = self._node(account, request.node)
        if sender.bare not in node.affiliations:
            raise StanzaError("forbidden")
        wanted = [one.id for one in request.items] or list(node.items)
        items = [
            Item(id=id_, payloads=(RawXML(xml),))
            for id_, xml in node.items.items()
            if id_ in wanted
        ]
        return Pubsub(items=Items(node=request.node, items=tuple(items)))

    def _subscribe(self, account: JID, sender: JID, request: Subscribe) -> Pubsub:
        node = self._node(account, request.node)
        if sender.bare not in node.affiliations:
            raise StanzaError("forbidden")
        node.subscribers.add(request.jid)
        granted = Subscription(node=request.node, jid=request.jid, subscription="subscribed")
        return Pubsub(subscription=granted)

    def _publish(self, account: JID, sender: JID, request: Publish, options: Form | None) -> Pubsub:
        if sender.bare == account and (account, request.node) not in self.nodes:
            self._create(account, sender, request.node)
        node, (item,) = self._node(account, request.node), request.items
        if node.affiliations.get(sender.bare) not in _WRITERS:
            raise StanzaError("forbidden")
        values = {} if options is None else {one.var: one.values for one in options.fields}
        if values.get("pubsub#access_model", (_WHITELIST,)) != (_WHITELIST,):
            raise StanzaError("conflict", "precondition-not-met")
        id_, xml = item.id or "current", item.payloads[0].text
        node.items.pop(id_, None)
        node.items[id_] = xml
        self._notify(account, request.node, f"<item id='{escape_attribute(id_)}'>{xml}</item>")
        return Pubsub(publish=Publish(node=request.node, items=(Item(id=id_),)))

    def _retract(self, account: JID, sender: JID, request: Retract) -> None:
        node, (item,) = self._node(account, request.node), request.items
        if node.affiliations.get(sender.bare) not in _WRITERS:
            raise StanzaError("forbidden")
        if item.id not in node.items:
            raise StanzaError("item-not-found")
        del node.items[item.id or ""]
        if request.notify:
            xml = f"<retract id='{escape_attribute(item.id or '')}'/>"
            self._notify(account, request.node, xml)

    def _notify(self, account: JID, name: str, xml: str) -> None:
        node = escape_attribute(name)
        for subscriber in sorted(self.nodes[account, name].subscribers, key=str):
            stanza = parse(
                f"<message type='headline' from='{account}' to='{subscriber}'>"
                f"<event xmlns='{_EVENT}'><items node='{node}'>{xml}</items></event></message>"
            )
            self._router.from_component(account, stanza, self)

    def send(self, xml: str) -> None:
        """Take an error, which the server ignores."""

    def close(self, error: StreamError) -> None:
        """Never called."""
        raise AssertionError(f"the stream of an account has ended: {error}")
