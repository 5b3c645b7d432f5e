"""Killed, and started again as something else: another directory, another name, a newer release."""

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers import crashing
from tests.servers.clients import Element
from tests.servers.crash_skills import GATE, lines
from tests.servers.crashing import NEWER, ask, events, failure_of, get
from tests.servers.dealer import HOME, Dealer, Link

pytestmark = [pytest.mark.servers]

# One at a time of each principal: what comes behind `first` waits for its turn.
ONE = {"tasks__running_per_principal": 1}
WAITS = (
    "tasks wait for a skill that this instance does not have: start an instance that has it, or"
    " cancel them"
)
PARAMS = {
    "unknown": ("crash.gate", {"may_repeat": "false"}),
    "repeated": ("crash.gate", {"may_repeat": "true"}),
    "once": ("crash.once", {}),
    "waits": ("crash.waits", {}),
    "done": ("crash.steps", {"count": 2, "pause_ms": 0}),
    "first": ("crash.gate", {"may_repeat": "true"}),
    "queued": ("crash.once", {}),
}


@pytest.fixture
def server() -> Iterator[Dealer]:
    with Dealer() as server:
        yield server


@pytest.fixture
def postgres(request: pytest.FixtureRequest, database_kind: str) -> str | None:
    """Where the tasks are; None for the data directory."""
    if database_kind == "sqlite":
        return None
    url: str = request.getfixturevalue("postgres_url")
    return url


def who(label: str) -> str:
    return f"{'first' if label == 'queued' else label}@{HOME}/desk"


def asked(server: Dealer, link: Link, label: str) -> str:
    skill, params = PARAMS[label]
    return ask(server, link, who(label), skill, label, **params)


def begun(server: Dealer, directory: Path) -> dict[str, str]:
    """Tasks in every state of being done, by their labels. Returns once all are there."""
    link = server.link(0)
    tasks = {label: asked(server, link, label) for label in PARAMS}
    server.ended(tasks["done"])
    wanted = set(PARAMS) - {"done", "queued"}
    server.poll(
        lambda: wanted == {label for label, step, _, _ in lines(directory) if step == "gate"},
        "all of them to begin",
    )
    return tasks


def ends(server: Dealer, link: Link, tasks: dict[str, str]) -> dict[str, str]:
    """How each has ended, in a word. The message says what `get` and the last event say."""
    found: dict[str, str] = {}
    for label, task in tasks.items():
        told = server.ended(task)
        now = get(server, link, who(label), task)
        last = events(server, link, who(label), task)[-1]
        for each in (now, last):
            assert (each.get("state"), each.get("revision")) == (
                told.get("state"),
                told.get("revision"),
            )
        found[label] = failure_of(now) or said(now)
    return found


def said(task: Element) -> str:
    output = task.find("{*}result/{*}output")
    assert task.get("state") == "completed"
    assert output is not None
    return output.text or ""


def steps(*directories: Path) -> dict[str, Counter[str]]:
    """How often each step has begun."""
    found = {label: Counter[str]() for label in PARAMS}
    for label, step, what, _ in lines(*directories):
        if what == "begin":
            found[label][step] += 1
    return found


def test_on_another_host_it_goes_on(server: Dealer, tmp_path: Path, postgres: str | None) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    with crashing.agent(server, here, postgres=postgres, **ONE) as first:
        tasks = begun(server, here)
        first.kill()
    there.mkdir()
    if postgres is None:
        shutil.move(here / "data", there / "data")
    (there / GATE).touch()
    with crashing.agent(server, there, postgres=postgres, backend="asyncio", **ONE):
        link = server.link(1)
        assert ends(server, link, tasks) == {
            "unknown": "outcome-unknown",
            "repeated": "release 1 before",
            "once": "outcome-unknown",
            "waits": "gate",
            "done": "2",
            "first": "release 1 before",
            "queued": "gate",
        }
        assert {label: asked(server, link, label) for label in PARAMS} == tasks
    repeated = {"before": 1, "gate": 2, "after": 1}
    assert steps(here, there) == {
        "unknown": {"before": 1, "gate": 1},
        "repeated": repeated,
        "once": {"gate": 1},
        "waits": {"gate": 2},
        "done": {"s0": 1, "s1": 1},
        "first": repeated,
        "queued": {"gate": 1},
    }


def test_a_newer_release_goes_on(server: Dealer, tmp_path: Path, postgres: str | None) -> None:
    here = tmp_path / "agent"
    with crashing.agent(server, here, postgres=postgres, **ONE) as first:
        tasks = begun(server, here)
        first.kill()
    # What is no skill any more had begun, or had not, or may have been done twice. Where instances
    # share a database, one that has the skill may come: it waits for that.
    gone = {"once": "outcome-unknown", "waits": "internal", "queued": "internal"}
    with crashing.agent(
        server, here, postgres=postgres, skills__modules=[str(NEWER)], **ONE
    ) as new:
        link = server.link(1)
        if postgres is not None:
            for skill in ("crash.once", "crash.waits"):
                new.wait_log(WAITS, skill=skill)
            tasks = {label: task for label, task in tasks.items() if label not in gone}
            gone = {}
        assert ends(server, link, tasks) == {
            "unknown": "outcome-unknown",
            # Recorded names are served, new names run.
            "repeated": "release 2: before, new inserted",
            "done": "2",
            "first": "release 2: before, new inserted",
            **gone,
        }
        for label in ("unknown", "repeated", "first"):
            assert asked(server, link, label) == tasks[label]
    repeated = {"before": 1, "gate": 2, "inserted": 1, "after": 1}
    assert steps(here) == {
        "unknown": {"before": 1, "gate": 1},
        "repeated": repeated,
        "once": {"gate": 1},
        "waits": {"gate": 1},
        "done": {"s0": 1, "s1": 1},
        "first": repeated,
        "queued": {},
    }
