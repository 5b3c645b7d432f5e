"""Measures another user's ping while one account sends the worst it can through a real Prosody.

Prosody runs as Debian configures it: it limits each client connection to 10 KB/s. Romeo logs in
twenty times and sends on all connections as fast as Prosody reads. Juliet pings, one request at a
time, and the time is measured at her socket. She pings Prosody itself as well: that time is
Prosody's own share.
"""

from __future__ import annotations

import contextlib
import re
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from benchmarks import abuse_traffic, processes
from benchmarks.abuse import MOST_MS, MOST_RATIO
from benchmarks.abuse_end import Crowd
from benchmarks.prosody import wait_for
from benchmarks.report import Line, percentile
from benchmarks.wire_end import DOMAIN
from tests.servers.prosody import Prosody
from tests.servers.raw_client import TlsSocket, log_in

_KINDS: Final = (
    "echo",
    "200 KB text",
    "200 KB of lines",
    "200 KB JSON, destructive, auto",
    "40,000 elements wide",
    "18,000 attributes",
)
_CONNECTIONS: Final = 20
_SECONDS: Final = 20.0
"""How long Juliet pings beside the others, and then alone."""
_PAUSE_S: Final = 0.02
"""Seconds between two pings, which keeps Juliet herself below the limit."""
_MOST: Final = 1 << 18


def measure(runs: int) -> Iterator[Line]:
    """Yield the 99th percentile and the longest of Juliet's pings beside each kind, and alone."""
    for name in _KINDS:
        beside: list[list[float]] = []
        alone: list[list[float]] = []
        itself: list[list[float]] = []  # pings to the server, under the same load
        with contextlib.ExitStack() as stack:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            server = stack.enter_context(Prosody(directory / "prosody"))
            config = processes.agent_toml(directory, server.component_port)
            stack.enter_context(processes.running(processes.service(config)))
            juliet = log_in(server, "juliet")
            stack.callback(juliet.close)
            wait_for(juliet, DOMAIN)
            for _ in range(runs):
                alone.append(_pings(juliet, DOMAIN)[0])
                with _sending(server, abuse_traffic.KINDS[name]):
                    _pings(juliet, DOMAIN)  # until all connections are sending
                    ours, servers = _pings(juliet, DOMAIN, server.host)
                    beside.append(ours)
                    itself.append(servers)
        worst, idle = ([percentile(run, "p99") * 1e3 for run in each] for each in (beside, alone))
        yield Line(f"Prosody, {name} · p99 / idle", "ms", worst, idle, MOST_RATIO)
        yield Line(f"Prosody, {name} · p99", "ms", worst, target=MOST_MS)
        servers_own = [percentile(run, "p99") * 1e3 for run in itself]
        yield Line(f"Prosody, {name} · p99 / of a ping to Prosody itself", "ms", worst, servers_own)
        worst, idle = ([max(run) * 1e3 for run in each] for each in (beside, alone))
        yield Line(f"Prosody, {name} · longest / idle", "ms", worst, idle)


@contextlib.contextmanager
def _sending(server: Prosody, crowd: Callable[[], Crowd]) -> Iterator[None]:
    """Let Romeo send on all connections of that account during the context."""
    sockets = [log_in(server, "romeo") for _ in range(_CONNECTIONS)]
    threads = []
    for number, sock in enumerate(sockets):
        delay_s = number / _CONNECTIONS * _SECONDS
        threads.append(threading.Thread(target=_send, args=(sock, crowd(), delay_s), daemon=True))
        threads.append(threading.Thread(target=_read, args=(sock,), daemon=True))
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for sock in sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        for thread in threads:
            thread.join()


def _send(sock: TlsSocket, crowd: Crowd, delay_s: float) -> None:
    time.sleep(delay_s)  # so that large stanzas do not all end at the same time
    with contextlib.suppress(OSError):
        for stanza in crowd:
            # Prosody adds the address itself.
            sock.sendall(re.sub(rb" from='[^']*'", b"", stanza, count=1))


def _read(sock: TlsSocket) -> None:
    with contextlib.suppress(OSError):
        while sock.recv(_MOST):
            pass


def _pings(sock: TlsSocket, *targets: str) -> list[list[float]]:
    """Ping the targets in turn for `_SECONDS`; the time of each ping in seconds, by target."""
    taken: list[list[float]] = [[] for _ in targets]
    give_up = time.monotonic() + _SECONDS
    number = 0
    while time.monotonic() < give_up:
        for which, target in enumerate(targets):
            number += 1
            seconds, reply = _ping(sock, f"p{number}", target)
            assert b"type='result'" in reply, f"a ping was refused: {reply!r}"
            taken[which].append(seconds)
            time.sleep(_PAUSE_S)
    return taken


def _ping(sock: TlsSocket, id_: str, target: str) -> tuple[float, bytes]:
    began = time.perf_counter()
    ping = "<ping xmlns='urn:xmpp:ping'/>"
    sock.sendall(f"<iq id='{id_}' type='get' to='{target}'>{ping}</iq>".encode())
    reply = b""
    while b"/>" not in reply and b"</iq>" not in reply:
        more = sock.recv(_MOST)
        assert more, "the stream ended"
        reply += more
    return time.perf_counter() - began, reply
