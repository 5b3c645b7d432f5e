"""Calls of peers of a service that is killed: nothing is lost, and nothing is done twice."""

from pathlib import Path

import pytest

from tests.component.features.peers.test_calls import conditions, ended, text_of, with_scripted
from tests.kit import anyio_backend
from xep.binding import encode
from xep.fluux_agent.execute import Accepted, Execute, Output, Result
from xep.fluux_agent.task import Task
from xep.stanza_error import StanzaError

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

DONE = Result(skill="x", outputs=(Output(name="output", text="done"),))


async def test_a_call_that_was_not_sent_before_a_kill_is_sent_once(tmp_path: Path) -> None:
    async with with_scripted(tmp_path, "x") as (a, b, romeo):
        b.results["x"] = DONE
        a.xmpp.cut = {"agent.b.example"}
        await romeo.iq("set", encode(Execute(skill="b.x", mode="async")))
        await a.advance(1)
        await a.kill()
        a.xmpp.cut = set()
        assert b.executed == []
        await a.start()
        assert text_of((await ended(romeo)).result) == "done"
        assert len(b.executed) == 1


@pytest.mark.parametrize("limit", [None, 1.0])
async def test_a_call_that_was_sent_before_a_kill_is_sent_again_with_the_same_bytes(
    tmp_path: Path, limit: float | None
) -> None:
    async with with_scripted(tmp_path, "x", call_usd=limit) as (a, b, romeo):
        b.results["x"] = None
        await romeo.iq("set", encode(Execute(skill="b.x", mode="async")))
        await a.advance(1)
        await a.kill()
        b.results["x"] = DONE
        await a.start()
        assert text_of((await ended(romeo)).result) == "done"
        assert len(b.executed) == 2
        assert len({encode(one) for one in b.executed}) == 1


async def test_the_end_of_a_call_during_an_outage_is_asked_for(tmp_path: Path) -> None:
    async with with_scripted(tmp_path, "x") as (a, b, romeo):
        b.results["x"] = Accepted(task="t1")
        b.tasks["t1"] = Task(id="t1", state="running", revision=0)
        await romeo.iq("set", encode(Execute(skill="b.x", mode="async")))
        await a.advance(1)
        await a.kill()
        b.tasks["t1"] = Task(id="t1", state="completed", revision=2, result=DONE)
        await a.start()
        assert text_of((await ended(romeo)).result) == "done"
        assert len(b.executed) == 1


async def test_a_call_that_may_have_been_sent_before_a_kill_is_not_said_to_be_undelivered(
    tmp_path: Path,
) -> None:
    limits = {"unreachable_s": 60, "timeout_s": 600}
    async with with_scripted(tmp_path, "x", **limits) as (a, b, romeo):
        b.results["x"] = None
        await romeo.iq("set", encode(Execute(skill="b.x", mode="async")))
        await a.advance(1)
        await a.kill()
        b.results["x"] = StanzaError("remote-server-not-found")
        await a.start()
        assert conditions(await ended(romeo)) == ["outcome-unknown"]


async def test_a_peer_that_never_answers_leaves_the_outcome_unknown(tmp_path: Path) -> None:
    async with with_scripted(tmp_path, "x", timeout_s=600) as (a, b, romeo):
        b.results["x"] = None
        await romeo.iq("set", encode(Execute(skill="b.x", mode="async")))
        assert conditions(await ended(romeo)) == ["outcome-unknown"]
        assert len({encode(one) for one in b.executed}) == 1
        sent = len(b.executed)
        await a.advance(3600)
        assert len(b.executed) == sent


async def test_a_call_that_was_accepted_twice_has_one_task(tmp_path: Path) -> None:
    """The answer to the first request was lost; the repetition got the same task."""
    async with with_scripted(tmp_path, "x") as (a, b, romeo):
        b.tasks["t1"] = Task(id="t1", state="running", revision=0)
        b.results["x"] = lambda _: Accepted(task="t1") if len(b.executed) > 1 else None  # type: ignore[assignment,return-value] # no answer at all
        await romeo.iq("set", encode(Execute(skill="b.x", mode="async")))
        await a.advance(60)
        b.report(Task(id="t1", state="completed", revision=2, result=DONE))
        assert text_of((await ended(romeo)).result) == "done"
        assert len({one.request for one in b.executed}) == 1
