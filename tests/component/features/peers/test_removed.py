"""Peers that are removed from the settings, or changed, while their skills are called."""

from pathlib import Path
from typing import Any

import pytest

from tests.component.features.peers.scripted import AGAIN_S, ScriptedAgent, described
from tests.component.features.peers.test_calls import (
    ROMEO,
    conditions,
    ended,
    settings,
    text_of,
    using,
    with_scripted,
)
from tests.component.features.peers.test_questions import asking
from tests.kit import Kit, Peer, anyio_backend, service
from xep.fluux_agent.execute import Accepted, Output, Result
from xep.fluux_agent.skills import Annotations
from xep.fluux_agent.task import Task
from xep.stanza_error import StanzaError

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

POLICY = {"policy": {"confirm": "never"}}
CHANGES: dict[str, tuple[dict[str, Any], ...]] = {
    "no peer": (),
    "another peer": (using("c"),),
    "another name": ({**using("b"), "name": "other"},),
    "another address": ({**using("b"), "jid": "agent.new.example"},),
    "without its skill": (using("b", skills=["y"]),),
}


async def reload(a: Kit, *peers: dict[str, Any]) -> None:
    await a.reload(settings("a", *peers) | POLICY)


async def accepted(a: Kit, b: ScriptedAgent, romeo: Peer) -> None:
    b.results["x"] = Accepted(task="t1")
    b.tasks["t1"] = Task(id="t1", state="running", revision=0)
    await romeo.say("/run b.x")
    await a.advance(2)


def why(task: Task) -> str:
    assert task.failure is not None
    return task.failure.texts[0].text


@pytest.mark.parametrize("change", CHANGES)
async def test_an_accepted_call_that_the_settings_no_longer_permit_ends(
    tmp_path: Path, change: str
) -> None:
    async with with_scripted(tmp_path, "x", "y") as (a, b, romeo):
        await accepted(a, b, romeo)
        await reload(a, *CHANGES[change])
        task = await ended(romeo)
        assert conditions(task) == ["outcome-unknown"]
        assert why(task).startswith("The settings of this agent do not permit this call now.")
        assert [one.id for one in b.cancelled] == ["t1"]
        # What comes later from there changes nothing.
        b.report(Task(id="t1", state="completed", revision=9, result=Result(skill="x")))
        await a.advance(5)
        assert await calls(a) == [("ended",)]
        assert len(b.executed) == 1


async def calls(kit: Kit) -> list[tuple[str]]:
    return await kit.kernel.storage.select("SELECT state FROM peer_calls")


async def test_a_call_that_may_have_been_sent_is_cancelled_by_its_request(tmp_path: Path) -> None:
    async with with_scripted(tmp_path, "x") as (a, b, romeo):
        b.results["x"] = None
        await romeo.say("/run b.x")
        await a.advance(2)
        await reload(a)
        assert conditions(await ended(romeo)) == ["outcome-unknown"]
        (request,) = b.executed
        assert [one.request for one in b.cancelled] == [request.request]


async def test_a_peer_that_cannot_be_told_does_not_keep_its_call(tmp_path: Path) -> None:
    async with with_scripted(tmp_path, "x") as (a, b, romeo):
        await accepted(a, b, romeo)
        a.xmpp.cut = {"agent.b.example"}
        await reload(a)
        assert conditions(await ended(romeo)) == ["outcome-unknown"]


@pytest.mark.parametrize("is_killed", [False, True])
async def test_a_service_that_starts_without_peers_ends_their_calls(
    tmp_path: Path, is_killed: bool
) -> None:
    async with with_scripted(tmp_path, "x") as (a, b, romeo):
        await accepted(a, b, romeo)
        await (a.kill() if is_killed else a.stop())
        given = a.settings
        a.settings = given.model_copy(update={"peer": ()})
        await a.start()
        task = await ended(romeo)
        assert conditions(task) == ["outcome-unknown"]
        assert [one.id for one in b.cancelled] == ["t1"]
        # The feature is not used any more.
        assert "peers" in a.service._features
        await a.restart()
        assert "peers" not in a.service._features


async def test_an_open_question_of_a_removed_peer_is_withdrawn(tmp_path: Path) -> None:
    own = settings("a", using("b")) | POLICY
    async with service(tmp_path / "a", own) as a:
        safe = Annotations(read_only=True, destructive=False)
        b = ScriptedAgent(a, "agent.b.example", [described("x", annotations=safe)])
        await a.advance(AGAIN_S)
        romeo = a.peer(ROMEO)
        await accepted(a, b, romeo)
        b.report(asking())
        await romeo.hear("Which color?")
        await reload(a)
        assert conditions(await ended(romeo)) == ["outcome-unknown"]
        await romeo.say("green")
        await a.advance(5)
        assert b.replies == []


async def test_a_call_goes_on_when_other_settings_of_its_peer_change(tmp_path: Path) -> None:
    async with with_scripted(tmp_path, "x") as (a, b, romeo):
        await accepted(a, b, romeo)
        await reload(a, using("b", timeout_s=60, data=[]))
        result = Result(skill="x", outputs=(Output(name="output", text="done"),))
        b.report(Task(id="t1", state="completed", revision=1, result=result), kind="normal")
        assert text_of((await ended(romeo)).result) == "done"
        assert b.cancelled == []


async def test_a_peer_that_forgets_its_tasks_leaves_the_outcome_unknown(tmp_path: Path) -> None:
    """It was started again with an empty database."""
    async with with_scripted(tmp_path, "x") as (a, b, romeo):
        await accepted(a, b, romeo)
        b.tasks.clear()
        b.forgets = True
        task = await ended(romeo)
        assert conditions(task) == ["outcome-unknown"]
        assert len(b.executed) == 1
        await a.restart(kill=True)
        await a.advance(120)
        assert len(b.executed) == 1


async def test_a_peer_that_is_not_known_to_its_server_any_more_is_waited_for(
    tmp_path: Path,
) -> None:
    async with with_scripted(tmp_path, "x", timeout_s=600) as (a, b, romeo):
        await accepted(a, b, romeo)
        b.results["x"] = StanzaError("service-unavailable")
        b.tasks.clear()
        await a.advance(300)
        b.tasks["t1"] = Task(id="t1", state="completed", revision=3, result=Result(skill="x"))
        assert (await ended(romeo)).state == "completed"
