"""A PubSub service in memory (XEP-0060), as Prosody or ejabberd behave.

pubsub = PubSubService(kit.xmpp)
builds = pubsub.create("builds")
builds.publish("1", "<failed xmlns='urn:builds'>shop</failed>")

What it knows was read in the sources of both: `mod_pubsub` of Prosody 0.12 with `util.pubsub`, and
`mod_pubsub` of ejabberd with `node_flat`. Notifications are headlines without a publisher. They are
sent once: what does not arrive is lost. The two differ in this:

- A new version of an item is the newest item of a node. ejabberd lists items by the time at which
  the first version came; Prosody lists the newest last.
- ejabberd answers requests for pages (XEP-0059), and for the newest items with a page; Prosody
  returns all items.
- ejabberd sends the last item with each request for a subscription, before the answer.
- ejabberd tells nobody that a node was deleted.
- Prosody gives notifications an id, and says in its answer that a subscription has ended.
- ejabberd returns the payload of a request with an error.
"""

from datetime import datetime
from itertools import count
from typing import Final, Literal, TypeAlias

import msgspec

from component import system
from tests.kit.elements import returned
from tests.kit.xmpp import Xmpp, parse
from xep.binding import Payload, RawXML
from xep.binding.escaping import escape_attribute
from xep.jid import JID
from xep.pubsub import (
    Item,
    Items,
    Publish,
    Pubsub,
    Retract,
    Subscribe,
    Subscription,
    Unsubscribe,
)
from xep.pubsub_errors import InvalidJID, NotSubscribed
from xep.result_sets import First, ResultSet
from xep.stanza import IQ, Incoming
from xep.stanza_error import ErrorType, StanzaError
from xep.stream import StreamError

DOMAIN: Final = "pubsub.capulet.example"
"""The address of the service, unless another one is given."""
Server: TypeAlias = Literal["prosody", "ejabberd"]
_EVENT: Final = "http://jabber.org/protocol/pubsub#event"


class Stored(msgspec.Struct, frozen=True):
    """An item of a node. `number` is higher than that of all older items; `created` is that of the
    first version.
    """

    id: str
    payload: str
    number: int
    created: int
    at: datetime

    @property
    def xml(self) -> str:
        """The item in a notification."""
        return f"<item id='{escape_attribute(self.id)}'>{self.payload}</item>"


class Node:
    """A node.

    Attributes:
        items: by id, in the order of their latest versions.
        subscribers: who is notified.
        is_closed: whether it refuses everybody.
    """

    def __init__(self, service: "PubSubService", name: str, most: int) -> None:
        self.name = name
        self.items: dict[str, Stored] = {}
        self.subscribers: set[JID] = set()
        self.is_closed = False
        self._service = service
        self._most = most
        self._numbers = count(1)

    def publish(self, id_: str, payload: str) -> Stored:
        """Publish an item, or a new version of one."""
        before, number = self.items.pop(id_, None), next(self._numbers)
        created = number if before is None else before.created
        made = self.items[id_] = Stored(id_, payload, number, created, system.now())
        while len(self.items) > self._most:
            del self.items[min(self.items.values(), key=lambda one: one.number).id]
        self._notify(self._around(made.xml))
        return made

    def retract(self, id_: str) -> None:
        """Delete an item."""
        del self.items[id_]
        self._notify(self._around(f"<retract id='{escape_attribute(id_)}'/>"))

    def purge(self) -> None:
        """Delete all items."""
        self.items.clear()
        self._notify(f"<purge node='{escape_attribute(self.name)}'/>")

    def delete(self) -> None:
        """Delete the node, with its subscriptions."""
        del self._service.nodes[self.name]
        if self._service.server == "prosody":
            self._notify(f"<delete node='{escape_attribute(self.name)}'/>")

    def send_last(self, to: JID) -> None:
        """Send the latest item to a new subscriber (XEP-0060 §6.1.7)."""
        last = max(self.items.values(), key=lambda one: one.number, default=None)
        if last is not None:
            delay = f"<delay xmlns='urn:xmpp:delay' stamp='{last.at:%Y-%m-%dT%H:%M:%SZ}'/>"
            self._send(to, self._around(last.xml), delay)

    def listed(self) -> list[Stored]:
        """Return the items in the order in which they are listed."""
        if self._service.server == "prosody":
            return list(self.items.values())
        return sorted(self.items.values(), key=lambda one: one.created)

    def _around(self, xml: str) -> str:
        return f"<items node='{escape_attribute(self.name)}'>{xml}</items>"

    def _notify(self, xml: str) -> None:
        for subscriber in sorted(self.subscribers, key=str):
            self._send(subscriber, xml)

    def _send(self, to: JID, xml: str, after: str = "") -> None:
        id_ = (
            f" id='notification-{next(self._service.ids)}'"
            if self._service.server == "prosody"
            else ""
        )
        self._service.say(
            f"<message type='headline' from='{self._service.domain}'{id_}"
            f" to='{escape_attribute(str(to))}'><event xmlns='{_EVENT}'>{xml}</event>{after}"
            "</message>"
        )


