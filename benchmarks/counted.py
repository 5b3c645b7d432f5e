"""Counts what the service does for one request. No figure depends on the machine or on time.

    python -m benchmarks.counted [--show PATH | --repeat]

prints the counts as JSON. `--show` prints the hops of one path instead, the most frequent first.
`--repeat` is for a run under `strace` or `valgrind --tool=callgrind`: it counts nothing, and marks
the begin and the end of `REPEATED` requests of each path.

What is counted for each path, from its first byte until the service waits for input again:

- A *hop* is a call of a Python function whose code is in a file of `component/` or `xep/` by a
  function whose code is in another one of these files. The caller is the next frame on the stack,
  so a call by a library (the event loop starts a task, msgspec calls a hook) is not a hop. A
  coroutine or generator counts once, when it begins, and not each time that it continues. Generated
  code, which has no file, is neither caller nor callee; nor is `component/system.py`, which is the
  clocks and random numbers of the standard library, whose functions do not count as hops either.
- A *thread hop* is work that is handed to a worker thread (`anyio.to_thread.run_sync`).
- A *commit* is a transaction that can write (`BEGIN IMMEDIATE` … `COMMIT`) of any SQLite database.
- A *sync* is a file that is forced to the disk (`os.fsync`, `os.fdatasync`); SQLite's are commits.

The *modules* are those of this project that are imported when the service is connected.

Everything runs in one thread and in one order: work for threads runs in place, trio's scheduler has
a fixed seed, and no clock moves while a path is counted, so that no timer of the background fires.
The clocks move between paths. The model is an object that answers at once.
"""

import argparse
import dis
import gc
import json
import os
import random
import re
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import anyio
import trio
from anyio import to_thread
from trio._core import _run as scheduler
from trio.testing import wait_all_tasks_blocked

ROOT: Final = Path(__file__).resolve().parents[1]
PACKAGES: Final = (f"{ROOT}/component/", f"{ROOT}/xep/")
_SYSTEM: Final = f"{ROOT}/component/system.py"
_OWN: Final = ("component", "protocol_schemas", "xep")
PATHS: Final = (
    *("inline", "durable", "chat", "firing"),
    *("delegated", "delegated_durable", "for_peer"),
)
"""`delegated` and `delegated_durable` are calls of a skill of another agent, which answers at once;
`for_peer` is a call that another agent makes."""
_BEGAN: Final = 1_767_614_400  # 2026-01-05 12:00:00 UTC
_WARM_UP: Final = 2
REPEATED: Final = 10
MARK: Final = "/counted"
"""A directory that does not exist."""
_CUSHION_S: Final = 0.05
"""Seconds without work after which the service waits for input: a loopback socket takes none."""
_SETTINGS: Final = """
[server]
host = "127.0.0.1"
port = {port}
component_domain = "agent.localhost"
component_secret = "secret"

[agent]
allowed_domains = ["localhost"]

[storage]
path = "{directory}/data"

[memory]
path = "{directory}/memory"

[llm]
provider = "openai"
model = "scripted"
base_url = "http://127.0.0.1:9"
api_key = "none"

[[schedule]]
name = "echoes"
when = "every 30 minutes"
principal = "juliet@localhost"
skill = "echo"
params = {{ text = "It is time." }}

[[peer]]
name = "b"
jid = "agent.b.localhost"
skills = ["*"]
read_only = ["echo"]
confirm = "never"
offers = ["echo"]
origins = ["b.localhost"]
"""


