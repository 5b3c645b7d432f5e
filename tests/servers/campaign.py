"""Three instances on one PostgreSQL under load, and points of failure: see `test_crash_campaign`.

All that is random comes from a seed and the number of the point, so a round can be repeated. What
the operating system does in between is not the same again.
"""

import contextlib
import itertools
import random
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final, Literal
from xml.etree import ElementTree as ET

import msgspec
import psycopg

from tests.servers import crashing
from tests.servers.agent_process import AgentProcess
from tests.servers.clients import Element
from tests.servers.crash_skills import GATE, lines
from tests.servers.crashing import NEWER, SKILLS, TASK, answer_of
from tests.servers.dealer import HOME, Dealer, Gone, Link
from tests.servers.postgres import Databases, Postgres
from tests.servers.talk import execute, output

INSTANCES: Final = 3
SLOTS: Final = 6
LANE: Final = 2
"""Tasks of the named queue that run at once."""
_COMMON: Final = Path(__file__).with_name("campaign_skills.py")
_RELEASES: Final = {"old": [str(_COMMON), str(SKILLS)], "new": [str(_COMMON), str(NEWER)]}
ONLY: Final = {"crash.plain": "old", "crash.thread": "old", "crash.newer": "new"}
_BACKENDS: Final = ("trio", "asyncio", "trio")
_KINDS: Final = (
    *("camp.steps", "camp.repeatable", "camp.idempotent", "camp.branches", "camp.plain"),
    *("camp.sleeper", "camp.queued", "camp.retried", "camp.asks", "camp.family", "camp.steps"),
    *("crash.gate", "crash.plain", "crash.thread", "crash.newer"),
)
_AUTO: Final = {"camp.steps", "camp.plain", "camp.asks"}
REPEATABLE: Final = {"camp.repeatable", "camp.idempotent"}
OPEN: Final = "('accepted', 'running', 'input-required', 'cancelling')"

Kind = Literal["kill", "kill-long", "pause", "pause-long", "roll", "crash-db", "restart-db"]
DECK: Final[Sequence[Kind]] = (
    *(("kill",) * 7),
    *(("kill-long",) * 2),
    *(("pause",) * 5),
    *(("pause-long",) * 2),
    *(("roll",) * 2),
    *("crash-db", "restart-db"),
)
"""The kinds of the points of one round, in any order."""
ROUND: Final = len(DECK)
SHORT: Final[Sequence[Kind]] = ("kill", "pause", "roll")
"""Those of a short round, after which nobody has been away for long enough to be evicted."""


class Point(msgspec.Struct, frozen=True):
    """A failure: of what kind, how long after the last one, of which instance, for how long."""

    number: int
    kind: Kind
    after_s: float
    which: int
    seconds: float
    release: str


def point(seed: int, number: int, kinds: Sequence[Kind] = DECK) -> Point:
    """The point of that number."""
    deck = list(kinds)
    random.Random(f"{seed}/deck {number // len(deck)}").shuffle(deck)
    kind, chance = deck[number % len(deck)], random.Random(f"{seed}/{number}")
    spans = {"kill": (0.0, 1.5), "pause": (0.1, 5.0)}
    return Point(
        number,
        kind,
        round(chance.uniform(0.05, 1.2), 3),
        chance.randrange(INSTANCES),
        round(chance.uniform(*spans.get(kind, (13.0, 18.0))), 3),
        chance.choice(("old", "new")),
    )


class Request(crashing.Asked, kw_only=True, frozen=True):
    """One request of the campaign."""

    @property
    def payload(self) -> str:
        """The request, the same whenever it is sent again."""
        attributes = f"mode='{self.mode}' request='{self.label}'"
        if self.skill == "crash.gate":
            repeat = "true" if self.count > 1 else "false"
            return execute(self.skill, attributes=attributes, label=self.label, may_repeat=repeat)
        return super().payload


class Callers(Dealer):
    """Takes note of the questions that tasks ask."""

    def __init__(self) -> None:
        super().__init__()
        self.questions: dict[str, Element] = {}

    def _take_message(self, message: Element) -> None:
        told = message.find("{*}task")
        asked = None if told is None else told.find("{*}input")
        if told is not None and asked is not None:
            self.questions[told.get("id", "")] = asked
        super()._take_message(message)

    @property
    def links(self) -> list[Link]:
        """Connections that are open."""
        return [link for link in self._links if link.open]


