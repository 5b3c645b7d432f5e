"""Several instances of a service: stanzas of peers, answers and cancellations reach any of them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.component.features.peers.scripted import ScriptedAgent
from tests.component.features.peers.test_calls import with_scripted
from tests.component.features.peers.test_questions import asking
from tests.kit import Kit, Peer, anyio_backend
from xep.binding import encode
from xep.fluux_agent.execute import Accepted, Execute
from xep.fluux_agent.task import Cancel, Progress, Task

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio


async def accepted(a: Kit, b: ScriptedAgent, romeo: Peer) -> str:
    b.results["x"] = Accepted(task="t1")
    b.tasks["t1"] = Task(id="t1", state="running", revision=0)
    answer = await romeo.iq("set", encode(Execute(skill="b.x", mode="async")))
    await a.advance(2)
    return answer.require(Accepted).task


async def change(a: Kit, sql: str) -> None:
    await a.kernel.storage.change(sql)


async def nudges(a: Kit) -> int:
    ((count,),) = await a.kernel.storage.select("SELECT nudges FROM peer_calls")
    return int(count)


def looks(a: Kit) -> Callable[[Any], Any]:
    """Return what is called when another instance has changed calls."""
    assert a.service._subsystems is not None
    return a.service._subsystems.features["peers"].opened.shared_changes["peer_calls"]


async def test_what_reaches_an_instance_that_does_not_follow_a_call_is_told_the_one_that_does(
    tmp_path: Path,
) -> None:
    async with with_scripted(tmp_path, "x") as (a, b, romeo):
        await accepted(a, b, romeo)
        await a.kill()
        await a.start()
        a.kernel.stream.has_others = lambda: True
        # As if another instance had sent the call.
        await change(a, "INSERT INTO instances (id, heartbeat, idle) VALUES ('other', 0, 0)")
        await change(a, "UPDATE peer_calls SET owner = 'other'")
        await a.advance(70)  # the follower here gives the call up
        for number in range(50):
            b.report(Task(id="t1", state="running", revision=number, progress=Progress()))
        await a.settled()
        assert await nudges(a) == 1
        for number in range(50):
            b.report(Task(id="t1", state="running", revision=number, progress=Progress()))
        await a.advance(5)
        assert await nudges(a) == 2
        liar = a.peer("liar@c.example/1")
        thread = f"<thread>{b.executed[0].thread}</thread>"
        event = encode(Task(id="t1", state="running", revision=99))
        to = "assistant@agent.a.example"
        await liar.send(f"<message to='{to}' type='headline'>{thread}{event}</message>")
        await a.advance(5)
        assert await nudges(a) == 2


async def test_an_instance_looks_at_a_call_when_it_is_told(tmp_path: Path) -> None:
    async with with_scripted(tmp_path, "x") as (a, b, romeo):
        await accepted(a, b, romeo)
        b.tasks["t1"] = asking()
        await looks(a)(None)
        shown = await romeo.receive(lambda stanza: "Which color?" in str(stanza.payload(Task)))
        assert shown.require(Task).state == "input-required"


async def test_a_call_of_a_task_that_another_instance_has_cancelled_is_cancelled(
    tmp_path: Path,
) -> None:
    async with with_scripted(tmp_path, "x") as (a, b, romeo):
        b.results["x"] = None
        answer = await romeo.iq("set", encode(Execute(skill="b.x", mode="async")))
        await a.advance(1)
        task = answer.require(Accepted).task
        await change(a, f"UPDATE tasks SET state = 'cancelled' WHERE id = '{task}'")
        await looks(a)({"some call"})
        await a.advance(0.1)
        assert b.cancelled == [Cancel(request=b.executed[0].request)]
