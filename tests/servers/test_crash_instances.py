"""Two services on one PostgreSQL, to which a server deals in turn as ejabberd does: one fails.

Kill -9, and a process that is stopped and goes on later; see `test_crash_campaign` for failures at
random points. What was begun by the one that failed is taken over within `TAKE_OVER_S`.
"""

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.profiles import THOROUGH
from tests.servers import crashing
from tests.servers.agent_process import AgentProcess
from tests.servers.crash_skills import GATE, lines
from tests.servers.crashing import ask, events, failure_of, get
from tests.servers.dealer import HOME, Dealer, Link

pytestmark = [pytest.mark.servers]

TAKE_OVER_S = 30.0
SKILLS = [str(crashing.SKILLS)]
if not THOROUGH:
    SKILLS.append(str(Path(__file__).with_name("quick_leases.py")))
GONE = "took over the tasks of a dead instance"
EVICTED = "other instances have taken over the tasks of this one; it joins again under a new name"


class Pair:
    """Two instances, and what they are asked."""

    def __init__(self, server: Dealer, directory: Path, url: str) -> None:
        self.server = server
        self.agents = [
            crashing.agent(
                *(server, directory / name),
                postgres=url,
                backend=backend,
                tasks__per_principal=10_000,
                skills__modules=SKILLS,
            )
            for name, backend in (("one", "trio"), ("other", "asyncio"))
        ]
        self.links: list[Link] = []

    def start(self, stack: ExitStack) -> None:
        for number, agent in enumerate(self.agents):
            stack.enter_context(agent)
            self.links.append(self.server.link(number))

    @property
    def directories(self) -> list[Path]:
        return [agent.directory for agent in self.agents]

    def open_gates(self) -> None:
        for directory in self.directories:
            (directory / GATE).touch()

    def begin(self, link: Link, name: str) -> dict[str, str]:
        """Tasks that wait for the gate on one of them: one may begin again, the other not."""
        tasks = {
            f"{name}-{what}": ask(
                *(self.server, link, who(name), "crash.gate", f"{name}-{what}"), may_repeat=repeat
            )
            for what, repeat in (("repeated", "true"), ("unknown", "false"))
        }
        self.server.poll(lambda: self.at_the_gate(*tasks), "both of them to begin")
        return tasks

    def at_the_gate(self, *labels: str) -> bool:
        found = {label for label, step, _, _ in lines(*self.directories) if step == "gate"}
        return found >= set(labels)

    def begun(self, label: str) -> list[str]:
        found = lines(*self.directories)
        return [step for one, step, what, _ in found if one == label and what == "begin"]

    def ended_there(self, agent: AgentProcess) -> set[str]:
        """Whose gate has been passed in that process."""
        found = lines(agent.directory)
        return {one for one, step, what, _ in found if (step, what) == ("gate", "end")}

    def state(self, link: Link, name: str, tasks: dict[str, str]) -> list[tuple[str | None, ...]]:
        """All there is to know of the tasks, for comparing it with what there is later."""
        found: list[tuple[str | None, ...]] = []
        for task in tasks.values():
            now = get(self.server, link, who(name), task)
            found.append((*map(now.get, ("state", "revision", "updated")), failure_of(now)))
            happened = events(self.server, link, who(name), task)
            found += [tuple(map(one.get, ("state", "revision", "updated"))) for one in happened]
        return found


def who(name: str) -> str:
    return f"{name}@{HOME}/desk"


@pytest.fixture
def pair(tmp_path: Path, migrated_url: str) -> Iterator[Pair]:
    with Dealer() as server, ExitStack() as stack:
        pair = Pair(server, tmp_path, migrated_url)
        pair.start(stack)
        yield pair


def taken_over(survivor: AgentProcess, since: float, what: str) -> None:
    """Wait until it has taken over, and say after how long."""
    survivor.wait_log(GONE)
    seconds = time.monotonic() - since
    print(f"{what}: taken over after {seconds:.1f} s")
    # A figure of the machine as well, so not one of the gate.
    assert not THOROUGH or seconds < TAKE_OVER_S


@pytest.mark.thorough
def test_one_is_killed_and_comes_back(tmp_path: Path, migrated_url: str) -> None:
    """It goes on with its own at once, and nobody has to be found dead for that."""
    with Dealer() as server, ExitStack() as stack:
        pair = Pair(server, tmp_path, migrated_url)
        agent = pair.agents[0]
        stack.callback(agent.close)
        agent.start()
        tasks = pair.begin(server.link(0), "ann")
        agent.kill()
        (agent.directory / GATE).touch()
        agent.start()
        server.link(1)
        since = time.monotonic()
        assert failure_of(server.ended(tasks["ann-unknown"])) == "outcome-unknown"
        assert server.ended(tasks["ann-repeated"]).get("state") == "completed"
        print(f"both have ended {time.monotonic() - since:.2f} s after it was connected again")
        assert pair.begun("ann-unknown") == ["before", "gate"]
        assert pair.begun("ann-repeated") == ["before", "gate", "gate", "after"]
        assert agent.log(GONE) == []


@pytest.mark.parametrize("which", [0, 1] if THOROUGH else [0])
def test_one_is_stopped_and_goes_on(pair: Pair, which: int) -> None:
    server, paused, awake = pair.server, pair.agents[which], pair.agents[1 - which]
    here, there = pair.links[which], pair.links[1 - which]
    tasks = pair.begin(here, "ann")
    paused.send(signal.SIGSTOP)
    stopped = time.monotonic()
    (awake.directory / GATE).touch()
    taken_over(awake, stopped, "SIGSTOP")
    assert failure_of(server.ended(tasks["ann-unknown"])) == "outcome-unknown"
    assert server.ended(tasks["ann-repeated"]).get("state") == "completed"
    before = pair.state(there, "ann", tasks)

    # It comes to itself inside both steps, may end the effects it was in, and changes nothing.
    (paused.directory / GATE).touch()
    paused.send(signal.SIGCONT)
    paused.wait_log(EVICTED)
    server.poll(lambda: pair.ended_there(paused) == set(tasks), "it to end what it was in")
    # It is one of the two again; what it wanted to write of those comes before this.
    task = ask(server, here, who("bob"), "crash.steps", "bob", count=2, pause_ms=1)
    assert server.ended(task).get("state") == "completed"
    assert pair.state(there, "ann", tasks) == before
    assert pair.state(here, "ann", tasks) == before
    assert [len(server.finals[task]) for task in tasks.values()] == [1, 1]
    assert pair.begun("ann-unknown") == ["before", "gate"]
    assert sorted(pair.begun("ann-repeated")) == ["after", "before", "gate", "gate"]
    assert paused.running
