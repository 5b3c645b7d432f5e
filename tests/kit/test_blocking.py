"""Accounts block others as they do at Prosody and ejabberd."""

import anyio
import pytest

from tests.kit import anyio_backend
from tests.kit.offline import OfflineStorage
from tests.kit.xmpp import Peer, Xmpp
from xep.jid import JID

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

BOTH = pytest.mark.parametrize("server", ["prosody", "ejabberd"])
ROMEO, JULIET = "romeo@capulet.example", "juliet@capulet.example"


class World:
    """Juliet, who can block, and Romeo."""

    def __init__(self, group: anyio.abc.TaskGroup, server: OfflineStorage) -> None:
        self.xmpp = Xmpp(group, server)
        self.romeo, self.juliet = self.peer(f"{ROMEO}/orchard"), self.peer(f"{JULIET}/balcony")
        self.kept_out: list[str] = []
        self.xmpp.kept_out = lambda account, *_: self.kept_out.append(str(account))

    def peer(self, jid: str) -> Peer:
        return Peer(self.xmpp, JID.parse(jid), "nobody.capulet.example")

    async def change(self, what: str, whom: str = ROMEO) -> None:
        payload = f"<{what} xmlns='urn:xmpp:blocking'><item jid='{whom}'/></{what}>"
        assert (await self.juliet.iq("set", payload, JULIET)).type == "result"

    async def writes(self, to: str = JULIET, type_: str = "chat") -> None:
        await self.romeo.send(f"<message to='{to}' type='{type_}' id='m'><body>x</body></message>")


def told(peer: Peer) -> list[str]:
    """What has reached a client."""
    return [
        f"{one.kind} {one.type}" + (f" {one.error().condition}" if one.type == "error" else "")
        for one in peer.take()
    ]


@BOTH
@pytest.mark.parametrize("whom", [ROMEO, "capulet.example"])
async def test_what_somebody_who_is_blocked_sends_does_not_arrive(
    server: OfflineStorage, whom: str
) -> None:
    async with anyio.create_task_group() as group:
        world = World(group, server)
        await world.change("block", whom)
        await world.writes()
        await world.writes(type_="headline")
        await world.romeo.send(f"<presence to='{JULIET}'/>")
        assert told(world.juliet) == []
        assert told(world.romeo) == ["message error service-unavailable"]
        assert world.kept_out == 3 * [JULIET]
        answer = await world.romeo.iq("get", "<ping xmlns='urn:xmpp:ping'/>", f"{JULIET}/balcony")
        assert answer.error().condition == "service-unavailable"
        await world.change("unblock", whom)
        await world.writes()
        assert told(world.juliet) == ["message chat"]
        group.cancel_scope.cancel()


@BOTH
async def test_prosody_drops_a_message_to_a_client_of_who_blocks(server: OfflineStorage) -> None:
    async with anyio.create_task_group() as group:
        world = World(group, server)
        await world.change("block")
        await world.writes(f"{JULIET}/balcony")
        returned = ["message error service-unavailable"]
        assert told(world.romeo) == ([] if server == "prosody" else returned)
        await world.juliet.leave()
        await world.writes(f"{JULIET}/balcony")
        assert told(world.romeo) == returned
        group.cancel_scope.cancel()


@BOTH
async def test_nothing_waits_for_who_blocks(server: OfflineStorage) -> None:
    async with anyio.create_task_group() as group:
        world = World(group, server)
        await world.change("block")
        await world.juliet.leave()
        await world.writes()
        assert told(world.romeo) == ["message error service-unavailable"]
        assert told(world.peer(f"{JULIET}/balcony")) == []
        group.cancel_scope.cancel()


@BOTH
async def test_who_blocks_cannot_write(server: OfflineStorage) -> None:
    async with anyio.create_task_group() as group:
        world = World(group, server)
        await world.change("block")
        await world.juliet.say("x", ROMEO)
        assert told(world.juliet) == ["message error not-acceptable"]
        assert told(world.romeo) == []
        group.cancel_scope.cancel()


@BOTH
async def test_prosody_tells_contacts_that_the_account_is_gone(server: OfflineStorage) -> None:
    async with anyio.create_task_group() as group:
        world = World(group, server)
        await world.romeo.send(f"<presence to='{JULIET}' type='subscribe'/>")
        await world.juliet.send(f"<presence to='{ROMEO}' type='subscribed'/>")
        told(world.romeo)
        await world.change("block")
        is_told = server == "prosody"
        assert told(world.romeo) == (["presence unavailable"] if is_told else [])
        await world.juliet.send("<presence><show>away</show></presence>")
        assert told(world.romeo) == []
        await world.change("unblock")
        assert told(world.romeo) == (["presence available"] if is_told else [])
        group.cancel_scope.cancel()
