"""One side of the measurement of a turn, in a process of its own.

    python -m benchmarks.turn_side ours|bare|streamed|agents|pydantic asyncio|trio URL DIRECTORY

It obeys one order a line, and answers in JSON.
"""

from __future__ import annotations

import gc
import itertools
import json
import statistics
import sys
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import anyio
import structlog
from anyio import to_thread

MODEL = "scripted"
INSTRUCTIONS = "You are an assistant. Use tools when they help."
QUESTION = "When is the tide high today?"
SCHEMA = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}
_PEOPLE = 50

Turn = Callable[[], Awaitable[str]]


def lookup(word: str) -> str:
    """Look a word up."""
    return f"{word}: high at noon"


async def _serve(orders: dict[str, Callable[..., Awaitable[Any]]]) -> None:
    while line := await to_thread.run_sync(sys.stdin.readline):
        order = json.loads(line)
        print(json.dumps(await orders[order.pop("do")](**order)), flush=True)


async def _turns(turn: Turn, *, count: int) -> float:
    """Milliseconds that a turn takes, the median."""
    took = []
    for _ in range(count):
        began = perf_counter()
        answer = await turn()
        took.append(perf_counter() - began)
        assert "noon" in answer
    return statistics.median(took) * 1000


# The SDK alone.


def _bare(url: str) -> Turn:
    import openai

    client = openai.AsyncOpenAI(base_url=url, api_key="none")
    tools: Any = [{"type": "function", "function": {"name": "lookup", "parameters": SCHEMA}}]

    async def turn() -> str:
        messages: Any = [
            {"role": "system", "content": INSTRUCTIONS},
            {"role": "user", "content": QUESTION},
        ]
        while True:
            completion = await client.chat.completions.create(
                model=MODEL, messages=messages, tools=tools
            )
            said = completion.choices[0].message
            if not said.tool_calls:
                return said.content or ""
            messages.append(said.model_dump(exclude_none=True))
            for call in said.tool_calls:
                assert call.type == "function"
                result = lookup(**json.loads(call.function.arguments))
                messages.append({"role": "tool", "tool_call_id": call.id, "content": result})

    return turn


def _streamed(url: str) -> Turn:
    import openai

    client = openai.AsyncOpenAI(base_url=url, api_key="none")
    tools: Any = [{"type": "function", "function": {"name": "lookup", "parameters": SCHEMA}}]

    async def turn() -> str:
        messages: Any = [
            {"role": "system", "content": INSTRUCTIONS},
            {"role": "user", "content": QUESTION},
        ]
        while True:
            text = ""
            calls: dict[int, dict[str, Any]] = {}
            async for chunk in await client.chat.completions.create(
                model=MODEL, messages=messages, tools=tools, stream=True
            ):
                for choice in chunk.choices:
                    text += choice.delta.content or ""
                    for part in choice.delta.tool_calls or ():
                        call = calls.setdefault(part.index, {"id": "", "name": "", "text": ""})
                        call["id"] += part.id or ""
                        if part.function is not None:
                            call["name"] += part.function.name or ""
                            call["text"] += part.function.arguments or ""
            if not calls:
                return text
            messages.append(
                {
                    "role": "assistant",
                    "tool_calls": [
                        {
                            "id": call["id"],
                            "type": "function",
                            "function": {"name": call["name"], "arguments": call["text"]},
                        }
                        for call in calls.values()
                    ],
                }
            )
            for call in calls.values():
                result = lookup(**json.loads(call["text"]))
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})

    return turn


# The frameworks.


def _agents(url: str) -> Turn:
    import agents
    import openai

    agents.set_tracing_disabled(True)
    client = openai.AsyncOpenAI(base_url=url, api_key="none")
    agent = agents.Agent(
        name="assistant",
        instructions=INSTRUCTIONS,
        model=agents.OpenAIChatCompletionsModel(MODEL, client),
        tools=[agents.function_tool(lookup)],
    )

    async def turn() -> str:
        return str((await agents.Runner.run(agent, QUESTION)).final_output)

    return turn


