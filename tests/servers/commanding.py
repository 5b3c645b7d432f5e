"""The ad-hoc face as a component of a real server, in the test's own event loop."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from component.connection.connection import Connection
from component.connection.options import ConnectionOptions
from component.connection.outbox import Outbox
from component.kernel.errors import AgentErrors
from component.router.addresses import ComponentAddresses
from component.router.router import Router, RouterOptions
from tests.component.features.adhoc.command_bench import CommandBench
from tests.servers.base import Server
from xep.jid import JID

PATIENCE_S = 120.0


class _Receiver:
    def __init__(self, router: Router) -> None:
        self.received = router.received
        self.disconnected = router.disconnected
        self.up = anyio.Event()

    def connected(self) -> None:
        self.up.set()


@asynccontextmanager
async def serving(server: Server, bench: CommandBench) -> AsyncIterator[None]:
    """Serve the bench's routes on the server for as long as the context."""
    outbox = Outbox(1_000_000)

    def flush() -> None:
        connection.flush()

    router = Router(
        RouterOptions(),
        ComponentAddresses(JID.parse(server.component_domain), frozenset(("assistant",))),
        AgentErrors(),
        bench.routes,
        bench.policy.admits,
        outbox,
        flush,
    )
    receiver = _Receiver(router)
    options = ConnectionOptions(
        host=server.address,
        port=server.component_port,
        address=server.component_domain,
        secret=server.secret,
    )
    connection = Connection(options, outbox, receiver)
    async with anyio.create_task_group() as tasks:
        await tasks.start(router.run)
        tasks.start_soon(connection.run)
        with anyio.fail_after(PATIENCE_S):
            await receiver.up.wait()
        yield
        tasks.cancel_scope.cancel()
