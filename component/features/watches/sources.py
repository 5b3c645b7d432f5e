"""What the three kinds of observed sources have in common, and presence, the simplest of them."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Final, Generic, Literal, TypeAlias, TypeVar, get_args

import anyio
import msgspec
import structlog

from component.features.watches.events import Accepted, OfferedEvent, accept
from component.features.watches.filters import ItemFilter, chain_of, json_text, payload_text
from component.features.watches.rows import RetryingStorage, SourceRows
from component.features.watches.watch import EventData, Observed, Source, Watch
from component.kernel.kernel import Kernel
from component.pubsub.client import PubSubClient
from component.store.contacts import Subscription, SubscriptionState, SubscriptionStore
from component.store.errors import StorageError
from xep.binding import ContentError, RawXML
from xep.binding.escaping import escape_attribute, escape_text
from xep.jid import JID
from xep.stanza import Presence
from xep.tree import Tree, tree_and_digest, tree_of

_log = structlog.get_logger("component.watches")

T = TypeVar("T")
W = TypeVar("W")

MOST_WAITING: Final = 20_000
"""Changes of one source that wait in memory; with more, the source is read again instead."""
_LONGEST_TEXT: Final = 8_000
"""Maximum number of characters of a payload that work gets; more would fill a model's prompt."""

SourceState: TypeAlias = Literal[
    "offline",
    "subscribing",
    "catching-up",
    "live",
    "pending",
    "missing",
    "refused",
    "failed",
    "elsewhere",
]
"""`offline`: there is no session. `pending`: an owner has to approve it. `missing`: the node does
not exist. `refused`: the service denies it. `failed`: the service did not answer. `elsewhere`:
another instance observes it."""

_PUBLIC: Final = frozenset(("urn:xmpp:microblog:0",))
"""Nodes that are usually public, so that their owners are asked only if they are not."""


class SourceStatus(msgspec.Struct, frozen=True):
    """The state of a source's subscription, and the reason if it is not subscribed."""

    state: SourceState
    reason: str = ""


def _everybody(_source: Source, _person: JID) -> bool:
    return True


class Interests:
    """Selects the watches of a source that an event is for, and the parts that their work gets.
    `watches` are its watches, by id. Their filters were checked when they were defined. `may_see`
    returns whether a person may see the events of a source. Raises FilterError: a filter is
    invalid.
    """

    def __init__(
        self,
        source: Source,
        watches: Mapping[str, Watch],
        may_see: Callable[[Source, JID], bool] = _everybody,
    ) -> None:
        self._source = source
        self._may_see = may_see
        self.watches = dict(watches)
        self._filters = {id_: ItemFilter(one.where, one.json) for id_, one in watches.items()}

    def offer(self, observed: Observed) -> OfferedEvent:
        """Return an event with the ids of the watches whose filters accept it. Never raises."""
        payload = observed.tree
        interested = tuple(
            id_
            for id_, one in self._filters.items()
            if one.accepts(payload) and self._may_see(self._source, self.watches[id_].principal)
        )
        if not interested:
            return OfferedEvent(observed, (), b"")
        if chain := chain_of(payload):
            observed = msgspec.structs.replace(observed, chain=chain)
        data = EventData(
            service=str(self._source.service),
            node=self._source.node,
            item=observed.item,
            publisher=observed.publisher,
            text=payload_text(payload)[:_LONGEST_TEXT],
            payload=observed.payload[:_LONGEST_TEXT],
            json=_json(payload) if observed.json is None else observed.json,
        )
        return OfferedEvent(observed, interested, msgspec.json.encode(data))


def observed_item(item_id: str | None, payload: str, publisher: str | None) -> Observed:
    """Return an item as an event."""
    tree, version = None, sha256(payload.encode()).hexdigest()[:32]
    if payload:
        try:
            tree, version = tree_and_digest(RawXML(payload))
        except ContentError as error:
            _log.debug("a payload is not XML", item=item_id, reason=str(error))
    return Observed(
        item=item_id or "", version=version, payload=payload, tree=tree, publisher=publisher or ""
    )


def _json(payload: Tree | None) -> msgspec.Raw:
    text = json_text(payload)
    if text is None or len(text) > _LONGEST_TEXT:
        return msgspec.Raw(b"null")
    try:
        return msgspec.Raw(msgspec.json.encode(msgspec.json.decode(text)))
    except (msgspec.DecodeError, RecursionError):
        return msgspec.Raw(b"null")


