"""The connection of an agent on an account breaks, and nothing that was said is lost."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.profiles import THOROUGH
from tests.servers.agent_process import AgentProcess
from tests.servers.base import Server
from tests.servers.client_account import (
    ACCOUNT,
    FULL,
    HOST,
    PASSWORD,
    at,
    client_toml,
    server,
)
from tests.servers.clients import Element, SlixClient
from tests.servers.fixtures import ServerFactory
from tests.servers.proxy import Proxy
from tests.servers.talk import execute, login, output

__all__ = ["server"]  # pytest finds fixtures by their names in here

pytestmark = [pytest.mark.servers]

ROUNDS = 20 if THOROUGH else 1
SENTENCES = 40
RECEIPT = "{urn:xmpp:receipts}received"
ASKS = "<request xmlns='urn:xmpp:receipts'/>"


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def start(stack: ExitStack, server: Server, proxy: Proxy, directory: Path) -> AgentProcess:
    """An agent whose way to the server can be cut."""
    settings = {**at(server), "server__host": "127.0.0.1", "server__port": proxy.port}
    toml = client_toml(directory)
    return stack.enter_context(AgentProcess(server, directory, toml=toml, **settings)).connected()


def say_all(juliet: SlixClient, names: list[str]) -> None:
    """Say something under each of these ids, and ask for a receipt."""
    for name in names:
        juliet.send_raw(
            f"<message type='chat' to='{ACCOUNT}' id='{name}'><body>Hello</body>{ASKS}</message>"
        )


def receipts(juliet: SlixClient, count: int) -> list[str | None]:
    """The ids of so many messages that the agent has taken in."""

    def is_receipt(message: Element) -> bool:
        return message.find(RECEIPT) is not None

    taken = (juliet.messages.take(is_receipt).find(RECEIPT) for _ in range(count))
    return [None if each is None else each.get("id") for each in taken]


def test_what_is_asked_while_the_connection_breaks_is_answered_once(
    server: Server, stack: ExitStack, tmp_path: Path
) -> None:
    proxy = stack.enter_context(Proxy(server.address, server.c2s_port))
    agent = start(stack, server, proxy, tmp_path / "agent")
    juliet = stack.enter_context(login(server))
    for round_ in range(ROUNDS):
        names = [f"no{round_}x{number}" for number in range(SENTENCES)]
        waiting = [juliet.start_iq(FULL, execute("echo", text=name), "set") for name in names[:20]]
        say_all(juliet, names[:20])
        proxy.cut()
        waiting += [juliet.start_iq(FULL, execute("echo", text=name), "set") for name in names[20:]]
        say_all(juliet, names[20:])
        assert [output(each.result(120)) for each in waiting] == names
        assert sorted(map(str, receipts(juliet, SENTENCES))) == sorted(names)
        agent.wait_log("connected", resumed=True)
    again = [each for each in juliet.messages.all() if each.find(RECEIPT) is not None]
    assert not again, "each message has one receipt"
    assert not agent.log("the server did not acknowledge what was sent before the connection broke")


def test_a_session_that_the_server_has_lost_is_begun_again(
    make_server: ServerFactory, stack: ExitStack, tmp_path: Path
) -> None:
    server = make_server(start=False, host=HOST)
    server.accounts["helper"] = PASSWORD
    server.start()
    proxy = stack.enter_context(Proxy(server.address, server.c2s_port))
    agent = start(stack, server, proxy, tmp_path / "agent")
    server.kill()
    server.start()
    agent.connected()
    with login(server) as juliet:
        assert output(juliet.iq(FULL, execute("echo", text="again"), "set")) == "again"
    assert not agent.log("connected", resumed=True)
