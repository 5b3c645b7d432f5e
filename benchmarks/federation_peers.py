"""Measures a service that knows a thousand peers with a hundred skills each.

The other end of the stream answers for all peers. The comparison is the same service without any.
"""

from __future__ import annotations

import contextlib
import random
import re
import socket
import sqlite3
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from benchmarks import processes
from benchmarks.report import Line, Target
from benchmarks.startup import compiled_modules
from benchmarks.wire_end import DOMAIN, Acceptor
from component.config.peers import Peer
from component.features.peers.catalogue import PeerCatalogue
from component.features.peers.rows import OfferedSkills
from component.skills import Registry
from xep.binding import encode
from xep.fluux_agent.skills import (
    Description,
    Schema,
    SkillDescription,
    SkillsQuery,
    Title,
)
from xep.result_sets import First, ResultSet

PEERS, SKILLS = 1_000, 100
_PAGE = 50
_WORDS = (
    *("find", "list", "report", "archive", "sources", "topic", "invoice", "order"),
    *("customer", "weather", "ticket", "calendar", "summary", "translate", "convert", "search"),
    *("fetch", "update", "describe", "people", "rooms", "files", "budget", "plan"),
    *("status", "history", "map", "route", "price", "stock", "news"),
)
_IQ = re.compile(rb"<iq ([^>]*)>(.*?)</iq>", re.DOTALL)
_ATTRIBUTE = re.compile(rb"(\w+)=['\"]([^'\"]*)['\"]")
_MOST = 1 << 18
_WAIT_S = 600.0
_QUIET_S = 3.0
"""Seconds without a request, after which all are taken to have been sent."""


class PeersEnd(Acceptor):
    """A server's end of the stream that answers for all peers.

    Attributes:
        asked: the number of requests of each kind, and the bytes of requests and answers.
        last: when the last one came.
    """

    def __init__(self) -> None:
        super().__init__()
        self.asked: Counter[str] = Counter()
        self.last = 0.0
        self._versions: dict[str, int] = {}
        self._pages = [_page(start) for start in range(0, SKILLS, _PAGE)]

    def serve(self) -> threading.Thread:
        """Answer the connected service in a thread, until it ends."""
        self.asked.clear()
        self.last = time.perf_counter()
        thread = threading.Thread(target=self._serve, args=(self.socket,), daemon=True)
        thread.start()
        return thread

    def wait(self, number: int) -> None:
        """Wait until so many peers have been asked what they offer."""
        give_up = time.monotonic() + _WAIT_S
        while self.asked["unchanged"] + self.asked["first pages"] < number:
            assert time.monotonic() < give_up, f"the service has asked only: {self.asked}"
            time.sleep(0.02)

    def wait_quiet(self) -> None:
        """Wait until no more requests come."""
        while time.perf_counter() - self.last < _QUIET_S:
            time.sleep(0.1)

    def change(self, peer: str) -> None:
        """Let a peer offer something else, and say so."""
        self._versions[peer] = self._versions.get(peer, 1) + 1
        self.socket.sendall(
            f"<message from='{peer}' to='assistant@{DOMAIN}' type='headline'>"
            "<event xmlns='http://jabber.org/protocol/pubsub#event'>"
            "<items node='urn:fluux:agent:0#skills'><item id='x'/></items></event>"
            "</message>".encode()
        )

    def _serve(self, sock: socket.socket) -> None:
        waiting = b""
        with contextlib.suppress(OSError):
            while data := sock.recv(_MOST):
                waiting += data
                end = 0
                for found in _IQ.finditer(waiting):
                    end = found.end()
                    answer = self._answer(found[1], found[2], found[0])
                    sock.sendall(answer)
                waiting = waiting[end:]

    def _answer(self, head: bytes, body: bytes, whole: bytes) -> bytes:
        given = {name.decode(): value.decode() for name, value in _ATTRIBUTE.findall(head)}
        kind, answer = self._payload(given["to"], body)
        if kind == "other":
            reply = (
                f"<iq type='error' from='{given['to']}' to='{given['from']}' id='{given['id']}'>"
            )
            answer = (
                "<error type='cancel'><feature-not-implemented"
                " xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error>"
            )
        else:
            reply = (
                f"<iq type='result' from='{given['to']}' to='{given['from']}' id='{given['id']}'>"
            )
        made = f"{reply}{answer}</iq>".encode()
        if kind != "other":
            self.asked[kind] += 1
            self.asked[f"{kind}, bytes"] += len(whole) + len(made)
            self.last = time.perf_counter()
        return made

    def _payload(self, peer: str, body: bytes) -> tuple[str, str]:
        if b"<subscribe" in body:
            return "subscriptions", (
                "<pubsub xmlns='http://jabber.org/protocol/pubsub'><subscription"
                f" node='urn:fluux:agent:0#skills' jid='assistant@{DOMAIN}'"
                " subscription='subscribed'/></pubsub>"
            )
        if b"#skills" not in body:
            return "other", ""
        version = f"v{self._versions.get(peer, 1)}"
        if f"version='{version}'".encode() in body:
            return "unchanged", (
                f"<query xmlns='urn:fluux:agent:0#skills' version='{version}' ttl='3600'"
                " unchanged='true'/>"
            )
        is_first = b"<after>" not in body
        page = self._pages[0 if is_first else 1].replace("VERSION", version)
        return "first pages" if is_first else "more pages", page


