"""A router between a real component stream and a list, and what its tests send through it."""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from itertools import count
from typing import Annotated, Any
from xml.etree import ElementTree as ET
from xml.sax.saxutils import quoteattr

import anyio
from anyio.lowlevel import checkpoint

from component.kernel.errors import AgentErrors
from component.link.messages.delivery import Delivery, DeliveryOutcome
from component.link.router.addresses import Addresses, ComponentAddresses
from component.link.router.faults import RouterErrors
from component.link.router.route_resolver import Senders
from component.link.router.router import Router, RouterOptions, StanzaEvent
from component.link.router.table import IQRoute, Route
from component.link.router.work import Shares
from xep.binding import Attr, Name, Payload, Text
from xep.component_stream import ComponentStream, HandshakeAccepted
from xep.fluux_agent.errors import CONDITIONS
from xep.jid import JID
from xep.stanza_error import StanzaError
from xep.stanza_stream import StanzaReceived
from xep.stream import StanzaSkipped, StreamLimits, StreamOpened

DOMAIN = "agent.example.com"
AGENT = f"assistant@{DOMAIN}"
OURS = ComponentAddresses(JID.parse(DOMAIN), frozenset(("assistant",)))
REFUSED = "refused.example"
"""The domain whose addresses the policy of these tests refuses."""

_CLIENT = "{jabber:client}"
_HEADER = (
    "<stream:stream xmlns='jabber:component:accept' "
    f"xmlns:stream='http://etherx.jabber.org/streams' from='{DOMAIN}' id='s1'>"
)


class Do(Payload, frozen=True, kw_only=True):
    """A request whose handler does what it says."""

    xml = Name("urn:test:router", "do")

    what: Annotated[str, Attr()] = ""
    number: Annotated[int | None, Attr()] = None


class Done(Payload, frozen=True, kw_only=True):
    """The answer to it."""

    xml = Name("urn:test:router", "done")

    text: Annotated[str, Text()] = ""


class ErrorsOfTheProtocol(AgentErrors):
    """As if the requests of these tests were of the protocol."""

    def malformed(self, payload: str | None, reason: str) -> StanzaError:
        return super().malformed(None, reason)

    def too_big(self, payload: str | None, limit: int | None, text: str) -> StanzaError:
        return super().too_big(None, limit, text)

    def internal(self, payload: str | None) -> StanzaError:
        return super().internal(None)

    def busy(self, payload: str | None, text: str, retry_after_s: int) -> StanzaError:
        return super().busy(None, text, retry_after_s)


class Waiting:
    """A stanza that can always be taken back while it is not settled."""

    def __init__(self, output: "ListOutput", xml: str, delivery: Delivery) -> None:
        self.output = output
        self.xml = xml
        self.delivery = delivery

    def settle(self, outcome: DeliveryOutcome) -> None:
        self.output.waiting.remove(self)
        self.delivery.settle(self, outcome)

    def withdraw(self) -> bool:
        self.settle("withdrawn")
        self.output.withdrawn.append(self.xml)
        return True


class ListOutput:
    """Keeps what is put; ``flushed`` says how much had been put at each flush.

    Stanzas with a delivery count as written at once, or wait while ``holds`` is set.
    """

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.flushed: list[int] = []
        self.waiting: list[Waiting] = []
        self.withdrawn: list[str] = []
        self.holds = False
        self.congested = False
        self.room = anyio.Event()
        self.room.set()

    def refuses(self, principal: str) -> bool:
        return self.congested

    def put(self, xml: str, delivery: Delivery | None = None, to: str = "") -> None:
        self.sent.append(xml)
        if delivery is not None:
            waiting = Waiting(self, xml, delivery)
            self.waiting.append(waiting)
            delivery.add(waiting)
            if not self.holds:
                waiting.settle("written")

    def settle(self, outcome: DeliveryOutcome) -> None:
        """Settle all that waits."""
        for waiting in list(self.waiting):
            waiting.settle(outcome)

    async def ready(self) -> None:
        await self.room.wait()

    def send_now(self) -> None:
        self.flushed.append(len(self.sent))


class Wire:
    """The component's end of a stream that is ready: XML in, events out."""

    def __init__(self, limits: StreamLimits | None = None) -> None:
        self._stream = ComponentStream(DOMAIN, "secret", limits)
        self._stream.open()
        (opened,) = self._stream.receive(_HEADER.encode())
        assert isinstance(opened, StreamOpened)
        self._stream.handshake()
        (accepted,) = self._stream.receive(b"<handshake/>")
        assert isinstance(accepted, HandshakeAccepted)

    def events(self, xml: str) -> list[StanzaEvent]:
        """What one read of ``xml`` gives."""
        events: list[StanzaEvent] = []
        for event in self._stream.receive(xml.encode()):
            assert isinstance(event, StanzaReceived | StanzaSkipped), event
            events.append(event)
        return events


