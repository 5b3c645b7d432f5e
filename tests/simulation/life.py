"""A life: what happens from outside, as data that a seed draws.

A life can be written down, shortened, and played again.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Final, Literal

import msgspec

DAY_S: Final = 86_400.0
PEOPLE: Final = ("juliet", "romeo", "nurse", "tybalt")
CALLERS: Final = ("bot", "desk")

Reaction = Literal["approve", "deny", "ignore", "late", "twice", "other", "forged"]
"""What somebody does about a question: answer it, do not, answer after it has expired, answer it
twice, let somebody else try to answer it first, or approve something else than was asked.
"""
REACTIONS: Final[tuple[Reaction, ...]] = (
    *("approve", "approve", "approve", "deny", "ignore", "late", "twice", "other", "forged"),
)


class Action(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Something that happens.

    Attributes:
        at: when, in seconds since the beginning.
        number: is in no other action of the life.
    """

    at: float
    number: int


class Life(msgspec.Struct, frozen=True):
    """A life. `seed` decides in which order the tasks of the event loop run, and all random numbers
    of the service.
    """

    seed: int
    days: float
    actions: tuple[Action, ...]


Draw = Callable[[Random, float, int], Action]
"""Draws an action, at a time and with a number."""


DAYS: Final = 28.0
"""Days of a life, unless somebody says otherwise."""
PAUSES_S: Final = (600.0, 3600.0, 6 * 3600.0, 14 * DAY_S)
"""At most so long nothing happens, as one of these."""


def draw(
    seed: int, days: float, kinds: list[tuple[int, Draw]], pauses_s: Sequence[float] = PAUSES_S
) -> Life:
    """Draw a life from kinds of actions and how often they happen.

    Most days are quiet; on others much happens within an hour, and faults with it.
    """
    chance = Random(f"life {seed}")
    weights, draws = [weight for weight, _ in kinds], [one for _, one in kinds]
    made: list[Action] = []
    at = 60.0
    while at < days * DAY_S:
        for _ in range(chance.randint(1, 12)):
            (one,) = chance.choices(draws, weights)
            made.append(one(chance, at, len(made) + 1))
            at += chance.choice((0.0, 0.01, 0.3, 2.0, 20.0, 300.0)) * chance.random()
        at += chance.choice(pauses_s) * chance.random()
    return Life(seed, days, tuple(one for one in made if one.at < days * DAY_S))
