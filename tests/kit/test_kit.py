"""The kit runs a whole service, with a clock, a model and a server that the test owns."""

import threading
from pathlib import Path

import pytest
import trio

from tests.kit import AGENT, Peer, Script, anyio_backend, call, service
from tests.servers.talk import execute
from xep.fluux_agent.execute import Accepted
from xep.fluux_agent.task import Task

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

JULIET = "juliet@capulet.example/balcony"
DAY_S = 86_400.0
STEPS = '''
import anyio
from component.skills import Context, skill

done: list[str] = []

async def open_slowly(key: str) -> str:
    done.append("opened")
    await anyio.sleep(20)
    return "open"

@skill(name="gate.open", destructive=False, durable=True)
async def open_gate(context: Context) -> str:
    """Check the gate, then open it slowly."""
    async def check(key: str) -> str:
        done.append("checked")
        return "well"

    state = await context.step("check", check, str)
    await context.step("open", open_slowly, str, repeatable=True)
    return f"{state}: {', '.join(done)}"
'''


async def event(peer: Peer, *, within_s: float = 60.0) -> Task:
    """Return the next event of a task."""
    message = await peer.receive(
        lambda stanza: Task.xml.tag in stanza.child_names, within_s=within_s
    )
    return message.require(Task)


async def test_an_agent_answers_with_the_words_of_the_script(tmp_path: Path) -> None:
    model = Script("It is the lark.")
    async with service(tmp_path, model=model) as kit:
        juliet = kit.peer(JULIET)
        notice = await juliet.ask("Is it the nightingale?")
        assert notice.startswith("I am Assistant, an automated agent")
        assert await juliet.hear() == "It is the lark."
    (request,) = model.requests
    assert "Is it the nightingale?" in str(request.messages[-1])


async def test_a_model_calls_a_skill_and_reads_its_result(tmp_path: Path) -> None:
    model = Script(call("echo", text="nightingale"), "It says: nightingale.")
    async with service(tmp_path, model=model) as kit:
        juliet = kit.peer(JULIET)
        assert await juliet.ask("Who sings?", "says") == "It says: nightingale."
    assert "nightingale" in str(model.requests[1].messages[-1])


async def test_a_schedule_fires_after_a_day(tmp_path: Path) -> None:
    async with service(tmp_path, model=Script("Time for tea, Juliet.")) as kit:
        juliet = kit.peer(JULIET)
        await juliet.ask("/schedule add in 24 hours: remind me of tea", "Added")
        juliet.take()
        await kit.jump(DAY_S - 60)
        assert not juliet.take()
        assert await juliet.hear(within_s=120) == "Time for tea, Juliet."


async def test_a_durable_task_continues_after_the_service_is_killed(tmp_path: Path) -> None:
    (tmp_path / "gate.py").write_text(STEPS)
    async with service(tmp_path, {"skills": {"modules": [str(tmp_path / "gate.py")]}}) as kit:
        juliet = kit.peer(JULIET)
        accepted = (await juliet.iq("set", execute("gate.open"))).require(Accepted)
        assert (await event(juliet)).state == "running"
        await kit.advance(5)
        await kit.restart(kill=True)
        ended = await event(juliet, within_s=30)
        assert (ended.id, ended.state) == (accepted.task, "completed")
        assert ended.result is not None
        (output,) = ended.result.outputs
        assert output.text == "well: checked, opened, opened", (
            "the step that had ended does not run again"
        )


async def test_a_service_that_is_killed_sends_nothing_more(tmp_path: Path) -> None:
    async with service(tmp_path) as kit:
        juliet = kit.peer(JULIET)
        await juliet.send(f"<presence to='{AGENT}' type='subscribe'/>")
        await kit.settled()
        juliet.take()
        await kit.restart(kill=True)
        killed = [stanza.type for stanza in juliet.take()]
        await kit.restart()
        stopped = [stanza.type for stanza in juliet.take()]
    assert killed == ["available"]
    assert stopped == ["unavailable", "available"]