class Consent:
    """Asks people for permission to observe their nodes and their presence.

    The nodes of an account (XEP-0163) and its presence are watched only if its owner lets the agent
    see the account's presence (RFC 6121 §3.1): clients ask people for that, remember it, and let
    them withdraw it at any time. The agent asks once.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._subscriptions = SubscriptionStore(kernel.storage)

    async def __call__(self, source: Source, *, refused: bool = False) -> str | None:
        """Return why a source must not be watched, as a sentence; None if it may be. `refused` says
        that the service has refused the source, even if it is usually public.
        """
        person, agent = source.service.bare, source.subscriber
        if person.local is None or self._kernel.stream.addresses.is_own(person):
            return None
        if source.node in _PUBLIC and not refused:
            return None
        try:
            known = await self._subscriptions.get(agent, person)
            if known is not None and known.state in ("to", "both"):
                return None
            if known is None or not known.ask:
                if not self._kernel.contacts.may_write(agent, person):
                    return f"{person} does not want to be contacted."
                state: SubscriptionState = "none" if known is None else known.state
                await self._subscriptions.put(Subscription(agent, person, state, ask=True))
                self._kernel.stream.send(Presence(type="subscribe", from_=agent, to=person))
        except StorageError as error:
            return str(error)
        return f"{person} has not allowed {agent} to see their presence yet."


class SourcePorts(msgspec.Struct, frozen=True, kw_only=True):
    """The objects that the watchers of sources use. `recorded` is called with the outcome of each
    transaction that recorded events. Events that at least `max_hops` agents have led to are not
    handled. A subscription is verified every `check_s` seconds. `may_see` returns whether a person
    may see the events of a source.
    """

    client: PubSubClient
    storage: RetryingStorage
    recorded: Callable[[Accepted], None]
    consent: Consent
    max_hops: int
    check_s: float
    may_see: Callable[[Source, JID], bool] = _everybody


Result: TypeAlias = Literal["pending", "missing", "refused", "failed", "elsewhere"]
"""Why a source is not observed."""
Progress: TypeAlias = Literal["connected", "disconnected", "subscribed", "joined", "caught-up"]
Input: TypeAlias = Literal["gone", "overflow", "due"] | Progress | Result
"""`joined`: the agent is in the room, and knows who else is. `gone`: a notification says that the
node was deleted or the subscription ended. `overflow`: more notifications came than can wait.
`due`: the time of `SubscriptionMachine.delay_s` has passed."""

_RESULTS: Final[Mapping[Input, SourceState]] = {each: each for each in get_args(Result)}
_ANY: Final[Mapping[Input, SourceState]] = {"joined": "live", **_RESULTS}
_RETRIED: Final[Mapping[Input, SourceState]] = {**_ANY, "due": "subscribing", "gone": "subscribing"}

TABLE: Final[Mapping[SourceState, Mapping[Input, SourceState]]] = {
    "offline": {"connected": "subscribing"},
    "subscribing": {**_ANY, "subscribed": "catching-up"},
    "catching-up": {**_RESULTS, "caught-up": "live", "gone": "missing"},
    "live": {**_RESULTS, "due": "subscribing", "gone": "missing", "overflow": "catching-up"},
    "pending": {**_RETRIED, "subscribed": "catching-up"},
    "missing": _RETRIED,
    "refused": _RETRIED,
    "failed": _RETRIED,
    "elsewhere": _RETRIED,
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
            if what in ("caught-up", "joined"):
                self.failures = 0
            elif what in _RESULTS or after == "missing":
                self.failures += 1
            self.state = after
        return self.state

    @property
    def delay_s(self) -> float | None:
        """Seconds until the input `due`; None if nothing is due in this state."""
        if self.state in ("live", "pending", "refused", "elsewhere"):
            return self._check_s
        if self.state in ("missing", "failed"):
            return backoff_s(self.failures, self._check_s)
        return None


class SourceWatcher(Generic[W]):
    """Observes one source. Only `run` and `unsubscribe` wait. `_waiting` are the changes that were
    reported and not recorded yet.
    """

    _after_overflow: Input = "overflow"

    def __init__(self, source: Source, ports: SourcePorts) -> None:
        self.source = source
        self._ports = ports
        self._key = source.key
        self._interests = Interests(source, {}, ports.may_see)
        self._wake = anyio.Event()
        self._subscription = SubscriptionMachine(ports.check_s)
        self._waiting: deque[W] = deque()
        self._reason = ""
        self._said = ""
        self._log = _log.bind(service=str(source.service), node=source.node)

    @property
    def status(self) -> SourceStatus:
        """The state of the source."""
        return SourceStatus(self._subscription.state, self._reason)

    def set_watches(self, watches: Mapping[str, Watch]) -> None:
        """Offer events to these watches from now on. Raises FilterError."""
        self._interests = Interests(self.source, watches, self._ports.may_see)

    def connected(self) -> None:
        """Observe the source in a new session."""
        self._waiting.clear()  # what the source has is read again
        self._advance("connected")

    def disconnected(self) -> None:
        """Stop observing: the session has ended."""
        self._advance("disconnected")

    def retry(self) -> None:
        """Try again soon, because the owner of an account may have granted permission."""

    async def run(self) -> None:
        """Observe the source until cancelled."""
        while True:
            self._wake = anyio.Event()
            await self._step()

    async def _step(self) -> None:
        """Do the next thing, or wait for one to do."""
        raise NotImplementedError

    async def unsubscribe(self) -> None:
        """Stop observing, because no watch needs the source any more."""

    async def _write(self, op: Callable[[SourceRows], T]) -> T:
        return await self._ports.storage.write(lambda db: op(SourceRows(db, self._key)))

    def _put(self, change: W) -> None:
        if len(self._waiting) >= MOST_WAITING:
            self._waiting.clear()
            self._log.warning("too many changes are waiting; the source is read again")
            self._advance(self._after_overflow)
            return
        self._waiting.append(change)
        self._wake.set()

    def _advance(self, what: Input) -> None:
        before = self._subscription.state
        after = self._subscription.advance(what)
        if before != after:
            if after in ("live", "pending"):
                self._reason = self._said = ""
            self._log.debug("source changed", state=after, reason=self._reason)
        self._wake.set()

    def _warn_once(self, text: str) -> None:
        """Log why the source is not observed: once, and not at each attempt."""
        if self._said != self._reason:
            self._log.warning(text, reason=self._reason)
        self._said = self._reason

    async def _record(
        self,
        offered: Callable[[SourceRows], Sequence[OfferedEvent] | None] | Sequence[OfferedEvent],
    ) -> None:
        """Record events, or those that a function returns in the transaction; None for nothing."""
        watches, max_hops = self._interests.watches, self._ports.max_hops

        def op(rows: SourceRows) -> Accepted | None:
            found = offered(rows) if callable(offered) else offered
            return None if found is None else accept(rows, found, watches, max_hops)

        accepted = await self._write(op)
        if accepted is not None:
            self._ports.recorded(accepted)


def backoff_s(failures: int, most: float) -> float:
    """Return the seconds until the next attempt after so many failures in a row."""
    return min(most, float(1 << min(max(failures, 1) - 1, 16)))


async def is_set_within(event: anyio.Event, seconds: float | None) -> bool:
    """Wait for an event, at most so many seconds; return whether it is set. An event that is set
    while the time ends, in the same pass of the event loop, is set: so do not ask the cancel scope.
    None waits for as long as it takes.
    """
    with anyio.move_on_after(seconds):
        await event.wait()
    return event.is_set()


Availability: TypeAlias = Literal["chat", "online", "away", "xa", "dnd", "offline"]
"""The state of an account: that of its most available client (RFC 6121 §4.7.2.1)."""

_ORDER: Final[tuple[Availability, ...]] = ("chat", "online", "dnd", "away", "xa", "offline")
_SETTLE_S: Final = 3.0
"""Seconds after a probe in which the clients of an account answer; without any it is offline."""
_GATHER_S: Final = 0.5
"""Seconds after the answer of the first client in which the other clients answer: the state of the
account is known only then."""


class PresenceWatcher(SourceWatcher[None]):
    """Observes the presence of an account: whether it is online, and the state its clients show.

    Presence is not stored anywhere: after each connect the account is probed (RFC 6121 §4.3), and a
    state that differs from the last one that was recorded is an event. A state that the account had
    and left while there was no session is not noticed.
    """

    def __init__(self, source: Source, ports: SourcePorts, probe: Callable[[Source], None]) -> None:
        super().__init__(source, ports)
        self._probe = probe
        self._clients: dict[JID, tuple[Availability, str]] = {}
        self._session = object()

    def connected(self) -> None:
        """Observe the account in a new session."""
        self._session = object()
        self._clients.clear()
        super().connected()

    def retry(self) -> None:
        """Ask again, because the account has granted permission to see its presence."""
        self.connected()

    def shown(self, client: JID, availability: Availability, status: str) -> None:
        """Note the presence of a client of the account. Presence that arrives without permission is
        ignored: servers report accounts as offline to contacts that may not see them.
        """
        if self._reason or self._subscription.state == "offline":
            return
        if availability == "offline" and client.resource is None:
            self._clients.clear()
        elif availability == "offline":
            self._clients.pop(client, None)
        else:
            self._clients[client] = availability, status
        self._wake.set()

    async def _step(self) -> None:
        state = self._subscription.state
        if state == "subscribing":
            await self._ask()
        elif state == "live":
            await self._record_state()
            await is_set_within(self._wake, self._ports.check_s)
        elif not await is_set_within(self._wake, self._subscription.delay_s):
            self._advance("due")

    async def _ask(self) -> None:
        session = self._session
        self._reason = await self._ports.consent(self.source) or ""
        if not self._reason:
            self._probe(self.source)
            with anyio.move_on_after(_SETTLE_S):
                await self._wake.wait()
                await anyio.sleep(_GATHER_S)
        if self._session is session:  # otherwise the account has to be asked again
            self._advance("refused" if self._reason else "joined")

    async def _record_state(self) -> None:
        availability, status = min(
            self._clients.values(), key=lambda each: _ORDER.index(each[0]), default=("offline", "")
        )
        item = str(self.source.service.bare)
        payload = (
            f"<presence xmlns='jabber:client' from='{escape_attribute(item)}'"
            f" show='{availability}'>{escape_text(status)}</presence>"
        )
        observed = Observed(
            item=item, version=availability, payload=payload, tree=tree_of(RawXML(payload))
        )
        offered = [self._interests.offer(observed)]

        def changed(rows: SourceRows) -> Sequence[OfferedEvent] | None:
            if rows.is_known():
                return offered
            rows.mark_known([observed])
            return None

        await self._record(changed)
        _log.debug("a person's presence is known", person=item, show=availability)
