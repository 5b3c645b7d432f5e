"""The skills by which agents add schedules and reminders for people, and list and change them.

A person confirms what an agent removes, and what it adds after it has read text of strangers.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from component.commands import shorten
from component.features.schedules.node import row_of
from component.features.schedules.rows import Missed, Schedule, Wish
from component.features.schedules.schedules import ScheduleError, Schedules
from component.features.schedules.timing import Cron
from component.features.schedules.when import local_time, timing_text
from component.kernel.triggers import work_asked_in
from component.skills.context import Context
from component.skills.declare import own_skill
from component.skills.errors import InvalidParam, SkillError
from component.skills.inputs import Arguments
from component.skills.outputs import JSON, TEXT, Output, SkillResult
from component.skills.skill import Skill
from component.skills.spec import OPTIONAL
from component.store.errors import StorageError
from component.zones import is_offset, zone_named
from xep.jid import JID

Action: TypeAlias = Literal["pause", "resume", "remove"]
Name = Annotated[str, Meta(description="Name or id of the schedule.", max_length=64)]


class NewSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of the skill that adds a schedule.

    Args:
        when: When it fires, in the person's time, such as: every monday at 9; every day at 9, 12
            and 18; every weekday at 9 except friday; every second friday at 9; every 30 minutes; in
            20 minutes; 2026-12-24 18:00; or a cron expression such as 0 9 * * mon.
        goal: What you are to do when it fires, in full sentences that can be understood without
            this conversation. For a reminder: Remind the person to …
        name: Short name of one word, such as weekly-report.
        zone: Time zone of `when`, such as Europe/Paris. Default: that of the person. Give it only
            if the person names another one.
        skill: Skill to run instead of a goal.
        params: Parameters of that skill.
        missed: What becomes of firings that were missed while I was not running.
    """

    when: Annotated[str, Meta(min_length=1, max_length=200)]
    goal: Annotated[str, Meta(max_length=20_000)] = ""
    name: Annotated[str, Meta(max_length=64)] = ""
    zone: str = ""
    skill: str = ""
    params: dict[str, Any] | None = None
    missed: Missed = "once"


def work_text(schedule: Schedule) -> str:
    """Return what a schedule does, in a few words."""
    work = schedule.definition.work
    return shorten(" ".join((work.goal or f"run {work.skill}").split()), 100)


def line_of(schedule: Schedule) -> str:
    """Return a schedule in one line, for people."""
    what = work_text(schedule)
    definition, zone = schedule.definition, schedule.definition.zone
    if zone_named(zone) is None:  # this system no longer has it
        zone = "UTC"
    paused = schedule.state == "paused"
    following = "paused" if paused else f"next {local_time(schedule.due, zone)}"
    when = timing_text(definition.timing, zone, definition.when)
    return f"- {schedule.name}: {when}, {following}: {what}"


def added_text(schedule: Schedule) -> str:
    """A schedule that was added, for people, and what its times do not follow."""
    return f"{line_of(schedule)}{only_an_offset(schedule)}"


def only_an_offset(schedule: Schedule) -> str:
    """Return a line that says that the times of a schedule do not follow summer time, if so."""
    zone = schedule.definition.zone
    if not (is_offset(zone) and isinstance(schedule.definition.timing, Cron)):
        return ""
    return (
        f"\nI know only how far your clock is from UTC ({zone}), so these times do not follow"
        " summer time. To name your time zone, write it after the time, such as: every monday at 9"
        " Europe/Paris"
    )


async def change(
    schedules: Schedules, action: Action, owner: JID | None, name: str
) -> tuple[Schedule, str]:
    """Pause, resume or remove a schedule; return it, and for people what was done. Raises
    ScheduleError and StorageError.
    """
    match action:
        case "pause":
            found = await schedules.pause(owner, name)
            return found, f"Paused {found.name}."
        case "resume":
            found = await schedules.resume(owner, name)
            return found, f"Resumed:\n{line_of(found)}"
        case "remove":
            found = await schedules.remove(owner, name)
            return found, f"Removed {found.name}."


