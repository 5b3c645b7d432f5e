"""profanity and the whole service: a person runs a command, is asked, and types yes."""

from pathlib import Path

import pytest
from anyio import to_thread

from tests.demo_server.profanity import Profanity
from tests.servers.talk import login
from tests.servers.tasking import Desk, let_stand

pytestmark = [pytest.mark.servers, pytest.mark.anyio]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """Once is enough: the service is another process."""
    return "trio"


async def test_profanity_runs_a_skill_and_approves_it(desk: Desk, tmp_path: Path) -> None:
    server = desk.server
    async with Profanity(tmp_path) as screen:
        await screen.shows("Type '/help' to show complete help")
        connect = f"/connect juliet@{server.host} server {server.address} port {server.c2s_port}"
        await screen.types(f"{connect} tls trust", until="password")
        await screen.types(server.accounts["juliet"], until="logged in successfully")
        # It asks the server what it supports before it offers commands.
        await screen.types(f"/disco info {server.host}", until="protocol/commands")
        # Once a message of the assistant is there, profanity shows the list in that chat's window.
        await screen.types(f"/msg {desk.assistant}")
        await screen.types(f"/cmd list {desk.assistant}", until="skill/trip")
        await screen.types(f"/cmd exec skill/wipe {desk.assistant}", until="Claim to wipe")
        await screen.types("/field1 /tmp/old", until="required.: /tmp/old")
        await screen.types("/form submit", until="State: input-required")
        # The question has come as a chat message, which is in a window of its own.
        await screen.types(f"/msg {desk.assistant}", until="May I run wipe")
        assert desk.effects("/tmp/old") == []
        # A yes that comes with the question is not yet one.
        with login(server, "romeo") as other:
            await to_thread.run_sync(let_stand, other, desk)
        await screen.types("yes", until="Approved")
        await screen.shows("wiped /tmp/old")
        assert desk.effects("/tmp/old") == ["wiped /tmp/old"]
