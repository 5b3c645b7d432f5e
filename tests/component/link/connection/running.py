"""A connection under test: what its receiver saw, and waiting for it without sleeping."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
from pydantic import SecretStr

from component.config.server import Server
from component.link.connection.connection import Connection
from component.link.connection.live import Receiver, StanzaEvent
from component.link.messages.outbox import Outbox
from tests.component.link.connection.acceptor import DOMAIN, SECRET, Acceptor
from xep.stanza_stream import StanzaReceived

TIMEOUT_S = 20.0
"""Only reached by a test that would hang."""


class Recorder(Receiver):
    """A receiver that remembers."""

    def __init__(self) -> None:
        self.ups = 0
        self.downs: list[str] = []
        self.lost: list[tuple[list[bytes], bool]] = []
        self.events: list[StanzaEvent] = []
        self.batches: list[int] = []
        self.pauses = 0
        self.on_connected: Callable[[], None] = lambda: None
        self.on_received: Callable[[Sequence[StanzaEvent]], int | None] = lambda _: 0
        self._changed = anyio.Event()

    def connected(self) -> None:
        self.ups += 1
        self.on_connected()
        self._change()

    def received(self, events: Sequence[StanzaEvent]) -> int:
        self.events += events
        self.batches.append(len(events))
        left = self.on_received(events)
        self._change()
        return left or 0

    def undelivered(self, stanzas: Sequence[bytes], *, certain: bool) -> None:
        self.lost.append((list(stanzas), certain))

    def disconnected(self, reason: str) -> None:
        self.downs.append(reason)
        self._change()

    def draw(self) -> float:
        """The connection's die, which falls once per pause."""
        self.pauses += 1
        self._change()
        return 0.0

    def ids(self) -> list[str | None]:
        return [e.stanza.id for e in self.events if isinstance(e, StanzaReceived)]

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self._changed.wait()

    def _change(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


def settings_for(server: Acceptor, **changes: Any) -> Server:
    """The settings of a component; limits may be lower than those that people can set."""
    section = Server(
        host=server.host,
        port=server.port,
        component_domain=DOMAIN,
        component_secret=SecretStr(SECRET),
        reconnect_min_s=0.001,
        reconnect_max_s=0.002,
        tls=any(name.startswith("tls") for name in changes),
    )
    return section.model_copy(update=changes)


class Running:
    """A connection that runs, with everything around it."""

    def __init__(self, section: Server, limit_bytes: int) -> None:
        self.recorder = Recorder()
        self.outbox = Outbox(limit_bytes)
        self.connection = Connection(section, self.outbox, self.recorder, draw=self.recorder.draw)
        self.ended = anyio.Event()
        self.scope = anyio.CancelScope()

    async def run(self) -> None:
        with self.scope:
            await self.connection.run()
        self.ended.set()


@asynccontextmanager
async def running(
    server: Acceptor, *, limit_bytes: int = 1 << 20, **changes: Any
) -> AsyncIterator[Running]:
    """Run a connection to ``server``; whatever still runs at the end is cancelled."""
    with anyio.fail_after(TIMEOUT_S):
        async with anyio.create_task_group() as tasks:
            it = Running(settings_for(server, **changes), limit_bytes)
            tasks.start_soon(it.run)
            yield it
            tasks.cancel_scope.cancel()


def iq(id_: str, size: int = 0) -> str:
    filling = f"<echo xmlns='urn:test'>{'x' * size}</echo>"
    return f"<iq type='get' id='{id_}' from='a@b.test/c' to='{DOMAIN}'>{filling}</iq>"
