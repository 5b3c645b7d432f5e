"""A server for clients on a socket: the one in memory, with its connections cut at some byte."""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, suppress

import anyio
from anyio.abc import SocketAttribute, SocketListener, SocketStream, TaskGroup
from pydantic import SecretStr

from component import config
from tests.component.link.connection.running import TIMEOUT_S, Running
from tests.xep.client_server import ACCOUNT, PASSWORD, Connection, Server


class Peer:
    """Serves clients until its context ends.

    Attributes:
        server: the accounts and sessions.
        cuts: for each connection to come, the numbers of bytes to the client, and from it, after
            which it breaks; none when there are no more.
        links: the connections so far.
        streams: their sockets.
    """

    def __init__(self, server: Server, cuts: Iterator[tuple[int, int]]) -> None:
        self.server = server
        self.cuts = cuts
        self.links: list[Connection] = []
        self.streams: list[SocketStream] = []
        self.on_session: Callable[[Connection], None] = lambda _: None
        self.port = 0
        self._changed = anyio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self._changed.wait()

    async def accept(self, listener: SocketListener, tasks: TaskGroup) -> None:
        with suppress(anyio.ClosedResourceError):
            while True:
                tasks.start_soon(self.serve, await listener.accept())

    async def serve(self, stream: SocketStream) -> None:
        to_client, from_client = next(self.cuts, (1 << 30, 1 << 30))
        link = self.server.connect()
        self.links.append(link)
        self.streams.append(stream)
        begun = False
        async with stream:
            while not link.over:
                try:
                    data = await stream.receive()
                except (anyio.EndOfStream, anyio.BrokenResourceError):
                    break
                data = data[:from_client]
                from_client -= len(data)
                link.receive(data)
                if not begun and link.session is not None and link.session.managed:
                    begun = True
                    self.on_session(link)
                self._changed.set()
                self._changed = anyio.Event()
                answer = link.take()[:to_client]
                to_client -= len(answer)
                try:
                    await stream.send(answer)
                except anyio.BrokenResourceError:
                    break
                if not to_client or not from_client:
                    break
        self._changed.set()
        self._changed = anyio.Event()


class PlainServer(config.Server):
    """The settings of a client without TLS, which people cannot have."""

    @property
    def uses_tls(self) -> bool:
        return False


def client_settings(port: int, account: str = ACCOUNT) -> config.Server:
    return PlainServer(
        mode="client",
        host="127.0.0.1",
        port=port,
        jid=account,
        password=SecretStr(PASSWORD),
        reconnect_min_s=0.001,
        reconnect_max_s=0.002,
    )


@asynccontextmanager
async def attached(
    server: Server, cuts: Iterable[tuple[int, int]] = (), limit_bytes: int = 1 << 20
) -> AsyncIterator[tuple[Peer, Running]]:
    """A peer, and a client's connection to it."""
    peer = Peer(server, iter(cuts))
    with anyio.fail_after(TIMEOUT_S):
        async with (
            await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
            anyio.create_task_group() as tasks,
        ):
            peer.port = listener.extra(SocketAttribute.local_port)
            it = Running(client_settings(peer.port), limit_bytes)
            tasks.start_soon(peer.accept, listener.listeners[0], tasks)
            tasks.start_soon(it.run)
            yield peer, it
            # A client may be connecting. Python 3.11's event loop reports an error if it accepts a
            # connection for a task that was cancelled at that moment, so nothing accepts any more.
            await listener.aclose()
            tasks.cancel_scope.cancel()
