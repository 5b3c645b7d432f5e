"""The path of an IQ without its socket: bytes in, bytes out, in this process and this thread.

The kernel, the event loop and the process at the other end are left out; they cause most of the
noise. So this is good for small differences in cost, and for profiling.

    python -m benchmarks.inprocess [SECONDS]      shows where the time goes
"""

from __future__ import annotations

import cProfile
import pstats
import sys
from collections.abc import Callable, Iterable
from time import perf_counter
from typing import Any, cast

from pydantic import SecretStr

from benchmarks.traffic import Traffic
from benchmarks.wire_end import DOMAIN, SECRET
from component.app.features import make_settings
from component.app.service import Service
from component.app.subsystems import Subsystems
from component.config import Agent, Server
from component.config.memory import Memory
from component.features.tasks_iq.feature import TasksIQFeature
from component.kernel.environment import Environment
from component.kernel.memory import Memories
from component.kernel.monitoring import Monitoring
from component.kernel.options import addresses
from component.link.messages.outbox import OutputStream
from component.skills import Skill
from component.store import Storage
from component.store.contacts import StoppedContacts
from xep.component_stream import AcceptorStream, ComponentStream

_READ = 65536  # the maximum that the connection reads at once


class InProcess(OutputStream):
    """All subsystems of the service, from the stream parser to the outbox, with the given skills.

    Nothing here waits, so it accepts only requests that are answered at once; access to the
    database fails, because there is none. For the same reason there is no audit log.

    Args:
        skills: besides the built-in ones.
        change: called with the subsystems, once, before any input.
    """

    def __init__(
        self, skills: Iterable[Skill] = (), change: Callable[[Subsystems], None] = lambda _: None
    ) -> None:
        settings = make_settings(
            server=Server(component_domain=DOMAIN, component_secret=SecretStr(SECRET)),
            agent=Agent(allowed_domains=("localhost",)),
            memory=Memory(store="files"),
        )
        service = Service(settings)
        for skill in skills:
            service.catalog.registry.add(skill)
        storage = cast("Storage", _NoStorage())
        subsystems = Subsystems(
            Environment(
                catalog=service.catalog,
                storage=storage,
                home="benchmark",
                stopped=StoppedContacts(storage, addresses(settings).agent_address),
                monitoring=Monitoring(),
                memories=cast("Memories", _NoMemories()),
            ),
            {"tasks_iq": TasksIQFeature(settings)},
        )
        change(subsystems)
        stream = subsystems.kernel.stream
        self._outbox = stream.outbox
        self._outbox.start(self)
        self._written: list[bytes] = []
        self._router = stream.router
        self._stream = ComponentStream(DOMAIN, SECRET)
        _shake_hands(self._stream)

    def receive(self, data: bytes | memoryview) -> bytes:
        """Process received bytes, a read at a time; return the output."""
        for start in range(0, len(data), _READ):
            events = self._stream.receive(bytes(data[start : start + _READ]))
            waiting = self._router.received(events)  # type: ignore[arg-type]
            while waiting:
                waiting = self._router.received(())
            self.flush()
        sent = b"".join(self._written)
        self._written.clear()
        return sent

    def flush(self) -> None:
        """Send what waits."""
        self._outbox.flush(self.try_send)

    def try_send(self, data: bytes | memoryview) -> int:
        """Accept all output, like a kernel with room."""
        self._written.append(bytes(data))
        return len(data)


class _NoMemories:
    """For agents, of which there are none, and for commands, of which none is called."""

    knowledge = sessions = None


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
        # New ids each time, because a repetition is not executed.
        traffic = Traffic(DOMAIN, count, first=f"a{number:05}-")
        replies = profile.runcall(service.receive, traffic.bytes)
        if not number:
            traffic.check(replies)
        number += 1
    pstats.Stats(profile).sort_stats("tottime").print_stats(25)


if __name__ == "__main__":
    main()
