"""A service that nobody uses leaves the processor alone."""

from collections import Counter
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
import trio

from tests.kit import Script, anyio_backend, service

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

HOUR_S: Final = 3600.0
MOST: Final = 2_750
"""Task steps in an hour. Of these, 1,440 look for changed documents, and most others keep the
connection alive and look whether the clock was set.
"""


class Steps(trio.abc.Instrument):
    """Counts the steps of tasks, by their names."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def before_task_step(self, task: Any) -> None:
        """See `trio.abc.Instrument`."""
        self.counts[task.name] += 1


async def test_an_idle_service_rarely_wakes_up(tmp_path: Path) -> None:
    async with service(tmp_path, model=Script(otherwise="Good night.")) as kit:
        juliet = kit.peer("juliet@capulet.example/balcony")
        await juliet.ask("Good night", "Good night.")
        await anyio.sleep(HOUR_S)
        steps = Steps()
        trio.lowlevel.add_instrument(steps)
        await anyio.sleep(HOUR_S)
        trio.lowlevel.remove_instrument(steps)
    assert steps.counts.total() <= MOST, steps.counts.most_common()
