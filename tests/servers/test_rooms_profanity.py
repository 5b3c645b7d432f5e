"""profanity in a room of real servers: a person talks with others, and with the agent."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from anyio import to_thread

from tests.demo_server.profanity import Profanity
from tests.docs.clients.garden import NICK, garden
from tests.servers.base import Server
from tests.servers.chatting import Chat
from tests.servers.room_people import Occupant
from tests.servers.watching import wait_for

pytestmark = [pytest.mark.servers, pytest.mark.both_servers, pytest.mark.anyio]

PERSON = "Juliet"
Party = tuple[Chat, Occupant, str]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """Once is enough: the service is another process."""
    return "trio"


@pytest.fixture
def party(xmpp_server: Server, tmp_path: Path) -> Iterator[Party]:
    """A room with the agent and Romeo."""
    with garden(tmp_path, xmpp_server, "party") as party:
        yield party


async def test_profanity_has_the_nickname_completed_and_is_answered(
    party: Party, tmp_path: Path
) -> None:
    chat, romeo, room = party
    server = chat.server
    home = tmp_path / "home"
    home.mkdir()

    async def hears(text: str, by: str) -> None:
        await to_thread.run_sync(romeo.hears, text, by)

    async with Profanity(home) as screen:
        await screen.shows("Type '/help' to show complete help")
        connect = f"/connect juliet@{server.host} server {server.address} port {server.c2s_port}"
        await screen.types(f"{connect} tls trust", until="password")
        await screen.types(server.accounts["juliet"], until="logged in successfully")
        await screen.types(f"/join {room} nick {PERSON}", until=f"joined the room as {PERSON}")
        await screen.types("What a beautiful evening in Verona!")
        await hears("beautiful evening", PERSON)
        assert not chat.model.requests
        # Tab completes the nickname, with a colon.
        await screen.types("Assi\thow is the weather in Verona?", until="It is sunny in Verona")
        await hears(f"{NICK}: how is the weather", PERSON)
        await hears("It is sunny in Verona", NICK)
        await screen.types("Assi\twalk around the lake.")
        begun = chat.agent.directory / "walk.begun"
        await to_thread.run_sync(wait_for, begun.exists, bool)
        await screen.types("stop", until="Stopped")
        await hears("Stopped", NICK)
