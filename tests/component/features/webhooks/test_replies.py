"""The result of a delivery's work becomes a reply, once, with the rights and labels that it has."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import anyio
import msgspec
import pytest
from msgspec import Meta

from component.features.http_listener import listener
from component.features.http_listener.listener import ListenError
from component.features.webhooks import rows
from component.features.webhooks.rows import Reply
from component.kernel.triggers import Trigger, Work
from component.skills import Skill, SkillError, skill
from tests.kit import Kit, Script, anyio_backend, service
from xep.jid import JID
from xep.stanza_error import StanzaError

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

JULIET = JID.parse("juliet@capulet.example")
SETTINGS = """
[agent]
notice = ""
[http]
port = 8470
[[webhook]]
name = "hook"
kind = "github"
secret = "0123456789abcdef"
skill = "echo"
principal = "juliet@capulet.example"
[[policy.flows]]
of = ["web"]
to = ["*"]
then = "allow"
"""


class Replied:
    """The skills `post`, which keeps the replies, and `tell`, whose results are replied."""

    def __init__(self) -> None:
        self.posted: list[tuple[str, str]] = []
        self._arrived = anyio.Event()

    async def arrived(self) -> None:
        """Wait for the first reply, for an hour of the simulated clock."""
        with anyio.fail_after(3600):
            await self._arrived.wait()

    def skills(self) -> tuple[Skill, ...]:
        """Return the skills."""

        @skill(name="post", destructive=False)
        def post(where: str, text: Annotated[str, Meta(max_length=20)]) -> str:
            """Post a text."""
            self.posted.append((where, text))
            self._arrived.set()
            return "Posted."

        @skill(name="tell", destructive=False, open_world=False)
        def tell(text: str) -> str:
            """Tell a text."""
            if text == "fail":
                raise SkillError("It failed.")
            return text

        return post, tell


@asynccontextmanager
async def replying(
    directory: Path, monkeypatch: pytest.MonkeyPatch, model: Script | None = None
) -> AsyncIterator[tuple[Kit, Replied]]:
    def refuse(_host: str, _port: int) -> None:
        raise ListenError("Deliveries come from the test.")

    monkeypatch.setattr(listener, "listening_socket", refuse)
    replied = Replied()
    async with service(directory, SETTINGS, model=model, skills=replied.skills()) as kit:
        yield kit, replied


async def deliver(kit: Kit, key: str = "1", *, failed: str = "Sorry.", **work: Any) -> None:
    """Start the work of a delivery with a reply, as a request does."""
    params = msgspec.Raw(b'{"where": "here"}')
    trigger = Trigger(source="webhook", name="hook", key=key, taint="web")
    made = Work(agent="assistant", principal=JULIET, silent=True, filled=True, **work)
    reply = Reply(
        webhook="hook",
        delivery=key,
        agent="assistant",
        principal=JULIET,
        skill="post",
        params=params,
        text="text",
        failed=failed,
        of_skill=made.skill,
    )
    await kit.kernel.starter.start(trigger, made, partial(rows.add_reply, reply))


def telling(text: str) -> dict[str, Any]:
    return {"skill": "tell", "params": msgspec.Raw(msgspec.json.encode({"text": text}))}


async def left(kit: Kit) -> int:
    def op(database: Any) -> int:
        return int(database.execute("SELECT count(*) FROM webhook_replies").fetchone()[0])

    return await kit.kernel.storage.read(op)


async def test_the_result_is_the_parameter_and_is_cut_to_its_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with replying(tmp_path, monkeypatch) as (kit, replied):
        await deliver(kit, **telling("x" * 30))
        await replied.arrived()
        await kit.settled()
        assert await left(kit) == 0
    assert replied.posted == [("here", "x" * 19 + "…")]


async def test_a_failure_is_replied_unless_nothing_is_to_be_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with replying(tmp_path, monkeypatch) as (kit, replied):
        await deliver(kit, "1", failed="", **telling("fail"))
        await deliver(kit, "2", **telling("fail"))
        await replied.arrived()
        await kit.settled()
        assert await left(kit) == 0
    assert replied.posted == [("here", "Sorry.")]


async def test_what_an_agent_says_counts_as_text_of_anybody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rule permits text from the web, and not what a peer or a file may have said."""
    async with replying(tmp_path, monkeypatch, Script("Good evening.")) as (kit, replied):
        juliet = kit.peer(f"{JULIET}/balcony")
        await deliver(kit, goal="Greet.")
        asked = await juliet.hear("Good evening.")
        assert "yes or no" in asked
        assert not replied.posted


async def test_a_reply_waits_until_its_skill_can_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with replying(tmp_path, monkeypatch) as (kit, replied):
        start, refused = kit.kernel.starter.start, anyio.Event()

        async def paused(trigger: Trigger, *rest: Any) -> str | None:
            if trigger.key == "1":
                return await start(trigger, *rest)
            refused.set()
            raise StanzaError("resource-constraint", "New work is paused.")

        monkeypatch.setattr(kit.kernel.starter, "start", paused)
        await deliver(kit, **telling("later"))
        with anyio.fail_after(3600):
            await refused.wait()
        await kit.settled()
        assert await left(kit) == 1
        monkeypatch.setattr(kit.kernel.starter, "start", start)
        await replied.arrived()
    assert replied.posted == [("here", "later")]


async def test_a_reply_does_not_wait_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with replying(tmp_path, monkeypatch) as (kit, replied):
        start = kit.kernel.starter.start

        async def paused(trigger: Trigger, *rest: Any) -> str | None:
            if trigger.key == "1":
                return await start(trigger, *rest)
            raise StanzaError("resource-constraint", "New work is paused.")

        monkeypatch.setattr(kit.kernel.starter, "start", paused)
        await deliver(kit, **telling("never"))
        await kit.jump(1_000, stride_s=100)
        assert await left(kit) == 0
    assert not replied.posted