class StoppedClock(trio.abc.Clock):
    """The clock of the event loop and of the process, which moves only when it is told to."""

    def __init__(self) -> None:
        self._seconds = 1000.0
        self._suspended = 0.0
        time.time = lambda: _BEGAN + self._since_boot()
        time.time_ns = lambda: int((_BEGAN + self._since_boot()) * 1e9)
        for name in ("monotonic", "perf_counter"):
            setattr(time, name, lambda: self._seconds)
            setattr(time, f"{name}_ns", lambda: int(self._seconds * 1e9))
        time.clock_gettime = lambda _clock: self._since_boot()
        time.clock_gettime_ns = lambda _clock: int(self._since_boot() * 1e9)

    def _since_boot(self) -> float:
        return self._seconds + self._suspended

    def move(self, seconds: float) -> None:
        """Let so many seconds pass."""
        self._seconds += seconds

    def suspend(self, seconds: float) -> None:
        """Let so many seconds pass as if the machine was suspended: timers do not count them."""
        self._suspended += seconds

    def start_clock(self) -> None:
        """Do nothing: it stands."""

    def current_time(self) -> float:
        """Return the time of the event loop."""
        return self._seconds

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Return 0 for a deadline that has passed; the others never pass by themselves."""
        return 0.0 if deadline <= self._seconds else 1e9


class Counts:
    """Counts while `counting` is open."""

    def __init__(self) -> None:
        self.hops: Counter[tuple[str, str]] = Counter()
        self.threads = self.commits = self.syncs = 0
        self.asked: int | None = None
        """The number of hops before the model was asked for the first time."""
        self._starts: dict[CodeType, int] = {}
        self._begun: set[int] = set()
        self._connect = sqlite3.connect
        sqlite3.connect = self._connected  # type: ignore[assignment]
        to_thread.run_sync = self._in_place  # type: ignore[assignment]
        for name in ("fsync", "fdatasync"):
            setattr(os, name, self._synced)

    @contextmanager
    def counting(self, *, hops: bool) -> Iterator[None]:
        """Count from zero within the context, with the hops or without them."""
        self.hops.clear()
        self.threads = self.commits = self.syncs = 0
        self.asked = None
        sys.setprofile(self._called if hops else None)
        try:
            yield
        finally:
            sys.setprofile(None)

    def model_asked(self) -> None:
        """Note that the model is asked."""
        if self.asked is None:
            self.asked = self.hops.total()

    def as_dict(self) -> dict[str, int]:
        """Return the counts of the last context."""
        found = {
            "hops": self.hops.total(),
            "thread hops": self.threads,
            "commits": self.commits,
            "syncs": self.syncs,
        }
        return found if self.asked is None else {"hops before the model": self.asked, **found}

    def _called(self, frame: FrameType, event: str, _arg: object) -> None:
        if event != "call" or (caller := frame.f_back) is None:
            return
        code, other = frame.f_code, caller.f_code
        if (
            code.co_filename != other.co_filename
            and code.co_filename.startswith(PACKAGES)
            and other.co_filename.startswith(PACKAGES)
            and _SYSTEM not in (code.co_filename, other.co_filename)
            and frame.f_lasti <= self._start_of(code)
        ):
            self.hops[_named(other), _named(code)] += 1

    def _start_of(self, code: CodeType) -> int:
        """Return where the body of a function begins; a coroutine continues after that."""
        start = self._starts.get(code)
        if start is None:
            resumes = (one for one in dis.get_instructions(code) if one.opname == "RESUME")
            start = self._starts[code] = next((one.offset for one in resumes if one.arg == 0), 0)
        return start

    def _connected(self, *args: Any, **kwargs: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = self._connect(*args, **kwargs)

        def traced(statement: str) -> None:
            if statement == "BEGIN IMMEDIATE":
                self._begun.add(id(connection))
            elif statement == "COMMIT" and id(connection) in self._begun:
                self._begun.discard(id(connection))
                self.commits += 1
            elif statement == "ROLLBACK":
                self._begun.discard(id(connection))

        connection.set_trace_callback(traced)
        return connection

    async def _in_place(
        self, work: Callable[..., Any], *args: Any, limiter: Any = None, **_options: Any
    ) -> Any:
        await anyio.lowlevel.checkpoint_if_cancelled()
        self.threads += 1
        if limiter is None:
            value = work(*args)
        else:
            async with limiter:
                value = work(*args)
        await anyio.lowlevel.cancel_shielded_checkpoint()
        return value

    def _synced(self, _file: int) -> None:
        self.syncs += 1


def _named(code: CodeType) -> str:
    return f"{code.co_filename.removeprefix(f'{ROOT}/')}:{code.co_qualname}"


class ScriptedModel:
    """Calls the tool `echo`, and then answers."""

    name = "scripted"
    context_tokens = 100_000
    usd_per_token_in = usd_per_token_out = 0.0

    def __init__(self, counts: Counts) -> None:
        self._counts = counts

    async def complete(self, request: Any, on_text: Any = None) -> Any:
        """Answer at once."""
        from component.models.messages import ToolCall
        from component.models.protocol import Completion

        self._counts.model_asked()
        await anyio.lowlevel.checkpoint()
        if request.messages[-1].role == "tool":
            return Completion.of(text="The tide is high at noon.")
        call = ToolCall(f"call-{len(request.messages)}", "echo", '{"text": "tide"}')
        return Completion.of(tool_calls=(call,), finish="tool_calls")

    def tokens(self, text: str) -> int:
        """Estimate tokens."""
        return len(text) // 3


class Server:
    """The server's end of the stream: sends bytes, and answers what the service asks."""

    def __init__(self, listener: trio.SocketListener) -> None:
        self._listener = listener
        self._stream: trio.SocketStream
        self.received = b""

    async def run(self) -> None:
        """Accept the service, and read from it until cancelled."""
        from xep.component_stream import AcceptorStream
        from xep.stream import StreamOpened

        self._stream = await self._listener.accept()
        ours = AcceptorStream()
        while not self.received:
            for event in ours.receive(await self._stream.receive_some()):
                if isinstance(event, StreamOpened):
                    await self._stream.send_all(ours.open("stream", "secret"))
                else:
                    await self._stream.send_all(ours.accept())
                    self.received = b"<handshake/>"
        while data := await self._stream.receive_some():
            self.received += data
            for asked in _PING.finditer(data):
                await self._stream.send_all(_PONG % asked.groups())
            for asked in _ASKED.finditer(data):
                await self._stream.send_all(_CLIENT % asked.groups())
            for asked in _PEER_ASKED.finditer(data):
                await self._stream.send_all(_peer_answer(*asked.groups()))

    @property
    def descriptor(self) -> int:
        """The number of its socket."""
        return self._stream.socket.fileno()

    async def send(self, data: str) -> None:
        """Send stanzas."""
        self.received = b""
        await self._stream.send_all(data.encode())


