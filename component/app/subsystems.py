"""The kernel and the opened features of one service."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, Final, TypeVar

import anyio
import structlog
from anyio.abc import TaskGroup, TaskStatus

from component.app.faults import leaves
from component.commands import recorded
from component.features.feature import Feature, Opened
from component.kernel import started_work
from component.kernel.environment import Environment
from component.kernel.kernel import Kernel
from component.skills.sources import SkillSource
from component.store import StorageError, told
from component.store.shared import SharedChanges

T = TypeVar("T")

_log = structlog.get_logger("component.app")

_RETRY_S: Final = 5.0
"""Seconds after which the loops of a feature that could not start are started again."""


class OpenedFeature:
    """A feature and what it contributes; its loops run from `run` to `stop`."""

    def __init__(self, feature: Feature, opened: Opened) -> None:
        self.feature = feature
        self.opened = opened
        self.sources = (*feature.sources(), *opened.sources)
        self.remote_sources = tuple(feature.remote_sources())
        self._stopped = anyio.Event()
        self._ended: anyio.Event | None = None

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Run the loops until `stop` is called. Raises what a loop raises before it has started,
        in a group; it can be run again then.
        """
        self._ended = anyio.Event()
        try:
            async with anyio.create_task_group() as group:
                for loop in self.opened.loops:
                    await group.start(loop)
                task_status.started()
                await self._stopped.wait()
                group.cancel_scope.cancel()
        finally:
            self._ended.set()

    async def stop(self) -> None:
        """Stop the loops."""
        self._stopped.set()
        if self._ended is not None:
            await self._ended.wait()


