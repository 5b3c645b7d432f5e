"""A stage for scripts that is a real server.

Nothing runs concurrently: an actor reads its socket when a script waits for it. A server handles
what one stream sends in order, so an actor that has the answer to a request knows that the server
has passed on what it sent before.
"""

import contextlib
import socket
from typing import Final

from tests.kit.offline import OfflineStorage
from tests.servers.base import Server
from tests.servers.kit_stage import HOST, PUBSUB, Actor, Component, Stage
from tests.servers.raw_client import TIMEOUT, TlsSocket, log_in
from tests.servers.watching import node_config
from xep.muc import Affiliation
from xep.stanza import NAMESPACE, Incoming
from xep.stanza_error import StanzaError
from xep.stanza_stream import StanzaReceived, received
from xep.stream import ParserOf, encode_header

ADMIN: Final = "juliet"
"""The account that owns the nodes."""
_NODES: Final = "http://jabber.org/protocol/pubsub"
_ROOMS: Final = "http://jabber.org/protocol/muc"
_ROUNDS: Final = {"prosody": 2, "ejabberd": 3}
"""How often everybody asks for an answer: what one of them sends after that reaches the one before
only in the next round. In ejabberd a presence can cause a probe, and that another presence.
"""


class OnServer(Stage):
    """A real server.

    Args:
        running: it.
        kind: how it behaves.
        number: that of the script.
        admin: the connection of an account that owns the nodes.
    """

    def __init__(
        self, running: Server, kind: OfflineStorage, number: int, admin: TlsSocket
    ) -> None:
        super().__init__(kind, number)
        self._running = running
        self._services: list[str] = []
        """Rooms and PubSub services that a script uses."""
        self._admin = _Client(self, ADMIN, f"{ADMIN}@{HOST}/admin", admin)

    def close(self) -> None:
        """Disconnect everybody."""
        for actor in self.actors:
            actor.close()

    async def client(
        self, name: str, resource: str = "home", presence: str | None = "<presence/>"
    ) -> Actor:
        jid = f"{self.account(name)}/{resource}"
        account = f"{name}-{self._number}"
        client = _Client(self, name, jid, log_in(self._running, account, resource=resource))
        self.actors.append(client)
        # Prosody tells changes of subscriptions only to clients that have asked for the roster.
        await client.marker(self.account(name), "<query xmlns='jabber:iq:roster'/>")
        if presence is not None:
            await client.send(presence)
            await client.marker(HOST)
        return client

    async def component(self, host: str = HOST) -> Actor:
        component = _Component(self, self._running.on(host))
        self.actors.append(component)
        await component.open()
        return component

    async def settle(self) -> None:
        # Rooms and nodes of Prosody have no process of their own, in which stanzas could wait.
        services = self._services if self.server == "ejabberd" else ()
        for _ in range(_ROUNDS[self.server]):
            there = [actor for actor in (self._admin, *self.actors) if actor.is_there]
            marked = [(actor, await actor.mark(to)) for actor in there for to in (*services, HOST)]
            for actor, id_ in marked:
                await actor.answered(id_)

    async def gone(self, actor: Actor) -> None:
        while True:
            id_ = await self._admin.mark(actor.jid)
            await self._admin.marker(HOST)
            if self._admin.answer(id_) == "error":
                return

    async def _create_room(self, address: str, owner: Actor) -> None:
        self._services.append(address)
        await self.enters(address, owner, "owner")
        await owner.gets("subject")
        form = "<x xmlns='jabber:x:data' type='submit'/>"
        await _does(owner, address, f"<query xmlns='{_ROOMS}#owner'>{form}</query>")

    async def affiliate(self, room: str, owner: Actor, jid: str, affiliation: Affiliation) -> None:
        item = f"<item jid='{jid}' affiliation='{affiliation}'/>"
        await _does(owner, room, f"<query xmlns='{_ROOMS}#admin'>{item}</query>")

    async def kick(self, room: str, owner: Actor, nick: str) -> None:
        item = f"<item nick='{nick}' role='none'/>"
        await _does(owner, room, f"<query xmlns='{_ROOMS}#admin'>{item}</query>")

    async def node(self, most: int = 10) -> str:
        name = f"builds-{self._number}"
        self._services.append(PUBSUB)
        config = node_config(max_items=most, persist_items=1, access_model="open")
        await self._change(f"<create node='{name}'/><configure>{config}</configure>")
        return name

    async def publish(self, node: str, id_: str) -> None:
        item = f"<item id='{id_}'><e xmlns='urn:e'>{id_}</e></item>"
        await self._change(f"<publish node='{node}'>{item}</publish>")

    async def retract(self, node: str, id_: str) -> None:
        await self._change(f"<retract node='{node}' notify='1'><item id='{id_}'/></retract>")

    async def purge(self, node: str) -> None:
        await self._change(f"<purge node='{node}'/>", "#owner")

    async def delete(self, node: str) -> None:
        await self._change(f"<delete node='{node}'/>", "#owner")

    async def _change(self, inside: str, of: str = "") -> None:
        await _does(self._admin, PUBSUB, f"<pubsub xmlns='{_NODES}{of}'>{inside}</pubsub>")


async def _does(actor: Actor, to: str, payload: str) -> None:
    answer = await actor.marker(to, payload, "set")
    assert answer == "result", f"{to} refuses {payload}"


class _Client(Actor):
    def __init__(self, stage: OnServer, name: str, jid: str, connection: TlsSocket) -> None:
        super().__init__(stage, name, jid)
        self._socket = connection
        self._parser = ParserOf(received, (NAMESPACE,))
        self._parser.receive(encode_header(NAMESPACE, to=HOST, version="1.0"))

    async def send(self, xml: str) -> None:
        self._socket.sendall(xml.encode())

    async def leave(self) -> None:
        await self._stage.settle()
        self.close()
        await self._stage.gone(self)

    async def pump(self) -> None:
        data = self._socket.recv()
        if not data:
            raise ConnectionError(f"the server has disconnected {self.jid}")
        for event in self._parser.receive(data):
            if isinstance(event, StanzaReceived):
                self._take(event.stanza)
                if event.stanza.kind == "iq" and event.stanza.type in ("get", "set"):
                    await self._refuse(event.stanza)

    async def _refuse(self, request: Incoming) -> None:
        """Answer as the clients of the kit do."""
        error = StanzaError("service-unavailable").encode()
        await self.send(f"<iq type='error' id='{request.id}' to='{request.sender}'>{error}</iq>")

    def close(self) -> None:
        if self.is_there:
            self.is_there = False
            with contextlib.suppress(OSError):
                self._socket.sendall(b"</stream:stream>")
            self._socket.close()


class _Component(Component):
    def __init__(self, stage: OnServer, running: Server) -> None:
        super().__init__(stage, running.component_domain)
        address = running.address, running.component_port
        self._socket = socket.create_connection(address, TIMEOUT)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def write(self, data: bytes) -> None:
        self._socket.sendall(data)

    def close(self) -> None:
        self.is_there = False
        self._socket.close()

    async def pump(self) -> None:
        data = self._socket.recv(1 << 16)
        if not data:
            self.is_there = False
        self.receive(data)