class Crowd(crashing.Crowd):
    """Callers that ask for everything the campaign has, answer, and cancel."""

    server: Callers

    def __init__(self, server: Callers, name: str, chance: random.Random, fleet: "Fleet") -> None:
        super().__init__(server, name, chance)
        self.answered: dict[str, list[str]] = defaultdict(list)
        """The words that were given, by task."""
        self.taken: dict[str, str] = {}
        """The word whose answer was acknowledged, by task."""
        self.cancelled: set[str] = set()
        self.unexplained: dict[str, str] = {}
        """Errors without a condition of the protocol, by label."""
        self.stop = threading.Event()
        self._fleet = fleet
        self._words = itertools.count()
        self._counted = itertools.count()

    def one(self) -> Request:
        """A new request."""
        number, chance = next(self._counted), self._chance
        skill = _KINDS[number % len(_KINDS)]
        made = Request(
            label=f"{self._name}-{number}",
            who=f"u{number % 5}@{HOME}/{self._name}",
            skill=skill,
            mode=chance.choice(("async", "auto")) if skill in _AUTO else "async",
            count=chance.randint(1, 3),
            pause_ms=chance.choice((0, 1, 5, 20, 60, 200, 600)),
        )
        self.asked.append(made)
        return made

    def ask_for_long_work(self) -> list[str]:
        """Ask for steps that take seconds, some of which may run again; return the labels."""
        made = [
            msgspec.structs.replace(self.one(), skill=skill, mode="async", count=3, pause_ms=2_000)
            for skill in ("camp.steps", "camp.repeatable") * 3
        ]
        self.asked[-len(made) :] = made
        for asked in made:
            self.send(None, asked)
        return [asked.label for asked in made]

    def send(self, link: Link | None, asked: crashing.Asked) -> None:
        """Ask an instance that has the skill; nothing is sent while there is none."""
        link = self._fleet.link_for(asked.skill, self._chance)
        if link is not None:
            super().send(link, asked)

    def _note(self, asked: crashing.Asked, reply: "Future[Element]") -> None:
        if not isinstance(reply.exception(), Gone):
            said = reply.result()
            if said.get("type") == "error" and answer_of(said).error is None:
                self.unexplained[asked.label] = ET.tostring(said, "unicode")
        super()._note(asked, reply)

    def keep_asking(self) -> None:
        """Ask, answer and cancel in bursts, until told to stop."""
        while not self.stop.is_set():
            for _ in range(self._chance.randint(4, 25)):
                if len(self.waiting) < 60 and not self.stop.wait(self._chance.uniform(0, 0.12)):
                    self.send(None, self.one())
                if self._chance.random() < 0.25:
                    self.answer_one()
                if self._chance.random() < 0.06:
                    self.cancel_one()
            self.stop.wait(self._chance.uniform(0, 1.0))

    def answer_one(self) -> None:
        """Answer a question that is open as far as its caller knows."""
        open_ = [
            task
            for task in tuple(self.server.questions)
            if task not in self.taken and task not in self.server.finals
        ]
        link = self._fleet.link_for("", self._chance)
        who = self.owners()
        open_ = [task for task in open_ if task in who]
        if not open_ or link is None:
            return
        task = self._chance.choice(open_)
        asked, word = self.server.questions[task], f"w{next(self._words)}"
        self.answered[task].append(word)
        payload = (
            f"<answer xmlns='{TASK}' task='{task}' input='{asked.get('id')}'"
            f" revision='{asked.get('revision')}'>"
            f'<params type=\'application/json\'>{{"word": "{word}"}}</params></answer>'
        )

        def note(reply: "Future[Element]") -> None:
            if reply.exception() is None and reply.result().get("type") == "result":
                self.taken.setdefault(task, word)

        self.server.start_iq(link, who[task], payload, "set").add_done_callback(note)

    def cancel_one(self) -> None:
        """Cancel a task that has not ended as far as its caller knows."""
        who = self.owners()
        open_ = [task for task in who if task not in self.server.finals]
        link = self._fleet.link_for("", self._chance)
        if open_ and link is not None:
            task = self._chance.choice(open_)
            self.cancelled.add(task)
            payload = f"<cancel xmlns='{TASK}' id='{task}'/>"
            self.server.start_iq(link, who[task], payload, "set")

    def owners(self) -> dict[str, str]:
        """Who asked for each task that was accepted."""
        asked = {one.label: one.who for one in tuple(self.asked)}
        found = tuple(self.answers.items())
        return {answer.task: asked[label] for label, answer in found if answer.task is not None}


class Instance:
    """One service, and whether it is up."""

    def __init__(self, agent: AgentProcess, name: str) -> None:
        self.agent = agent
        self.name = name
        self.release = "old"
        self.state: Literal["up", "stopping", "down", "paused"] = "down"
        self.back = 0.0
        """When it comes back."""
        self.since = 0.0


