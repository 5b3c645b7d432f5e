"""The schedules of people: add, list, pause, resume and remove them, within bounds; and those that
the settings declare, or enable for skills.
"""

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio
import msgspec
import structlog
from anyio.abc import TaskStatus

from component import system
from component.config import Settings
from component.config.skills import SkillScheduleEntry
from component.features.schedules import rows
from component.features.schedules.rows import (
    DECLARED,
    MOST_MISSED,
    Definition,
    Origin,
    Schedule,
    State,
    Terms,
    Wish,
    instant_of,
)
from component.features.schedules.settings import ENTRIES, ScheduleLimits
from component.features.schedules.timing import (
    Timing,
    TimingError,
    next_after,
    shortest_interval,
    zone_of,
)
from component.features.schedules.when import plain_text, read_timing, split_zone
from component.kernel.triggers import Work, work_of
from component.skills import InvalidParam, Registry, Skill, View, prepare
from component.store import StorageError
from component.store.database import Database
from component.store.outages import log_failure
from component.store.storage import Storage
from xep.jid import JID, JIDError

if TYPE_CHECKING:
    from component.features.schedules.runner import ScheduleRunner
    from component.kernel.contacts import PersonZones

_log = structlog.get_logger("component.schedules")

_NAME: Final = r"[^\W_][\w.-]{0,63}"
_LONGEST_GOAL: Final = 20_000
_ID_BYTES: Final = 4


class ScheduleError(Exception):
    """A schedule cannot be made or changed. The message is a sentence for the person who asked.
    `param` names the invalid parameter: `name`, `when`, `zone`, `goal`, `skill`, `params` or
    `missed`.
    """

    def __init__(self, sentence: str, param: str) -> None:
        """Make it of the sentence and the invalid parameter."""
        super().__init__(sentence)
        self.param = param


