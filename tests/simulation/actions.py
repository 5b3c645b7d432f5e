"""What happens from outside in a simulated life: data, drawn from a seed.

A life is a list of actions. It can be written down, shortened, and played again.
"""

from random import Random
from typing import Final, Literal

import msgspec

DAY_S: Final = 86_400.0
PEOPLE: Final = ("juliet", "romeo", "nurse", "tybalt")
CALLERS: Final = ("bot", "desk")

Reaction = Literal["approve", "deny", "ignore", "late", "twice", "other"]
"""What a person does about a question: answer it, do not, answer after it has expired, answer it
twice, or let somebody else try to answer it.
"""
SKILLS: Final = (
    *("note", "work", "work", "again", "ask", "nap", "family", "branch", "pay", "pay", "fail"),
)


class Say(msgspec.Struct, frozen=True, tag=True):
    """A person writes to the agent: `wish` is what the model makes of it."""

    at: float
    who: str
    number: int
    wish: str
    reaction: Reaction = "approve"


class Execute(msgspec.Struct, frozen=True, tag=True):
    """A program executes a skill, and repeats the request until it has an answer."""

    at: float
    who: str
    number: int
    skill: str
    mode: str = "auto"
    reaction: Reaction = "approve"
    cancel_after: float | None = None
    repeats: int = 0


class Schedule(msgspec.Struct, frozen=True, tag=True):
    """A person makes a schedule: `when` is as people write it."""

    at: float
    who: str
    number: int
    when: str


class Away(msgspec.Struct, frozen=True, tag=True):
    """A person or a program disconnects, and comes back later."""

    at: float
    who: str
    seconds: float


class Kill(msgspec.Struct, frozen=True, tag=True):
    """The process is killed after so many steps of its event loop, and started again later."""

    at: float
    steps: int
    seconds: float


class Stop(msgspec.Struct, frozen=True, tag=True):
    """An operator restarts the service."""

    at: float


class Cut(msgspec.Struct, frozen=True, tag=True):
    """The connection to the server breaks, and can be made again later."""

    at: float
    seconds: float


class DiskFails(msgspec.Struct, frozen=True, tag=True):
    """Every commit fails for some time."""

    at: float
    seconds: float
    how: Literal["full", "error"]


class Jump(msgspec.Struct, frozen=True, tag=True):
    """The wall clock jumps."""

    at: float
    seconds: float


class ModelIs(msgspec.Struct, frozen=True, tag=True):
    """The model is slow, does not answer, fails, or lies for some time."""

    at: float
    how: Literal["slow", "silent", "failing", "lying"]
    seconds: float


Action = Say | Execute | Schedule | Away | Kill | Stop | Cut | DiskFails | Jump | ModelIs


class Life(msgspec.Struct, frozen=True):
    """A life: `seed` decides in which order tasks of the event loop run, and all random numbers of
    the service.
    """

    seed: int
    days: float
    actions: tuple[Action, ...]


def draw(seed: int, days: float) -> Life:
    """Draw a life.

    Most days are quiet; on others much happens within an hour, and faults with it.
    """
    chance = Random(f"life {seed}")
    made: list[Action] = []
    numbers = iter(range(1, 1_000_000))
    at = 60.0
    while at < days * DAY_S:
        for _ in range(chance.randint(1, 12)):
            made.append(_one(chance, at, next(numbers)))
            at += chance.choice((0.0, 0.01, 0.3, 2.0, 20.0, 300.0)) * chance.random()
        at += chance.choice((600.0, 3600.0, 6 * 3600.0, 2 * DAY_S)) * chance.random()
    return Life(seed, days, tuple(one for one in made if one.at < days * DAY_S))


def _one(chance: Random, at: float, number: int) -> Action:
    kind = chance.random()
    reactions: tuple[Reaction, ...] = (
        *("approve", "approve", "approve", "deny", "ignore", "late", "twice", "other"),
    )
    if kind < 0.27:
        wish = chance.choice(("talk", "talk", "note", "work", "pay", "ask", "lie"))
        return Say(at, chance.choice(PEOPLE), number, wish, chance.choice(reactions))
    if kind < 0.62:
        return Execute(
            at,
            chance.choice(CALLERS),
            number,
            chance.choice(SKILLS),
            chance.choice(("auto", "auto", "async")),
            chance.choice(reactions),
            chance.choice((None, None, None, 0.0, 0.1, 5.0)),
            chance.choice((0, 0, 0, 1, 3)),
        )
    if kind < 0.68:
        when = chance.choice(("in 2 minutes", "in 3 hours", "tomorrow at 9:00", "every day at 8:30"))
        return Schedule(at, chance.choice(PEOPLE), number, when)
    if kind < 0.73:
        who = chance.choice((*PEOPLE, *CALLERS))
        return Away(at, who, chance.choice((1.0, 60.0, 3600.0)) * chance.random())
    if kind < 0.86:
        after = chance.choice((1, 10, 100, 1000, 3000))
        return Kill(at, chance.randrange(after) + 1, chance.choice((0.0, 0.0, 5.0, 600.0)))
    if kind < 0.88:
        return Stop(at)
    if kind < 0.92:
        return Cut(at, chance.choice((0.0, 1.0, 60.0)) * chance.random())
    if kind < 0.95:
        return DiskFails(at, 60.0 * chance.random(), chance.choice(("full", "error")))
    if kind < 0.97:
        return Jump(at, chance.choice((-1, 1)) * chance.choice((1.0, 100.0, 4000.0, 90_000.0)))
    how: Literal["slow", "silent", "failing", "lying"]
    how = chance.choice(("slow", "silent", "failing", "lying"))
    return ModelIs(at, how, 120.0 * chance.random())
