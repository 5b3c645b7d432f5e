"""Plays a life: runs the service, its surroundings, and what happens to both."""

import gc
import shutil
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import reduce
from operator import or_
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple
from unittest.mock import patch

import anyio
import msgspec
import trio
from anyio.abc import TaskGroup
from trio._core import _run as scheduler
from trio.testing import MockClock

from component import system
from component.features.notifications import notifier
from component.features.peers import calls, shares
from component.features.schedules import runner
from component.memory import documents
from component.pubsub import service as pubsub
from component.store.errors import StorageError
from component.tasks import expiry
from tests.kit.disk import Disk, simulated_disk
from tests.kit.service import AGENT, Kit, make_settings_of
from tests.kit.system import SimulatedSystem
from tests.kit.xmpp import Xmpp
from tests.simulation.area import Area
from tests.simulation.areas import AREAS
from tests.simulation.areas.faults import Faults
from tests.simulation.areas.instances import Instances
from tests.simulation.history import FaultKind, History
from tests.simulation.life import CALLERS, DAY_S, PEOPLE, Draw, Life, Reaction, draw
from tests.simulation.people import Answer, Decide, Resident
from tests.simulation.rules import Rules, Violation
from tests.simulation.skills import Outside
from tests.simulation.talker import Talker

SETTINGS: Final = {
    # An idle connection wakes the service every minute, which takes longer than all the rest.
    "server": {"keepalive_s": 7200, "read_timeout_s": 7200},
    "agent": {
        "allowed_domains": ["capulet.example"],
        "admins": ["nurse@capulet.example"],
        "notice": "",
    },
    "notifications": {"quiet": ""},
    "limits": {"inline_s": 2},
    "memory": {"reconcile_s": 86_400},
}
_DENSE_PAUSES_S: Final = ((60.0,), (10.0, 600.0), (60.0, 600.0, 3600.0))
"""The pauses of a dense life are one of these."""
_LOOKS: Final[Sequence[tuple[Any, str, float]]] = (
    *((documents, "EVERY_S", 86_400.0), (notifier, "_POLL_S", 21_600.0)),
    *((runner, "_LOOK_S", 3600.0), (expiry, "_LOOK_S", 3600.0), (pubsub, "_TIDY_S", 86_400.0)),
    *((calls, "_LOOK_S", 3600.0), (shares, "_LOOK_S", 3600.0), (expiry, "EVERY_S", 7200.0)),
)
"""How often is looked at files and clocks that nobody has changed in most hours, in seconds."""
CRASHED_S: Final = 5.0
"""Seconds after which a service manager starts a service that has failed."""
_MOST_STEPS: Final = 50_000
"""Task steps within one moment."""
CALM_S: Final = 1800.0
"""Seconds in which nothing happens, after which runs and slots have to match."""
QUIET_S: Final = 2 * DAY_S
"""Seconds without faults at the end, after which nothing may be open."""


class StandstillDetector(trio.abc.Instrument):
    """Looks whether tasks run and run, and no time passes.

    Args:
        now: returns the simulated seconds.
        found: is called with the name of a task that runs.
    """

    def __init__(self, now: Callable[[], float], found: Callable[[str], None]) -> None:
        self._now, self._found = now, found
        self._steps = 0
        self._last = -1.0

    def before_task_step(self, task: Any) -> None:
        """See `trio.abc.Instrument`."""
        self._steps += 1
        if self._steps % _MOST_STEPS == 0:
            if self._now() == self._last:
                self._found(task.name)
            self._last = self._now()


