"""Through a real Prosody: there the server is the limit, and what a component saves is CPU time."""

from __future__ import annotations

import contextlib
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks import processes
from benchmarks.report import Line, Target
from benchmarks.traffic import Traffic
from benchmarks.wire_end import SECRET, drive, log_in
from tests.servers.prosody import Prosody

_COUNT = 3_000
_IN_FLIGHT = 64
_SERVICE, _PEER = "agent.localhost", "slixmpp.localhost"


class TwoComponents(Prosody):
    """Prosody as the tests start it, with a second component for the peer."""

    def _configure(self, component_block: str) -> None:
        super()._configure(component_block)
        block = f'Component "{_PEER}"\n\tcomponent_secret = "{SECRET}"\n'
        (self.directory / "conf.d" / "peer.cfg.lua").write_text(block)


def measure(runs: int) -> Iterator[Line]:
    """Yield IQs from a client to the component and back, and the component's CPU time for one."""
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(TwoComponents(directory / "prosody"))
        config = processes.agent_toml(directory, server.component_port)
        pids = {}
        for domain, command in (
            (_SERVICE, processes.service(config)),
            (_PEER, processes.slixmpp(server.component_port, _PEER)),
        ):
            pids[domain] = stack.enter_context(processes.running(command)).pid
        client = log_in(server.c2s_port, "juliet", server.accounts["juliet"])
        stack.callback(client.close)
        rates: dict[str, list[float]] = {domain: [] for domain in pids}
        costs: dict[str, list[float]] = {domain: [] for domain in pids}
        for domain in pids:
            _wait_for(client, domain)
            drive(client, Traffic(domain, _COUNT // 10, senders=()), _IN_FLIGHT)
        for run in range(runs):
            for domain, pid in pids.items():
                # Other ids each time: what is sent again is not done again.
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


def _wait_for(client: socket.socket, domain: str) -> None:
    """Ask until the component is there; until then the server answers with an error."""
    give_up = time.monotonic() + 60
    while time.monotonic() < give_up:
        traffic = Traffic(domain, 1, senders=())
        _, reply = drive(client, traffic, 1)
        with contextlib.suppress(AssertionError):
            traffic.check(reply)
            return
        time.sleep(0.1)
    raise AssertionError(f"{domain} did not connect to the server")
