"""The kernel: the objects that features use, in the order in which they need each other."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from component import system
from component.commands import Commands
from component.config import Settings
from component.kernel.adhoc import Offers
from component.kernel.contacts import ContactSubsystem, PersonZones
from component.kernel.disco import Disco
from component.kernel.environment import Environment, Rights
from component.kernel.events import PresenceEvents, PubSubEvents
from component.kernel.goals import goal_skill
from component.kernel.http_routes import HttpRoutes
from component.kernel.module_functions import ModuleFunctions
from component.kernel.options import facts, names_by_localpart
from component.kernel.rooms.client_kinds import ClientKinds
from component.kernel.rooms.membership import RoomPorts
from component.kernel.rooms.rooms import Rooms
from component.kernel.stream import FormHandler, StreamSubsystem
from component.kernel.task_starter import TaskStarter
from component.kernel.tasks import TaskSubsystem
from component.link.messages.inbound import MessageStage
from component.metrics.counters import Gauge
from component.pubsub.notifier import NodeInterests, NodeNotifier
from component.pubsub.service import PubSubService
from component.store import Storage
from component.store.forgetting import Forget, Forgotten, forget
from component.store.notifications import NotificationStore
from xep.binding import Payload
from xep.disco import InfoQuery
from xep.jid import JID
from xep.stanza import Presence
from xep.vcard_avatar import PhotoUpdate

if TYPE_CHECKING:
    from component.kernel.agents import AgentSubsystem
    from component.kernel.guarded_messages import GuardedMessages


RELOADED: Final = (
    *(
        f"agent.{key}"
        for key in (
            *("allowed_jids", "allowed_domains", "admins", "zone", "unknown_agents"),
            *("name", "operator", "contact", "avatar", "notice"),
        )
    ),
    *("policy.confirm", "policy.confirm_expires_s", "policy.rules", "policy.flows"),
    *("policy.standing_days", "policy.standing_uses"),
    *("skills.proposals", "skills.credentials", "xmpp_send", "uploads", "log"),
    *("llm", "agents", "budgets", "personas", "peer"),
)
"""The settings that `Kernel.replace` applies: sections, or `section.key`. Where the names of agents
have changed, `agents` is not one of them, and neither is `llm` if it was added or removed.
"""


class Reloaded(msgspec.Struct, frozen=True):
    """What has changed in the configuration.

    Attributes:
        changed: the sections of which something has changed, and that are in use now.
        restart: those of which something has changed that needs a restart.
    """

    changed: tuple[str, ...]
    restart: tuple[str, ...]

    def sentences(self) -> Sequence[str]:
        """Return both for people."""
        said = [f"{section} has changed: the service uses it now." for section in self.changed]
        said += [f"{section} has changed: restart to use it." for section in self.restart]
        return said or ["Nothing has changed."]


class Kernel:
    """What features use.

    Attributes:
        stream: receives and sends stanzas.
        disco: what service discovery says about our addresses.
        presence_events: receives the presence of contacts.
        contacts: who is a person, and who may be written to.
        rooms: the rooms that agents are in.
        zones: finds the time zone of a person.
        pubsub: the nodes of our addresses.
        pubsub_events: receives the notifications of other PubSub services.
        tasks: runs skills.
        agents: talks with people; None without a model.
        starter: starts the work of schedules, watches and webhooks.
        commands: all commands; they are complete when all features are open.
        message_stages: handle the messages of people; complete when all features are open.
        offers: the sources of ad-hoc commands; complete when all features are open.
        forms: handle messages that carry a form, by its FORM_TYPE; complete when all features are
            open.
        forgets: delete the rows of a person; features add theirs.
        on_notification: called when a notification was recorded outside of the feature that sends
            them. Never waits.
        gauges: return metrics that are read on request; features add theirs.
        warnings: return what an admin has to decide, in sentences; features add theirs.
        on_notifications: called with an agent and a person whose notifications have changed.
        http: passes HTTP requests to the features that serve them.
        started: when the service was started.
        reload: reads the configuration again, and applies what has changed; raises CommandError
            with what is wrong, if nothing was applied. None before the service runs.

    Raises ModelRefusedError: a package that a model needs is not installed.
    """

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self.started = system.now()
        self.reload: Callable[[], Awaitable[Reloaded]] | None = None
        self.forgets: Sequence[Forget] = ()
        self.on_notification: list[Callable[[], None]] = []
        self.gauges: list[Callable[[], Iterable[Gauge]]] = []
        self.message_stages: list[MessageStage] = []
        self.warnings: list[Callable[[], Sequence[str]]] = []
        self.on_notifications: list[Callable[[JID, JID], None]] = []
        self.http = HttpRoutes()
        self.offers: list[Offers] = []
        self.forms: dict[str, FormHandler] = {}
        self._messages: GuardedMessages | None = None
        self.stream = StreamSubsystem(environment.catalog, environment.monitoring)
        settings = environment.settings
        self.disco = Disco(
            facts(settings),
            names_by_localpart(settings),
            self.stream.features,
            has_pubsub=settings.server.mode == "component",
        )
        self.stream.on_features_changed.append(self.disco.changed)
        self.presence_events = PresenceEvents()
        self.contacts = ContactSubsystem(environment, self.stream)
        self.rooms = self._make_rooms()
        self.zones = PersonZones(
            NotificationStore(environment.storage), settings.agent.zone, self.contacts
        )
        self.pubsub = self._make_pubsub()
        self.pubsub_events = PubSubEvents()
        self.commands = Commands(
            admins=environment.catalog.admins, agent_at=self.stream.addresses.agent_at
        )
        self._modules = ModuleFunctions(
            environment.settings, environment.storage, lambda: self.messages().send
        )
        self.tasks = TaskSubsystem(
            *(environment, self.stream, self.contacts, self._modules.provide), lambda: self.agents
        )
        self.agents = self._make_agents()
        goal = None
        if self.agents is not None:
            self.tasks.news.on_tool_ended.append(self.agents.tool_ended)
            goal = goal_skill(self.agents.conversations, self.stream.addresses.address_of)
            self.tasks.internal[goal.name] = goal
        self.starter = TaskStarter(environment, self.tasks, goal, self.contacts.address_of)

    def replace(self, rights: Rights) -> None:
        """Apply settings of which only those in `RELOADED` have changed; no feature is affected.

        Raises ModelRefusedError, before anything is changed. Never waits.
        """
        settings = rights.settings
        if self.agents is not None:
            self.agents.replace(settings)
            self.environment.memories.replace(settings)
            self.environment.monitoring.replace(settings)
        if settings.xmpp_send != self.settings.xmpp_send:
            self._messages = None
        self.environment.catalog.replace(rights)
        self.tasks.replace(settings)
        self._modules.replace(settings)
        self.zones.default = settings.agent.zone
        shown = self.disco.facts, self.disco.agents
        self.disco.facts, self.disco.agents = facts(settings), names_by_localpart(settings)
        if shown != (self.disco.facts, self.disco.agents):
            self.stream.features_changed()

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
            from component.config.skills import XmppSend  # noqa: PLC0415
            from component.kernel.guarded_messages import (  # noqa: PLC0415
                GuardedMessages,
                Sending,
            )

            settings = self.settings.xmpp_send or XmppSend(recipients=("*",))
            sending = Sending(self.environment, self.stream, self.contacts)
            self._messages = GuardedMessages(settings, sending)
        return self._messages

    def _make_rooms(self) -> Rooms:
        stream, profiles = self.stream, self.environment.catalog.profiles

        def payloads(agent: JID) -> tuple[Payload, ...]:
            photo = PhotoUpdate(photo=profiles[agent.local].avatar.sha1)
            return self.disco.caps("agent", agent.local), photo

        def send(presence: Presence) -> None:
            stream.send(presence)
            stream.flush()

        ports = RoomPorts(
            call=stream.call_optional,
            send=send,
            payloads=payloads,
            has_others=lambda: stream.has_others(),  # noqa: PLW0108 - it is replaced later
            tag=lambda: stream.tag,
            instance_node=f"{self.disco.facts.node}#instance",
            tell_admins=self.contacts.tell_admins,
            kinds=ClientKinds(),
        )
        rooms = Rooms(
            ports,
            chooses_resources=self.settings.server.mode == "component",
            changed=stream.forget_senders,
        )
        stream.is_room = rooms.is_room
        stream.on_disconnected.append(rooms.disconnected)
        stream.on_missed.append(rooms.missed)
        stream.on_features_changed.append(rooms.show)
        self.disco.nodes.append(rooms)
        self.gauges.append(rooms.gauges)
        self.warnings.append(rooms.warnings)
        return rooms

    def _make_pubsub(self) -> PubSubService:
        async def ask(client: JID, from_: JID, query: InfoQuery) -> InfoQuery:
            return await self.stream.get(client, query, InfoQuery, from_)

        interests = NodeInterests(ask)
        self.presence_events.listeners.append(interests)
        self.stream.on_disconnected.append(interests.clear)
        notifier = NodeNotifier(
            self.storage, self.stream.messenger, interests, self.contacts.may_write
        )
        return PubSubService(self.storage, notifier, self.environment.catalog.admins)

    def _make_agents(self) -> "AgentSubsystem | None":
        if self.settings.llm is None:
            return None
        # Imported only where there is a model: a service without one starts faster.
        from component.kernel.agents import AgentSubsystem  # noqa: PLC0415

        agents = AgentSubsystem(
            self.environment, self.stream, self.contacts, self.tasks, self.zones.of
        )
        agents.speech.in_room = self.rooms.may_speak
        return agents

    async def forget_person(self, agent: str, person: JID) -> None:
        """Delete the rows of a person. Raises StorageError."""
        address = self.stream.addresses.address_of(agent)
        who = Forgotten(agent=agent, address=address, person=person)
        for after in await self.storage.write(partial(forget, self.forgets, who=who)):
            after()
