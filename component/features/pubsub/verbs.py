"""The verbs of XEP-0060, each for a requester whose rights are checked.

Each is one transaction, so what it answers is on disk, and has subscribers notified after its
commit. All raise StanzaError, with the conditions of XEP-0060, and StorageError.
"""

from collections.abc import Sequence
from typing import Any, Final

import anyio
import msgspec
from cachebox import LRUCache

from component.pubsub import access, faults, items, nodes, rows, subscriptions
from component.pubsub.access import Requester
from component.pubsub.changes import Direct
from component.pubsub.computed import as_node, digests, last_of
from component.pubsub.config import DEFAULT, NodeConfig, changed
from component.pubsub.items import NewItem, Wanted, choose, new_id
from component.pubsub.notifier import ENVELOPE_BYTES
from component.pubsub.rows import Node, StoredItem, Subscription
from component.pubsub.service import PubSubService, last_messages
from component.pubsub.subscriptions import Options
from component.storage.database import Database
from xep import pubsub_errors, pubsub_event
from xep.data_forms import Form
from xep.jid import JID
from xep.pubsub import AffiliationName, SubscriptionState
from xep.result_sets import PAGE_ROOM, ResultSet
from xep.stanza_error import StanzaError

BURST_BYTES: Final = 32 * 1024 * 1024
"""How many bytes a principal may cause at once."""
BYTES_PER_S: Final = 256 * 1024
"""How many bytes it may cause per second in the long run."""
_MOST_PRINCIPALS: Final = 10_000


class Allowances:
    """An account for each principal: what it causes is taken from it, and it fills up again.

    Only the most recent principals are stored; an account that is not stored is full.
    """

    def __init__(self) -> None:
        self._accounts: LRUCache[str, tuple[float, float]] = LRUCache(_MOST_PRINCIPALS)

    def charge(self, principal: str, bytes_: int) -> None:
        """Take bytes from the account of a principal.

        Raises:
            StanzaError: ``not-acceptable`` with `payload-too-big` if no account holds that many,
                ``resource-constraint`` if this one does not now. Nothing is taken then.
        """
        now = anyio.current_time()
        left, at = self._accounts.get(principal, (float(BURST_BYTES), now))
        left = min(BURST_BYTES, left + (now - at) * BYTES_PER_S)
        if bytes_ > BURST_BYTES:
            raise faults.fault(
                "not-acceptable",
                pubsub_errors.PayloadTooBig(),
                f"this would cause {bytes_} bytes, because it is sent to each subscriber, and"
                f" {BURST_BYTES} are the most; publish a smaller item",
            )
        if bytes_ > left:
            seconds = round((bytes_ - left) / BYTES_PER_S) + 1
            raise faults.fault(
                "resource-constraint",
                text="you have published as much as one address may; try again in"
                f" {seconds} seconds",
            )
        self._accounts[principal] = (left - bytes_, now)


