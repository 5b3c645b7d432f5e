"""The source of the skills that propose."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
from anyio.abc import TaskStatus

from component import system
from component.skill_directories.proposals import ProposalFolder
from component.skills.errors import SkillLoadError
from component.skills.skill import Skill
from component.skills.sources import Offer


class ProposalSource:
    """Offers skills when the directory of proposals can be used."""

    name = "proposals"

    def __init__(self, folder: ProposalFolder, skills: Sequence[Skill]) -> None:
        self._folder = folder
        self._skills = skills

    async def run(self, offer: Offer, *, task_status: TaskStatus[None]) -> None:
        """Offer the skills. Raises SkillLoadError if the directory cannot be used."""
        try:
            await system.in_thread(self._folder.recover)
        except OSError as error:
            raise SkillLoadError(f"Proposals cannot be kept: {error}") from error
        offer(self._skills)
        task_status.started()
        await anyio.sleep_forever()
