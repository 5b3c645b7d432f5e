"""Both adapters call a service on the embedded server."""

import asyncio
import uuid
from itertools import pairwise
from typing import Any

import pytest
import slixmpp

from demo_server import DemoServer
from tests.demo_server.peers import AGENT
from tests.servers.proxy import Proxy
from tests.xmpp_agent_client.callers import LIMIT
from tests.xmpp_agent_client.conftest import BOT
from xmpp_agent_client import (
    Agents,
    Confirmation,
    ConfirmationUnavailableError,
    DeniedError,
    Execution,
    InvalidParamError,
    NoAnswerError,
    Question,
    Task,
    TaskCancelledError,
    UnknownSkillError,
    UnknownTaskError,
    slixmpp_plugin,
)

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.ports,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of aioxmpp
]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """Both libraries live on asyncio."""
    return "asyncio"


async def test_agents_of_the_own_server_are_found(agents: Agents) -> None:
    found = await agents.discover()
    assert AGENT in [info.address for info in found]


async def test_an_agent_says_what_it_is(agents: Agents) -> None:
    info = await agents.at(AGENT).info()
    assert info is not None
    assert "urn:fluux:agent:0#execute" in info.features
    assert info.details["protocol_version"] == "0"
    assert await agents.at("localhost").info() is None


async def test_skills_are_listed_and_found(agents: Agents) -> None:
    agent = agents.at(AGENT)
    names = [skill.name for skill in await agent.skills()]
    assert "echo" in names
    assert names == sorted(names)
    assert [skill.name for skill in await agent.skills(search="integers sum")] == [
        "conformance.add"
    ]
    skill = await agent.skill("conformance.add")
    assert skill.input_schema is not None
    assert set(skill.input_schema["properties"]) == {"a", "b"}
    assert [(one.name, one.type, one.required) for one in skill.parameters] == [
        ("a", "integer", True),
        ("b", "integer", True),
    ]
    assert skill.annotations.read_only
    with pytest.raises(UnknownSkillError):
        await agent.skill("no-such-skill")


async def test_a_result_is_returned(agents: Agents) -> None:
    agent = agents.at(AGENT)
    result = await agent.call("conformance.add", {"a": 2, "b": 3})
    assert (result.text, result.is_error) == ("5", False)
    assert (await agent.call("conformance.add", texts={"a": "2", "b": "3"})).text == "5"
    said = await agent.call("conformance.fail", {"message": "no <&> 'ü'"})
    assert (said.text, said.is_error) == ("no <&> 'ü'", True)


async def test_an_error_is_an_exception_with_its_condition(agents: Agents) -> None:
    agent = agents.at(AGENT)
    with pytest.raises(InvalidParamError) as raised:
        await agent.call("conformance.add", {"a": "x", "b": 3})
    assert raised.value.condition == "invalid-param"
    assert raised.value.stanza_condition == "bad-request"
    assert raised.value.param == "a"
    assert not raised.value.repeatable
    with pytest.raises(UnknownTaskError):
        await agent.get("no-such-task")


async def test_the_same_request_runs_once(agents: Agents) -> None:
    agent = agents.at(AGENT)
    first = await agent.call("conformance.count", {"key": "once"}, request="r-once")
    again = await agent.call("conformance.count", {"key": "once"}, request="r-once")
    other = await agent.call("conformance.count", {"key": "once"})
    assert first == again
    assert other != first


async def test_a_task_is_followed_through_each_revision(agents: Agents) -> None:
    execution = await agents.at(AGENT).execute("conformance.progress", {"steps": 2}, mode="async")
    states = [(news.revision, news.state) async for news in execution if isinstance(news, Task)]
    assert states[0] == (0, "accepted")
    assert states[-1][1] == "completed"
    assert [revision for revision, _ in states] == list(range(len(states)))
    assert (await execution.result()).outputs
    events = await agents.at(AGENT).events(task_of(execution).id)
    assert [event.revision for event in events] == list(range(1, len(states)))


