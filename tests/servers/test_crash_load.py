"""Kill -9 at any moment, under load: nothing is lost, nothing is done twice, nobody is misled."""

import random
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.profiles import SEED, THOROUGH
from tests.servers import crashing
from tests.servers.crashing import Crowd
from tests.servers.dealer import Dealer

pytestmark = [pytest.mark.servers]

KILLS = 40 if THOROUGH else 2


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


def test_whenever_it_is_killed_nothing_is_lost_or_done_twice(
    server: Dealer, tmp_path: Path, postgres: str | None
) -> None:
    chance = random.Random(SEED)
    crowd = Crowd(server, "c", chance)
    agents = [
        crashing.agent(
            *(server, tmp_path / "agent"),
            postgres=postgres,
            backend=backend,
            tasks__per_principal=10_000,
            # One execution may be under way at every kill: it is not what ends the process.
            tasks__max_attempts=1_000,
        )
        for backend in ("trio", "asyncio")
    ]
    with ExitStack() as stack:
        for agent in agents:
            stack.callback(agent.close)
        for life in range(KILLS):
            agent = agents[life % 2].start()
            link = server.link(life)
            # What the last life has left unanswered comes again, among what is new.
            for asked in crowd.unanswered():
                crowd.send(link, asked)
            killer = threading.Timer(chance.uniform(0.05, 1.0 if THOROUGH else 0.4), agent.kill)
            killer.start()
            crowd.load([link], 2)
            killer.join()
            server.wait_gone(link)
        agents[KILLS % 2].start()
        link = server.link(KILLS)
        crowd.settle(link)
        ends = crowd.check(link, [agents[0].directory])
    print(f"after {KILLS} kills: {len(crowd.asked)} asked for, {dict(ends)}")
    assert ends["completed"] > 0
    assert set(ends) <= {"completed", "outcome-unknown"}
