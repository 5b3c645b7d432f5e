"""Several instances of the service, which share a PostgreSQL database that fails."""

from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

import anyio

from tests.kit.process import Process, StepCounter
from tests.kit.service import Kit
from tests.simulation.area import Area
from tests.simulation.life import Action

if TYPE_CHECKING:
    from tests.simulation.instances import SharedWorld
    from tests.simulation.world import World

How = Literal["step", "statement", "stop"]


class End(Action, frozen=True, kw_only=True):
    """An instance is killed after so many steps or statements, or an operator restarts it.

    Attributes:
        which: a number of the instance, modulo how many there are.
    """

    which: int
    how: How
    after: int
    seconds: float


class DatabaseStops(Action, frozen=True, kw_only=True):
    """The server of the database ends all sessions, and is back after some time."""

    seconds: float


class CommitLost(Action, frozen=True, kw_only=True):
    """The session of a commit ends before the answer arrives."""


def _end(chance: Random, at: float, number: int) -> End:
    how: How = chance.choice(("step", "step", "statement", "statement", "stop"))
    after = chance.randint(1, chance.choice((1, 10, 100, 1000)))
    seconds = chance.choice((0.0, 5.0, 60.0, 300.0))
    return End(
        at=at, number=number, which=chance.randint(0, 5), how=how, after=after, seconds=seconds
    )


def _stops(chance: Random, at: float, number: int) -> DatabaseStops:
    seconds = chance.choice((0.0, 2.0, 20.0, 60.0)) * chance.random()
    return DatabaseStops(at=at, number=number, seconds=seconds)


def _lost(_chance: Random, at: float, number: int) -> CommitLost:
    return CommitLost(at=at, number=number)


_MOST: Final = 3


class Instances(Area):
    """Two or three instances on one database."""

    draws: ClassVar = {_end: 15, _stops: 4, _lost: 4}
    actions = (End, DatabaseStops, CommitLost)

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._shared: SharedWorld = world  # type: ignore[assignment]
        self.settings = {"storage": {"postgres": self._shared.url}}  # type: ignore[misc]
        self._armed: dict[Kit, StepCounter] = {}

    async def begin(self) -> None:
        """Start the other instances."""
        for number in range(1, self.world.chance.randint(2, _MOST)):
            self.world.group.start_soon(self._shared.serve, self._shared.make_kit(number))

    async def perform(self, action: Any) -> None:
        """Let something end."""
        world, database = self._shared, self._shared.database
        match action:
            case End():
                self._end(world.kits[action.which % len(world.kits)], action)
            case DatabaseStops(seconds=seconds):
                world.history.fault("error", f"the database stops for {seconds:.1f} s")
                database.stop()
                await anyio.sleep(seconds)
                database.start()
                world.history.fault("healthy", "database")
            case CommitLost():
                world.history.fault("error", "the session of the next commit ends")
                database.lose_commit()

    def _end(self, kit: Kit, action: End) -> None:
        world, process = self._shared, kit.process
        if not process.is_alive:
            return
        if (armed := self._armed.pop(kit, None)) is not None:
            armed.remove()
        strike = partial(self._strike, kit, process, action.seconds)
        match action.how:
            case "stop":
                world.history.fault("stop", f"an operator restarts {world.name(kit)}")
                kit.service.stop()
            case "step":
                self._armed[kit] = StepCounter(process, action.after, strike)
            case "statement":
                world.database.strike_before(process, action.after, strike)

    def _strike(self, kit: Kit, process: Process, seconds: float) -> None:
        if process.is_alive:
            self.world.kills += 1
            self._shared.pauses[kit] = seconds
            kit.strike()
            name = self._shared.name(kit)
            self.world.history.fault("kill", f"{name}, {seconds:.0f} s until the next start")

    def heal(self) -> None:
        """End all faults."""
        for armed in self._armed.values():
            armed.remove()
        self._shared.database.disarm()
        self._shared.database.start()
