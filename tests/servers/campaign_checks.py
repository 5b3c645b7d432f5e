"""What has to hold when everything that was asked for has ended, and whether it does."""

import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import msgspec
import psycopg

from tests.servers import crashing
from tests.servers.campaign import (
    INSTANCES,
    REPEATABLE,
    SLOTS,
    Callers,
    Crowd,
    Fleet,
    connected,
)
from tests.servers.clients import Element
from tests.servers.crash_skills import lines
from tests.servers.crashing import FLUUX, TERMINAL, Answer, answer_of
from tests.servers.dealer import HOME
from tests.servers.talk import execute


class Ended(msgspec.Struct, frozen=True):
    """A task as its row has it."""

    id: str
    parent: str | None
    skill: str
    state: str
    revision: int
    failure: str | None
    result: str | None
    request: str
    ends: int
    events: int
    tries: int

    @property
    def how(self) -> str:
        """How it ended, in a word."""
        if self.failure is None:
            return self.state
        return ET.fromstring(self.failure)[0].tag.rpartition("}")[2]


def ended_tasks(database: "psycopg.Connection[Any]") -> dict[str, Ended]:
    """All tasks. Raises AssertionError if one has not ended, or not once."""
    found = database.execute(
        "SELECT id, parent, skill, state, revision, failure, result, request,"
        " (SELECT count(*) FROM events WHERE task = id AND state IN"
        " ('completed', 'failed', 'rejected', 'cancelled')),"
        " (SELECT count(*) FROM events WHERE task = id), tries FROM tasks"
    ).fetchall()
    tasks = {row[0]: Ended(*row) for row in found}
    for task in tasks.values():
        assert task.state in TERMINAL, f"has not ended: {task}"
        assert task.ends == 1, f"did not end once: {task}"
        assert task.events == task.revision, f"has a hole in its events: {task}"
    return tasks


def check_effects(
    label: str, skill: str, count: int, how: str, by_directory: Sequence[Sequence[tuple[str, ...]]]
) -> None:
    """Whether what was done for one request, in each directory, is what its end says."""
    done = [line for found in by_directory for line in found]
    where = f"{label} ({skill}, {count}) ended as {how}: {by_directory}"
    values: dict[tuple[str, bool], set[str]] = defaultdict(set)
    counts: Counter[tuple[str, str]] = Counter()
    for step, what, value in done:
        values[step, what == "got"].add(value)
        counts[step, what] += 1
    # A step has one idempotency key, and its result never changes once it is on record.
    assert all(len(one) == 1 for one in values.values()), where
    for step in {step for step, *_ in done}:
        gate = skill == "crash.gate" and count > 1 and step == "gate"
        if skill not in REPEATABLE and not gate:
            assert counts[step, "begin"] <= 1 + counts[step, "fail"], f"{step} ran twice: {where}"
            ended = counts[step, "end"] + counts[step, "fail"]
            if how == "cancelled":
                assert counts[step, "begin"] == ended, f"{step} is unknown: {where}"
    if skill != "camp.branches":
        for found in by_directory:
            begun = [step for step, what, _ in found if what == "begin"]
            order = ["before", "inserted", "gate", "s0", "s1", "s2", "after", "flaky"]
            assert begun == sorted(begun, key=order.index), f"out of order: {where}"
    if how == "completed":
        for step in steps_of(skill, count):
            assert counts[step, "end"], f"{step} is missing: {where}"
            assert counts[step, "got"] or skill.startswith("crash.") or skill == "camp.plain", where
        if skill == "camp.retried":
            assert counts["flaky", "fail"] >= 2, where


def steps_of(skill: str, count: int) -> list[str]:
    """The steps of a request that completed."""
    if skill == "crash.gate":
        return ["before", "gate", "after"]
    if skill in ("camp.plain", "crash.plain", "crash.thread"):
        return ["s0"]
    if skill in ("camp.asks", "camp.family"):
        return ["s0", "s1"]
    names = [f"s{number}" for number in range(count)]
    return [*names, "flaky"] if skill == "camp.retried" else names