def _page(start: int) -> str:
    chosen = random.Random(start)

    def words(count: int) -> str:
        return " ".join(chosen.choice(_WORDS) for _ in range(count))

    def one(number: int) -> SkillDescription:
        properties = {
            f"{chosen.choice(_WORDS)}_{each}": {"type": "string", "description": words(8)}
            for each in range(4)
        }
        schema = msgspec.json.encode({"type": "object", "properties": properties})
        return SkillDescription(
            name=f"skill-{number:03}",
            version="1.0.0",
            titles=(Title(text=words(4)),),
            descriptions=(Description(text=words(20)),),
            tags=("benchmark", "numbered"),
            schemas=(Schema(direction="input", json=msgspec.Raw(schema)),),
        )

    skills = tuple(one(number) for number in range(start, start + _PAGE))
    part = ResultSet(
        first=First(key=skills[0].name, index=start), last=skills[-1].name, count=SKILLS
    )
    return encode(SkillsQuery(version="VERSION", ttl=3600, skills=skills, page=part))


def measure(runs: int) -> Iterator[Line]:
    """Yield the start and the memory, look-ups, and what is asked of peers."""
    with tempfile.TemporaryDirectory() as name, PeersEnd() as end:
        home = Path(name)
        compiled = compiled_modules(home)
        plain = processes.agent_toml(home, end.port)
        data = processes.data_of(home, end.port)
        many = home / "many.toml"
        many.write_text(
            plain.read_text().replace(str(data), str(home / "many"))
            + "".join(
                f'\n[[peer]]\nname = "p{number:04}"\njid = "agent.p{number:04}.test"\n'
                'skills = ["*"]\n'
                for number in range(PEERS)
            )
        )
        first = _first(end, many, compiled)
        yield Line(f"{PEERS:,} peers that are not known yet, until all are", "s", [first[0]])
        yield Line("the same, CPU", "s", [first[1]])
        ours: list[tuple[float, float]] = []
        peer: list[tuple[float, float]] = []
        for _ in range(runs):
            peer.append(_start(end, plain, compiled))
            ours.append(_start(end, many, compiled))
        label = f"{PEERS:,} known peers with {SKILLS} skills each / without"
        seconds = [one[0] for one in ours], [one[0] for one in peer]
        yield Line(f"start to accepted handshake, {label}", "s", *seconds)
        yield Line("the same, difference", "s", _differences(*seconds), (), _at_most(1))
        memory = [one[1] for one in ours], [one[1] for one in peer]
        yield Line(f"resident, {label}", "MB", *memory)
        yield Line("the same, difference", "MB", _differences(*memory))
        yield from _looked_up(home / "many" / "agent.db", runs)
        yield from _asked(end, many, compiled)


def _at_most(bound: float) -> Target:
    return Target(bound, "at most", "ours")


def _differences(ours: list[float], peer: list[float]) -> list[float]:
    return [one - other for one, other in zip(ours, peer, strict=True)]


def _first(end: PeersEnd, config: Path, environment: Mapping[str, str]) -> tuple[float, float]:
    """Return the seconds, and those of the processor, until a new service knows all peers."""
    with processes.running(processes.service(config), environment) as process:
        since = end.accept()
        thread = end.serve()
        end.wait(PEERS)
        end.wait_quiet()
        taken = end.last - since, processes.cpu_seconds(process.pid)
    thread.join()
    end.hang_up()
    return taken


