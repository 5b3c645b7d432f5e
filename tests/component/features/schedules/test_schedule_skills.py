"""What a model schedules keeps the limits of its agent, and what its model has read."""

from typing import Any

import anyio
import pytest

from component.agent.protocol import ToolResult, Waiting
from component.features.schedules.schedules import ScheduleError, Wish
from component.features.schedules.schedules import Schedules as SchedulesOfPeople
from component.features.schedules.settings import ScheduleLimits
from component.features.schedules.skills import schedule_skills
from component.models.messages import ToolCall
from component.policy.flows import AgentLimits
from component.skills import Context, InvalidParam, SkillError, SkillFailed, call, prepare
from component.storage.notifications import NotificationStore
from component.tasks.confirmation import parameters_of
from tests.component.execution.desk import AT, WHO, Desk, a_caller
from tests.component.router.wire import until
from tests.kit import anyio_backend
from xep.fluux_agent.confirm import Confirm

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio


class Schedules:
    """Notes what is to be added, and adds nothing."""

    def __init__(self) -> None:
        self.wishes: list[Wish] = []

    async def add(self, wish: Wish, _origin: str) -> Any:
        self.wishes.append(wish)
        raise ScheduleError("Not today.")


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
        await call(add, arguments, context, anyio.CapacityLimiter(1))
    (wish,) = schedules.wishes
    assert (wish.work.taints, wish.work.limits) == (("web",), limits)


async def set_zone(desk: Desk, name: str) -> None:
    """Let the person have this time zone."""
    store = NotificationStore(desk.kit.kernel.storage)
    await store.set_quiet(WHO.bare, None, name, urgent=False)


async def confirmed(desk: Desk) -> dict[str, Any]:
    """The parameters of the question that is open."""
    (question,) = await desk.service.open_questions(WHO.bare, AT)
    assert isinstance(question.content, Confirm)
    return parameters_of(question.content.action)


async def test_the_person_confirms_the_time_zone_and_it_is_stored() -> None:
    desk = Desk()
    async with desk.running():
        await set_zone(desk, "UTC+09:00")
        waiting = await desk.call("schedule_add", when="every monday at 9", goal="Sum up.")
        assert isinstance(waiting, Waiting)
        assert (await confirmed(desk))["zone"] == "UTC+09:00"
        await set_zone(desk, "Europe/Paris")  # what was confirmed counts
        await desk.decide(waiting.task, "approve")
        await until(lambda: waiting.task in desk.tools_ended)
        schedules = SchedulesOfPeople(desk.kit.kernel.storage, ScheduleLimits())
        (found,) = await schedules.list(WHO.bare)
    assert (found.definition.zone, found.due.hour) == ("UTC+09:00", 0)


async def test_a_time_that_is_not_understood_is_refused_before_the_person_is_asked() -> None:
    desk = Desk()
    async with desk.running():
        refused = await desk.call("schedule_add", when="every day at 9, 12 and lunch", goal="x")
        assert isinstance(refused, ToolResult)
        assert "Only 'every day at 9, 12' is understood, and 'and lunch' is not" in refused.content
        assert await desk.service.open_questions(WHO.bare, AT) == []


async def test_several_calls_that_are_confirmed_together_show_their_zones() -> None:
    desk = Desk()
    calls = [
        ToolCall(f"c{hour}", "schedule_add", f'{{"when": "every day at {hour}", "goal": "Look."}}')
        for hour in (9, 18)
    ]
    async with desk.running():
        await set_zone(desk, "UTC+09:00")
        found = await desk.tools.confirm_together(a_caller(), calls, again=False)
        (task,) = {one.task for one in found.values() if isinstance(one, Waiting)}
        shown = await confirmed(desk)
        assert [each["zone"] for each in shown.values()] == ["UTC+09:00"] * 2
        await desk.decide(task, "approve")
        await until(lambda: task in desk.tools_ended)
        for one in calls:
            made = await desk.tools.outcome(a_caller(), one, task)
            assert isinstance(made, ToolResult), "nothing is asked again"
            assert "(UTC+09:00), next" in made.content
        schedules = SchedulesOfPeople(desk.kit.kernel.storage, ScheduleLimits())
        assert len(await schedules.list(WHO.bare)) == 2
