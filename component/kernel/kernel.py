"""The kernel: the objects that features use, in the order in which they need each other."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from component import system
from component.commands.definition import Commands
from component.kernel.contacts import ContactSubsystem
from component.kernel.disco import Disco
from component.kernel.environment import Environment
from component.kernel.module_functions import ModuleFunctions
from component.kernel.options import facts, names_by_localpart
from component.kernel.presence_events import PresenceEvents
from component.kernel.pubsub import PubSubSubsystem
from component.kernel.pubsub_events import PubSubEvents
from component.kernel.stream import StreamSubsystem
from component.kernel.tasks import TaskSubsystem
from component.kernel.work import WorkSubsystem
from component.messages.answers import Answers
from component.metrics.gauge import Gauge
from component.proactive.person_zones import PersonZones
from component.settings import Settings
from component.storage import Storage
from component.storage.forgetting import Forget, Forgotten, forget
from component.storage.notifications import NotificationStore
from xep.jid import JID

if TYPE_CHECKING:
    from component.kernel.agents import AgentSubsystem
    from component.kernel.guarded_messages import GuardedMessages


class Kernel:
    """What features use.

    Args:
        environment: the settings, the skills, and what is open.

    Attributes:
        environment: as given.
        stream: receives and sends stanzas.
        disco: what service discovery says about our addresses.
        presence_events: receives the presence of contacts.
        contacts: who is a person, and who may be written to.
        zones: finds the time zone of a person.
        pubsub: the nodes of our addresses.
        pubsub_events: receives the notifications of other PubSub services.
        tasks: runs skills.
        agents: talks with people; None without a model.
        work: starts work without a request, and sends its results.
        commands: all commands; they are complete when all features are open.
        answers: take the answers of people to questions; complete when all features are open.
        forgets: delete the rows of a person; features add theirs.
        gauges: return metrics that are read on request; features add theirs.

    Raises ModelRefusedError: a package that a model needs is not installed.
    """

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self.forgets: Sequence[Forget] = ()
        self.gauges: list[Callable[[], Iterable[Gauge]]] = []
        self.answers: list[Answers] = []
        self._messages: GuardedMessages | None = None
        self.stream = StreamSubsystem(environment.catalog, environment.monitoring)
        settings = environment.settings
        self.disco = Disco(
            facts(settings),
            names_by_localpart(settings),
            self.stream.features,
            has_pubsub=settings.server.mode == "component",
        )
        self.stream.on_features_changed(self.disco.changed)
        self.presence_events = PresenceEvents()
        self.contacts = ContactSubsystem(environment, self.stream)
        self.zones = PersonZones(
            NotificationStore(environment.storage).preferences,
            self.contacts.time_zones.of,
            self.contacts.ask_time,
            settings.agent.zone,
            system.now,
        )
        self.pubsub = PubSubSubsystem(environment, self.stream, self.contacts, self.presence_events)
        self.pubsub_events = PubSubEvents()
        self.commands = Commands(
            admins=environment.catalog.admins, agent_at=self.stream.addresses.agent_at
        )
        modules = ModuleFunctions(environment.settings, environment.storage, self.messages)
        self.tasks = TaskSubsystem(environment, self.stream, self.contacts, modules.provide)
        self.agents = self._make_agents()
        if self.agents is not None:
            self.tasks.service.ask_model = self.agents.ask_model
        self.work = WorkSubsystem(environment, self.stream, self.tasks, self.agents)

    @property
    def settings(self) -> Settings:
        """The settings of the service."""
        return self.environment.settings

    @property
    def storage(self) -> Storage:
        """The database."""
        return self.environment.storage

    def messages(self) -> "GuardedMessages":
        """Return what sends messages on behalf of people, for all skills together."""
        if self._messages is None:
            # Imported only where a skill sends messages: the service starts faster without.
            from component.kernel.guarded_messages import GuardedMessages  # noqa: PLC0415
            from component.kernel.sending import Sending  # noqa: PLC0415
            from component.settings.xmpp_send import XmppSend  # noqa: PLC0415

            settings = self.settings.xmpp_send or XmppSend(recipients=("*",))
            sending = Sending(self.environment, self.stream, self.contacts)
            self._messages = GuardedMessages(settings, sending)
        return self._messages

    def _make_agents(self) -> "AgentSubsystem | None":
        if self.settings.llm is None:
            return None
        # Imported only where there is a model: a service without one starts faster.
        from component.kernel.agents import AgentSubsystem, agent_ports  # noqa: PLC0415

        environment = self.environment
        return AgentSubsystem(
            environment.settings,
            environment.storage,
            environment.home,
            environment.memories,
            agent_ports(
                environment,
                self.stream,
                self.contacts,
                self.tasks,
                self.zones.of,
            ),
        )

    async def forget_person(self, agent: str, person: JID) -> None:
        """Delete the rows of a person. Raises StorageError."""
        address = self.stream.addresses.address_of(agent)
        who = Forgotten(agent=agent, address=address, person=person)
        for after in await self.storage.write(partial(forget, self.forgets, who=who)):
            after()