class Fleet:
    """The instances, and what happens to them."""

    def __init__(self, server: Callers, directory: Path, url: str) -> None:
        self.server = server
        self.url = url
        self._where: dict[Link, str] = {}
        self.instances = []
        for number, backend in enumerate(_BACKENDS):
            home = directory / f"i{number}"
            home.mkdir(parents=True)
            (home / GATE).touch()
            agent = crashing.agent(
                *(server, home),
                postgres=url,
                backend=backend,
                tasks__per_principal=10_000,
                tasks__ended_per_principal=100_000,
                tasks__running_total=SLOTS,
                tasks__running_per_principal=SLOTS,
                tasks__max_attempts=1_000,
                tasks__queues={"lane": {"running": LANE}},
            )
            self.instances.append(Instance(agent, home.name))

    @property
    def directories(self) -> list[Path]:
        """Where the effects are."""
        return [one.agent.directory for one in self.instances]

    def start(self, one: Instance, release: str) -> None:
        """Start an instance; it is not connected yet."""
        one.release = release
        one.agent.set(skills__modules=_RELEASES[release])
        one.agent.start()
        one.state, one.since = "up", time.monotonic()

    def link_for(self, skill: str, chance: random.Random) -> Link | None:
        """A connection of an instance that has the skill, if there is one."""
        links = self.server.links
        for link in links:
            if link not in self._where:
                self._where[link] = ""
                self._ask_where(link)
        only = ONLY.get(skill)
        if only is not None:
            # One that is stopping has the skills of its old release until it has ended.
            there = [one for one in self.instances if one.state != "stopping"]
            names = {one.name for one in there if one.release == only}
            links = [link for link in links if self._where.get(link) in names]
        return chance.choice(links) if links else None

    def _ask_where(self, link: Link) -> None:
        def note(reply: "Future[Element]") -> None:
            with contextlib.suppress(Gone):
                self._where[link] = output(reply.result())

        asked = self.server.start_iq(link, f"who@{HOME}/x", execute("camp.where"), "set")
        asked.add_done_callback(note)

    def tick(self) -> None:
        """Start instances whose time has come, and those that ended without their database."""
        for one in self.instances:
            if one.state in ("up", "stopping") and not one.agent.running:
                one.agent.wait()
                self.start(one, one.release)
            if one.state in ("down", "paused") and time.monotonic() >= one.back:
                if one.state == "paused":
                    one.agent.send(signal.SIGCONT)
                    one.state, one.since = "up", time.monotonic()
                else:
                    self.start(one, one.release)

    def hit(self, point: Point, postgres: Databases) -> str:
        """Let it happen; return a description."""
        if point.kind in ("crash-db", "restart-db"):
            assert isinstance(postgres, Postgres), "the one of the run is left alone"
            postgres.restart("immediate" if point.kind == "crash-db" else "fast")
            return ""
        while not (up := [one for one in self.instances if one.state == "up"]):
            time.sleep(0.02)  # until one of them is back
            self.tick()
        one = up[point.which % len(up)]
        return self._fail(one, point.kind, point.seconds, point.release)

    def _fail(self, one: Instance, kind: Kind, seconds: float, release: str) -> str:
        one.back = time.monotonic() + seconds
        if kind in ("pause", "pause-long"):
            one.agent.send(signal.SIGSTOP)
            one.state = "paused"
        elif kind == "roll":
            one.state = "stopping"
            one.agent.send(signal.SIGTERM)
            one.release = "new" if one.release == "old" else "old"
        else:
            one.agent.kill()
            one.state, one.release = "down", release
        return one.name

    def lose(self, labels: Sequence[str], chance: random.Random) -> str:
        """Kill or stop the instance that has begun one of these, until after it is evicted.

        The others are left in peace.
        """

        def busy() -> list[Instance]:
            found = [(one, lines(one.agent.directory)) for one in self.instances]
            return [one for one, done in found if {label for label, *_ in done} & {*labels}]

        self.server.poll(lambda: bool(busy()), "one of them to begin")
        kind: Kind = chance.choice(("kill-long", "pause-long"))
        one = busy()[0]  # it keeps its release: it may be the only one that has some skill
        return f"{kind} {self._fail(one, kind, 16.0, one.release)}"

    def await_all(self) -> None:
        """Wait until every instance is back and connected."""

        def there() -> bool:
            self.tick()
            up = all(one.state == "up" for one in self.instances)
            return up and len(self.server.links) == INSTANCES

        self.server.poll(there, "all to connect", 60)

    def all_up(self) -> None:
        """Bring every instance back, with both releases among them."""
        for one in self.instances:
            one.back = 0.0
        releases = {one.release for one in self.instances}
        if len(releases) == 1:
            last = self.instances[-1]
            if last.state == "paused":
                self.tick()
            if last.state == "up":
                last.agent.stop()  # as a roll does; it may have begun a moment ago
                last.state = "down"
            last.release = "new" if last.release == "old" else "old"
        self.tick()

    def close(self) -> None:
        """End all of them, and look at their logs."""
        for one in self.instances:
            if one.state == "paused":
                one.agent.send(signal.SIGCONT)
        for one in self.instances:
            one.agent.close()


@contextlib.contextmanager
def connected(url: str) -> "Iterator[psycopg.Connection[Any]]":
    """A connection of the test's own."""
    with psycopg.connect(url, autocommit=True) as database:
        yield database
