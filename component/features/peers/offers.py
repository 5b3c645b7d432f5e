"""The skills that peers offer: known from the last time at once, and fetched anew when they change.

What a peer has offered last is a row, so its skills are there before the connection is. A peer
notifies this service of changes at its PubSub node of skills, as far as it has one. Each peer is
also asked when what it has said is no longer sure: in a new session, and after its ttl. It answers
`unchanged` in one IQ if nothing has changed.
"""

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import Final

import anyio
import structlog
from anyio.abc import TaskGroup, TaskStatus
from anyio.lowlevel import checkpoint

from component import system
from component.agent_addresses import canonical_address
from component.config.peers import Peer
from component.features.peers import rows
from component.features.peers.calls import PeerCalls
from component.features.peers.catalogue import Described, PeerCatalogue, described, packed
from component.features.peers.rows import Offered
from component.kernel.kernel import Kernel
from component.pubsub.client import PubSubClient
from component.skills.sources import Offer
from component.store.errors import StorageError
from component.store.outages import log_failure
from xep.fluux_agent.skills import NAMESPACE as SKILLS
from xep.fluux_agent.skills import SkillsQuery
from xep.jid import JID
from xep.pubsub_event import Event
from xep.result_sets import ResultSet
from xep.stanza_error import StanzaError

_log = structlog.get_logger("component.features.peers")

LAPSE_S: Final = 86_400
"""Seconds after the ttl for which the skills stay of a peer that does not answer."""
_LEAST_TTL_S: Final = 60
_LONGEST_TTL_S: Final = 86_400
_PAGE: Final = 50
_MOST_PAGES: Final = 200
_MOST_BYTES: Final = 4 * 1024 * 1024
"""The maximum size of all descriptions of a peer."""
_ATTEMPTS: Final = 3
_AT_ONCE: Final = 16
"""Peers that are asked at the same time."""
_FAILING_AT_ONCE: Final = 8
"""Of these, peers that have not answered the last time."""
_PER_S: Final = 20
"""Peers that are asked each second in a new session."""
_FIRST_WAIT_S: Final = 5.0
_LONGEST_WAIT_S: Final = 600.0
_SUBSCRIBED_S: Final = 86_400.0
"""Seconds after which a subscription is renewed, or asked for again."""
_SETTLE_S: Final = 1.0
"""Seconds after a notification, since others usually follow, until the peer is asked."""
_LEAST_BETWEEN_S: Final = 10.0
"""Seconds between two requests that notifications cause."""
_MOST_NAMED: Final = 20
_REFUSALS: Final = frozenset(
    ("forbidden", "not-allowed", "not-authorized", "registration-required", "service-unavailable")
)
"""What a peer answers to a service that it does not serve. Those of type `wait` are something
else: its server says so while the peer is away.
"""


class _ListError(Exception):
    """A peer does not list its skills as it should."""


class _Known:
    """What is known of a peer. Times are those of the event loop.

    Attributes:
        offered: what it has offered last.
        catalogue: the same, if it is offered here.
        due: when it is asked next.
        lapses: when its skills are no longer offered unless it answers.
        subscribed_until: until when no subscription is asked for.
        is_refused: whether it does not serve this service.
    """

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.address = JID.parse(peer.jid)
        self.offered: Offered | None = None
        self.catalogue: PeerCatalogue | None = None
        self.due = 0.0
        self.lapses = 0.0
        self.subscribed_until = 0.0
        self.asked_at = 0.0
        self.wait = _FIRST_WAIT_S
        self.is_asking = False
        self.is_refused = False

    @property
    def is_failing(self) -> bool:
        """Whether it has not answered the last time."""
        return self.wait > _FIRST_WAIT_S

    @property
    def has_lapsed(self) -> bool:
        """Whether its skills are not offered because it does not answer."""
        return self.offered is not None and self.catalogue is None


