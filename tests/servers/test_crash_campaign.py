"""Three instances on one PostgreSQL under load, while things fail at random points.

Instances are killed with -9, stopped for shorter and longer than it takes to be evicted, and rolled
to another release with other skills; PostgreSQL crashes and restarts. Meanwhile callers ask for
steps, branches, child tasks, sleeps, a named queue and retries, answer questions and cancel.

Then: all that was acknowledged is there and ended once; no step on record ran again, and none with
effects that was interrupted, unless its skill may repeat it; nothing was stuck for longer than 30
seconds while an instance was idle (in a thorough run); and no slot is lost.

A run of the gate has a few kills and short stops, always the same ones; `make thorough` has 1,000
points of all kinds. CRASH_POINTS says how many points, TEST_SEED which ones, CRASH_FIRST where to
begin: what a failure prints repeats it.
"""

import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.profiles import SEED, THOROUGH
from tests.servers import campaign, campaign_checks
from tests.servers.campaign import ROUND, Callers, Crowd, Fleet
from tests.servers.campaign_watch import STUCK_S, Watcher
from tests.servers.postgres import Databases, Postgres

pytestmark = [pytest.mark.servers]

POINTS = int(os.environ.get("CRASH_POINTS", "1000" if THOROUGH else "3"))
FIRST = int(os.environ.get("CRASH_FIRST", "0"))
SETTLED_S = 90.0


@pytest.fixture(scope="module")
def postgres(request: pytest.FixtureRequest) -> Iterator[Databases]:
    """One that the rounds of a thorough run crash and restart; others leave it alone."""
    if not THOROUGH:
        yield request.getfixturevalue("postgres_server")
        return
    with Postgres() as server:
        yield server


@pytest.mark.parametrize("first", range(FIRST, FIRST + POINTS, ROUND))
def test_failures_at_random_points(first: int, postgres: Databases, tmp_path: Path) -> None:
    seed = SEED
    count = min(ROUND, FIRST + POINTS - first)
    print(
        f"repeat with: TEST_SEED={seed} CRASH_FIRST={first} CRASH_POINTS={count}"
        " pytest tests/servers/test_crash_campaign.py"
    )
    chance = random.Random(f"{seed}/load {first}")
    with ExitStack() as stack:
        server = stack.enter_context(Callers())
        fleet = Fleet(server, tmp_path, postgres.new_database())
        stack.callback(fleet.close)
        crowd = Crowd(server, f"r{first}", chance, fleet)
        watcher = Watcher(fleet)
        for number, one in enumerate(fleet.instances):
            fleet.start(one, "new" if number == 2 else "old")
        server.link(len(fleet.instances) - 1)
        began = time.monotonic()
        threads = [threading.Thread(target=run) for run in (crowd.keep_asking, watcher.run)]
        stack.callback(lambda: [thread.join() for thread in threads])
        stack.callback(watcher.stop.set)
        stack.callback(crowd.stop.set)
        for thread in threads:
            thread.start()
        for number in range(first, first + count):
            point = campaign.point(seed, number, campaign.DECK if THOROUGH else campaign.SHORT)
            until = time.monotonic() + point.after_s
            while time.monotonic() < until:
                fleet.tick()
                time.sleep(0.01)  # the moment is what is tried
            moment = time.monotonic() - began
            print(f"{moment:6.2f} s: {point} {fleet.hit(point, postgres)}", flush=True)
        fleet.all_up()
        fleet.await_all()
        if THOROUGH and first // ROUND % 2 == 0:
            # Once more, with others that have been idle for as long as it takes to find it gone.
            crowd.stop.set()
            threads[0].join()
            lost = fleet.lose(crowd.ask_for_long_work(), chance)
            print(f"{time.monotonic() - began:6.2f} s: {lost}", flush=True)
        crowd.stop.set()
        threads[0].join()
        fleet.await_all()
        settle(crowd, fleet)
        watcher.stop.set()
        seconds = time.monotonic() - began
        ends = campaign_checks.check(crowd, fleet, chance)
        campaign_checks.fill_slots(fleet, server, tmp_path / "gate", f"h{first}")
        print(
            f"{count} points in {seconds:.0f} s, {len(crowd.asked)} requests, {dict(ends)}, stuck"
            f" for {watcher.longest:.1f} s at most beside an idle instance: {watcher.worst};"
            f" {watcher.longest_at_all:.1f} s with or without one"
        )
        assert watcher.samples > 0
        # A figure of the machine as well, so not one of the gate.
        assert not THOROUGH or watcher.longest < STUCK_S, watcher.worst
        assert watcher.most_in_lane <= campaign.LANE
        assert ends["completed"] > len(crowd.asked) / 2


def settle(crowd: Crowd, fleet: Fleet) -> None:
    """Wait until everything that was asked for has ended, answering what is asked."""
    give_up = time.monotonic() + SETTLED_S
    crowd.settle(crowd.server.links[0])
    with campaign.connected(fleet.url) as database:
        while True:
            open_ = database.execute(
                "SELECT id, skill, state, owner, waits, not_before, attempts FROM tasks WHERE state"
                " NOT IN ('completed', 'failed', 'rejected', 'cancelled')"
            ).fetchall()
            if not open_:
                return
            assert time.monotonic() < give_up, f"these do not end: {open_}"
            for _ in range(20):
                crowd.answer_one()
            time.sleep(0.2)  # between two looks
