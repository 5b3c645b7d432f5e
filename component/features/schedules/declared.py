"""The schedules that the settings declare, and those of skills that they enable."""

from collections.abc import Sequence
from typing import Final

import anyio
import msgspec
import structlog
from anyio.abc import TaskStatus

from component import system
from component.config import Settings
from component.config.skills import SkillScheduleEntry
from component.features.schedules.rows import Wish
from component.features.schedules.schedules import (
    ScheduleError,
    Schedules,
    check_params,
    definition_of,
)
from component.features.schedules.settings import ENTRIES, ScheduleEntry
from component.kernel.triggers import Work, work_of
from component.skills import Registry
from component.store import StorageError
from xep.jid import JID, JIDError

_log = structlog.get_logger("component.features.schedules")

RETRY_S: Final = 5.0
"""Seconds until schedules that could not be stored are stored again."""


def of_settings(settings: Settings) -> Sequence[Wish]:
    """Return the schedules of the settings. Raises ScheduleError: one of them says no time."""
    wishes = [_wish(entry) for entry in settings[ENTRIES]]
    for wish in wishes:
        try:
            definition_of(wish, settings.agent.zone, system.now(), declared=True)
        except ScheduleError as error:
            raise ScheduleError(f"[[schedule]] {wish.name}: {error}", error.param) from None
    return wishes


def of_skills(settings: Settings, registry: Registry) -> Sequence[Wish]:
    """Return the schedules of skills that the settings enable.

    An unknown skill may be one of a directory, which is offered later: then it is left out. Raises
    ScheduleError: a skill is unknown or brings no schedule, nobody is named for whom it runs, or
    the time or the parameters are not valid.
    """
    return [
        of_skill(entry, settings, registry)
        for entry in settings.skills.schedule
        if not settings.skill_roots or registry.get(entry.skill) is not None
    ]


def of_skill(entry: SkillScheduleEntry, settings: Settings, registry: Registry) -> Wish:
    """Return the schedule of a skill that the settings enable. Raises ScheduleError."""
    try:
        wish = _skill_wish(entry, registry)
        definition_of(wish, settings.agent.zone, system.now(), declared=True)
    except ScheduleError as error:
        raise ScheduleError(f"[[skills.schedule]] {entry.skill}: {error}", error.param) from None
    return wish


def _skill_wish(entry: SkillScheduleEntry, registry: Registry) -> Wish:
    skill = registry.get(entry.skill)
    if skill is None or skill.schedule is None:
        what = "There is no such skill" if skill is None else "The skill brings no schedule"
        raise ScheduleError(f"{what}: remove the entry, or correct the name.", "skill")
    brought = skill.schedule
    principal = entry.principal or brought.principal
    if not principal:
        raise ScheduleError("Say for whom it runs: set principal.", "skill")
    params = msgspec.Raw(msgspec.json.encode({**brought.params, **entry.params}))
    check_params(skill, params)
    try:
        person = JID.parse(principal).bare
    except JIDError as error:
        raise ScheduleError(
            f"The principal of the skill is no address: {error}.", "skill"
        ) from None
    return Wish(
        when=entry.when or brought.when,
        name=entry.skill,
        zone=entry.zone or brought.zone,
        missed=brought.missed,
        work=Work(
            agent=entry.agent,
            principal=person,
            skill=entry.skill,
            params=params,
            tell=tuple(JID.parse(each).bare for each in entry.tell),
            silent=entry.silent,
            priority=entry.priority,
        ),
    )


def _wish(entry: ScheduleEntry) -> Wish:
    return Wish(
        when=entry.when,
        name=entry.name,
        zone=entry.zone,
        missed=entry.missed,
        missed_most=entry.missed_most,
        work=work_of(entry),
    )


class DeclaredSchedules:
    """Keeps the schedules of the settings, and of skills that are offered now, in the database."""

    def __init__(self, schedules: Schedules, settings: Settings, registry: Registry) -> None:
        self._schedules = schedules
        self._settings = settings
        self._registry = registry
        self._stored: Sequence[Wish] = ()
        """The schedules of skills that this instance has stored last."""
        self._changed = anyio.Event()
        """Set when the skills that are offered have changed."""
        self._problems: dict[str, str] = {}
        """Why schedules of skills do not fire, by skill; each is logged once."""

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Store them, then follow the skills until cancelled. Raises StorageError before it has
        started: they cannot be stored.
        """
        await self._schedules.configure(of_settings(self._settings))
        self._stored = self._of_skills()
        await self._schedules.configure(self._stored, "skill")
        task_status.started()
        if self._settings.skills.schedule:
            await self._follow_skills()

    async def _follow_skills(self) -> None:
        """Start and stop the schedules of skills that are approved, changed or revoked. An instance
        stores them only when they have changed for itself: another one may have read an approval
        before this one does.
        """
        self._registry.listen(self._skills_changed)
        while True:
            self._changed = anyio.Event()
            wishes = self._of_skills()
            if wishes != self._stored:
                try:
                    await self._schedules.configure(wishes, "skill")
                except StorageError as error:
                    _log.warning("cannot store the schedules of skills", reason=str(error))
                    await anyio.sleep(RETRY_S)
                    continue
                self._stored = wishes
            await self._changed.wait()

    def _skills_changed(self) -> None:
        self._changed.set()

    def _of_skills(self) -> Sequence[Wish]:
        """Return the schedules of the skills that are offered now, those of directories too."""
        found: list[Wish] = []
        problems: dict[str, str] = {}
        for entry in self._settings.skills.schedule:
            if self._registry.get(entry.skill) is None:
                problems[entry.skill] = "its skill is not offered"
                continue
            try:
                found.append(of_skill(entry, self._settings, self._registry))
            except ScheduleError as error:  # of a skill of a directory: the service goes on
                problems[entry.skill] = str(error)
        for skill, problem in problems.items():
            if self._problems.get(skill) != problem:
                _log.warning("a schedule does not fire", skill=skill, reason=problem)
        self._problems = problems
        return found
