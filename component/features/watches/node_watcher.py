"""Observes a node: subscribes to it, catches up with it, and records its events.

In each session the subscription is requested again, which every known service answers with the
existing one: so it does not matter whether the service, its server or this process has forgotten
it. Then missed items are listed, and notifications are handled. From time to time this is repeated,
because a service can delete a node, and create it again, without a notification (ejabberd's default
for `pubsub#notify_delete`).

Events are recorded in the order in which the node has them. While the source is caught up with,
notifications wait; they are handled after that, and items that were listed are not new. Earlier
versions of a listed item that wait are handled before the listed one.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from anyio.lowlevel import checkpoint
from msgspec.structs import replace

from component.features.watches.rows import SourceRows
from component.features.watches.sources import Input, SourceWatcher, is_set_within, observed_item
from component.features.watches.watch import Observed
from xep.jid import JID
from xep.pubsub import Item
from xep.pubsub_event import Event
from xep.pubsub_event import Item as EventItem
from xep.stanza_error import StanzaError

_BATCH: Final = 500
"""Events that are recorded in one transaction."""
_SLICE: Final = 8
"""Events that are looked at before anything else may run."""
_CHECK_CALLS: Final = 50
"""Maximum number of ids for which payloads are requested in one IQ."""


class NodeWatcher(SourceWatcher[Event]):
    """Observes a node."""

    _missing_in_a_row = 0
    _was_asked_again = False

    def connected(self) -> None:
        """Observe the node in a new session."""
        self._was_asked_again = False
        super().connected()

    def retry(self) -> None:
        """Try to subscribe again soon, because a permission may have changed."""
        self._advance("due")

    def observed(self, event: Event) -> None:
        """Handle a notification. Never waits."""
        items = () if event.items is None else event.items.items
        if event.items is None or len(items) < 2:
            self._put(event)
            return
        for item in items:  # so that each can be handled on its own
            self._put(replace(event, items=replace(event.items, items=(item,))))

    async def _step(self) -> None:
        state = self._subscription.state
        if state == "subscribing":
            self._advance(await self._attempt(self._subscribe))
        elif state == "catching-up":
            self._advance(await self._attempt(self._catch_up))
        elif self._waiting and state == "failed" and not self._was_asked_again:
            # It can be reached again: what was missed comes before its notifications.
            self._was_asked_again = True
            self._advance("due")
        elif self._waiting and state not in ("offline", "missing"):
            self._was_asked_again = False
            await self._handle_waiting()
        elif not await is_set_within(self._wake, self._subscription.delay_s):
            self._advance("due")

    async def unsubscribe(self) -> None:
        """End the subscription, because no watch needs it any more; a refusal is ignored."""
        if self._subscription.state == "offline":
            return
        try:
            await self._ports.client.unsubscribe(*self._address)
        except StanzaError as error:
            self._log.debug("cannot unsubscribe", reason=str(error))

    async def _attempt(self, work: Callable[[], Awaitable[Input]]) -> Input:
        """Return the input that some requests lead to."""
        try:
            return await work()
        except StanzaError as error:
            self._reason = error.text or error.condition
            found = _input_of(error)
        if found == "missing":
            await self._was_missing()
        if found == "refused":
            self._warn_once("a service refuses to be watched")
            self._reason = await self._ports.consent(self.source, refused=True) or self._reason
        return found

    async def _subscribe(self) -> Input:
        refusal = await self._ports.consent(self.source)
        if refusal is not None:
            self._reason = refusal
            return "refused"
        if not await self._is_known():
            await self._note_first_items()
        granted = await self._ports.client.subscribe(*self._address)
        self._missing_in_a_row = 0
        return "pending" if granted.subscription == "pending" else "subscribed"

    async def _note_first_items(self) -> None:
        """Mark the items before the first subscription as seen, as far as others may read them."""
        items: list[Observed] = []
        try:
            async for page in self._ports.client.pages(*self._address):
                items += map(_observed, page.items)
        except StanzaError as error:
            if _input_of(error) in ("failed", "missing"):
                raise
            return
        await self._write(lambda rows: rows.mark_known(items))

    async def _catch_up(self) -> Input:
        is_known = await self._is_known()
        listed: list[str] | None = []
        first: list[Observed] = []
        try:
            async for page in self._ports.client.pages(*self._address):
                items = [_observed(item) for item in page.items]
                listed = None if listed is None or not page.complete else listed
                if listed is not None:
                    listed += [item.item for item in items]
                if is_known:
                    await self._record_items(self._with_waiting(items))
                else:
                    first += items
        except StanzaError as error:
            if _input_of(error) != "refused":
                raise
            listed = None  # such as a node that stores no items
        if not is_known:
            await self._write(lambda rows: rows.mark_known(first))
        await self._write(lambda rows: rows.prune(listed))
        return "caught-up"

    def _with_waiting(self, listed: Sequence[Observed]) -> Sequence[Observed]:
        """Return listed items, each after its earlier versions whose notifications wait. These and
        its own do not wait any more: the node sends notifications and answers in their order.
        """
        of_item: dict[str, list[tuple[Event, Observed | None]]] = {}
        for event in self._waiting:
            for each in () if event.items is None else event.items.items:
                seen = _observed(each) if isinstance(each, EventItem) else None
                of_item.setdefault(each.id or "", []).append((event, seen))
        found: list[Observed] = []
        handled: set[int] = set()
        for item in listed:
            waiting = of_item.get(item.item, ())
            own = [
                number
                for number, (_, seen) in enumerate(waiting)
                if seen is not None and seen.version == item.version
            ]
            if own:
                found += [seen for _, seen in waiting[: own[-1]] if seen is not None]
                handled |= {id(event) for event, _ in waiting[: own[-1] + 1]}
            found.append(item)
        if handled:
            self._waiting = deque(one for one in self._waiting if id(one) not in handled)
        return found

    async def _handle_waiting(self) -> None:
        """Handle notifications up to the first one that is about the node itself."""
        items: list[Observed] = []
        retracted: list[str] = []
        while self._waiting and len(items) < _BATCH:
            event = self._waiting[0]
            if event.items is None:
                break
            self._waiting.popleft()
            for each in event.items.items:
                if isinstance(each, EventItem):
                    items.append(_observed(each))
                    if len(items) % _SLICE == 0:
                        await checkpoint()
                else:
                    retracted.append(each.id)
            if retracted:
                break
        if items:
            await self._record_items(await self._with_payloads(items))
        if retracted:
            await self._write(lambda rows: rows.forget_items(retracted))
        elif self._waiting and not items:
            await self._handle_change(self._waiting.popleft())

    async def _handle_change(self, event: Event) -> None:
        if event.purge is not None or event.delete is not None:
            await self._write(SourceRows.forget_items)
        if event.delete is not None:
            self._reason = "the node was deleted"
            self._advance("gone")
        elif event.subscription is not None:
            if event.subscription.subscription == "subscribed":
                self._advance("subscribed")
            elif event.subscription.subscription == "none":
                self._reason = "the service has ended the subscription"
                self._advance("gone")

    async def _with_payloads(self, items: Sequence[Observed]) -> Sequence[Observed]:
        """Fetch the payloads of a node that delivers none with its notifications."""
        bare = [item.item for item in items if item.item and not item.payload]
        found: dict[str, Observed] = {}
        client, address = self._ports.client, self._address
        for at in range(0, len(bare), _CHECK_CALLS):
            try:
                for item in await client.items(*address, ids=bare[at : at + _CHECK_CALLS]):
                    found[item.id or ""] = _observed(item)
            except StanzaError as error:
                self._log.debug("cannot fetch payloads", reason=str(error))
        return [found.get(item.item, item) if not item.payload else item for item in items]

    async def _record_items(self, items: Sequence[Observed]) -> None:
        for at in range(0, len(items), _BATCH):
            offered = []
            for number, item in enumerate(items[at : at + _BATCH]):
                if number % _SLICE == 0:
                    await checkpoint()
                offered.append(self._interests.offer(item))
            await self._record(offered)

    async def _is_known(self) -> bool:
        return await self._ports.storage.read(lambda db: SourceRows(db, self._key).is_known())

    async def _was_missing(self) -> None:
        """Forget the items of a node that does not exist: later there can be another one."""
        self._missing_in_a_row += 1
        if self._missing_in_a_row == 2:
            await self._write(SourceRows.forget_items)
        if self._missing_in_a_row == 1:
            await self._write(lambda rows: rows.mark_known(()))
            self._log.info("there is no such node yet")

    @property
    def _address(self) -> tuple[JID, str, JID]:
        return self.source.service, self.source.node, self.source.subscriber


def _observed(item: Item | EventItem) -> Observed:
    payload = item.payloads[0].text if item.payloads else ""
    return observed_item(item.id, payload, item.publisher)


def _input_of(error: StanzaError) -> Input:
    match error.condition:
        case "item-not-found" | "gone":
            return "missing"
        case (
            "remote-server-timeout"
            | "remote-server-not-found"
            | "service-unavailable"
            | "recipient-unavailable"
            | "resource-constraint"
            | "internal-server-error"
        ):
            return "failed"
        case _:
            return "refused"