class PubSubService:
    """The service.

    Attributes:
        nodes: the nodes, by name.
        domain: its address.
        ids: numbers of notifications.
    """

    def __init__(self, xmpp: Xmpp, domain: str = DOMAIN, *, server: Server = "prosody") -> None:
        self.server: Server = server
        self.nodes: dict[str, Node] = {}
        self.domain = domain
        self.ids = count(1)
        xmpp.add_service(domain, "secret of the nodes")
        self._home = xmpp.connect_link(domain, self)

    def create(self, name: str, most: int = 100) -> Node:
        """Create a node that keeps so many items."""
        assert name not in self.nodes, "there is one"
        made = self.nodes[name] = Node(self, name, most)
        return made

    def go(self) -> None:
        """Be unreachable: requests are answered by the server, and nobody is notified."""
        self._home.table.components[self.domain] = None

    def come(self) -> None:
        """Be there again, with all nodes and subscriptions."""
        self._home.table.components[self.domain] = self

    @property
    def is_there(self) -> bool:
        """Whether it can be reached."""
        return self._home.table.components[self.domain] is not None

    def close(self, error: StreamError) -> None:
        """Never called."""
        raise AssertionError(f"the stream of {self.domain} has ended: {error}")

    def say(self, xml: str) -> None:
        """Send a stanza of the service."""
        self._home.from_component(JID.parse(self.domain), parse(xml), self)

    def send(self, xml: str) -> None:
        """Take a stanza from the server."""
        stanza = parse(xml)
        if stanza.kind != "iq" or stanza.type not in ("get", "set"):
            return
        sender, id_ = JID.parse(stanza.sender or ""), stanza.id or ""
        me = JID.parse(self.domain)
        try:
            payload = self._answer(stanza, sender)
        except StanzaError as error:
            refusal = IQ(type="error", id=id_, to=sender, from_=me, error=error).encode()
            self.say(refusal if self.server == "prosody" else returned(refusal, stanza))
            return
        self.say(IQ(type="result", id=id_, to=sender, from_=me, payload=payload).encode())

    def _answer(self, stanza: Incoming, sender: JID) -> Payload | None:
        if stanza.sole_child != Pubsub.xml.tag:
            raise StanzaError("service-unavailable")
        request = stanza.require(Pubsub)
        if stanza.type == "get":
            if request.items is None:
                raise StanzaError("feature-not-implemented")
            return self._items(request.items, request.page)
        if request.subscribe is not None:
            return self._subscribe(request.subscribe, sender)
        if request.unsubscribe is not None:
            return self._unsubscribe(request.unsubscribe)
        if request.publish is not None:
            return self._publish(request.publish)
        if request.retract is not None:
            return self._retract(request.retract)
        raise StanzaError("feature-not-implemented")

    def _node(self, name: str) -> Node:
        found = self.nodes.get(name)
        if found is None:
            raise StanzaError("item-not-found")
        if found.is_closed:
            raise StanzaError("forbidden" if self.server == "prosody" else "not-allowed")
        return found

    def _subscribe(self, request: Subscribe, sender: JID) -> Pubsub:
        node = self._node(request.node)
        if request.jid.bare != sender.bare:
            if self.server == "prosody":
                raise StanzaError("forbidden")
            raise StanzaError("bad-request", application=(InvalidJID(),))
        node.subscribers.add(request.jid)
        if self.server == "ejabberd":
            node.send_last(request.jid)
        granted = Subscription(node=node.name, jid=request.jid, subscription="subscribed")
        return Pubsub(subscription=granted)

    def _unsubscribe(self, request: Unsubscribe) -> Pubsub | None:
        node, jid = self._node(request.node), request.jid
        if jid not in node.subscribers:
            type_: ErrorType = "modify" if self.server == "prosody" else "wait"
            raise StanzaError("unexpected-request", type=type_, application=(NotSubscribed(),))
        node.subscribers.discard(jid)
        if self.server == "ejabberd":
            return None
        return Pubsub(subscription=Subscription(node=node.name, jid=jid, subscription="none"))

    def _items(self, request: Items, page: ResultSet | None) -> Pubsub:
        node = self._node(request.node)
        found, result = node.listed(), None
        if request.items:
            wanted = [one.id for one in request.items]
            found = [one for one in found if one.id in wanted]
        elif request.max_items is not None:
            whole, found = found, found[-request.max_items :]
            result = None if self.server == "prosody" else _described(found, whole)
        elif page is not None and self.server == "ejabberd":
            found, result = _page(found, page)
        items = tuple(Item(id=one.id, payloads=(RawXML(one.payload),)) for one in found)
        return Pubsub(items=Items(node=node.name, items=items), page=result)

    def _publish(self, request: Publish) -> Pubsub:
        node, (item,) = self._node(request.node), request.items
        made = node.publish(item.id or f"item-{len(node.items)}", item.payloads[0].text)
        return Pubsub(publish=Publish(node=node.name, items=(Item(id=made.id),)))

    def _retract(self, request: Retract) -> None:
        node, (item,) = self._node(request.node), request.items
        if item.id not in node.items:
            raise StanzaError("item-not-found")
        node.retract(item.id)


def _page(items: list[Stored], request: ResultSet) -> tuple[list[Stored], ResultSet]:
    """Return a page as ejabberd does: its keys are the times at which items were created."""
    after = [one for one in items if one.created > int(request.after or 0)]
    page = after[: request.max]
    return page, _described(page, items)


def _described(page: list[Stored], items: list[Stored]) -> ResultSet:
    """Return where a page is among all items."""
    if not page:
        return ResultSet(count=len(items))
    first = First(key=str(page[0].created), index=items.index(page[0]))
    return ResultSet(count=len(items), first=first, last=str(page[-1].created))
