"""The examples of the guide for callers run with both libraries."""

import asyncio
import textwrap
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import xmpp_agent_client
from tests.demo_server.peers import AGENT
from tests.servers.guides import DOCS, block
from xmpp_agent_client import Agents, DeniedError

GUIDE = DOCS / "how-to" / "callers.md"
PLANS = DOCS / "how-to" / "program-plans.md"
pytestmark = [
    pytest.mark.anyio,
    pytest.mark.ports,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of aioxmpp
]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """Both libraries live on asyncio."""
    return "asyncio"


MOST_LINES = 10
Run = Callable[..., Awaitable[list[tuple[Any, ...]]]]


@pytest.fixture
def run(agents: Agents) -> Run:
    """Run an example; return what it prints."""

    async def run(name: str, guide: Path = GUIDE, **names: Any) -> list[tuple[Any, ...]]:
        source = block(guide, name).replace("agent.example.com", AGENT)
        assert len(source.strip().splitlines()) <= MOST_LINES
        printed: list[tuple[Any, ...]] = []
        given = {"agents": agents, "agent": agents.at(AGENT), "uuid": uuid, **names}
        given = vars(xmpp_agent_client) | {"print": lambda *words: printed.append(words)} | given
        exec(f"async def example():\n{textwrap.indent(source, '    ')}", given)
        await given["example"]()
        return printed

    return run


async def test_discover(run: Run) -> None:
    *infos, found, (schema, destructive) = await run("discover")
    assert AGENT in [info[0] for info in infos]
    assert found == ("trip-cost", "Trip cost", ["kilometres", "by", "people"])
    assert set(schema["properties"]) == {"kilometres", "by", "people"}
    assert not destructive


async def test_execute(run: Run) -> None:
    assert await run("execute") == [
        ("It says:", "about 90 euros"),
        ("kilometres", "kilometres: expected an integer"),
    ]


async def test_follow_and_find_later(run: Run, agents: Agents) -> None:
    *news, (result,) = await run("follow")
    assert [line[0] for line in news] == list(range(len(news)))
    assert news[0][1] == "accepted"
    assert news[-1][1] == "completed"
    assert result.endswith("3 lines")
    tasks = await agents.at(AGENT).tasks()
    assert (await run("later", task_id=tasks[0].id))[-1] == (result,)


async def test_plans(run: Run, agents: Agents) -> None:
    *news, (result,) = await run("plan", PLANS)
    assert news[-1] == ("completed", ["done", "done"])
    assert result == "about 90 euros; about 135 euros"
    tasks = await agents.at(AGENT).tasks()
    task_id, *_ = [task.id for task in tasks if task.plan is not None]
    step = {"id": "a", "kind": "ask", "question": "Where to?"}
    document = {"title": "Compare", "goal": "The costs of a trip", "steps": [step]}
    ((refused, why),) = await run("revise", PLANS, task_id=task_id, plan=document)
    assert refused
    assert "has ended" in why


async def test_answer(run: Run) -> None:
    (text, schema), (result,) = await run("answer")
    assert text == "What would you like?"
    assert set(schema["properties"]) == {"dish", "portions"}
    assert result == "2 x soup"


async def test_decide(run: Run) -> None:
    asked, (result,) = await run("decide")
    assert asked[:2] == ("empty-folder", {"folder": "Archive", "older_than_days": 30})
    assert result == "Archive: nothing is older than 30 days any more."


async def test_decide_others(run: Run, agents: Agents) -> None:
    heard = asyncio.Event()
    deciding = asyncio.ensure_future(run("decide others", print=lambda *_: heard.set()))
    await asyncio.sleep(0)
    agent = agents.at(AGENT)
    task = (await agent.execute("empty-folder", {"folder": "Drafts"})).task
    assert task is not None
    await heard.wait()
    with pytest.raises(DeniedError, match=r"Not today\."):
        await agent.task(task.id).result()
    deciding.cancel()


async def test_cancel(run: Run) -> None:
    assert await run("cancel") == [("cancelled",)]


async def test_request(run: Run) -> None:
    saved: list[str] = []
    await run("request", save=saved.append)
    assert len(saved) == 1
