"""Cancelling: what is not wanted here any more ends at every agent that works for it."""

from pathlib import Path

import anyio
import pytest

from component.skills import Context, skill
from tests.component.features.peers.test_calls import (
    ROMEO,
    ask_further,
    settings,
    states,
    three,
    two,
    used_by,
    using,
    with_scripted,
)
from tests.kit import Kit, Peer, anyio_backend, service
from tests.kit.model import Script, call
from xep.binding import encode
from xep.fluux_agent.execute import Accepted, Execute, Param, Result
from xep.fluux_agent.task import Cancel, Task

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

STOPPED: list[str] = []


@skill(read_only=True, open_world=False)
async def slow() -> str:
    """Take a long time."""
    try:
        await anyio.sleep(500)
    finally:
        STOPPED.append("slow")
    return "At last."


async def begin(romeo: Peer, skill: str, **params: str) -> str:
    """Have A do something in a task; return its id."""
    given = tuple(Param(name=key, text=text) for key, text in params.items())
    request = Execute(skill=skill, mode="async", params=given)
    return (await romeo.iq("set", encode(request))).require(Accepted).task


async def cancel(romeo: Peer, task: str) -> None:
    assert (await romeo.iq("set", encode(Cancel(id=task)))).require(Task)


@pytest.mark.parametrize("read_only", [["slow"], []])
async def test_a_call_that_has_no_answer_yet_is_cancelled_at_the_peer_at_once(
    tmp_path: Path, read_only: list[str]
) -> None:
    STOPPED.clear()
    async with two(tmp_path, slow, read_only=read_only, confirm="never") as (a, b, romeo):
        task = await begin(romeo, "b.slow")
        await a.advance(0.5)
        assert await states(b) == [], "it may still be answered in the IQ"
        await cancel(romeo, task)
        await a.advance(0.1)
        assert (await states(b), STOPPED) == (["cancelled"], ["slow"])
        assert await states(a) == ["cancelled"]
        await a.advance(700)
        assert await open_calls(a) == []


async def open_calls(kit: Kit) -> list[str]:
    found = await kit.kernel.storage.select("SELECT id FROM peer_calls WHERE state <> 'ended'")
    return [row[0] for row in found]


async def test_cancelling_reaches_every_agent_before_any_has_answered(tmp_path: Path) -> None:
    STOPPED.clear()
    async with three(tmp_path, slow) as (a, b, c, romeo):
        task = await begin(romeo, "b.ask_further", name="c.slow", params="{}")
        await a.advance(0.5)
        assert await states(c) == []
        await cancel(romeo, task)
        await a.advance(0.5)
        assert (await states(c), STOPPED) == (["cancelled"], ["slow"])
        assert set(await states(b)) == {"cancelled"}


async def test_a_task_that_reaches_its_time_limit_is_cancelled_at_the_peer(tmp_path: Path) -> None:
    STOPPED.clear()
    async with two(tmp_path, slow, timeout_s=5) as (a, b, romeo):
        await begin(romeo, "b.slow")
        await a.advance(8)
        assert STOPPED == ["slow"]
        assert len(await states(b)) <= 1


async def test_a_cancelled_call_that_the_peer_never_answers_is_not_sent_again(
    tmp_path: Path,
) -> None:
    async with with_scripted(tmp_path, "x") as (a, b, romeo):
        b.results["x"] = None
        task = await begin(romeo, "b.x")
        await a.advance(1)
        await cancel(romeo, task)
        await a.advance(1)
        (request,) = b.executed
        assert [one.request for one in b.cancelled] == [request.request]
        await a.advance(3800)
        assert len(b.executed) == 1
        assert {one.request for one in b.cancelled} == {request.request}
        assert len(b.cancelled) < 150
        assert await open_calls(a) == []


