"""Observes a node: subscribes to it, catches up with it, and records its events.

In each session the subscription is requested again, which every known service answers with the
existing one: so it does not matter whether the service, its server or this process has forgotten
it. Then missed items are listed, and notifications are handled. From time to time this is repeated,
because a service can delete a node, and create it again, without a notification (ejabberd's default
for `pubsub#notify_delete`).

Events are recorded in the order in which the node has them. While the source is caught up with,
notifications wait; they are handled after that, and items that were listed are not new.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Literal, TypeAlias

import anyio
import structlog
from anyio.lowlevel import checkpoint

from component.features.watches import rows as watch_rows
from component.features.watches.sources import (
    SourcePorts,
    SourceState,
    SourceStatus,
    SourceWatcher,
    backoff_s,
    is_set_within,
    observed_item,
)
from component.features.watches.watch import Observed, Source
from xep.jid import JID
from xep.pubsub import Item
from xep.pubsub_event import Event
from xep.pubsub_event import Item as EventItem
from xep.stanza_error import StanzaError

_log = structlog.get_logger("component.watches")

MOST_WAITING: Final = 20_000
"""Notifications of one source that wait in memory; with more, the node is listed again instead."""
_BATCH: Final = 500
"""Events that are recorded in one transaction."""
_SLICE: Final = 8
"""Events that are looked at before anything else may run."""
_CHECK_CALLS: Final = 50
"""Maximum number of ids for which payloads are requested in one IQ."""


Input: TypeAlias = Literal[
    "connected",
    "disconnected",
    "subscribed",
    "pending",
    "missing",
    "refused",
    "failed",
    "caught-up",
    "gone",
    "overflow",
    "due",
]
"""`gone`: a notification says that the node was deleted or the subscription ended. `overflow`: more
notifications came than can wait. `due`: the time of `SubscriptionMachine.delay_s` has passed."""

_RESULTS: Final[Mapping[Input, SourceState]] = {
    "pending": "pending",
    "missing": "missing",
    "refused": "refused",
    "failed": "failed",
}
_RETRIED: Final[Mapping[Input, SourceState]] = {"due": "subscribing", "gone": "subscribing"}

TABLE: Final[Mapping[SourceState, Mapping[Input, SourceState]]] = {
    "offline": {"connected": "subscribing"},
    "subscribing": {"subscribed": "catching-up", **_RESULTS},
    "catching-up": {"caught-up": "live", "gone": "missing", **_RESULTS},
    "live": {"due": "subscribing", "gone": "missing", "overflow": "catching-up"},
    "pending": {"subscribed": "catching-up", **_RETRIED},
    "missing": _RETRIED,
    "refused": _RETRIED,
    "failed": _RETRIED,
}
"""The next state by state and input. An input that a state does not name changes nothing; in every
state `disconnected` leads to `offline`, and `connected` to `subscribing`."""


class SubscriptionMachine:
    """The state of one subscription. `check_s` is the number of seconds after which a subscription
    is verified, and the longest time between two attempts. `failures` counts attempts in a row that
    did not lead to a subscription.
    """

    def __init__(self, check_s: float) -> None:
        self._check_s = check_s
        self.state: SourceState = "offline"
        self.failures = 0

    def advance(self, what: Input) -> SourceState:
        """Process an input; return the new state."""
        if what == "disconnected":
            self.state = "offline"
        elif what == "connected":
            self.state, self.failures = "subscribing", 0
        else:
            after = TABLE[self.state].get(what)
            if after is None:
                return self.state
            if what == "caught-up":
                self.failures = 0
            elif what in _RESULTS or after == "missing":
                self.failures += 1
            self.state = after
        return self.state

    @property
    def delay_s(self) -> float | None:
        """Seconds until the input `due`; None if nothing is due in this state."""
        if self.state in ("live", "pending", "refused"):
            return self._check_s
        if self.state in ("missing", "failed"):
            return backoff_s(self.failures, self._check_s)
        return None


class NodeWatcher(SourceWatcher):
    """Observes a node."""

    def __init__(self, source: Source, ports: SourcePorts) -> None:
        super().__init__(source, ports)
        self._subscription = SubscriptionMachine(ports.check_s)
        self._waiting: deque[Event] = deque()
        self._missing_in_a_row = 0
        self._reason = ""
        self._refusal = ""
        self._log = _log.bind(service=str(source.service), node=source.node)

    @property
    def status(self) -> SourceStatus:
        """The state of the source."""
        return SourceStatus(self._subscription.state, self._reason)

    def connected(self) -> None:
        """Subscribe in a new session."""
        self._waiting.clear()  # they are listed again
        self._advance("connected")

    def disconnected(self) -> None:
        """Stop observing: the session has ended."""
        self._advance("disconnected")

    def retry(self) -> None:
        """Try to subscribe again soon, because a permission may have changed."""
        self._advance("due")

    def observed(self, event: Event) -> None:
        """Handle a notification. Never waits."""
        if len(self._waiting) >= MOST_WAITING:
            self._waiting.clear()
            self._log.warning("too many notifications are waiting; the node is listed again")
            self._advance("overflow")
            return
        self._waiting.append(event)
        self._wake.set()

    async def run(self) -> None:
        """Observe the source until cancelled."""
        while True:
            self._wake = anyio.Event()
            state = self._subscription.state
            if state == "subscribing":
                self._advance(await self._attempt(self._subscribe))
            elif state == "catching-up":
                self._advance(await self._attempt(self._catch_up))
            elif self._waiting and state not in ("offline", "missing"):
                await self._handle_waiting()
            elif not await is_set_within(self._wake, self._subscription.delay_s):
                self._advance("due")

    async def unsubscribe(self) -> None:
        """End the subscription, because no watch needs it any more; a refusal is ignored."""
        if self._subscription.state == "offline":
            return
        try:
            await self._ports.client.unsubscribe(
                self.source.service, self.source.node, self.source.subscriber
            )
        except StanzaError as error:
            self._log.debug("cannot unsubscribe", reason=str(error))

    def _advance(self, what: Input) -> None:
        before = self._subscription.state
        after = self._subscription.advance(what)
        if after in ("live", "pending") and before != after:
            self._reason = self._refusal = ""
        if before != after:
            self._log.debug("source changed", state=after, reason=self._reason)
        self._wake.set()

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
            if self._refusal != self._reason:  # logged once, not at each attempt
                self._log.warning("a service refuses to be watched", reason=self._reason)
            self._refusal = self._reason
            self._reason = await self._ports.consent(self.source, refused=True) or self._reason
        return found

    async def _subscribe(self) -> Input:
        source = self.source
        refusal = await self._ports.consent(source)
        if refusal is not None:
            self._reason = refusal
            return "refused"
        if not await self._is_known():
            await self._note_first_items()
        granted = await self._ports.client.subscribe(source.service, source.node, source.subscriber)
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
        await self._ports.storage.write(
            lambda database: watch_rows.mark_known(database, self._key, items)
        )

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
                    await self._record_items(items)
                else:
                    first += items
        except StanzaError as error:
            if _input_of(error) != "refused":
                raise
            listed = None  # such as a node that stores no items
        if not is_known:
            await self._ports.storage.write(lambda db: watch_rows.mark_known(db, self._key, first))
        await self._ports.storage.write(lambda db: watch_rows.prune(db, self._key, listed))
        return "caught-up"

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
            await self._ports.storage.write(
                lambda db: watch_rows.forget_items(db, self._key, retracted)
            )
        elif self._waiting and not items:
            await self._handle_change(self._waiting.popleft())

    async def _handle_change(self, event: Event) -> None:
        if event.purge is not None or event.delete is not None:
            await self._ports.storage.write(lambda db: watch_rows.forget_items(db, self._key))
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
        return await self._ports.storage.read(lambda db: watch_rows.is_known(db, self._key))

    async def _was_missing(self) -> None:
        """Forget the items of a node that does not exist: later there can be another one."""
        self._missing_in_a_row += 1
        if self._missing_in_a_row == 2:
            await self._ports.storage.write(lambda db: watch_rows.forget_items(db, self._key))
        if self._missing_in_a_row == 1:
            await self._ports.storage.write(lambda db: watch_rows.mark_known(db, self._key, ()))
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
