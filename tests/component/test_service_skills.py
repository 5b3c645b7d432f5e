"""Installed skills in the whole service: approved and revoked by forms and the control socket."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from anyio import to_thread
from pydantic import SecretStr

from component.app.service import Service
from component.config import Agent, Skills
from component.config.skills import SkillScheduleEntry
from component.control.client import ControlAnswer, ControlRequest, ask
from component.features.apis.settings import OpenApi
from component.features.mcp.settings import McpServer
from component.skills import sources
from tests.component.features.apis.documents import encoded, petstore
from tests.component.features.apis.test_openapi_source import changed_list
from tests.component.features.installed_skills.world import install
from tests.component.features.mcp.serving import scripted
from tests.component.test_service import AGENT, Change, client, new_server, running, settings
from tests.demo_server.peers import LIMIT
from tests.servers.clients import Element, SlixClient
from tests.servers.talk import condition, execute, output
from tests.servers.test_commands_service import Dialogue
from tests.waiting import eventually

pytestmark = pytest.mark.anyio
__all__ = ["settings"]  # pytest finds the fixture by its name in here

SCHEDULE = """
[skill.schedule]
when = "every day at 9"
params = { who = "Romeo" }
"""


class World:
    """A service with a directory of skills, its admin juliet and its user romeo."""

    def __init__(self, service: Service, data: Path, juliet: SlixClient, romeo: SlixClient) -> None:
        self.service = service
        self.root = data.parent / "skills"
        self._data, self._juliet, self.romeo = data, juliet, romeo

    async def operate(self, command: str, **params: Any) -> ControlAnswer:
        """Run a command by the control socket."""
        request = ControlRequest(command, msgspec.Raw(msgspec.json.encode(params)))
        answer = await to_thread.run_sync(ask, self._data, request)
        assert answer is not None
        return answer

    async def submit(self, node: str, *, who: str = "juliet", **values: str) -> tuple[str, str]:
        """Fill in the form of a command; return the kind and the text of its note."""
        asker = self._juliet if who == "juliet" else self.romeo

        def fill() -> tuple[str, str]:
            dialogue = Dialogue(asker, f"assistant@{AGENT}", f"command/{node}")
            dialogue.submit(**values)
            return dialogue.note

        return await to_thread.run_sync(fill)

    async def execute(self, name: str = "greet", **params: str) -> Element:
        """Execute a skill as romeo."""
        return await to_thread.run_sync(
            lambda: self.romeo.iq(AGENT, execute(name, **params), "set")
        )

    async def told(self) -> str:
        """Return the next message to the admin."""
        message = await self._juliet.anext_message()
        assert message is not None
        return message.findtext("{jabber:client}body") or ""

    async def schedules(self) -> list[str]:
        """Return the names of the schedules that skills bring."""
        answer = await self.operate("schedule", action="list")
        rows = msgspec.json.decode(answer.value, type=list[dict[str, str]])
        return [row["name"] for row in rows if row["origin"] == "skill"]


@asynccontextmanager
async def world_of(
    make: Change,
    path: Path,
    openapi: dict[str, OpenApi] | None = None,
    mcp: dict[str, McpServer] | None = None,
    **skills: Any,
) -> AsyncIterator[World]:
    root = path / "skills"
    root.mkdir(exist_ok=True)
    given = Skills(directories=(root,), **skills)
    agent = Agent(allowed_domains=("localhost",), admins=("juliet@localhost",))
    with anyio.fail_after(3 * LIMIT):
        async with (
            new_server() as server,
            running(
                *(server, make), skills=given, agent=agent, openapi=openapi or {}, mcp=mcp or {}
            ) as service,
            client(server, "juliet") as juliet,
            client(server, "romeo") as romeo,
        ):
            yield World(service, path / "data", juliet, romeo)


async def test_an_admin_approves_by_a_form_and_revokes_by_the_control_socket(
    settings: Change, tmp_path: Path
) -> None:
    install(tmp_path / "skills")
    async with world_of(settings, tmp_path) as world:
        assert condition(await world.execute(who="Romeo")) == "item-not-found"
        shown = await world.operate("installed-skills")
        assert "greet 1.0.0: waiting" in shown.text
        kind, text = await world.submit("approve-skill", name="greet", trusted="1")
        assert kind == "error"
        assert "Give the digest of what you approve" in text
        sheet = json.loads(bytes((await world.operate("show-skill", name="greet")).value))
        kind, text = await world.submit(
            "approve-skill", name="greet", trusted="1", digest=sheet["digest"]
        )
        assert kind == "info"
        assert text == "Approve a skill: done.", "the whole answer is a field of the form"
        assert output(await world.execute(who="Romeo")) == "Hello Romeo"
        gone = await world.operate("revoke-skill", name="greet")
        assert "not offered any more" in gone.text
        assert condition(await world.execute(who="Romeo")) == "item-not-found"
        # And the other way round: the digest binds what is approved to what was shown.
        refused = await world.operate("approve-skill", name="greet", digest="00000000")
        assert refused.error is not None
        assert "has changed" in refused.error
        back = await world.operate("approve-skill", name="greet", trusted=True)
        assert back.error is None
        assert output(await world.execute(who="Romeo")) == "Hello Romeo"
        kind, text = await world.submit("revoke-skill", name="greet")
        assert (kind, "not offered any more" in text) == ("info", True)
        again = await world.operate("revoke-skill", name="greet")
        assert again.error is not None
        sheet = json.loads(bytes((await world.operate("show-skill", name="greet")).value))
        assert sheet["state"] == "revoked"


async def test_admins_are_told_of_descriptions_that_wait_and_approve_them_by_a_form(
    settings: Change, tmp_path: Path
) -> None:
    document = tmp_path / "pets.json"
    document.write_bytes(encoded(petstore()))
    shop = OpenApi(
        document=document,
        server="https://api.example.com",
        operations=("listPets",),
        credentials={"key": SecretStr("x")},
        refresh_s=0.1,
    )
    async with world_of(settings, tmp_path, {"shop": shop}) as world:
        sentence = "The source openapi.shop has new or changed descriptions"
        document.write_bytes(encoded(changed_list()))  # juliet is there now
        assert sentence in await world.told()
        assert sentence in (await world.operate("status")).text
        registry = world.service.catalog.registry
        await eventually(lambda: registry.get("shop.listPets") is None)
        sheet = json.loads(bytes((await world.operate("show-skill", name="shop.listPets")).value))
        assert "/admin/pets" in sheet["source"]
        kind, text = await world.submit(
            "approve-skill", name="shop.listPets", digest=sheet["digest"]
        )
        assert kind == "info", text
        await eventually(lambda: registry.get("shop.listPets"))
        assert sentence not in (await world.operate("status")).text


async def test_a_source_that_is_late_does_not_delay_the_connection(
    settings: Change, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The MCP server never answers."""
    monkeypatch.setattr(sources, "START_S", 3600.0)
    install(tmp_path / "skills")
    mute = scripted("mute", start_timeout_s=3600)
    async with world_of(settings, tmp_path, mcp={"quiet": mute}, auto_approve="confined") as world:
        assert (
            "Sources of skills are not ready yet: mcp.quiet."
            in (await world.operate("status")).text
        )
        assert output(await world.execute(who="Romeo")) == "Hello Romeo", "its own are there"


