"""Peers that do not answer, lie, or say something that nobody asked for."""

from pathlib import Path

import msgspec
import pytest

from component.features.peers.trace import find_work
from tests.component.features.peers.scripted import AGAIN_S, ScriptedAgent, described
from tests.component.features.peers.test_calls import (
    ROMEO,
    conditions,
    ended,
    execute,
    run,
    settings,
    text_of,
    using,
    with_scripted,
)
from tests.kit import Kit, Peer, anyio_backend, service
from xep.binding import encode
from xep.fluux_agent import errors
from xep.fluux_agent.delegation import Delegation
from xep.fluux_agent.execute import Accepted, Execute, Output, Result
from xep.fluux_agent.skills import Schema, SkillsQuery, Title
from xep.fluux_agent.task import Progress, Task
from xep.stanza import Incoming
from xep.stanza_error import StanzaError

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio


def said(text: str) -> Result:
    return Result(skill="x", outputs=(Output(name="output", text=text),))


def delegation_of(request: Execute) -> Delegation:
    assert request.delegation is not None
    return request.delegation


async def test_a_request_without_an_answer_is_repeated_with_the_same_bytes(tmp_path: Path) -> None:
    async with with_scripted(tmp_path, "x") as (_, b, romeo):
        b.results["x"] = lambda _: said("done") if len(b.executed) > 2 else None  # type: ignore[assignment,return-value] # no answer at all
        task = await run(romeo, "b.x")
        assert text_of(task.result) == "done"
        assert len(b.executed) == 3
        assert len({encode(each) for each in b.executed}) == 1


async def test_a_call_without_a_row_is_repeated_with_the_same_bytes_when_it_has_got_one(
    tmp_path: Path,
) -> None:
    async with with_scripted(tmp_path, "x", "y", read_only=["x"]) as (_, b, romeo):
        await run(romeo, "b.y")  # looks up the keys of the peer, so the next call could be signed
        assert delegation_of(b.executed.pop()).grants
        b.results["x"] = lambda _: said("done") if len(b.executed) > 2 else None  # type: ignore[assignment,return-value] # no answer at all
        await romeo.say("/run b.x")
        assert text_of((await ended(romeo)).result) == "done"
        assert len(b.executed) == 3
        assert len({encode(each) for each in b.executed}) == 1


async def test_a_call_without_a_row_is_another_one_when_the_peer_demands_a_grant(
    tmp_path: Path,
) -> None:
    async with with_scripted(tmp_path, "x", read_only=["x"]) as (_, b, romeo):

        def answer(request: Execute) -> Result | None:
            assert request.delegation is not None
            if request.delegation.grants:
                return said("done")
            if len(b.executed) == 1:
                return None
            raise errors.grant_required()

        b.results["x"] = answer  # type: ignore[assignment] # no answer at all
        task = await run(romeo, "b.x")
        assert text_of(task.result) == "done"
        first, second, third = b.executed
        assert encode(first) == encode(second)
        assert first.request != third.request


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


@pytest.mark.parametrize(("after", "most"), [(0, 160), (10**9, 3)])
async def test_a_peer_cannot_make_its_calls_spin_or_sleep(
    tmp_path: Path, after: int, most: int
) -> None:
    async with with_scripted(tmp_path, "x", timeout_s=120) as (_, b, romeo):
        b.results["x"] = StanzaError(
            "resource-constraint", type="wait", application=(errors.Retry(after=after),)
        )
        assert conditions(await run(romeo, "b.x")) == ["deadline-expired"]
        assert 0 < len(b.executed) <= most


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


async def test_a_result_of_another_skill_is_none(tmp_path: Path) -> None:
    async with with_scripted(tmp_path, "x", read_only=["x"]) as (_, b, romeo):
        b.results["x"] = Result(skill="y")
        assert condition(await execute(romeo, "b.x")) == "remote-failure"
    async with with_scripted(tmp_path / "2", "x") as (a, b, romeo):
        await accepted(a, b, romeo)
        b.report(Task(id="t1", state="completed", revision=1, result=Result(skill="y")))
        assert conditions(await ended(romeo)) == ["outcome-unknown"]
        assert len(b.executed) == 1


def condition(answer: Incoming) -> str:
    """Return the application condition of an error."""
    return answer.error(errors.CONDITIONS).application[0].xml.local


async def accepted(a: Kit, b: ScriptedAgent, romeo: Peer) -> None:
    """Let the peer accept a call in the task t1, which runs."""
    b.results["x"] = Accepted(task="t1")
    b.tasks["t1"] = Task(id="t1", state="running", revision=0)
    await romeo.say("/run b.x")
    await a.advance(2)


