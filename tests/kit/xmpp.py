"""XMPP servers in memory, with the people and the services that are connected to them.

It routes as `demo_server` does: presence and subscriptions, disco and ping of the server, errors
for what is not there. Or it behaves as Prosody or ejabberd: `tests/servers/test_kit_alike.py` plays
the same scripts on it and on them. Every domain at which a peer has its account is a server of its
own.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from component.config.server import Server
from component.link.connection import failure
from demo_server.component_link import ComponentLink
from demo_server.router import Router
from demo_server.table import Account, Link, Session, Table
from demo_server.wire import Wire
from tests.kit.blocking import Answer, BlockingRouter, Cause, OnKeptOut
from tests.kit.offline import OfflineStorage
from tests.kit.routing import ServerRouter
from tests.kit.stream import ServerEnd, connection
from xep.binding.escaping import escape_attribute, escape_text
from xep.disco import Feature, Identity, InfoQuery
from xep.jid import JID
from xep.stanza import IQ, NAMESPACE, Incoming
from xep.stanza_error import StanzaError
from xep.stream import ElementReceived, StreamError, StreamParser, encode_header

_MAX_OUTPUT = 16 * 1024 * 1024


def parse(xml: str) -> Incoming:
    """Return a stanza. Raises AssertionError if the text is not one."""
    parser = StreamParser((NAMESPACE,))
    events = parser.receive(encode_header(NAMESPACE, to="x", version="1.0") + xml.encode())
    elements = [event.element for event in events if isinstance(event, ElementReceived)]
    assert len(elements) == 1, f"this is not one stanza: {xml}"
    return Incoming.of(elements[0], len(xml.encode()))


class Xmpp:
    """The servers, one for each domain, and the connections of services.

    Args:
        group: runs the connections.
        server: which server they behave as (`tests.kit.routing`), also in what they keep for people
            who are away (`tests.kit.offline`); None for `demo_server`, which keeps nothing.
        federates: whether servers of other domains may exist. Those of tests that are real do not
            look for them.

    Attributes:
        stanzas: every stanza between servers and services, in order: "received" by a server or
            "sent" by it, and the XML.
        is_up: whether the servers accept connections of services.
        cut: domains that stanzas of other domains do not reach; they are lost.
        parted: pairs of domains between which stanzas are lost.
        passing: called with each stanza that one server sends to another: the domains, and the XML.
        kept_out: called with an account, each stanza that it does not get, and the cause; see
            `tests.kit.blocking`.
        delay: returns how many seconds a stanza takes from one server to another; None if they take
            none. Stanzas between the same two domains stay in order.
    """

    def __init__(
        self, group: TaskGroup, server: OfflineStorage | None = None, *, federates: bool = True
    ) -> None:
        self._server = server
        self._federates = federates
        self.stanzas: list[tuple[str, str]] = []
        self.is_up = True
        self.cut: set[str] = set()
        self.parted: set[frozenset[str]] = set()
        self.passing: Callable[[str, str, str], None] = lambda _from, _to, _xml: None
        self.kept_out: OnKeptOut = lambda _account, _xml, _cause: None
        self.delay: Callable[[], float] | None = None
        self._late: dict[tuple[str, str], deque[tuple[float, Incoming]]] = {}
        """What is on its way between two domains, and when it arrives."""
        self._secrets: dict[str, str] = {}
        self._group = group
        self._hosts: dict[str, BlockingRouter] = {}
        self._homes: dict[str, Router] = {}
        """The server of each service, by the domain of the service."""
        self._connections: dict[str, list[tuple[object, ServerEnd, Wire]]] = {}
        """Those of each domain, with their owners."""

    def add_service(self, domain: str, secret: str) -> None:
        """Let a service with this domain connect to the server of the domain above."""
        if domain in self._homes:
            return
        self._secrets[domain] = secret
        self._homes[domain] = home = self._host(domain.partition(".")[2] or "localhost")
        home.table.components[domain] = None
        for router in self._hosts.values():
            if router is not home:
                router.table.components[domain] = _Remote(self, domain)

    async def connect(self, options: Server, owner: object = None) -> Any:
        """Open the connection of a service; see `component.link.connection.transport.connect`.

        Several services of one domain are distinguished by their owners.
        """
        await anyio.lowlevel.checkpoint()
        if not self.is_up:
            raise failure.connect_failed(options, ConnectionRefusedError(111, "refused"))
        ours, theirs = connection(options)
        domain = options.component_domain
        wire = Wire(theirs, _MAX_OUTPUT, self._tap)
        mine = owner, theirs, wire
        self._connections.setdefault(domain, []).append(mine)
        link = ComponentLink(wire, self._secrets, self._homes[domain])

        async def run() -> None:
            await wire.run(link.talk)
            if mine in self._connections[domain]:
                self._connections[domain].remove(mine)

        self._group.start_soon(run)
        return ours

    def connect_link(self, domain: str, link: Link) -> Router:
        """Connect a service that a test plays; return the server, to which it sends."""
        home = self._homes[domain]
        home.table.components[domain] = link
        return home

    def serve_accounts(self, host: str, answers: Mapping[str, Answer]) -> Router:
        """Let functions answer the requests to accounts of a host, by their payloads; return the
        server.
        """
        router = self._host(host)
        router.answers.update(answers)
        return router

    def disconnect(self, domain: str, owner: object = None) -> None:
        """Break all connections of a domain, or those of one owner."""
        links = self._homes[domain].table.components
        connections = self._connections.get(domain, [])
        for connection_ in [one for one in connections if owner in (None, one[0])]:
            connections.remove(connection_)
            _, theirs, wire = connection_
            theirs.reset()
            if links[domain] is wire:
                links[domain] = None

    def is_connected(self, domain: str) -> bool:
        """Return whether a service is connected."""
        return self._homes[domain].table.components[domain] is not None

    def enter(self, jid: JID, link: "_Link") -> tuple[Router, Session]:
        """Log a client in; return its session, and the server that it is connected to."""
        router = self.add_account(jid)
        return router, router.enter(jid.local or "", jid.resource, link)

    def add_account(self, jid: JID) -> Router:
        """Have an account, whose clients may log in later; return its server."""
        router = self._host(jid.domain)
        assert jid.local is not None, "an account has a localpart"
        router.table.accounts.setdefault(jid.local, Account(jid.bare))
        return router

    def _host(self, domain: str) -> BlockingRouter:
        found = self._hosts.get(domain)
        if found is None:
            table = Table(domain, (), ())
            if self._server is None:
                found = BlockingRouter(table, "prosody", self._keeps_out)
            else:
                found = ServerRouter(
                    table, self._server, self._keeps_out, federates=self._federates
                )
            for other, router in self._hosts.items():
                router.table.components[domain] = _Remote(self, domain)
                found.table.components[other] = _Remote(self, other)
            for service in self._homes:
                found.table.components[service] = _Remote(self, service)
            self._hosts[domain] = found
        return found

    def _keeps_out(self, account: JID, xml: str, cause: Cause) -> None:
        self.kept_out(account, xml, cause)

    def deliver(self, domain: str, xml: str) -> None:
        """Deliver a stanza that another server sends to a domain."""
        stanza = parse(xml)
        between = JID.parse(stanza.sender or "").domain, domain
        self.passing(*between, xml)
        late = self._late.get(between)
        if self.delay is None and late is None:
            self._arrive(between, stanza)
            return
        at = anyio.current_time() + (0.0 if self.delay is None else self.delay())
        if late is None:
            self._late[between] = late = deque()
            self._group.start_soon(self._carry, between, late)
        late.append((max(at, late[-1][0]) if late else at, stanza))

    async def _carry(self, between: tuple[str, str], late: deque[tuple[float, Incoming]]) -> None:
        """Deliver what is on its way between two domains, each stanza at its time."""
        while late:
            at, stanza = late[0]
            await anyio.sleep(max(0.0, at - anyio.current_time()))
            late.popleft()
            self._arrive(between, stanza)
        del self._late[between]

    def _arrive(self, between: tuple[str, str], stanza: Incoming) -> None:
        _, domain = between
        if not self.cut.isdisjoint(between) or frozenset(between) in self.parted:
            return
        sender = JID.parse(stanza.sender or "")
        router = self._hosts.get(domain) or self._homes[domain]
        router.from_component(sender, stanza, _Remote(self, sender.domain))

    def _tap(self, direction: str, _name: str, xml: str) -> None:
        self.stanzas.append((direction, xml))


class _Remote:
    """Another server, as a link."""

    def __init__(self, xmpp: Xmpp, domain: str) -> None:
        self._xmpp = xmpp
        self._domain = domain

    def send(self, xml: str) -> None:
        self._xmpp.deliver(self._domain, xml)

    def close(self, error: StreamError) -> None:
        raise AssertionError(f"the link to {self._domain} has ended: {error}")


class Peer:
    """A person's client, connected to its server.

    It answers requests with `answer`: to disco#info with its `features`, to all others
    with an error.

    Args:
        xmpp: the servers.
        jid: its full address.
        agent: the address that `say` and `iq` write to.
        presence: the presence that it sends at once; None for none.
        features: what it announces by service discovery; a request is refused without any.

    Attributes:
        jid: its full address.
        stanzas: all that reached it, in order, without requests.
        requests: the requests that reached it.
        answer: gives the payload of the result for a request, or raises StanzaError.
    """

    def __init__(
        self,
        xmpp: Xmpp,
        jid: JID,
        agent: str,
        *,
        presence: str | None = "<presence/>",
        features: Sequence[str] = (),
    ) -> None:
        self.jid = jid
        self.stanzas: list[Incoming] = []
        self.requests: list[Incoming] = []
        self.answer: Callable[[Incoming], Any] = self._info
        self._agent = agent
        self._features = features
        self._waiting: list[Incoming] = []
        self._arrived = anyio.Event()
        self._ids = count(1)
        self._router, self._session = xmpp.enter(jid, _Link(self))
        if presence is not None:
            self._router.from_client(self._session, parse(presence))

    # What a test does.

    async def send(self, xml: str) -> None:
        """Send a stanza."""
        self._router.from_client(self._session, parse(xml))
        await anyio.lowlevel.checkpoint()

    async def say(self, text: str, to: str = "") -> None:
        """Send a chat message, to the agent unless `to` is given."""
        await self.send(
            f"<message to='{escape_attribute(to or self._agent)}' type='chat'"
            f" id='{self.jid.local}-{next(self._ids)}'><body>{escape_text(text)}</body></message>"
        )

    async def iq(self, type_: str, payload: str, to: str = "") -> Incoming:
        """Send an IQ, to the agent unless `to` is given; return its answer."""
        to, id_ = escape_attribute(to or self._agent), f"{self.jid.local}-{next(self._ids)}"
        await self.send(f"<iq to='{to}' type='{type_}' id='{id_}'>{payload}</iq>")
        return await self.receive(lambda stanza: stanza.kind == "iq" and stanza.id == id_)

    async def receive(
        self, wanted: Callable[[Incoming], bool] = lambda _: True, *, within_s: float = 60.0
    ) -> Incoming:
        """Return the next stanza that is wanted; others wait for a later call.

        Raises TimeoutError: none arrives in this time, in seconds of the simulated clock.
        """
        with anyio.fail_after(within_s):
            while True:
                for number, stanza in enumerate(self._waiting):
                    if wanted(stanza):
                        return self._waiting.pop(number)
                self._arrived = anyio.Event()
                await self._arrived.wait()

    async def hear(self, words: str = "", *, within_s: float = 60.0) -> str:
        """Return the body of the next message that contains these words; others wait.

        Raises TimeoutError, like `receive`.
        """
        message = await self.receive(
            lambda stanza: bool(body(stanza)) and words in body(stanza), within_s=within_s
        )
        return body(message)

    async def ask(self, text: str, words: str = "") -> str:
        """Send a chat message to the agent; return the next body that contains these words."""
        await self.say(text)
        return await self.hear(words)

    def take(self) -> list[Incoming]:
        """Return the stanzas that have arrived since the last call, without waiting."""
        taken, self._waiting = self._waiting, []
        return taken

    async def leave(self) -> None:
        """Disconnect."""
        self._router.leave(self._session)
        await anyio.lowlevel.checkpoint()

    def deliver(self, xml: str) -> None:
        """Take a stanza from the server."""
        stanza = parse(xml)
        if stanza.kind == "iq" and stanza.type in ("get", "set"):
            self.requests.append(stanza)
            self._router.from_client(self._session, parse(self._reply(stanza)))
            return
        if stanza.kind == "presence" and stanza.sender == str(self.jid):
            return  # a server sends a client its own presence, too
        self.stanzas.append(stanza)
        self._waiting.append(stanza)
        self._arrived.set()

    def _reply(self, request: Incoming) -> str:
        to = JID.parse(request.sender or "")
        try:
            payload = self.answer(request)
        except StanzaError as error:
            return IQ(
                type="error", id=request.id or "", to=to, from_=self.jid, error=error
            ).encode()
        return IQ(
            type="result", id=request.id or "", to=to, from_=self.jid, payload=payload
        ).encode()

    def _info(self, request: Incoming) -> InfoQuery:
        if request.sole_child != InfoQuery.xml.tag or not self._features:
            raise StanzaError("service-unavailable")
        return InfoQuery(
            node=request.require(InfoQuery).node,
            identities=(Identity(category="client", type="pc"),),
            features=tuple(Feature(var=feature) for feature in self._features),
        )


class _Link:
    """The stream from the server to a peer."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    def send(self, xml: str) -> None:
        self._peer.deliver(xml)

    def close(self, error: StreamError) -> None:
        raise AssertionError(f"the stream of {self._peer.jid} has ended: {error}")


def body(stanza: Incoming) -> str:
    """Return the body of a message; empty without one."""
    return (stanza.text_of("body") or "") if stanza.kind == "message" else ""
