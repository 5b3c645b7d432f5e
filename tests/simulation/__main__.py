"""Simulates lives of the service: `python -m tests.simulation --help`."""

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import count, takewhile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from msgspec.structs import replace

from tests.simulation.history import line
from tests.simulation.life import DAYS, Life
from tests.simulation.many import Outcome, play_many, silence
from tests.simulation.rules import Violation
from tests.simulation.world import (
    Lives,
    Play,
    World,
    draw_dense,
    draw_life,
    play,
    read_life,
    write_life,
)

_SHRINK_S: Final = 300.0
"""Seconds for which a life is shortened."""
_DENSE_DAYS: Final = 0.3
"""Days of a dense life."""
_PROGRESS_S: Final = 60.0
"""Seconds after which the progress of many lives is shown again."""


def main(words: Sequence[str]) -> int:
    """Simulate lives; return 1 if one has violated a rule."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation",
        description="Simulate lives of the service, each drawn from a seed.",
        epilog="examples: --seed 7 replays one life and shows its history;"
        " --minutes 60 tries new seeds for an hour",
    )
    parser.add_argument("--seed", type=int, help="replay this life, and show what has happened")
    parser.add_argument("--life", type=Path, help="replay a life that was written to this file")
    parser.add_argument("--write", type=Path, help="write the shortened life to this file")
    parser.add_argument("--from", type=int, default=1, dest="first", help="the first seed")
    parser.add_argument("--lives", type=int, default=10, help="how many lives")
    parser.add_argument("--minutes", type=float, help="how long new lives are begun, instead")
    parser.add_argument("--first-failure", action="store_true", help="end at the first failure")
    parser.add_argument("--days", type=float, help="simulated days of a life")
    parser.add_argument(
        "--processes",
        type=int,
        default=os.cpu_count() or 1,
        help="how many lives at the same time; with --instances always one",
    )
    parser.add_argument(
        "--instances",
        action="store_true",
        help="let two or three instances share a PostgreSQL database; --days 0.05 by default",
    )
    parser.add_argument(
        "--dense",
        action="store_true",
        help=f"lives of few areas, in which much happens; --days {_DENSE_DAYS:g} by default",
    )
    parser.add_argument("--log", action="store_true", help="show the log of the service, too")
    options = parser.parse_args(words)
    if not options.log:
        silence()
    with ExitStack() as stack:
        place = Path(stack.enter_context(TemporaryDirectory(prefix="simulation-"))) / "life"
        if options.instances:
            from tests.simulation import instances

            lives = stack.enter_context(instances.shared_lives(options.days, place))
        else:
            lives = Lives(
                lambda seed: (
                    draw_dense(seed, options.days or _DENSE_DAYS)
                    if options.dense
                    else draw_life(seed, options.days or DAYS)
                ),
                lambda life: play(life, place),
            )
        if options.seed is not None:
            return _replay(lives.draw(options.seed), lives.play, options.write)
        if options.life is not None:
            return _replay(read_life(options.life), lives.play, options.write)
        return _many(options, lives)


def _replay(life: Life, play: Play, file: Path | None) -> int:
    world, violation = play(life)
    for entry in world.history.entries:
        print(line(entry))
    if violation is None:
        print(f"seed {life.seed}: {life.days:g} days, {world.kills} kills, no rule was violated")
        return 0
    print(f"seed {life.seed} violates a rule: {violation}")
    _show_short(life, play, file)
    return 1


def _many(options: argparse.Namespace, lives: Lives) -> int:
    began, days, kills, failed = time.monotonic(), 0.0, 0, []
    shown = began
    seeds: Iterable[int] = range(options.first, options.first + options.lives)
    if options.minutes is not None:
        until = began + 60 * options.minutes
        seeds = takewhile(lambda _: time.monotonic() < until, count(options.first))
    outcomes: Iterator[Outcome]
    if options.instances:
        drawn = map(lives.draw, seeds)
        outcomes = (Outcome.of(life, lives.play(life)) for life in drawn)
    else:
        outcomes = play_many(seeds, lives.draw, options.processes)
    for one in outcomes:
        days, kills = days + one.days, kills + one.kills
        if one.violation:
            failed.append(one.seed)
            print(f"seed {one.seed} violates a rule: {one.violation}", flush=True)
            print(f"    {_command(options, one.seed)}", flush=True)
            if options.first_failure:
                break
        if time.monotonic() > shown + _PROGRESS_S:
            shown = time.monotonic()
            print(
                f"{_progress(days, kills, began)}, up to seed {one.seed}",
                file=sys.stderr,
                flush=True,
            )
    print(f"{_progress(days, kills, began)}; seeds that fail: {failed}")
    return 1 if failed else 0


def _progress(days: float, kills: int, began: float) -> str:
    spent = time.monotonic() - began
    return f"{days:,.0f} simulated days and {kills:,} kills in {spent:,.0f} s"


def _command(options: argparse.Namespace, seed: int) -> str:
    """Return what replays a life that these options have drawn."""
    if not (options.instances or options.dense) and options.days is None:
        return f"make simulate SEED={seed}"
    kind = " --instances" if options.instances else " --dense" if options.dense else ""
    days = "" if options.days is None else f" --days {options.days:g}"
    return f"python -m tests.simulation{kind} --seed {seed}{days}"


def _show_short(life: Life, play: Play, file: Path | None) -> None:
    def fails(shorter: Life) -> tuple[World, Violation] | None:
        world, found = play(shorter)
        return None if found is None else (world, found)

    print("making it shorter…", flush=True)
    until = time.monotonic() + _SHRINK_S
    short = shrink(life, lambda one: fails(one) is not None, until)
    if file is not None:
        write_life(short, file)
    if len(short.actions) == len(life.actions):
        return
    result = fails(short)
    assert result is not None, "it has failed just now"
    world, found = result
    print(f"{len(short.actions)} of {len(life.actions)} actions suffice:\n")
    for entry in world.history.entries:
        print(line(entry))
    print(f"\n{found}")


def shrink(life: Life, fails: Callable[[Life], bool], until: float) -> Life:
    """Return a life with fewer actions that fails, too: the shortest that is found until then.

    First a beginning of the life is tried, then smaller and smaller parts are left out.
    """
    best = life
    size = len(best.actions)
    while size > 1 and time.monotonic() < until:  # where it has failed is not known: halve it
        size //= 2
        shorter = replace(best, actions=best.actions[: len(best.actions) - size])
        shorter = replace(shorter, days=_days(shorter, best.days))
        if shorter.actions and fails(shorter):
            best, size = shorter, min(2 * size, len(shorter.actions))
    size = max(1, len(best.actions) // 2)
    while time.monotonic() < until:
        number, found = 0, False
        while number < len(best.actions) and time.monotonic() < until:
            left = best.actions[:number] + best.actions[number + size :]
            shorter = replace(best, actions=left)
            if left and fails(shorter):
                best, found = shorter, True
            else:
                number += size
        if size == 1 and not found:
            break
        size = max(1, size // 2)
    return best


def _days(life: Life, most: float) -> float:
    last = life.actions[-1].at if life.actions else 0.0
    return min(most, last / 86_400 + 0.1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
