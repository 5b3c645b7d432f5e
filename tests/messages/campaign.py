"""Many people write to an agent while everything around it fails.

The service is a process of its own. What it is attached to, the model behind it and its disk are
those of the campaign, which lets each of them fail at random:

- **model**: refuses, breaks off, answers nonsense, or asks for a tool that fails;
- **tool**: raises, says no, or takes its time;
- **disk**: the database is locked for longer than the service waits for it;
- **stream**: the connection is reset, in the middle of a stanza or not;
- **kill**: the process is ended by SIGKILL and started again.

People do what clients do: each message has an origin id and asks for a receipt, and is sent again
on the next connection until its receipt has come. Each message is in a thread of its own, so that
what comes back can be told. For every message there must be one answer: what the model said, a
sentence that names a failure, or an error. The same stanza may be sent twice, under one id.
"""

import json
import random
import sqlite3
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Final
from xml.sax.saxutils import escape

import anyio
from anyio import to_thread

from component.agent import sentences
from tests.component.link.connection.acceptor import DOMAIN, SECRET, Acceptor, Link
from tests.component.models.answers import Answer, Break, Calls, Garbage, Refuse, Text
from tests.component.models.endpoint import Endpoint, Request, serving
from tests.servers.agent_process import AgentProcess
from xep.receipts import Received
from xep.stanza import Incoming

AGENT: Final = f"assistant@{DOMAIN}"
PEOPLE: Final = 40
AT_ONCE: Final = 4
"""Messages that a person has sent and that are not answered yet."""
PROMISE: Final = sentences.NO_DISK
"""A sentence that is not an answer, because it says that one is to come."""
SETTLED_S: Final = 120.0
"""Seconds after the last fault within which everything has to be answered; a bound, no target."""

SKILLS: Final = '''
from pathlib import Path
import anyio
from component.skills import SkillError, skill

@skill(destructive=False, open_world=False)
async def work(run: str) -> str:
    """Do some work once."""
    with Path("effects").open("a") as file:
        file.write(f"{run}\\n")
    match int(run[1:]) % 7:
        case 0:
            raise SkillError(f"{run} is not possible.")
        case 1:
            raise ValueError("a fault of the skill")
        case 2:
            await anyio.sleep(0.05)
    return f"{run} is done."
'''

CONFIGURATION: Final = f"""
[server]
host = "127.0.0.1"
component_domain = "{DOMAIN}"
component_secret = "${{AGENT_SECRET}}"
reconnect_min_s = 0.05
reconnect_max_s = 0.2

[agent]
allowed_domains = ["people.test"]

[skills]
modules = ["./own.py"]

[llm]
provider = "openai"
model = "scripted"
api_key = "sk-scripted"
retries = 1

[session]
history_tokens = 400

[loop]
turns_total = 32

[storage]
path = "data"
"""


@dataclass
class Sent:
    """A message and what has come back.

    `answers` are the ids of the stanzas that answer it, with what they say.
    """

    token: str
    person: int
    text: str
    received: bool = False
    answers: dict[str, str] = field(default_factory=dict)

    @property
    def stanza(self) -> str:
        return (
            f"<message type='chat' id='{self.token}' from='p{self.person}@people.test/phone'"
            f" to='{AGENT}'><body>{escape(self.text)}</body><thread>{self.token}</thread>"
            f"<origin-id xmlns='urn:xmpp:sid:0' id='{self.token}'/>"
            "<request xmlns='urn:xmpp:receipts'/></message>"
        )


