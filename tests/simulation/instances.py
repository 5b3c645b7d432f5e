"""Plays a life of two or three instances that share a PostgreSQL database."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import anyio

from component.features.balancing import connections as balancing
from component.features.notifications import notifier
from component.features.questions import room_questions
from component.features.watches import events
from component.features.webhooks import replies
from component.link.connection import connection
from component.store import shared
from component.store.errors import StorageError
from component.tasks import leases
from tests.kit.database import Database, shared_database
from tests.kit.service import Kit, make_settings_of
from tests.servers.postgres import Postgres
from tests.simulation.areas import AREAS
from tests.simulation.areas.instances import Instances
from tests.simulation.areas.peers import Peers
from tests.simulation.life import DAY_S, Life, draw
from tests.simulation.rules import Violation
from tests.simulation.world import CRASHED_S, QUIET_S, Lives, World, kinds, play

SHARED_AREAS: Final = (*(area for area in AREAS if area is not Peers), Instances)
"""Without agents of other domains: these lives have the time and the services of one domain."""
DAYS: Final = 0.05
PAUSES_S: Final = (5.0, 60.0, 600.0)
"""Instances look for each other again and again, so an hour takes as long as days of one alone."""
_IDLE_S: Final = 3600.0
"""Seconds without faults in which the statements of instances that have nothing to do count."""
IDLE_PER_S: Final = 3.0
"""An instance that has nothing to do runs about one statement per second, and never so many."""
_STANDBY_S: Final = 600.0
"""Seconds between two attempts of an instance to connect that has to wait for its turn."""
_ALONE_S: Final = 2 * _STANDBY_S
_LOOKS: Final[Sequence[tuple[Any, str]]] = (
    *((module, "_LOOK_S") for module in (events, notifier, replies, room_questions)),
    (shared, "LOOK_S"),
)
"""How often instances look at the database for what others have changed."""


@contextmanager
def _slower(heartbeat_s: float, look_s: float) -> Iterator[None]:
    """Let instances do more seldom what they do every two seconds, for as long as a context."""
    lease = {"HEARTBEAT_S": heartbeat_s, "GAP_S": 3 * heartbeat_s, "DEAD_S": 6 * heartbeat_s}
    with ExitStack() as stack:
        stack.enter_context(patch.multiple(leases, **lease))
        for module, name in _LOOKS:
            stack.enter_context(patch.object(module, name, look_s))
        yield


class SharedWorld(World):
    """A life of several instances.

    Attributes:
        url: where the database is.
        database: the database, as the instances see it.
        kits: the instances.
        pauses: seconds until each is started again when it has ended.
    """

    database: Database

    def __init__(self, life: Life, directory: Path, url: str) -> None:
        self.url = url
        super().__init__(life, directory, SHARED_AREAS)

    async def play(self) -> None:
        """Play the life. Raises Violation."""
        with (
            shared_database(self.url, lambda: self.system) as self.database,
            _slower(heartbeat_s=10.0, look_s=60.0),
        ):
            await super().play()

    def jump(self, seconds: float) -> None:
        """Let the wall clock of the instances jump: questions expire by that of the database."""
        self.history.fault("clock", f"of instances, not of the database, jumps by {seconds:.0f} s")
        self.system.jump_s += seconds

    async def rest(self) -> None:
        """Let the time without faults pass: look what instances do that have nothing to do, and let
        them do that more seldom then.
        """
        before = self.database.statements
        await anyio.sleep(_IDLE_S)
        per_second = (self.database.statements - before) / _IDLE_S / len(self.kits)
        if per_second > IDLE_PER_S:
            self.rules.fail(
                Violation(f"an idle instance runs {per_second:.1f} statements per second")
            )
        until = anyio.current_time() + QUIET_S - _IDLE_S
        with (
            _slower(heartbeat_s=900.0, look_s=900.0),
            patch.object(balancing, "_LOOK_S", 900.0),
            patch.object(connection, "_STANDBY_S", _STANDBY_S),
        ):
            self._pause(self.kits, 0.0)  # so that they wait longer for their turn to connect
            await anyio.sleep(DAY_S)
            for kit in self.kits:
                self._pause([one for one in self.kits if one is not kit], _ALONE_S)
                await anyio.sleep(2 * _ALONE_S)
            await anyio.sleep(until - anyio.current_time())

    def _pause(self, kits: Sequence[Kit], seconds: float) -> None:
        """Stop instances, and start them again later. Another one connects, and sends what it has
        to say: what people have written belongs to the instance that has received it.
        """
        for kit in kits:
            self.pauses[kit] = seconds
            kit.service.stop()

    def make_kit(self, number: int) -> Kit:
        """Return another instance."""
        directory = self.directory / f"instance-{number}"
        directory.mkdir()
        settings = make_settings_of(directory, self.sections, self.talker.script)
        skills = [skill for area in self.areas for skill in area.skills()]
        return Kit(
            *(settings, self.group, self.xmpp, self.system, self.talker.script, skills), self.disk
        )

    def name(self, kit: Kit) -> str:
        """Return what an instance is called in the history."""
        return f"instance {self.kits.index(kit)}"

    async def serve(self, kit: Kit) -> None:
        """Run an instance as a service manager does."""
        self.kits.append(kit)
        name = self.name(kit)
        while not self._is_over:
            self.history.fault("start", name)
            try:
                await kit.run()
            except Exception as error:
                if kit.process.is_alive:
                    about = repr(error).replace(str(self.directory), "")
                    self.history.fault("crash", f"{name}: {about}")
                    if not _is_expected(error):
                        raise
                    self.pauses[kit] = CRASHED_S
            if kit.process.is_alive:
                self.history.fault("stop", name)
            else:
                await kit.buried()
            kit.process.is_alive = False
            await anyio.sleep(self.pauses[kit])
            self.pauses[kit] = 0.0


@contextmanager
def shared_lives(days: float | None, place: Path) -> Iterator[Lives]:
    """Run a server for the duration of the context, which has a database for each life.

    Args:
        days: how long a life is.
        place: where the instances have their files.
    """
    with Postgres() as server:

        def play_one(life: Life) -> tuple[World, Violation | None]:
            with server.migrated_database() as url:
                return play(life, place, partial(SharedWorld, url=url))

        yield Lives(partial(draw_shared, days=days or DAYS), play_one)


def draw_shared(seed: int, days: float = DAYS) -> Life:
    """Draw a life of several instances."""
    return draw(seed, days, kinds(SHARED_AREAS), PAUSES_S)


def _is_expected(error: BaseException) -> bool:
    """Return whether an instance may end with this error: disk or database may have failed."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_expected, error.exceptions))
    return isinstance(error, StorageError | OSError)