_ASKED: Final = re.compile(
    rb"<iq from='([^']*)' to='(juliet@localhost[^']*)' type='get' id='([^']*)'>"
    rb"<query xmlns='http://jabber.org/protocol/disco#info'"
)
_PING: Final = re.compile(
    rb"<iq from='([^']*)' to='([^']*)' type='get' id='([^']*)'><ping xmlns='urn:xmpp:ping'/>"
)
_PONG: Final = b"<iq to='%s' from='%s' type='result' id='%s'/>"
_CLIENT: Final = (
    b"<iq to='%s' from='%s' type='result' id='%s'>"
    b"<query xmlns='http://jabber.org/protocol/disco#info'>"
    b"<identity category='client' type='phone'/></query></iq>"
)
_PEER_ASKED: Final = re.compile(
    rb"<iq from='([^']*)' to='(agent.b.localhost)' type='[sg]et' id='([^']*)'>(.*?)</iq>"
)
_PEER_SKILL: Final = (
    "<skill name='{name}'><annotations read-only='true' destructive='false'/>"
    "<schema for='input' type='application/schema+json'>"
    '{{"type":"object","properties":{{"text":{{"type":"string"}}}}}}</schema></skill>'
)


def _peer_answer(from_: bytes, to: bytes, id_: bytes, asked: bytes) -> bytes:
    """Return what the other agent answers."""
    kind, answer = "result", ""
    if b"<execute " in asked:
        skill = "note" if b"skill='note'" in asked else "echo"
        answer = (
            f"<result xmlns='urn:fluux:agent:0#execute' skill='{skill}' is-error='false'>"
            "<output name='output' type='text/plain'>tide</output></result>"
        )
    elif b"urn:fluux:agent:0#skills'" in asked and b"<pubsub" not in asked:
        skills = "".join(_PEER_SKILL.format(name=name) for name in ("echo", "note"))
        answer = f"<query xmlns='urn:fluux:agent:0#skills' version='1' ttl='86400'>{skills}</query>"
    else:
        kind = "error"
        answer = (
            "<error type='cancel'><item-not-found xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/>"
            "</error>"
        )
    head = f"<iq from='{to.decode()}' to='{from_.decode()}' id='{id_.decode()}' type='{kind}'>"
    return f"{head}{answer}</iq>".encode()


_EXECUTE: Final = (
    "<iq id='{id}' type='set' to='agent.localhost' from='juliet@localhost/phone'>"
    "<execute xmlns='urn:fluux:agent:0#execute' skill='{skill}'{mode}>"
    "<param name='text'>tide</param></execute></iq>"
)
_FOR_PEER: Final = (
    "<iq id='{id}' type='set' to='agent.localhost' from='agent.b.localhost'>"
    "<execute xmlns='urn:fluux:agent:0#execute' skill='echo' request='{id}'>"
    "<param name='text'>tide</param>"
    "<delegation xmlns='urn:fluux:agent:0#delegation' origin='romeo@b.localhost' max-hops='4'"
    " trace='00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'>"
    "<via>agent.b.localhost</via></delegation></execute></iq>"
)
_CHAT: Final = (
    "<message id='{id}' type='chat' to='assistant@agent.localhost' from='juliet@localhost/phone'>"
    "<body>When is the tide high?</body></message>"
)


