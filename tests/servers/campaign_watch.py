"""Whether a task is stuck while an instance is idle, by looking at the rows all the time."""

import contextlib
import threading
import time
from collections import Counter
from typing import Any

import psycopg

from tests.servers.campaign import LANE, ONLY, OPEN, SLOTS, Fleet, connected

STUCK_S = 30.0


class Watcher:
    """Looks at the rows all the time: is something stuck while an instance has nothing to do?

    A task is stuck while it could run or is said to run, and nothing of it changes. An instance is
    idle while it beats and has slots. What counts is for how long both held without a break.
    """

    def __init__(self, fleet: Fleet) -> None:
        self.longest = self.longest_at_all = 0.0
        self.worst = ""
        self.samples = 0
        self.most_in_lane = 0
        self.stop = threading.Event()
        self._fleet = fleet
        self._tasks: dict[str, tuple[object, float]] = {}
        self._beats: dict[str, tuple[int, float]] = {}
        self._idle: dict[str, float] = {}

    def run(self) -> None:
        """Look until told to stop."""
        while not self.stop.is_set():
            with contextlib.suppress(psycopg.Error), connected(self._fleet.url) as database:
                while not self.stop.wait(0.25):
                    self._look(database)
            self.stop.wait(0.1)

    def _look(self, database: "psycopg.Connection[Any]") -> None:
        rows = database.execute(
            "SELECT id, skill, queue, owner, state, waits, set_aside IS NOT NULL, (fence, revision,"
            " (SELECT (count(*), sum(done)) FROM journal WHERE task = id))::text, attempts"
            f" FROM tasks WHERE state IN {OPEN}"
        ).fetchall()
        beats = dict(database.execute("SELECT id, heartbeat FROM instances").fetchall())
        now = time.monotonic()
        self.samples += 1
        owned = Counter(owner for _, _, _, owner, *_ in rows)
        lane = sum(1 for _, _, queue, owner, *_ in rows if queue == "lane" and owner in beats)
        self.most_in_lane = max(self.most_in_lane, lane)
        self._find_idle(beats, owned, now)
        seen = {}
        for task, skill, queue, owner, state, waits, aside, change, attempts in rows:
            waiting = state == "input-required" or waits or aside
            full = queue == "lane" and owner is None and lane >= LANE
            if waiting or full:
                continue
            known = self._tasks.get(task)
            seen[task] = known if known and known[0] == change else (change, now)
            self.longest_at_all = max(self.longest_at_all, now - seen[task][1])
            since = self._idle_since(skill)
            if since is not None and now - max(since, seen[task][1]) > self.longest:
                self.longest = now - max(since, seen[task][1])
                self.worst = (
                    f"{task} ({skill}, {state}, owner {owner}, {attempts} attempts,"
                    f" owner beats: {owner in beats})"
                )
        self._tasks = seen

    def _find_idle(self, beats: dict[str, int], owned: Counter[str], now: float) -> None:
        self._beats = {
            one: known if (known := self._beats.get(one)) and known[0] == beat else (beat, now)
            for one, beat in beats.items()
        }
        idle = [
            one
            for one, (_, since) in self._beats.items()
            if now - since < 5.0 and owned[one] < SLOTS
        ]
        self._idle = {one: self._idle.get(one, now) for one in idle}

    def _idle_since(self, skill: str) -> float | None:
        if not self._idle:
            return None
        only = ONLY.get(skill)
        if only is None:
            return min(self._idle.values())
        # Which of them has it is not in the rows: all have to be idle, and one has to be there.
        able = [one for one in self._fleet.instances if one.release == only and one.state == "up"]
        if not able or len(self._idle) < len(self._beats):
            return None
        return max(*self._idle.values(), min(one.since for one in able))
