"""The parts of one service, each built from the environment and from those before it."""

from collections.abc import Sequence
from itertools import chain

from component.app.chat import ChatSubsystem
from component.app.installed_skills import InstalledSkillSubsystem
from component.app.operations import OperationsSubsystem
from component.features.feature import Feature
from component.kernel.environment import Environment
from component.kernel.kernel import Kernel
from component.proactive.forgetting import forget
from component.storage.shared import SharedChanges


class Subsystems:
    """The kernel, the features, and what is neither yet; nothing runs.

    Args:
        environment: the base of the subsystems.
        features: the features, not opened yet.

    Attributes:
        kernel: what features use.
        opened: what the features contribute.
        installed: the skills that admins approve.
        operations: the commands.
        chat: handles the messages of people.

    Raises ModelRefusedError: a package that a model needs is not installed; FeatureError: the
    settings of a feature cannot be used.
    """

    def __init__(self, environment: Environment, features: Sequence[Feature]) -> None:
        self.kernel = kernel = Kernel(environment)
        stream, contacts, pubsub = kernel.stream, kernel.contacts, kernel.pubsub
        self.opened = [feature.open(kernel) for feature in features]
        for node in chain.from_iterable(each.nodes for each in self.opened):
            pubsub.service.add_computed(node)
        forgets = [each.forget for each in self.opened if each.forget is not None]
        kernel.forgets = (*forgets, forget)
        self.installed = InstalledSkillSubsystem(environment, kernel.messages, stream, contacts)
        for opened in self.opened:
            stream.add_features(opened.disco_features)
            stream.add_rooms(opened.is_room)
            stream.on_disconnected(opened.disconnected)
            kernel.presence_events.subscribe(opened.available, opened.granted)
            kernel.disco.nodes.extend(opened.disco_nodes)
        kernel.tasks.tool_ended = self._task_ended
        self.operations = OperationsSubsystem(
            *(environment, stream, contacts, kernel.tasks, kernel.agents),
            (
                *chain.from_iterable(each.commands for each in self.opened),
                *kernel.notifications.commands(),
                *pubsub.commands(),
                *self.installed.commands(),
            ),
            pubsub.offers(),
            self._warnings,
        )
        self.chat = ChatSubsystem(
            environment,
            stream,
            contacts,
            kernel.tasks,
            kernel.agents,
            self.operations.commands,
            pubsub,
        )
        kernel.disco.nodes.append(self.operations.nodes)
        stream.dispatch(
            (
                *chain.from_iterable(each.handlers for each in self.opened),
                *pubsub.handlers(),
                *kernel.tasks.handlers(),
                kernel.pubsub_events,
                kernel.presence_events,
                *self.operations.handlers(),
                *self.chat.handlers(),
            )
        )

    def connected(self) -> None:
        """A session has begun. Never waits."""
        if self.kernel.agents is not None:
            self.kernel.agents.conversations.connected()
        self.kernel.notifications.notifier.connected()
        self.installed.connected()
        for opened in self.opened:
            opened.connected()

    def leaving(self) -> None:
        """The stream is about to be closed. Never waits."""
        for opened in self.opened:
            opened.leaving()

    def _warnings(self) -> Sequence[str]:
        """Return what an admin has to decide or to know, in sentences."""
        late = self.kernel.tasks.late_sources()
        waiting = (
            (f"Sources of skills are not ready yet: {', '.join(late)}. Tasks wait for them.",)
            if late
            else ()
        )
        return (*waiting, *self.installed.warnings())

    def _task_ended(self, task: str) -> None:
        """Handle the end of a task that a model's call became, or that a trigger started."""
        if self.kernel.agents is not None:
            self.kernel.agents.tool_ended(task)
        self.kernel.work.task_ended(task)
        for opened in self.opened:
            opened.task_ended(task)

    def shared_changes(self) -> SharedChanges:
        """Has what this instance keeps in memory follow what other instances change."""
        environment = self.kernel.environment
        changes = SharedChanges(environment.storage)
        changes.register("contacts", environment.stopped.reload)
        changes.register("switches", self.kernel.tasks.reload_switches)
        self.installed.follow(changes)
        if self.kernel.agents is not None:
            changes.register("agents", self.kernel.agents.agents.reload)
        return changes
