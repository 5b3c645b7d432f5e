"""The verbs of XEP-0060, each for a requester whose rights are checked.

Each is one transaction, so what it answers is on disk, and has subscribers notified after its
commit. All raise StanzaError, with the conditions of XEP-0060, and StorageError.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from component.pubsub import access, faults, nodes, publishing, rows, subscribing
from component.pubsub.access import Requester
from component.pubsub.changes import Direct
from component.pubsub.config import DEFAULT, NodeConfig, changed
from component.pubsub.core import Core, as_node, last_messages
from component.pubsub.events import subscription_event
from component.pubsub.notifier import ENVELOPE_BYTES
from component.pubsub.pages import choose
from component.pubsub.publishing import NewItem, Wanted, new_id
from component.pubsub.rows import StoredItem, Subscription
from component.pubsub.subscribing import Options
from component.pubsub.views import digests
from component.storage.database import Database
from xep.data_forms import Form
from xep.jid import JID
from xep.pubsub import AffiliationName, SubscriptionState
from xep.result_sets import ResultSet
from xep.stanza_error import StanzaError


class Verbs:
    """What others ask of the service.

    Args:
        core: commits changes and sends notifications.
    """

    def __init__(self, core: Core) -> None:
        self._core = core

    async def create(self, who: Requester, name: str, form: Form | None) -> str:
        """Create a node (§8.1); its name, chosen if none was given."""
        name = name or new_id()
        config = changed(DEFAULT, form)
        if who.may_create and self._core.computed(who, name) is not None:
            raise StanzaError("conflict", "there is a node of this name")
        await self._core.storage.write(lambda database: nodes.create(database, who, name, config))
        return name

    async def configuration(self, who: Requester, name: str) -> NodeConfig:
        """The configuration of a node, for its owners (§8.2.1)."""
        self._core.refuse_computed(who, name)
        node = await self._core.storage.read(
            lambda database: access.owned(database, who, name, lock=False)
        )
        return node.config

    async def configure(self, who: Requester, name: str, form: Form | None) -> None:
        """Configure a node (§8.2.4)."""
        self._core.refuse_computed(who, name)
        await self._charge(who, name)
        await self._core.change(lambda database: nodes.configure(database, who, name, form))

    async def delete_node(self, who: Requester, name: str) -> None:
        """Delete a node (§8.4)."""
        self._core.refuse_computed(who, name)
        await self._charge(who, name)
        await self._core.change(lambda database: nodes.delete(database, who, name))

    async def publish_items(
        self, who: Requester, name: str, items: Sequence[NewItem], required: dict[str, Any]
    ) -> list[str]:
        """Publish items (§7.1); their ids."""
        self._core.refuse_computed(who, name)
        named = [each if each.id else msgspec.structs.replace(each, id=new_id()) for each in items]
        await self._charge(who, name, sum(len(one) for each in items for one in each.payloads))
        await self._core.change(
            lambda database: publishing.publish(database, who, name, named, required)
        )
        return [each.id or "" for each in named]

    async def retract_items(
        self, who: Requester, name: str, ids: Sequence[str | None], *, notify: bool
    ) -> None:
        """Delete items (§7.2)."""
        if not name:
            raise faults.node_id_required()
        named = publishing.check_named(ids)
        self._core.refuse_computed(who, name)
        # The request can only extend the configuration.
        wanted = True if notify else None
        await self._charge(who, name, sum(map(len, named)))
        await self._core.change(
            lambda database: publishing.retract(database, who, name, named, notify=wanted)
        )

    async def purge(self, who: Requester, name: str) -> None:
        """Delete all items (§8.5)."""
        self._core.refuse_computed(who, name)
        await self._charge(who, name)
        await self._core.change(lambda database: publishing.purge(database, who, name))

    async def retrieve(
        self, who: Requester, name: str, wanted: Wanted
    ) -> tuple[list[StoredItem], ResultSet | None]:
        """Items of a node, the newest last, and which part of all they are (§6.5)."""
        computed = self._core.computed(who, name)
        if computed is None:
            return await self._core.storage.read(
                lambda database: publishing.items(database, who, name, wanted, self._core.page_room)
            )
        found = await computed.items(JID.parse(who.service), JID.parse(who.principal))
        if wanted.ids:
            return [each for each in found if each.id in wanted.ids], None
        ids, page = choose(
            [(each.id, len(each.payload.encode())) for each in found],
            wanted.page,
            wanted.most,
            self._core.page_room,
        )
        chosen = frozenset(ids)
        return [each for each in found if each.id in chosen], page

    async def subscribe(
        self, who: Requester, name: str, jid: JID, form: Form | None
    ) -> Subscription:
        """Subscribe to a node (§6.1). The last item, or the request to its owners, follows."""
        if not name:
            raise faults.node_id_required()
        address = subscribing.check_own(who, jid, faults.invalid_jid())
        options = subscribing.read_options(form)
        computed = self._core.computed(who, name)
        subid = new_id()
        seen = None
        if computed is not None and computed.is_compared:
            service, principal = JID.parse(who.service), JID.parse(who.principal)
            seen = digests(await computed.items(service, principal))

        def op(database: Database) -> tuple[Subscription, Sequence[Direct]]:
            if computed is None:
                node = subscribing.check_subscribe(database, who, name)
            else:
                node = as_node(who, computed)
            made, is_new = subscribing.subscribe(database, who, node, address, options, subid)
            if is_new and seen is not None:
                rows.set_view(database, who.service, name, address, seen)
            if made.state == "pending":
                return made, self._authorizations(database, who, made)
            return made, last_messages(database, node, address) if is_new else ()

        made, messages = await self._core.storage.write(op)
        for message in messages:
            self._core.notifier.put(message)
        if computed is not None and made.subid == subid:
            await self._core.send_last_computed(who, computed, address)
        return made

    async def unsubscribe(self, who: Requester, name: str, jid: JID, subid: str | None) -> None:
        """End a subscription (§6.2)."""
        address = _own_address(who, name, jid)

        def op(database: Database) -> None:
            self._known(database, who, name, address, subid)
            rows.remove_subscription(database, who.service, name, address)

        await self._core.storage.write(op)

    async def options(self, who: Requester, name: str, jid: JID, subid: str | None) -> Subscription:
        """A subscription with its options (§6.3.2)."""
        address = _own_address(who, name, jid)

        return await self._core.storage.read(
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
            options = subscribing.read_options(form, before)
            after = msgspec.structs.replace(
                found,
                deliver=options.deliver,
                expires=options.expires,
                since=rows.last_change(database, who.service, name),
            )
            rows.put_subscription(database, who.service, who.principal, after)

        await self._core.storage.write(op)

    def _known(
        self, database: Database, who: Requester, name: str, address: str, subid: str | None
    ) -> Subscription:
        """The requester's subscription to a node, which is not hidden from it."""
        if self._core.computed(who, name) is None:
            access.find(database, who, name)
        return subscribing.known(database, who, name, address, subid)

    async def subscriptions(self, who: Requester, name: str) -> list[Subscription]:
        """The requester's own subscriptions, at one node or at all (§5.6); none if there is no such
        node.
        """

        def op(database: Database) -> list[Subscription]:
            return rows.subscriptions_of(database, who.service, who.principal, name or None)

        return await self._core.storage.read(op)

    async def affiliations(self, who: Requester, name: str) -> list[tuple[str, AffiliationName]]:
        """The requester's own affiliations, with one node or with all (§5.7); none if there is no
        such node.
        """

        def op(database: Database) -> list[tuple[str, AffiliationName]]:
            found = rows.affiliations_of(database, who.service, who.principal)
            return [each for each in found if not name or each[0] == name]

        return await self._core.storage.read(op)

    async def affiliations_with(
        self, who: Requester, name: str
    ) -> list[tuple[str, AffiliationName]]:
        """Everybody's affiliation with a node, for its owners (§8.9.1)."""
        self._core.refuse_computed(who, name)
        return await self._core.storage.read(
            lambda database: nodes.affiliations(database, who, name)
        )

    async def set_affiliations(
        self, who: Requester, name: str, made: Sequence[tuple[JID, AffiliationName]]
    ) -> None:
        """Change affiliations with a node (§8.9.2)."""
        self._core.refuse_computed(who, name)
        wanted = [(str(jid.bare), affiliation) for jid, affiliation in made]
        await self._tell(
            lambda database: _state_messages(
                database, who, name, nodes.set_affiliations(database, who, name, wanted)
            )
        )

    async def subscriptions_to(self, who: Requester, name: str) -> list[Subscription]:
        """All subscriptions to a node, for its owners (§8.8.1)."""
        self._core.refuse_computed(who, name)
        return await self._core.storage.read(
            lambda database: subscribing.subscriptions_to(database, who, name)
        )

    async def set_subscriptions(
        self,
        who: Requester,
        name: str,
        wanted: Sequence[tuple[JID, SubscriptionState, str | None]],
    ) -> None:
        """Approve, add or end subscriptions to a node (§8.8.2), and notify the subscribers."""
        self._core.refuse_computed(who, name)
        texts = [(str(jid), state, subid) for jid, state, subid in wanted]
        subid = new_id()

        await self._tell(
            lambda database: _state_messages(
                database,
                who,
                name,
                subscribing.set_subscriptions(database, who, name, texts, subid),
            )
        )

    async def approvable(self, who: Requester) -> list[str]:
        """The nodes to which the requester can approve subscriptions (§8.7.2)."""
        return await self._core.storage.read(lambda database: subscribing.approvable(database, who))

    async def send_pending(self, who: Requester, name: str) -> int:
        """Send the requester the form of each subscription to a node that waits for approval
        (§8.7.4); how many there are.
        """
        self._core.refuse_computed(who, name)
        found = await self._core.storage.read(
            lambda database: subscribing.pending(database, who, name)
        )
        for each in found:
            self._core.notifier.put(_authorization(who.service, each, who.jid))
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
            for owner in subscribing.owners(database, who.service, made.node)
            if (node is not None and node.creator == owner)
            or self._core.may_create(JID.parse(owner))
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

        told = await self._core.storage.read(op)
        told += self._core.notifier.interested_in(who.service, name)
        self._core.allowances.charge(who.principal, (1 + told) * (bytes_ + ENVELOPE_BYTES))

    async def _tell(self, op: Callable[[Database], Sequence[Direct]]) -> None:
        """Commit the changes of an operation, then send its messages."""
        for message in await self._core.storage.write(op):
            self._core.notifier.put(message)


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
        event = subscription_event(name, JID.parse(jid), state)
        messages.append(Direct(service=who.service, node=name, to=jid, payloads=(event,)))
        if state == "subscribed" and node is not None:
            messages += last_messages(database, node, jid)
    return messages


def _authorization(service: str, made: Subscription, owner: str) -> Direct:
    form = subscribing.authorization_form(made)
    return Direct(service=service, node=made.node, to=owner, payloads=(form,), type="normal")


def _own_address(who: Requester, name: str, jid: JID) -> str:
    """The address of a subscription of the requester's own (§6.2.3.3, §6.3.4.1)."""
    if not name:
        raise faults.node_id_required()
    return subscribing.check_own(who, jid, faults.forbidden("that is not your address"))
