"""Every handler with a real registry, a real policy and real tasks, behind a real router."""

import re
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, cast
from xml.etree import ElementTree as ET

import anyio

from component.app.schema import SCHEMA
from component.commands import AnyCommand, Asking, Commands
from component.features.adhoc.handlers import CommandsHandler
from component.features.adhoc.sessions import CommandSessions
from component.features.discovery.handlers import (
    CommonQueries,
    ContactProfiles,
    Discovery,
    profile_nodes,
)
from component.features.presence.handlers import PresenceHandler
from component.features.pubsub.handlers import Allowances, NodeDiscovery, PubSubHandler
from component.features.pubsub.owners import OwnerHandler
from component.features.questions.answers import answer_stage
from component.features.service_commands.commands import Introduction, everybody
from component.features.service_commands.skill_commands import SkillCommands
from component.features.tasks_iq.handlers import (
    ExecuteHandler,
    SkillsHandler,
    TasksHandler,
)
from component.features.tasks_iq.node import SkillsNode, TasksNode
from component.kernel.avatars import generated_avatar
from component.kernel.disco import Disco, Facts
from component.kernel.events import PresenceEvents
from component.kernel.pause_gate import PauseGate
from component.kernel.profiles import ContactProfile, Profiles
from component.link.messages.inbound import InboundMessage
from component.link.messages.messenger import Messenger
from component.link.router.table import Host
from component.policy import Policy, Rule, When
from component.policy.flows import Flow, Flows
from component.policy.persons import Info, Persons
from component.pubsub.notifier import NodeInterests, NodeNotifier
from component.pubsub.service import PubSubService
from component.skills import Registry, Skill, View
from component.skills.builtin import builtin_skills
from component.skills.calling import Threads
from component.skills.conformance_fixtures import conformance_skills
from component.store import Storage
from component.store.clock import seconds_since_boot
from component.store.contacts import SubscriptionStore
from component.store.database import Database
from component.task_messages.events import TaskNews
from component.task_messages.questions import Questions
from component.tasks.gate import Approvers, AskModel, Gate, SkillAccess, no_model
from component.tasks.protocol import TaskLimits
from component.tasks.service import Clocks, TaskService
from component.tasks.several_calls import SEVERAL_CALLS
from tests.component.audit.book import Book
from tests.component.features.chat.handler import message_handler
from tests.component.link.router.wire import AGENT, DOMAIN, Bench, ListOutput, iq, until
from tests.component.sent import Sent
from xep.binding import Payload, decode, encode
from xep.disco import Feature, InfoQuery
from xep.fluux_agent.execute import Execute
from xep.fluux_agent.task import Task
from xep.jid import JID
from xep.pubsub import SUBSCRIBE_AUTHORIZATION
from xep.stanza import Message, Presence
from xep.stanza_error import StanzaError

P = TypeVar("P", bound=Payload)
T = TypeVar("T")

ALICE = "alice@a.example/phone"
BOB = "bob@b.example/desk"
NODE = "https://example.org/agent"
NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
_FINAL = re.compile(r" state='(completed|failed|rejected|cancelled)'")
FORM = {"software": "xmpp-agent-component", "protocol_version": "0"}
CONTACT = "mailto:it@a.example"
PROFILES: Profiles = {
    local: ContactProfile(
        address=JID.parse(address),
        name=name,
        operator="Example Ltd",
        contact=CONTACT,
        avatar=generated_avatar(address),
    )
    for local, address, name in ((None, DOMAIN, "Service"), ("assistant", AGENT, "Assistant"))
}


def all_skills() -> tuple[Skill, ...]:
    """What the project itself offers."""
    return (*builtin_skills(), *conformance_skills())


