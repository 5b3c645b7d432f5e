"""Work that is asked for while the service is killed, and what must be true of it in the end."""

import itertools
import random
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import msgspec

from tests.servers.agent_process import AgentProcess, Attachable
from tests.servers.clients import Element
from tests.servers.crash_skills import lines
from tests.servers.dealer import HOME, TIMEOUT, Dealer, Gone, Link
from tests.servers.talk import FLUUX, application, execute

SKILLS = Path(__file__).with_name("crash_skills.py")
NEWER = Path(__file__).with_name("crash_skills_newer.py")
TASK = f"{FLUUX}#task"
TERMINAL = {"completed", "failed", "rejected", "cancelled"}
SETTINGS: dict[str, Any] = {
    "skills__modules": [str(SKILLS)],
    "policy__confirm": "never",
    "limits__inline_s": 0.4,
    "log__level": "info",
}


class Asked(msgspec.Struct, kw_only=True, frozen=True):
    """One request; its `label` is that of the effects, and its `request`."""

    label: str
    who: str
    skill: str
    mode: str = "async"
    count: int = 3
    pause_ms: int = 10

    @property
    def payload(self) -> str:
        """The request, the same whenever it is sent again."""
        return execute(
            self.skill,
            attributes=f"mode='{self.mode}' request='{self.label}'",
            label=self.label,
            count=self.count,
            pause_ms=self.pause_ms,
        )


class Answer(msgspec.Struct, frozen=True):
    """What came back: a task, or the end of work that needed none."""

    task: str | None
    error: str | None
    refused: bool = False


def answer_of(reply: Element) -> Answer:
    """Read an answer to an execute."""
    if reply.get("type") == "error":
        condition = application(reply)
        name = None if condition is None else condition.tag.rpartition("}")[2]
        return Answer(None, name, refused=name == "retry")
    accepted = reply.find(f"{{{FLUUX}#execute}}accepted")
    return Answer(None if accepted is None else accepted.get("task"), None)


def agent(
    server: Attachable, directory: Path, *, postgres: str | None = None, **settings: object
) -> AgentProcess:
    """A service of the skills, not yet started; close it."""
    where = {} if postgres is None else {"storage__postgres": postgres}
    return AgentProcess(server, directory, **{**SETTINGS, **where, **settings})


def ask(server: Dealer, link: Link, who: str, skill: str, label: str, **params: object) -> str:
    """Ask for a task, and return its id."""
    payload = execute(skill, attributes=f"mode='async' request='{label}'", label=label, **params)
    task = answer_of(server.iq(link, who, payload, "set")).task
    assert task is not None
    return task


def get(server: Dealer, link: Link, who: str, task: str) -> Element:
    """The whole task, as it is now."""
    (found,) = server.iq(link, who, f"<task xmlns='{TASK}' id='{task}'/>")
    assert found.tag == f"{{{TASK}}}task", ET.tostring(found)
    return found


def events(server: Dealer, link: Link, who: str, task: str) -> list[Element]:
    """Every event of the task; there is no hole between them."""
    found: list[Element] = []
    while True:
        since = len(found)
        (page,) = server.iq(link, who, f"<events xmlns='{TASK}' id='{task}' since='{since}'/>")
        assert page.find("{*}gap") is None
        found += page.findall("{*}task")
        revisions = [int(event.get("revision", "")) for event in found]
        assert revisions == list(range(1, len(found) + 1))
        if len(found) == since or len(found) == int(page.get("revision", "")):
            assert len(found) == int(page.get("revision", ""))
            return found


def failure_of(task: Element) -> str | None:
    """The condition with which a task has failed."""
    failure = task.find("{*}failure")
    return None if failure is None else failure[0].tag.rpartition("}")[2]


