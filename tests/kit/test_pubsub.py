"""The PubSub service of the kit behaves as those of servers, and watches work with it."""

from pathlib import Path

import anyio
import pytest

from component.skills import skill
from tests.kit import Kit, anyio_backend, service
from tests.kit.pubsub import DOMAIN, PubSubService, Server
from tests.kit.xmpp import Peer
from xep.binding import encode
from xep.jid import JID
from xep.pubsub import Item, Items, Pubsub, Subscribe, Unsubscribe
from xep.pubsub_event import Event
from xep.result_sets import ResultSet
from xep.stanza import Incoming

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

BOTH = pytest.mark.parametrize("server", ["prosody", "ejabberd"])
JULIET = "juliet@capulet.example/balcony"


class World:
    """A service with one node, and a client."""

    def __init__(self, kit: Kit, server: Server) -> None:
        self.pubsub = PubSubService(kit.xmpp, server=server)
        self.node = self.pubsub.create("builds", most=3)
        self.juliet: Peer = kit.peer(JULIET)

    async def asks(self, type_: str, request: Pubsub) -> Incoming:
        return await self.juliet.iq(type_, encode(request, "jabber:client"), DOMAIN)

    async def subscribes(self) -> Incoming:
        request = Subscribe(node="builds", jid=JID.parse(JULIET).bare)
        return await self.asks("set", Pubsub(subscribe=request))

    async def lists(self, page: ResultSet | None = None, **wanted: object) -> list[str]:
        items = Items(node="builds", **wanted)  # type: ignore[arg-type]
        answer = await self.asks("get", Pubsub(items=items, page=page))
        found = answer.require(Pubsub).items
        assert found is not None
        return [one.id or "" for one in found.items]

    def notified(self) -> list[str]:
        """Return the ids in the notifications since the last call."""
        found = []
        for stanza in self.juliet.take():
            if Event.xml.tag not in stanza.child_names:
                continue
            event = stanza.require(Event)
            if event.items is not None:
                found += [f"{type(one).__name__} {one.id}" for one in event.items.items]
            elif event.purge is not None:
                found.append("purge")
            elif event.delete is not None:
                found.append("delete")
        return found


@BOTH
async def test_subscribers_are_notified_in_order(tmp_path: Path, server: Server) -> None:
    async with service(tmp_path) as kit:
        world = World(kit, server)
        await world.subscribes()
        world.node.publish("a", "<e xmlns='urn:e'>1</e>")
        world.node.publish("b", "<e xmlns='urn:e'>2</e>")
        world.node.retract("a")
        world.node.purge()
        assert world.notified() == ["Item a", "Item b", "Retract a", "purge"]
        world.node.delete()
        assert world.notified() == (["delete"] if server == "prosody" else [])
        assert (await world.subscribes()).error().condition == "item-not-found"


@BOTH
async def test_only_ejabberd_sends_the_last_item(tmp_path: Path, server: Server) -> None:
    async with service(tmp_path) as kit:
        world = World(kit, server)
        world.node.publish("a", "<e xmlns='urn:e'/>")
        await world.subscribes()
        await world.subscribes()
        assert world.notified() == (["Item a"] * 2 if server == "ejabberd" else [])


@BOTH
async def test_items_are_listed_and_the_oldest_forgotten(tmp_path: Path, server: Server) -> None:
    async with service(tmp_path) as kit:
        world = World(kit, server)
        for id_ in ("a", "b", "c", "d", "b"):
            world.node.publish(id_, "<e xmlns='urn:e'/>")
        order = ["c", "d", "b"] if server == "prosody" else ["b", "c", "d"]
        assert await world.lists() == order
        assert await world.lists(max_items=1) == order[-1:]
        assert await world.lists(items=(Item(id="c"), Item(id="z"))) == ["c"]
        page = await world.lists(ResultSet(max=2))
        assert page == (order if server == "prosody" else order[:2])


@BOTH
async def test_a_page_follows_another(tmp_path: Path, server: Server) -> None:
    async with service(tmp_path) as kit:
        world = World(kit, server)
        for id_ in ("a", "b", "c"):
            world.node.publish(id_, "<e xmlns='urn:e'/>")
        request = Pubsub(items=Items(node="builds"), page=ResultSet(max=2))
        answer = (await world.asks("get", request)).require(Pubsub)
        if server == "prosody":
            assert answer.page is None
            return
        assert answer.page is not None
        assert await world.lists(ResultSet(max=2, after=answer.page.last)) == ["c"]


@BOTH
async def test_what_is_refused(tmp_path: Path, server: Server) -> None:
    async with service(tmp_path) as kit:
        world = World(kit, server)
        mine = JID.parse(JULIET).bare
        gone = Pubsub(unsubscribe=Unsubscribe(node="builds", jid=mine))
        assert (await world.asks("set", gone)).error().condition == "unexpected-request"
        world.node.is_closed = True
        refused = "forbidden" if server == "prosody" else "not-allowed"
        assert (await world.subscribes()).error().condition == refused
        world.pubsub.go()
        assert (await world.subscribes()).error().condition == "remote-server-timeout"
        world.pubsub.come()
        world.node.is_closed = False
        assert (await world.subscribes()).type == "result"


@BOTH
async def test_a_watch_catches_up_with_what_was_lost(tmp_path: Path, server: Server) -> None:
    done: list[str] = []

    @skill(destructive=False, open_world=False)
    async def note(text: str) -> str:
        """Write a note."""
        done.append(text)
        return text

    watch = {
        "name": "builds",
        "service": DOMAIN,
        "node": "builds",
        "principal": "juliet@capulet.example",
        "skill": "note",
        "params": {"text": "{text}"},
    }
    settings = {"watch": [watch], "agent": {"allowed_domains": ["capulet.example"]}}
    async with service(tmp_path, settings, skills=[note]) as kit:
        pubsub = PubSubService(kit.xmpp, server=server)
        node = pubsub.create("builds")
        node.publish("old", "<e xmlns='urn:e'>old</e>")
        await anyio.sleep(10)
        assert node.subscribers
        node.publish("a", "<e xmlns='urn:e'>a</e>")
        await kit.settled()
        await kit.stop()
        node.publish("b", "<e xmlns='urn:e'>b</e>")
        node.publish("a", "<e xmlns='urn:e'>c</e>")
        await kit.start()
        await anyio.sleep(10)
        assert done == (["a", "b", "c"] if server == "prosody" else ["a", "c", "b"])