class Contacts:
    """Who wants to hear nothing more, in memory; what contacts are told, and the address that each
    uses.
    """

    def __init__(self) -> None:
        self.stopped: set[tuple[str, str]] = set()
        self.told: list[tuple[str, str, str]] = []
        self.uses: dict[str, str] = {}

    async def used(self, address: JID, contact: JID) -> None:
        self.uses[str(contact)] = str(address)

    def tell(self, agent: JID, person: JID, sentence: str) -> None:
        self.told.append((str(agent), str(person), sentence))

    def may_write(self, agent: JID, contact: JID) -> bool:
        return (str(agent), str(contact)) not in self.stopped

    async def stop(self, agent: JID, contact: JID) -> None:
        self.stopped.add((str(agent), str(contact)))

    async def start(self, agent: JID, contact: JID) -> None:
        self.stopped.discard((str(agent), str(contact)))


class Later:
    """A storage that is opened when the world begins to run; before that nobody may want it."""

    def __init__(self) -> None:
        self.opened: Storage | None = None

    @property
    def _storage(self) -> Storage:
        assert self.opened is not None, "what was to be answered at once turned to the database"
        return self.opened

    async def rest(
        self, woken: anyio.Event, seconds: float, look_s: float, skew_ms: int | None
    ) -> None:
        await self._storage.rest(woken, seconds, look_s, skew_ms)

    @property
    def place(self) -> str | None:
        return self._storage.place

    async def read(self, op: Callable[[Database], T]) -> T:
        return await self._storage.read(op)

    async def write(self, op: Callable[[Database], T], **options: Any) -> T:
        return await self._storage.write(op, **options)

    def listen(self, channel: str, /) -> AbstractAsyncContextManager[AsyncIterator[None]]:
        return self._storage.listen(channel)


async def a_person(_to: JID, _from: JID, /) -> InfoQuery:
    """The answer to disco#info of an account whose server tells strangers nothing."""
    raise StanzaError("service-unavailable")


async def no_answer(_message: InboundMessage) -> str | None:
    """No message is an answer to a question."""
    return None


async def nothing_returned(_to: JID, _from: JID, _id: str) -> None:
    """No message that came back asked a question."""


