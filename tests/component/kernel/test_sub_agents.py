"""Sub-agents: their rights, their costs, and that they end with their parents."""

from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from component.agent import rows
from component.agent.protocol import Profile, ToolResult
from component.agent.sentences import CORRECTED_CALL
from component.agent.sub_agents import SPAWN
from component.budget.protocol import Payer
from component.conversations import directories
from component.conversations.lines import Said
from component.memory_directory.layout import SessionKey
from component.models.protocol import Completion, ModelRequest
from component.tasks.protocol import AGENT_WORK
from tests.component.agent.world import ROMEO, command, message, words
from tests.component.kernel.family import Family, calling
from tests.waiting import eventually

pytestmark = pytest.mark.anyio


async def test_its_answer_is_the_result_of_the_call(tmp_path: Path) -> None:
    family = Family(tmp_path, {"task": "Count them.", "role": "Counter"})
    async with family.life() as conversations:
        await family.asked(conversations)
    assert family.ear.bodies == ["above"]
    assert "done below" in family.shown[0]
    below = next(r for r in family.brain.asked if "sub-agent" in r.messages[0].text)
    assert words(below) == ["Count them."]
    assert "Do it." not in "".join(m.text for m in below.messages)
    events = [
        (e.outcome, e.subject.partition("-")[0]) for e in family.book.events if e.kind == "agent"
    ]
    assert events == [("spawned", "assistant/counter"), ("ended", "assistant/counter")]


@pytest.mark.parametrize("done", [False, True])
async def test_a_correction_withdraws_what_it_waits_for_unless_it_has_done_something(
    tmp_path: Path, done: bool
) -> None:
    family = Family(tmp_path, {"task": "Wipe it."})
    family.profile = Profile(agent="assistant", skills=("l*", "ask", "buy"))

    def wipe(request: ModelRequest) -> Completion:
        bought = any(m.role == "tool" for m in request.messages)
        return calling(("ask" if bought or not done else "buy", {}))

    family.child = wipe
    key = SessionKey("assistant", ROMEO)
    async with family.life() as conversations:
        await conversations.received(message("m1", "Wipe sda.", msg_id="m1"))
        await eventually(lambda: conversations.activity(key).parked == 1)
        assert await conversations.revised(key, "m1", "Wipe nothing.") == (not done)
        if done:
            assert "cancelled" not in await family.states("s")
            return
        assert "cancelled" in await family.states("s")
        await eventually(lambda: len(family.shop.tasks) == 2)  # of another sub-agent
        (result,) = [m.text for m in family.brain.asked[-2].messages if m.role == "tool"]
        assert result == CORRECTED_CALL
        assert "killed" in [e.outcome for e in family.book.events if e.kind == "agent"]


async def test_it_spends_from_the_budget_of_its_parent(tmp_path: Path) -> None:
    family = Family(tmp_path, {"task": "x"})
    async with family.life() as conversations:
        await family.asked(conversations)
        await family.settled()
    chains = {who.agents for who in family.purse.who}
    (child,) = [chain for chain in chains if len(chain) == 2]
    assert child[1] == "assistant"
    assert {who.task for who in family.purse.who} == {"m1"}


async def test_in_an_operators_turn_its_calls_are_the_operators_with_the_same_payer(
    tmp_path: Path,
) -> None:
    family = Family(tmp_path, {"task": "x"})
    family.child = lambda r: "seen" if r.messages[-1].role == "tool" else calling(("look", {}))
    payer = Payer("agent", "other")
    async with family.life() as conversations:
        await conversations.received(command("o1", "Do it.", by="boss@a.example", payer=payer))
        await family.ear.hears(1)
        (caller,) = family.shop.callers
        key = SessionKey(caller.agent, ROMEO)
        (first, *_) = (await family.sessions.read(key, tokens=10**9)).lines
    assert (caller.operator, caller.request.principal) == ("boss@a.example", ROMEO)
    assert {who.payer for who in family.purse.who} == {payer}
    assert isinstance(first, Said)
    assert first.operator is None, "what a sub-agent is told, its agent has written"


async def test_it_never_has_more_rights_than_its_parent(tmp_path: Path) -> None:
    family = Family(
        tmp_path,
        {"task": "x", "skills": ["look"], "capabilities": ["memory:read"]},
        {"task": "x", "skills": ["buy"]},
        {"task": "x", "capabilities": ["*"]},
        {"task": "x"},
    )
    family.child = lambda r: "seen" if r.messages[-1].role == "tool" else calling(("look", {}))
    async with family.life() as conversations:
        await family.asked(conversations)
    callers = {(c.profile.skills, c.profile.capabilities) for c in family.shop.callers}
    assert callers == {(("look",), ("memory:read",)), (("l*", "ask"), ("memory:*",))}
    assert "you do not have the tool buy yourself" in family.shown[1]
    assert "you do not have the capability * yourself" in family.shown[2]


