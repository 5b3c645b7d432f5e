"""Plays a life of two or three instances that share a PostgreSQL database."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final
from unittest.mock import patch

import anyio

from component.features.notifications import notifier
from component.features.questions import room_questions
from component.features.watches import events
from component.store import shared
from component.store.errors import StorageError
from component.tasks import leases
from tests.kit.database import Database, shared_database
from tests.kit.service import Kit, make_settings_of
from tests.servers.postgres import Postgres
from tests.simulation.areas import AREAS
from tests.simulation.areas.instances import areas_with
from tests.simulation.life import Life, draw
from tests.simulation.rules import Violation
from tests.simulation.world import CRASHED_S, SETTINGS, Lives, World, kinds, play

SHARED_AREAS: Final = areas_with(AREAS)
DAYS: Final = 0.05
PAUSES_S: Final = (5.0, 60.0, 600.0)
"""Instances look for each other again and again, so an hour takes as long as days of one alone."""
IDLE_PER_S: Final = 3.0
"""An instance that has nothing to do runs about one statement per second, and never so many."""
_SLOWER: Final[Sequence[tuple[Any, Mapping[str, float]]]] = (
    (leases, {"HEARTBEAT_S": 10.0, "DEAD_S": 60.0, "GAP_S": 30.0}),
    *((module, {"_LOOK_S": 60.0}) for module in (events, notifier, room_questions)),
    (shared, {"LOOK_S": 60.0}),
)
"""What instances do every two seconds, and how often they do it here."""


class SharedWorld(World):
    """A life of several instances.

    Attributes:
        url: where the database is.
        database: the database, as the instances see it.
        kits: the instances.
        pauses: seconds until each is started again when it has ended.
        statements_before_rest: how many statements there were until all faults had ended.
    """

    quiet_s: ClassVar[float] = 3600.0
    database: Database
    statements_before_rest = 0

    def __init__(self, life: Life, directory: Path, url: str) -> None:
        self.url = url
        super().__init__(life, directory, SHARED_AREAS)

    async def play(self) -> None:
        """Play the life. Raises Violation."""
        with shared_database(self.url, lambda: self.system) as self.database, ExitStack() as stack:
            for module, values in _SLOWER:
                stack.enter_context(patch.multiple(module, **values))
            await super().play()
            self._check_idle()

    def _check_idle(self) -> None:
        statements = self.database.statements - self.statements_before_rest
        per_second = statements / self.quiet_s / len(self.kits)
        if per_second > IDLE_PER_S:
            raise Violation(f"an idle instance runs {per_second:.1f} statements per second")

    def make_kit(self, number: int) -> Kit:
        """Return another instance."""
        sections = SETTINGS | {
            name: values for area in self.areas for name, values in area.settings.items()
        }
        directory = self.directory / f"instance-{number}"
        directory.mkdir()
        settings = make_settings_of(directory, sections, self.talker.script)
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
