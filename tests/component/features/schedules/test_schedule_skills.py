"""What a model schedules keeps the limits of its agent, and what its model has read."""

from typing import Any

import pytest

from component.agent.protocol import ToolResult, Waiting
from component.features.schedules.rows import Wish
from component.features.schedules.schedules import ScheduleError
from component.features.schedules.schedules import Schedules as SchedulesOfPeople
from component.features.schedules.settings import ScheduleLimits
from component.features.schedules.skills import schedule_skills
from component.kernel.contacts import PersonZones
from component.models.messages import ToolCall
from component.policy.flows import AgentLimits
from component.skills import Context, InvalidParam, SkillError, SkillFailed, call, prepare
from component.skills.calling import Threads
from component.store import Storage
from tests.component.link.router.wire import until
from tests.component.tools.test_tools import AT, WHO, Desk, a_caller
from xep.fluux_agent.confirm import Confirm, parameters_of
from xep.jid import JID

pytestmark = pytest.mark.anyio


class Schedules:
    """Notes what is to be added, and adds nothing."""

    def __init__(self) -> None:
        self.wishes: list[Wish] = []

    async def add(self, wish: Wish, _origin: str) -> Any:
        self.wishes.append(wish)
        raise ScheduleError("Not today.", "when")


async def test_a_schedule_of_a_model_has_its_limits_and_its_taints() -> None:
    schedules = Schedules()
    add = next(one for one in schedule_skills(lambda: schedules) if one.name == "schedule_add")  # type: ignore[arg-type, return-value]
    limits = AgentLimits(skills=("schedule_*",), capabilities=("schedule",))
    context = Context(
        principal="juliet@example.com",
        sender="juliet@example.com/x",
        skill=add.name,
        agent="assistant",
        taints=("web",),
        limits=limits,
    )
    arguments = prepare(add, (), b'{"when": "in 1 hour", "skill": "fetch"}')
    with pytest.raises((SkillFailed, SkillError, InvalidParam)):
        await call(add, arguments, context, Threads(1, 1).share("ann"))
    (wish,) = schedules.wishes
    assert (wish.work.taints, wish.work.limits) == (("web",), limits)


class Zones(PersonZones):
    """The time zone of everybody."""

    default = "UTC"
    zone = "UTC+09:00"

    def __init__(self) -> None:
        pass

    async def of(self, person: JID, at: JID | None = None) -> str:
        return self.zone


async def confirmed(desk: Desk) -> dict[str, Any]:
    """The parameters of the question that is open."""
    (question,) = await desk.world.service.open_questions(WHO.bare, AT)
    assert isinstance(question.content, Confirm)
    return parameters_of(question.content.action)


MISLED = a_caller(taints=frozenset(("web",)))
"""A caller whose model has read a text of strangers."""


async def test_what_a_person_asks_for_herself_needs_no_second_yes(storage: Storage) -> None:
    schedules = SchedulesOfPeople(storage, ScheduleLimits(), zones=Zones())
    desk = Desk(*schedule_skills(lambda: schedules))
    async with desk.world.running():
        made = await desk.call("schedule_add", when="in 5 minutes", goal="Remind her of tea.")
        assert isinstance(made, ToolResult)
        assert made.content.startswith("Added the schedule:")
        (schedule,) = await schedules.list(WHO.bare)
        named = f'{{"name": "{schedule.name}"}}'
        removed = await desk.tools.call(a_caller(), "0.b", "schedule_remove", named)
        assert isinstance(removed, Waiting)  # that cannot be undone


async def test_the_person_confirms_the_time_zone_and_it_is_stored(storage: Storage) -> None:
    zones = Zones()
    schedules = SchedulesOfPeople(storage, ScheduleLimits(), zones=zones)
    desk = Desk(*schedule_skills(lambda: schedules))
    async with desk.world.running():
        waiting = await desk.call(
            "schedule_add", caller=MISLED, when="every monday at 9", goal="Sum up."
        )
        assert isinstance(waiting, Waiting)
        assert (await confirmed(desk))["zone"] == "UTC+09:00"
        zones.zone = "Europe/Paris"  # what was confirmed counts
        await desk.decide(waiting.task, "approve")
        await until(lambda: waiting.task in desk.world.tools_ended)
    (found,) = await schedules.list(WHO.bare)
    assert (found.definition.zone, found.due.hour) == ("UTC+09:00", 0)


async def test_a_time_that_is_not_understood_is_refused_before_the_person_is_asked(
    storage: Storage,
) -> None:
    schedules = SchedulesOfPeople(storage, ScheduleLimits(), zones=Zones())
    desk = Desk(*schedule_skills(lambda: schedules))
    async with desk.world.running():
        refused = await desk.call("schedule_add", when="every day at 9, 12 and lunch", goal="x")
        assert isinstance(refused, ToolResult)
        assert "Only 'every day at 9, 12' is understood, and 'and lunch' is not" in refused.content
        assert await desk.world.service.open_questions(WHO.bare, AT) == []


async def test_several_calls_that_are_confirmed_together_show_their_zones(
    storage: Storage,
) -> None:
    schedules = SchedulesOfPeople(storage, ScheduleLimits(), zones=Zones())
    desk = Desk(*schedule_skills(lambda: schedules))
    calls = [
        ToolCall(f"c{hour}", "schedule_add", f'{{"when": "every day at {hour}", "goal": "Look."}}')
        for hour in (9, 18)
    ]
    async with desk.world.running():
        found = await desk.tools.confirm_together(MISLED, calls, again=False)
        (task,) = {one.task for one in found.values() if isinstance(one, Waiting)}
        shown = await confirmed(desk)
        assert [each["zone"] for each in shown.values()] == ["UTC+09:00"] * 2
        await desk.decide(task, "approve")
        await until(lambda: task in desk.world.tools_ended)
        for one in calls:
            made = await desk.tools.outcome(MISLED, one, task)
            assert isinstance(made, ToolResult), "nothing is asked again"
            assert "(UTC+09:00), next" in made.content
    assert len(await schedules.list(WHO.bare)) == 2
