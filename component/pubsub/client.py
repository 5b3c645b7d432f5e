"""Requests to PubSub services (XEP-0060) from the service's own addresses."""

from collections.abc import AsyncIterator, Sequence
from typing import Final, Literal, Protocol, TypeVar

import msgspec

from xep.binding import Payload
from xep.data_forms import Form
from xep.jid import JID
from xep.pubsub import (
    Configure,
    Create,
    Item,
    Items,
    Publish,
    PublishOptions,
    Pubsub,
    Retract,
    Subscribe,
    Subscription,
    Unsubscribe,
)
from xep.result_sets import ResultSet
from xep.stanza_error import StanzaError

P = TypeVar("P", bound=Payload)

PAGE: Final = 50
"""Items that are requested at a time; a service without XEP-0059 returns all it has."""
_SMALLER: Final = (20, 5, 1)
"""The newest items that are requested instead of an answer that was too large."""
_MOST_PAGES: Final = 400


class IQCall(Protocol):
    """Makes IQs: `component.link.router.router.Router.call_optional`."""

    async def __call__(
        self,
        type_: Literal["get", "set"],
        to: JID,
        payload: Payload,
        expected: type[P],
        *,
        from_: JID | None = None,
    ) -> P | None:
        """Send an IQ and return the payload of its result, if it has one. Raises StanzaError."""


class ItemPage(msgspec.Struct, frozen=True):
    """Items of a node in the order of the service, the oldest first on every known one. `complete`
    is False if older items were left out, because all would not fit into a stanza.
    """

    items: tuple[Item, ...]
    complete: bool = True


class PubSubClient:
    """Makes requests. Methods raise StanzaError: the service's own, or `remote-server-timeout`."""

    def __init__(self, call: IQCall) -> None:
        self._call = call

    async def subscribe(self, service: JID, node: str, subscriber: JID) -> Subscription:
        """Subscribe one of the service's own addresses to a node (XEP-0060 §6.1). It can be
        repeated: every known service then returns the existing subscription. The state of the
        result is `subscribed`, or `pending` until an owner approves it.
        """
        request = Pubsub(subscribe=Subscribe(node=node, jid=subscriber))
        answer = await self._send("set", service, request, subscriber)
        if answer.subscription is not None:
            return answer.subscription
        return Subscription(node=node, jid=subscriber, subscription="subscribed")

    async def unsubscribe(self, service: JID, node: str, subscriber: JID) -> None:
        """End a subscription (XEP-0060 §6.2)."""
        request = Pubsub(unsubscribe=Unsubscribe(node=node, jid=subscriber))
        await self._send("set", service, request, subscriber)

    async def items(
        self,
        service: JID,
        node: str,
        requester: JID,
        *,
        ids: Sequence[str] = (),
        most: int | None = None,
    ) -> tuple[Item, ...]:
        """Items of a node (XEP-0060 §6.5): those with these ids, or the newest `most`, or as many
        as the service returns at once.
        """
        request = Pubsub(
            items=Items(node=node, max_items=most, items=tuple(Item(id=id_) for id_ in ids))
        )
        answer = await self._send("get", service, request, requester)
        return () if answer.items is None else answer.items.items

    async def pages(self, service: JID, node: str, requester: JID) -> AsyncIterator[ItemPage]:
        """All items of a node, a page at a time, the oldest first. A service that does not know
        XEP-0059 returns all at once. If that is more than a stanza may hold, the newest ones that
        fit are returned instead.
        """
        after: str | None = None
        for _ in range(_MOST_PAGES):
            request = Pubsub(items=Items(node=node), page=ResultSet(max=PAGE, after=after))
            try:
                answer = await self._send("get", service, request, requester)
            except StanzaError as error:
                if error.condition != "policy-violation" or after is not None:
                    raise
                yield await self._newest(service, node, requester)
                return
            items = () if answer.items is None else answer.items.items
            last = None if answer.page is None else answer.page.last
            yield ItemPage(items)
            if last is None or last == after or len(items) < PAGE:
                return
            after = last

    async def publish(
        self, service: JID, node: str, item: Item, publisher: JID, *, options: Form | None = None
    ) -> str | None:
        """Publish an item (XEP-0060 §7.1), and return its id if the service says it. `options` are
        the configuration that the node must have (XEP-0060 §7.1.5).
        """
        request = Pubsub(
            publish=Publish(node=node, items=(item,)),
            publish_options=None if options is None else PublishOptions(form=options),
        )
        answer = await self._send("set", service, request, publisher)
        published = () if answer.publish is None else answer.publish.items
        return (published[0].id if published else None) or item.id

    async def retract(self, service: JID, node: str, ids: Sequence[str], requester: JID) -> None:
        """Delete items (XEP-0060 §7.2), with notifications."""
        items = tuple(Item(id=id_) for id_ in ids)
        request = Pubsub(retract=Retract(node=node, notify=True, items=items))
        await self._send("set", service, request, requester)

    async def create(self, service: JID, node: str, owner: JID, config: Form | None = None) -> None:
        """Create a node (XEP-0060 §8.1)."""
        request = Pubsub(
            create=Create(node=node), configure=None if config is None else Configure(form=config)
        )
        await self._send("set", service, request, owner)

    async def _newest(self, service: JID, node: str, requester: JID) -> ItemPage:
        for most in _SMALLER:
            try:
                items = await self.items(service, node, requester, most=most)
            except StanzaError as error:
                if error.condition != "policy-violation":
                    raise
            else:
                return ItemPage(items, complete=False)
        return ItemPage((), complete=False)

    async def _send(
        self, type_: Literal["get", "set"], service: JID, request: Pubsub, from_: JID
    ) -> Pubsub:
        answer = await self._call(type_, service, request, Pubsub, from_=from_)
        return Pubsub() if answer is None else answer
