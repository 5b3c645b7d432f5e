"""The command about schedules: list, add, pause, resume and remove them. It uses no model."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from component import DEFAULT_AGENT, system
from component.commands import (
    SEVERAL_LINES,
    AnyCommand,
    Asking,
    CommandError,
    CommandResult,
    Outline,
    person_of,
    split_words,
)
from component.features.schedules.node import row_of
from component.features.schedules.rows import Origin, Schedule, Wish
from component.features.schedules.schedules import ScheduleError, Schedules, sentence_of
from component.features.schedules.skills import change, only_an_offset, work_text
from component.features.schedules.timing import EXAMPLES, TimingError
from component.features.schedules.when import split_timing, timing_words
from component.kernel.contacts import PersonZones
from component.kernel.triggers import Work
from component.zones import spoken_time
from xep.jid import JID

_RUN: Final = "run"
"""The word before the name of a skill in the text of a schedule."""


class ScheduleParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of the command.

    Args:
        action: list, add, pause, resume or remove.
        name: Name or id of the schedule to add, pause, resume or remove.
        text: With add, both in one text: every monday at 9: sum up my week. A skill comes after
            the word run: in 20 minutes: run echo text=tea
        goal: With add: what I do when it fires, in words.
        skill: With add: skill to run instead.
        params: Parameters of the skill, as JSON.
        zone: With add: time zone, such as Europe/Paris. Default: that of your client.
        missed: With add: what becomes of firings that were missed while I was not running: none,
            the latest one, or all of them take place.
        person: For administrators: address of the person whose schedules are meant.
        agent: For administrators, with add: name of the agent that does the work.
    """

    action: Literal["list", "add", "pause", "resume", "remove"] = "list"
    name: Annotated[str, Meta(max_length=64)] = ""
    text: Annotated[str, Meta(title="When and what", max_length=20_000)] = ""
    when: Annotated[str, Meta(description=f"With add: {EXAMPLES}.", max_length=200)] = ""
    goal: Annotated[str, Meta(title="What to do", max_length=20_000), SEVERAL_LINES] = ""
    skill: str = ""
    params: Annotated[str, Meta(title="Parameters")] = ""
    zone: Annotated[str, Meta(title="Time zone")] = ""
    missed: Annotated[Literal["skip", "once", "all"], Meta(title="Missed firings")] = "once"
    person: str = msgspec.field(default="", name="for")
    agent: str = ""


SCHEDULE = Outline(
    name="schedule",
    title="Schedules",
    about="do something later or regularly: list, add, pause, resume or remove",
    params=ScheduleParams,
    verbatim={"add": "text"},
    group="everyday",
)


class ScheduleCommands:
    """The command about schedules."""

    def __init__(
        self,
        schedules: Schedules,
        zones: PersonZones,
        is_agent: Callable[[str], bool] = lambda _name: True,
    ) -> None:
        self._schedules = schedules
        self._zones = zones
        self._is_agent = is_agent

    def commands(self) -> tuple[AnyCommand, ...]:
        """Return all of them."""
        return (SCHEDULE.done_by(self._schedule),)

    async def _schedule(self, asking: Asking, params: ScheduleParams) -> CommandResult:
        owner = _owner(asking, params)
        _check_together(params)
        try:
            match params.action:
                case "list":
                    found = await self._schedules.list(owner)
                    text = await self._words(asking, found) or "There are no schedules."
                    return CommandResult(text, [row_of(one) for one in found])
                case "add":
                    return await self._add(asking, owner, params)
                case action:
                    changed, said = await change(self._schedules, action, owner, params.name)
                    if action == "resume":
                        said = f"Resumed:\n{await self._words(asking, [changed])}"
                    return CommandResult(said, row_of(changed))
        except ScheduleError as error:
            blamed = error.param
            if params.text and blamed in ("when", "goal", "skill", "params"):
                blamed = "text"
            raise CommandError(str(error), blamed) from None

    async def _add(
        self, asking: Asking, owner: JID | None, params: ScheduleParams
    ) -> CommandResult:
        if owner is None:
            raise CommandError("Say for whom: give the address of a person.", "for")
        agent = params.agent or asking.agent or DEFAULT_AGENT
        if not self._is_agent(agent):
            raise CommandError(f"There is no agent called {agent!r}.", "agent")
        when, goal, skill, given = _what(params)
        is_own = owner == asking.principal
        work = Work(
            agent=agent,
            principal=owner,
            at=asking.at if is_own else None,
            goal=goal or None,
            skill=skill or None,
            params=given,
        )
        # Only the client of the person themselves can tell the person's time.
        client = asking.client if is_own else None
        zone = await self._schedules.zone(client or owner, asking.at, when=when, given=params.zone)
        wish = Wish(when=when, work=work, name=params.name, zone=zone, missed=params.missed)
        origin: Origin = "person" if is_own else "admin"
        added = await self._schedules.add(wish, origin)
        words = await self._words(asking, [added])
        return CommandResult(f"Added:\n{words}{only_an_offset(added)}", row_of(added))

    async def _words(self, asking: Asking, schedules: Sequence[Schedule]) -> str:
        """Return schedules as a list, in the time zone of the caller."""
        if not schedules:
            return ""
        now, zone = system.now(), await self._zones.of_caller(asking)
        whose = asking.principal is None
        return "\n".join(_line(one, now, zone, whose=whose) for one in schedules)


