"""Starts work that was triggered, as a task that is recorded once."""

from typing import Protocol

from component.proactive.work import Trigger, Work


class Starter(Protocol):
    """Starts work for schedules, watches, webhooks and the presence of people."""

    async def start(self, trigger: Trigger, work: Work) -> str | None:
        """Record the work as a task once for each (source, name, key) of a trigger.

        When this returns, the task is on disk, whatever happens to this process. Returns the
        task's id, or None if the same trigger was recorded before, by this or another instance.

        Raises:
            StorageError: the database refuses; try again later.
            StanzaError: the work was refused and trying again does not help before something
                changes: the principal has lost the right, the budget is spent, the skill does not
                exist. Its text is a sentence for people.
        """