async def test_an_event_of_another_task_ends_nothing(tmp_path: Path) -> None:
    async with with_scripted(tmp_path, "x") as (a, b, romeo):
        await accepted(a, b, romeo)
        b.report(Task(id="t2", state="completed", revision=1, result=said("other")))
        b.report(Task(id="t3", state="failed", revision=9))
        await a.advance(2)
        b.report(Task(id="t1", state="completed", revision=1, result=said("real")))
        assert text_of((await ended(romeo)).result) == "real"


async def test_an_older_event_after_a_newer_one_changes_nothing(tmp_path: Path) -> None:
    async with with_scripted(tmp_path, "x") as (a, b, romeo):
        await accepted(a, b, romeo)
        b.report(Task(id="t1", state="running", revision=5, progress=Progress(text="late")))
        await a.advance(2)
        b.report(Task(id="t1", state="running", revision=3, progress=Progress(text="early")))
        b.report(Task(id="t1", state="failed", revision=4))
        await a.advance(2)
        tasks = [stanza.payload(Task) for stanza in romeo.take()]
        shown = [one.progress.text for one in tasks if one is not None and one.progress is not None]
        assert shown == ["late"]
        b.report(Task(id="t1", state="completed", revision=6, result=said("done")))
        assert text_of((await ended(romeo)).result) == "done"


async def test_an_end_that_comes_after_the_deadline_changes_nothing(tmp_path: Path) -> None:
    async with with_scripted(tmp_path, "x", timeout_s=600) as (a, b, romeo):
        await accepted(a, b, romeo)
        assert conditions(await ended(romeo)) == ["outcome-unknown"]
        romeo.take()
        b.report(Task(id="t1", state="completed", revision=1, result=said("late")))
        b.results["x"] = said("late")
        await a.advance(60)
        assert not any(one.payload(Task) for one in romeo.take())
        assert len(b.executed) == 1


OF_NUMBERS = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@pytest.mark.parametrize("read_only", [["*"], []])
@pytest.mark.parametrize(
    ("text", "fits"), [('{"n": 1}', True), ('{"n": "x"}', False), ("no", False)]
)
async def test_json_that_does_not_fit_the_schema_of_a_result_is_a_failure(
    tmp_path: Path, text: str, fits: bool, read_only: list[str]
) -> None:
    async with with_scripted(tmp_path, "x", read_only=read_only) as (a, b, romeo):
        output = Schema(direction="output", json=msgspec.Raw(msgspec.json.encode(OF_NUMBERS)))
        (before,) = b.skills
        b.skills = (msgspec.structs.replace(before, schemas=(*before.schemas, output)),)
        b.version = "2"
        await a.advance(700)
        part = Output(name="output", type="application/json", text=text)
        b.results["x"] = Result(skill="x", outputs=(part,))
        await romeo.iq("set", encode(Execute(skill="b.x", mode="async")))
        task = await ended(romeo)
        if fits:
            assert text_of(task.result) == text
        else:
            assert conditions(task) == ["remote-failure"]
            assert task.failure is not None
            assert "The result of b is not what it declares" in task.failure.texts[0].text


async def test_a_result_that_is_too_large_fails_and_holds_up_nobody(tmp_path: Path) -> None:
    async with with_scripted(tmp_path, "x", "y") as (a, b, romeo):
        b.results["x"] = said("x" * (a.kernel.tasks.limits.result_bytes + 1))
        assert conditions(await run(romeo, "b.x")) == ["too-big"]
        b.results["y"] = Result(skill="y", outputs=said("fine").outputs)
        assert text_of((await run(romeo, "b.y")).result) == "fine"


async def test_calls_of_one_peer_wait_for_each_other_when_there_are_many(tmp_path: Path) -> None:
    own = settings("a", using("b"), using("c")) | {
        "policy": {"confirm": "never"},
        "tasks": {"per_principal": 500},
    }
    async with service(tmp_path / "a", own) as a:
        b = ScriptedAgent(a, "agent.b.example", [described("x")])
        c = ScriptedAgent(a, "agent.c.example", [described("x")])
        await a.advance(AGAIN_S)
        romeo = a.peer(ROMEO)
        b.results["x"] = None
        for _ in range(200):
            request = encode(Execute(skill="b.x", mode="async"))
            assert (await romeo.iq("set", request)).type == "result"
        await a.advance(20)
        assert len(b.executed) == 32
        # Another peer is not concerned.
        c.results["x"] = said("done")
        assert text_of((await run(romeo, "c.x")).result) == "done"
        b.results["x"] = said("done")
        await a.advance(400)
        found = await a.kernel.storage.select("SELECT state, count(*) FROM tasks GROUP BY state")
        assert found == [("completed", 201)]
        assert len({one.request for one in b.executed}) == 200


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
        await a.advance(AGAIN_S)
        romeo = a.peer(ROMEO)
        await romeo.say("/run b.x")
        if rule is None:
            await romeo.hear("Please answer")
            assert b.executed == []
            await a.advance(60)
            await romeo.say("yes")
        assert text_of((await ended(romeo)).result) == "done"