class World:
    """One life while it is played.

    Attributes:
        history: what has happened.
        kills: how many times the process was killed.
        days: how many days were simulated.
        chance: random numbers for what is outside of the service.
        group: runs what goes on beside the service.
        system: the clocks and the random numbers of the service.
        disk: the disk of the service.
        xmpp: the servers.
        kit: the service.
        kits: all services that run, with those of other domains.
        talker: the model of its agents.
        outside: what skills change.
        residents: the people and programs, by name.
        reactions: how they react to questions about each label.
        areas: the parts of the life.
        decides: who decides otherwise, by the first letter of the labels.
        answers: who answers otherwise, by the first letter of the labels.
        pauses: seconds until each service is started again when it has ended.
        sections: the settings of the first service.
        life: what is played.
        directory: where the services have their files.
    """

    group: TaskGroup
    system: SimulatedSystem
    disk: Disk
    xmpp: Xmpp
    kit: Kit
    sections: Mapping[str, Any]

    def __init__(self, life: Life, directory: Path, areas: Sequence[type[Area]] = AREAS) -> None:
        self.life, self.directory = life, directory
        clock: Any = trio.lowlevel.current_clock()
        began = clock.current_time()
        self.history = History(lambda: clock.current_time() - began)
        self.rules = Rules(self.history, [rule for area in areas for rule in area.rules])
        self.chance = Random(f"world {life.seed}")
        self.talker = Talker(self.history, self.chance)
        self.outside = Outside(self.history, self.chance)
        self.residents: dict[str, Resident] = {}
        self.reactions: dict[str, Reaction] = {}
        self.decides: dict[str, Decide] = {}
        self.answers: dict[str, Answer] = {}
        self.kills = 0
        self.days = 0.0
        self.kits: list[Kit] = []
        self.pauses: defaultdict[Kit, float] = defaultdict(float)
        self.areas = [area(self) for area in areas]
        self._performs = {kind: area.perform for area in self.areas for kind in area.actions}
        self._is_over = False

    async def play(self) -> None:
        """Play the life. Raises Violation."""
        life, outside = self.life, system.current()
        scheduler._ALLOW_DETERMINISTIC_SCHEDULING = True
        scheduler._r.seed(life.seed)
        self.system = SimulatedSystem(life.seed)
        system.use(self.system)
        trio.lowlevel.add_instrument(StandstillDetector(self.history.now, self._stands_still))
        with ExitStack() as stack:
            disk = simulated_disk(self.directory, self.history.now, life.seed)
            self.disk = stack.enter_context(disk)
            for module, name, seconds in _LOOKS:
                stack.enter_context(patch.object(module, name, seconds))
            try:
                async with anyio.create_task_group() as self.group:
                    self.group.start_soon(self.rules.watch)
                    await self._live()
                    self.group.cancel_scope.cancel()
            except BaseExceptionGroup:
                if self.rules.violation is not None:
                    raise self.rules.violation from None
                raise
            finally:
                self.days = self.history.now() / DAY_S
                system.use(outside)
                for area in self.areas:
                    area.end()

    def _stands_still(self, task: str) -> None:
        self.rules.fail(Violation(f"no time passes any more, and {task} runs"))

    async def _live(self) -> None:
        offline = Random(f"servers {self.life.seed}").choice((None, "prosody", "ejabberd"))
        self.xmpp = Xmpp(self.group, offline)
        sections: dict[str, Any] = dict(SETTINGS)
        for area in self.areas:
            for name, values in area.settings.items():
                known = sections.get(name)
                sections[name] = known | values if isinstance(known, dict) else values
        self.sections = sections
        settings = make_settings_of(self.directory, self.sections, self.talker.script)
        secret = settings.server.component_secret.get_secret_value()
        self.xmpp.add_service(AGENT, secret)
        skills = [skill for area in self.areas for skill in area.skills()]
        self.kit = Kit(
            *(settings, self.group, self.xmpp, self.system, self.talker.script, skills), self.disk
        )
        everybody = (*PEOPLE, *CALLERS)
        for name in everybody:
            self.residents[name] = Resident(self, name)
        for name, other in zip(everybody, (*everybody[1:], everybody[0]), strict=True):
            self.residents[name].bystander = self.residents[other]
        for area in self.areas:
            await area.begin()
        self.group.start_soon(self.serve, self.kit)
        for action in self.life.actions:
            pause = action.at - self.history.now()
            await anyio.sleep(max(0.0, pause))
            if pause > CALM_S:
                self.rules.at_pause(*(kit for kit in self.kits if kit.process.is_alive))
            self.group.start_soon(self._performs[type(action)], action)
        await anyio.sleep(max(0.0, self.life.days * DAY_S - self.history.now()))
        for area in self.areas:
            area.heal()
        await self.rest()
        for area in self.areas:
            await area.finish()
        self.rules.at_rest(*self.kits)
        if self.rules.violation is not None:
            raise self.rules.violation
        self._is_over = True
        for kit in self.kits:
            await kit.stop()

    def jump(self, seconds: float) -> None:
        """Let the wall clock jump."""
        self.history.fault("clock", f"jumps by {seconds:.0f} s")
        self.system.jump_s += seconds

    async def rest(self) -> None:
        """Let the time without faults pass, at the end."""
        await anyio.sleep(QUIET_S)

    async def serve(self, kit: Kit) -> None:
        """Run a service as a service manager does, until the life is over or it is retired."""
        is_first = kit is self.kit
        self.kits.append(kit)

        def note(kind: FaultKind, about: str = "") -> None:
            if is_first:
                self.history.fault(kind, about)
            else:
                self.history.fault("peer", f"{kit.agent}: {kind} {about}".rstrip())

        while not self._is_over and kit in self.kits:
            note("start")
            try:
                await kit.run()
            except Exception as error:
                if kit.process.is_alive:
                    note("crash", repr(error).replace(str(self.directory), ""))
                    # All services have one disk; the flag is about the first one.
                    may_be = self.disk.broken_since_start or not is_first
                    if not (may_be and _is_of_disk(error)):
                        raise
                    self.pauses[kit] = CRASHED_S
            if kit.process.is_alive:
                note("stop")
            else:
                await kit.buried()
            kit.process.is_alive = False
            await anyio.sleep(self.pauses[kit])
            self.pauses[kit] = 0.0
            if is_first:
                self.disk.broken_since_start = bool(self.disk.fails)

    def retire(self, kit: Kit) -> None:
        """Stop a service for good."""
        self.kits.remove(kit)
        if kit.process.is_alive:
            kit.service.stop()


