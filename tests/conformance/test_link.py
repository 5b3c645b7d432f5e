"""The kit's end of a component stream: what a target may not send is said, not waited for."""

from typing import Any

import anyio
import pytest

from conformance.drivers import DriverError
from conformance.drivers.link import Link
from xep.component_states import State
from xep.component_stream import (
    AcceptorStream,
    ComponentStream,
    ComponentStreamEvent,
    HandshakeReceived,
)
from xep.stream import StreamOpened

pytestmark = pytest.mark.anyio


async def send_on(link: Link) -> None:
    """Until it cannot be done any more."""
    while True:
        await link.send("<message/>")
        await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("stanza", [b"<message><a:b/></message>", b"<message>\0</message>"])
async def test_a_stanza_that_cannot_be_parsed_is_a_fault_of_the_target(stanza: bytes) -> None:
    wire, ready = AcceptorStream(), anyio.Event()

    def opening(event: ComponentStreamEvent) -> bytes:
        if isinstance(event, StreamOpened):
            return wire.open("id", "secret")
        return wire.accept() if isinstance(event, HandshakeReceived) else b""

    async def target(port: int) -> None:
        stream = ComponentStream("agent.test", "secret")
        async with await anyio.connect_tcp("127.0.0.1", port) as socket:
            await socket.send(stream.open())
            while stream.state is not State.READY:
                stream.receive(await socket.receive())
                if stream.state is State.OPENED:
                    await socket.send(stream.handshake())
            await ready.wait()
            await socket.send(stanza)
            while stream.state is State.READY:
                stream.receive(await socket.receive())
            assert stream.state is State.ENDED

    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as tasks,
    ):
        with anyio.fail_after(120):
            tasks.start_soon(target, listener.extra(anyio.abc.SocketAttribute.local_port))
            accepting: Any = listener.listeners[0]
            link = Link(await accepting.accept(), wire, opening, None)
            async with link.running(lambda _: None):
                ready.set()
                with pytest.raises(DriverError, match="cannot be parsed"):
                    await send_on(link)
