"""Services of two and of three domains that use each other's skills."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from component.skills import Context, Skill, skill
from tests.kit import Kit, Peer, anyio_backend, service
from xep.binding import encode
from xep.fluux_agent.execute import Accepted, Execute, Param, Result
from xep.fluux_agent.skills import SkillsQuery
from xep.fluux_agent.task import Task
from xep.stanza import Incoming

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


@skill(read_only=True, open_world=False)
async def which(context: Context) -> str:
    """Ask which one."""
    schema = {
        "type": "object",
        "properties": {"color": {"type": "string"}},
        "required": ["color"],
    }
    answer = await context.ask("Which color?", schema)
    return f"It is {answer['color']}."


@skill(read_only=True, open_world=False)
async def slow(context: Context) -> str:
    """Take a long time."""
    await context.progress(0.5, "half of it")
    await anyio.sleep(500)
    return "At last."


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
    async with two(tmp_path, sources) as (_, _, romeo):
        listed = await romeo.iq("get", encode(SkillsQuery(search="sources")))
        assert [one.name for one in listed.require(SkillsQuery).skills] == ["b.sources"]
        answer = await execute(romeo, "b.sources", topic="rivers")
        accepted = answer.payload(Accepted)
        assert accepted is not None
        task = await ended(romeo)
        assert (task.id, text_of(task.result)) == (accepted.task, "Sources about rivers.")