async def talk(directory: Path, seed: int) -> list[tuple[str, str]]:
    """Let several people talk at once, with schedules and a restart; return all stanzas."""
    model = Script(call("echo", text="a"), otherwise="Well said.")
    agent = {"allowed_domains": ["capulet.example", "montague.example"]}
    async with service(directory, {"agent": agent}, model=model, seed=seed) as kit:
        people = [
            kit.peer(f"{name}@capulet.example/home") for name in ("juliet", "tybalt", "nurse")
        ]
        romeo = kit.peer("romeo@montague.example/orchard")
        for person in (*people, romeo):
            await person.send(f"<presence to='{AGENT}' type='subscribe'/>")
            await person.say("Good evening")
            await person.say("/schedule add in 10 seconds: remind me of the ball")
        await kit.advance(5)
        await kit.restart(kill=True)
        await kit.advance(20)
        return list(kit.stanzas)


async def test_ten_runs_give_the_same_stanzas_in_the_same_order(tmp_path: Path) -> None:
    runs = [await talk(tmp_path / str(number), seed=7) for number in range(10)]
    assert len(runs[0]) > 50
    for number, run in enumerate(runs[1:], 2):
        for first, other in zip(runs[0], run, strict=False):
            assert first == other, f"run {number} differs"
        assert len(run) == len(runs[0])


async def test_another_seed_draws_other_numbers(tmp_path: Path) -> None:
    assert await talk(tmp_path / "a", seed=1) != await talk(tmp_path / "b", seed=2)


async def test_no_thread_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[object] = []
    monkeypatch.setattr(trio.lowlevel, "start_thread_soon", lambda *of: started.append(of))
    monkeypatch.setattr(threading.Thread, "start", started.append)
    await talk(tmp_path, seed=0)
    assert not started


async def test_people_of_other_servers_are_served(tmp_path: Path) -> None:
    agent = {"allowed_domains": ["capulet.example", "montague.example"]}
    async with service(tmp_path, {"agent": agent}) as kit:
        romeo = kit.peer("romeo@montague.example/orchard")
        assert await romeo.ask("/ping", "pong") == "pong"
        answer = await romeo.iq("get", "<ping xmlns='urn:xmpp:ping'/>", to="verona.example")
        assert answer.type == "error"


async def test_two_services_run_in_one_process(tmp_path: Path) -> None:
    server = {"component_domain": "agent.montague.example"}
    async with (
        service(tmp_path / "a", model=Script("Yes, Juliet?")) as capulet,
        service(tmp_path / "b", {"server": server}, model=Script("Yes, Romeo?")) as montague,
    ):
        juliet = capulet.peer(JULIET)
        romeo = montague.peer("romeo@montague.example/orchard")
        assert await juliet.ask("Are you there?", "Yes") == "Yes, Juliet?"
        assert await romeo.ask("Are you there?", "Yes") == "Yes, Romeo?"


async def test_stanzas_between_servers_take_time_and_stay_in_order(tmp_path: Path) -> None:
    async with service(tmp_path) as kit:
        juliet, romeo = kit.peer(JULIET), kit.peer("romeo@montague.example/garden")
        delays = iter((5.0, 1.0))
        kit.xmpp.delay = lambda: next(delays)
        for words in ("first", "second"):
            await juliet.say(words, "romeo@montague.example/garden")
        await kit.advance(4)
        assert romeo.take() == []
        assert [await romeo.hear(), await romeo.hear()] == ["first", "second"]


async def test_stanzas_between_parted_domains_are_lost(tmp_path: Path) -> None:
    async with service(tmp_path) as kit:
        juliet, romeo = kit.peer(JULIET), kit.peer("romeo@montague.example/garden")
        kit.xmpp.parted = {frozenset(("capulet.example", "montague.example"))}
        await juliet.say("lost", "romeo@montague.example/garden")
        kit.xmpp.parted.clear()
        await juliet.say("joined", "romeo@montague.example/garden")
        assert await romeo.hear() == "joined"