async def test_an_artifact_grows(agents: Agents) -> None:
    execution = await agents.at(AGENT).execute("compose", {"topic": "the sea"}, mode="async")
    texts = []
    async for news in execution:
        if isinstance(news, Task) and news.outputs:
            assert not news.outputs[0].complete or len(texts) == 2
            texts.append(news.outputs[0].text)
    assert len(texts) == 3
    assert all(after.startswith(before) for before, after in pairwise(texts))
    assert texts[-1] == (await execution.result()).outputs[0].text


async def test_a_task_is_followed_by_its_id(agents: Agents) -> None:
    agent, context = agents.at(AGENT), str(uuid.uuid4())
    begun = await agent.execute("echo", {"text": "hello"}, mode="async", context=context)
    task = task_of(begun)
    assert (await agent.task(task.id).result()).text == "hello"
    assert [one.id for one in await agent.tasks(context=context)] == [task.id]
    assert (await agent.get(task.id)).state == "completed"


def task_of(execution: Execution) -> Task:
    assert execution.task is not None, "it is a task"
    return execution.task


async def answered(execution: Execution, values: dict[str, object] | None) -> list[str]:
    """Answer each question; return the questions."""
    asked = []
    async for news in execution:
        if isinstance(news, Question):
            asked.append(news.text)
            await execution.answer(news, values)
    return asked


async def test_a_question_is_answered(agents: Agents) -> None:
    question = {"question": "Which colour?"}
    execution = await agents.at(AGENT).execute("conformance.ask", question)
    assert await answered(execution, {"colour": "red"}) == ["Which colour?"]
    assert (await execution.result()).outputs[0].json()["colour"] == "red"


async def test_a_wrong_answer_leaves_the_question_open(agents: Agents) -> None:
    execution = await agents.at(AGENT).execute("conformance.ask", {"question": "Which?"})
    async for news in execution:
        if isinstance(news, Question):
            with pytest.raises(InvalidParamError):
                await execution.answer(news, {"colour": "no colour"})
            await execution.answer(news, {"colour": "green"})
    assert (await execution.result()).outputs[0].json()["colour"] == "green"


async def test_a_question_is_declined(agents: Agents) -> None:
    execution = await agents.at(AGENT).execute("conformance.ask", {"question": "Which?"})
    await answered(execution, None)
    with pytest.raises(DeniedError):
        await execution.result()


async def decided(agents: Agents, execution: Execution, *, approve: bool) -> list[Confirmation]:
    """Decide each confirmation; return them."""
    asked = []
    async for news in execution:
        if isinstance(news, Confirmation):
            asked.append(news)
            await agents.decide(news, approve=approve, reason="because")
    return asked


async def test_a_confirmation_is_approved_with_its_digest(agents: Agents) -> None:
    execution = await agents.at(AGENT).execute("conformance.erase", {"target": "the disk"})
    (asked,) = await decided(agents, execution, approve=True)
    assert (asked.skill, asked.params) == ("conformance.erase", {"target": "the disk"})
    assert asked.principal == "juliet@localhost"
    assert asked.genuine
    assert (await execution.result()).text


async def test_a_denial_says_why(agents: Agents) -> None:
    execution = await agents.at(AGENT).execute("conformance.erase", {"target": "the disk"})
    await decided(agents, execution, approve=False)
    with pytest.raises(DeniedError) as raised:
        await execution.result()
    assert raised.value.text == "because"
    assert raised.value.repeatable


async def test_a_confirmation_of_a_task_that_is_not_followed_is_heard(agents: Agents) -> None:
    confirmations = agents.confirmations()
    waiting = asyncio.ensure_future(anext(confirmations))
    await asyncio.sleep(0)
    agent = agents.at(AGENT)
    begun = await agent.execute("conformance.erase", {"target": "the disk"})
    task = task_of(begun).id
    del begun
    asked = await waiting
    assert asked.task == task
    await agents.decide(asked, approve=True)
    assert (await agent.task(task).result()).text
    await confirmations.aclose()


