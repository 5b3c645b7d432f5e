"""The guide to proposed skills, with a whole service: a model writes a skill, its tests run, an
admin approves it with the commands of the guide, and it is executed.
"""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from component.app.features import load
from component.app.service import Service
from component.config import Settings
from component.features.proposals.draft import SkillDraft
from component.skill_directories.proposals import read_proposal
from component.skills.manifest import read_manifest
from tests.component.features.proposals.world import CODE, SPLIT, WEATHER
from tests.component.models.endpoint import Calls, Endpoint, Text, serving
from tests.component.test_service import client
from tests.demo_server.peers import AGENT, new_server
from tests.docs.conftest import Commands
from tests.servers.clients import SlixClient
from tests.servers.guides import DOCS, block
from tests.servers.talk import condition, execute, output
from tests.waiting import LIMIT_S

GUIDE = DOCS / "how-to" / "install-skills.md"
CONFIG = """
[server]
host = "127.0.0.1"
port = {port}
component_domain = "{domain}"
component_secret = "secret"
[agent]
admins = ["juliet@localhost"]
notice = ""
[storage]
path = "{path}/data"
[llm]
provider = "vllm"
model = "m"
base_url = "{model}"
[limits]
inline_s = 60
{proposals}
"""


class World:
    """A running service with a model, an admin and a person."""

    def __init__(self, model: Endpoint, juliet: SlixClient, romeo: SlixClient) -> None:
        self.model = model
        self.juliet = juliet
        self.romeo = romeo

    async def calls(self, who: SlixClient, skill: str, **params: object) -> str:
        """What a skill returns, or the condition of its error."""
        reply = await who.aiq(AGENT, execute(skill, **params), "set")
        return condition(reply) if reply.get("type") == "error" else output(reply)

    async def hears(self, what: str) -> str:
        """The next message to the admin with a text."""
        while True:
            body = (await self.juliet.anext_message()).findtext("{*}body") or ""
            if what in body:
                return body


def settings_of(path: Path, **values: object) -> Settings:
    proposals = block(GUIDE, "proposals.toml").replace("juliet@example.com", "juliet@localhost")
    text = CONFIG.format(domain=AGENT, path=path, proposals=proposals, **values)
    (path / "agent.toml").write_text(text)
    return load(path / "agent.toml", {})


@asynccontextmanager
async def living(path: Path) -> AsyncIterator[World]:
    with anyio.fail_after(3 * LIMIT_S):
        async with (
            new_server() as server,
            serving() as model,
            anyio.create_task_group() as group,
        ):
            service = Service(settings_of(path, port=server.component_port, model=model.url))
            await group.start(service.run)
            await service.established.wait()
            async with client(server, "juliet") as juliet, client(server, "romeo") as romeo:
                yield World(model, juliet, romeo)
            service.stop()


@pytest.mark.anyio
async def test_from_a_description_to_a_skill_that_is_executed(
    tmp_path: Path, commands: Commands
) -> None:
    listing, show, approve, revoke, reject = block(GUIDE, "proposed").strip().splitlines()
    wrong = {**SPLIT, "code": CODE.replace("/", "*")}
    split = {"bill": 90, "people": 3}
    async with living(tmp_path) as world:
        # The model's first draft fails its own test, the second passes.
        world.model.answers(Text(json.dumps(wrong)), Text(json.dumps(SPLIT)))
        asked = {"description": "Divide a bill."}
        assert await world.calls(world.romeo, "create_skill", **asked) == "item-not-found"
        said = await world.calls(world.juliet, "create_skill", **asked)
        assert said.startswith("tip.split is proposed; tests passed: 2.")
        first, second = (json.dumps(one.body) for one in world.model.requests)
        assert "Divide a bill." in first
        assert "270.00 euros each" in second
        told = await world.hears("proposes the skill")
        assert "juliet@localhost proposes the skill tip.split (python)." in told

        # It is inert.
        assert await world.calls(world.romeo, "tip.split", **split) == "item-not-found"
        shown = await to_thread.run_sync(commands, show)
        assert CODE.strip() in shown
        assert "written by the model of the service" in shown
        (digest,) = re.findall("Digest: (.*)", shown)
        await to_thread.run_sync(commands, approve, "--yes", "--digest", digest)
        assert await world.calls(world.romeo, "tip.split", **split) == "30.00 euros each"
        await to_thread.run_sync(commands, revoke)
        assert await world.calls(world.romeo, "tip.split", **split) == "item-not-found"
    # The others work without the service, too.
    listed = await to_thread.run_sync(commands, listing)
    assert re.search("tip.split +1.0.0 +python +revoked +", listed), listed
    await to_thread.run_sync(commands, reject)
    assert not (tmp_path / "data" / "proposed-skills" / "tip.split").exists()
    audit = "".join(one.read_text() for one in (tmp_path / "data").rglob("audit*.jsonl"))
    for outcome in ("proposed", "approved", "revoked", "rejected"):
        assert re.search(rf'"{outcome}"[^\n]*tip\.split', audit), outcome


@pytest.mark.anyio
async def test_the_model_of_an_agent_passes_the_code_itself(tmp_path: Path) -> None:
    async with living(tmp_path) as world:
        call = {"description": "Say how warm it is.", **WEATHER}
        world.model.answers(Calls(("create_skill", call)), Text("I have proposed it."))
        message = f"<message to='{AGENT}' type='chat'><body>Learn the weather.</body></message>"
        world.juliet.send_raw(message)
        await world.hears("I have proposed it.")
        first, second = world.model.requests
        assert "create_skill" in first.tools
        assert "weather is proposed" in str(second.messages[-1]["content"])
        proposal = read_proposal(tmp_path / "data" / "proposed-skills" / "weather")
        assert proposal is not None
        assert (proposal.principal, proposal.written_by) == ("juliet@localhost", "caller")
        assert await world.calls(world.juliet, "weather", city="Verona") == "item-not-found"
        world.model.answers(Text("No."))
        world.romeo.send_raw(message)
        await world.romeo.anext_message()
        assert "create_skill" not in world.model.requests[-1].tools


def test_the_request_of_the_guide_is_a_manifest() -> None:
    manifest = read_manifest(block(GUIDE, "rest.toml"))
    assert manifest.skill.request is not None
    assert manifest.skill.request.credential == "stock-key"


def test_what_a_proposal_may_declare_is_in_the_guide() -> None:
    from component.features.proposals.draft import _HARMLESS, _TESTABLE

    (sentence,) = re.findall(r"It can declare (.*?);", GUIDE.read_text(), re.DOTALL)
    assert set(re.findall(r"`(\w+)`", sentence)) == _TESTABLE | _HARMLESS
    assert set(SkillDraft.__struct_fields__) == {"manifest", "code", "tests"}