class World:
    """The faces of a service, and what they sent on their own.

    What is answered at once needs nothing more; for everything else `running` has a database.

    Args:
        skills: what is offered.
        rules: of the policy; everybody of a.example and b.example is admitted.
        subscriptions: where presence keeps them.
        inline_s: seconds that work may take to be answered in its IQ.
        info: what an entity says it is; by default everybody is a person.
        confirm: of the policy.
        flows: what the data of strangers may reach.
        commands: besides those for everybody.
        admins: bare JIDs.
        clock: what the message handler measures time by.
        now: the time, for all but the database.
        is_person: whether a sender is a person, as far as it is known without a query.
        max_stanza_bytes: of the router.
    """

    def __init__(
        self,
        skills: Iterable[Skill] = (),
        *,
        rules: Sequence[Rule] = (),
        subscriptions: SubscriptionStore | None = None,
        inline_s: float = 60,
        commands: Iterable[AnyCommand] = (),
        admins: Iterable[str] = (),
        clock: Callable[[], float] = lambda: 0.0,
        cache_clock: Callable[[], float] = seconds_since_boot,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        info: Info = a_person,
        confirm: When = "destructive",
        limits: TaskLimits | None = None,
        flows: Sequence[Flow] = (),
        is_person: Callable[[JID, JID], bool | None] = lambda _principal, _sender: None,
        **options: Any,
    ) -> None:
        self.policy = Policy(
            allowed_domains=["a.example", "b.example"], rules=rules, confirm=confirm
        )
        self.registry = Registry(skills)
        self.sent: list[Message | Presence] = []
        self.messages = Sent(self.sent)
        self._asked = 1
        self.told = ListOutput()
        """Messages about tasks."""
        self.storage = Later()

        self.contacts = Contacts()
        self.features_of: dict[str, Sequence[str]] = {}
        """The features that clients have, by their full addresses."""
        self.news_of_nodes = ListOutput()
        """Notifications of the PubSub service."""
        self.interests = NodeInterests(self._ask_features)
        owners = [JID.parse(jid) for jid in admins]
        self.pubsub = PubSubService(
            self.storage,
            NodeNotifier(
                self.storage,
                Messenger(self.news_of_nodes),
                self.interests,
                self.contacts.may_write,
            ),
            owners,
        )
        for node in (SkillsNode(self.view), *profile_nodes(PROFILES)):
            self.pubsub.add_computed(node)
        allowances = Allowances()
        owners_of_nodes = OwnerHandler(self.pubsub, allowances)

        def features(host: Host) -> tuple[str, ...]:
            return self.bench.router.table.features(host)

        self.disco = Disco(
            Facts(
                domain=JID.parse(DOMAIN),
                name="Service",
                node=NODE,
                form=FORM,
                contact=CONTACT,
            ),
            {"assistant": "Assistant"},
            features,
            has_pubsub=True,
        )
        self.disco.nodes.append(NodeDiscovery(self.pubsub))
        self.discovery = Discovery(self.disco, self.view, self.pubsub)

        def offered(asking: Asking) -> tuple[AnyCommand, ...]:
            return self.commands.of(asking)

        presence_events = PresenceEvents()
        stream: Any = SimpleNamespace(send=Sent(self.sent).presence, connected_since=1)
        self.presence = PresenceHandler(
            cast("SubscriptionStore", subscriptions),
            stream,
            lambda host, agent: (self.disco.caps(host, agent),),
            self.contacts,
            presence_events,
        )
        self.commands = Commands(
            (
                *everybody(
                    Introduction("Assistant", talks=False),
                    offered,
                    SkillCommands(self.view, lambda request: self.service.execute(request)),  # noqa: PLW0108 - made later
                    self.contacts,
                ),
                *commands,
            ),
            [JID.parse(jid) for jid in admins],
        )
        self.message = message_handler(
            self.messages,
            self.commands,
            [answer_stage(no_answer, nothing_returned)],
            is_admin=lambda who: who in self.commands.admins,
            is_person=is_person,
            clock=clock,
            forms={SUBSCRIBE_AUTHORIZATION: owners_of_nodes.decide},
            now=now,
        )
        self.threads = Threads(8, 4)
        self.tools_ended: list[str] = []
        """Tasks that a model's call went on as, and that are over."""
        self.news = TaskNews(
            Messenger(self.told),
            lambda: True,
            self.contacts.may_write,
            Questions(lambda name: SEVERAL_CALLS if name == SEVERAL_CALLS.name else None),
        )
        self.news.on_tool_ended.append(self.tools_ended.append)
        self.news.on_changed.append(lambda notice: self._tasks_node.changed(notice))  # noqa: PLW0108 - made later
        self.news.on_deleted.append(lambda task: self._tasks_node.deleted(task))  # noqa: PLW0108 - as well
        internal = {SEVERAL_CALLS.name: SEVERAL_CALLS}
        self.whom = Approvers(self.policy.asking, Persons(info, lambda who: who.domain == DOMAIN))
        self.intake = PauseGate([JID.parse(jid) for jid in admins])
        self.book = Book()
        self.ask_model: AskModel = no_model
        self.gate = Gate(self.view, Flows(flows), self.book, lambda: self.policy)
        self.service = TaskService(
            self.storage,
            SkillAccess(
                find=lambda name: internal.get(name) or self.registry.get(name),
                gate=self.gate,
                may_use=lambda principal, skill: (
                    skill.name in internal or self.view(principal).get(skill.name) is skill
                ),
                approvers=self.whom,
                threads=self.threads,
                let_in=self.intake.check,
                ask_model=lambda *asked: self.ask_model(*asked),  # noqa: PLW0108 - tests replace it
            ),
            limits or TaskLimits(inline_s=inline_s),
            self.news,
            clocks=Clocks(now=now, boot_s=cache_clock),
        )
        self._tasks_node = TasksNode(self.service, self.pubsub)
        self.pubsub.add_computed(self._tasks_node)
        presence_events.listeners.append(self.interests)
        handlers = (
            CommonQueries("agent", "1.2.3", now),
            self.discovery,
            ContactProfiles(PROFILES),
            PubSubHandler(self.pubsub, allowances),
            owners_of_nodes,
            CommandsHandler((owners_of_nodes,), CommandSessions()),
            presence_events,
            SkillsHandler(self.view, ttl_s=60),
            ExecuteHandler(self.service),
            TasksHandler(self.service),
            self.message,
            self.presence,
        )
        routes = [route for handler in handlers for route in handler.routes()]
        self.bench = Bench(routes, admits=self.policy.admits, **options)

    async def _ask_features(self, client: JID, _from: JID, query: InfoQuery) -> InfoQuery:
        """What a client says of itself; set in a test."""
        found = self.features_of.get(str(client))
        if found is None:
            raise StanzaError("service-unavailable")
        return InfoQuery(node=query.node, features=tuple(Feature(var=each) for each in found))

    def view(self, principal: JID) -> View:
        """The skills that a principal sees, as the service decides it."""
        key = self.policy.view_key(principal)
        return self.registry.view(key, lambda name: self.policy.may_use(key, name))

    @asynccontextmanager
    async def running(self, postgres: str = "") -> AsyncIterator[None]:
        """Everything lives for as long as the context, on a database of its own.

        `postgres` is the URI of a PostgreSQL database to use.
        """
        with tempfile.TemporaryDirectory() as directory:
            async with (
                Storage.open(SCHEMA, Path(directory) / "data", postgres=postgres) as storage,
                anyio.create_task_group() as group,
            ):
                self.storage.opened = storage
                await group.start(self.news.run)
                await group.start(self.service.run)
                await group.start(self.pubsub.run)
                async with self.bench.running():
                    yield
                group.cancel_scope.cancel()
            self.storage.opened = None

    def ask(
        self,
        payload: Payload | str,
        *,
        type_: str = "get",
        from_: str = ALICE,
        to: str = AGENT,
        id_: str | None = None,
    ) -> ET.Element:
        """The one reply to a request that is answered at once."""
        id_ = self._id(payload) if id_ is None else id_
        return self.bench.answer(iq(xml(payload), type_=type_, id_=id_, from_=from_, to=to))

    def ask_stored(
        self, payload: Payload | str, *, type_: str = "get", from_: str = ALICE, to: str = AGENT
    ) -> ET.Element:
        """The one reply to a request that needs the database, which is a new one."""

        async def ask() -> ET.Element:
            async with self.running():
                return await self.asked(payload, type_=type_, from_=from_, to=to)

        return anyio.run(ask)

    async def asked(
        self,
        payload: Payload | str,
        *,
        type_: str = "set",
        from_: str = ALICE,
        to: str = AGENT,
        id_: str | None = None,
    ) -> ET.Element:
        """The one reply to a request whose work may suspend; the world must be running."""
        before = len(self.bench.output.sent)
        id_ = self._id(payload) if id_ is None else id_
        self.bench.receive(iq(xml(payload), type_=type_, id_=id_, from_=from_, to=to))
        await self.bench.settled()
        (reply,) = self.bench.replies[before:]
        return reply

    async def ended(self, task: str, from_: str = ALICE) -> Task:
        """A task, once it has ended; the world must be running."""
        who = JID.parse(from_).bare

        def said() -> bool:
            return any(f" id='{task}'" in sent and _FINAL.search(sent) for sent in self.told.sent)

        await until(said)
        return await self.service.get(who, JID.parse(AGENT), task)

    async def reached(self, task: str, state: str) -> None:
        """Wait until a task has been told of in this state; the world must be running."""

        def said() -> bool:
            return any(
                f" id='{task}'" in sent and f" state='{state}'" in sent for sent in self.told.sent
            )

        await until(said)

    def _id(self, payload: Payload | str) -> str:
        """A skill that a test runs twice is run anew, not asked for again."""
        if isinstance(payload, Execute | str):
            self._asked += 1
        return str(self._asked)


def xml(payload: Payload | str) -> str:
    """A payload as XML text."""
    return payload if isinstance(payload, str) else encode(payload)


def result(cls: type[P], reply: ET.Element) -> P:
    """The payload of a result; it must fit its declaration to the letter."""
    assert reply.get("type") == "result", ET.tostring(reply)
    (child,) = reply
    assert child.tag == cls.xml.tag
    return decode(cls, child, strict=True)