async def test_a_task_is_cancelled(agents: Agents) -> None:
    execution = await agents.at(AGENT).execute("conformance.sleep", {"seconds": 30}, mode="async")
    async for news in execution:
        if isinstance(news, Task) and news.state == "running":
            await execution.cancel("not needed")
    with pytest.raises(TaskCancelledError):
        await execution.result()


async def test_a_task_is_followed_through_a_broken_stream(agents: Agents, way: Proxy) -> None:
    execution = await agents.at(AGENT).execute("conformance.ask", {"question": "Which?"})
    async for news in execution:
        if isinstance(news, Question):
            way.cut()
            await execution.answer(news, {"colour": "blue"})
    assert (await execution.result()).outputs[0].json()["colour"] == "blue"


async def test_a_call_on_a_stream_that_breaks_runs_once(agents: Agents, way: Proxy) -> None:
    agent, key = agents.at(AGENT), str(uuid.uuid4())
    agents.answer_timeout = 1e6  # only the end of the stream lets it be repeated
    calling = asyncio.ensure_future(agent.call("conformance.count", {"key": key}))
    await asyncio.sleep(0)
    way.cut()
    async with asyncio.timeout(LIMIT):
        assert (await calling).text == "1"
    assert (await agent.call("conformance.count", {"key": key})).text == "2"


async def test_a_stream_that_is_closed_on_purpose_is_noticed(agents: Agents) -> None:
    agents.give_up_after = 0.05
    agents.disconnected()
    with pytest.raises(NoAnswerError):
        await agents.at(AGENT).info()


async def test_a_component_calls_as_well(server: DemoServer) -> None:
    """Its own requests are not those of a person, so nobody is asked for a confirmation."""
    xmpp = slixmpp.ComponentXMPP(BOT, "secret")
    agents = slixmpp_plugin.register(xmpp)
    xmpp.connect(server.address, server.component_port)
    assert AGENT in [info.address for info in await agents.discover()]
    agent = agents.at(AGENT)
    execution = await agent.execute("conformance.ask", {"question": "Which?"})
    assert await answered(execution, {"colour": "red"}) == ["Which?"]
    with pytest.raises(ConfirmationUnavailableError):
        await agent.call("conformance.erase", {"target": "x"})
    await xmpp.disconnect()


async def test_a_login_that_is_refused_ends_all_calls(server: DemoServer) -> None:
    xmpp = slixmpp.ClientXMPP("juliet@localhost", "wrong")
    xmpp.enable_direct_tls = False
    xmpp.ca_certs = server.ca_file
    agents = slixmpp_plugin.register(xmpp)
    xmpp.connect(server.address, server.c2s_port)
    with pytest.raises(NoAnswerError, match="does not accept the password"):
        await agents.at(AGENT).call("echo", {"text": "hello"})
    await xmpp.disconnect()


async def test_a_server_that_is_not_trusted_ends_all_calls(server: DemoServer) -> None:
    xmpp = slixmpp.ClientXMPP("juliet@localhost", "wrong")
    xmpp.enable_direct_tls = False
    agents = slixmpp_plugin.register(xmpp)
    xmpp.connect(server.address, server.c2s_port)
    with pytest.raises(NoAnswerError, match="certificate"):
        await agents.at(AGENT).call("echo", {"text": "hello"})
    await xmpp.disconnect()


async def test_a_plugin_can_be_removed() -> None:
    xmpp = slixmpp.ClientXMPP("juliet@localhost", "wrong")
    agents = slixmpp_plugin.register(xmpp)
    plugins: Any = xmpp.plugin
    assert plugins["agents"] is agents
    plugins.disable("agents")
    assert "agents" not in plugins