async def test_a_limited_number_runs_in_parallel(tmp_path: Path) -> None:
    family = Family(tmp_path, *({"task": str(n)} for n in range(4)), children=2)
    at_work = most = 0
    two = anyio.Event()

    async def work() -> str:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        if at_work == 2:
            two.set()
        with anyio.fail_after(120):
            await two.wait()
        at_work -= 1
        return "done"

    family.child = lambda _request: work()
    async with family.life() as conversations:
        await family.asked(conversations)
    assert most == 2
    assert len(family.shown) == 4


async def test_one_that_waits_for_a_task_lets_the_next_one_work(tmp_path: Path) -> None:
    family = Family(tmp_path, {"task": "one"}, {"task": "other"}, children=1)
    began: list[str] = []

    def child(request: ModelRequest) -> Any:
        began.append(words(request)[0])
        return calling(("order", {})) if len(began) == 1 else "done"

    family.child = child
    async with family.life() as conversations:
        await conversations.received(message("m1", "Do it."))
        await family.tasks.ear.until(lambda one: one.task.state == "completed")
        assert await family.is_parked(AGENT_WORK)


async def test_the_maximum_depth_is_respected(tmp_path: Path) -> None:
    family = Family(tmp_path, {"task": "x"}, depth=2)
    deepest: list[str] = []

    def child(request: ModelRequest) -> Any:
        if request.messages[-1].role == "tool":
            return "back"
        if any(tool.name == SPAWN for tool in request.tools):
            return calling((SPAWN, {"task": "y"}))
        deepest.append(words(request)[-1])
        return "bottom"

    family.child = child
    async with family.life() as conversations:
        await family.asked(conversations)
    assert deepest == ["y"]
    assert max(len(who.agents) for who in family.purse.who) == 3


@pytest.mark.parametrize(
    ("spawn", "below"), [({}, ("light", "oracle")), ({"tier": "heavy"}, ("heavy", ""))]
)
async def test_its_model_is_that_of_its_parent_unless_it_names_a_tier(
    tmp_path: Path, spawn: Any, below: tuple[str, str]
) -> None:
    family = Family(tmp_path, {"task": "x", **spawn})
    family.profile = Profile(agent="assistant", tier="light", model_of="oracle")
    async with family.life() as conversations:
        await family.asked(conversations)
    assert family.models == [("light", "oracle"), below]


@pytest.mark.parametrize(("loop", "profile"), [({"depth": 0}, {}), ({}, {"spawn": False})])
async def test_agents_without_permission_are_not_offered_it(
    tmp_path: Path, loop: Any, profile: Any
) -> None:
    family = Family(tmp_path, {"task": "x"}, **loop)
    family.profile = Profile(agent="assistant", **profile)
    async with family.life() as conversations:
        await family.asked(conversations)
    assert SPAWN not in [tool.name for tool in family.brain.asked[0].tools]
    assert "no tool of this name" in family.shown[0]


@pytest.mark.parametrize("spawn", [{}, {"task": ""}, {"task": "x", "colour": "red"}])
async def test_a_wrong_call_is_an_error_for_the_model(tmp_path: Path, spawn: Any) -> None:
    family = Family(tmp_path, spawn)
    async with family.life() as conversations:
        await family.asked(conversations)
    assert "No sub-agent was made" in family.shown[0]


async def test_it_is_stopped_with_its_parent(tmp_path: Path) -> None:
    family = Family(tmp_path, {"task": "x"})
    begun, ended = anyio.Event(), anyio.Event()

    async def never() -> str:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()
        return ""

    family.child = lambda _request: never()
    async with family.life() as conversations:
        await conversations.received(message("m1", "Do it."))
        with anyio.fail_after(120):
            await begun.wait()
            await conversations.stop_agent("assistant")
            await ended.wait()
        await family.settled()
    assert not family.purse.open


async def test_its_running_task_is_given_up_with_it(tmp_path: Path) -> None:
    family = Family(tmp_path, {"task": "x"})
    begun = anyio.Event()

    async def during(_name: str) -> None:
        begun.set()
        await anyio.sleep_forever()

    family.shop.during = during
    family.child = lambda _request: calling(("buy", {}))
    async with family.life() as conversations:
        await conversations.received(message("m1", "Do it."))
        with anyio.fail_after(120):
            await begun.wait()
        await conversations.stop(SessionKey("assistant", ROMEO))
        await family.tasks.ear.until(lambda one: one.final)
        assert len(family.shop.given_up) == 1
    told = [event.outcome for event in family.book.events if event.kind == "agent"]
    assert told == ["spawned", "killed"]