_COMMON: Final[Mapping[str, Any]] = {
    "open_world": False,
    "tags": ("schedule", "reminder", OPTIONAL),
    "typical_duration": 0.05,
    "cost_usd": 0.0,
}
_WRITES: Final[Mapping[str, Any]] = {**_COMMON, "capabilities": ("schedule:write",)}
_STATE: Final[Mapping[str, Any]] = {
    **_WRITES,
    "idempotent": True,
    "destructive": False,  # nobody has to confirm it
    "tags": ("schedule", OPTIONAL),
}


def schedule_skills(schedules: Callable[[], Schedules]) -> tuple[Skill, ...]:
    """Return the skills `schedule_add`, `schedule_list`, `schedule_pause`, `schedule_resume` and
    `schedule_remove`. `schedules` gives the schedules when one of them is called: skills are
    declared before the database is open.
    """

    async def complete(requester: JID, target: JID, arguments: Arguments) -> Arguments:
        """Fill in the zone, which the person confirms, and refuse a time that cannot be read."""
        assert isinstance(arguments, NewSchedule)
        when = arguments.when
        try:
            zone = await schedules().zone(requester, target, when=when, given=arguments.zone)
            await schedules().check_time(when, zone)
        except ScheduleError as error:
            raise InvalidParam(error.param, str(error).rstrip(".")) from None
        return msgspec.structs.replace(arguments, zone=zone)

    @own_skill(
        title="Add a schedule",
        question="May I do this {when}[ ({zone} time)][, as {name}][: {goal}][: run {skill}]"
        "[ with {params}][ (missed times: {missed})]?",
        undo="/schedule remove NAME",
        complete=complete,
        examples=("Remind me every Monday at nine to write the report.",),
        **_WRITES,
    )
    async def schedule_add(new: NewSchedule, /, context: Context) -> str:
        """Do something later or repeatedly for the person, such as a reminder or a report.

        Use it when the person asks for something at a certain time, after some time, or regularly.
        """
        work = work_asked_in(
            context,
            goal=new.goal or None,
            skill=new.skill or None,
            params=msgspec.Raw(msgspec.json.encode(new.params or {})),
        )
        wish = Wish(when=new.when, work=work, name=new.name, zone=new.zone, missed=new.missed)
        with _as_skill_error():
            added = await schedules().add(wish, "agent")
        return f"Added the schedule:\n{added_text(added)}"

    @own_skill(
        title="List schedules",
        question="May I list your schedules and reminders?",
        read_only=True,
        capabilities=("schedule:read",),
        output_media_types=(TEXT, JSON),
        **_COMMON,
    )
    async def schedule_list(context: Context) -> SkillResult:
        """List the schedules and reminders of the person."""
        with _as_skill_error():
            found = await schedules().list(JID.parse(context.principal))
        data = msgspec.json.encode([row_of(one) for one in found]).decode()
        return SkillResult(
            outputs=(
                Output(name="list", text=list_text(found)),
                Output(name="data", text=data, media_type=JSON),
            )
        )

    async def changed(action: Action, context: Context, name: str) -> str:
        with _as_skill_error():
            return (await change(schedules(), action, JID.parse(context.principal), name))[1]

    @own_skill(title="Pause a schedule", question="May I pause {name}?", **_STATE)
    async def schedule_pause(context: Context, name: Name) -> str:
        """Keep a schedule of the person from firing until it is resumed."""
        return await changed("pause", context, name)

    @own_skill(title="Resume a schedule", question="May I resume {name}?", **_STATE)
    async def schedule_resume(context: Context, name: Name) -> str:
        """Let a paused schedule of the person fire again."""
        return await changed("resume", context, name)

    @own_skill(title="Remove a schedule", question="May I remove the schedule {name}?", **_WRITES)
    async def schedule_remove(context: Context, name: Name) -> str:
        """Remove a schedule or reminder of the person. The person is asked to confirm it."""
        return await changed("remove", context, name)

    return (schedule_add, schedule_list, schedule_pause, schedule_resume, schedule_remove)


def list_text(found: Sequence[Schedule]) -> str:
    """Schedules as a list, for people."""
    return "\n".join(map(line_of, found)) or "There are no schedules."


@contextmanager
def _as_skill_error() -> Iterator[None]:
    try:
        yield
    except ScheduleError as error:
        if error.param in ("when", "zone", "goal", "skill", "params", "name"):
            raise InvalidParam(error.param, str(error).rstrip(".")) from None
        raise SkillError(str(error)) from None
    except StorageError:
        raise SkillError("The database is temporarily unavailable.") from None
