"""The source of the skills of the workers of one queue. It imports the queue when it runs."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from component import system
from component.skills.errors import SkillLoadError

if TYPE_CHECKING:
    from anyio.abc import TaskStatus

    from component.features.workers.settings import WorkersEntry
    from component.skills.sources import Offer


class WorkersSource:
    """Offers the skills of workers.

    Args:
        entry: the settings of the queue.
    """

    def __init__(self, entry: WorkersEntry) -> None:
        self.name = f"workers.{entry.queue}"
        self._entry = entry

    async def run(self, offer: Offer, *, task_status: TaskStatus[None]) -> None:
        """Offer the skills that the workers of the queue have, until cancelled.

        While no worker has a skill, or the queue cannot be reached, it stays, and a call fails at
        once. Raises SkillLoadError if the extra is not installed.
        """
        try:
            serving = await system.in_thread(
                importlib.import_module, "component.features.workers.serving"
            )
        except ImportError as error:
            raise SkillLoadError(
                "[[workers]] needs the workers extra: pip install 'xmpp-agent-component[workers]'."
            ) from error
        await serving.Serving(self._entry).run(offer, task_status)