class Crowd:
    """Callers that ask for ever, each with a request of its own, and never forget one."""

    kinds = (
        *(("crash.steps", "async"), ("crash.steps", "auto")),
        *(("crash.repeatable", "async"), ("crash.idempotent", "async")),
        *(("crash.plain", "async"), ("crash.plain", "auto"), ("crash.thread", "async")),
    )

    def __init__(self, server: Dealer, name: str, chance: random.Random) -> None:
        self.server = server
        self.answers: dict[str, Answer] = {}
        self.asked: list[Asked] = []
        self.waiting: set[str] = set()
        self._name = name
        self._chance = chance
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._answered = threading.Condition(self._lock)

    def one(self) -> Asked:
        """A new request."""
        number = next(self._numbers)
        skill, mode = self.kinds[number % len(self.kinds)]
        made = Asked(
            label=f"{self._name}-{number}",
            who=f"u{number % 5}@{HOME}/{self._name}",
            skill=skill,
            mode=mode,
            count=self._chance.randint(1, 4),
            pause_ms=self._chance.choice((0, 1, 5, 20, 60)),
        )
        self.asked.append(made)
        return made

    def send(self, link: Link, asked: Asked) -> None:
        """Ask, and take note of the answer when it comes, if it does."""
        with self._lock:
            self.waiting.add(asked.label)
        reply = self.server.start_iq(link, asked.who, asked.payload, "set")
        reply.add_done_callback(lambda reply: self._note(asked, reply))

    def load(self, links: Sequence[Link], seconds: float, at_once: int = 12) -> None:
        """Ask for so long, with so many requests on their way, as long as a link is there."""
        stop = threading.Event()
        timer = threading.Timer(seconds, stop.set)
        timer.start()
        while not stop.is_set() and any(link.open for link in links):
            with self._answered:
                self._answered.wait_for(lambda: len(self.waiting) < at_once, 0.05)
                room = at_once - len(self.waiting)
            for _ in range(room):
                self.send(self._chance.choice(links), self.one())
        timer.cancel()

    def settle(self, link: Link, seconds: float = 60) -> None:
        """Ask again for all that was not answered, until all of it is.

        What a dead instance had begun is refused for a while: it may live.
        """
        give_up = time.monotonic() + seconds
        while True:
            with self._answered:
                assert self._answered.wait_for(lambda: not self.waiting, TIMEOUT), self.waiting
            open_ = [asked for asked in self.asked if self._open(asked)]
            if not open_:
                return
            late = [(asked, self.answers.get(asked.label)) for asked in open_]
            assert time.monotonic() < give_up, f"it keeps refusing {late}"
            for asked in open_[:12]:
                self.send(link, asked)
            with self._answered:
                self._answered.wait_for(lambda: not self.waiting, TIMEOUT)
                self._answered.wait(0.1)  # before the next look; nobody tells

    def unanswered(self) -> list[Asked]:
        """What was asked for, and nothing came back."""
        return [asked for asked in self.asked if asked.label not in self.answers]

    def _open(self, asked: Asked) -> bool:
        answer = self.answers.get(asked.label)
        return answer is None or answer.refused

    def _note(self, asked: Asked, reply: "Future[Element]") -> None:
        with self._answered:
            self.waiting.discard(asked.label)
            if not isinstance(reply.exception(), Gone):
                self.answers[asked.label] = answer_of(reply.result())
            self._answered.notify_all()

    # What must be true in the end.

    def check(self, link: Link, directories: Iterable[Path]) -> dict[str, int]:
        """Look at all that was ever asked for. Returns how many ended in which way."""
        ends: dict[str, int] = defaultdict(int)
        for answer in self.answers.values():
            if answer.task is not None:
                self.server.ended(answer.task)
        done = Effects(lines(*directories))
        for asked in self.asked:
            answer = self.answers[asked.label]
            # The same request again: the same answer, and nothing more.
            again = answer_of(self.server.iq(link, asked.who, asked.payload, "set"))
            assert again == answer, f"{asked} got {answer}, then {again}"
            if answer.task is None:
                how = "completed" if answer.error is None else answer.error
            else:
                told = self.server.ended(answer.task)
                task = get(self.server, link, asked.who, answer.task)
                how = failure_of(task) or task.get("state", "")
                assert (told.get("state"), told.get("revision")) == (
                    task.get("state"),
                    task.get("revision"),
                )
                last = events(self.server, link, asked.who, answer.task)[-1]
                assert last.get("state") == task.get("state")
                told_to = self.server.finals[answer.task][0].get("to")
                assert told_to == asked.who.partition("/")[0]
            ends[how] += 1
            done.check(asked, how)
        assert Effects(lines(*directories)).by_label == done.by_label, "a repetition ran again"
        return ends


class Effects:
    """What has been done, by the label of its request."""

    def __init__(self, found: Iterable[tuple[str, str, str, str]]) -> None:
        self.by_label: dict[str, list[tuple[str, str, str]]] = defaultdict(list)
        for label, step, what, key in found:
            self.by_label[label].append((step, what, key))

    def check(self, asked: Asked, how: str) -> None:
        """Whether what was done of one request is what its end says."""
        done = self.by_label.get(asked.label, [])
        names = [f"s{number}" for number in range(asked.count)]
        where = f"{asked} ended as {how}: {done}"
        keys = {step: key for step, _, key in done}
        assert all(keys[step] == key for step, _, key in done), where
        steps = [(step, what) for step, what, _ in done]
        if asked.skill in ("crash.plain", "crash.thread"):
            names = names[:1]
        once = [(name, what) for name in names for what in ("begin", "end")]
        if asked.skill in ("crash.steps", "crash.plain", "crash.thread"):
            assert how in ("completed", "outcome-unknown"), where
            # Each step at most once, in order; all of them if it says that it has completed.
            assert steps == once[: len(steps)], where
            assert how != "completed" or steps == once, where
            return
        assert how == "completed", where
        if asked.skill == "crash.repeatable":
            assert len(set(keys.values())) == len(keys), where
            # Once the next one has begun, a step is on record: it does not come again.
            begun = [step for step, what in steps if what == "begin"]
            assert begun == sorted(begun, key=names.index), where
        assert {step for step, what in steps if what == "end"} == set(names), where
