"""IPv6 and IPv4 are raced: an address that does not answer delays nobody for long (RFC 8305)."""

import errno
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import anyio
import pytest

from component.link.connection import transport as racing
from component.link.connection.transport import connect, in_turn, race
from tests.component.link.connection.acceptor import Acceptor
from tests.component.link.connection.running import settings_for

pytestmark = [pytest.mark.anyio, pytest.mark.ports]

FAMILIES = {socket.AF_INET6: "::1", socket.AF_INET: "127.0.0.1"}
TIMEOUT_S = 20.0


def info(family: socket.AddressFamily, address: Any) -> racing.AddressInfo:
    return (family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", address)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def listening(stack: ExitStack, family: socket.AddressFamily) -> racing.AddressInfo:
    """A socket that answers."""
    server = stack.enter_context(socket.create_server((FAMILIES[family], 0), family=family))
    return info(family, server.getsockname())


def silent(stack: ExitStack, family: socket.AddressFamily) -> racing.AddressInfo:
    """A socket whose queue is full: the kernel drops what asks for more, as a firewall does."""
    server = stack.enter_context(
        socket.create_server((FAMILIES[family], 0), family=family, backlog=0)
    )
    address = server.getsockname()
    for _ in range(3):
        filler = stack.enter_context(socket.socket(family))
        filler.setblocking(False)
        filler.connect_ex(address)
    return info(family, address)


def refusing(family: socket.AddressFamily) -> racing.AddressInfo:
    with socket.create_server((FAMILIES[family], 0), family=family) as server:
        return info(family, server.getsockname())


@pytest.mark.parametrize("answers", FAMILIES)
async def test_the_family_that_answers_wins(
    stack: ExitStack, answers: socket.AddressFamily
) -> None:
    (other,) = (family for family in FAMILIES if family != answers)
    with anyio.fail_after(TIMEOUT_S):
        began = anyio.current_time()
        with await race([silent(stack, other), listening(stack, answers)]) as sock:
            assert sock.family == answers
            assert not sock.getblocking()
        assert anyio.current_time() - began >= racing.DELAY_S


async def test_a_refusal_starts_the_next_attempt_at_once(stack: ExitStack) -> None:
    for_ever = 1000.0
    addresses = [refusing(socket.AF_INET6), listening(stack, socket.AF_INET)]
    with anyio.fail_after(TIMEOUT_S):
        (await race(addresses, for_ever)).close()


async def test_the_first_address_is_taken_if_it_answers(stack: ExitStack) -> None:
    addresses = [listening(stack, family) for family in FAMILIES]
    with anyio.fail_after(TIMEOUT_S):
        sock = await race(addresses, 1000.0)
    assert sock.family == socket.AF_INET6
    sock.close()


async def test_when_all_refuse_the_last_refusal_is_told() -> None:
    with anyio.fail_after(TIMEOUT_S), pytest.raises(OSError, match="refused") as caught:
        await race([refusing(family) for family in FAMILIES])
    assert caught.value.errno == errno.ECONNREFUSED
    with pytest.raises(OSError, match="Cannot assign"):
        await race([])


async def test_cancelled_it_leaves_no_socket_open(stack: ExitStack) -> None:
    addresses = [silent(stack, family) for family in FAMILIES]
    with anyio.move_on_after(0.05) as scope:
        await race(addresses, 0.01)
    assert scope.cancelled_caught  # a socket left open would be a ResourceWarning, so an error


def test_families_take_turns() -> None:
    six, four = socket.AF_INET6, socket.AF_INET
    found = [info(six, n) for n in range(3)] + [info(four, n) for n in range(2)]
    assert [(each[0], each[4]) for each in in_turn(found)] == [
        (six, 0),
        (four, 0),
        (six, 1),
        (four, 1),
        (six, 2),
    ]


async def test_a_name_with_a_dead_family_connects(
    stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Acceptor() as server:
        dead = silent(stack, socket.AF_INET6)
        alive = info(socket.AF_INET, (server.host, server.port))

        async def resolve(*_args: object, **_options: object) -> list[racing.AddressInfo]:
            return [dead, alive]

        monkeypatch.setattr(anyio, "getaddrinfo", resolve)
        with anyio.fail_after(TIMEOUT_S):
            transport = await connect(settings_for(server, host="both.example"))
            assert transport.peer == f"{server.host}:{server.port}"
            transport.close()
