"""What is repeated, held and requested when answers and messages get lost."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Literal
from xml.etree.ElementTree import Element, fromstring

import pytest

from xep.binding import Payload, decode, encode
from xep.fluux_agent import errors as wire_errors
from xep.fluux_agent.confirm import Action, Confirm, Decision
from xep.fluux_agent.execute import Accepted, Execute, Output, Result
from xep.fluux_agent.task import Task as WireTask
from xep.stanza_error import StanzaError
from xmpp_agent_client import (
    AgentError,
    Agents,
    ConflictError,
    InvalidAnswerError,
    NoAnswerError,
    Task,
    UnknownTaskError,
    calls,
)
from xmpp_agent_client.errors import error_of

pytestmark = [pytest.mark.anyio, pytest.mark.ports]
AGENT = "agent.example.com"
LIMIT = 20.0  # seconds; a bound for a busy machine, not an expectation
LOST = ConnectionError("the stream ended")
Answer = Payload | Exception | Callable[[], Payload | Exception]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def _no_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tests wait for messages alone, unless they say otherwise."""
    monkeypatch.setattr(calls, "_POLL_S", 1e6)


class Scripted(Agents):
    """An adapter whose answers are given: a payload, an exception to raise, or what makes one."""

    def __init__(self, *answers: Answer) -> None:
        super().__init__()
        self.answers = list(answers)
        self.sent: list[tuple[str, str]] = []
        self.connected()

    @property
    def own_domain(self) -> str:
        return "example.com"

    async def send_iq(self, type_: Literal["get", "set"], to: str, payload: str) -> Element | None:
        self.sent.append((to, payload))
        await asyncio.sleep(0)
        if not self.answers:
            await asyncio.Event().wait()
        answer = self.answers.pop(0)
        if answer is LOST:
            # It is there again in the next round of the loop.
            self.disconnected()
            asyncio.get_running_loop().call_soon(self.connected)
        found = answer() if callable(answer) else answer
        if isinstance(found, Exception):
            raise found
        return fromstring(encode(found))

    def says(self, *payloads: Payload, sender: str = AGENT) -> None:
        """Take a message."""
        content = "".join(map(encode, payloads))
        self.hear(fromstring(f"<message xmlns='jabber:client' from='{sender}'>{content}</message>"))

    @property
    def payloads(self) -> list[str]:
        return [payload for _, payload in self.sent]


RESULT = Result(skill="echo", outputs=(Output(name="output", text="hello"),))
ACCEPTED = Accepted(task="t-1")
CONFIRM = Confirm(id="c-1", task="t-1", action=Action(type="erase"))


def task(state: Any = "running", revision: int = 1, **fields: Any) -> WireTask:
    return WireTask(id="t-1", skill="echo", state=state, revision=revision, **fields)


DONE = task("completed", 2, result=RESULT)


async def states(execution: AsyncIterator[Any]) -> list[str]:
    return [news.state async for news in execution if isinstance(news, Task)]


async def test_a_request_is_repeated_unchanged_after_a_broken_stream() -> None:
    agents = Scripted(LOST, LOST, RESULT)
    result = await agents.at(AGENT).call("echo", {"text": "hello"}, texts={"a": "b"})
    assert result.text == "hello"
    first, second, third = agents.payloads
    assert first == second == third
    assert decode(Execute, fromstring(first)).request


async def test_each_request_has_an_id_of_its_own() -> None:
    agents = Scripted(RESULT, RESULT, RESULT)
    agent = agents.at(AGENT)
    await agent.call("echo")
    await agent.call("echo")
    await agent.call("echo", request="mine")
    ids = [decode(Execute, fromstring(payload)).request for payload in agents.payloads]
    assert len(set(ids)) == 3
    assert ids[-1] == "mine"


async def test_a_request_without_an_answer_is_repeated() -> None:
    agents = Scripted(TimeoutError(), RESULT)
    await agents.at(AGENT).call("echo")
    first, second = agents.payloads
    assert first == second


async def test_a_request_waits_for_the_stream() -> None:
    agents = Scripted(RESULT)
    agents.disconnected()
    calling = asyncio.ensure_future(agents.at(AGENT).call("echo"))
    await asyncio.sleep(0)
    assert agents.sent == []
    agents.connected()
    assert (await calling).text == "hello"


async def test_a_request_that_ends_each_stream_is_given_up() -> None:
    agents = Scripted(*[LOST] * 5)
    with pytest.raises(NoAnswerError, match="ended 3 times") as raised:
        await agents.at(AGENT).execute("echo")
    assert len(agents.sent) == 3
    request = decode(Execute, fromstring(agents.payloads[0])).request
    assert raised.value.request == request


async def test_a_request_that_is_never_answered_is_given_up_with_its_id() -> None:
    agents = Scripted()
    agents.give_up_after = 0.01
    with pytest.raises(NoAnswerError, match="has not answered") as raised:
        await agents.at(AGENT).execute("echo", request="mine")
    assert raised.value.request == "mine"