def _line(schedule: Schedule, now: datetime, zone: str, *, whose: bool) -> str:
    definition = schedule.definition
    when = timing_words(definition.timing, definition.when, now, zone)
    paused = schedule.state == "paused"
    following = "paused" if paused else f"next {spoken_time(schedule.due, now, zone)}"
    person = f" for {definition.work.principal}" if whose else ""
    return f"- {schedule.name}{person}: {when}, {following}: {work_text(schedule)}"


def _owner(asking: Asking, params: ScheduleParams) -> JID | None:
    """Return the owner whose schedules are meant; None for all, which only the operator may use."""
    if (params.person or params.agent) and not asking.admin:
        raise CommandError("Only administrators can name a person or an agent.", "for")
    if not params.person:
        return asking.principal
    person = person_of(params.person, bare=False)
    if person.local is None or person.resource is not None:
        raise CommandError(f"{params.person!r} is not the address of a person.", "for")
    return person


def _check_together(params: ScheduleParams) -> None:
    """Raise CommandError for parameters that cannot be combined, with the name of one."""
    action = params.action
    if action in ("pause", "resume", "remove") and not params.name:
        raise CommandError(f"Say which one: /schedule {action} NAME", "name")
    if action == "list" and params.name:
        raise CommandError("No name goes with list.", "name")
    for param in ("text", "when", "goal", "skill", "params", "zone", "agent"):
        if getattr(params, param) and action != "add":
            raise CommandError(f"{param} goes with add.", param)
    if params.text and (params.when or params.goal or params.skill):
        raise CommandError("Give either text, or when and goal or skill.", "text")


def _what(params: ScheduleParams) -> tuple[str, str, str, msgspec.Raw]:
    if not params.text.strip():
        if not params.when:
            raise CommandError(
                "Say when and what: /schedule add every monday at 9: sum up my week", "when"
            )
        return params.when, params.goal, params.skill, _json(params.params)
    try:
        when, what = split_timing(params.text)
    except TimingError as error:
        raise CommandError(sentence_of(error), "text") from None
    first, _, rest = what.partition(" ")
    if first != _RUN or not rest.strip():
        return when, what, "", msgspec.Raw(b"{}")
    skill, *words = split_words(rest)
    return when, "", skill, _named(words)


def _named(words: list[str]) -> msgspec.Raw:
    """Return the parameters of a skill, from words such as `text=tea` and `count=3`."""
    found = {}
    for word in words:
        name, is_named, value = word.partition("=")
        if not is_named:
            raise CommandError(f"Name each parameter of the skill: {word[:40]!r} has none.", "text")
        try:
            found[name] = msgspec.json.decode(value)
        except msgspec.DecodeError:
            found[name] = value
    return msgspec.Raw(msgspec.json.encode(found))


def _json(text: str) -> msgspec.Raw:
    try:
        found = msgspec.json.decode(text.strip() or "{}", type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise CommandError(f"The parameters are not a JSON object: {error}.", "params") from None
    return msgspec.Raw(msgspec.json.encode(found))
