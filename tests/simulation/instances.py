"""Plays a life of two or three instances that share a PostgreSQL database."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
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
from tests.simulation.areas import AREAS
from tests.simulation.areas.instances import areas_with
from tests.simulation.life import Life
from tests.simulation.world import CRASHED_S, SETTINGS, World

SHARED_AREAS: Final = areas_with(AREAS)
PAUSES_S: Final = (5.0, 60.0, 600.0)
"""Instances look for each other again and again, so an hour takes as long as days of one alone."""
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
    """

    quiet_s: ClassVar[float] = 3600.0
    database: Database

    def __init__(self, life: Life, directory: Path, url: str) -> None:
        self.url = url
        super().__init__(life, directory, SHARED_AREAS)

    async def play(self) -> None:
        """Play the life. Raises Violation."""
        with shared_database(self.url, lambda: self.system) as self.database, ExitStack() as stack:
            for module, values in _SLOWER:
                stack.enter_context(patch.multiple(module, **values))
            await super().play()

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
                self.database.end_process(kit.process)
                await kit.buried()
            kit.process.is_alive = False
            await anyio.sleep(self.pauses[kit])
            self.pauses[kit] = 0.0


def _is_expected(error: BaseException) -> bool:
    """Return whether an instance may end with this error: disk or database may have failed."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_expected, error.exceptions))
    return isinstance(error, StorageError | OSError)
