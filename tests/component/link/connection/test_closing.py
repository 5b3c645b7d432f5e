"""Ending a connection, politely or not, in every state it can be in."""

import contextlib
import socket
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.component.link.connection.acceptor import Acceptor, Link
from tests.component.link.connection.running import TIMEOUT_S, Running, iq, running
from xep.stream import StreamClosed, StreamOpened

pytestmark = [pytest.mark.anyio, pytest.mark.ports]


def open_sockets() -> int:
    count = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        # The one that lists the directory is gone again.
        with contextlib.suppress(FileNotFoundError):
            count += str(descriptor.readlink()).startswith("socket:")
    return count


@pytest.fixture
def full_backlog() -> Iterator[socket.socket]:
    """A listener that answers no SYN any more."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=0)
    fillers = []
    for _ in range(4):
        filler = socket.socket()
        filler.setblocking(False)
        filler.connect_ex(listener.getsockname())
        fillers.append(filler)
    yield listener
    for sock in (listener, *fillers):
        sock.close()


async def connecting(server: Acceptor, it: Running) -> None:
    # Nothing tells that a SYN is out; a few turns of the loop bring it there.
    for _ in range(50):
        await anyio.lowlevel.checkpoint()


async def opening(server: Acceptor, it: Running) -> None:
    await (await server.accept()).expect(StreamOpened)


async def proving(server: Acceptor, it: Running) -> None:
    link = await server.accept()
    await link.event()
    await link.send(link.stream.open("id", "another secret"))
    await link.event()


async def live(server: Acceptor, it: Running) -> None:
    await server.component()
    await it.recorder.until(lambda: it.recorder.ups == 1)


async def stuck(server: Acceptor, it: Running) -> None:
    await live(server, it)
    for number in range(100):
        it.outbox.put(iq(str(number), 100_000))
    await anyio.lowlevel.checkpoint()
    assert it.outbox.waiting_bytes


async def backing_off(server: Acceptor, it: Running) -> None:
    (await server.accept()).reset()
    await it.recorder.until(lambda: it.recorder.pauses == 1)


Reach = Callable[[Acceptor, Running], Awaitable[None]]
STATES = [connecting, opening, proving, live, stuck, backing_off]


@pytest.mark.parametrize("polite", [True, False])
@pytest.mark.parametrize("reach", STATES)
async def test_a_connection_can_be_ended_in_every_state(
    reach: Reach, polite: bool, full_backlog: socket.socket
) -> None:
    changes: dict[str, Any] = {"reconnect_min_s": 1000.0, "limit_bytes": 64 << 20}
    if reach is connecting:
        changes["port"] = full_backlog.getsockname()[1]
    with Acceptor(receive_buffer=4096) as server:
        before = open_sockets()
        async with running(server, **changes) as it:
            await reach(server, it)
            if polite:
                await it.connection.close(0.01)
            else:
                it.scope.cancel()
            await it.ended.wait()
            assert not it.connection.established
            assert open_sockets() == before + len(
                [link for link in server.links if link._socket.fileno() != -1]
            )
            if reach in (live, stuck):
                assert it.recorder.downs == ["The service is stopping."]
            for link in server.links:
                if link._socket.fileno() != -1:
                    await link.ended()


async def test_closing_sends_what_waits_and_waits_for_the_server() -> None:
    with Acceptor(receive_buffer=4096) as server:
        async with running(server, limit_bytes=64 << 20) as it:
            link = await server.component()
            await it.recorder.until(lambda: it.recorder.ups == 1)
            for number in range(100):
                it.outbox.put(iq(str(number), 50_000))
            closed = anyio.Event()

            async def close() -> None:
                await it.connection.close(TIMEOUT_S)
                closed.set()

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(close)
                ids = [s.id for s in await link.stanzas(100)]
                assert ids == [str(number) for number in range(100)]
                await link.expect(StreamClosed)
                assert not closed.is_set()
                await link.send(iq("behind our close"))
                await link.send(link.stream.close())
                await closed.wait()
            assert it.ended.is_set()
            assert it.recorder.ids() == ["behind our close"]
            assert it.recorder.downs == ["The service is stopping."]
            await link.ended()


async def test_a_server_that_just_hangs_up_is_as_good() -> None:
    with Acceptor() as server:
        async with running(server) as it:
            link = await server.component()
            await it.recorder.until(lambda: it.recorder.ups == 1)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(it.connection.close, TIMEOUT_S)
                await link.expect(StreamClosed)
                link.close()
            await it.ended.wait()


async def test_nothing_follows_our_close() -> None:
    with Acceptor() as server:
        async with running(server) as it:
            link = await server.component()
            await it.recorder.until(lambda: it.recorder.ups == 1)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(it.connection.close, TIMEOUT_S)
                await link.expect(StreamClosed)
                it.outbox.put(iq("too late"))
                it.outbox.send_now()
                await link.finish()
            assert bytes(link.received).endswith(b"</stream:stream>")


async def test_closed_before_it_runs_it_does_not_connect() -> None:
    with Acceptor() as server:
        async with running(server) as it:
            await it.connection.close(1.0)
            await it.ended.wait()
            assert it.recorder.ups == 0


async def test_a_connection_can_be_closed_twice() -> None:
    with Acceptor() as server:
        async with running(server) as it:
            link: Link = await server.component()
            await it.recorder.until(lambda: it.recorder.ups == 1)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(it.connection.close, TIMEOUT_S)
                tasks.start_soon(it.connection.close, TIMEOUT_S)
                await link.expect(StreamClosed)
                await link.finish()
            await it.connection.close(1.0)
            await it.ended.wait()
