"""What a model schedules keeps the limits of its agent, and what its model has read."""

from typing import Any

import anyio
import pytest

from component.policy.flows import AgentLimits
from component.proactive.schedule_skills import schedule_skills
from component.proactive.schedules import ScheduleError, Wish
from component.skills import Context, InvalidParam, SkillError, SkillFailed, call, prepare

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