class Subsystems:
    """The kernel and the features, connected with each other; `run` runs the loops of these.

    Args:
        environment: the base of the kernel.
        features: the features by name, not opened yet.

    Attributes:
        kernel: what features use.
        features: the opened features by name, in order.
        changes: reloads what other instances have changed.

    Raises ModelRefusedError: a package that a model needs is not installed; FeatureError: the
    settings of a feature cannot be used.
    """

    def __init__(self, environment: Environment, features: Mapping[str, Feature]) -> None:
        self.kernel = kernel = Kernel(environment)
        self.changes = SharedChanges(environment.storage)
        self.changes.register("contacts", environment.stopped.reload)
        self.changes.register("addresses", kernel.contacts.last_addresses.reload)
        self.changes.register("switches", kernel.tasks.reload_switches)
        if kernel.agents is not None:
            self.changes.register("agents", kernel.agents.agents.reload)
        self._group: TaskGroup | None = None
        self.features: Mapping[str, OpenedFeature] = {}
        self._connect(
            {
                name: OpenedFeature(feature, feature.open(kernel))
                for name, feature in features.items()
            }
        )

    @property
    def opened(self) -> Sequence[Opened]:
        """What the features contribute."""
        return [each.opened for each in self.features.values()]

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Run the loops of all features until cancelled. Raises what one of them raises before it
        has started.
        """
        async with anyio.create_task_group() as self._group:
            await self._group.start(self.kernel.rooms.run)
            for each in self.features.values():
                await self._group.start(each.run)
            task_status.started()
            await anyio.sleep_forever()

    async def replace(self, features: Mapping[str, OpenedFeature]) -> None:
        """Use these opened features in place of those before; those that are the same go on."""
        before = self.features.values()
        gone = [each for each in before if each not in features.values()]
        new = [each for each in features.values() if each not in before]
        stream = self.kernel.stream
        announced = stream.features("component"), stream.features("agent")
        if stream.is_connected():
            for each in gone:
                each.opened.leaving()
                each.opened.disconnected()
        for each in gone:
            await each.stop()
        # Until now, stanzas went to the handlers of the features that are gone.
        self._connect(features)
        assert self._group is not None, "it runs"
        for each in new:
            try:
                await self._group.start(each.run)
            except* StorageError as errors:
                self._group.start_soon(self._keep_starting, each, str(next(leaves(errors))))
        if stream.is_connected():
            for each in new:
                each.opened.connected()
        if announced != (stream.features("component"), stream.features("agent")):
            stream.features_changed()

    async def _keep_starting(self, feature: OpenedFeature, why: str) -> None:
        while True:
            _log.error("what has changed is not in use yet", reason=why)
            await anyio.sleep(_RETRY_S)
            try:
                await feature.run()
            except* StorageError as errors:
                why = str(next(leaves(errors)))
            else:
                return

    def _connect(self, features: Mapping[str, OpenedFeature]) -> None:
        """Give the kernel what these features contribute, in place of what it had."""
        kernel = self.kernel
        for found, contributed in _lists(kernel):
            for one in chain.from_iterable(map(contributed, self.opened)):
                found.remove(one)
        self.features = features
        for found, contributed in _lists(kernel):
            found.extend(chain.from_iterable(map(contributed, self.opened)))
        kernel.forms.clear()
        for opened in self.opened:
            kernel.forms.update(opened.forms)
            for node in opened.nodes:
                kernel.pubsub.add_computed(node)
            for family in opened.node_families:
                kernel.pubsub.add_family(family)
            for topic, reload in opened.shared_changes.items():
                self.changes.register(topic, reload)
        kernel.message_stages.sort(key=attrgetter("order"))
        forgets = [each.forget for each in self.opened if each.forget is not None]
        kernel.forgets = (*forgets, started_work.forget, told.forget)
        commands = chain.from_iterable(each.commands for each in self.opened)
        kernel.commands.replace(recorded(commands, kernel.environment.monitoring.recorder))
        kernel.stream.dispatch(
            (
                *chain.from_iterable(each.handlers for each in self.opened),
                kernel.pubsub_events,
                kernel.presence_events,
                kernel.rooms,
            )
        )

    def connected(self) -> None:
        """A session has begun. Never waits."""
        if self.kernel.agents is not None:
            self.kernel.agents.conversations.connected()
        self.kernel.rooms.connected()
        for opened in self.opened:
            opened.connected()

    def leaving(self) -> None:
        """The stream is about to be closed. Never waits."""
        for opened in self.opened:
            opened.leaving()
        self.kernel.rooms.leaving()

    def sources(self, *, remote: bool) -> Sequence[SkillSource]:
        """Return the sources of skills, remote or not, as they may be offered."""
        found = [
            source
            for each in self.features.values()
            for source in (each.remote_sources if remote else each.sources)
        ]
        for opened in self.opened:
            found = [opened.pin(source) for source in found]
        return found


def _lists(
    kernel: Kernel,
) -> Iterable[tuple[list[Any], Callable[[Opened], Iterable[Any]]]]:
    """Return the lists of the kernel to which features add, and what each of them adds."""
    stream, tasks, presence = kernel.stream, kernel.tasks, kernel.presence_events
    events, news = kernel.pubsub_events, kernel.tasks.news
    fetch = [] if kernel.agents is None else kernel.agents.fetch
    return (
        (fetch, lambda one: _given(one.fetch)),
        (stream.more_features, lambda one: (one.disco_features,)),
        (stream.on_disconnected, lambda one: (one.disconnected,)),
        (presence.on_available, lambda one: _given(one.available)),
        (presence.on_granted, lambda one: _given(one.granted)),
        (events.listeners, lambda one: _given(one.pubsub_listener)),
        (news.on_tool_ended, lambda one: _given(one.task_ended)),
        (news.on_changed, lambda one: _given(one.task_changed)),
        (news.on_deleted, lambda one: _given(one.task_deleted)),
        (tasks.held, lambda one: (one.held_sources,)),
        (kernel.disco.nodes, lambda one: one.disco_nodes),
        (kernel.offers, lambda one: one.offers),
        (kernel.rooms.votes, lambda one: _given(one.is_vote)),
        (kernel.gauges, lambda one: (one.gauges,)),
        (kernel.tasks.spent, lambda one: _given(one.spent)),
        (kernel.http.routes, lambda one: one.http_routes),
        (kernel.tasks.places, lambda one: _given(one.share)),
        (kernel.warnings, lambda one: (one.warnings,)),
        (kernel.message_stages, lambda one: one.message_stages),
    )


def _given(callback: T | None) -> Sequence[T]:
    return () if callback is None else (callback,)
