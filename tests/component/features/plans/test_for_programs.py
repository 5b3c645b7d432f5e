"""What programs see of a plan that they start: its steps, in each state of its task."""

import json
from pathlib import Path
from typing import Any

import pytest

from component.skills.context import Context
from component.skills.declare import skill
from tests import schemas
from tests.kit.service import AGENT, Kit, service
from tests.kit.xmpp import Peer
from xep.binding.escaping import escape_text
from xep.disco import InfoQuery
from xep.fluux_agent.execute import Result
from xep.fluux_agent.plan import NAMESPACE, PlanStep
from xep.fluux_agent.task import Cancel, Events, Task, Tasks
from xep.stanza import Incoming

pytestmark = pytest.mark.anyio
PROGRAM = "juliet@capulet.example/program"
TASK = "urn:fluux:agent:0#task"


@skill(open_world=False, destructive=False, read_only=False)
def note(text: str) -> str:
    """Note a text."""
    return f"noted {text}"


@skill(open_world=False, destructive=False, durable=True)
async def wait(context: Context, text: str) -> str:
    """Wait a day."""
    await context.sleep(86_400)
    return text


def step(id_: str, skill_: str = "note", text: str = "a", **more: Any) -> dict[str, Any]:
    return {"id": id_, "kind": "call", "skill": skill_, "params": {"text": text}, **more}


PLAN = {
    "title": "Two notes",
    "goal": "Note twice",
    "steps": [step("one", title="Note a"), step("two", text="{one.text} b", after=["one"])],
}
SLOW = {
    "title": "Wait",
    "goal": "Wait, then note",
    "steps": [step("one", "wait"), step("two", after=["one"])],
}


async def execute(program: Peer, skill_: str, **params: Any) -> Result:
    text = escape_text(json.dumps(params))
    answer = await program.iq(
        "set",
        f"<execute xmlns='urn:fluux:agent:0#execute' skill='{skill_}' mode='inline'>"
        f"<params type='application/json'>{text}</params></execute>",
    )
    return answer.require(Result)


async def start(program: Peer, plan: dict[str, Any]) -> str:
    result = await execute(program, "plan_start", plan=plan)
    assert not result.is_error, result
    id_: str = json.loads(result.outputs[1].text)["plan"]
    return id_


async def event(program: Peer, id_: str, *states: str) -> Task:
    """Return the next event of a task, in one of these states."""

    def wanted(stanza: Incoming) -> bool:
        found = stanza.payload(Task) if stanza.kind == "message" else None
        return found is not None and found.id == id_ and found.state in states

    return (await program.receive(wanted)).require(Task)


async def get(program: Peer, id_: str) -> Task:
    answer = await program.iq("get", f"<task xmlns='{TASK}' id='{id_}'/>")
    schemas.check(answer.forward())
    return answer.require(Task)


def shown(task: Task) -> list[tuple[str, str]]:
    assert task.plan is not None
    return [(one.id, one.state) for one in task.plan.steps]


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    from trio.testing import MockClock

    return "trio", {"clock": MockClock(autojump_threshold=0)}


async def test_debug(tmp_path: Path) -> None:
    async with service(tmp_path, skills=[note, wait]) as kit:
        program = kit.peer(PROGRAM)
        try:
            id_ = await start(program, PLAN)
            last = await event(program, id_, "completed", "failed")
            print(last)
            print(await get(program, id_))
            print(
                (
                    await program.iq("get", f"<events xmlns='{TASK}' id='{id_}' since='0'/>")
                ).forward()
            )
            print((await program.iq("get", f"<tasks xmlns='{TASK}'/>")).forward())
        finally:
            for d, s in kit.stanzas:
                print(d, s[:3000])
    assert 0