class Bench:
    """A router, its wire and its output.

    Args:
        routes: what is served.
        admits: whom the policy admits; by default all but the domain REFUSED.
        is_room: whether an agent is in a room.
        limits: of the stream.
        ours: our addresses.
        faults: makes errors; by default those of the protocol, whatever the payload.
        options: of the router.
    """

    def __init__(
        self,
        routes: Iterable[Route] = (),
        *,
        admits: Callable[[JID], bool] = lambda principal: principal.domain != REFUSED,
        is_room: Callable[[JID], bool] = lambda _: False,
        limits: StreamLimits | None = None,
        shares: Shares | None = None,
        faults: RouterErrors | None = None,
        ours: Addresses = OURS,
        **options: Any,
    ) -> None:
        self.wire = Wire(limits)
        self.output = ListOutput()
        self.options = RouterOptions(
            shares=shares or Shares(),
            **options,
        )
        faults = ErrorsOfTheProtocol() if faults is None else faults
        output: Any = self.output
        senders = Senders(admits, ours, is_room=is_room)
        self.router = Router(self.options, senders, faults, routes, output)

    def receive(self, *stanzas: str) -> None:
        """Hand over all the stanzas as one read."""
        waiting = self.router.received(self.wire.events("".join(stanzas)))
        while waiting:
            waiting = self.router.received(())

    def answer(self, stanza: str) -> ET.Element:
        """The one reply to a stanza that is answered at once."""
        before = len(self.output.sent)
        self.receive(stanza)
        (sent,) = self.output.sent[before:]
        return parse(sent)

    @property
    def replies(self) -> list[ET.Element]:
        """All that was put."""
        return [parse(sent) for sent in self.output.sent]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The router's tasks live for as long as the context."""
        async with anyio.create_task_group() as tasks:
            await tasks.start(self.router.run)
            yield
            tasks.cancel_scope.cancel()

    async def settled(self) -> None:
        """Wait until nothing is under way any more."""
        await until(lambda: not self.router._admission.total)


async def until(condition: Callable[[], object]) -> None:
    """Let everything else run until it holds.

    After some turns of the event loop it sleeps between two looks: threads need the interpreter.
    """
    with anyio.fail_after(120):
        for turn in count():
            if condition():
                return
            await (checkpoint() if turn < 20 else anyio.sleep(0.001))


def do(handler: Callable[[Any], Any], type_: Any = "get") -> IQRoute:
    """The route of ``Do``."""
    return IQRoute(type_, Do, handler, ("urn:test:router",))


def parse(xml: str) -> ET.Element:
    """A stanza that was put, as the server reads it."""
    return ET.fromstring(f"<stream xmlns='jabber:client'>{xml}</stream>")[0]


def element(name: str, content: str = "", **attributes: str | None) -> str:
    """XML text; attributes that are None are left out, ``from_`` is ``from``."""
    xml = f"<{name}"
    for key, value in attributes.items():
        if value is not None:
            xml += f" {key.rstrip('_')}={quoteattr(value)}"
    return f"{xml}>{content}</{name}>"


def iq(
    content: str = "<do xmlns='urn:test:router'/>",
    *,
    type_: str | None = "get",
    id_: str | None = "1",
    from_: str | None = "alice@a.example/phone",
    to: str | None = DOMAIN,
) -> str:
    """An IQ as XML text."""
    return element("iq", content, type=type_, id=id_, from_=from_, to=to)


def request(what: str = "", **attributes: str | None) -> str:
    """An IQ that holds ``Do``."""
    return iq(element("do", xmlns="urn:test:router", what=what), **attributes)


def addresses(reply: ET.Element) -> tuple[str | None, str | None, str | None]:
    """Id, to and from of a reply."""
    return reply.get("id"), reply.get("to"), reply.get("from")


def error_of(reply: ET.Element) -> StanzaError:
    """The error of a reply that is one, with its application conditions."""
    assert reply.get("type") == "error", ET.tostring(reply)
    return StanzaError.of(reply.find(f"{_CLIENT}error"), CONDITIONS)


def condition(reply: ET.Element) -> str:
    """The condition of a reply that is an error."""
    return error_of(reply).condition


def is_bare(reply: ET.Element, name: str) -> bool:
    """Whether the error says nothing but the condition ``name``."""
    (error,) = reply
    (only,) = error
    return only.tag == f"{{urn:ietf:params:xml:ns:xmpp-stanzas}}{name}" and not len(only)