class Verbs:
    """What others ask of the service.

    Args:
        service: the nodes; it commits changes and sends notifications.
        room: maximum size of the items of an answer, in bytes.

    Attributes:
        service: as given.
    """

    def __init__(self, service: PubSubService, room: int = PAGE_ROOM) -> None:
        self.service = service
        self._room = room
        self._allowances = Allowances()

    async def create(self, who: Requester, name: str, form: Form | None) -> str:
        """Create a node (§8.1); its name, chosen if none was given."""
        name = name or new_id()
        config = changed(DEFAULT, form)
        if who.may_create and self.service.computed(who, name) is not None:
            raise StanzaError("conflict", "there is a node of this name")
        await self.service.storage.write(lambda database: nodes.create(database, who, name, config))
        return name

    async def configuration(self, who: Requester, name: str) -> NodeConfig:
        """The configuration of a node, for its owners (§8.2.1)."""
        self.service.refuse_computed(who, name)
        node = await self.service.storage.read(
            lambda database: access.owned(database, who, name, lock=False)
        )
        return node.config

    async def configure(self, who: Requester, name: str, form: Form | None) -> None:
        """Configure a node (§8.2.4)."""
        self.service.refuse_computed(who, name)
        await self._charge(who, name)
        await self.service.change(lambda database: nodes.configure(database, who, name, form))

    async def delete_node(self, who: Requester, name: str) -> None:
        """Delete a node (§8.4)."""
        self.service.refuse_computed(who, name)
        await self._charge(who, name)
        await self.service.change(lambda database: nodes.delete(database, who, name))

    async def publish_items(
        self, who: Requester, name: str, new: Sequence[NewItem], required: dict[str, Any]
    ) -> list[str]:
        """Publish items (§7.1); their ids."""
        self.service.refuse_computed(who, name)
        named = [each if each.id else msgspec.structs.replace(each, id=new_id()) for each in new]
        await self._charge(who, name, sum(len(one) for each in new for one in each.payloads))
        await self.service.change(
            lambda database: items.publish(database, who, name, named, required)
        )
        return [each.id or "" for each in named]

    async def retract_items(
        self, who: Requester, name: str, ids: Sequence[str | None], *, notify: bool
    ) -> None:
        """Delete items (§7.2)."""
        if not name:
            raise faults.node_id_required()
        named = items.check_named(ids)
        self.service.refuse_computed(who, name)
        # The request can only extend the configuration.
        wanted = True if notify else None
        await self._charge(who, name, sum(map(len, named)))
        await self.service.change(
            lambda database: items.retract(database, who, name, named, notify=wanted)
        )

    async def purge(self, who: Requester, name: str) -> None:
        """Delete all items (§8.5)."""
        self.service.refuse_computed(who, name)
        await self._charge(who, name)
        await self.service.change(lambda database: items.purge(database, who, name))

    async def retrieve(
        self, who: Requester, name: str, wanted: Wanted
    ) -> tuple[list[StoredItem], ResultSet | None]:
        """Items of a node, the newest last, and which part of all they are (§6.5)."""
        computed = self.service.computed(who, name)
        if computed is None:
            return await self.service.storage.read(
                lambda database: items.retrieve(database, who, name, wanted, self._room)
            )
        found = await computed.items(JID.parse(who.service), JID.parse(who.principal))
        if wanted.ids:
            return [each for each in found if each.id in wanted.ids], None
        ids, page = choose(
            [(each.id, len(each.payload.encode())) for each in found],
            wanted.page,
            wanted.most,
            self._room,
        )
        chosen = frozenset(ids)
        return [each for each in found if each.id in chosen], page

    async def described(self, who: Requester, name: str) -> tuple[Node, list[str], int]:
        """A node, its owners, and how many subscribers it has (§5.4)."""
        computed = self.service.computed(who, name)
        if computed is not None:
            return as_node(who.service, computed), [], 0

        def op(database: Database) -> tuple[Node, list[str], int]:
            node, _ = access.find(database, who, name)
            owners = subscriptions.owners(database, who.service, name)
            return node, owners, rows.count_subscribers(database, who.service, name)

        return await self.service.storage.read(op)

    async def item_ids(self, who: Requester, name: str) -> list[str]:
        """The ids of the items of a node, the newest last (§5.5)."""
        computed = self.service.computed(who, name)
        if computed is not None:
            found = await computed.items(JID.parse(who.service), JID.parse(who.principal))
            return [each.id for each in found]

        def op(database: Database) -> list[str]:
            node, found = access.find(database, who, name)
            access.check_read(database, who, node, found, subscribing=False)
            return [id_ for id_, _ in rows.item_keys(database, who.service, name)]

        return await self.service.storage.read(op)

    async def subscribe(
        self, who: Requester, name: str, jid: JID, form: Form | None
    ) -> Subscription:
        """Subscribe to a node (§6.1). The last item, or the request to its owners, follows."""
        if not name:
            raise faults.node_id_required()
        address = subscriptions.check_own(who, jid, faults.invalid_jid())
        options = subscriptions.read_options(form)
        wanted = Subscription(
            node=name,
            jid=address,
            subid=new_id(),
            state="subscribed",
            deliver=options.deliver,
            expires=options.expires,
        )
        computed = self.service.computed(who, name)
        seen = None
        if computed is not None and computed.is_compared:
            service, principal = JID.parse(who.service), JID.parse(who.principal)
            seen = digests(await computed.items(service, principal))

        def op(database: Database) -> tuple[Subscription, Sequence[Direct]]:
            if computed is None:
                node = subscriptions.check_subscribe(database, who, name)
            else:
                node = as_node(who.service, computed)
            made, is_new = subscriptions.subscribe(database, who, node, wanted)
            if is_new and seen is not None:
                rows.set_view(database, who.service, name, address, seen)
            if made.state == "pending":
                return made, self._authorizations(database, who, made)
            return made, last_messages(database, node, address) if is_new else ()

        made, messages = await self.service.storage.write(op)
        for message in messages:
            self.service.notifier.put(message)
        if computed is not None and made.subid == wanted.subid:
            for message in await last_of(computed, who.service, who.principal, address):
                self.service.notifier.put(message)
        return made

    async def unsubscribe(self, who: Requester, name: str, jid: JID, subid: str | None) -> None:
        """End a subscription (§6.2)."""
        address = _own_address(who, name, jid)

        def op(database: Database) -> None:
            self._known(database, who, name, address, subid)
            rows.remove_subscription(database, who.service, name, address)

        await self.service.storage.write(op)

    async def options(self, who: Requester, name: str, jid: JID, subid: str | None) -> Subscription:
        """A subscription with its options (§6.3.2)."""
        address = _own_address(who, name, jid)

        return await self.service.storage.read(
            lambda database: self._known(database, who, name, address, subid)
        )

    async def set_options(
        self, who: Requester, name: str, jid: JID, subid: str | None, form: Form
    ) -> None:
        """Change the options of a subscription (§6.3.5)."""
        address = _own_address(who, name, jid)

        def op(database: Database) -> None:
            found = self._known(database, who, name, address, subid)
            before = Options(deliver=found.deliver, expires=found.expires)
            options = subscriptions.read_options(form, before)
            after = msgspec.structs.replace(
                found,
                deliver=options.deliver,
                expires=options.expires,
                since=rows.last_change(database, who.service, name),
            )
            rows.put_subscription(database, who.service, who.principal, after)

        await self.service.storage.write(op)

    def _known(
        self, database: Database, who: Requester, name: str, address: str, subid: str | None
    ) -> Subscription:
        """The requester's subscription to a node, which is not hidden from it."""
        if self.service.computed(who, name) is None:
            access.find(database, who, name)
        return subscriptions.known(database, who, name, address, subid)

    async def subscriptions(self, who: Requester, name: str) -> list[Subscription]:
        """The requester's own subscriptions, at one node or at all (§5.6); none if there is no such
        node.
        """

        def op(database: Database) -> list[Subscription]:
            return rows.subscriptions_of(database, who.service, who.principal, name or None)

        return await self.service.storage.read(op)

    async def affiliations(self, who: Requester, name: str) -> list[tuple[str, AffiliationName]]:
        """The requester's own affiliations, with one node or with all (§5.7); none if there is no
        such node.
        """

        def op(database: Database) -> list[tuple[str, AffiliationName]]:
            found = rows.affiliations_of(database, who.service, who.principal)
            return [each for each in found if not name or each[0] == name]

        return await self.service.storage.read(op)

    async def affiliations_with(
        self, who: Requester, name: str
    ) -> list[tuple[str, AffiliationName]]:
        """Everybody's affiliation with a node, for its owners (§8.9.1)."""
        self.service.refuse_computed(who, name)
        return await self.service.storage.read(
            lambda database: nodes.affiliations(database, who, name)
        )

    async def set_affiliations(
        self, who: Requester, name: str, made: Sequence[tuple[JID, AffiliationName]]
    ) -> None:
        """Change affiliations with a node (§8.9.2)."""
        self.service.refuse_computed(who, name)
        wanted = [(str(jid.bare), affiliation) for jid, affiliation in made]
        await self.service.send(
            lambda database: _state_messages(
                database, who, name, nodes.set_affiliations(database, who, name, wanted)
            )
        )

    async def subscriptions_to(self, who: Requester, name: str) -> list[Subscription]:
        """All subscriptions to a node, for its owners (§8.8.1)."""
        self.service.refuse_computed(who, name)
        return await self.service.storage.read(
            lambda database: subscriptions.subscriptions_to(database, who, name)
        )

    async def set_subscriptions(
        self,
        who: Requester,
        name: str,
        wanted: Sequence[tuple[JID, SubscriptionState, str | None]],
    ) -> None:
        """Approve, add or end subscriptions to a node (§8.8.2), and notify the subscribers."""
        self.service.refuse_computed(who, name)
        texts = [(str(jid), state, subid) for jid, state, subid in wanted]
        subid = new_id()

        await self.service.send(
            lambda database: _state_messages(
                database,
                who,
                name,
                subscriptions.set_subscriptions(database, who, name, texts, subid),
            )
        )

    async def approvable(self, who: Requester) -> list[str]:
        """The nodes to which the requester can approve subscriptions (§8.7.2)."""
        return await self.service.storage.read(
            lambda database: subscriptions.approvable(database, who)
        )

    async def send_pending(self, who: Requester, name: str) -> int:
        """Send the requester the form of each subscription to a node that waits for approval
        (§8.7.4); how many there are.
        """
        self.service.refuse_computed(who, name)
        found = await self.service.storage.read(
            lambda database: subscriptions.pending(database, who, name)
        )
        for each in found:
            self.service.notifier.put(_authorization(who.service, each, who.jid))
        return len(found)

    def _authorizations(
        self, database: Database, who: Requester, made: Subscription
    ) -> Sequence[Direct]:
        """The messages that ask the owners to approve a subscription (§8.6): those who have created
        the node, admins, and those who have subscribed to the presence of the address. Others were
        made owners by somebody else, and have asked for nothing.
        """
        node = rows.node(database, who.service, made.node)
        return tuple(
            _authorization(who.service, made, owner)
            for owner in subscriptions.owners(database, who.service, made.node)
            if (node is not None and node.creator == owner)
            or JID.parse(owner) in self.service.creators
            or rows.sees_presence(database, who.service, owner)
        )

    async def _charge(self, who: Requester, name: str, bytes_: int = 0) -> None:
        """Charge the requester for a change of a node: it is stored, and sent to all subscribers.

        Raises StanzaError: there is no such node, or it has caused too much.
        """
        if who.is_service or who.may_create:
            return

        def op(database: Database) -> int:
            access.find(database, who, name)
            return rows.count_subscribers(database, who.service, name)

        told = await self.service.storage.read(op)
        told += self.service.notifier.interested_in(who.service, name)
        self._allowances.charge(who.principal, (1 + told) * (bytes_ + ENVELOPE_BYTES))


def _state_messages(
    database: Database,
    who: Requester,
    name: str,
    made: Sequence[tuple[str, SubscriptionState]],
) -> Sequence[Direct]:
    """The messages that tell subscribers of the new state of their subscriptions (§8.8.4)."""
    node = access.owned(database, who, name) if made else None
    messages: list[Direct] = []
    for jid, state in made:
        changed_to = pubsub_event.Subscription(node=name, jid=JID.parse(jid), subscription=state)
        event = pubsub_event.Event(subscription=changed_to)
        messages.append(Direct(service=who.service, node=name, to=jid, payloads=(event,)))
        if state == "subscribed" and node is not None:
            messages += last_messages(database, node, jid)
    return messages


def _authorization(service: str, made: Subscription, owner: str) -> Direct:
    form = subscriptions.authorization_form(made)
    return Direct(service=service, node=made.node, to=owner, payloads=(form,), type="normal")


def _own_address(who: Requester, name: str, jid: JID) -> str:
    """The address of a subscription of the requester's own (§6.2.3.3, §6.3.4.1)."""
    if not name:
        raise faults.node_id_required()
    return subscriptions.check_own(who, jid, faults.forbidden("that is not your address"))