async def test_an_answer_to_a_cancelled_call_changes_nothing(tmp_path: Path) -> None:
    async with with_scripted(tmp_path, "x") as (a, b, romeo):
        b.tasks["t1"] = Task(id="t1", state="running", revision=0)
        b.results["x"] = Accepted(task="t1")
        task = await begin(romeo, "b.x")
        await a.advance(1)
        await cancel(romeo, task)
        await a.advance(1)
        b.report(Task(id="t1", state="completed", revision=4, result=Result(skill="x")))
        await a.advance(5)
        shown = (await romeo.iq("get", encode(Task(id=task)))).require(Task)
        assert shown.state == "cancelled"
        assert [one.id for one in b.cancelled] == ["t1"]
        assert await open_calls(a) == []


async def test_a_call_that_was_cancelled_while_the_service_was_down_is_cancelled_later(
    tmp_path: Path,
) -> None:
    async with with_scripted(tmp_path, "x", call_usd=1) as (a, b, romeo):
        b.results["x"] = None
        task = await begin(romeo, "b.x")
        await a.advance(1)
        a.xmpp.cut = frozenset(("agent.b.example",))
        await cancel(romeo, task)
        await a.advance(1)
        await a.kill()
        a.xmpp.cut = frozenset()
        await a.start()
        await a.advance(40)
        (request,) = b.executed
        assert {one.request for one in b.cancelled} == {request.request}


@pytest.mark.parametrize("how", ["/stop", "retract"])
async def test_a_turn_that_a_person_stops_cancels_its_call_of_a_peer(
    tmp_path: Path, how: str
) -> None:
    STOPPED.clear()
    a_settings = settings("a", using("b", read_only=["slow"]))
    model = Script(call("b__slow"))
    async with (
        service(tmp_path / "b", settings("b", used_by("a", offers=["slow"])), skills=(slow,)) as b,
        service(tmp_path / "a", a_settings, beside=b, model=model) as a,
    ):
        await a.settled()
        romeo = a.peer(ROMEO)
        to = "assistant@agent.a.example"
        await romeo.send(f"<message to='{to}' type='chat' id='m1'><body>Do it</body></message>")
        await a.advance(20)
        assert await states(b) == ["running"]
        if how == "retract":
            await romeo.send(
                f"<message to='{to}' type='chat' id='m2'><retract id='m1'"
                " xmlns='urn:xmpp:message-retract:1'/></message>"
            )
        else:
            await romeo.say("/stop", to)
        await a.advance(0.5)
        assert (await states(b), STOPPED) == (["cancelled"], ["slow"])


@skill(read_only=True, open_world=False, durable=True)
async def first(context: Context) -> str:
    """Have another agent do something, and go on without it."""
    await context.start("c.slow", {})
    await context.sleep(5)
    return "Enough."


async def test_a_child_task_that_is_not_needed_is_cancelled_at_the_peer(tmp_path: Path) -> None:
    STOPPED.clear()
    b_settings = settings("b", using("c", read_only=["slow"]))
    async with (
        service(tmp_path / "c", settings("c", used_by("b")), skills=(slow,)) as c,
        service(tmp_path / "b", b_settings, skills=(first, ask_further), beside=c) as b,
    ):
        await b.settled()
        juliet = b.peer("juliet@b.example/1")
        await begin(juliet, "first")
        await b.advance(5.5)
        assert (await states(c), STOPPED) == (["cancelled"], ["slow"])


@pytest.mark.parametrize("after_s", [0.05, 0.15, 0.25])
async def test_work_that_the_peer_accepts_while_it_is_cancelled_here_ends_there(
    tmp_path: Path, after_s: float
) -> None:
    async with with_scripted(tmp_path, "x", read_only=["x"]) as (a, b, romeo):
        b.results["x"] = None
        task = await begin(romeo, "b.x")
        await a.advance(1)
        (request,) = [one for one in b.requests if one.payload(Execute) is not None]
        b.tasks["t1"] = Task(id="t1", state="running", revision=0)
        a.system.thread_s = lambda: 0.1
        async with anyio.create_task_group() as group:
            group.start_soon(cancel, romeo, task)
            await a.advance(after_s)
            b.accept(request, "t1")
        a.system.thread_s = None
        await a.advance(1)
        assert b.tasks["t1"].state == "cancelled"
        assert await open_calls(a) == []