class Schedules:
    """The schedules. `view` gives the skills that a principal may use; None where skills cannot be
    looked at. `runner` is None while no service runs. Without `zones`, which finds the time zone of
    a person, all times are in UTC.
    """

    def __init__(
        self,
        storage: Storage,
        limits: ScheduleLimits,
        view: Callable[[JID], View] | None = None,
        runner: "ScheduleRunner | None" = None,
        *,
        goals: bool = True,
        zones: "PersonZones | None" = None,
    ) -> None:
        self._zones = zones
        self._default_zone = "UTC" if zones is None else zones.default
        self._storage = storage
        self._limits = limits
        self._view = view
        self._runner = runner
        self._goals = goals

    async def add(self, wish: Wish, origin: Origin) -> Schedule:
        """Add a schedule; its owner is the principal of its work. Raises ScheduleError and
        StorageError.
        """
        now = await self._now()
        zone = await self.zone(wish.work.principal, when=wish.when, given=wish.zone)
        self._check_work(wish.work)
        wish = msgspec.structs.replace(wish, zone=zone)
        definition = definition_of(wish, self._default_zone, now)
        self._check_interval(definition.timing, now)
        id_ = system.token_hex(_ID_BYTES)
        schedule = Schedule(
            id=id_,
            owner=wish.work.principal.bare,
            name=_checked_name(wish.name) if wish.name else id_,
            origin=origin,
            definition=definition,
            due=_first(definition.timing, now),
        )
        refusal = await self._storage.write(partial(self._insert, schedule=schedule))
        if refusal is not None:
            raise refusal
        self._changed(schedule)
        return schedule

    async def zone(
        self, person: JID, at: JID | None = None, *, when: str = "", given: str = ""
    ) -> str:
        """Return the time zone of a time that a person says: the one that the time names, the one
        that is given with it, or that of the person. The client of a full JID is asked for its
        time, from the address `at` of this service. Raises ScheduleError and StorageError.
        """
        try:
            named = split_zone(plain_text(when), given)[1]
        except TimingError as error:
            raise ScheduleError(sentence_of(error), "when") from None
        if named or self._zones is None:
            return named or self._default_zone
        return await self._zones.of(person, at)

    async def check_time(self, when: str, zone: str) -> None:
        """Raise ScheduleError if a schedule with this time could not be added now."""
        now = await self._now()
        timing = _timing(when, zone, now)
        self._check_interval(timing, now)
        _first(timing, now)

    def _check_interval(self, timing: Timing, now: datetime) -> None:
        shortest = shortest_interval(timing, now)
        if shortest is not None and shortest < timedelta(seconds=self._limits.shortest_s):
            raise ScheduleError(
                f"It would fire every {shortest.total_seconds():.0f} seconds; the shortest interval"
                f" is {self._limits.shortest_s} seconds.",
                "when",
            )

    def _check_work(self, work: Work) -> None:
        if (work.skill is None) == (work.goal is None):
            raise ScheduleError("Say either what I should do, or which skill to run.", "goal")
        if work.goal is not None and not 0 < len(work.goal.strip()) <= _LONGEST_GOAL:
            raise ScheduleError(
                f"Say what I should do, in at most {_LONGEST_GOAL} characters.", "goal"
            )
        if work.goal is not None and not self._goals:
            raise ScheduleError(
                "I have no language model and can only run skills: name one.", "goal"
            )
        if work.skill is None or self._view is None:
            return
        skill = self._view(work.principal).get(work.skill)
        if skill is None:
            raise ScheduleError(f"There is no skill called {work.skill[:64]!r}.", "skill")
        check_params(skill, work.params)

    def _insert(self, database: Database, schedule: Schedule) -> ScheduleError | None:
        most = self._limits.per_person
        if rows.count(database, schedule.owner) >= most:
            return ScheduleError(
                f"There are {most} schedules, which is the maximum. Remove one first.", "name"
            )
        if not rows.insert(database, schedule):
            return ScheduleError(f"There is a schedule called {schedule.name!r} already.", "name")
        return None

    async def list(self, owner: JID | None, agent: str | None = None) -> Sequence[Schedule]:
        """Return the schedules of an owner, or of all, that an agent works for; the next one first.
        Raises StorageError.
        """
        return await self._storage.read(partial(rows.listed, owner=owner, agent=agent))

    async def pause(self, owner: JID | None, name: str) -> Schedule:
        """Keep a schedule from firing. Raises ScheduleError and StorageError."""
        found = await self._named(owner, name)
        sentence = f"The schedule {found.name} is paused already."
        return await self._set_state(found, "paused", found.due, sentence)

    async def resume(self, owner: JID | None, name: str) -> Schedule:
        """Let a schedule fire again; firings during the pause are not made up for. Raises
        ScheduleError and StorageError.
        """
        found, now = await self._named(owner, name), await self._now()
        due = next_after(found.definition.timing, now)
        if due is None:
            raise ScheduleError(
                f"The time of the schedule {found.name} has passed: remove it and add another one.",
                "name",
            )
        sentence = f"The schedule {found.name} is not paused."
        return await self._set_state(found, "active", due, sentence)

    async def _set_state(
        self, found: Schedule, state: State, due: datetime, refusal: str
    ) -> Schedule:
        if not await self._storage.write(lambda db: rows.set_state(db, found.id, state, due)):
            raise ScheduleError(refusal, "name")
        changed = msgspec.structs.replace(found, state=state, due=due)
        self._changed(changed)
        return changed

    async def remove(self, owner: JID | None, name: str) -> Schedule:
        """Remove a schedule; running work continues. Raises ScheduleError and StorageError."""
        found = await self._named(owner, name)
        if found.origin in DECLARED:
            raise ScheduleError(
                f"The schedule {found.name} is in the settings of the service: it can be paused,"
                " and only an administrator can remove it there.",
                "name",
            )
        await self._storage.write(partial(rows.remove, id_=found.id))
        if self._runner is not None:
            self._runner.node.removed(found)
        return found

    async def configure(self, wishes: Sequence[Wish], origin: Origin = "settings") -> None:
        """Make the schedules that the settings declare those that are given; each has a name.

        One that has not changed keeps when it is due, and whether it is paused. `origin` says
        whether the settings define them, or enable those that skills bring. Raises StorageError,
        and ScheduleError for one that `definition_of` refuses.
        """
        now = await self._now()
        wanted = {
            _declared_id(wish, origin): (
                wish.name,
                definition_of(wish, self._default_zone, now, declared=True),
            )
            for wish in wishes
        }

        def op(database: Database) -> list[Schedule]:
            taken = list[Schedule]()
            known = {one.id: one for one in rows.of_origin(database, origin)}
            for id_, each in known.items():
                if id_ not in wanted or each.owner != wanted[id_][1].work.principal:
                    rows.remove(database, id_)
            for id_, (name, definition) in wanted.items():
                before = known.get(id_)
                if before is not None and before.owner == definition.work.principal:
                    _redefine(database, before, definition, now)
                elif (first := next_after(definition.timing, now)) is not None:
                    schedule = Schedule(
                        id=id_,
                        owner=definition.work.principal,
                        name=name,
                        origin=origin,
                        definition=definition,
                        due=first,
                    )
                    if not rows.insert(database, schedule):
                        taken.append(schedule)
            return taken

        for each in await self._storage.write(op):
            _log.error(
                "a schedule of the settings is left out, because its principal has another one of"
                " this name: give it another name",
                name=each.name,
                principal=str(each.owner),
            )
        if self._runner is not None:
            self._runner.wake()

    def _changed(self, schedule: Schedule) -> None:
        if self._runner is not None:
            self._runner.wake()
            self._runner.node.changed(schedule)

    async def _named(self, owner: JID | None, name: str) -> Schedule:
        """Return a schedule by its name or id; without an owner by its id alone."""
        found = await self._storage.read(
            lambda db: rows.get(db, name) if owner is None else rows.named(db, owner, name)
        )
        if found is None:
            raise ScheduleError(f"There is no schedule called {name[:64]!r}.", "name")
        return found

    async def _now(self) -> datetime:
        return instant_of(await self._storage.read(lambda db: db.settled)).replace(tzinfo=UTC)