def _is_of_disk(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_of_disk, error.exceptions))
    return isinstance(error, StorageError | OSError)


def kinds(areas: Sequence[type[Area]] = AREAS) -> list[tuple[int, Draw]]:
    """Return how often each kind of action happens."""
    return [(weight, draw) for area in areas for draw, weight in area.draws.items()]


def draw_life(seed: int, days: float) -> Life:
    """Draw a life with all areas."""
    return draw(seed, days, kinds())


def draw_dense(seed: int, days: float) -> Life:
    """Draw a life of few areas, in which something happens nearly all the time: what belongs
    together meets more often than in a life with all areas.
    """
    chance = Random(f"dense {seed}")
    some = chance.sample([one for one in AREAS if one is not Faults], chance.choice((1, 1, 2, 3)))
    share, pauses_s = chance.choice((0, 1, 5, 10)), chance.choice(_DENSE_PAUSES_S)
    ours, faults = kinds(some), kinds((Faults,)) if share else []
    total, of_faults = (sum(weight for weight, _ in each) for each in (ours, faults))
    made = [(weight * max(10 * of_faults, 1), each) for weight, each in ours]
    made += [(weight * share * total, each) for weight, each in faults]
    return draw(seed, days, made, pauses_s)


def read_life(file: Path) -> Life:
    """Return a life that `write_life` has written. Raises OSError, msgspec.ValidationError."""
    areas: Sequence[type[Area]] = (*AREAS, Instances)
    action: Any = reduce(or_, (kind for area in areas for kind in area.actions))
    made: type[Any] = msgspec.defstruct(
        "WrittenLife", [("seed", int), ("days", float), ("actions", tuple[action, ...])]
    )
    found = msgspec.json.decode(file.read_bytes(), type=made)
    return Life(found.seed, found.days, found.actions)


def write_life(life: Life, file: Path) -> None:
    """Write a life, so that it can be played again whatever else is drawn from its seed by then."""
    file.write_bytes(msgspec.json.format(msgspec.json.encode(life)) + b"\n")


def play(
    life: Life, directory: Path, make: Callable[[Life, Path], World] = World
) -> tuple[World, Violation | None]:
    """Play a life in an event loop of its own; return the world, and what was violated."""
    worlds: list[World] = []
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)

    async def run() -> Violation | None:
        world = make(life, directory)
        worlds.append(world)
        try:
            await world.play()
        except Violation as violation:
            return violation
        except Exception as error:  # noqa: BLE001 - whatever ends a life is a finding
            return Violation(f"the service or the simulation has ended: {error!r}")
        return None

    backend = {"clock": MockClock(autojump_threshold=0)}
    # Collections take a quarter of the time, and could change the order in which tasks end.
    gc.disable()
    try:
        found = anyio.run(run, backend="trio", backend_options=backend)
    finally:
        gc.enable()
    gc.collect()
    return worlds[0], found


Play = Callable[[Life], tuple[World, Violation | None]]
"""Plays a life; returns the world, and what was violated."""


class Lives(NamedTuple):
    """Lives of a kind: draws one from a seed, and plays one."""

    draw: Callable[[int], Life]
    play: Play
