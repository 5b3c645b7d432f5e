"""Streams over Unix sockets: what is cancelled or closed at any moment breaks nothing else."""

import socket
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from component.unix_sockets import UnixStream, listen, serve

pytestmark = [pytest.mark.anyio, pytest.mark.ports]


def pair() -> tuple[UnixStream, UnixStream]:
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    return UnixStream(one), UnixStream(other)


async def test_what_is_sent_arrives_whole_and_in_order() -> None:
    one, other = pair()
    sent = bytes(range(256)) * 8192  # more than the kernel buffers
    received = bytearray()
    async with one, other, anyio.create_task_group() as tasks:

        async def send() -> None:
            await one.send(sent)
            await one.send_eof()

        tasks.start_soon(send)
        async for part in other:
            received += part
    assert received == sent


async def test_a_read_that_is_cancelled_as_its_input_arrives_breaks_nothing() -> None:
    """On asyncio, the read is cancelled in the pass of the loop that handles the input."""
    one, other = pair()
    scope = anyio.CancelScope()
    received: list[bytes] = []

    async def read() -> None:
        with scope:
            received.append(await one.receive())

    async with one, other:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await anyio.wait_all_tasks_blocked()
            other.socket.send(b"late")
            await anyio.lowlevel.checkpoint()  # the loop looks at its sockets, then runs this task
            scope.cancel()
        if not received:
            received.append(await one.receive())
    assert received == [b"late"]


async def test_closing_ends_a_read_that_waits() -> None:
    one, other = pair()
    ended: list[type[Exception]] = []

    async def read() -> None:
        try:
            await one.receive()
        except (anyio.ClosedResourceError, anyio.BrokenResourceError) as error:
            ended.append(type(error))

    async with other, anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        await anyio.wait_all_tasks_blocked()
        await one.aclose()
        await one.aclose()
    assert ended == [anyio.ClosedResourceError]


async def test_a_peer_that_has_gone_is_an_error() -> None:
    one, other = pair()
    async with one:
        await other.aclose()
        with pytest.raises(anyio.BrokenResourceError):
            await one.send(b"x")
        with pytest.raises(anyio.EndOfStream):
            await one.receive()


async def test_a_listener_replaces_a_socket_that_was_left_behind(tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    listen(path, 0o600).close()
    with listen(path, 0o600) as listener:
        assert (tmp_path / "socket").stat().st_mode & 0o777 == 0o600

        async def echo(stream: UnixStream) -> None:
            async with stream:
                await stream.send(await stream.receive())

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve, listener, echo)
            for word in (b"one", b"two"):
                async with await UnixStream.connect(path) as client:
                    await client.send(word)
                    assert await client.receive() == word
            tasks.cancel_scope.cancel()


async def test_a_file_in_its_place_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    path.write_text("mine")
    with pytest.raises(OSError, match="in use"):
        listen(str(path), 0o600)
    assert path.read_text() == "mine"


async def test_connecting_to_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await UnixStream.connect(str(tmp_path / "socket"))
