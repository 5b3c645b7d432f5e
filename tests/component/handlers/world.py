"""Every handler with a real registry, a real policy and real tasks, behind a real router."""

import re
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar, cast
from xml.etree import ElementTree as ET

import anyio

from component.commands.definition import AnyCommand, Asking, Commands
from component.commands.everybody import everybody
from component.commands.intake import Intake
from component.execution import Recent, Road
from component.handlers.about import About
from component.handlers.confirm import ConfirmHandler
from component.handlers.disco import Discovery, Facts
from component.handlers.events import TaskNews
from component.handlers.execute import ExecuteHandler
from component.handlers.message import MessageHandler
from component.handlers.presence import PresenceHandler, Subscriptions
from component.handlers.questions import question_messages
from component.handlers.skills import SkillsHandler
from component.handlers.tasks import TasksHandler
from component.policy import Policy, Rule, When
from component.policy.persons import Info, Persons
from component.router.table import Host
from component.skills import AnySkill, Registry, View
from component.skills.builtin import builtin_skills
from component.skills.conformance_fixtures import conformance_skills
from component.skills.threads import Threads
from component.storage import Storage
from component.storage.database import Database
from component.tasks.admit import Limits
from component.tasks.room import TaskRoom
from component.tasks.whom import Whom
from tests.component.handlers.outgoing import Outgoing
from tests.component.router.wire import AGENT, DOMAIN, Bench, ListOutput, iq, until
from xep.binding import Payload, decode, encode
from xep.disco import InfoQuery
from xep.fluux_agent.execute import Execute
from xep.fluux_agent.task import Task
from xep.jid import JID
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


def all_skills() -> tuple[AnySkill, ...]:
    """What the project itself offers."""
    return (*builtin_skills(), *conformance_skills())


class Contacts:
    """Who wants to hear nothing more, in memory."""

    def __init__(self) -> None:
        self.stopped: set[tuple[str, str]] = set()

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

    @property
    def place(self) -> str | None:
        return self._storage.place

    async def read(self, op: Callable[[Database], T]) -> T:
        return await self._storage.read(op)

    async def write(self, op: Callable[[Database], T], *, keep_trying: bool = False) -> T:
        return await self._storage.write(op, keep_trying=keep_trying)

    def listen(self, channel: str, /) -> AbstractAsyncContextManager[AsyncIterator[None]]:
        return self._storage.listen(channel)


async def a_person(_to: JID, _from: JID, /) -> InfoQuery:
    """The answer to disco#info of an account whose server tells strangers nothing."""
    raise StanzaError("service-unavailable")


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
        commands: besides those for everybody.
        admins: bare JIDs.
        clock: what the message handler measures time by.
        now: the time, for all but the database.
        max_stanza_bytes: of the router.
    """

    def __init__(
        self,
        skills: Iterable[AnySkill] = (),
        *,
        rules: Sequence[Rule] = (),
        subscriptions: Subscriptions | None = None,
        inline_s: float = 60,
        commands: Iterable[AnyCommand] = (),
        admins: Iterable[str] = (),
        clock: Callable[[], float] = lambda: 0.0,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        info: Info = a_person,
        confirm: When = "destructive",
        recent: Recent | None = None,
        limits: Limits | None = None,
        **options: Any,
    ) -> None:
        self.policy = Policy(
            allowed_domains=["a.example", "b.example"], rules=rules, confirm=confirm
        )
        self.registry = Registry(skills)
        self.sent: list[Message | Presence] = []
        self._asked = 1
        self.told = ListOutput()
        """Messages about tasks."""
        self.storage = Later()

        def features(host: Host) -> tuple[str, ...]:
            return self.bench.router.table.features(host)

        self.discovery = Discovery(
            Facts(domain=JID.parse(DOMAIN), name="Service", node=NODE, form=FORM),
            {"assistant": "Assistant"},
            features,
            self.view,
        )

        def offered(asking: Asking) -> tuple[AnyCommand, ...]:
            return self.commands.of(asking)

        self.contacts = Contacts()
        self.presence = PresenceHandler(
            cast("Subscriptions", subscriptions),
            self.sent.append,
            self.discovery.caps,
            self.contacts,
        )
        self.commands = Commands(
            (
                *everybody("Assistant", offered, self.view, self.contacts),
                *commands,
            ),
            [JID.parse(jid) for jid in admins],
        )
        self.message = MessageHandler("Assistant", self.sent.append, self.commands, clock)
        self.threads = Threads(8, 4)
        self.tools_ended: list[str] = []
        """Tasks that a model's call went on as, and that are over."""
        self.news = TaskNews(
            Outgoing(self.told.put),
            lambda: True,
            self.contacts.may_write,
            question_messages,
            tool_ended=self.tools_ended.append,
        )
        self.room = TaskRoom(
            self.storage,
            self.registry.get,
            lambda principal, skill: self.view(principal).get(skill.name) is skill,
            self.threads,
            limits or Limits(inline_s=inline_s),
            self.news,
        )
        self.intake = Intake([JID.parse(jid) for jid in admins])
        self.recent = recent or Recent(3600)
        self.road = Road(
            self.view,
            self.room,
            Whom(self.policy.asking, Persons(info, DOMAIN)),
            self.recent,
            self.intake.check,
            self.news.released,
            now,
        )
        handlers = (
            About("agent", "1.2.3", now),
            self.discovery,
            SkillsHandler(self.view, ttl_s=60),
            ExecuteHandler(self.road),
            TasksHandler(self.room),
            ConfirmHandler(self.room),
            self.message,
            self.presence,
        )
        routes = [route for handler in handlers for route in handler.routes()]
        self.bench = Bench(routes, admits=self.policy.admits, **options)

    def view(self, principal: JID) -> View:
        """The skills that a principal sees, as the service decides it."""
        key = self.policy.view_key(principal)
        return self.registry.view(key, lambda skill: self.policy.may_use(key, skill.name))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Everything lives for as long as the context, on a database of its own."""
        with tempfile.TemporaryDirectory() as directory:
            async with (
                Storage.open(Path(directory) / "data") as storage,
                anyio.create_task_group() as group,
            ):
                self.storage.opened = storage
                await group.start(self.news.run)
                await group.start(self.room.run)
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
        return await self.room.get(who, JID.parse(AGENT), task)

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