class ModelWithFaults:
    """Answers each request by the token in its last message; every fourth fails."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.faults: Counter[str] = Counter()
        self.calm = False

    def __call__(self, request: Request) -> Answer:
        last = request.messages[-1]
        said = last.get("content")
        text = said if isinstance(said, str) else json.dumps(said)
        token = next((word for word in text.replace('"', " ").split() if _is_token(word)), "m?")
        fault = self._fault()
        if fault is not None:
            return fault
        if last["role"] == "user" and "work" in text.split():
            return Calls(("work", {"run": token}))
        return Text(f"Answer to {token}.")

    def _fault(self) -> Answer | None:
        kind = self._random.randrange(20)
        if self.calm or kind > 4:
            return None
        name, answer = (
            ("refused", Refuse(500)),
            ("busy", Refuse(429)),
            ("broken", Break()),
            ("broken off", Break(2)),
            ("garbage", Garbage(b"<html>oops</html>", "text/html")),
        )[kind]
        self.faults[f"model {name}"] += 1
        return answer


def _is_token(word: str) -> bool:
    return len(word) > 1 and word[0] == "m" and word[1:].rstrip(".,").isdigit()


class Campaign:
    """One run.

    Args:
        directory: of the service.
        messages: how many are sent.
        seed: of everything that is left to chance.

    Attributes:
        sent: all messages.
        faults: how often what has failed.
    """

    def __init__(self, directory: Path, messages: int, seed: int) -> None:
        self.directory = directory
        self.sent: dict[str, Sent] = {}
        self.faults: Counter[str] = Counter()
        self._count = messages
        self._open: list[list[Sent]] = [[] for _ in range(PEOPLE)]
        self._random = random.Random(seed)
        self._seed = seed
        self._link: Link | None = None
        self._changed = anyio.Event()
        self._least_between = min(20, messages // 6)
        self._most_between = max(self._least_between, min(199, messages // 5 - 1))
        self._fault_at = 0
        self._over = False
        self._writing = anyio.Lock()

    async def run(self) -> None:
        """Play it, to its end."""
        (self.directory / "own.py").write_text(SKILLS)
        (self.directory / "effects").touch()
        model = ModelWithFaults(self._seed)
        with Acceptor() as acceptor:
            async with serving() as endpoint, anyio.create_task_group() as group:
                endpoint.otherwise = model
                with self._service(acceptor, endpoint):
                    group.start_soon(self._serve, acceptor)
                    group.start_soon(self._forget_requests, endpoint)
                    group.start_soon(self._fail)
                    await self._write_all()
                    self._over = model.calm = True
                    with anyio.fail_after(SETTLED_S):
                        await self._until(lambda: not self.unanswered)
                    group.cancel_scope.cancel()
        self.faults += model.faults

    @contextmanager
    def _service(self, acceptor: Acceptor, endpoint: Endpoint) -> Iterator[None]:
        self._process = AgentProcess(
            _Attached(),
            self.directory,
            toml=CONFIGURATION,
            server__port=acceptor.port,
            llm__base_url=endpoint.url,
            log__level="warning",
        )
        with self._process:
            yield

    # People.

    async def _write_all(self) -> None:
        for number in range(self._count):
            person = self._random.randrange(PEOPLE)

            await self._until(lambda person=person: len(self._of(person)) < AT_ONCE)
            # A fault that takes long is not left behind, so that even a short campaign has each.
            await self._until(lambda: len(self.sent) < self._fault_at + self._most_between)
            token = f"m{number}"
            what = "do the work" if self._random.random() < 0.3 else "say something"
            one = Sent(token, person, f"Please {what} about {token}")
            self.sent[token] = one
            self._open[person].append(one)
            self._change()
            await self._send(one)

    def _of(self, person: int) -> list[Sent]:
        found = self._open[person]
        found[:] = [one for one in found if not one.answers]
        return found

    @property
    def unanswered(self) -> list[Sent]:
        """Messages to which nothing was said."""
        return [one for person in range(PEOPLE) for one in self._of(person)]

    @property
    def answered_twice(self) -> list[Sent]:
        """Messages that have several answers."""
        return [one for one in self.sent.values() if len(one.answers) > 1]

    @property
    def done_twice(self) -> list[str]:
        """Work that a skill was asked for once and has done several times."""
        runs = Counter((self.directory / "effects").read_text().split())
        return [run for run, count in runs.items() if count > 1]

    async def _send(self, one: Sent) -> None:
        link = self._link
        if link is None:
            return  # the next connection takes it along
        with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError, ValueError):
            async with self._writing:
                await link.send(one.stanza)

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self._changed.wait()

    def _change(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    # The server.

    async def _serve(self, acceptor: Acceptor) -> None:
        while True:
            with suppress(EOFError, OSError, AssertionError, anyio.ClosedResourceError):
                await acceptor.component()
                (link,) = acceptor.links
                self._link = link
                for one in list(self.sent.values()):
                    if not one.received and not one.answers:
                        await self._send(one)
                await self._listen(link)
            self._link = None
            for link in acceptor.links:
                link.close()
            acceptor.links.clear()

    async def _listen(self, link: Link) -> None:
        while True:
            stanza = await link.stanza()
            if stanza.kind == "iq" and stanza.type in ("get", "set"):
                back = f"type='error' id='{stanza.id}' to='{stanza.sender}' from='{stanza.to}'"
                async with self._writing:
                    with suppress(OSError):
                        await link.send(
                            f"<iq {back}><error type='cancel'><service-unavailable"
                            " xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error></iq>"
                        )
            elif stanza.kind == "message":
                self._hear(stanza)

    def _hear(self, stanza: Incoming) -> None:
        received = {child.id for child in stanza.payloads(Received)}
        for token in received & self.sent.keys():
            self.sent[token].received = True
        named = stanza.id if stanza.type == "error" else stanza.text_of("thread")
        one = self.sent.get(named or "")
        body = stanza.text_of("body")
        if body is not None and PROMISE in body:
            return  # the answer is still to come
        if one is not None and (body or stanza.type == "error"):
            one.answers[stanza.id or ""] = body or "an error"
            one.received = True
        self._change()

    @staticmethod
    async def _forget_requests(endpoint: Endpoint) -> None:
        while True:
            await anyio.sleep(1)
            endpoint.requests.clear()

    # Faults.

    async def _fail(self) -> None:
        """Let something fail after every some messages."""
        faults = (self._reset, self._cut_in_a_stanza, self._kill, self._lock_disk)
        coming: list[Callable[[], Awaitable[None]]] = []
        while not self._over:
            self._fault_at += self._random.randrange(self._least_between, self._most_between + 1)
            self._change()
            await self._until(lambda: len(self.sent) >= self._fault_at or self._over)
            if not self._over:
                coming = coming or self._random.sample(faults, len(faults))
                await coming.pop()()

    async def _connected(self) -> None:
        await self._until(lambda: self._link is not None or self._over)

    async def _reset(self) -> None:
        await self._connected()
        if self._link is not None:
            self.faults["stream reset"] += 1
            async with self._nothing_on_its_way():
                link, self._link = self._link, None
                if link is not None and link._socket.fileno() != -1:
                    anyio.notify_closing(link._socket)  # another task reads it
                    link.reset()

    async def _cut_in_a_stanza(self) -> None:
        await self._connected()
        link = self._link
        if link is not None:
            self.faults["stream cut in a stanza"] += 1
            async with self._writing:
                with suppress(OSError):
                    await link.send(f"<message type='chat' to='{AGENT}' from='p0@people")
                    link.end()
                self._link = None  # what the service still writes is read to its end

    @asynccontextmanager
    async def _nothing_on_its_way(self) -> AsyncIterator[None]:
        """Receive all that the service has sent, and let it send nothing more in this context.

        On XEP-0114 nobody can tell what a server received before it broke the connection. So the
        answers that the service has written must not be lost by the campaign itself.
        """
        with self._process.paused():
            await anyio.wait_all_tasks_blocked()
            yield

    async def _kill(self) -> None:
        self.faults["kill"] += 1
        await to_thread.run_sync(self._process.kill)
        await to_thread.run_sync(self._process.start)

    async def _lock_disk(self) -> None:
        self.faults["disk locked"] += 1

        def lock(seconds: float) -> None:
            with suppress(sqlite3.OperationalError):
                database = sqlite3.connect(self.directory / "data" / "agent.db", timeout=1)
                try:
                    database.execute("BEGIN IMMEDIATE")
                    threading.Event().wait(seconds)
                finally:
                    database.close()

        await to_thread.run_sync(lock, self._random.choice((0.1, 0.5, 6.0)))


class _Attached:
    """As what the service is attached to appears to it."""

    component_domain = DOMAIN
    secret = SECRET
    accounts: ClassVar[dict[str, str]] = {}

    def agent_toml(self) -> str:
        return CONFIGURATION