class Counted:
    """A running service, with one method for each path."""

    def __init__(self, clock: StoppedClock, counts: Counts, server: Server, *, hops: bool) -> None:
        from component.features.schedules.runner import ScheduleRunner

        self._clock = clock
        self._counts = counts
        self.server = server
        self._hops = hops
        self._runner = next(one for one in gc.get_objects() if isinstance(one, ScheduleRunner))
        self._number = 0

    async def rest(self, seconds: float = 1.0) -> None:
        """Let background work take place."""
        for _ in range(3):
            await wait_all_tasks_blocked(_CUSHION_S)
            self._clock.move(seconds)
            await anyio.lowlevel.checkpoint()
        await wait_all_tasks_blocked(_CUSHION_S)

    async def once(self, path: str) -> None:
        """Serve one request, and check the answer."""
        self._number += 1
        send, expected = {
            "inline": (self._inline, b">tide</output>"),
            "durable": (self._durable, b"state='completed'"),
            "chat": (self._chat, b"The tide is high at noon."),
            "firing": (self._firing, b"It is time."),
            "delegated": (self._delegated, b">tide</output>"),
            "delegated_durable": (self._delegated_durable, b"state='completed'"),
            "for_peer": (self._for_peer, b">tide</output>"),
        }[path]
        if path == "firing":  # another one is due, as soon as the service looks
            self._clock.suspend(1800)
        with self._counts.counting(hops=self._hops):
            await send()
            await wait_all_tasks_blocked(_CUSHION_S)
        if expected not in self.server.received:
            await self.rest()
        assert expected in self.server.received, f"{path}: {self.server.received!r}"

    async def _inline(self) -> None:
        await self.server.send(_EXECUTE.format(id=f"i{self._number}", skill="echo", mode=""))

    async def _durable(self) -> None:
        iq = _EXECUTE.format(id=f"d{self._number}", skill="steps", mode=" mode='async'")
        await self.server.send(iq)

    async def _delegated(self) -> None:
        await self.server.send(_EXECUTE.format(id=f"e{self._number}", skill="b.echo", mode=""))

    async def _delegated_durable(self) -> None:
        iq = _EXECUTE.format(id=f"f{self._number}", skill="b.note", mode=" mode='async'")
        await self.server.send(iq)

    async def _for_peer(self) -> None:
        await self.server.send(_FOR_PEER.format(id=f"g{self._number:030}"))

    async def _chat(self) -> None:
        await self.server.send(_CHAT.format(id=f"c{self._number}"))

    async def _firing(self) -> None:
        self.server.received = b""
        self._runner.wake()


async def _repeated(counted: Counted, path: str) -> None:
    """Serve requests between two marks."""
    _mark(f"{MARK}/{path}/{counted.server.descriptor}")
    for _ in range(REPEATED):
        await counted.once(path)
    _mark(f"{MARK}/{path}/{counted.server.descriptor}")


def _mark(name: str) -> None:
    """Make a system call that strace shows, and let callgrind dump its counter."""
    os.access(name, os.F_OK)
    if "CALLGRIND" in os.environ:
        command = ["callgrind_control", f"--dump={name}", str(os.getpid())]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


async def _serve(
    clock: StoppedClock, counts: Counts, work: Callable[[Counted], Awaitable[None]], hops: bool
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listener.socket.getsockname()[1]
        config = Path(directory) / "agent.toml"
        config.write_text(_SETTINGS.format(port=port, directory=directory))
        server = Server(listener)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.run)
            service = _service(config, counts)
            nursery.start_soon(service.run)
            await service.established.wait()
            counted = Counted(clock, counts, server, hops=hops)
            await counted.rest()
            await work(counted)
            nursery.cancel_scope.cancel()


def _service(config: Path, counts: Counts) -> Any:
    from component.app.process import make_service
    from component.cli.frame import load_settings
    from component.models.building import Models
    from component.skills import Context, skill

    @skill(name="steps", durable=True, destructive=False)
    async def steps(text: str, context: Context) -> str:
        """Do one step with effects."""

        async def work(key: str) -> str:
            return text

        return await context.step("one", work, str)

    model = ScriptedModel(counts)
    Models.get = lambda *_args, **_kwargs: model  # type: ignore[method-assign]
    service = make_service(load_settings(config))
    service.catalog.registry.add(steps)
    return service


def main() -> None:
    """Print the counts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--show", choices=PATHS)
    parser.add_argument("--repeat", action="store_true")
    asked = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "benchmarks.counted", *sys.argv[1:]])
    from component import logs

    logs.configure("warning", "human")
    clock, counts = StoppedClock(), Counts()
    found: dict[str, dict[str, int]] = {}

    async def work(counted: Counted) -> None:
        own = [name for name in sys.modules if name.partition(".")[0] in _OWN]
        found["start"] = {"modules": len(own)}
        for path in PATHS if asked.show is None else (asked.show,):
            for _ in range(_WARM_UP):
                await counted.once(path)
                await counted.rest()
            if asked.repeat:
                await _repeated(counted, path)
                continue
            await counted.once(path)
            found[path] = counts.as_dict()
            if asked.show is not None:
                for (caller, callee), times in counts.hops.most_common():
                    print(f"{times:5}  {caller} -> {callee}")
            await counted.rest()

    vars(scheduler).update(_ALLOW_DETERMINISTIC_SCHEDULING=True, _r=random.Random(0))
    trio.run(_serve, clock, counts, work, not asked.repeat, clock=clock)
    if not (asked.show or asked.repeat):
        print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
