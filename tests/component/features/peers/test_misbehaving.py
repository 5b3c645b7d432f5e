"""Peers that do not answer, lie, or say something that nobody asked for."""

from pathlib import Path

import pytest

from component.features.peers.trace import find_work
from tests.component.features.peers.scripted import ScriptedAgent, described
from tests.component.features.peers.test_calls import (
    ROMEO,
    conditions,
    ended,
    run,
    settings,
    text_of,
    using,
    with_scripted,
)
from tests.kit import Kit, anyio_backend, service
from xep.binding import encode
from xep.fluux_agent import errors
from xep.fluux_agent.execute import Accepted, Output, Result
from xep.fluux_agent.skills import SkillsQuery, Title
from xep.fluux_agent.task import Task
from xep.stanza_error import StanzaError

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio


def said(text: str) -> Result:
    return Result(skill="x", outputs=(Output(name="output", text=text),))


async def test_a_request_without_an_answer_is_repeated_with_the_same_bytes(tmp_path: Path) -> None:
    async with with_scripted(tmp_path, "x") as (_, b, romeo):
        b.results["x"] = lambda _: said("done") if len(b.executed) > 2 else None  # type: ignore[assignment,return-value] # no answer at all
        task = await run(romeo, "b.x")
        assert text_of(task.result) == "done"
        assert len(b.executed) == 3
        assert len({encode(each) for each in b.executed}) == 1


async def test_a_peer_that_cannot_be_reached_fails_the_call_after_a_while(tmp_path: Path) -> None:
    async with with_scripted(tmp_path, "x", unreachable_s=60) as (a, b, romeo):
        b.results["x"] = StanzaError("remote-server-not-found")
        before = a.system.monotonic()
        task = await run(romeo, "b.x")
        assert conditions(task) == ["remote-failure"]
        assert 60 <= a.system.monotonic() - before < 180
        assert task.failure is not None
        assert "cannot be reached" in task.failure.texts[0].text


async def test_new_calls_of_a_peer_that_does_not_answer_fail_at_once(tmp_path: Path) -> None:
    async with with_scripted(tmp_path, "x", unreachable_s=600) as (a, b, romeo):
        b.results["x"] = StanzaError("remote-server-not-found")
        await romeo.say("/run b.x")
        await a.advance(40)  # several attempts
        assert warnings_of(a) == ["Agents that do not answer now, so their skills fail: b."]
        attempts = len(b.executed)
        await romeo.say("/run b.x")
        await romeo.hear("b does not answer. Try again in")
        assert len(b.executed) == attempts
        b.results["x"] = said("done")
        assert text_of((await ended(romeo)).result) == "done"
        assert warnings_of(a) == []
        await run(romeo, "b.x")
        assert len(b.executed) == attempts + 2


def warnings_of(kit: Kit) -> list[str]:
    return [one for warnings in kit.kernel.warnings for one in warnings() if "answer" in one]


async def test_a_refusal_that_may_pass_is_repeated_when_the_peer_says(tmp_path: Path) -> None:
    async with with_scripted(tmp_path, "x") as (a, b, romeo):
        b.results["x"] = errors.busy(7)
        await romeo.say("/run b.x")
        await a.advance(2)
        b.results["x"] = said("done")
        assert text_of((await ended(romeo)).result) == "done"
        assert len(b.executed) == 2


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (errors.denied(), "denied"),
        (errors.loop(), "loop"),
        (errors.hops_exceeded(), "hops-exceeded"),
        (errors.budget_exhausted(), "budget-exhausted"),
        (errors.deadline_expired(), "deadline-expired"),
        (errors.outcome_unknown(), "outcome-unknown"),
        (errors.unknown_skill(), "remote-failure"),
        (errors.forbidden("no"), "remote-failure"),
    ],
)
async def test_a_condition_is_passed_up_if_it_says_more(
    tmp_path: Path, error: StanzaError, expected: str
) -> None:
    async with with_scripted(tmp_path, "x") as (_, b, romeo):
        b.results["x"] = error
        assert conditions(await run(romeo, "b.x")) == [expected]


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (errors.denied("approval"), "Somebody else can still allow it."),
        (errors.budget_exhausted("later"), "It may be possible later."),
        (errors.budget_exhausted(), "It is possible with a larger budget."),
    ],
)
async def test_what_helps_is_passed_up_and_said(
    tmp_path: Path, error: StanzaError, sentence: str
) -> None:
    async with with_scripted(tmp_path, "x") as (_, b, romeo):
        b.results["x"] = error
        await romeo.say("/run b.x")
        told = await romeo.receive(lambda stanza: sentence in (stanza.text_of("body") or ""))
        failure = told.require(Task).failure
        assert failure is not None
        assert failure.conditions == error.application


