"""What a model watches keeps the labels of what the model has read."""

from typing import Any

import pytest

from component.features.watches import rows as watch_rows
from component.features.watches.service import WatchService
from component.features.watches.skills import watch_skills
from component.policy.flows import AgentLimits
from component.skills import Context, call, prepare
from component.skills.calling import Threads
from tests.direct_database import DirectDatabase

pytestmark = pytest.mark.anyio


async def test_a_watch_of_a_model_has_its_limits_and_the_labels_of_what_it_has_read() -> None:
    database: Any = DirectDatabase(0)
    desk = WatchService(database, None, (), 10)
    create = next(one for one in watch_skills(lambda: desk) if one.name == "watch_create")
    context = Context(
        principal="juliet@example.com",
        sender="juliet@example.com/x",
        skill=create.name,
        agent="assistant/helper-1",
        taints=("web",),
        limits=AgentLimits(("watch_*",)),
    )
    arguments = prepare(create, (), b'{"name": "mood", "goal": "Fetch it.", "node": "urn:mood"}')
    await call(create, arguments, context, Threads(1, 1).share("ann"))
    (watch,) = [row.watch for row in watch_rows.rows(database)]
    assert (watch.goal, watch.taints) == ("Fetch it.", ("web",))
    assert (watch.agent, watch.limits) == ("assistant", AgentLimits(("watch_*",)))
