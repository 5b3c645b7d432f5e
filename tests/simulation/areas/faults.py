"""Faults of the process, the disk, the connection, the clock, the model, and absent people."""

from functools import partial
from random import Random
from typing import Any, ClassVar, Final, Literal

import anyio

from tests.kit.process import Process, StepCounter
from tests.simulation.area import Area
from tests.simulation.history import Effect, Entry, Prompt, Stanza
from tests.simulation.life import CALLERS, PEOPLE, Action


class Away(Action, frozen=True, kw_only=True):
    """A person or a program disconnects, and comes back later."""

    who: str
    seconds: float


Moment = Literal["now", "effect", "prompt", "stanza", "write"]


class Kill(Action, frozen=True, kw_only=True):
    """The process is killed after so many steps of its event loop, and started again later.

    Attributes:
        after: the steps are counted from the next effect, prompt, received stanza or write to the
            disk, since what follows these is what a kill can spoil.
    """

    steps: int
    seconds: float
    after: Moment = "now"


class Stop(Action, frozen=True, kw_only=True):
    """An operator restarts the service."""


class Cut(Action, frozen=True, kw_only=True):
    """The connection to the server breaks, and can be made again later."""

    seconds: float


class DiskFails(Action, frozen=True, kw_only=True):
    """Every write fails for some time."""

    seconds: float
    how: Literal["full", "error"]


class KillInWrite(Action, frozen=True, kw_only=True):
    """The process is killed before so many operations of the disk, also within a call that writes.

    With `power` the whole machine stops, and loses what was not synced.
    """

    operations: int
    seconds: float
    power: bool


class WriteFails(Action, frozen=True, kw_only=True):
    """One operation of the disk fails."""

    operations: int
    how: Literal["full", "error"]


class Jump(Action, frozen=True, kw_only=True):
    """The wall clock jumps."""

    seconds: float


class ModelFails(Action, frozen=True, kw_only=True):
    """The model is slow, does not answer, fails, or lies for some time."""

    how: Literal["slow", "silent", "failing", "lying"]
    seconds: float


_MOMENTS: Final[tuple[Moment, ...]] = ("effect", "prompt", "stanza", "write")


def _away(chance: Random, at: float, number: int) -> Away:
    who = chance.choice((*PEOPLE, *CALLERS))
    seconds = chance.choice((1.0, 60.0, 3600.0)) * chance.random()
    return Away(at=at, number=number, who=who, seconds=seconds)


def _kill(chance: Random, at: float, number: int) -> Kill:
    after: Moment = chance.choice(("now", "now", "now", *_MOMENTS))
    longest = (1, 10, 100, 1000, 3000) if after == "now" else (1, 3, 10, 30)
    steps = chance.randint(1, chance.choice(longest))
    seconds = chance.choice((0.0, 0.0, 5.0, 600.0))
    return Kill(at=at, number=number, steps=steps, seconds=seconds, after=after)


def _stop(_chance: Random, at: float, number: int) -> Stop:
    return Stop(at=at, number=number)


def _cut(chance: Random, at: float, number: int) -> Cut:
    return Cut(at=at, number=number, seconds=chance.choice((0.0, 1.0, 60.0)) * chance.random())


def _disk(chance: Random, at: float, number: int) -> DiskFails:
    how: Literal["full", "error"] = chance.choice(("full", "error"))
    return DiskFails(at=at, number=number, seconds=60 * chance.random(), how=how)


def _kill_in_write(chance: Random, at: float, number: int) -> KillInWrite:
    operations = chance.randint(1, chance.choice((1, 5, 20, 100)))
    seconds, power = chance.choice((0.0, 5.0, 600.0)), chance.random() < 0.5
    return KillInWrite(at=at, number=number, operations=operations, seconds=seconds, power=power)


def _write_fails(chance: Random, at: float, number: int) -> WriteFails:
    how: Literal["full", "error"] = chance.choice(("full", "error"))
    operations = chance.randint(1, chance.choice((1, 5, 20)))
    return WriteFails(at=at, number=number, operations=operations, how=how)


def _jump(chance: Random, at: float, number: int) -> Jump:
    seconds = chance.choice((-1, 1)) * chance.choice((1.0, 100.0, 4000.0, 90_000.0))
    return Jump(at=at, number=number, seconds=seconds)