def _declared_id(wish: Wish, origin: Origin) -> str:
    # A skill can have its schedule for several people.
    return f"{origin}.{wish.name}" + (f".{wish.work.principal}" if origin == "skill" else "")


def definition_of(wish: Wish, zone: str, now: datetime, *, declared: bool = False) -> Definition:
    """Return the definition of a wish. `zone` is the default; `declared` ones are of the settings.
    Raises ScheduleError.
    """
    zone = wish.zone or zone
    timing = _timing(wish.when, zone, now, declared=declared)
    if not 1 <= wish.missed_most <= MOST_MISSED:
        raise ScheduleError(
            f"The maximum of missed firings is between 1 and {MOST_MISSED}.", "missed"
        )
    values = {name: getattr(wish, name) for name in Terms.__struct_fields__}
    zone = split_zone(plain_text(wish.when), zone)[1]
    return Definition(timing=timing, **values | {"when": wish.when.strip(), "zone": zone})


def _timing(when: str, zone: str, now: datetime, *, declared: bool = False) -> Timing:
    try:
        zone_of(zone)
    except TimingError as error:
        raise ScheduleError(sentence_of(error), "zone") from None
    try:
        return read_timing(when, zone, now, declared=declared)
    except TimingError as error:
        raise ScheduleError(sentence_of(error), "when") from None


def _redefine(database: Database, before: Schedule, now: Definition, at: datetime) -> None:
    known = before.definition
    due: datetime | None = before.due
    if (known.when, known.zone) == (now.when, now.zone):
        now = msgspec.structs.replace(now, timing=known.timing)  # intervals keep their start
    else:
        due = next_after(now.timing, at)
    if due is None:
        rows.remove(database, before.id)
    elif now != known:
        rows.redefine(database, before.id, now, due)


def _first(timing: Timing, now: datetime) -> datetime:
    first = next_after(timing, now)
    if first is None:
        raise ScheduleError("It would never fire.", "when")
    return first


def _checked_name(name: str) -> str:
    if not re.fullmatch(_NAME, name):
        raise ScheduleError(
            "The name of a schedule is one word of at most 64 letters, digits, `.`, `-` and `_`.",
            "name",
        )
    return name


def check_params(skill: Skill, params: msgspec.Raw) -> None:
    """Raise ScheduleError if a skill cannot be called with these parameters."""
    try:
        prepare(skill, (), bytes(params))
    except InvalidParam as error:
        raise ScheduleError(f"The parameters do not fit {skill.name}: {error}.", "params") from None


def sentence_of(error: TimingError) -> str:
    """Return the message of an error as a sentence."""
    text = str(error)
    return f"{text[:1].upper()}{text[1:]}."


RETRY_S: Final = 5.0
"""Seconds until schedules that could not be stored are stored again."""


def of_settings(settings: Settings) -> Sequence[Wish]:
    """Return the schedules of the settings. Raises ScheduleError: one of them says no time."""
    declared = ("when", "name", "zone", "missed", "missed_most")
    wishes = [
        Wish(work=work_of(entry), **{key: getattr(entry, key) for key in declared})
        for entry in settings[ENTRIES]
    ]
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
        try:
            while True:
                self._changed = anyio.Event()
                wishes = self._of_skills()
                if wishes != self._stored:
                    try:
                        await self._schedules.configure(wishes, "skill")
                    except StorageError as error:
                        log_failure(_log, "cannot store the schedules of skills", error)
                        await anyio.sleep(RETRY_S)
                        continue
                    self._stored = wishes
                await self._changed.wait()
        finally:
            self._registry.unlisten(self._skills_changed)

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
