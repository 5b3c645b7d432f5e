"""Messages for people who are away are kept as Prosody and ejabberd keep them."""

import anyio
import pytest

from tests.kit import anyio_backend
from tests.kit.offline import EJABBERD_MOST, OfflineStorage
from tests.kit.xmpp import Peer, Xmpp, body
from xep.jid import JID
from xep.stanza import Incoming

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

BOTH = pytest.mark.parametrize("server", ["prosody", "ejabberd"])


class World:
    """A server, and somebody who writes to Juliet."""

    def __init__(self, group: anyio.abc.TaskGroup, server: OfflineStorage | None) -> None:
        self.xmpp = Xmpp(group, server)
        self.romeo = self.peer("romeo@capulet.example/orchard")

    def peer(self, jid: str, presence: str | None = "<presence/>") -> Peer:
        return Peer(self.xmpp, JID.parse(jid), "nobody.capulet.example", presence=presence)

    def juliet(self, presence: str | None = "<presence/>", resource: str = "balcony") -> Peer:
        return self.peer(f"juliet@capulet.example/{resource}", presence)

    async def away(self) -> None:
        await self.juliet().leave()

    async def writes(
        self, text: str, type_: str = "chat", resource: str = "", inside: str = ""
    ) -> None:
        to = f"juliet@capulet.example{resource and '/'}{resource}"
        said = f"<body>{text}</body>" if text else ""
        await self.romeo.send(
            f"<message to='{to}' type='{type_}' id='{text}'>{said}{inside}</message>"
        )

    def errors(self) -> list[str]:
        return [
            f"{one.id}: {one.error().condition} {one.error().type}"
            for one in self.romeo.take()
            if one.type == "error"
        ]


def texts(stanzas: list[Incoming]) -> list[str]:
    return [body(one) for one in stanzas if one.kind == "message"]


async def test_without_storage_a_message_is_refused() -> None:
    async with anyio.create_task_group() as group:
        world = World(group, None)
        await world.away()
        await world.writes("hello")
        assert world.errors() == ["hello: service-unavailable cancel"]
        assert texts(world.juliet().take()) == []


@BOTH
async def test_messages_wait_in_their_order_for_who_is_away(server: OfflineStorage) -> None:
    async with anyio.create_task_group() as group:
        world = World(group, server)
        await world.away()
        await world.writes("one")
        await world.writes("two", "normal", "balcony")
        await anyio.sleep(3600)
        got = world.juliet().take()
        assert texts(got) == ["one", "two"]
        delay = "{urn:xmpp:delay}delay"
        assert all(delay in one.child_names for one in got if one.kind == "message")
        assert world.errors() == []
        assert texts(world.juliet(resource="orchard").take()) == []


@BOTH
async def test_they_wait_for_a_client_that_wants_messages(server: OfflineStorage) -> None:
    async with anyio.create_task_group() as group:
        world = World(group, server)
        await world.away()
        juliet = world.juliet(None)
        await world.writes("one")
        assert texts(juliet.take()) == []
        await juliet.send("<presence><priority>-1</priority></presence>")
        assert texts(juliet.take()) == []
        await juliet.send("<presence/>")
        # Prosody looks only at the first presence of a session.
        assert texts(juliet.take()) == (["one"] if server == "ejabberd" else [])
        await juliet.leave()
        assert texts(world.juliet().take()) == ([] if server == "ejabberd" else ["one"])


@BOTH
async def test_other_types_are_not_kept(server: OfflineStorage) -> None:
    async with anyio.create_task_group() as group:
        world = World(group, server)
        await world.away()
        await world.writes("news", "headline")
        await world.writes("room", "groupchat")
        error = "<error type='cancel'><gone xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error>"
        await world.writes("sorry", "error", inside=error)
        assert world.errors() == ["room: service-unavailable cancel"]
        assert texts(world.juliet().take()) == []


@BOTH
async def test_nobody_keeps_messages_for_who_does_not_exist(server: OfflineStorage) -> None:
    async with anyio.create_task_group() as group:
        world = World(group, server)
        await world.writes("hello")
        assert world.errors() == ["hello: service-unavailable cancel"]


@BOTH
@pytest.mark.parametrize(
    "inside",
    [
        "<no-store xmlns='urn:xmpp:hints'/><x xmlns='urn:x'/>",
        "<composing xmlns='http://jabber.org/protocol/chatstates'/><thread>t</thread>",
    ],
)
async def test_ejabberd_refuses_what_is_not_to_be_stored(
    server: OfflineStorage, inside: str
) -> None:
    async with anyio.create_task_group() as group:
        world = World(group, server)
        await world.away()
        await world.writes("", inside=inside)
        refused = world.errors()
        kept = texts(world.juliet().take())
        if server == "ejabberd":
            assert (refused, kept) == ([": service-unavailable cancel"], [])
        else:
            assert (refused, kept) == ([], [""])


async def test_ejabberd_keeps_so_many_messages() -> None:
    async with anyio.create_task_group() as group:
        world = World(group, "ejabberd")
        await world.away()
        for number in range(EJABBERD_MOST + 1):
            await world.writes(f"m{number}")
        assert world.errors() == [f"m{EJABBERD_MOST}: resource-constraint wait"]
        assert len(texts(world.juliet().take())) == EJABBERD_MOST
