"""The ad-hoc face as a component of a real server, in the test's own event loop."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from pydantic import SecretStr

from component import config
from component.kernel.errors import AgentErrors
from component.link.connection.connection import Connection
from component.link.connection.live import Receiver
from component.link.messages.outbox import Outbox
from component.link.router.addresses import ComponentAddresses
from component.link.router.route_resolver import Senders
from component.link.router.router import Router, RouterOptions
from tests.component.features.adhoc.command_bench import CommandBench
from tests.servers.base import Server
from xep.jid import JID

TIMEOUT_S = 120.0


class _Receiver(Receiver):
    def __init__(self, router: Router) -> None:
        self.received = router.received  # type: ignore[method-assign]
        self.disconnected = router.disconnected  # type: ignore[method-assign]
        self.up = anyio.Event()

    def connected(self) -> None:
        self.up.set()


@asynccontextmanager
async def serving(server: Server, bench: CommandBench) -> AsyncIterator[None]:
    """Serve the bench's routes on the server for as long as the context."""
    outbox = Outbox(1_000_000)
    domain = JID.parse(server.component_domain)
    senders = Senders(bench.policy.admits, ComponentAddresses(domain, frozenset(("assistant",))))
    router = Router(RouterOptions(), senders, AgentErrors(), bench.routes, outbox)
    receiver = _Receiver(router)
    section = config.Server(
        host=server.address,
        port=server.component_port,
        component_domain=server.component_domain,
        component_secret=SecretStr(server.secret),
    )
    connection = Connection(section, outbox, receiver)
    async with anyio.create_task_group() as tasks:
        await tasks.start(router.run)
        tasks.start_soon(connection.run)
        with anyio.fail_after(TIMEOUT_S):
            await receiver.up.wait()
        yield
        tasks.cancel_scope.cancel()