async def test_a_task_that_never_ends_ends_here_after_its_deadline(tmp_path: Path) -> None:
    async with with_scripted(tmp_path, "x", timeout_s=600, confirm="always") as (a, b, romeo):
        b.results["x"] = Accepted(task="t1")
        await romeo.say("/run b.x")
        await romeo.hear("Please answer")
        await a.advance(60)
        await romeo.say("yes")
        task = await ended(romeo)
        assert conditions(task) == ["outcome-unknown"]
        (work,) = await a.kernel.storage.read(lambda db: find_work(db, task.id))
        assert [(each.skill, each.state, each.said_by) for each in work.parts] == [
            ("x", "unknown", "")
        ]


async def test_only_the_peer_itself_can_end_its_task(tmp_path: Path) -> None:
    async with with_scripted(tmp_path, "x") as (a, b, romeo):
        b.results["x"] = Accepted(task="t1")
        await romeo.say("/run b.x")
        await a.advance(2)
        (execute,) = b.executed
        forged = Task(id="t1", state="completed", revision=5, result=said("forged"))
        liar = a.peer("liar@c.example/1")
        thread = f"<thread>{execute.thread}</thread>"
        to = "assistant@agent.a.example"
        await liar.send(f"<message to='{to}' type='normal'>{thread}{encode(forged)}</message>")
        b.tell(to, forged, thread="another thread", kind="normal")
        await a.advance(2)
        real = Task(id="t1", state="completed", revision=2, result=said("real"))
        b.tell(to, real, thread=execute.thread or "", kind="normal")
        assert text_of((await ended(romeo)).result) == "real"


async def test_a_catalogue_is_believed_as_little_as_possible(tmp_path: Path) -> None:
    async with with_scripted(tmp_path, "x", read_only=["*"]) as (a, b, romeo):
        b.skills = (
            described("x"),
            described("x"),
            described("../x"),
            described("y", {"type": "string"}),
            described("z", {"type": "object", "properties": {"a": {"pattern": "(a+)+$"}}}),
            described("t", tags=tuple(f"tag{number}" for number in range(99))),
            described("w", titles=(Title(text="Do \u202ethis\u2066\n" + "x" * 1000),)),
        )
        b.version = "2"
        await a.advance(700)
        listed = await romeo.iq("get", encode(SkillsQuery(search="b.")))
        names = [one.name for one in listed.require(SkillsQuery).skills]
        assert names == ["b.t", "b.w", "b.x", "b.z"]
        skills = {one.name: one for one in listed.require(SkillsQuery).skills}
        assert not any(one.annotations.read_only for one in skills.values())
        assert skills["b.w"].titles[0].text.startswith("Do this xxx")
        assert len(skills["b.w"].titles[0].text) == 100
        assert len(skills["b.t"].tags) < 20


async def test_a_skill_that_has_changed_is_confirmed_anew(tmp_path: Path) -> None:
    async with with_scripted(tmp_path, "x", confirm="always") as (a, b, romeo):
        b.results["x"] = said("done")
        await romeo.say("/run b.x")
        await romeo.hear("Please answer")
        b.skills, b.version = (described("x", {"type": "object", "properties": {}}),), "2"
        await a.advance(700)
        await romeo.say("yes")
        await romeo.hear("Please answer")
        assert b.executed == []
        await a.advance(60)
        await romeo.say("yes")
        assert text_of((await ended(romeo)).result) == "done"


@pytest.mark.parametrize("rule", [None, "never"])
async def test_the_settings_of_a_peer_say_when_people_are_asked(
    tmp_path: Path, rule: str | None
) -> None:
    rules = [] if rule is None else [{"skills": ["b.x"], "confirm": rule}]
    own = settings("a", using("b", confirm="always"))
    own |= {"policy": {"confirm": "never", "rules": rules}}
    async with service(tmp_path / "a", own) as a:
        b = ScriptedAgent(a, "agent.b.example", [described("x")])
        b.results["x"] = said("done")
        await a.advance(700)  # the next attempt to ask for its skills
        romeo = a.peer(ROMEO)
        await romeo.say("/run b.x")
        if rule is None:
            await romeo.hear("Please answer")
            assert b.executed == []
            await a.advance(60)
            await romeo.say("yes")
        assert text_of((await ended(romeo)).result) == "done"