def _pydantic(url: str) -> Turn:
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    model = OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=url, api_key="none"))
    agent = Agent(model, instructions=INSTRUCTIONS, tools=[lookup])

    async def turn() -> str:
        return (await agent.run(QUESTION)).output

    return turn


# Ours.


class _Tools:
    """The same function, as a skill."""

    def __init__(self) -> None:
        import msgspec

        from component.models.protocol import Tool

        self._tools = [Tool("lookup", "Look a word up.", msgspec.Raw(json.dumps(SCHEMA).encode()))]

    def offered(self, caller: Any) -> Any:
        return self._tools

    def together(self, caller: Any, name: str) -> bool:
        return True

    def only_reads(self, caller: Any, name: str) -> bool:
        return True

    async def confirm_together(self, caller: Any, calls: Any, *, again: bool) -> Any:
        return {}

    async def call(self, caller: Any, call_id: str, name: str, arguments: str) -> Any:
        from component.agent.protocol import ToolResult

        return ToolResult(lookup(**json.loads(arguments)))

    def refused(self, caller: Any, name: str) -> None:
        raise NotImplementedError

    async def outcome(self, caller: Any, call: Any, task: str) -> Any:
        raise NotImplementedError

    async def retract(self, caller: Any, tasks: Any) -> bool:
        raise NotImplementedError

    async def give_up(self, caller: Any, call: Any, task: str | None) -> None:
        raise NotImplementedError


class _Voice:
    def __init__(self) -> None:
        self.waited_for: dict[str, anyio.Event] = {}
        self.said: dict[str, str] = {}

    def say(self, reply: Any) -> bool:
        turn = reply.id.removesuffix(".answer")
        self.said[turn] = reply.text
        self.waited_for[turn].set()
        return True

    async def answer(self, turn: str) -> str:
        await self.waited_for[turn].wait()
        del self.waited_for[turn]
        return self.said.pop(turn)

    def drafts(self, _to: Any) -> bool:
        return False

    def draft(self, _reply: Any) -> bool:
        return False

    def composing(self, to: Any, on: bool) -> None:
        pass

    def waits(self) -> bool:
        return False

    async def sent(self) -> None:
        pass


class _Instant:
    """A model without a socket: for sessions by the thousand."""

    name = MODEL
    context_tokens = 100_000
    usd_per_token_in = usd_per_token_out = 0.0

    async def complete(self, request: Any, on_text: Any = None) -> Any:
        from component.models.protocol import Completion

        await anyio.lowlevel.checkpoint()
        return Completion.of(text="The tide is high at noon.")

    def tokens(self, text: str) -> int:
        return len(text) // 3


class _Ours:
    def __init__(self, conversations: Any, voice: _Voice, model: list[Any]) -> None:
        from component.agent.requests import MessageStarter, TurnRequest
        from component.link.messages.inbound import Conversation, ReplyAddress
        from xep.jid import JID

        self._model = model
        self._conversations = conversations
        self._voice = voice
        self._numbers = itertools.count()
        target = JID.parse("assistant@agent.example.org")

        def request(turn: str, person: str) -> TurnRequest:
            principal = JID(person, "example.org")
            sender = JID(person, "example.org", "phone")
            return TurnRequest(
                id=turn,
                starter=MessageStarter(sender),
                conversation=Conversation(target, principal),
                principal=principal,
                reply_to=ReplyAddress(str(sender), target),
                text=QUESTION,
            )

        self._request = request

    async def turn(self, person: int | None = None) -> str:
        number = next(self._numbers)
        name = f"person{number % _PEOPLE if person is None else person}"
        turn = f"turn-{number}"
        self._voice.waited_for[turn] = anyio.Event()
        await self._conversations.received(self._request(turn, name))
        return await self._voice.answer(turn)

    async def active(self, *, sessions: int) -> float:
        """Milliseconds for each of so many turns, of different people, that run at once."""
        began = perf_counter()
        async with anyio.create_task_group() as group:
            for person in range(sessions):
                group.start_soon(self.turn, 100_000 + person)
        return (perf_counter() - began) / sessions * 1000

    async def idle(self, *, sessions: int) -> float:
        """Bytes that a session takes that is known and has nothing to do."""
        model, self._model[0] = self._model[0], _Instant()
        gc.collect()
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        for person in range(sessions):
            await self.turn(200_000 + person)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        self._model[0] = model
        return (after - before) / sessions


