"""The subsystems of one service, each built from the environment and from those before it."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from component.proactive.forgetting import forget
from component.service.chat import ChatSubsystem
from component.service.contacts import ContactSubsystem
from component.service.discovery import DiscoverySubsystem
from component.service.environment import Environment
from component.service.installed_skills import InstalledSkillSubsystem
from component.service.module_functions import ModuleFunctions
from component.service.notifications import NotificationSubsystem
from component.service.operations import OperationsSubsystem
from component.service.pep_memory import MemorySubsystem
from component.service.pubsub import PubSubSubsystem
from component.service.schedules import ScheduleSubsystem
from component.service.starting import WorkSubsystem
from component.service.stream import StreamSubsystem
from component.service.tasks import TaskSubsystem
from component.service.watches import WatchSubsystem
from component.storage.shared import SharedChanges
from xep.jid import JID

if TYPE_CHECKING:
    from component.builtins.guarded_messages import GuardedMessages
    from component.service.agents import AgentSubsystem


class Subsystems:
    """All subsystems, connected with each other; nothing runs yet.

    Args:
        environment: the base of the subsystems.

    Attributes:
        stream: receives and sends stanzas.
        contacts: who is a person, and who may be written to.
        notifications: sends people the results of work that agents started by themselves.
        pubsub: the nodes of our addresses.
        memory: synchronises memories with the nodes of people.
        installed: the skills that admins approve.
        tasks: runs skills.
        agents: talks with people; None without a model.
        work: starts work without a request, and sends its results.
        schedules: starts work at certain times.
        watches: starts work when something happens on XMPP.
        operations: the commands.
        chat: handles the messages of people.
        discovery: what others learn about the agents.

    Raises ModelRefusedError: a package that a model needs is not installed; KeyRefusedError: a key
    of the memory cannot be used.
    """

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self.stream = StreamSubsystem(environment.catalog, environment.monitoring)
        self.contacts = ContactSubsystem(environment, self.stream)
        self.notifications = NotificationSubsystem(environment, self.stream, self.contacts)
        self.pubsub = PubSubSubsystem(
            environment, self.stream, self.contacts, self.notifications.notifier
        )
        self.memory = MemorySubsystem(environment, self.stream, self.contacts, self.pubsub.service)
        self._messages: GuardedMessages | None = None
        self.installed = InstalledSkillSubsystem(
            environment, self.messages, self.stream, self.contacts
        )
        modules = ModuleFunctions(environment.settings, environment.storage, self.messages)
        self.tasks = TaskSubsystem(
            environment, self.stream, self.contacts, self.pubsub, modules.provide
        )
        self.agents = self._make_agents()
        if self.agents is not None:
            self.tasks.service.ask_model = self.agents.ask_model
        self.work = WorkSubsystem(
            environment, self.stream, self.tasks, self.agents, self.notifications
        )
        self.schedules = ScheduleSubsystem(
            environment, self.stream, self.pubsub, self.work, self.notifications.zones
        )
        self.watches = WatchSubsystem(
            *(environment, self.stream, self.contacts, self.work), *self.memory.listeners()
        )
        self.stream.more_features = self.watches.watcher.features
        self.stream.is_room = self.watches.watcher.is_room
        self.tasks.tool_ended = self._task_ended
        self.operations = OperationsSubsystem(
            *(environment, self.stream, self.contacts, self.tasks, self.agents),
            (
                *self.schedules.commands(),
                *self.watches.commands(),
                *self.notifications.commands(),
                *self.memory.commands(),
                *self.pubsub.commands(),
                *self.installed.commands(),
            ),
            self.pubsub.offers(),
            self._warnings,
        )
        self.chat = ChatSubsystem(
            environment,
            self.stream,
            self.contacts,
            self.tasks,
            self.agents,
            self.operations.commands,
            self.pubsub,
        )
        self.discovery = DiscoverySubsystem(
            *(environment, self.stream, self.operations.nodes, self.pubsub),
            self.notifications.notifier.online,
        )
        self.stream.on_disconnect = self._disconnected
        self.pubsub.shown = self.watches.watcher.shown
        self.discovery.granted = self.watches.watcher.granted
        self.stream.dispatch(
            (
                *self.discovery.handlers(),
                *self.pubsub.handlers(self.memory.features),
                *self.memory.handlers(),
                *self.tasks.handlers(),
                *self.watches.handlers(),
                *self.operations.handlers(),
                *self.chat.handlers(),
            )
        )

    def messages(self) -> "GuardedMessages":
        """Return what sends messages on behalf of people, for all skills together."""
        if self._messages is None:
            # Imported only where a skill sends messages: the service starts faster without.
            from component.builtins.guarded_messages import GuardedMessages  # noqa: PLC0415
            from component.service.sending import Sending  # noqa: PLC0415
            from component.settings.builtins import XmppSend  # noqa: PLC0415

            settings = self._environment.settings.xmpp_send or XmppSend(recipients=("*",))
            sending = Sending(self._environment, self.stream, self.contacts)
            self._messages = GuardedMessages(settings, sending)
        return self._messages

    def _make_agents(self) -> "AgentSubsystem | None":
        if self._environment.settings.llm is None:
            return None
        # Imported only where there is a model: a service without one starts faster.
        from component.service.agents import AgentSubsystem, agent_ports  # noqa: PLC0415

        return AgentSubsystem(
            self._environment.settings,
            self._environment.storage,
            self._environment.home,
            self._environment.memories,
            agent_ports(
                *(self._environment, self.stream, self.contacts, self.tasks, self._forget_person),
                self.notifications.zones.of,
            ),
        )

    async def _forget_person(self, agent: str, person: JID) -> None:
        """Delete what work that starts by itself has left of a person. Raises StorageError."""
        address = self.stream.addresses.address_of(agent)
        self.schedules.removed(
            await self._environment.storage.write(
                partial(forget, agent=agent, address=address, person=person)
            )
        )

    def _warnings(self) -> Sequence[str]:
        """Return what an admin has to decide or to know, in sentences."""
        late = self.tasks.late_sources()
        waiting = (
            (f"Sources of skills are not ready yet: {', '.join(late)}. Tasks wait for them.",)
            if late
            else ()
        )
        return (*waiting, *self.installed.warnings())

    def _disconnected(self) -> None:
        """Inform the subsystems that a session is over."""
        self.pubsub.disconnected()
        self.watches.watcher.disconnected()
        self.memory.disconnected()

    def _task_ended(self, task: str) -> None:
        """Handle the end of a task that a model's call became, or that a trigger started."""
        if self.agents is not None:
            self.agents.tool_ended(task)
        self.work.task_ended(task)
        self.watches.watcher.task_ended(task)

    def shared_changes(self) -> SharedChanges:
        """Has what this instance keeps in memory follow what other instances change."""
        changes = SharedChanges(self._environment.storage)
        changes.register("contacts", self._environment.stopped.reload)
        changes.register("switches", self.tasks.reload_switches)
        self.installed.follow(changes)
        if self.agents is not None:
            changes.register("agents", self.agents.agents.reload)
        return changes
