"""Sub-agents beside the other tasks of a person, in a whole service."""

from pathlib import Path

import anyio
import pytest

from component.models.protocol import ModelRequest
from component.skills import Context, SkillError, skill
from tests.kit import Script, anyio_backend, service
from tests.kit.model import call
from xep.binding import encode
from xep.fluux_agent.execute import Execute

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

JULIET = "juliet@capulet.example/balcony"
SILENT = "[agent]\nnotice = ''\n"


@skill(name="sneaky", durable=True, destructive=False)
async def sneaky(context: Context) -> str:
    """Try to start a sub-agent."""
    try:
        await context.start("agent.work", {"work": {"turn": "t", "agent": "a/b", "text": "x"}})
    except SkillError as error:
        return str(error)
    return "started"


@skill(name="liar", durable=True, destructive=False)
async def liar(context: Context) -> str:
    """Try to keep a record."""
    await context.record(b"[]")
    return "kept"


async def hangs(_request: ModelRequest) -> str:
    await anyio.sleep_forever()
    raise AssertionError


async def test_one_that_works_is_listed_and_can_be_cancelled(tmp_path: Path) -> None:
    model = Script(call("spawn_agent", task="Count the stars.", role="Counter"), hangs)
    async with service(tmp_path, SILENT, model=model) as kit:
        juliet = kit.peer(JULIET)
        await juliet.say("Have the stars counted.")
        await kit.settled()
        listed = await juliet.ask("/tasks")
        assert "Sub-agent is running, Counter: Count the stars., since" in listed
        await kit.advance(15)  # it takes longer than a call may, so the turn waits for it
        assert "taking a while" in await juliet.hear()
        model.add("They were not counted.")
        await juliet.ask(f"/cancel {listed.partition('(id ')[2].partition(')')[0]}", "cancel")
        await juliet.hear("They were not counted.")
        assert "It was cancelled." in model.asked


async def test_a_stop_cancels_it_while_its_parent_waits(tmp_path: Path) -> None:
    model = Script(call("spawn_agent", task="Count the stars."), hangs)
    async with service(tmp_path, SILENT, model=model) as kit:
        juliet = kit.peer(JULIET)
        await juliet.say("Have the stars counted.")
        await kit.advance(15)
        await juliet.hear("taking a while")
        await juliet.ask("/stop", "Stopped")
        await kit.settled()
        assert "Sub-agent was cancelled" in await juliet.ask("/tasks")
        assert [line.outcome for line in await kit.audited() if line.kind == "agent"] == [
            *("spawned", "killed")
        ]


async def test_nobody_but_the_service_starts_one_by_name(tmp_path: Path) -> None:
    model = Script(call("agent.work", work={}), "No.")
    async with service(tmp_path, SILENT, model=model, skills=(sneaky, liar)) as kit:
        juliet = kit.peer(JULIET)
        assert "agent.work" in await juliet.ask("/run agent.work")
        answer = await juliet.iq("set", encode(Execute(skill="agent.work")))
        assert answer.type == "error"
        assert "<unknown-skill" in kit.stanzas[-1][1]
        await juliet.ask("Run agent.work.", "No.")
        assert "no tool of this name" in model.asked
        assert "There is no skill called agent.work." in await juliet.ask("/run sneaky")
        await juliet.ask("/run liar", "failed")
