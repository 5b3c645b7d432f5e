"""Plays a life: runs the service, its surroundings, and what happens to both."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

import anyio
import trio
from trio._core import _run as scheduler
from trio.testing import MockClock

from component import system
from component.features.notifications import notifier
from component.features.schedules import runner
from component.memory import documents
from component.store.errors import StorageError
from component.tasks import expiry
from tests.kit.disk import Disk, simulated_disk
from tests.kit.process import StepCounter
from tests.kit.service import AGENT, Kit, make_settings_of
from tests.kit.system import SimulatedSystem
from tests.kit.xmpp import Xmpp
from tests.simulation import actions
from tests.simulation.actions import CALLERS, DAY_S, PEOPLE, Action, Life
from tests.simulation.history import History
from tests.simulation.invariants import Invariants, Violation
from tests.simulation.people import Resident
from tests.simulation.skills import Outside, make_skills
from tests.simulation.talker import Talker

SETTINGS: Final = {
    # An idle connection wakes the service every minute, which takes longer than all the rest.
    "server": {"keepalive_s": 1800, "read_timeout_s": 1800},
    "agent": {
        "allowed_domains": ["capulet.example"],
        "admins": ["nurse@capulet.example"],
        "notice": "",
    },
    "notifications": {"quiet": ""},
    "limits": {"inline_s": 2},
}
_LOOKS: Final[Sequence[tuple[Any, str]]] = (
    *((documents, "EVERY_S"), (runner, "_LOOK_S"), (expiry, "LOOK_S")),
    *((notifier, "_POLL_S"),),
)
"""How often is looked at files and clocks that nobody has changed in most hours."""
_LOOK_S: Final = 600.0
CRASHED_S: Final = 5.0
"""Seconds after which a service manager starts a service that has failed."""
QUIET_S: Final = 2 * DAY_S
"""Seconds without faults at the end, after which nothing may be open."""


class World:
    """One life while it is played.

    Attributes:
        history: what has happened.
        kills: how many times the process was killed.
    """

    def __init__(self, life: Life, directory: Path) -> None:
        self._life, self._directory = life, directory
        clock: Any = trio.lowlevel.current_clock()
        self._began = clock.current_time()
        self.history = History(lambda: clock.current_time() - self._began)
        self.invariants = Invariants(self.history)
        self.kills = 0
        self._chance = Random(f"world {life.seed}")
        self._is_over = False
        self._pause_s = 0.0
        self._armed: StepCounter | None = None

    async def play(self) -> None:
        """Play the life. Raises Violation."""
        life = self._life
        scheduler._ALLOW_DETERMINISTIC_SCHEDULING = True
        scheduler._r.seed(life.seed)
        outside = system.current()
        self._system = SimulatedSystem(life.seed)
        system.use(self._system)
        for module, name in _LOOKS:
            setattr(module, name, _LOOK_S)
        with simulated_disk() as self._disk:
            try:
                async with anyio.create_task_group() as group:
                    await self._live(group)
                    group.cancel_scope.cancel()
            except BaseExceptionGroup as many:
                found = many.subgroup(Violation)
                if found is not None:
                    raise next(_leaves(found)) from None
                raise
            finally:
                system.use(outside)

    async def _live(self, group: anyio.abc.TaskGroup) -> None:
        self._group = group
        self._xmpp = Xmpp(group)
        self._talker = Talker(self.history, self._chance)
        world = Outside(self.history, self._chance)
        settings = make_settings_of(self._directory, SETTINGS, self._talker.script)
        secret = settings.server.component_secret.get_secret_value()
        self._xmpp.add_service(AGENT, secret)
        self._kit = Kit(
            settings, group, self._xmpp, self._system, self._talker.script, make_skills(world)
        )
        reactions = {
            f"{'m' if isinstance(one, actions.Say) else 'x'}{one.number}": one.reaction
            for one in self._life.actions
            if isinstance(one, actions.Say | actions.Execute)
        }
        self._residents = {
            name: Resident(
                *(self._xmpp, f"{name}@capulet.example/home", AGENT, self.history, group),
                reactions,
                self._chance,
            )
            for name in (*PEOPLE, *CALLERS)
        }
        for name, other in zip((*PEOPLE, *CALLERS), (*PEOPLE[1:], *CALLERS, PEOPLE[0]), strict=True):
            self._residents[name].bystander = self._residents[other]
        group.start_soon(self._serve)
        for action in self._life.actions:
            await anyio.sleep(max(0.0, action.at - self.history.now()))
            self._perform(action)
        await anyio.sleep(max(0.0, self._life.days * DAY_S - self.history.now()))
        await self._rest()

    async def _rest(self) -> None:
        """Let everything end that has begun, without faults, and look at what is left."""
        self._heal()
        if self._armed is not None:
            self._armed.remove()
        for one in self._residents.values():
            one.come()
        await anyio.sleep(QUIET_S)
        self.invariants.at_rest(self._kit)
        self._is_over = True
        await self._kit.stop()

    async def _serve(self) -> None:
        """Run the service as a service manager does."""
        while not self._is_over:
            self.history.fault("start")
            try:
                await self._kit.run()
            except Exception as error:
                self.history.fault("crash", repr(error))
                if not self._kit.process.is_alive:
                    pass
                elif self._disk.broken_since_start and _is_of_disk(error):
                    self._pause_s = CRASHED_S
                else:
                    raise
            if self._kit.process.is_alive:
                self.history.fault("stop")
            else:
                await self._kit.buried()
            self._kit.process.is_alive = False
            await anyio.sleep(self._pause_s)
            self._pause_s = 0.0
            self._disk.broken_since_start = bool(self._disk.fails)

    # Actions.

    def _perform(self, action: Action) -> None:
        match action:
            case actions.Say(who=who, number=number, wish=wish):
                self._group.start_soon(self._say, who, number, wish)
            case actions.Execute():
                self._group.start_soon(self._execute, action)
            case actions.Schedule(who=who, number=number, when=when):
                self._group.start_soon(self._schedule, who, number, when)
            case actions.Away(who=who, seconds=seconds):
                self._group.start_soon(self._away, who, seconds)
            case actions.Kill(steps=steps, seconds=seconds):
                self._kill(steps, seconds)
            case actions.Stop():
                if self._kit.process.is_alive:
                    self.history.fault("stop", "an operator restarts the service")
                    self._kit.service.stop()
            case actions.Cut(seconds=seconds):
                self._group.start_soon(self._cut, seconds)
            case actions.DiskFails(seconds=seconds, how=how):
                self._group.start_soon(self._break_disk, seconds, how)
            case actions.Jump(seconds=seconds):
                self.history.fault("clock", f"jumps by {seconds:.0f} s")
                self._system.jump_s += seconds
            case actions.ModelIs(how=how, seconds=seconds):
                self._group.start_soon(self._spoil_model, how, seconds)

    async def _say(self, who: str, number: int, wish: str) -> None:
        text = f"m{number} {wish}, please. My secret is secret-{who}-{number}."
        self._residents[who].wants(text)
        await self._residents[who].say(text, f"{who}-m{number}")

    async def _execute(self, asked: actions.Execute) -> None:
        label = f"x{asked.number}"
        who = self._residents[asked.who]
        who.wants(f"{asked.skill} {label}, mode {asked.mode}")
        async with anyio.create_task_group() as group:
            for _ in range(asked.repeats):
                group.start_soon(who.execute, label, asked.skill, asked.mode)
            if asked.cancel_after is not None:
                group.start_soon(self._cancel, who, label, asked.cancel_after)
            await who.execute(label, asked.skill, asked.mode)

    async def _cancel(self, who: Resident, label: str, after: float) -> None:
        await anyio.sleep(after)
        who.wants(f"to cancel {label}")
        payload = f"<cancel xmlns='urn:fluux:agent:0#task' request='{label}'/>"
        await who.iq("set", payload, f"cancel-{label}")

    async def _schedule(self, who: str, number: int, when: str) -> None:
        text = f"/schedule add {when}: remember s{number}"
        self._residents[who].wants(text)
        await self._residents[who].say(text, f"{who}-s{number}")

    async def _away(self, who: str, seconds: float) -> None:
        await self._residents[who].go()
        await anyio.sleep(seconds)
        self._residents[who].come()

    def _kill(self, steps: int, seconds: float) -> None:
        if self._armed is not None:
            self._armed.remove()
            self._armed = None
        if not self._kit.process.is_alive:
            return

        def strike() -> None:
            if self._kit.process.is_alive:
                self.kills += 1
                self.history.fault("kill", f"{seconds:.0f} s until the next start")
                self._pause_s = seconds
                self._kit.strike()

        self._armed = StepCounter(self._kit.process, steps, strike)

    async def _cut(self, seconds: float) -> None:
        self.history.fault("cut", f"for {seconds:.3f} s")
        self._xmpp.is_up = False
        self._xmpp.disconnect(AGENT)
        await anyio.sleep(seconds)
        self._xmpp.is_up = True

    async def _break_disk(self, seconds: float, how: str) -> None:
        self.history.fault("full" if how == "full" else "error", f"disk, for {seconds:.0f} s")
        self._disk.fails = how  # type: ignore[assignment]
        self._disk.broken_since_start = True
        await anyio.sleep(seconds)
        self._disk.fails = ""
        self.history.fault("healthy", "disk")

    async def _spoil_model(self, how: str, seconds: float) -> None:
        self.history.fault("error", f"model is {how} for {seconds:.0f} s")
        self._talker.state = how
        await anyio.sleep(seconds)
        self._talker.state = ""

    def _heal(self) -> None:
        self._disk.fails = ""
        self._xmpp.is_up = True
        self._talker.state = ""


def _is_of_disk(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_of_disk, error.exceptions))
    return isinstance(error, StorageError | OSError)


def _leaves(error: BaseException) -> Any:
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from _leaves(one)
    else:
        yield error


def play(life: Life, directory: Path) -> tuple[World, Violation | None]:
    """Play a life in an event loop of its own; return the world, and what was violated."""
    worlds: list[World] = []
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)

    async def run() -> Violation | None:
        world = World(life, directory)
        worlds.append(world)
        try:
            await world.play()
        except Violation as violation:
            return violation
        return None

    backend = {"clock": MockClock(autojump_threshold=0)}
    found = anyio.run(run, backend="trio", backend_options=backend)
    return worlds[0], found
