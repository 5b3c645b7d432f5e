"""The kernel and the opened features of one service."""

from collections.abc import Sequence
from itertools import chain
from operator import attrgetter

from component.commands import recorded
from component.features.feature import Feature
from component.kernel import started_work
from component.kernel.environment import Environment
from component.kernel.kernel import Kernel
from component.skills.sources import SkillSource
from component.store.shared import SharedChanges


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
        stream, tasks = kernel.stream, kernel.tasks
        self.opened = [feature.open(kernel) for feature in features]
        for node in chain.from_iterable(each.nodes for each in self.opened):
            kernel.pubsub.add_computed(node)
        forgets = [each.forget for each in self.opened if each.forget is not None]
        kernel.forgets = (*forgets, started_work.forget)
        for opened in self.opened:
            stream.more_features.append(opened.disco_features)
            if opened.is_room is not None:
                stream.rooms.append(opened.is_room)
            stream.on_disconnected.append(opened.disconnected)
            if opened.available is not None:
                kernel.presence_events.on_available.append(opened.available)
            if opened.granted is not None:
                kernel.presence_events.on_granted.append(opened.granted)
            if opened.task_ended is not None:
                tasks.news.on_tool_ended.append(opened.task_ended)
            if opened.task_changed is not None:
                tasks.news.on_changed.append(opened.task_changed)
            if opened.task_deleted is not None:
                tasks.news.on_deleted.append(opened.task_deleted)
            tasks.held.append(opened.held_sources)
            kernel.disco.nodes.extend(opened.disco_nodes)
            kernel.offers.extend(opened.offers)
            kernel.forms.update(opened.forms)
            kernel.gauges.append(opened.gauges)
            kernel.warnings.append(opened.warnings)
        for opened in self.opened:
            kernel.message_stages.extend(opened.message_stages)
        kernel.message_stages.sort(key=attrgetter("order"))
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

    def shared_changes(self) -> SharedChanges:
        """Return the object that reloads what other instances have changed."""
        environment = self.kernel.environment
        changes = SharedChanges(environment.storage)
        changes.register("contacts", environment.stopped.reload)
        changes.register("addresses", self.kernel.contacts.last_addresses.reload)
        changes.register("switches", self.kernel.tasks.reload_switches)
        for topic, reload in chain.from_iterable(
            each.shared_changes.items() for each in self.opened
        ):
            changes.register(topic, reload)
        if self.kernel.agents is not None:
            changes.register("agents", self.kernel.agents.agents.reload)
        return changes
