"""Offers the skills of a source with the descriptions that were approved."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import anyio
from anyio.abc import TaskStatus

from component.features.installed_skills.descriptions import Descriptions
from component.skills.errors import DuplicateSkillError, SkillLoadError
from component.skills.skill import Skill
from component.skills.sources import Offer, SkillSource
from component.storage.errors import StorageError


class PinnedSource:
    """A source whose skills are offered with the descriptions that were approved.

    Args:
        source: offers the skills as they are now.
        descriptions: has the approvals.
    """

    def __init__(self, source: SkillSource, descriptions: Descriptions) -> None:
        self.name = source.name
        self._source = source
        self._descriptions = descriptions
        self._skills: Sequence[Skill] | None = None
        self._started = False
        self._changed = anyio.Event()

    async def run(self, offer: Offer, *, task_status: TaskStatus[None]) -> None:
        """See `SkillSource`."""
        self._started = False
        self._descriptions.follow(self.name, self._changed_now)
        failed: list[SkillLoadError] = []

        async def stop_at_failure(run: Callable[[], Awaitable[None]]) -> None:
            try:
                await run()
            except SkillLoadError as error:
                failed.append(error)
            except StorageError as error:
                failed.append(SkillLoadError(str(error)))
            group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(stop_at_failure, lambda: self._offer_changes(offer, task_status))
            group.start_soon(
                stop_at_failure, lambda: self._source.run(self._note, task_status=_Started(self))
            )
        if failed:
            raise failed[0]

    async def _offer_changes(self, offer: Offer, task_status: TaskStatus[None]) -> None:
        while True:
            await self._changed.wait()
            self._changed = anyio.Event()
            started = self._started
            if self._skills is not None:
                offer(await self._descriptions.admit(self.name, self._skills))
            if started:
                task_status.started()

    def _note(self, skills: Sequence[Skill]) -> Sequence[DuplicateSkillError]:
        self._skills = skills
        self._changed_now()
        return ()

    def started(self) -> None:
        """Note that the source has started."""
        self._started = True
        self._changed_now()

    def _changed_now(self) -> None:
        self._changed.set()


class _Started(TaskStatus[None]):
    """Tells a pinned source that its source has started."""

    def __init__(self, pinned: PinnedSource) -> None:
        self._pinned = pinned

    def started(self, value: None = None) -> None:
        self._pinned.started()