def check(crowd: Crowd, fleet: Fleet, chance: random.Random) -> Counter[str]:
    """Hold rows, effects and what callers received against each other; return how they ended."""
    server, ends = crowd.server, Counter[str]()
    with connected(fleet.url) as database:
        tasks = ended_tasks(database)
    effects: dict[str, list[list[tuple[str, ...]]]] = defaultdict(lambda: [[], [], []])
    for number, directory in enumerate(fleet.directories):
        for label, *line in lines(directory):
            effects[label][number].append(tuple(line))
    children: dict[str, list[Ended]] = defaultdict(list)
    for task in tasks.values():
        if task.parent is not None:
            children[task.parent].append(task)
    assert not crowd.unexplained
    known = set()
    for asked in crowd.asked:
        answer = crowd.answers[asked.label]
        again = answer_of(_repeat(server, fleet, asked, chance))
        assert again == answer, f"{asked} got {answer}, then {again}"
        if answer.task is None:
            how = answer.error or "completed"
        else:
            known.add(answer.task)
            how = _check_task(crowd, asked, tasks[answer.task])
            _check_children(crowd, asked, tasks[answer.task], children[answer.task], effects)
        allowed = {"completed"} if asked.skill in REPEATABLE else {"completed", "outcome-unknown"}
        if answer.task in crowd.cancelled:
            # An attempt that fails while the task is being cancelled is not followed by another.
            allowed |= {"cancelled"} | ({"internal"} if asked.skill == "camp.retried" else set())
        where = f"{asked} ended as {how}: {tasks.get(answer.task or '')}, {effects[asked.label]}"
        assert how in allowed, where
        check_effects(asked.label, asked.skill, asked.count, how, effects[asked.label])
        ends[how] += 1
    # Nothing ran that nobody asked for.
    stray = [task for task in tasks.values() if task.parent is None and task.id not in known]
    assert not [task for task in stray if not _is_unanswered(task, crowd)], stray
    return ends


def _is_unanswered(task: Ended, crowd: Crowd) -> bool:
    """Whether the request of a task was answered with something else than the task."""
    return any(one.label in task.request for one in crowd.asked)


def _repeat(server: Callers, fleet: Fleet, asked: crashing.Asked, chance: random.Random) -> Element:
    link = fleet.link_for(asked.skill, chance)
    assert link is not None
    return server.iq(link, asked.who, asked.payload, "set")


def _check_task(crowd: Crowd, asked: crashing.Asked, task: Ended) -> str:
    told = crowd.server.ended(task.id)
    tellings = {
        (found.get("state"), found.get("revision"))
        for message in crowd.server.finals[task.id]
        for found in message.findall("{*}task")
    }
    assert tellings == {(task.state, str(task.revision))}, f"{asked}: {task}, told {tellings}"
    assert crowd.server.finals[task.id][0].get("to") == asked.who.partition("/")[0]
    if task.id in crowd.taken and task.state == "completed":
        text = "".join(told.find("{*}result").itertext())  # type: ignore[union-attr]
        assert crowd.taken[task.id] in text, f"{asked}: acknowledged {crowd.taken[task.id]}: {text}"
    return task.how


def _check_children(
    crowd: Crowd,
    asked: crashing.Asked,
    parent: Ended,
    children: Sequence[Ended],
    effects: dict[str, list[list[tuple[str, ...]]]],
) -> None:
    if asked.skill != "camp.family":
        assert not children
        return
    assert len(children) <= asked.count, f"{asked} started {children}"
    if parent.state == "completed":
        assert len(children) == asked.count, f"{asked} started {children}"
    for child in children:
        (label,) = [
            label
            for number in range(asked.count)
            if (label := f"{asked.label}.c{number}") in child.request
        ]
        allowed = {"completed", "outcome-unknown"}
        if parent.state != "completed" or child.id in crowd.cancelled:
            allowed.add("cancelled")
        assert child.how in allowed, f"{child}, child of {parent}"
        check_effects(label, child.skill, 2, child.how, effects[label])


def fill_slots(fleet: Fleet, server: Callers, gate: Path, name: str) -> None:
    """See that every instance takes its full number of tasks, and no more; then let them end."""
    tasks = []
    links = server.links
    for number in range(INSTANCES * SLOTS):
        payload = execute(
            "camp.hold",
            attributes=f"mode='async' request='{name}-{number}'",
            label=f"{name}-{number}",
            count=1,
            pause_ms=0,
        )
        link = links[number % len(links)]
        answer: Answer = answer_of(server.iq(link, f"h{number % 4}@{HOME}/x", payload, "set"))
        assert answer.task is not None, f"{FLUUX}: a task was expected"
        tasks.append(answer.task)
    with connected(fleet.url) as database:

        def taken() -> list[int]:
            rows = database.execute(
                "SELECT count(t.id) FROM instances i LEFT JOIN tasks t ON t.owner = i.id"
                " AND t.state = 'running' GROUP BY i.id"
            )
            return [count for (count,) in rows.fetchall()]

        try:
            server.poll(lambda: taken() == [SLOTS] * INSTANCES, "all slots to be taken", 20)
        except TimeoutError:
            raise AssertionError(f"slots were lost: {taken()} of {SLOTS} each are taken") from None
    gate.touch()
    for task in tasks:
        assert server.ended(task).get("state") == "completed"
