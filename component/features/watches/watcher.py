"""All watches of a service: observes the sources that they need, and starts their work."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import anyio
import structlog
from anyio.abc import TaskGroup, TaskStatus
from anyio.lowlevel import checkpoint

from component.features.watches import rows as watch_rows
from component.features.watches import sources
from component.features.watches.events import Accepted, WatchStarts
from component.features.watches.filters import FilterError, with_chain
from component.features.watches.node_watcher import NodeWatcher
from component.features.watches.room_watcher import USER, RoomWatcher
from component.features.watches.rows import RetryingStorage, noted_chain
from component.features.watches.settings import LIMITS
from component.features.watches.watch import PRESENCE, ROOM, Source, Watch
from component.kernel.kernel import Kernel
from component.pubsub.client import PubSubClient
from component.skills.context import Context
from component.store.database import Database
from component.store.errors import StorageError
from component.store.outages import log_failure
from xep.binding import RawXML
from xep.jid import JID
from xep.pubsub import Item
from xep.pubsub_event import Event
from xep.stanza import Presence

_log = structlog.get_logger("component.watches")

_CLOSE_S: Final = 5.0


class Watcher:
    """Observes the sources of all watches, and starts the work of their events. `configured` are
    the watches in the settings; those of people are in the database.
    """

    def __init__(self, kernel: Kernel, configured: Sequence[Watch]) -> None:
        self._kernel = kernel
        self._storage = kernel.storage
        self._retrying = RetryingStorage(kernel.storage)
        self._configured = tuple(configured)
        limits, stream = kernel.settings[LIMITS], kernel.stream
        self._client = PubSubClient(stream.call_optional)
        self._ports = sources.SourcePorts(
            client=self._client,
            storage=self._retrying,
            recorded=self._recorded,
            consent=sources.Consent(kernel),
            max_hops=limits.max_hops,
            check_s=limits.check_s,
            may_see=self._may_see,
        )
        self._watches: dict[str, Watch] = {}
        self._source_of: dict[str, Source] = {}
        self._sources: dict[Source, sources.SourceWatcher[Any]] = {}
        self._scopes: dict[Source, anyio.CancelScope] = {}
        self._services: frozenset[JID] = frozenset()
        self._starts = WatchStarts(kernel.starter, self._retrying, self._watches.get)
        self._group: TaskGroup | None = None
        self._reloading = anyio.Lock()
        self._is_connected = False

    # Lifecycle.

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Observe and start until cancelled. Raises StorageError before it has started."""
        await self._storage.write(self._put_configured)
        async with (
            self._storage.listen(watch_rows.CHANNEL) as notified,
            anyio.create_task_group() as group,
        ):
            self._group = group
            await self.reload()
            self._leave_others()
            needed = {source.key for source in self._sources}
            await self._storage.write(lambda database: watch_rows.keep_sources(database, needed))
            group.start_soon(self._starts.run)
            task_status.started()
            async for _ in notified:
                try:
                    await self.reload()
                except StorageError as error:
                    log_failure(_log, "cannot read the watches again", error)
            await anyio.sleep_forever()

    def connected(self) -> None:
        """Subscribe in a new session. Never waits."""
        self._is_connected = True
        for source in self._sources.values():
            source.connected()

    async def subscribe_again(self) -> None:
        """Subscribe again, and catch up with what was missed."""
        if self._is_connected:
            self.connected()
        await checkpoint()

    def disconnected(self) -> None:
        """Stop observing: the session has ended. Never waits."""
        self._is_connected = False
        for source in self._sources.values():
            source.disconnected()

    def task_ended(self, task: str) -> None:
        """Note that a task has ended on this instance. Never waits."""
        self._starts.task_ended(task)

    # Events and presence, from the handlers.

    def is_service(self, address: JID) -> bool:
        """Return whether a source at this address is watched."""
        return address.bare in self._services

    def notified(self, subscriber: JID, service: JID, event: Event) -> None:
        """Handle a notification that `service` has sent to `subscriber`."""
        found = self._sources.get(Source(subscriber, service, _node_of(event)))
        if isinstance(found, NodeWatcher):
            found.observed(event)

    def shown(
        self, subscriber: JID, client: JID, availability: sources.Availability, status: str
    ) -> None:
        """Handle the presence of a client of an account."""
        found = self._sources.get(Source(subscriber, client.bare, PRESENCE))
        if isinstance(found, sources.PresenceWatcher):
            found.shown(client, availability, status)

    async def publish(
        self, context: Context, to: tuple[JID, str], payload: RawXML, item: str | None
    ) -> str | None:
        """Publish an item at a node of a service for a skill, with the agents whose work has led to
        it; return its id. Raises StanzaError, StorageError.
        """
        agent = self._kernel.stream.addresses.address_of(context.agent)
        chain = await self._storage.read(lambda db: noted_chain(db, context.trace))
        return await self._client.publish(
            *to, Item(id=item or None, payloads=(with_chain(payload, agent, chain),)), agent
        )

    def granted(self, agent: JID, person: JID) -> None:
        """Note that a person has let an agent see their presence."""
        for source, watcher in self._sources.items():
            if (source.subscriber, source.service) == (agent, person):
                watcher.retry()

    def features(self) -> tuple[str, ...]:
        """Return the features that ask accounts to send their events (XEP-0163 §6)."""
        return tuple(sorted(f"{node}+notify" for node in self._account_nodes()))

    # Definitions.

    def status(self, watch: Watch) -> sources.SourceStatus:
        """Return the state of the source of a watch."""
        source = self._source_of.get(watch.id)
        found = None if source is None else self._sources.get(source)
        return sources.SourceStatus("offline") if found is None else found.status

    def source_of(self, watch: Watch) -> Source:
        """Return the source that a watch observes. An account is observed from the address that
        its owner knows, so that the agent does not ask for a second subscription.
        """
        source = Source(
            self._kernel.stream.addresses.address_of(watch.agent), watch.service, watch.node
        )
        if source.is_of_account or source.is_presence:
            known = self._kernel.contacts.address_of(watch.agent, watch.service, watch.at)
            return source._replace(subscriber=known)
        return source

    def is_own(self, service: JID) -> bool:
        """Return whether the nodes of an address are our own, all of which the agent may read."""
        kernel = self._kernel
        return kernel.disco.has_pubsub and kernel.stream.addresses.is_own(service)

    async def may_read(self, service: JID, node: str, person: JID) -> bool:
        """Return whether a person may read a node of our own. Raises StorageError."""
        return await self._kernel.pubsub.may_read(service, node, person)

    def _may_see(self, source: Source, person: JID) -> bool:
        if not self.is_own(source.service):
            return True
        return self._kernel.pubsub.may_see(source.service, source.node, person.bare)

    async def reload(self) -> None:
        """Observe what the watches in the database need. Raises StorageError."""
        async with self._reloading:  # otherwise an older state could replace a newer one
            self._apply(await self._storage.read(watch_rows.rows))

    def _apply(self, rows: Sequence[watch_rows.WatchRow]) -> None:
        self._watches.clear()
        self._watches.update({row.watch.id: row.watch for row in rows})
        self._source_of.clear()
        chosen: dict[str, Source] = {}  # an agent observes a source from one of its addresses
        for watch in self._watches.values():
            source = self.source_of(watch)
            self._source_of[watch.id] = chosen.setdefault(source.key, source)
        wanted: dict[Source, dict[str, Watch]] = {}
        for id_, source in self._source_of.items():
            wanted.setdefault(source, {})[id_] = self._watches[id_]
        before = self._account_nodes()
        for source in self._sources.keys() - wanted.keys():
            self._drop(source)
        for source, watches in wanted.items():
            self._keep(source, watches)
        self._services = frozenset(source.service.bare for source in self._sources)
        if self._account_nodes() != before:
            self._kernel.stream.features_changed()

    def _leave_others(self) -> None:
        """Leave the rooms that the settings before have named."""
        for one in self._kernel.rooms:
            if Source(one.address.bare, one.room, ROOM) not in self._sources:
                self._kernel.rooms.leave(one.address, one.room, USER)

    def _put_configured(self, database: Database) -> None:
        names = {watch.id for watch in self._configured}
        for row in watch_rows.rows(database, ""):
            if row.watch.id not in names:
                watch_rows.remove(database, row.watch.id)
        for watch in self._configured:
            watch_rows.put(database, watch)

    def _keep(self, source: Source, watches: Mapping[str, Watch]) -> None:
        found = self._sources.get(source)
        is_new = found is None
        if found is None:
            found = self._sources[source] = self._made(source)
            scope = self._scopes[source] = anyio.CancelScope()
            assert self._group is not None, "it runs"
            self._group.start_soon(_run_in, scope, found)
        try:
            found.set_watches(watches)
        except FilterError as error:  # written by a release that knows other filters
            _log.error("a watch has an invalid filter", node=source.node, reason=str(error))
        if is_new and self._is_connected:
            found.connected()

    def _made(self, source: Source) -> sources.SourceWatcher[Any]:
        if source.is_presence:
            return sources.PresenceWatcher(source, self._ports, self._probe)
        if source.is_room:
            return RoomWatcher(source, self._ports, self._kernel.rooms)
        return NodeWatcher(source, self._ports)

    def _drop(self, source: Source) -> None:
        watcher = self._sources.pop(source)
        self._scopes.pop(source).cancel()
        assert self._group is not None, "it runs"
        self._group.start_soon(self._forget, source, watcher)

    async def _forget(self, source: Source, watcher: sources.SourceWatcher[Any]) -> None:
        with anyio.move_on_after(_CLOSE_S):
            await watcher.unsubscribe()
        if any(source.key == other.key for other in self._sources):
            return  # it is observed from the agent's other address now
        await self._retrying.write(
            lambda database: watch_rows.SourceRows(database, source.key).forget()
        )

    def _send(self, presence: Presence) -> None:
        self._kernel.stream.send(presence)
        self._kernel.stream.flush()

    def _probe(self, source: Source) -> None:
        self._send(Presence(type="probe", from_=source.subscriber, to=source.service))

    def _account_nodes(self) -> frozenset[str]:
        return frozenset(
            source.node
            for source in self._sources
            if source.is_of_account and not self.is_own(source.service)
        )

    def _alert(self, watch: Watch, sentence: str) -> None:
        contacts = self._kernel.contacts
        if watch.owner:
            agent = contacts.address_of(watch.agent, watch.principal, watch.at)
            contacts.tell(agent, watch.principal, sentence)
        else:
            contacts.tell_admins(sentence)

    def _recorded(self, accepted: Accepted) -> None:
        if accepted.starts:
            self._starts.wake()
        for id_ in accepted.cut:
            _log.warning("events were ignored: too many agents' work has led to them", watch=id_)
        for id_ in accepted.tripped:
            watch = self._watches.get(id_)
            _log.error("a watch was stopped: it starts work too often", watch=id_)
            if watch is not None:
                self._alert(
                    watch,
                    f"I stopped the watch {watch.name}: it started work {watch.starts_per_hour}"
                    " times within an hour, which looks like a loop."
                    f" Send /watch resume {watch.name} to start it again.",
                )


async def _run_in(scope: anyio.CancelScope, watcher: sources.SourceWatcher[Any]) -> None:
    with scope:
        await watcher.run()


def _node_of(event: Event) -> str:
    for part in (event.items, event.delete, event.purge, event.subscription, event.configuration):
        if part is not None:
            return part.node or ""
    return ""
