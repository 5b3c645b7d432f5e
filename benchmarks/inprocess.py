"""The road of an IQ without its socket: bytes in, bytes out, in this process and this thread.

What is left out are the kernel, the event loop and the process at the other end, which is most of
the noise: good for costs that differ by little, and for profiling.

    python -m benchmarks.inprocess [SECONDS]      shows where the time goes
"""

from __future__ import annotations

import cProfile
import pstats
import sys
from collections.abc import Callable, Iterable
from time import perf_counter
from typing import Any, cast

from benchmarks.traffic import Traffic
from benchmarks.wire_end import DOMAIN, SECRET
from component.service import Service
from component.service.remembering import Memories
from component.service.rooms import Rooms
from component.service.service import agent_at
from component.service.watching import Watching
from component.settings import Agent, Server, Settings
from component.skills import AnySkill
from component.storage import Storage
from component.storage.stopped import StoppedContacts
from xep.component_stream import AcceptorStream, ComponentStream

_READ = 65536  # as much as the connection takes from the kernel at once


class InProcess:
    """All rooms of the service, from the stream parser to the outbox, with skills of the caller's.

    Nothing here waits, so it takes only what is answered at once; and whatever turns to the
    database fails, for there is none. For the same reason no record is kept.

    Args:
        skills: besides the built-in ones.
        change: is given the rooms, once, before anything comes in.
    """

    def __init__(
        self, skills: Iterable[AnySkill] = (), change: Callable[[Rooms], None] = lambda _: None
    ) -> None:
        settings = Settings(
            server=Server(component_domain=DOMAIN, component_secret=SECRET),
            agent=Agent(allowed_domains=("localhost",)),
        )
        service = Service(settings)
        for skill in skills:
            service.registry.add(skill)
        storage = cast("Storage", _NoStorage())
        contacts = StoppedContacts(storage, agent_at)
        rooms = Rooms(
            settings,
            service.policy,
            service.registry,
            service.view,
            storage,
            contacts,
            Watching(),
            cast("Memories", None),  # for agents, of which there are none
            home="benchmark",
        )
        change(rooms)
        self._outbox = rooms.outbox
        self._outbox.start()
        self._written: list[bytes] = []
        rooms.flush = self._flush
        self._router = rooms.router
        self._stream = ComponentStream(DOMAIN, SECRET)
        _shake_hands(self._stream)

    def receive(self, data: bytes | memoryview) -> bytes:
        """Take what came in, a read at a time; give what goes out."""
        for start in range(0, len(data), _READ):
            events = self._stream.receive(bytes(data[start : start + _READ]))
            waiting = self._router.received(events)  # type: ignore[arg-type]
            while waiting:
                waiting = self._router.received(())
            self._flush()
        sent = b"".join(self._written)
        self._written.clear()
        return sent

    def _flush(self) -> None:
        self._outbox.flush(self)

    def try_send(self, data: bytes | memoryview) -> int:
        """Take what the outbox hands over, as a kernel with room."""
        self._written.append(bytes(data))
        return len(data)


class _NoStorage:
    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"what is answered at once asked the database to {name}")


def _shake_hands(ours: ComponentStream) -> None:
    theirs = AcceptorStream()
    theirs.receive(ours.open())
    ours.receive(theirs.open("stream", SECRET))
    theirs.receive(ours.handshake())
    ours.receive(theirs.accept())


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 2.0
    service, count = InProcess(), 64 * 50
    profile = cProfile.Profile()
    end = perf_counter() + seconds
    number = 0
    while perf_counter() < end:
        # Other ids each time: what is sent again is not done again.
        traffic = Traffic(DOMAIN, count, first=f"a{number:05}-")
        replies = profile.runcall(service.receive, traffic.bytes)
        if not number:
            traffic.check(replies)
        number += 1
    pstats.Stats(profile).sort_stats("tottime").print_stats(25)


if __name__ == "__main__":
    main()