class PeerSkills:
    """The source of the skills of all peers. Each peer is a part of it.

    Args:
        before: the source whose place this one takes. What is known of peers stays, as far as
            their settings have not changed.

    Attributes:
        known: what is known of the peers, by their names.
    """

    name = "peers"

    def __init__(
        self,
        kernel: Kernel,
        peers: Sequence[Peer],
        calls: PeerCalls,
        before: "PeerSkills | None" = None,
    ) -> None:
        self._kernel = kernel
        self._calls = calls
        self._client = PubSubClient(kernel.stream.call_optional)
        self._before: dict[str, _Known] = {} if before is None else before.known
        self.known: dict[str, _Known] = {
            peer.name: self._known_of(peer) for peer in peers if peer.skills
        }
        self._by_address = {canonical_address(one.address): one for one in self.known.values()}
        self._is_connected = kernel.stream.is_connected()
        self._agenda: list[tuple[float, int, _Known]] = []
        """A heap of peers by the times at which they are due; some are due at other times now."""
        self._number = count()
        self._asking = self._failing = 0
        """Peers that are being asked, and those of them that have not answered the last time."""
        self._changed = anyio.Event()
        self._offer: Offer

    def _known_of(self, peer: Peer) -> _Known:
        known = self._before.get(peer.name)
        return known if known is not None and known.peer == peer else _Known(peer)

    # The session, and notifications.

    def connected(self) -> None:
        """Ask all peers, since notifications may have been lost; many of them one after another."""
        if self._is_connected:
            return  # the session of the source whose place this one has taken
        self._is_connected = True
        now, spread = anyio.current_time(), len(self.known) // _PER_S
        for known in self.known.values():
            self._schedule(known, now + spread * system.random())

    def disconnected(self) -> None:
        """Ask nobody while there is no session."""
        self._is_connected = False

    def is_service(self, address: JID) -> bool:
        """Return whether a bare JID is an address of a peer."""
        return canonical_address(address) in self._by_address

    def notified(self, subscriber: JID, service: JID, event: Event) -> None:
        """Ask a peer soon: what it offers has changed, or the subscription has ended."""
        known = self._by_address.get(canonical_address(service))
        parts = (event.items, event.purge, event.configuration, event.delete, event.subscription)
        part = next((one for one in parts if one is not None), None)
        if known is None or part is None or part.node != SKILLS or subscriber != self._sender():
            return
        if part is event.delete or part is event.subscription:
            known.subscribed_until = 0.0
        self._ask_soon(known)

    def outdated(self, peer: str) -> None:
        """Ask a peer soon, because it does not know a skill that it has offered."""
        known = self.known.get(peer)
        if known is not None:
            self._ask_soon(known)

    def _ask_soon(self, known: _Known) -> None:
        now = anyio.current_time()
        # All who are notified of a change would ask at the same moment.
        soon = max(now + _SETTLE_S * (1 + system.random()), known.asked_at + _LEAST_BETWEEN_S)
        if soon < known.due:
            self._schedule(known, soon)

    def warnings(self) -> Sequence[str]:
        """Return a sentence about peers whose skills are not offered any more."""
        found = []
        lapsed = [name for name, one in self.known.items() if one.has_lapsed]
        if lapsed:
            found.append(
                "Agents that have not said for over a day what they offer, so their skills are not"
                f" offered here: {_some(lapsed)}."
            )
        refused = [name for name, one in self.known.items() if one.is_refused]
        if refused:
            found.append(
                f"Agents that do not serve this one: {_some(refused)}. Their admins have to name"
                " the address of this service in a [[peer]]."
            )
        return found

    # The source.

    async def run(self, offer: Offer, *, task_status: TaskStatus[None]) -> None:
        """Offer the skills of the peers until cancelled."""
        self._offer = offer
        stored, steady = await self._kernel.storage.read(rows.offered)
        for name, known in self.known.items():
            if known is self._before.get(name):
                if known.catalogue is not None:
                    known.catalogue.calls = self._calls
                known.is_asking = False
                continue
            given = stored.get(name)
            if given is not None and given.address == known.peer.jid:
                known.offered = given
                left = (given.expires - steady) / 1000 + LAPSE_S
                known.lapses = anyio.current_time() + left
            self._offer_known(known)
        for name in self._before.keys() - self.known.keys():
            offer((), name)
        self._before = self.known
        for known in self.known.values():
            self._schedule(known, known.due)
        task_status.started()
        gone = stored.keys() - self.known.keys()
        if gone:
            await self._forget(gone)
        async with anyio.create_task_group() as group:
            while True:
                self._changed = anyio.Event()
                with anyio.move_on_after(self._step(group) - anyio.current_time()):
                    await self._changed.wait()

    def _schedule(self, known: _Known, due: float) -> None:
        known.due = due
        heappush(self._agenda, (due, next(self._number), known))
        self._changed.set()

    def _step(self, group: TaskGroup) -> float:
        """Ask peers that are due, not too many at a time; return when the next one is due."""
        now = anyio.current_time()
        while self._agenda and self._is_connected and self._asking < _AT_ONCE:
            due, _, known = self._agenda[0]
            if due > now:
                return due
            heappop(self._agenda)
            if due != known.due or known.is_asking:
                continue
            if known.is_failing and self._failing >= _FAILING_AT_ONCE:
                self._schedule(known, now + _FIRST_WAIT_S)
                continue
            group.start_soon(self._ask, known, known.is_failing)
            known.is_asking = True
            self._asking += 1
            self._failing += known.is_failing
        return float("inf")

    def _offer_known(self, known: _Known) -> None:
        """Offer what a peer has offered last, unless that is too long ago."""
        known.catalogue = None
        given = known.offered
        if given is not None and known.lapses > anyio.current_time():
            known.catalogue = PeerCatalogue(known.peer, given.skills, self._calls)
        catalogue = known.catalogue
        self._offer(() if catalogue is None else catalogue.listed(), known.peer.name)

    def _lapse(self, known: _Known) -> None:
        self._offer_known(known)
        _log.warning(
            "the skills of a peer are no longer offered, because it does not say any more what it"
            " offers",
            peer=known.peer.name,
            address=known.peer.jid,
        )

    # Requests.

    async def _ask(self, known: _Known, was_failing: bool) -> None:
        """Ask a peer what it offers, and offer that."""
        delay = known.wait
        known.asked_at, known.due = anyio.current_time(), float("inf")
        try:
            await self._subscribe(known)
            ttl = await self._fetch(known)
        except (StanzaError, StorageError, _ListError) as error:
            if isinstance(error, StanzaError) and _is_refusal(error):
                await self._refused(known)
            log_failure(_log, "a peer does not say what it offers", error, peer=known.peer.name)
            self._failed(known)
        except Exception:  # noqa: BLE001 - what one peer says must not end the source of all
            _log.exception("what a peer offers cannot be read", peer=known.peer.name)
            self._failed(known)
        else:
            known.wait, known.is_refused = _FIRST_WAIT_S, False
            delay = ttl
        finally:
            known.is_asking = False
            self._asking -= 1
            self._failing -= was_failing
            # Many are not asked in the same second.
            due = anyio.current_time() + delay * (0.75 + system.random() / 4)
            self._schedule(known, min(known.due, due))

    def _failed(self, known: _Known) -> None:
        known.wait = min(known.wait * 2, _LONGEST_WAIT_S)
        if known.catalogue is not None and known.lapses <= anyio.current_time():
            self._lapse(known)

    async def _subscribe(self, known: _Known) -> None:
        """Subscribe to the node of skills. Raises StanzaError: the peer does not answer."""
        if known.subscribed_until > anyio.current_time():
            return
        try:
            await self._client.subscribe(known.address, SKILLS, self._sender())
        except StanzaError as error:
            if error.type == "wait" or error.condition.startswith("remote-server"):
                raise
            # It has no such node, or permits no subscription: it is asked after its ttl.
            _log.debug("no subscription to a peer", peer=known.peer.name, reason=str(error))
        known.subscribed_until = anyio.current_time() + _SUBSCRIBED_S

    async def _fetch(self, known: _Known) -> float:
        """Offer what a peer offers now; return the seconds until it is to be asked again. Raises
        StanzaError, StorageError, _ListError.
        """
        peer, storage = known.peer, self._kernel.storage
        for _ in range(_ATTEMPTS):
            version = "" if known.offered is None else known.offered.version
            answer = await self._query(known, version)
            ttl = min(max(answer.ttl or 0, _LEAST_TTL_S), _LONGEST_TTL_S)
            if answer.unchanged and known.offered is not None:
                given = known.offered
                known.offered = await storage.write(
                    lambda db: rows.still_offered(db, given, ttl)  # noqa: B023 - runs at once
                )
            else:
                found = await self._pages(known, answer)
                if found is None:
                    continue
                new = Offered(peer.name, peer.jid, answer.version or "", 0, packed(found))
                known.offered = await storage.write(
                    lambda db: rows.offer(db, new, ttl)  # noqa: B023 - runs at once
                )
                known.catalogue = None
                _log.info("a peer offers skills", peer=peer.name, count=len(found))
            known.lapses = anyio.current_time() + ttl + LAPSE_S
            if known.catalogue is None:
                self._offer_known(known)
            return ttl
        raise _ListError("Its skills change faster than it can list them.")

    async def _pages(self, known: _Known, answer: SkillsQuery) -> dict[str, Described] | None:
        """Return all skills that can be used, by their names, from the first page on; None if they
        have changed meanwhile. Raises StanzaError, _ListError.
        """
        found: dict[str, Described] = {}
        version, listed, size = answer.version, 0, 0
        for _ in range(_MOST_PAGES):
            for said in answer.skills:
                made = described(known.peer, said)
                if made is not None and made.name not in found:
                    found[made.name] = made
                    size += len(made.text) + len(made.searched)
                await checkpoint()
            if size > _MOST_BYTES:
                raise _ListError(f"The descriptions of its skills have over {_MOST_BYTES} bytes.")
            listed += len(answer.skills)
            page = answer.page
            if not answer.skills or page is None or page.last is None or listed == page.count:
                return found
            answer = await self._query(known, "", page.last)
            if answer.version != version:
                return None
        raise _ListError(f"Its skills have over {_MOST_PAGES} pages.")

    async def _query(self, known: _Known, version: str, after: str | None = None) -> SkillsQuery:
        page = ResultSet(max=_PAGE, after=after)
        query = SkillsQuery(version=version or None, schemas=True, page=page)
        return await self._kernel.stream.get(known.address, query, SkillsQuery, self._sender())

    async def _refused(self, known: _Known) -> None:
        """Offer nothing of a peer that does not serve this service."""
        known.is_refused = True
        known.subscribed_until = 0.0
        if known.offered is None:
            return
        known.offered = None
        self._offer_known(known)
        await self._forget((known.peer.name,))

    async def _forget(self, peers: Iterable[str]) -> None:
        try:
            await self._kernel.storage.write(lambda db: rows.not_offered(db, peers))
        except StorageError as error:
            log_failure(_log, "cannot forget what peers have offered", error)

    def _sender(self) -> JID:
        return self._kernel.stream.addresses.address_of("assistant")


def _is_refusal(error: StanzaError) -> bool:
    return error.condition in _REFUSALS and error.type != "wait"


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(sorted(names)[:_MOST_NAMED])
    return shown if len(names) <= _MOST_NAMED else f"{shown} and {len(names) - _MOST_NAMED} more"
