"""A service whose agents talk, with a scripted model behind it, and what people say to them."""

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import pytest

from tests.component.models.endpoint import Endpoint, Request, in_thread
from tests.servers.agent_process import AgentProcess
from tests.servers.base import Server
from tests.servers.clients import Element, SlixClient
from tests.servers.fixtures import CHAT

STATES = "{http://jabber.org/protocol/chatstates}"
CONFIRM = "{urn:fluux:agent:0#confirm}confirm"

SKILLS = '''
import asyncio
from pathlib import Path
import anyio
from component.skills import Context, skill

@skill(read_only=True, open_world=False)
def weather(city: str) -> str:
    """Say how the weather is in a city."""
    return f"Sunny in {city}."

@skill
def wipe(disk: str) -> str:
    """Wipe a disk."""
    with Path("effects").open("a") as file:
        file.write(f"wiped {disk}\\n")
    return f"{disk} is wiped."

@skill(destructive=False, open_world=False)
async def slowly(run: str) -> str:
    """Do something that takes long."""
    with Path("effects").open("a") as file:
        file.write(f"begun {run}\\n")
    while not Path(f"{run}.go").exists():
        await anyio.sleep(0.02)
    return f"{run} is done."

@skill(read_only=True, open_world=False)
async def lookup(run: str) -> str:
    """Look something up, which takes a while."""
    while not Path(f"{run}.go").exists():
        await anyio.sleep(0.02)
    return f"{run} was found."
'''


@dataclass
class Chat:
    """A running service, the model behind it, and its address."""

    server: Server
    agent: AgentProcess
    model: Endpoint

    @property
    def assistant(self) -> str:
        """The address of its default agent."""
        return f"assistant@{self.agent.domain}"

    def open_gate(self, run: str) -> None:
        """Let a skill go on."""
        (self.agent.directory / f"{run}.go").touch()

    def effects(self) -> list[str]:
        """What skills have done outside."""
        return (self.agent.directory / "effects").read_text().splitlines()

    def again(self) -> None:
        """Kill the service, and start it anew."""
        self.agent.kill()
        self.agent.start().connected()


@contextmanager
def chatting(
    server: Server, directory: Path, *, skills: str = SKILLS, **settings: object
) -> Iterator[Chat]:
    """A service whose agents talk and have these skills, for the time of the context."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "own.py").write_text(skills)
    (directory / "effects").touch()
    with ExitStack() as stack:
        model = stack.enter_context(in_thread())
        defaults: dict[str, object] = {
            "llm__provider": "openai",
            "llm__model": "scripted",
            "llm__base_url": model.url,
            "llm__api_key": "sk-scripted",
            "llm__retries": 0,
            "skills__modules": ["./own.py"],
            "agent__admins": [server.jid("romeo")],
        }
        agent = stack.enter_context(AgentProcess(server, directory, **defaults | settings))
        agent.connected()
        yield Chat(server, agent, model)


@pytest.fixture(scope="session")
def chat(xmpp_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chat]:
    """The service that the run shares; a module that needs another one has its own `chat`."""
    with chatting(xmpp_server.on(CHAT), tmp_path_factory.mktemp("chat")) as chat:
        yield chat


def say(client: SlixClient, to: str, text: str, *, thread: str = "", inside: str = "") -> None:
    """Send a chat message."""
    if thread:
        inside += f"<thread>{escape(thread)}</thread>"
    client.send_raw(
        f"<message type='chat' to={quoteattr(to)}><body>{escape(text)}</body>{inside}</message>"
    )


def reply(client: SlixClient, to: str, question: Element, text: str) -> None:
    """Reply to the message of a question, which names it (XEP-0461)."""
    of = f"to={quoteattr(to)} id={quoteattr(question.attrib['id'])}"
    say(client, to, text, inside=f"<reply xmlns='urn:xmpp:reply:0' {of}/>")


def heard(client: SlixClient, *words: str) -> Element:
    """The next message with a body that has all of these words."""

    def fits(message: Element) -> bool:
        body = message.findtext("{jabber:client}body")
        return body is not None and all(word in body for word in words)

    return client.messages.take(fits)


def body(message: Element) -> str:
    """What a message says."""
    return message.findtext("{jabber:client}body") or ""


def asks(client: SlixClient, to: str, text: str, *words: str, **more: Any) -> str:
    """Say something, and return the answer, which has all of these words."""
    say(client, to, text, **more)
    return body(heard(client, *words))


def words(request: Request) -> list[str]:
    """What people said, without what the model is shown before it."""
    said = [str(one["content"]) for one in request.messages if one["role"] == "user"]
    # Two messages in a row are joined; each begins with the time.
    each = [part for text in said for part in re.split(r"\[It is [^\]]*\]", text) if part.strip()]
    return [text.strip().rpartition("\n\n")[2] for text in each]
