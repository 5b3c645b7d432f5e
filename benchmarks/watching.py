"""Measures how a thousand events per second of a watched node affect a person who chats.

The acceptor plays the server and its PubSub service. Juliet sends one message at a time, which a
scripted model answers at once, while events arrive for a watch whose rate allows one start of work
per minute: the others are thinned. All of them must be counted in the end.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

from benchmarks import processes
from benchmarks.report import Line, Target, percentile
from benchmarks.turn import scripted_model
from benchmarks.wire_end import DOMAIN, Acceptor

_RATE = 1_000
_TURNS = 100
_MOST_RATIO = Target(2, "at most")
_ALL = Target(1, "at least")
_CHUNKS_A_SECOND = 50
_SERVICE = "pubsub.localhost"
_IQ = re.compile(
    rb"<iq from='([^']*)' to='([^']*)' type='[gs]et' id='([^']*)'>(.*?)</iq>", re.DOTALL
)
_SETTINGS = """
[llm]
provider = "openai"
model = "scripted"
base_url = "{url}"
api_key = "sk-scripted"

[[watch]]
name = "events"
service = "{service}"
node = "events"
principal = "juliet@localhost"
skill = "echo"
params = {{ text = "{{text}}" }}
silent = true
rate = "1/min"
"""


class _Server(threading.Thread):
    """Reads the stream: answers requests to the service, and records when messages are answered."""

    def __init__(self, acceptor: Acceptor) -> None:
        super().__init__(daemon=True)
        self._socket = acceptor.socket
        self._lock = threading.Lock()
        self._answers = threading.Semaphore(0)
        self.subscribed = threading.Event()

    def send(self, xml: bytes) -> None:
        with self._lock:
            self._socket.sendall(xml)

    def ask(self, number: str) -> float:
        """Send a message from Juliet; return the seconds until the agent has answered."""
        began = perf_counter()
        self.send(
            f"<message from='juliet@localhost/a' to='assistant@{DOMAIN}' type='chat' id='{number}'>"
            f"<body>How is the tide?</body></message>".encode()
        )
        assert self._answers.acquire(timeout=60), "no answer"
        return perf_counter() - began

    def run(self) -> None:
        heard = b""
        with contextlib.suppress(OSError):
            while data := self._socket.recv(1 << 16):
                heard += data
                for found in _IQ.finditer(heard):
                    self._answer(*found.groups())
                for _ in range(heard.count(b"The tide is high.")):
                    self._answers.release()
                heard = heard[heard.rfind(b"<iq ") :] if _is_cut(heard) else b""

    def _answer(self, from_: bytes, to: bytes, id_: bytes, inside: bytes) -> None:
        head = b"from='" + to + b"' to='" + from_ + b"' id='" + id_ + b"'"
        if to.decode() != _SERVICE:
            self.send(
                b"<iq type='error' " + head + b"><error type='cancel'><service-unavailable"
                b" xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error></iq>"
            )
            return
        self.send(b"<iq type='result' " + head + b"/>")
        if b"<subscribe" in inside:
            self.subscribed.set()


def _is_cut(heard: bytes) -> bool:
    return heard.rfind(b"<iq ") > heard.rfind(b"</iq>")


def measure(runs: int) -> Iterator[Line]:
    """Yield the duration of a turn with the events and alone, and the number of counted events."""
    alone: list[float] = []
    beside: list[float] = []
    kept: list[float] = []
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url = scripted_model(stack, directory, [{"text": "The tide is high."}])
        acceptor = stack.enter_context(Acceptor())
        config = processes.agent_toml(directory, acceptor.port)
        with config.open("a") as file:
            file.write(_SETTINGS.format(url=url, service=_SERVICE))
        stack.enter_context(processes.running(processes.service(config)))
        acceptor.accept()
        server = _Server(acceptor)
        server.start()
        assert server.subscribed.wait(60), "it has not subscribed"
        data = processes.data_of(directory, acceptor.port)
        for number in range(20):
            server.ask(f"warm-{number}")
        for run in range(runs):
            alone.append(percentile([server.ask(f"a{run}-{n}") for n in range(_TURNS)], "p50"))
            events = _Events(server, run)
            events.start()
            beside.append(percentile([server.ask(f"b{run}-{n}") for n in range(_TURNS)], "p50"))
            before = events.stop()
            kept.append(_counted(data, before) / before)
        acceptor.hang_up()
    name = f"a chat turn beside {_RATE} events a second / alone"
    yield Line(name, "ms", [s * 1e3 for s in beside], [s * 1e3 for s in alone], _MOST_RATIO)
    yield Line("events that were counted", "of 1", kept, [1.0] * runs, _ALL)


class _Events(threading.Thread):
    """Sends events at a rate until it is stopped."""

    total = 0

    def __init__(self, server: _Server, run: int) -> None:
        super().__init__(daemon=True)
        self._server = server
        self._run = run
        self._stop_now = threading.Event()

    def run(self) -> None:
        began, sent = perf_counter(), 0
        while not self._stop_now.is_set():
            due = int((perf_counter() - began) * _RATE)
            chunk = b"".join(self._event(number) for number in range(sent, due))
            if chunk:
                self._server.send(chunk)
            _Events.total += due - sent
            sent = due
            self._stop_now.wait(1 / _CHUNKS_A_SECOND)

    def stop(self) -> int:
        """Stop; return the number of events that all runs have sent so far."""
        self._stop_now.set()
        self.join()
        return _Events.total

    def _event(self, number: int) -> bytes:
        return (
            f"<message from='{_SERVICE}' to='assistant@{DOMAIN}' type='headline'>"
            "<event xmlns='http://jabber.org/protocol/pubsub#event'><items node='events'>"
            f"<item id='{self._run}-{number}'><e xmlns='urn:example:event'>{number}</e></item>"
            "</items></event></message>"
        ).encode()


def _counted(data: Path, wanted: int) -> int:
    """Return the number of events that the watch has received, once there are enough or after a
    while.
    """
    found = 0
    for _ in range(100):
        with contextlib.closing(sqlite3.connect(data / "agent.db", timeout=30)) as database:
            (found,) = database.execute("SELECT received FROM watches").fetchone()
        if found >= wanted:
            break
        time.sleep(0.1)
    return int(found)