def _model(chance: Random, at: float, number: int) -> ModelFails:
    how: Literal["slow", "silent", "failing", "lying"]
    how = chance.choice(("slow", "silent", "failing", "lying"))
    return ModelFails(at=at, number=number, how=how, seconds=120 * chance.random())


class Faults(Area):
    """Everything that fails."""

    draws: ClassVar = {_away: 5, _kill: 60, _stop: 2, _cut: 4, _disk: 3, _jump: 2, _model: 3}
    draws |= {_kill_in_write: 10, _write_fails: 2}
    actions = (Away, Kill, KillInWrite, Stop, Cut, DiskFails, WriteFails, Jump, ModelFails)
    _armed: StepCounter | None = None
    _awaited: Kill | None = None
    """A kill that waits for its moment."""

    async def begin(self) -> None:
        """Look at what happens, for the moments of kills."""
        self.world.history.observers.append(self._happened)
        self.world.disk.on_write = lambda: self._moment("write")

    async def perform(self, action: Any) -> None:
        """Let something fail."""
        world = self.world
        match action:
            case Away(who=who, seconds=seconds):
                await world.residents[who].go()
                await anyio.sleep(seconds)
                world.residents[who].come()
            case Kill(after="now"):
                self._kill(action)
            case Kill():
                self._awaited = action
            case KillInWrite():
                self._kill_in_write(action)
            case WriteFails(operations=operations, how=how):
                fails = partial(world.history.fault, how, "one write to the disk")
                world.disk.fail_once(operations, how, fails)
            case Stop():
                if world.kit.process.is_alive:
                    world.history.fault("stop", "an operator restarts the service")
                    world.kit.service.stop()
            case Cut(seconds=seconds):
                world.history.fault("cut", f"for {seconds:.3f} s")
                world.xmpp.is_up = False
                world.xmpp.disconnect(world.kit.agent)
                await anyio.sleep(seconds)
                world.xmpp.is_up = True
            case DiskFails(seconds=seconds, how=how):
                world.history.fault("full" if how == "full" else "error", f"disk, {seconds:.0f} s")
                world.disk.fails, world.disk.broken_since_start = how, True
                await anyio.sleep(seconds)
                world.disk.fails = ""
                world.history.fault("healthy", "disk")
            case Jump(seconds=seconds):
                world.jump(seconds)
            case ModelFails(how=how, seconds=seconds):
                world.history.fault("error", f"the model is {how} for {seconds:.0f} s")
                world.talker.state = how
                await anyio.sleep(seconds)
                world.talker.state = ""

    def _kill(self, action: Kill) -> None:
        process = self.world.kit.process
        if self._armed is not None:
            self._armed.remove()
            self._armed = None

        if process.is_alive:
            strike = partial(self._strike, process, action.seconds)
            self._armed = StepCounter(process, action.steps, strike)

    def _happened(self, entry: Entry) -> None:
        match entry:
            case Effect():
                self._moment("effect")
            case Prompt():
                self._moment("prompt")
            case Stanza(way="received"):
                self._moment("stanza")

    def _moment(self, moment: Moment) -> None:
        if self._awaited is not None and self._awaited.after == moment:
            action, self._awaited = self._awaited, None
            self._kill(action)

    def _kill_in_write(self, action: KillInWrite) -> None:
        process = self.world.kit.process
        strike = partial(self._strike, process, action.seconds, power=action.power, within="write")
        self.world.disk.strike_before(process, action.operations, strike)

    def _strike(
        self, process: Process, seconds: float, *, power: bool = False, within: str = ""
    ) -> None:
        world = self.world
        if not process.is_alive:
            return
        world.kills += 1
        world.pauses[world.kit] = seconds
        lost = world.kit.strike(power_fails=power)
        where = f"within a {within}, " if within else ""
        what = f", the power fails, lost: {'; '.join(lost) or 'nothing'}" if power else ""
        world.history.fault("kill", f"{where}{seconds:.0f} s until the next start{what}")

    def heal(self) -> None:
        """End all faults."""
        self._awaited = None
        if self._armed is not None:
            self._armed.remove()
        self.world.disk.fails = ""
        self.world.disk.disarm()
        self.world.xmpp.is_up = True
        self.world.talker.state = ""
        for one in self.world.residents.values():
            one.come()
