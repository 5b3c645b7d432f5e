"""Measures calls of a skill of an agent on another server: Prosody and ejabberd with a real link.

    tests/tools/network.sh python -m benchmarks.federation_calls RUNS

prints the lines as JSON. A person of the first server asks its agent, once for a skill of its own
and once for the same one of the other agent; a component of the first server pings the other agent.
All three take turns. What a call takes beyond the local one and the ping is ours.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks import processes
from benchmarks.report import Line, Target
from benchmarks.wire_end import SECRET, Stream
from tests.federation.names import Names
from tests.servers.ejabberd import Ejabberd
from tests.servers.prosody import Prosody
from tests.servers.raw_client import log_in
from xep.component_stream import ComponentStream, HandshakeAccepted
from xep.stream import StreamOpened

_NETWORK = processes.ROOT / "tests" / "tools" / "network.sh"
_ADDRESSES = {"a.test": "127.0.0.2", "b.test": "127.0.0.3"}
_PINGER = "pinger.a.test"
_CALLS = 200
_PAUSE_S = 0.005
_S2S_PORT = 5269
_WAIT_S = 120.0
_WHY = "what is measured is the time of one call after the other"
_KINDS = {"inline": "echo", "durable": "note"}
_MOST = 1 << 18
_ATTRIBUTE = re.compile(rb"(\w+)='([^']*)'")
_ASKED = re.compile(
    rb"<iq [^>]*type='get'[^>]*><query xmlns='http://jabber.org/protocol/disco#info'"
)
_CLIENT = (
    b"<iq type='result' id='%s' to='%s'><query xmlns='http://jabber.org/protocol/disco#info'>"
    b"<identity category='client' type='phone'/></query></iq>"
)
_MODULE = Path(__file__).with_name("federation_skills.py")
_COMMON = f"""
[skills]
modules = ["{_MODULE}"]

[log]
level = "warning"
"""
_A = """
[[peer]]
name = "b"
jid = "agent.b.test"
skills = ["echo", "note"]
read_only = ["echo"]
confirm = "never"
"""
_B = f"""
[[peer]]
name = "a"
jid = "agent.a.test"
offers = ["echo", "note"]

