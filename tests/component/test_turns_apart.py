"""What one principal said, wrote down or had remembered never reaches a turn of another's."""

import itertools
import re
import tempfile
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from component.agent.protocol import Caller
from component.agent.requests import Reply
from component.app.features import make_settings
from component.app.schema import SCHEMA
from component.kernel.agents import AgentPorts, AgentSubsystem
from component.kernel.memory import open_memories
from component.kernel.monitoring import Monitoring
from component.link.messages.inbound import ReplyAddress
from component.memory.knowledge import Memo
from component.memory_directory.layout import SessionKey
from component.models.protocol import Tool
from component.settings import Server
from component.settings.agents import AgentEntry
from component.settings.llm import LLM
from component.settings.memory import Memory
from component.storage import Storage
from tests.component.agent.world import message
from tests.component.audit.book import Book
from tests.component.models.endpoint import Answer, Request, Text, serving
from tests.profiles import examples
from xep.jid import JID

pytestmark = pytest.mark.anyio

WHO = [JID.parse(name) for name in ("ann@a.example", "bob@a.example", "ann@a.example.org")]
AGENTS = ("assistant", "researcher")
MARK = re.compile(r"mark\d+mark")

_deeds = st.lists(
    st.tuples(
        st.sampled_from(("say", "say", "store", "user.md", "memory.md", "identity.md", "new")),
        st.sampled_from(AGENTS),
        st.sampled_from(WHO),
    ),
    min_size=4,
    max_size=16,
)


class NoTools:
    def offered(self, caller: Caller) -> list[Tool]:
        return []


class Voice:
    """Hears answers."""

    def __init__(self) -> None:
        self.answered: dict[str, anyio.Event] = {}

    def say(self, reply: Reply) -> bool:
        self.answered[reply.id.removesuffix(".answer")].set()
        return True

    def composing(self, to: ReplyAddress, on: bool) -> None: ...

    def waits(self) -> bool:
        return False

    async def sent(self) -> None: ...


class Everybody:
    """A person, each of them."""

    def known(self, principal: JID, requester: JID) -> bool:
        return True

    async def asked(self, principal: JID, requester: JID, target: JID) -> bool:
        return True

    def passed_over(self, principal: JID, requester: JID) -> bool:
        return True


@examples(5, 250)
@given(deeds=_deeds)
async def test_turns_stay_apart(deeds: list[tuple[str, str, JID]]) -> None:
    marks = (f"mark{number}mark" for number in itertools.count())
    mine: dict[SessionKey, set[str]] = {}
    files: dict[SessionKey, dict[str, str]] = {}
    seen: list[set[str]] = []

    def answer(request: Request) -> Answer:
        seen.append(set(MARK.findall(str(request.body))))
        return Text(f"{next(marks)} is what I say about it.")

    with tempfile.TemporaryDirectory() as directory, anyio.fail_after(120):
        path, voice, tools = Path(directory), Voice(), NoTools()
        nobody: Any = tools
        async with serving() as endpoint, Storage.open(SCHEMA, path / "data") as storage:
            endpoint.otherwise = answer
            options = make_settings(
                server=Server(component_domain="agent.example", component_secret="s"),  # type: ignore[arg-type]
                llm=LLM(provider="openai", model="m", base_url=endpoint.url, api_key="k"),  # type: ignore[arg-type]
                memory=Memory(path=path / "memory"),
                agents=tuple(AgentEntry(name=name) for name in AGENTS),
            )
            async with (
                open_memories(options, Book()) as memories,
                anyio.create_task_group() as group,
            ):
                ports = AgentPorts(
                    tools=nobody,
                    skill_names=lambda _: (),
                    voice=voice,
                    persons=Everybody(),
                    recorder=Book(),
                    observer=Monitoring(),
                    alert=lambda _: None,
                    connected_since=lambda: None,
                    instance=lambda: "one",
                )
                subsystem = AgentSubsystem(options, storage, "home", memories, ports)
                await group.start(subsystem.run)
                for number, (deed, agent, who) in enumerate(deeds):
                    key = SessionKey(agent, who)
                    own = mine.setdefault(key, set())
                    mark = next(marks)
                    folder = memories.layout.folder(key)
                    if deed == "new":
                        await subsystem.conversations.new(agent, who)
                    elif deed == "store":
                        memo = Memo(f"key{number}", f"{mark}: common words about everything.")
                        await memories.knowledge.store(agent, who, memo)
                        own.add(mark)
                    elif deed.endswith(".md"):
                        folder.mkdir(parents=True, exist_ok=True)
                        (folder / deed).write_text(f"{mark} is what is common.")
                        files.setdefault(key, {})[deed] = mark
                        own.add(mark)
                    else:
                        voice.answered[mark] = anyio.Event()
                        own.add(mark)
                        await subsystem.conversations.received(
                            message(
                                *(mark, f"{mark}: what are the common words?", who),
                                agent=agent,
                                target=JID(agent, "agent.example", None),
                                taint=None,
                            )
                        )
                        await voice.answered[mark].wait()
                        shown = seen[-1]
                        assert {mark, *files.get(key, {}).values()} <= shown
                        assert shown <= own, f"{shown - own} came to {key}"
                        own.update(MARK.findall((folder / "history.jsonl").read_text()))
                group.cancel_scope.cancel()