async def test_skills_of_a_late_source_appear_when_they_come(
    settings: Change, tmp_path: Path
) -> None:
    async with world_of(settings, tmp_path, mcp={"s": scripted(read_only=["*"])}) as world:
        await eventually(lambda: world.service.catalog.registry.get("s.echo"))
        answer = await to_thread.run_sync(
            lambda: world.romeo.iq(AGENT, execute("s.echo", text="hello"), "set")
        )
        assert output(answer) == "hello"
        assert "not ready" not in (await world.operate("status")).text


async def test_only_admins_can_approve(settings: Change, tmp_path: Path) -> None:
    install(tmp_path / "skills")
    async with world_of(settings, tmp_path) as world:
        with pytest.raises(AssertionError, match=r"forbidden|item-not-found"):
            await world.submit("approve-skill", who="romeo", name="greet", trusted="1")
        assert "waiting" in (await world.operate("installed-skills")).text


async def test_the_schedule_of_a_skill_starts_at_its_approval_and_stops_at_its_revocation(
    settings: Change, tmp_path: Path
) -> None:
    root = tmp_path / "skills"
    install(root)
    (root / "greet" / "skill.toml").write_text(
        (root / "greet" / "skill.toml").read_text() + SCHEDULE
    )
    entry = SkillScheduleEntry(skill="greet", principal="romeo@localhost")

    async def scheduled(world: World, names: list[str]) -> None:
        async def are_so() -> bool:
            return await world.schedules() == names

        await eventually(are_so)

    async with world_of(settings, tmp_path, schedule=(entry,)) as world:
        assert await world.schedules() == []
        await world.operate("approve-skill", name="greet", trusted=True)
        await scheduled(world, ["greet"])
        await world.operate("revoke-skill", name="greet")
        await scheduled(world, [])
        await world.operate("approve-skill", name="greet", trusted=True)
        await scheduled(world, ["greet"])
    async with world_of(settings, tmp_path, schedule=(entry,)) as world:
        assert await world.schedules() == ["greet"]