@asynccontextmanager
async def _ours(url: str, directory: Path) -> AsyncIterator[_Ours]:
    from component.agent.conversations import ConversationPorts, Conversations
    from component.agent.engine import Engine, EngineLimits
    from component.agent.model_calls import ModelCalls
    from component.agent.protocol import Profile
    from component.agent.untrusted_text import HiddenTextScanner
    from component.app import schema
    from component.audit.record import Audit
    from component.budget.book import BudgetBook
    from component.budget.protocol import BudgetLimits
    from component.config.agents import Budget, Loop
    from component.config.llm import ModelChoice
    from component.config.memory import Memory, Session
    from component.config.service import Audit as AuditSettings
    from component.conversations.sessions import Sessions
    from component.kernel.monitoring import Monitoring
    from component.memory.index import Index
    from component.memory.knowledge import Knowledge, Memo
    from component.memory.sharing import Sharing
    from component.memory_directory.files import open_root
    from component.memory_directory.layout import Layout, SessionKey
    from component.models.catalog import resolve
    from component.models.hosted import HostedModel
    from component.policy.persons import Persons
    from component.store import Storage
    from xep.disco import InfoQuery
    from xep.jid import JID

    memory = directory / "memory"
    await anyio.Path(memory).mkdir(parents=True)
    layout = Layout(open_root(memory))
    voice = _Voice()
    endpoint = HostedModel(resolve(ModelChoice(provider="vllm", model=MODEL, base_url=url), "llm"))
    model: list[Any] = [endpoint]
    async with AsyncExitStack() as stack:
        stack.push_async_callback(endpoint.aclose)
        storage = await stack.enter_async_context(Storage.open(schema.SCHEMA, directory / "data"))
        audit = await stack.enter_async_context(Audit.open(storage, AuditSettings()))
        limit = Budget(tokens=10**9, usd=10**6)
        budgets = BudgetBook(
            storage, BudgetLimits(agents={"assistant": limit}, principal=limit, task=limit), audit
        )
        index = Index(directory / "memory.db")
        stack.callback(index.close)
        knowledge = Knowledge(index, Sharing(layout), Memory(path=memory), audit)
        for person in range(_PEOPLE):
            for number in range(4):
                await knowledge.store(
                    SessionKey("assistant", JID(f"person{person}", "example.org")),
                    Memo(f"tide-{number}", "Tides", f"Note {number}: the tide at the pier", "sea"),
                )
        engine = Engine(
            models=lambda _tier: model[0],
            model_calls=ModelCalls(budgets, audit, Monitoring()),
            tools=_Tools(),
            sessions=Sessions(layout, Session()),
            recall=knowledge,
            scanner=HiddenTextScanner(),
            limits=EngineLimits(loop=Loop()),
        )

        async def profiles(key: Any, _request: Any) -> Profile:
            return Profile(agent=key.agent)

        async def info(_to: JID, _from: JID, /) -> InfoQuery:
            return InfoQuery()

        conversations = Conversations(
            engine=engine,
            ports=ConversationPorts(
                profiles=profiles,
                voice=voice,
                persons=Persons(info, lambda who: who.domain == "agent.example.org"),
            ),
            storage=storage,
            home="here",
        )
        group = await stack.enter_async_context(anyio.create_task_group())
        await group.start(audit.run)
        await group.start(budgets.run)
        await group.start(conversations.run)
        yield _Ours(conversations, voice, model)
        group.cancel_scope.cancel()


async def main(side: str, url: str, directory: Path) -> None:
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    if side == "ours":
        async with _ours(url, directory) as ours:
            await _serve(
                {
                    "turns": lambda count: _turns(ours.turn, count=count),
                    "active": ours.active,
                    "idle": ours.idle,
                }
            )
        return
    makers = {"bare": _bare, "streamed": _streamed, "agents": _agents, "pydantic": _pydantic}
    turn = makers[side](url)
    await _serve({"turns": lambda count: _turns(turn, count=count)})


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[3], Path(sys.argv[4]), backend=sys.argv[2])