def _start(end: PeersEnd, config: Path, environment: Mapping[str, str]) -> tuple[float, float]:
    """Return the seconds to the handshake, and the megabytes of memory after a list of skills."""
    began = time.perf_counter()
    with processes.running(processes.service(config), environment) as process:
        seconds = end.accept() - began
        _list(end.socket)
        time.sleep(1)
        resident = processes.resident_megabytes(process.pid)
        end.hang_up()
    return seconds, resident


def _list(sock: socket.socket) -> None:
    """Ask for a page of all skills, as a person does."""
    query = "<query xmlns='urn:fluux:agent:0#skills'/>"
    iq = f"<iq type='get' id='list' to='{DOMAIN}' from='juliet@localhost/balcony'>{query}</iq>"
    sock.sendall(iq.encode())
    received = b""
    while not re.search(rb"<iq [^>]*id='list'.*?</iq>", received, re.DOTALL):
        more = sock.recv(_MOST)
        assert more, "the stream ended"
        received += more


def _looked_up(database: Path, runs: int) -> Iterator[Line]:
    """Yield the times of look-ups by name in the catalogues that the service has stored."""
    registry = Registry()
    with contextlib.closing(sqlite3.connect(database)) as connection:
        for name, address, skills in connection.execute(
            "SELECT peer, address, skills FROM peer_skills"
        ):
            peer = Peer(name=name, jid=address, skills=("*",))
            known = msgspec.json.decode(skills, type=OfferedSkills)
            calls: object = None
            catalogue = PeerCatalogue(peer, known, calls)  # type: ignore[arg-type] # nothing is called
            registry.offer(name, catalogue.listed())
    assert len(registry) == PEERS * SKILLS
    view = registry.view("all", lambda _name: True)
    first: list[float] = []
    again: list[float] = []
    for run in range(runs):
        names = [f"p{number:04}.skill-{run:03}" for number in range(0, PEERS, 2)]
        for found in (first, again):
            before = time.perf_counter()
            for name in names:
                assert view.get(name) is not None
            found.append((time.perf_counter() - before) / len(names) * 1e6)
    yield Line(f"look-up of one of {PEERS * SKILLS:,} skills by name, the first", "µs", first)
    yield Line("the same, later", "µs", again, (), _at_most(5))
    listing: list[float] = []
    searching: list[float] = []
    for _ in range(runs):
        registry.changed()
        view = registry.view("all", lambda _name: True)
        before = time.perf_counter()
        assert view.version
        listing.append((time.perf_counter() - before) * 1e3)
        before = time.perf_counter()
        view.names("customer archive")
        searching.append((time.perf_counter() - before) * 1e3)
    yield Line(f"listing {PEERS * SKILLS:,} skills after a change", "ms", listing)
    yield Line("the first search in them for two words", "ms", searching)


def _asked(end: PeersEnd, config: Path, environment: Mapping[str, str]) -> Iterator[Line]:
    """Yield what peers are asked in a new session, and when one has changed."""
    with processes.running(processes.service(config), environment) as process:
        since = end.accept()
        before = processes.cpu_seconds(process.pid)
        thread = end.serve()
        end.wait(PEERS)
        end.wait_quiet()
        asked, took = end.asked.copy(), end.last - since
        used = processes.cpu_seconds(process.pid) - before
        end.asked.clear()
        end.change("agent.p0007.test")
        end.wait(1)
        end.wait_quiet()
        changed = end.asked.copy()
    thread.join()
    end.hang_up()
    yield Line("a new session, nothing has changed: until all peers were asked", "s", [took])
    yield Line("the same, CPU of a peer", "ms", [used / PEERS * 1e3])
    for kind, what in (("unchanged", "asking whether anything"), ("subscriptions", "subscribing")):
        number = asked[kind] / PEERS
        yield Line(
            f"the same, {what} has changed" if kind == "unchanged" else f"the same, {what}",
            "IQs a peer",
            [number],
        )
        yield Line("the same, both ways", "bytes a peer", [asked[f"{kind}, bytes"] / PEERS])
    kinds = [kind for kind in changed if "bytes" not in kind]
    yield Line("one peer has changed", "IQs", [float(sum(changed[kind] for kind in kinds))])
    size = sum(changed[f"{kind}, bytes"] for kind in kinds)
    yield Line("the same, both ways", "bytes", [float(size)])
