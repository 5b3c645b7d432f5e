"""Measures the path through a real Prosody: there the server is the limit, so CPU time matters."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks import processes
from benchmarks.report import Line, Target
from benchmarks.traffic import Traffic
from benchmarks.wire_end import Stream, drive
from tests.servers.prosody import Prosody
from tests.servers.raw_client import log_in

_COUNT = 3_000
_IN_FLIGHT = 64
_WHY_UNLIMITED = "what is measured is how many requests the component takes"
_SERVICE, _PEER = "agent.localhost", "slixmpp.localhost"


def measure(runs: int) -> Iterator[Line]:
    """Yield the IQs per second from a client to the component and back, and the component's CPU
    time per IQ.
    """
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(
            Prosody(directory / "prosody", second=_PEER, unlimited=_WHY_UNLIMITED)
        )
        config = processes.agent_toml(directory, server.component_port)
        pids = {}
        for domain, command in (
            (_SERVICE, processes.service(config)),
            (_PEER, processes.slixmpp(server.component_port, _PEER)),
        ):
            pids[domain] = stack.enter_context(processes.running(command)).pid
        client = log_in(server, "juliet")
        stack.callback(client.close)
        rates: dict[str, list[float]] = {domain: [] for domain in pids}
        costs: dict[str, list[float]] = {domain: [] for domain in pids}
        for domain in pids:
            wait_for(client, domain)
            drive(client, Traffic(domain, _COUNT // 10, senders=()), _IN_FLIGHT)
        for run in range(runs):
            for domain, pid in pids.items():
                # New ids each time, because a repetition is not executed.
                traffic = Traffic(domain, _COUNT, senders=(), first=f"r{run:03}-")
                before = processes.cpu_seconds(pid)
                seconds, replies = drive(client, traffic, _IN_FLIGHT)
                used = processes.cpu_seconds(pid) - before
                traffic.check(replies)
                rates[domain].append(_COUNT / seconds)
                costs[domain].append(used / _COUNT * 1e6)
    yield Line(
        f"Prosody, {_IN_FLIGHT} in flight, trio",
        "IQ/s",
        rates[_SERVICE],
        rates[_PEER],
        Target(0.95, "at least"),
    )
    yield Line(
        f"Prosody, {_IN_FLIGHT} in flight, trio, CPU",
        "µs/IQ",
        costs[_SERVICE],
        costs[_PEER],
        Target(1 / 3, "at most"),
    )


def wait_for(client: Stream, domain: str) -> None:
    """Send requests until the component answers; until then the server answers with an error."""
    give_up = time.monotonic() + 60
    while time.monotonic() < give_up:
        traffic = Traffic(domain, 1, senders=())
        _, reply = drive(client, traffic, 1)
        with contextlib.suppress(AssertionError):
            traffic.check(reply)
            return
        time.sleep(0.1)
    raise AssertionError(f"{domain} did not connect to the server")