[[peer]]
name = "pinger"
jid = "{_PINGER}"
"""


def measure(runs: int) -> Iterator[Line]:
    """Yield the times of delegated calls, beside local ones and pings."""
    command = [str(_NETWORK), sys.executable, "-m", "benchmarks.federation_calls", str(runs)]
    shown = subprocess.run(command, cwd=processes.ROOT, check=True, stdout=subprocess.PIPE)
    for kind, found in json.loads(shown.stdout).items():
        label = f"a delegated {kind} call, Prosody to ejabberd"
        yield Line(f"{label} / the same one here", "ms", found["delegated"], found["local"])
        yield Line("the same / a ping of the other agent", "ms", found["delegated"], found["ping"])
        ours = found["ours"]
        yield Line("the same, less both", "ms", ours, (), Target(1.5, "at most", "ours"))
        yield Line("the same, CPU of both agents", "ms", found["ours CPU"])


class _End:
    """A connection that sends a request at a time."""

    sender = ""

    def __init__(self, sock: Stream) -> None:
        self._socket = sock
        self._number = 0
        self._heard = b""

    def time_of(self, to: str, payload: str, kind: str, expected: str) -> float:
        """Return the seconds until the result of an IQ, or, if that names a task, until the task is
        completed. `expected` is a pattern of the result. Raises AssertionError for another one.
        """
        self._number += 1
        id_ = f"n{self._number}"
        self._heard = b""
        data = f"<iq type='{kind}' id='{id_}' to='{to}'{self.sender}>{payload}</iq>".encode()
        began = time.perf_counter()
        self._socket.sendall(data)
        answer = self._until(rf"<iq [^>]*\bid='{id_}'[^>]*(/>|>.*?</iq>)")[0]
        assert b"type='result'" in answer, answer
        accepted = re.search(rb"<accepted [^>]*\btask='(\w+)'", answer)
        if accepted is not None:
            task = rf"(?=[^>]*\bid='{accepted[1].decode()}')(?=[^>]*\bstate='completed')"
            answer = self._until(rf"<task {task}[^>]*>")[0]
        taken = time.perf_counter() - began
        assert re.search(expected.encode(), answer), answer
        return taken

    def _until(self, pattern: str) -> re.Match[bytes]:
        """Read until a stanza matches; answer what an agent asks about the client."""
        while not (found := re.search(pattern.encode(), self._heard, re.DOTALL)):
            part = self._socket.recv(_MOST).replace(b'"', b"'")
            assert part, "the stream ended"
            self._heard += part
            for asked in _ASKED.finditer(part):
                given = dict(_ATTRIBUTE.findall(asked[0]))
                reply = _CLIENT % (given[b"id"], given[b"from"])
                self._socket.sendall(reply)
        return found


class _Pinger(_End):
    """A component of a server."""

    sender = f" from='{_PINGER}'"

    def __init__(self, address: tuple[str, int]) -> None:
        sock = socket.create_connection(address)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream = ComponentStream(_PINGER, SECRET)
        sock.sendall(stream.open())
        while True:
            for event in stream.receive(sock.recv(_MOST)):
                if isinstance(event, StreamOpened):
                    sock.sendall(stream.handshake())
                elif isinstance(event, HandshakeAccepted):
                    super().__init__(sock)
                    return


def _call(skill: str) -> str:
    mode = "auto" if skill.endswith("echo") else "async"
    return (
        f"<execute xmlns='urn:fluux:agent:0#execute' skill='{skill}' mode='{mode}'>"
        "<param name='text'>tide</param></execute>"
    )


def _measured(runs: int) -> dict[str, dict[str, list[float]]]:
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.enter_context(Names(_ADDRESSES, {}))
        common = {"s2s_port": _S2S_PORT, "unlimited": _WHY}
        a = Prosody(
            directory / "a",
            "a.test",
            _ADDRESSES["a.test"],
            second=_PINGER,
            **common,  # type: ignore[arg-type]
        )
        b = Ejabberd(directory / "b", "b.test", _ADDRESSES["b.test"], **common)  # type: ignore[arg-type]
        with ThreadPoolExecutor() as threads:
            list(threads.map(stack.enter_context, (a, b)))
        pids: list[int] = []
        for server, more in ((b, _B), (a, _A)):
            config = directory / f"{server.host}.toml"
            data = f'\n[storage]\npath = "{directory}/data-{server.host}"\n'
            config.write_text(server.agent_toml() + more + _COMMON + data)
            pids.append(stack.enter_context(processes.running(processes.service(config))).pid)
        romeo = log_in(a, "romeo")
        stack.callback(romeo.close)
        romeo.sendall(b"<presence/>")  # ends of tasks are sent to clients that are there
        person, pinger = _End(romeo), _Pinger((a.address, a.second_port))
        ping = "<ping xmlns='urn:xmpp:ping'/>"

        def local(skill: str) -> float:
            return person.time_of("agent.a.test", _call(skill), "set", ">tide<|state='completed'")

        def delegated(skill: str) -> float:
            return person.time_of(
                "agent.a.test", _call(f"b.{skill}"), "set", ">tide<|state='completed'"
            )

        def pinged(_skill: str) -> float:
            return pinger.time_of("agent.b.test", ping, "get", "")

        found: dict[str, dict[str, list[float]]] = {}
        for kind, skill in _KINDS.items():
            for each in (local, delegated, pinged):
                _wait_for(each, skill)
            once = {"local": local, "ping": pinged, "delegated": delegated}
            found[kind] = _compared(runs, skill, once, pids)
        return found


def _wait_for(once: Callable[[str], float], skill: str) -> None:
    """Ask until there is an answer: links are made, and skills of the other agent are fetched."""
    give_up = time.monotonic() + _WAIT_S
    while True:
        try:
            once(skill)
        except AssertionError:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.2)
        else:
            return


def _compared(
    runs: int, skill: str, once: Mapping[str, Callable[[str], float]], pids: Sequence[int]
) -> dict[str, list[float]]:
    """Return medians of milliseconds, and milliseconds of the processors that both agents use."""
    found: dict[str, list[float]] = {}
    for _ in range(runs):
        taken: dict[str, list[float]] = {name: [] for name in once}
        for _number in range(_CALLS):
            for name, call in once.items():
                taken[name].append(call(skill))
                time.sleep(_PAUSE_S)
        medians = {name: statistics.median(values) * 1e3 for name, values in taken.items()}
        used: dict[str, float] = {}
        for name, call in once.items():
            before = sum(map(processes.cpu_seconds, pids))
            for _number in range(_CALLS):
                call(skill)
            used[f"{name} CPU"] = (sum(map(processes.cpu_seconds, pids)) - before) / _CALLS * 1e3
        ours = {"ours": _beyond(medians, ""), "ours CPU": _beyond(used, " CPU")}
        for name, value in (medians | used | ours).items():
            found.setdefault(name, []).append(value)
    return found


def _beyond(values: Mapping[str, float], kind: str) -> float:
    return values[f"delegated{kind}"] - values[f"local{kind}"] - values[f"ping{kind}"]


if __name__ == "__main__":
    print(json.dumps(_measured(int(sys.argv[1]))))
