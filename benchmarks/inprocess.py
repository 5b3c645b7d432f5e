"""The road of an IQ without its socket: bytes in, bytes out, in this process and this thread.

What is left out are the kernel, the event loop and the process at the other end, which is most of
the noise: good for costs that differ by little, and for profiling.

    python -m benchmarks.inprocess [SECONDS]      shows where the time goes
"""

from __future__ import annotations

import cProfile
import pstats
import sys
from collections.abc import Iterable
from time import perf_counter

from benchmarks.traffic import Traffic
from benchmarks.wire_end import DOMAIN, SECRET
from component.connection.outbox import Outbox
from component.handlers.disco import Discovery, Facts
from component.handlers.execute import ExecuteHandler
from component.handlers.skills import SkillsHandler
from component.router.router import Router, RouterOptions
from component.service import Service
from component.settings.model import Agent, Server, Settings
from component.skills import AnySkill
from component.skills.threads import Threads
from xep.component_stream import AcceptorStream, ComponentStream
from xep.jid import JID

_READ = 65536  # as much as the connection takes from the kernel at once


class InProcess:
    """The service's rooms from the stream parser to the outbox, with skills of the caller's.

    They are wired as `component.service` wires them.
    """

    def __init__(self, skills: Iterable[AnySkill] = ()) -> None:
        service = Service(
            Settings(
                server=Server(component_domain=DOMAIN, component_secret=SECRET),
                agent=Agent(allowed_domains=("localhost",)),
            )
        )
        for skill in skills:
            service.registry.add(skill)
        self._outbox = Outbox(1 << 23)
        self._outbox.start()
        self._written: list[bytes] = []
        facts = Facts(domain=JID.parse(DOMAIN), name="Agent", node="", form={})
        handlers = (
            ExecuteHandler(service.view, Threads(1, 1), inline_s=10),
            SkillsHandler(service.view),
            Discovery(facts, {"assistant": "Agent"}, lambda _: (), service.view),
        )
        self._router = Router(
            RouterOptions(DOMAIN, frozenset(("assistant",))),
            [route for handler in handlers for route in handler.routes()],
            service.policy.admits,
            self._outbox,
            self._flush,
        )
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


def _shake_hands(ours: ComponentStream) -> None:
    theirs = AcceptorStream()
    theirs.receive(ours.open())
    ours.receive(theirs.open("stream", SECRET))
    theirs.receive(ours.handshake())
    ours.receive(theirs.accept())


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 2.0
    service, traffic = InProcess(), Traffic(DOMAIN, 64 * 50)
    traffic.check(service.receive(traffic.bytes))
    profile = cProfile.Profile()
    end = perf_counter() + seconds
    while perf_counter() < end:
        profile.runcall(service.receive, traffic.bytes)
    pstats.Stats(profile).sort_stats("tottime").print_stats(25)


if __name__ == "__main__":
    main()
