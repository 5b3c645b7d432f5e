"""A whole service learns from a conversation, and reads the documents of its agent."""

import functools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from benchmarks.pdfs import with_pages
from component.agent.learning import Learning
from component.app.features import make_settings
from component.app.service import Service
from component.kernel import agents
from component.settings import Server
from component.settings import Storage as Where
from component.settings.llm import LLM
from component.settings.memory import Memory
from tests.component.models.endpoint import Endpoint, Request, Text, serving
from tests.component.test_service import client
from tests.demo_server.peers import AGENT, new_server
from tests.servers.clients import SlixClient
from tests.waiting import LIMIT_S, eventually
from xep.jid import JID

pytestmark = pytest.mark.anyio

ROMEO = JID.parse("romeo@localhost")
FACT = {"key": "dog_name", "text": "Romeo's dog is called Bello.", "lasting": True, "message": 1}
SAID = "My dog is called Bello."


class World:
    """A running service, a person who talks with it, and its model."""

    def __init__(self, path: Path, service: Service, romeo: SlixClient, endpoint: Endpoint) -> None:
        self.service = service
        self.endpoint = endpoint
        self.user = path / "memory" / str(ROMEO) / "user.md"
        self._romeo = romeo

    async def say(self, text: str) -> str:
        """The answer to a message."""
        self._romeo.send_raw(f"<message to='{AGENT}' type='chat'><body>{text}</body></message>")
        while True:
            body = (await self._romeo.anext_message()).findtext("{*}body") or ""
            if body.startswith("Answer: "):
                return body

    @property
    def asked(self) -> str:
        """The last request to the model."""
        return json.dumps(self.endpoint.requests[-1].body)


def answer(request: Request) -> Text:
    """What the model answers: facts if it is asked for them."""
    system, *_, last = request.messages
    if str(system["content"]).startswith("You read what a person has said"):
        return Text(json.dumps({"facts": [FACT] if SAID in str(last["content"]) else []}))
    return Text("Answer: noted.")


class Clock:
    """The clock of learning, which the test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(agents, "Learning", functools.partial(Learning, clock=clock))
    return clock


@asynccontextmanager
async def living(path: Path) -> AsyncIterator[World]:
    # The settings have whole minutes; the service looks at the clock as often as this.
    memory = Memory(path=path / "memory").model_copy(update={"learn_after_mins": 0.002})
    with anyio.fail_after(3 * LIMIT_S):
        async with (
            new_server() as server,
            serving() as endpoint,
            anyio.create_task_group() as group,
        ):
            endpoint.otherwise = answer
            settings = make_settings(
                server=Server(
                    host="127.0.0.1",
                    port=server.component_port,
                    component_domain=AGENT,
                    component_secret="secret",  # type: ignore[arg-type]
                ),
                storage=Where(path=path / "data"),
                llm=LLM(provider="vllm", model="m", base_url=endpoint.url),
                memory=memory,
            )
            service = Service(settings)
            await group.start(service.run)
            await service.established.wait()
            async with client(server, "romeo") as romeo:
                world = World(path, service, romeo, endpoint)
                yield world
            service.stop()


async def test_a_fact_is_learned_after_a_conversation_and_known_in_the_next(
    tmp_path: Path, clock: Clock
) -> None:
    async with living(tmp_path) as world:
        await world.say(SAID)
        assert not world.user.exists(), "nothing is learned while people talk"
        clock.now += 3600
        await eventually(lambda: world.user.exists() and FACT["text"] in world.user.read_text())
        await world.say("What do you know about me?")
        assert FACT["text"] in world.asked
        clock.now += 3600
        known = "- dog_name: Romeo's dog is called Bello."
        await eventually(lambda: known in world.asked)


@pytest.mark.usefixtures("clock")  # nothing is learned: the last request is the answer's
async def test_a_document_is_read_when_it_appears_and_recalled_with_its_source(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "memory" / "knowledge"
    folder.mkdir(parents=True)
    (folder / "handbook.pdf").write_bytes(
        with_pages(["Welcome to the company.", "Holidays: everybody has thirty days."])
    )
    (folder / "broken.pdf").write_bytes(b"%PDF-1.7 and nothing else")
    async with living(tmp_path) as world:

        async def found() -> bool:
            knowledge = world.service._knowledge()
            return bool(await knowledge.recall("assistant", ROMEO, "holidays", 5))

        await eventually(found)
        await world.say("How many days of holidays do I have?")
        assert "everybody has thirty days" in world.asked
        assert "handbook.pdf, page 2" in world.asked
