"""The work that the settings start: schedules and watches."""

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from component.budget.protocol import Payer
from component.proactive.conditions import Condition
from component.proactive.schedules import (
    ScheduleError,
    ScheduleLimits,
    Wish,
    check_params,
    defined,
)
from component.proactive.watch import Rate, Watch
from component.proactive.work import Work
from component.settings import Settings
from component.settings.schedules import ScheduleEntry
from component.settings.skills import SkillScheduleEntry
from component.settings.watches import WatchEntry, read_rate
from component.settings.work import WorkEntry, read_payer
from component.skills import Registry
from xep.jid import JID, JIDError


def configured_watches(settings: Settings) -> Sequence[Watch]:
    """Return the watches of the settings."""
    return [_watch(entry) for entry in settings.watch]


def _watch(entry: WatchEntry) -> Watch:
    return Watch(
        name=entry.name,
        agent=entry.agent,
        principal=JID.parse(entry.principal),
        service=JID.parse(entry.service),
        node=entry.node,
        nick=entry.nick,
        where=tuple(Condition(**each.model_dump()) for each in entry.where),
        json=entry.json_filter,
        skill=entry.skill,
        goal=entry.goal,
        params=msgspec.Raw(msgspec.json.encode(entry.params)),
        tell=tuple(map(JID.parse, entry.tell)),
        silent=entry.silent,
        payer=_payer(entry),
        budget_usd=entry.budget,
        rate=Rate(*read_rate(entry.rate)),
        thinning=entry.thinning,
        starts_per_hour=entry.starts_per_hour,
        priority=entry.priority,
        template=entry.template,
        deliver=entry.deliver,
    )


def schedule_limits(settings: Settings) -> ScheduleLimits:
    """Return the bounds of the schedules that people make."""
    said = settings.schedules
    return ScheduleLimits(per_person=said.per_person, shortest_s=said.shortest_s, zone=said.zone)


def schedule_wishes(settings: Settings) -> Sequence[Wish]:
    """Return the schedules of the settings. Raises ScheduleError: one of them says no time."""
    wishes = [_wish(entry) for entry in settings.schedule]
    for wish in wishes:
        try:
            defined(wish, settings.schedules.zone, datetime.now(UTC), declared=True)
        except ScheduleError as error:
            raise ScheduleError(f"[[schedule]] {wish.name}: {error}", error.param) from None
    return wishes


def skill_schedules(settings: Settings, registry: Registry) -> Sequence[Wish]:
    """The schedules of skills that the settings enable.

    An unknown skill may be one of a directory, which is offered later: then it is left out.

    Raises ScheduleError: a skill is unknown or brings no schedule, nobody is named for whom it
    runs, or the time or the parameters are not valid.
    """
    return [
        skill_schedule(entry, settings, registry)
        for entry in settings.skills.schedule
        if not settings.skill_roots or registry.get(entry.skill) is not None
    ]


def skill_schedule(entry: SkillScheduleEntry, settings: Settings, registry: Registry) -> Wish:
    """The schedule of a skill that the settings enable. Raises ScheduleError."""
    try:
        wish = _skill_wish(entry, registry)
        defined(wish, settings.schedules.zone, datetime.now(UTC), declared=True)
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
        work=msgspec.structs.replace(
            work_of(entry), params=msgspec.Raw(msgspec.json.encode(entry.params))
        ),
    )


def work_of(entry: WorkEntry) -> Work:
    """Return the work that an entry of the settings starts. The caller sets its parameters, which
    can depend on the event.
    """
    return Work(
        agent=entry.agent,
        principal=JID.parse(entry.principal).bare,
        skill=entry.skill or None,
        goal=entry.goal or None,
        tell=tuple(JID.parse(person).bare for person in entry.tell),
        silent=entry.silent,
        payer=_payer(entry),
        budget_usd=entry.budget,
        priority=entry.priority,
        template=entry.template,
        deliver=entry.deliver,
    )


def _payer(entry: WorkEntry) -> Payer | None:
    return Payer(*read_payer(entry.payer)) if entry.payer else None
