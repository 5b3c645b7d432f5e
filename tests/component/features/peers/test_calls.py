"""Services of two and of three domains that use each other's skills."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from component import system
from component.features.peers.requests import failure_of
from component.skills import Context, Skill, skill
from tests.component.features.peers.scripted import AGAIN_S, ScriptedAgent, described
from tests.kit import Kit, Peer, anyio_backend, service
from tests.kit.xmpp import body, parse
from xep.binding import encode
from xep.fluux_agent import errors
from xep.fluux_agent.confirm import Confirm
from xep.fluux_agent.errors import BudgetExhausted
from xep.fluux_agent.execute import Accepted, Execute, Param, Result, Usage
from xep.fluux_agent.skills import Annotations, SkillsQuery
from xep.fluux_agent.task import Cancel, Task
from xep.stanza import Incoming
from xep.stanza_error import StanzaError

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

ROMEO = "romeo@a.example/phone"
DONE: list[str] = []


@skill(read_only=True, open_world=False)
def sources(topic: str) -> str:
    """Find sources."""
    return f"Sources about {topic}."


@skill(open_world=False)
def erase(file: str) -> str:
    """Erase a file."""
    DONE.append(file)
    return f"{file} is gone."


@skill(open_world=False, destructive=False)
def note(text: str) -> str:
    """Write a note."""
    DONE.append(text)
    return "Noted."


@skill(read_only=True, open_world=False)
async def which(context: Context) -> str:
    """Ask which one."""
    return await color(context)


async def color(context: Context) -> str:
    schema = {
        "type": "object",
        "properties": {"color": {"type": "string"}},
        "required": ["color"],
    }
    answer = await context.ask("Which color?", schema)
    return f"It is {answer['color']}."


@skill(read_only=True, open_world=False, durable=True)
async def which_later(context: Context) -> str:
    """Ask some time later which one."""
    await context.sleep(30)
    return await color(context)


@skill(read_only=True, open_world=False)
async def slow(context: Context) -> str:
    """Take a long time."""
    await context.progress(0.5, "half of it")
    await anyio.sleep(500)
    return "At last."


@skill(open_world=False, destructive=False, durable=True)
async def pay(context: Context, amount: int) -> str:
    """Pay, some time later."""

    async def work(_key: str) -> str:
        DONE.append(str(amount))
        return f"paid {amount}"

    await context.sleep(30)
    return await context.step("pay", work, str)


def settings(domain: str, *peers: dict[str, Any]) -> dict[str, Any]:
    return {
        "server": {"component_domain": f"agent.{domain}.example", "component_secret": "s"},
        "agent": {"allowed_domains": [f"{domain}.example"]},
        "peer": list(peers),
    }


def using(domain: str, **more: Any) -> dict[str, Any]:
    return {"name": domain, "jid": f"agent.{domain}.example", "skills": ["*"], **more}


def used_by(domain: str, **more: Any) -> dict[str, Any]:
    return {"name": domain, "jid": f"agent.{domain}.example", "offers": ["*"], **more}


@asynccontextmanager
async def two(tmp_path: Path, *skills: Skill, **more: Any) -> AsyncIterator[tuple[Kit, Kit, Peer]]:
    """Services A and B, where A uses the skills of B, and a person of A."""
    more.setdefault("read_only", ["sources", "which", "slow"])
    async with service(tmp_path / "b", settings("b", used_by("a")), skills=skills) as b:
        a_settings = settings("a", using("b", **more))
        async with service(tmp_path / "a", a_settings, beside=b) as a:
            await a.settled()
            yield a, b, a.peer(ROMEO)


async def execute(romeo: Peer, name: str, **params: str) -> Incoming:
    given = tuple(Param(name=key, text=text) for key, text in params.items())
    return await romeo.iq("set", encode(Execute(skill=name, params=given)))


async def ended(romeo: Peer) -> Task:
    """Return the end of the next task."""

    def is_end(stanza: Incoming) -> bool:
        task = stanza.payload(Task)
        return task is not None and task.state in ("completed", "failed", "cancelled", "rejected")

    return (await romeo.receive(is_end, within_s=4000)).require(Task)


def text_of(result: Result | None) -> str:
    assert result is not None
    return result.outputs[0].text


async def test_a_skill_of_another_domain_is_a_skill_here(tmp_path: Path) -> None:
    async with two(tmp_path, sources) as (a, _, romeo):
        listed = await romeo.iq("get", encode(SkillsQuery(search="sources")))
        assert [one.name for one in listed.require(SkillsQuery).skills] == ["b.sources"]
        answer = await execute(romeo, "b.sources", topic="rivers")
        assert text_of(answer.require(Result)) == "Sources about rivers."
        # It may run again, so nothing of it is stored.
        assert await states(a) == []


async def test_a_task_that_is_cancelled_here_is_cancelled_there(tmp_path: Path) -> None:
    async with two(tmp_path, slow) as (a, b, romeo):
        accepted = (await execute(romeo, "b.slow")).require(Accepted)
        shown = await romeo.receive(lambda stanza: "half of it" in str(stanza.payload(Task)))
        assert shown.require(Task).id == accepted.task
        await romeo.iq("set", encode(Cancel(id=accepted.task)))
        assert (await ended(romeo)).state == "cancelled"
        await a.advance(5)
        assert await states(b) == ["cancelled"]


async def states(kit: Kit) -> list[str]:
    return [row[0] for row in await kit.kernel.storage.select("SELECT state FROM tasks")]


async def test_a_question_of_a_peer_reaches_the_person_and_her_answer_the_peer(
    tmp_path: Path,
) -> None:
    async with two(tmp_path, which) as (_, _, romeo):
        await romeo.say("/run b.which")
        asked = await romeo.hear("Which color?")
        assert "agent.b.example" in asked
        await romeo.say("green")
        assert text_of((await ended(romeo)).result) == "It is green."


async def test_a_person_declines_a_question_of_a_peer(tmp_path: Path) -> None:
    async with two(tmp_path, which) as (_, _, romeo):
        await romeo.say("/run b.which")
        await romeo.hear("Which color?")
        await romeo.say("no thanks")
        task = await ended(romeo)
        assert task.failure is not None
        assert [one.xml.local for one in task.failure.conditions] == ["denied"]


async def test_what_a_person_has_approved_here_is_not_asked_again_for_the_peer(
    tmp_path: Path,
) -> None:
    DONE.clear()
    async with two(tmp_path, erase) as (a, _, romeo):
        await romeo.say("/run b.erase file=a.txt")
        await romeo.hear("a.txt")
        await a.advance(60)
        await romeo.say("yes")
        assert text_of((await ended(romeo)).result) == "a.txt is gone."
        assert DONE == ["a.txt"]


@skill(read_only=True, open_world=False)
async def ask_further(context: Context, name: str, params: dict[str, str], after_s: int = 0) -> str:
    """Have another agent do something, after some seconds."""
    await anyio.sleep(after_s)
    (result,) = await context.wait([await context.start(name, params)])
    return result.text or result.reason


@asynccontextmanager
async def three(
    tmp_path: Path, *skills: Skill, **of_c: Any
) -> AsyncIterator[tuple[Kit, Kit, Kit, Peer]]:
    """Services A, B and C: a skill of B uses those of C. And a person of A."""
    c_settings = settings("c", used_by("b", origins=["a.example"])) | of_c
    b_settings = settings(
        "b",
        used_by("a", delegates=["c.*"]),
        using("c", read_only=["sources", "slow", "which_later"]),
    )
    a_settings = settings("a", using("b", read_only=["ask_further"]))
    async with (
        service(tmp_path / "c", c_settings, skills=skills) as c,
        service(tmp_path / "b", b_settings, skills=(ask_further,), beside=c) as b,
        service(tmp_path / "a", a_settings, beside=b) as a,
    ):
        await a.settled()
        yield a, b, c, a.peer(ROMEO)


async def ask_c(romeo: Peer, name: str, **params: str) -> None:
    given = msgspec.json.encode(params).decode()
    await romeo.say(f"/run b.ask_further name={name} params={given}")


def confirmation_from(kit: Kit, agent: str) -> Confirm:
    """Return the confirmation that an agent has sent."""
    found = [
        stanza.require(Confirm)
        for direction, xml in kit.stanzas
        if direction == "received"
        and (stanza := parse(xml)).payload(Confirm) is not None
        and stanza.sender == agent
    ]
    (confirm,) = found
    return confirm


async def test_a_confirmation_passes_all_agents_up_to_the_person_with_its_digest(
    tmp_path: Path,
) -> None:
    policy = {"rules": [{"skills": ["sources"], "confirm": "always"}]}
    async with three(tmp_path, sources, policy=policy) as (a, _, _, romeo):
        await ask_c(romeo, "c.sources", topic="rivers")
        question = await romeo.receive(lambda stanza: stanza.payload(Confirm) is not None)
        shown, asked = question.require(Confirm), confirmation_from(a, "agent.c.example")
        assert (shown.hash, shown.action) == (asked.hash, asked.action)
        assert str(shown.agent) == "agent.c.example"
        assert body(question).startswith("agent.c.example would do this, for b.ask_further: May I")
        await a.advance(60)
        await romeo.say("yes")
        assert text_of((await ended(romeo)).result) == "Sources about rivers."


async def test_an_agent_in_between_does_not_ask_twice(tmp_path: Path) -> None:
    DONE.clear()
    async with three(tmp_path, erase) as (a, _, _, romeo):
        await ask_c(romeo, "c.erase", file="b.txt")
        await romeo.hear("b.txt")
        await a.advance(60)
        await romeo.say("no")
        await ended(romeo)
        assert DONE == []


@pytest.mark.parametrize("rule", ["never", None])
async def test_an_agent_in_between_asks_as_its_settings_say(
    tmp_path: Path, rule: str | None
) -> None:
    DONE.clear()
    c_settings = settings("c", used_by("b", origins=["a.example"]))
    b_peers = used_by("a", delegates=["c.*"]), using("c", confirm=rule)
    a_settings = settings("a", using("b", read_only=["ask_further"]))
    skills = (erase, note)
    async with (
        service(tmp_path / "c", c_settings, skills=skills) as c,
        service(tmp_path / "b", settings("b", *b_peers), skills=(ask_further,), beside=c) as b,
        service(tmp_path / "a", a_settings, beside=b) as a,
    ):
        await a.settled()
        romeo = a.peer(ROMEO)
        # Notes are not destructive there, so only the agent in between can ask.
        await ask_c(romeo, "c.note", text="5")
        if rule is None:
            assert (await romeo.hear("May I run c.note?")).startswith("agent.b.example would do")
            await a.advance(60)
            await romeo.say("yes")
        assert text_of((await ended(romeo)).result) == "Noted."
        # The agent that acts asks itself before it erases.
        await ask_c(romeo, "c.erase", file="a.txt")
        acting = "agent.b.example" if rule is None else "agent.c.example"
        assert (await romeo.hear("a.txt")).startswith(f"{acting} would do this")
        await a.advance(60)
        assert DONE == ["5"]
        await romeo.say("yes")
        assert text_of((await ended(romeo)).result) == "a.txt is gone."
        assert DONE == ["5", "a.txt"]


async def test_a_question_that_was_asked_while_the_service_was_down_is_found(
    tmp_path: Path,
) -> None:
    async with three(tmp_path, which_later) as (a, b, _, romeo):
        await ask_c(romeo, "c.which_later")
        await a.advance(20)
        await a.kill()
        await b.advance(60)
        assert "input-required" in await states(b)
        await a.start()
        await romeo.hear("Which color?")
        await romeo.say("green")
        assert text_of((await ended(romeo)).result) == "It is green."


async def test_cancelling_reaches_every_agent(tmp_path: Path) -> None:
    async with three(tmp_path, slow) as (a, b, c, romeo):
        await ask_c(romeo, "c.slow")
        await a.advance(20)
        assert await states(c) == ["running"]
        ((task,),) = await a.kernel.storage.select("SELECT id FROM tasks")
        await romeo.iq("set", encode(Cancel(id=task)))
        await a.advance(10)
        assert await states(c) == ["cancelled"]
        assert set(await states(b)) == {"cancelled"}


@pytest.mark.parametrize("whom", ["a", "b", "both"])
async def test_a_killed_service_continues_the_call_and_nothing_runs_twice(
    tmp_path: Path, whom: str
) -> None:
    DONE.clear()
    async with two(tmp_path, pay, read_only=["pay"]) as (a, b, romeo):
        await execute(romeo, "b.pay", amount="5")
        await a.advance(2)
        for kit in (a, b):
            if whom in (kit.agent[6], "both"):
                await kit.restart(kill=True)
        task = await ended(romeo)
        assert text_of(task.result) == "paid 5"
        assert DONE == ["5"]


@asynccontextmanager
async def with_scripted(
    tmp_path: Path, *names: str, **more: Any
) -> AsyncIterator[tuple[Kit, ScriptedAgent, Peer]]:
    """A service A that uses the skills of an agent that the test plays, and a person of A."""
    # People are asked to confirm only what the test says.
    policy = {"policy": {"confirm": more.pop("confirm", "never")}}
    skills = more.pop("skills", ())
    a_settings = settings("a", using("b", **more)) | policy
    async with service(tmp_path / "a", a_settings, skills=skills) as a:
        safe = Annotations(read_only=True, destructive=False)
        b = ScriptedAgent(a, "agent.b.example", [described(n, annotations=safe) for n in names])
        await a.advance(AGAIN_S)
        yield a, b, a.peer(ROMEO)


def conditions(task: Task) -> list[str]:
    assert task.failure is not None
    return [one.xml.local for one in task.failure.conditions]


async def run(romeo: Peer, skill: str) -> Task:
    await romeo.say(f"/run {skill}")
    return await ended(romeo)


async def test_calls_get_what_is_left_of_the_budget_of_the_day(tmp_path: Path) -> None:
    limits = {"call_usd": 0.5, "day_usd": 0.8}
    async with with_scripted(tmp_path, "x", **limits) as (_, b, romeo):
        spent = Usage(cost_usd=Decimal("0.2"), tokens_in=40, tokens_out=2)
        b.results["x"] = Result(skill="x", usage=spent)
        await run(romeo, "b.x")
        # A result that does not say what it has cost counts with all that the call was allowed.
        b.results["x"] = Result(skill="x")
        await run(romeo, "b.x")
        await run(romeo, "b.x")
        allotted = [one.delegation.budget_usd for one in b.executed if one.delegation is not None]
        assert allotted == [Decimal("0.5"), Decimal("0.5"), Decimal("0.1")]
        failure = (await run(romeo, "b.x")).failure
        assert failure is not None
        assert failure.conditions == (BudgetExhausted(helps="later"),)
        assert len(b.executed) == 3


async def test_peers_are_changed_while_the_service_runs(tmp_path: Path) -> None:
    async with with_scripted(tmp_path, "x", "y") as (a, b, romeo):
        b.results["x"] = Accepted(task="t1")
        await romeo.say("/run b.x")
        await a.advance(2)
        policy = {"policy": {"confirm": "never"}}
        reloaded = await a.reload(settings("a", using("b", skills=["x"])) | policy)
        assert reloaded.sentences() == ["[peer] has changed: the service uses it now."]
        listed = await romeo.iq("get", encode(SkillsQuery(search="b.")))
        assert [one.name for one in listed.require(SkillsQuery).skills] == ["b.x"]
        (execute,) = b.executed
        end = Task(id="t1", state="completed", revision=1, result=Result(skill="x"))
        b.tell("assistant@agent.a.example", end, thread=execute.thread or "", kind="normal")
        assert (await ended(romeo)).state == "completed"
        await a.reload(settings("a"))
        listed = await romeo.iq("get", encode(SkillsQuery(search="b.")))
        assert listed.require(SkillsQuery).skills == ()


async def test_a_call_has_the_version_that_was_shown_and_a_refusal_is_followed_by_a_look(
    tmp_path: Path,
) -> None:
    async with with_scripted(tmp_path, "x") as (a, b, romeo):
        b.skills = tuple(msgspec.structs.replace(each, version="1.1.0") for each in b.skills)
        b.version = "2"
        b.results["x"] = errors.unknown_skill_version("1.1.0")
        task = await run(romeo, "b.x")
        assert conditions(task) == ["remote-failure"]
        assert b.executed[-1].version == described("x").version
        await a.advance(15)
        b.results["x"] = Result(skill="x")
        assert (await run(romeo, "b.x")).state == "completed"
        assert b.executed[-1].version == "1.1.0"


@skill(open_world=False, destructive=False, durable=True)
async def outer(context: Context) -> str:
    """Let a peer do it, as a task of this one."""
    await context.wait([await context.start("b.x")])
    return "done"


@pytest.mark.parametrize("name", ["b.x", "outer"])
async def test_the_deadline_of_a_call_is_not_after_that_of_the_work(
    tmp_path: Path, name: str
) -> None:
    # Nobody is asked about what changes nothing.
    more = {"read_only": ["x"]} if name == "outer" else {}
    async with with_scripted(tmp_path, "x", skills=[outer], **more) as (_, b, romeo):
        end = (system.now() + timedelta(seconds=90)).replace(microsecond=300_000)
        answer = await romeo.iq("set", encode(Execute(skill=name, deadline=end)))
        if answer.payload(Accepted) is not None:
            assert (await ended(romeo)).state == "completed"
        sent = b.executed[-1].deadline
        assert sent is not None
        assert end - timedelta(seconds=1) <= sent <= end


@pytest.mark.parametrize(
    ("error", "repeatable"),
    [
        (errors.timed_out(repeatable=False), False),
        (errors.timed_out(repeatable=True), True),
        (errors.internal(), False),
        (errors.forbidden("No."), True),
        (errors.unknown_skill(), True),
    ],
)
def test_what_a_peer_may_have_done_is_not_to_be_repeated(
    error: StanzaError, repeatable: bool
) -> None:
    assert failure_of(error).repeatable == repeatable
    assert not failure_of(error, unknown=True).repeatable
