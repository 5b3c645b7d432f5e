"""Every handler with a real registry and a real policy, behind a real router."""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar, cast
from xml.etree import ElementTree as ET

from component.commands.definition import AnyCommand, Asking, Commands
from component.commands.everybody import everybody
from component.handlers.about import About
from component.handlers.disco import Discovery, Facts
from component.handlers.execute import ExecuteHandler
from component.handlers.message import MessageHandler
from component.handlers.presence import PresenceHandler, Subscriptions
from component.handlers.skills import SkillsHandler
from component.policy import Policy, Rule
from component.router.table import Host
from component.skills import AnySkill, Registry, View
from component.skills.builtin import builtin_skills
from component.skills.conformance_fixtures import conformance_skills
from component.skills.threads import Threads
from tests.component.router.wire import AGENT, DOMAIN, Bench, iq
from xep.binding import Payload, decode, encode
from xep.jid import JID
from xep.stanza import Message, Presence

P = TypeVar("P", bound=Payload)

ALICE = "alice@a.example/phone"
BOB = "bob@b.example/desk"
NODE = "https://example.org/agent"
NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
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


class World:
    """The faces of a service, and what they sent on their own.

    Args:
        skills: what is offered.
        rules: of the policy; everybody of a.example and b.example is admitted.
        subscriptions: where presence keeps them.
        inline_s: seconds that work may take.
        commands: besides those for everybody.
        admins: bare JIDs.
        clock: what the message handler measures time by.
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
        now: Callable[[], datetime] = lambda: NOW,
        **options: Any,
    ) -> None:
        self.policy = Policy(allowed_domains=["a.example", "b.example"], rules=rules)
        self.registry = Registry(skills)
        self.sent: list[Message | Presence] = []

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
        handlers = (
            About("agent", "1.2.3", now),
            self.discovery,
            SkillsHandler(self.view, ttl_s=60),
            ExecuteHandler(self.view, self.threads, inline_s, now),
            self.message,
            self.presence,
        )
        routes = [route for handler in handlers for route in handler.routes()]
        self.bench = Bench(routes, admits=self.policy.admits, **options)

    def view(self, principal: JID) -> View:
        """The skills that a principal sees, as the service decides it."""
        key = self.policy.view_key(principal)
        return self.registry.view(key, lambda skill: self.policy.may_use(key, skill.name))

    def ask(
        self, payload: Payload | str, *, type_: str = "get", from_: str = ALICE, to: str = AGENT
    ) -> ET.Element:
        """The one reply to a request that is answered at once."""
        return self.bench.answer(iq(xml(payload), type_=type_, from_=from_, to=to))

    async def asked(
        self, payload: Payload | str, *, type_: str = "set", from_: str = ALICE, to: str = AGENT
    ) -> ET.Element:
        """The one reply to a request whose work may suspend; the router must be running."""
        before = len(self.bench.output.sent)
        self.bench.receive(iq(xml(payload), type_=type_, from_=from_, to=to))
        await self.bench.settled()
        (reply,) = self.bench.replies[before:]
        return reply


def xml(payload: Payload | str) -> str:
    """A payload as XML text."""
    return payload if isinstance(payload, str) else encode(payload)


def result(cls: type[P], reply: ET.Element) -> P:
    """The payload of a result; it must fit its declaration to the letter."""
    assert reply.get("type") == "result", ET.tostring(reply)
    (child,) = reply
    assert child.tag == cls.xml.tag
    return decode(cls, child, strict=True)
