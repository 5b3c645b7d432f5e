"""Measures what a busy room costs an agent that nobody speaks to: 200 occupants, 50 messages a
second, and one of each kind that is never answered among them.

The acceptor plays the server and the room.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

from benchmarks import processes
from benchmarks.report import Line, Target
from benchmarks.turn import scripted_model
from benchmarks.wire_end import DOMAIN, Acceptor

_OCCUPANTS = 200
_RATE = 50
_SECONDS = 10
_ROOM = "lobby@rooms.localhost"
_AGENT = f"assistant@{DOMAIN}/rooms"
_NICK = "FluuxBot"
_MOST = Target(5, "at most", of="ours")
_IQ = re.compile(
    rb"<iq from='([^']*)' to='([^']*)' type='[gs]et' id='([^']*)'>(.*?)</iq>", re.DOTALL
)
_USER = "http://jabber.org/protocol/muc#user"
_SETTINGS = """
[llm]
provider = "openai"
model = "scripted"
base_url = "{url}"
api_key = "sk-scripted"

[[rooms]]
jid = "{room}"
nick = "{nick}"
"""


class _Room(threading.Thread):
    """Reads the stream: describes the room, and lets the agent enter it."""

    def __init__(self, acceptor: Acceptor) -> None:
        super().__init__(daemon=True)
        self._socket = acceptor.socket
        self._lock = threading.Lock()
        self.entered = threading.Event()
        self.said = 0

    def send(self, xml: str) -> None:
        with self._lock:
            self._socket.sendall(xml.encode())

    def run(self) -> None:
        heard = b""
        with contextlib.suppress(OSError):
            while data := self._socket.recv(1 << 16):
                heard += data
                for found in _IQ.finditer(heard):
                    self._answer(*(each.decode() for each in found.groups()))
                self.said += heard.count(b"type='groupchat'")
                if f"to='{_ROOM}/{_NICK}'".encode() in heard and not self.entered.is_set():
                    self._enter()
                heard = heard[heard.rfind(b"<iq ") :] if _is_cut(heard) else b""

    def _answer(self, from_: str, to: str, id_: str, inside: str) -> None:
        head = f"from='{to}' to='{from_}' id='{id_}'"
        if to != _ROOM or "disco#info" not in inside:
            self.send(
                f"<iq type='error' {head}><error type='cancel'><service-unavailable"
                " xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error></iq>"
            )
            return
        features = ("http://jabber.org/protocol/muc", "urn:xmpp:occupant-id:0", "urn:xmpp:sid:0")
        said = "".join(f"<feature var='{each}'/>" for each in features)
        self.send(
            f"<iq type='result' {head}><query xmlns='http://jabber.org/protocol/disco#info'>"
            f"<identity category='conference' type='text'/>{said}</query></iq>"
        )

    def _enter(self) -> None:
        everybody = [_presence(f"Occupant {number}", number) for number in range(_OCCUPANTS)]
        self.send("".join((*everybody, _presence(_NICK, -1, "<status code='110'/>"))))
        self.entered.set()


def _presence(nick: str, number: int, status: str = "") -> str:
    return (
        f"<presence from='{_ROOM}/{nick}' to='{_AGENT}'>"
        f"<occupant-id xmlns='urn:xmpp:occupant-id:0' id='o{number}'/><x xmlns='{_USER}'>"
        f"<item affiliation='none' role='participant'/>{status}</x></presence>"
    )


def _message(number: int) -> str:
    who = number % _OCCUPANTS
    return (
        f"<message from='{_ROOM}/Occupant {who}' to='{_AGENT}' type='groupchat' id='m{number}'>"
        f"<body>What do you think of the tide, Occupant {number % 7}? It is high again.</body>"
        f"<origin-id xmlns='urn:xmpp:sid:0' id='m{number}'/>"
        "<active xmlns='http://jabber.org/protocol/chatstates'/>"
        f"<occupant-id xmlns='urn:xmpp:occupant-id:0' id='o{who}'/>"
        f"<stanza-id xmlns='urn:xmpp:sid:0' id='s{number}' by='{_ROOM}'/></message>"
    )


def _is_cut(heard: bytes) -> bool:
    return heard.rfind(b"<iq ") > heard.rfind(b"</iq>")


def measure(runs: int) -> Iterator[Line]:
    """Yield the share of a processor that the room takes."""
    busy: list[float] = []
    idle: list[float] = []
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url = scripted_model(stack, directory, [{"text": "The tide is high."}])
        acceptor = stack.enter_context(Acceptor())
        config = processes.agent_toml(directory, acceptor.port)
        with config.open("a") as file:
            file.write(_SETTINGS.format(url=url, room=_ROOM, nick=_NICK))
        process = stack.enter_context(processes.running(processes.service(config)))
        acceptor.accept()
        room = _Room(acceptor)
        room.start()
        assert room.entered.wait(60), "it has not entered the room"
        _talk(room, 0, 2)  # what is imported and compiled once
        for run in range(runs):
            idle.append(_share(process.pid, lambda: time.sleep(_SECONDS)))
            first = (run + 1) * 100_000
            busy.append(_share(process.pid, lambda at=first: _talk(room, at, _SECONDS)))
        assert room.said == 0, "it has said something"
        acceptor.hang_up()
    name = f"a room with {_OCCUPANTS} occupants and {_RATE} messages a second"
    yield Line(name, "% of a core", busy, target=_MOST)
    yield Line("the same room without messages", "% of a core", idle)


def _talk(room: _Room, first: int, seconds: float) -> None:
    """Send messages at the rate for a time."""
    began, sent = perf_counter(), 0
    while sent < seconds * _RATE:
        room.send(_message(first + sent))
        sent += 1
        time.sleep(max(0.0, began + sent / _RATE - perf_counter()))


def _share(pid: int, wait: object) -> float:
    """Return the share of a processor, in percent, that a process takes while something runs."""
    assert callable(wait)
    began, before = perf_counter(), processes.cpu_seconds(pid)
    wait()
    return 100 * (processes.cpu_seconds(pid) - before) / (perf_counter() - began)
