"""Plays many lives, several at the same time."""

import logging
import multiprocessing
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import structlog

from tests.simulation.life import Life
from tests.simulation.rules import Violation
from tests.simulation.world import World, play


class Outcome(NamedTuple):
    """What became of the life of a seed; `violation` is empty if no rule was violated."""

    seed: int
    days: float
    kills: int
    violation: str

    @classmethod
    def of(cls, life: Life, played: tuple[World, Violation | None]) -> "Outcome":
        """Return the outcome of a life that was played."""
        world, violation = played
        return cls(life.seed, world.days, world.kills, str(violation or ""))


def play_many(
    seeds: Iterable[int], draw: Callable[[int], Life], processes: int
) -> Iterator[Outcome]:
    """Play the lives of these seeds in so many processes; yield the outcomes in their order."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context, silence) as pool:
        waiting = deque[Future[Outcome]]()
        for seed in seeds:
            waiting.append(pool.submit(_play, draw(seed)))
            if len(waiting) > processes:
                yield waiting.popleft().result()
        for one in waiting:
            yield one.result()


def silence() -> None:
    """Let the service log nothing."""
    silent = structlog.make_filtering_bound_logger(logging.CRITICAL)
    structlog.configure(wrapper_class=silent)


def _play(life: Life) -> Outcome:
    with TemporaryDirectory(prefix="simulation-") as directory:
        return Outcome.of(life, play(life, Path(directory) / "life"))