async def test_it_waits_for_a_person_and_continues(tmp_path: Path) -> None:
    family = Family(tmp_path, {"task": "x"})
    family.child = lambda r: (
        f"heard {r.messages[-1].text}" if r.messages[-1].role == "tool" else calling(("ask", {}))
    )
    async with family.life() as conversations:
        await conversations.received(message("m1", "Do it."))
        await eventually(lambda: conversations.activity(SessionKey("assistant", ROMEO)).parked)
    (task,) = family.shop.tasks
    # A life later.
    async with family.life() as conversations:
        family.shop.tasks[task] = ToolResult("yes")
        await family.ended(task)
        await family.ear.hears(1)
    assert family.ear.bodies == ["above"]
    assert "heard" in family.shown[0]
    assert "yes" in family.shown[0]
    assert [name for _, _, name, _ in family.shop.made] == ["ask"]


async def test_its_directory_is_kept_until_the_answer_of_its_parent_is_sent(tmp_path: Path) -> None:
    family = Family(tmp_path, {"task": "x", "role": "Fact-finder No. 1"})
    family.child = lambda r: "found" if r.messages[-1].role == "tool" else calling(("ask", {}))

    async def needed() -> bool:
        layout = family.sessions.layout
        (folder,) = directories.unused_sub_agents(layout, float("inf"))
        assert folder.name.startswith("factfinderno1-")
        unanswered = await family.storage.read(partial(rows.sessions, home="here"))
        return directories.is_used_sub_agent(layout, folder, unanswered)

    async with family.life() as conversations:
        await conversations.received(message("m1", "Do it."))
        await eventually(lambda: conversations.activity(SessionKey("assistant", ROMEO)).parked)
        assert await needed()
    (task,) = family.shop.tasks
    async with family.life() as conversations:
        assert await needed()  # a life later
        family.shop.tasks[task] = ToolResult("yes")
        await family.ended(task)
        await family.settled()
        assert family.ear.bodies == ["above"]
        assert not await needed()


async def test_its_parked_turn_is_given_up_with_it(tmp_path: Path) -> None:
    family = Family(tmp_path, {"task": "x"})
    family.child = lambda _request: calling(("ask", {}))
    async with family.life() as conversations:
        await conversations.received(message("m1", "Do it."))
        ann = ROMEO
        await eventually(lambda: conversations.activity(SessionKey("assistant", ann)).parked)
        await conversations.stop(SessionKey("assistant", ann))
        assert await family.states("s") == ["cancelled"]
        assert await family.states(AGENT_WORK) == ["cancelled"]


async def test_its_conversation_is_its_own(tmp_path: Path) -> None:
    family = Family(tmp_path, {"task": "Count them."})
    async with family.life() as conversations:
        await family.asked(conversations)
        await family.settled()
        ann = ROMEO
        mine = await family.sessions.read(SessionKey("assistant", ann))
        assert "Count them." not in [getattr(line, "content", "") for line in mine.lines]


async def test_taints_are_passed_down_and_up(tmp_path: Path) -> None:
    family = Family(tmp_path, {"task": "x"})
    family.shop.taint = "web"
    family.child = lambda r: "seen" if r.messages[-1].role == "tool" else calling(("look", {}))
    first = family.think

    async def think(request: ModelRequest) -> Completion:
        last = request.messages[-1]
        if "a sub-agent of" not in request.messages[0].text and len(family.shown) == 1:
            family.shown.append(last.text)
            return calling(("look", {"again": True}))
        return await first(request)

    family.brain.think = think
    async with family.life() as conversations:
        await conversations.received(message("m1", "Do it."))
        await family.ear.hears(1)
    assert "web" in family.shown[0]


async def test_each_label_is_passed_down_and_up(tmp_path: Path) -> None:
    family = Family(tmp_path)

    def child(request: ModelRequest) -> Any:
        results = [one for one in request.messages if one.role == "tool"]
        if "first" in request.messages[-1].text or len(results) == 1:
            family.shop.taint = "file" if results else "web"
            return calling(("look", {"at": len(results)}))
        return "seen" if results else calling(("look", {}))

    family.child = child

    async def think(request: ModelRequest) -> Completion:
        if "a sub-agent of" in request.messages[0].text:
            return await first(request)
        results = [one for one in request.messages if one.role == "tool"]
        if len(results) == 2:
            return Completion.of(text="above")
        return calling((SPAWN, {"task": "second" if results else "first"}))

    first, family.brain.think = family.think, think
    async with family.life() as conversations:
        await family.asked(conversations)
    assert family.shop.callers[2].agent != family.shop.callers[0].agent
    assert {"web", "file"} <= family.shop.callers[2].taints
