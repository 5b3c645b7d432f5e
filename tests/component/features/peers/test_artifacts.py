"""Parts of artifacts that peers send: each is reported once, in order, whatever was lost."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.features.peers.artifacts import Received
from component.skills import Context, skill
from tests.component.features.peers.scripted import ScriptedAgent
from tests.component.features.peers.test_calls import (
    ROMEO,
    ended,
    settings,
    text_of,
    two,
    used_by,
    using,
    with_scripted,
)
from tests.kit import Kit, Peer, anyio_backend, service
from xep.binding import encode
from xep.fluux_agent.execute import Accepted, Execute, Output, Result
from xep.fluux_agent.task import Progress, Task

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio


def part(number: int, text: str, *, last: bool = False, name: str = "draft") -> Output:
    return Output(name=name, part=number, last=last, text=text)


def running(revision: int, *outputs: Output, progress: Progress | None = None) -> Task:
    return Task(id="t1", state="running", revision=revision, outputs=outputs, progress=progress)


def completed(revision: int, *outputs: Output) -> Task:
    result = Result(skill="x", outputs=outputs)
    return Task(id="t1", state="completed", revision=revision, result=result)


async def accepted(a: Kit, b: ScriptedAgent, romeo: Peer) -> str:
    """Let the peer accept a call; return the id of the task of A."""
    b.results["x"] = Accepted(task="t1")
    b.tasks["t1"] = running(0)
    answer = await romeo.iq("set", encode(Execute(skill="b.x", mode="async")))
    await a.advance(2)
    return answer.require(Accepted).task


def parts_heard(romeo: Peer) -> list[tuple[str, int | None, str, bool]]:
    """Return the parts that a person has got so far, in order."""
    found = []
    for stanza in romeo.stanzas:
        task = stanza.payload(Task)
        if task is not None and stanza.kind == "message":
            found += [(one.name, one.part, one.text, one.last) for one in task.outputs]
    return found


async def test_parts_of_a_peer_are_parts_of_the_task_here(tmp_path: Path) -> None:
    async with with_scripted(tmp_path, "x") as (a, b, romeo):
        await accepted(a, b, romeo)
        b.report(running(1, part(0, "One. ")), is_kept=False)
        await a.advance(1)
        b.report(running(2, part(1, "Two. ")), is_kept=False)
        b.report(running(2, part(1, "Two. ")), is_kept=False)
        b.report(running(1, part(0, "One. ")), is_kept=False)
        await a.advance(1)
        assert parts_heard(romeo) == [
            ("draft", 0, "One. ", False),
            ("draft", 1, "Two. ", False),
        ]
        b.report(completed(4, Output(name="draft", text="One. Two. Three.")), kind="normal")
        task = await ended(romeo)
        # The last part was lost; the result shows it.
        assert parts_heard(romeo)[2:] == [("draft", 2, "Three.", True)]
        assert text_of(task.result) == "One. Two. Three."
        assert task.result is not None
        assert len(task.result.outputs) == 1


async def test_parts_that_were_lost_are_asked_for(tmp_path: Path) -> None:
    async with with_scripted(tmp_path, "x") as (a, b, romeo):
        await accepted(a, b, romeo)
        b.report(running(1, part(0, "One. ")), is_kept=False)
        await a.advance(1)
        b.tasks["t1"] = running(3, part(2, "One. Two. Three. "))
        b.report(running(3, part(2, "Three. ")), is_kept=False)
        await a.advance(2)
        assert parts_heard(romeo) == [
            ("draft", 0, "One. ", False),
            ("draft", 1, "Two. Three. ", False),
        ]


@pytest.mark.parametrize("is_killed", [False, True])
async def test_parts_are_reported_once_although_the_connection_or_the_service_ends(
    tmp_path: Path, is_killed: bool
) -> None:
    async with with_scripted(tmp_path, "x") as (a, b, romeo):
        task = await accepted(a, b, romeo)
        b.report(running(1, part(0, "One. ")), is_kept=False)
        await a.advance(1)
        if is_killed:
            await a.kill()
        else:
            a.xmpp.disconnect("agent.a.example")
        b.tasks["t1"] = running(3, part(2, "One. Two. Three. "))
        if is_killed:
            await a.start()
        await a.advance(30)
        b.report(running(4, part(3, "Four.", last=True)), is_kept=False)
        await a.advance(5)
        shown = (await romeo.iq("get", encode(Task(id=task)))).require(Task)
        assert [(one.text, one.part) for one in shown.outputs] == [("One. Two. Three. Four.", 2)]
        b.report(completed(5, Output(name="draft", text="One. Two. Three. Four.")), kind="normal")
        assert text_of((await ended(romeo)).result) == "One. Two. Three. Four."
        texts = {number: text for _, number, text, _ in parts_heard(romeo)}
        assert texts == {0: "One. ", 1: "Two. Three. ", 2: "Four."}


async def test_a_flood_of_events_costs_a_few_commits(tmp_path: Path) -> None:
    async with with_scripted(tmp_path, "x") as (a, b, romeo):
        task = await accepted(a, b, romeo)
        asked_before = len(b.requests)
        for number in range(2000):
            progress = Progress(text=str(number))
            b.report(running(number + 1, part(number, "x"), progress=progress), is_kept=False)
        b.tasks["t1"] = running(2000, part(1999, "x" * 2000))
        await a.advance(10)
        assert "".join(text for _, _, text, _ in parts_heard(romeo)) == "x" * 2000
        shown = (await romeo.iq("get", encode(Task(id=task)))).require(Task)
        assert shown.revision is not None
        assert shown.revision < 20
        assert 0 < len(b.requests) - asked_before < 10, "too many events: it asked"


async def test_more_than_a_result_may_have_is_not_shown(tmp_path: Path) -> None:
    async with with_scripted(tmp_path, "x") as (a, b, romeo):
        await accepted(a, b, romeo)
        most = a.kernel.tasks.limits.result_bytes
        for number in range(10):
            b.report(running(number + 1, part(number, "x" * (most // 4))), is_kept=False)
            await a.advance(1)
        assert sum(len(text) for _, _, text, _ in parts_heard(romeo)) <= most
        b.report(completed(11, Output(name="output", text="done")), kind="normal")
        task = await ended(romeo)
        assert task.result is not None
        assert task.result.outputs[-1].text == "done"


async def test_a_result_that_contradicts_its_parts_counts(tmp_path: Path) -> None:
    async with with_scripted(tmp_path, "x") as (a, b, romeo):
        await accepted(a, b, romeo)
        b.report(running(1, part(0, "One. ")), is_kept=False)
        await a.advance(1)
        b.report(running(2, part(0, "Something else. ")), is_kept=False)
        await a.advance(1)
        b.report(completed(3, Output(name="draft", text="Nothing.")), kind="normal")
        task = await ended(romeo)
        assert task.result is not None
        assert [(one.name, one.text) for one in task.result.outputs] == [("draft", "Nothing.")]
        assert [text for _, _, text, _ in parts_heard(romeo)] == ["One. "]


@skill(read_only=True, open_world=False, durable=True)
async def draft(context: Context) -> str:
    """Write a draft."""
    for number, text in enumerate(("One. ", "Two. ", "Three.")):
        await context.output("draft", text, last=number == 2)
        await context.sleep(20)
    return "It is done."


async def test_parts_of_a_skill_of_another_service_are_shown(tmp_path: Path) -> None:
    async with two(tmp_path, draft, read_only=["draft"]) as (_, _, romeo):
        await romeo.iq("set", encode(Execute(skill="b.draft", mode="async")))
        task = await ended(romeo)
        assert [text for _, _, text, _ in parts_heard(romeo)] == ["One. ", "Two. ", "Three."]
        assert task.result is not None
        texts = {one.name: one.text for one in task.result.outputs}
        assert texts == {"draft": "One. Two. Three.", "output": "It is done."}


@given(
    st.lists(st.text(min_size=1, max_size=4), min_size=1, max_size=8),
    st.lists(st.tuples(st.booleans(), st.integers(0, 7)), max_size=20),
)
def test_whatever_is_lost_or_comes_again_the_parts_are_the_artifact(
    texts: list[str], events: list[tuple[bool, int]]
) -> None:
    received = Received({}, [], 10_000)
    made: list[Output] = []
    for is_joined, number in events:
        if number >= len(texts):
            continue
        text = "".join(texts[: number + 1]) if is_joined else texts[number]
        new, _ = received.take([part(number, text)], joined=is_joined)
        made += new
    made += received.end([Output(name="draft", text="".join(texts))])
    assert [one.part for one in made] == list(range(len(made)))
    if made:
        assert "".join(one.text for one in made) == "".join(texts)
        assert [one.last for one in made] == [False] * (len(made) - 1) + [True]


@skill(read_only=True, open_world=False, durable=True)
async def pass_on(context: Context) -> str:
    """Have another agent write a draft, and show it."""
    (done,) = await context.wait([await context.start("c.draft", {}, shown_as="c")])
    return f"Done: {done.state}"


@pytest.mark.parametrize("killed", ["", "a", "b"])
async def test_a_person_sees_the_parts_of_the_last_agent_through_the_one_in_between(
    tmp_path: Path, killed: str
) -> None:
    c_settings = settings("c", used_by("b", origins=["a.example"]))
    b_peers = used_by("a", delegates=["c.*"]), using("c", read_only=["draft"])
    a_settings = settings("a", using("b", read_only=["pass_on"]))
    async with (
        service(tmp_path / "c", c_settings, skills=(draft,)) as c,
        service(tmp_path / "b", settings("b", *b_peers), skills=(pass_on,), beside=c) as b,
        service(tmp_path / "a", a_settings, beside=b) as a,
    ):
        await a.settled()
        romeo = a.peer(ROMEO)
        await romeo.iq("set", encode(Execute(skill="b.pass_on", mode="async")))
        await a.advance(25)
        if killed:
            await (a if killed == "a" else b).restart(kill=True)
        task = await ended(romeo)
        heard = parts_heard(romeo)
        assert {name for name, *_ in heard} == {"c/draft"}
        assert [number for _, number, _, _ in heard] == list(range(len(heard)))
        assert "".join(text for _, _, text, _ in heard) == "One. Two. Three."
        assert task.result is not None
        texts = {one.name: one.text for one in task.result.outputs}
        assert texts == {"c/draft": "One. Two. Three.", "output": "Done: completed"}
