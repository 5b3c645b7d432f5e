"""A stage for scripts that is the kit's server in memory."""

from typing import Any, Final

from anyio.abc import TaskGroup
from trio.testing import wait_all_tasks_blocked

from component.config.server import Server as Options
from tests.kit.offline import OfflineStorage
from tests.kit.pubsub import PubSubService
from tests.kit.rooms import Rooms
from tests.kit.xmpp import Peer, Xmpp, parse
from tests.servers.kit_stage import (
    HOST,
    OTHER_HOST,
    PEOPLE,
    PUBSUB,
    ROOMS,
    SECRET,
    Actor,
    Component,
    Stage,
)
from xep.jid import JID
from xep.muc import KICKED, Affiliation

_MOST: Final = 1 << 16


class InMemory(Stage):
    """The kit, behaving as one of the servers."""

    def __init__(self, server: OfflineStorage, number: int, group: TaskGroup) -> None:
        super().__init__(server, number)
        self.xmpp = Xmpp(group, server, federates=False)
        for host in (HOST, OTHER_HOST):
            self.xmpp.add_service(f"agent.{host}", SECRET)
        self._rooms = Rooms(self.xmpp, ROOMS, server=server)
        self._pubsub = PubSubService(self.xmpp, PUBSUB, server=server)
        for name in PEOPLE:
            self.xmpp.add_account(JID.parse(self.account(name)))

    async def client(
        self, name: str, resource: str = "home", presence: str | None = "<presence/>"
    ) -> Actor:
        client = _Client(self, name, f"{self.account(name)}/{resource}", presence)
        self.actors.append(client)
        return client

    async def component(self, host: str = HOST) -> Actor:
        domain = f"agent.{host}"
        options = Options(component_domain=domain, component_secret=SECRET)
        component = _Component(self, domain, await self.xmpp.connect(options))
        self.actors.append(component)
        await component.open()
        return component

    async def settle(self) -> None:
        await wait_all_tasks_blocked()
        for actor in self.actors:
            if isinstance(actor, _Component):
                actor.drain()

    async def gone(self, actor: Actor) -> None:
        await self.settle()

    async def _create_room(self, address: str, owner: Actor) -> None:
        room = self._rooms.create(JID.parse(address).local or "")
        room.affiliations[JID.parse(owner.jid).bare] = "owner"
        await self.enters(address, owner, "owner")

    async def affiliate(self, room: str, owner: Actor, jid: str, affiliation: Affiliation) -> None:
        self._rooms.rooms[JID.parse(room)].affiliations[JID.parse(jid)] = affiliation

    async def kick(self, room: str, owner: Actor, nick: str) -> None:
        self._rooms.rooms[JID.parse(room)].remove(nick, KICKED)

    async def node(self, most: int = 10) -> str:
        return self._pubsub.create(f"builds-{self._number}", most).name

    async def publish(self, node: str, id_: str) -> None:
        self._pubsub.nodes[node].publish(id_, f"<e xmlns='urn:e'>{id_}</e>")

    async def retract(self, node: str, id_: str) -> None:
        self._pubsub.nodes[node].retract(id_)

    async def purge(self, node: str) -> None:
        self._pubsub.nodes[node].purge()

    async def delete(self, node: str) -> None:
        self._pubsub.nodes[node].delete()


class _Client(Actor):
    def __init__(self, stage: InMemory, name: str, jid: str, presence: str | None) -> None:
        super().__init__(stage, name, jid)
        take, is_there = self._take, lambda: self.is_there

        class Recorded(Peer):
            def deliver(self, xml: str) -> None:
                if is_there():
                    take(parse(xml))
                super().deliver(xml)

        self._peer = Recorded(stage.xmpp, JID.parse(jid), "nobody", presence=presence)

    async def send(self, xml: str) -> None:
        await self._peer.send(xml)

    async def leave(self) -> None:
        self.is_there = False
        await self._peer.leave()
        await self._stage.gone(self)

    def close(self) -> None:
        """Not needed."""

    async def pump(self) -> None:
        before = len(self.lines)
        await self._stage.settle()
        assert len(self.lines) > before, f"{self.name} receives nothing more: {self.lines}"


class _Component(Component):
    def __init__(self, stage: InMemory, domain: str, transport: Any) -> None:
        super().__init__(stage, domain)
        self._transport = transport

    def write(self, data: bytes) -> None:
        self._transport.try_send(data)

    def close(self) -> None:
        self.is_there = False
        self._transport.close()

    async def pump(self) -> None:
        await wait_all_tasks_blocked()
        assert self.drain(), f"{self.name} receives nothing more: {self.lines}"

    def drain(self) -> bool:
        """Take what has arrived; return whether that was something."""
        found = False
        while self.is_there and (data := self._transport.receive_now(_MOST)):
            self.receive(data)
            found = True
        return found
