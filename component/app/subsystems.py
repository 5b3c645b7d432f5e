"""The kernel and the opened features of one service."""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TypeVar

from component.commands import recorded
from component.features.feature import Feature
from component.kernel.environment import Environment
from component.kernel.kernel import Kernel
from component.proactive.forgetting import forget
from component.skills.sources import SkillSource
from component.storage.shared import SharedChanges
from component.tasks.protocol import Notice
from component.tasks.retention import DeletedTask

T = TypeVar("T")


class Subsystems:
    """The kernel and the features, connected with each other; nothing runs.

    Args:
        environment: the base of the kernel.
        features: the features, not opened yet.

    Attributes:
        kernel: what features use.
        opened: what the features contribute.

    Raises ModelRefusedError: a package that a model needs is not installed; FeatureError: the
    settings of a feature cannot be used.
    """

    def __init__(self, environment: Environment, features: Sequence[Feature]) -> None:
        self.kernel = kernel = Kernel(environment)
        stream = kernel.stream
        self.opened = [feature.open(kernel) for feature in features]
        for node in chain.from_iterable(each.nodes for each in self.opened):
            kernel.pubsub.add_computed(node)
        forgets = [each.forget for each in self.opened if each.forget is not None]
        kernel.forgets = (*forgets, forget)
        for opened in self.opened:
            stream.add_features(opened.disco_features)
            if opened.is_room is not None:
                stream.add_rooms(opened.is_room)
            stream.on_disconnected(opened.disconnected)
            if opened.available is not None:
                kernel.presence_events.on_available(opened.available)
            if opened.granted is not None:
                kernel.presence_events.on_granted(opened.granted)
            kernel.disco.nodes.extend(opened.disco_nodes)
            kernel.offers.extend(opened.offers)
            kernel.forms.update(opened.forms)
            kernel.gauges.append(opened.gauges)
            kernel.warnings.append(opened.warnings)
        self._ended = _given(each.task_ended for each in self.opened)
        self._changed = _given(each.task_changed for each in self.opened)
        self._deleted = _given(each.task_deleted for each in self.opened)
        kernel.tasks.tool_ended = self._task_ended
        kernel.tasks.task_changed = self._task_changed
        kernel.tasks.service.on_deleted = self._task_deleted
        kernel.answers.extend(chain.from_iterable(each.answers for each in self.opened))
        commands = chain.from_iterable(each.commands for each in self.opened)
        kernel.commands.add(recorded(commands, environment.monitoring.recorder))
        stream.dispatch(
            (
                *chain.from_iterable(each.handlers for each in self.opened),
                kernel.pubsub_events,
                kernel.presence_events,
            )
        )

    def connected(self) -> None:
        """A session has begun. Never waits."""
        if self.kernel.agents is not None:
            self.kernel.agents.conversations.connected()
        for opened in self.opened:
            opened.connected()

    def leaving(self) -> None:
        """The stream is about to be closed. Never waits."""
        for opened in self.opened:
            opened.leaving()

    def held_sources(self) -> Sequence[str]:
        """Return the names of the sources of which descriptions wait for an approval."""
        return [name for opened in self.opened for name in opened.held_sources()]

    def sources(self, *, remote: bool) -> Sequence[SkillSource]:
        """Return the sources of skills, remote or not, as they may be offered."""
        found = [
            source
            for opened in self.opened
            for source in (opened.remote_sources if remote else opened.sources)
        ]
        for opened in self.opened:
            found = [opened.pin(source) for source in found]
        return found

    def _task_ended(self, task: str) -> None:
        """Handle the end of a task that a model's call became, or that a trigger started."""
        if self.kernel.agents is not None:
            self.kernel.agents.tool_ended(task)
        self.kernel.work.task_ended(task)
        for call in self._ended:
            call(task)

    def _task_changed(self, notice: Notice) -> None:
        for call in self._changed:
            call(notice)

    def _task_deleted(self, task: DeletedTask) -> None:
        for call in self._deleted:
            call(task)

    def shared_changes(self) -> SharedChanges:
        """Return the object that reloads what other instances have changed."""
        environment = self.kernel.environment
        changes = SharedChanges(environment.storage)
        changes.register("contacts", environment.stopped.reload)
        changes.register("switches", self.kernel.tasks.reload_switches)
        for topic, reload in chain.from_iterable(
            each.shared_changes.items() for each in self.opened
        ):
            changes.register(topic, reload)
        if self.kernel.agents is not None:
            changes.register("agents", self.kernel.agents.agents.reload)
        return changes


def _given(calls: Iterable[T | None]) -> Sequence[T]:
    return [call for call in calls if call is not None]