async def test_an_event_before_the_answer_to_the_request_is_not_lost() -> None:
    def accepted() -> Payload:
        agents.says(task(), sender=f"{AGENT}/x")
        agents.says(DONE)
        return ACCEPTED

    agents = Scripted(accepted)
    execution = await agents.at(AGENT).execute("echo")
    assert await states(execution) == ["accepted", "running", "completed"]
    assert (await execution.result()).text == "hello"
    assert len(agents.sent) == 1


async def test_an_event_of_another_sender_is_ignored() -> None:
    agents = Scripted(ACCEPTED)
    execution = await agents.at(AGENT).execute("echo")
    agents.says(task("failed", 1), sender="mallory@example.com")
    agents.says(task("failed", 1), sender=f"other@{AGENT}")
    agents.says(task())
    agents.says(DONE)
    assert await states(execution) == ["accepted", "running", "completed"]


async def test_a_task_is_requested_after_a_reconnect() -> None:
    agents = Scripted(ACCEPTED, DONE)
    execution = await agents.at(AGENT).execute("echo")
    following = asyncio.ensure_future(states(execution))
    await asyncio.sleep(0)
    agents.disconnected()
    agents.connected()
    async with asyncio.timeout(LIMIT):
        assert await following == ["accepted", "completed"]


async def test_a_task_is_requested_after_a_gap() -> None:
    whole = (Output(name="verse", part=1, last=False, text="ab"),)
    agents = Scripted(ACCEPTED, task("running", 3, outputs=whole), DONE)
    execution = await agents.at(AGENT).execute("echo")
    agents.says(task("running", 3, outputs=(Output(name="verse", part=1, last=False, text="b"),)))
    seen = execution.__aiter__()
    assert (await anext(seen)).revision == 0
    news = await anext(seen)
    assert isinstance(news, Task)
    assert (news.revision, news.outputs[0].text) == (3, "ab")


async def test_a_task_is_requested_when_nothing_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "_POLL_S", 0.01)
    agents = Scripted(ACCEPTED, task(), DONE)
    execution = await agents.at(AGENT).execute("echo")
    assert await states(execution) == ["accepted", "running", "completed"]


async def test_following_survives_an_agent_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "_POLL_S", 0.01)
    away = error_of(StanzaError("remote-server-not-found"))
    agents = Scripted(ACCEPTED, away, away, DONE)
    execution = await agents.at(AGENT).execute("echo")
    assert await states(execution) == ["accepted", "completed"]


async def test_following_ends_when_the_agent_does_not_know_the_task() -> None:
    agents = Scripted(error_of(wire_errors.unknown_task()))
    with pytest.raises(UnknownTaskError):
        await agents.at(AGENT).task("t-1").result()


async def test_following_an_agent_that_stays_away_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "_POLL_S", 0.01)
    away = error_of(StanzaError("remote-server-not-found"))
    agents = Scripted(*[away] * 1000)
    agents.give_up_after = 0.05
    with pytest.raises(AgentError, match="remote-server-not-found"):
        await agents.at(AGENT).task("t-1").result()


async def test_a_task_that_is_not_followed_keeps_few_messages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(calls, "_MOST_WAITING", 10)
    agents = Scripted(ACCEPTED, DONE)
    execution = await agents.at(AGENT).execute("echo")
    for revision in range(1, 1000):
        agents.says(task(revision=revision))
    assert len(execution._inbox) <= 10
    agents.answers = [task("completed", 1000, result=RESULT)]
    assert await states(execution) == ["accepted", "completed"]


async def test_a_decision_goes_to_the_agent_that_asked() -> None:
    agents = Scripted(ACCEPTED, lambda: error_of(wire_errors.conflict("decided otherwise")))
    execution = await agents.at(AGENT).execute("erase")
    agents.says(CONFIRM, sender=f"{AGENT}/x")
    async for news in execution:
        if not isinstance(news, Task):
            with pytest.raises(ConflictError):
                await agents.decide(news, approve=True)
            break
    to, payload = agents.sent[-1]
    assert to == AGENT
    assert decode(Decision, fromstring(payload)).id == "c-1"


async def test_confirmations_of_other_tasks_are_heard_once() -> None:
    def accepted() -> Payload:
        agents.says(CONFIRM)
        agents.says(Confirm(id="c-2", task="t-2", action=Action(type="erase")))
        return ACCEPTED

    agents = Scripted(accepted)
    confirmations = agents.confirmations()
    waiting = asyncio.ensure_future(anext(confirmations))
    await asyncio.sleep(0)
    execution = await agents.at(AGENT).execute("erase")
    agents.says(Confirm(id="c-3", task="t-3", action=Action(type="erase")))
    assert [(await waiting).id, (await anext(confirmations)).id] == ["c-2", "c-3"]
    seen = execution.__aiter__()
    assert isinstance(await anext(seen), Task)
    assert (await anext(seen)).id == "c-1"


async def test_an_answer_without_a_result_is_an_error() -> None:
    agents = Scripted(ACCEPTED)
    execution = await agents.at(AGENT).execute("echo")
    agents.says(task("completed", 1))
    with pytest.raises(InvalidAnswerError):
        await execution.result()


def test_an_address_is_checked() -> None:
    with pytest.raises(ValueError, match="not an address"):
        Scripted.at(Scripted.__new__(Scripted), "a b@c")
