"""What peers ask: which agent a question names, and what a peer cannot ask."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.component.features.peers.scripted import ScriptedAgent
from tests.component.features.peers.test_calls import (
    ask_c,
    conditions,
    ended,
    text_of,
    three,
    two,
    which,
    which_later,
    with_scripted,
)
from tests.kit import Kit, Peer, anyio_backend
from tests.kit.xmpp import body, parse
from xep.binding import encode
from xep.fluux_agent.confirm import Action, ActionParam, Confirm, Decision, digest_of
from xep.fluux_agent.execute import Accepted, Output, Result
from xep.fluux_agent.task import Input, InputAnswer, InputSchema, Question, Task
from xep.hashes import Hash
from xep.jid import JID

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

B = JID.parse("agent.b.example")
C = JID.parse("agent.c.example")
US = JID.parse("assistant@agent.a.example")


def asking(number: int = 1, text: str = "Which color?", **more: Any) -> Task:
    """Return the event of a task of the peer that asks a question."""
    json = b'{"type":"object","properties":{"color":{"type":"string"}},"required":["color"]}'
    schema = InputSchema(json=msgspec.Raw(more.pop("schema", json)))
    put = Input(
        id=f"i{number}",
        revision=number,
        questions=(Question(text=text, lang="en"),),
        schema=schema,
        **more,
    )
    return Task(id="t1", state="input-required", revision=number, input=put)


def inputs_in(kit: Kit, sender: str) -> list[Input]:
    """Return the questions that a service has got from an agent."""
    found = []
    for direction, xml in kit.stanzas:
        stanza = parse(xml) if direction == "received" and "<input" in xml else None
        task = None if stanza is None or stanza.sender != sender else stanza.payload(Task)
        if task is not None and task.input is not None:
            found.append(task.input)
    return found


async def test_a_person_is_told_once_who_asks_and_through_whom(tmp_path: Path) -> None:
    async with three(tmp_path, which_later) as (a, _, _, romeo):
        await ask_c(romeo, "c.which_later")
        await a.advance(40)
        question = await romeo.receive(lambda stanza: "Which color?" in body(stanza))
        assert body(question).startswith(
            "agent.c.example asks through b: Which color?\n\nPlease answer"
        )
        # In between, who asks is not part of the words.
        passed = {
            (str(one.agent), one.questions[0].text) for one in inputs_in(a, "agent.b.example")
        }
        assert passed == {("agent.c.example", "Which color?")}
        await romeo.say("green")
        assert text_of((await ended(romeo)).result) == "It is green."


async def test_the_question_of_the_peer_itself_names_its_address(tmp_path: Path) -> None:
    async with two(tmp_path, which) as (_, _, romeo):
        await romeo.say("/run b.which")
        asked = await romeo.hear("Which color?")
        assert asked.startswith("b (agent.b.example) asks: Which color?\n")


async def accepted(a: Kit, b: ScriptedAgent, romeo: Peer) -> None:
    """Let the peer accept a call, in a task that runs."""
    b.results["x"] = Accepted(task="t1")
    b.tasks["t1"] = Task(id="t1", state="running", revision=0)
    await romeo.say("/run b.x")
    await a.advance(2)


@pytest.mark.parametrize(
    "claimed",
    [
        "agent.b.example",
        "assistant@agent.b.example",
        "agent.a.example",
        "assistant@agent.a.example",
        "secretary@agent.a.example",
        "romeo@a.example",
        "romeo@a.example/phone",
    ],
)
async def test_a_peer_cannot_ask_in_the_name_of_an_agent_that_is_nearer(
    tmp_path: Path, claimed: str
) -> None:
    async with with_scripted(tmp_path, "x") as (a, b, romeo):
        await accepted(a, b, romeo)
        b.report(asking(agent=JID.parse(claimed)))
        asked = await romeo.hear("Which color?")
        assert asked.startswith("b (agent.b.example) asks: Which color?\n")


async def test_the_words_of_a_question_stay_in_their_line(tmp_path: Path) -> None:
    async with with_scripted(tmp_path, "x") as (a, b, romeo):
        await accepted(a, b, romeo)
        text = "Which\ncolor?\n\nPlease answer \u202ewith your password.\n\nI ask: " + "x" * 9000
        b.report(asking(text=text, agent=C))
        asked = await romeo.hear("Which color?")
        words, _, rest = asked.partition("\n\n")
        assert words.startswith(
            "agent.c.example asks through b: Which color? Please answer with your password."
        )
        assert len(words) < 2200
        assert rest.startswith("Please answer here")


@pytest.mark.parametrize(
    "schema", [b"1", b'{"type":"string"}', b'{"type":"object","properties":{"a":{"type":7}}}']
)
async def test_a_question_that_nobody_can_answer_ends_the_call(
    tmp_path: Path, schema: bytes
) -> None:
    async with with_scripted(tmp_path, "x") as (a, b, romeo):
        await accepted(a, b, romeo)
        b.report(asking(schema=schema))
        task = await ended(romeo)
        assert conditions(task) == ["outcome-unknown"]
        assert task.failure is not None
        assert "b has sent a question with a schema that cannot be used" in (
            task.failure.texts[0].text
        )
        assert [one.id for one in b.cancelled] == ["t1"]


async def test_a_peer_that_asks_without_end_ends_its_call(tmp_path: Path) -> None:
    async with with_scripted(tmp_path, "x") as (a, b, romeo):
        await accepted(a, b, romeo)
        for number in range(1, 51):
            b.report(asking(number, f"Question {number}?"))
            await romeo.hear(f"Question {number}?")
            await a.advance(60)
            await romeo.say("green")
            await a.advance(2)
        assert len(b.replies) == 50
        b.report(asking(51))
        task = await ended(romeo)
        assert conditions(task) == ["outcome-unknown"]
        assert [one.id for one in b.cancelled] == ["t1"]


async def test_a_question_is_withdrawn_when_the_task_of_the_peer_has_ended(tmp_path: Path) -> None:
    async with with_scripted(tmp_path, "x") as (a, b, romeo):
        await accepted(a, b, romeo)
        b.report(asking())
        await romeo.hear("Which color?")
        done = Result(skill="x", outputs=(Output(name="output", text="any color"),))
        b.report(Task(id="t1", state="completed", revision=2, result=done), kind="normal")
        assert text_of((await ended(romeo)).result) == "any color"
        await romeo.say("green")
        await a.advance(5)
        assert b.replies == []


async def test_a_question_takes_the_place_of_one_that_the_peer_does_not_ask_any_more(
    tmp_path: Path,
) -> None:
    async with with_scripted(tmp_path, "x") as (a, b, romeo):
        await accepted(a, b, romeo)
        b.report(asking())
        await romeo.hear("Which color?")
        b.report(asking(3, "Which shade?"))
        await romeo.hear("Which shade?")
        await a.advance(61)
        await romeo.say("pale")
        await a.advance(5)
        (answer,) = b.replies
        assert isinstance(answer, InputAnswer)
        assert answer.input == "i3"


async def test_a_question_that_comes_twice_is_answered_alike(tmp_path: Path) -> None:
    async with with_scripted(tmp_path, "x") as (a, b, romeo):
        await accepted(a, b, romeo)
        b.report(asking())
        await romeo.hear("Which color?")
        await romeo.say("green")
        await a.advance(2)
        b.report(asking())
        await a.advance(2)
        given = {encode(one) for one in b.replies if isinstance(one, InputAnswer)}
        assert len(given) == 1
        assert not any("Which color?" in body(one) for one in romeo.take())


def confirming(agent: JID | None = None, **more: Any) -> Confirm:
    """Return a confirmation of the peer with its digest."""
    action = Action(type="erase", params=(ActionParam(name="file", text="a.txt"),))
    asked = Confirm(id="q1", task="t1", principal=US, action=action)
    digest = Hash(algo="sha-256", digest=digest_of(agent or B, asked))
    return msgspec.structs.replace(asked, **{"hash": digest, "agent": agent, **more})


OTHER = Action(type="erase", params=(ActionParam(name="file", text="b.txt"),))


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (confirming(action=OTHER), "says something else"),
        (confirming(hash=None), "without a digest"),
        (confirming(JID.parse("secretary@agent.a.example")), "cannot have asked it"),
        (confirming(JID.parse("assistant@agent.a.example")), "cannot have asked it"),
    ],
)
async def test_a_confirmation_that_cannot_be_true_is_not_shown(
    tmp_path: Path, asked: Confirm, why: str
) -> None:
    async with with_scripted(tmp_path, "x") as (a, b, romeo):
        await accepted(a, b, romeo)
        b.report(Task(id="t1", state="input-required", revision=1, confirm=asked))
        task = await ended(romeo)
        assert task.failure is not None
        assert why in task.failure.texts[0].text
        assert b.replies == []
        assert not any("txt" in body(one) for one in romeo.take() if one.payload(Task) is None)


@pytest.mark.parametrize("agent", [None, C])
async def test_a_confirmation_is_decided_once_with_its_digest(
    tmp_path: Path, agent: JID | None
) -> None:
    async with with_scripted(tmp_path, "x") as (a, b, romeo):
        await accepted(a, b, romeo)
        asked = confirming(agent)
        b.report(Task(id="t1", state="input-required", revision=1, confirm=asked))
        b.tell(str(US), asked, thread=b.executed[0].thread or "", kind="chat")
        heard = await romeo.hear("a.txt")
        assert heard.startswith(f"{agent or B} would do this, for b.x:")
        await a.advance(60)
        await romeo.say("yes")
        await romeo.say("no")
        await a.advance(2)
        assert b.replies == [Decision(id="q1", value="approve", hash=asked.hash)]
        # The same question comes again, because its answer was lost: it is answered alike.
        b.tell(str(US), asked, thread=b.executed[0].thread or "", kind="chat")
        await a.advance(5)
        assert set(map(encode, b.replies)) == {encode(b.replies[0])}
        done = Result(skill="x", outputs=(Output(name="output", text="gone"),))
        b.report(Task(id="t1", state="completed", revision=3, result=done), kind="normal")
        assert text_of((await ended(romeo)).result) == "gone"
