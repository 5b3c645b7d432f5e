"""A world for the loop: a real database, real session files, and a model, tools and a voice that a
test plays. All but the service itself outlives a life of it.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import anyio
import msgspec

from component.agent.conversations import ConversationPorts, Conversations, Fetch
from component.agent.engine import Engine, EngineLimits
from component.agent.model_calls import ModelCalls
from component.agent.protocol import (
    Away,
    Caller,
    Profile,
    ToolResult,
    Waiting,
)
from component.agent.requests import MessageStarter, OperatorStarter, Reply, TurnRequest
from component.agent.told import ToldMessages
from component.app.schema import SCHEMA
from component.budget.protocol import Amount, BudgetExceededError, Payer, Reservation, Spender
from component.config.agents import Loop
from component.config.memory import Session
from component.conversations.lines import Line
from component.conversations.sessions import Sessions
from component.conversations.stored_files import StoredFiles
from component.kernel.monitoring import Monitoring
from component.link.messages.inbound import Conversation, ReplyAddress
from component.memory.knowledge_lines import Item
from component.memory.store import Remembered
from component.memory_directory.files import open_root
from component.memory_directory.layout import Layout, SessionKey
from component.models.messages import ToolCall, text_of
from component.models.protocol import Completion, ModelRequest, OnText, Tool, Usage
from component.policy.taint import Taint
from component.store import Storage, told, waiters
from component.store.database import Database
from component.tasks.request import Request
from tests.component.audit.book import Book
from tests.waiting import LIMIT_S, eventually
from xep.jid import JID

ROMEO = JID.parse("romeo@example.org")
JULIET = JID.parse("juliet@example.org")
AGENT = JID.parse("assistant@agent.example.org")


class Killed(BaseException):
    """The process was killed at this point."""


class Death:
    """Counts the points at which a run may be killed, and kills it at one of them."""

    def __init__(self) -> None:
        self.at: int | None = None
        self.points = 0
        self.dead = False

    def point(self) -> None:
        if self.dead:
            raise Killed
        self.points += 1
        if self.points == self.at:
            self.dead = True
            raise Killed


class Brain:
    """A model: `think` makes the answer to a request, and may wait."""

    name = "brain"
    usd_per_token_in = 0.001
    usd_per_token_out = 0.002

    def __init__(self, world: "World", context_tokens: int = 100_000) -> None:
        self.context_tokens = context_tokens
        self.asked: list[ModelRequest] = []
        self.think: Callable[[ModelRequest], Completion | Awaitable[Completion]] = echo
        self._world = world

    async def complete(self, request: ModelRequest, on_text: OnText | None = None) -> Completion:
        self._world.death.point()
        self.asked.append(request)
        await anyio.lowlevel.checkpoint()
        answer = self.think(request)
        completion = answer if isinstance(answer, Completion) else await answer
        if on_text is not None and completion.text:
            on_text(completion.text)
        self._world.death.point()
        return completion

    def tokens(self, text: str) -> int:
        return len(text) // 4 + 1


class Shop:
    """Tools: `look` and `find` may run in parallel, `buy` not; `order` takes long, `ask` asks."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.done: dict[tuple[str, str], ToolResult] = {}
        self.made: list[tuple[str, str, str, str]] = []
        self.callers: list[Caller] = []
        self.tasks: dict[str, ToolResult | None] = {}
        self.given_up: list[str] = []
        self.questions: set[str] = set()
        self.refusals: list[str] = []
        self.during: Callable[[str], Awaitable[None]] | None = None
        self.taint: Taint | None = None
        self.result: Callable[[str, str], str] = lambda name, _: f"{name} is done"
        self.at_once = 0
        self.most_at_once = 0

    def offered(self, caller: Caller) -> Sequence[Tool]:
        schema = msgspec.Raw(b'{"type":"object"}')
        return [Tool(n, f"To {n}.", schema) for n in ("look", "find", "buy", "order", "ask")]

    def together(self, caller: Caller, name: str) -> bool:
        return name in ("look", "find")

    def only_reads(self, caller: Caller, name: str) -> bool:
        return name in ("look", "find")

    async def confirm_together(
        self, caller: Caller, calls: Sequence[ToolCall], *, again: bool
    ) -> Mapping[str, ToolResult | Waiting]:
        return {}

    async def call(
        self, caller: Caller, call_id: str, name: str, arguments: str
    ) -> ToolResult | Waiting:
        self._world.death.point()
        key = (caller.turn, call_id)
        task = f"task-{caller.turn}-{call_id}"
        if key not in self.done and task not in self.tasks:
            self.callers.append(caller)
            if name in ("order", "ask"):
                self.made.append((*key, name, arguments))
                self.tasks[task] = None
                if name == "ask":
                    self.questions.add(task)
            else:
                self.at_once += 1
                self.most_at_once = max(self.most_at_once, self.at_once)
                try:
                    if self.during is not None:
                        await self.during(name)
                    else:
                        await anyio.lowlevel.checkpoint()
                finally:
                    self.at_once -= 1
                # At once, as the executor does: what a call has done and that it was made.
                self.made.append((*key, name, arguments))
                self.done[key] = ToolResult(self.result(name, arguments), taint=self.taint)
            self._world.death.point()
        if task in self.tasks:
            return self.tasks[task] or await self._waiting(caller, task, name)
        return self.done[key]

    def refused(self, caller: Caller, name: str) -> None:
        self.refusals.append(name)

    async def outcome(self, caller: Caller, call: ToolCall, task: str) -> ToolResult | Waiting:
        self._world.death.point()
        return self.tasks[task] or await self._waiting(caller, task, call.name)

    async def _waiting(self, caller: Caller, task: str, name: str) -> Waiting:
        state = "input-required" if name == "ask" else "running"
        await self._world.storage.write(lambda db: begun(db, task, state, caller.task or None))
        return Waiting(task, question=name == "ask")

    async def retract(self, caller: Caller, tasks: Sequence[str]) -> bool:
        """An order is under way from the start; a question can be withdrawn before its answer."""
        self._world.death.point()
        waits = [one for one in tasks if one in self.questions and self.tasks[one] is None]
        if len(waits) < len(tasks):
            return False
        for one in waits:
            self.given_up.append(one)
            self.tasks[one] = ToolResult("It was cancelled.", is_error=True)
            await self._world.ended(one)
        self._world.death.point()
        return True

    async def give_up(self, caller: Caller, call: ToolCall, task: str | None) -> None:
        self._world.death.point()
        self.given_up.append(task or call.id)


class Ear:
    """A voice that stores the replies."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.said: list[Reply] = []
        self.stream = True
        self._told = anyio.Event()
        self.gone = anyio.Event()
        self.gone.set()
        self.writing: list[bool] = []
        self.shows_drafts = False
        self.drafted: list[Reply] = []

    def say(self, reply: Reply) -> bool:
        self._world.death.point()
        if not self.stream:
            return False
        self.said.append(reply)
        self._told.set()
        self._told = anyio.Event()
        self._world.death.point()
        return True

    def drafts(self, to: ReplyAddress) -> bool:
        return self.shows_drafts

    def draft(self, reply: Reply) -> bool:
        self._world.death.point()
        if self.stream:
            self.drafted.append(reply)
        return self.stream

    def composing(self, to: ReplyAddress, on: bool) -> None:
        self.writing.append(on)

    def waits(self) -> bool:
        return not self.gone.is_set()

    async def sent(self) -> None:
        await self.gone.wait()

    @property
    def bodies(self) -> list[str]:
        return [reply.text for reply in self.said]

    async def hears(self, count: int, within_s: float = LIMIT_S) -> None:
        with anyio.fail_after(within_s):
            while len(self.said) < count:
                await self._told.wait()


class Purse:
    """A budget of tokens."""

    def __init__(self) -> None:
        self.left = 10**9
        self.open: dict[int, Reservation] = {}
        self.spent: list[Amount] = []
        self.over: list[str] = []
        self.who: list[Spender] = []

    async def acquire(self, who: Spender, most: Amount) -> Reservation:
        if most.tokens > self.left:
            raise BudgetExceededError("Your budget for today is used up.", "principal", "x")
        reservation = Reservation(len(self.who), who, most, "2026-01-01")
        self.who.append(who)
        self.open[reservation.id] = reservation
        return reservation

    def settle(self, reservation: Reservation, spent: Amount) -> None:
        del self.open[reservation.id]
        self.spent.append(spent)
        self.left -= spent.tokens

    def ended(self, task: str) -> None:
        self.over.append(task)


class Suspicious:
    def scan(self, text: str) -> str | None:
        return "asks for secrets" if "ignore all" in text.casefold() else None


class Crowd:
    """Distinguishes people from all others: the bare addresses in `peers` are not people. Unless
    `known_at_once` each is asked, and answers when `says` lets it; who is silent is remembered in
    `silent`.
    """

    def __init__(self, world: "World") -> None:
        self._world = world
        self.peers: set[JID] = set()
        self.known_at_once = True
        self.asked_of: list[JID] = []
        self.heard: set[JID] = set()
        self.silent: set[JID] = set()
        self.says: Callable[[JID], Awaitable[bool]] = _at_once

    def known(self, principal: JID, requester: JID) -> bool | None:
        if self.known_at_once or requester in self.heard | self.silent:
            return not (principal in self.peers and requester not in self.silent)
        return None

    async def asked(self, principal: JID, requester: JID, target: JID) -> bool | None:
        self._world.death.point()
        self.asked_of.append(requester)
        if not await self.says(requester):
            return None
        self._world.death.point()
        self.silent.discard(requester)
        self.heard.add(requester)
        return self.known(principal, requester)

    def passed_over(self, principal: JID, requester: JID) -> bool:
        self.silent.add(requester)
        return self.known(principal, requester) is not False


async def _at_once(_who: JID) -> bool:
    await anyio.lowlevel.checkpoint()
    return True


class Mortal:
    """Passes calls to another object; the process may be killed at each."""

    def __init__(self, world: "World", inner: object) -> None:
        self._world = world
        self._inner = inner

    def __getattr__(self, name: str) -> object:
        found = getattr(self._inner, name)
        if name not in ("read", "write", "open", "append", "turn", "told", "archive", "forget"):
            return found

        async def passed(*args: object, **kwargs: object) -> object:
            self._world.death.point()
            value = await found(*args, **kwargs)
            self._world.death.point()
            return value

        return passed


def remembered(key: str, title: str, body: str, **more: Any) -> Remembered:
    return Remembered("private", Item(key, body, title), **more)


class Memories:
    def __init__(self) -> None:
        self.found: list[Remembered] = []
        self.known: dict[tuple[str, str], Remembered] = {}
        self.deleted: set[str] = set()

    async def recall(
        self, whose: SessionKey, words: str, most: int, *, trace: str = ""
    ) -> list[Remembered]:
        found = self.found[:most]
        self.known.update(((one.key, one.digest), one) for one in found)
        return found

    async def unchanged(
        self, whose: SessionKey, shown: Collection[tuple[str, str]]
    ) -> dict[tuple[str, str], Remembered]:
        return {at: self.known[at] for at in shown if at[0] not in self.deleted}


class World:
    def __init__(self, path: Path, **loop: Any) -> None:
        self.path = path
        self.loop = Loop(**loop)
        self.death = Death()
        self.brain = Brain(self)
        self.shop = Shop(self)
        self.ear = Ear(self)
        self.purse = Purse()
        self.book = Book()
        self.memories = Memories()
        self.crowd = Crowd(self)
        self.stream: Callable[[], object | None] = lambda: True
        self.concluded: Callable[[], None] = lambda: None
        self.fetch: Fetch | None = None
        self.answers_within_s = 30.0
        self.profile = Profile(agent="assistant")
        self.away: Away | None = None
        self.models: list[tuple[str, str]] = []
        self.history_tokens = 8192
        self.idle_mins = 240
        self.now = 1_800_000_000.0
        self.sessions: Sessions
        self.conversations: Conversations
        self.storage: Storage
        self.url = ""
        self.engine: Engine

    async def profiles(
        self, key: SessionKey, _request: TurnRequest | None = None
    ) -> Profile | Away:
        return self.away or msgspec.structs.replace(self.profile, agent=key.agent)

    def _concluded(self) -> None:
        self.concluded()  # looked up at each call, because tests set it later

    def model_of(self, profile: Profile) -> Brain:
        self.models.append((profile.tier, profile.model_of))
        return self.brain

    @asynccontextmanager
    async def built(self) -> AsyncIterator[Conversations]:
        """The service, not running yet."""
        root = self.path / "memory"
        root.mkdir(exist_ok=True)
        self.sessions = Sessions(
            Layout(open_root(root)),
            Session(idle_timeout_mins=self.idle_mins, history_tokens=self.history_tokens),
            clock=lambda: self.now,
        )
        async with Storage.open(SCHEMA, self.path / "data", postgres=self.url) as storage:
            self.storage = storage
            purse: Any = self.purse
            mortal: Any = Mortal(self, storage), Mortal(self, self.sessions)
            self.engine = Engine(
                models=self.model_of,
                model_calls=ModelCalls(purse, self.book, Monitoring()),
                tools=self.shop,
                sessions=mortal[1],
                told=ToldMessages(mortal[0], mortal[1], lambda agent: JID(agent, AGENT.domain)),
                recall=self.memories,  # type: ignore[arg-type]  # a double
                scanner=Suspicious(),
                limits=EngineLimits(
                    loop=self.loop, history_tokens=self.history_tokens, max_tokens=500
                ),
            )
            self.engine.show_files(StoredFiles(self.sessions.layout, lambda: self.now))
            self.conversations = Conversations(
                engine=self.engine,
                ports=ConversationPorts(
                    profiles=self.profiles,
                    voice=self.ear,
                    persons=self.crowd,  # type: ignore[arg-type]  # a double
                    stream=self.stream,
                    concluded=self._concluded,
                    fetch=self.fetch,
                ),
                storage=mortal[0],
                home="here",
                answers_within_s=self.answers_within_s,
            )
            yield self.conversations

    @asynccontextmanager
    async def life(self) -> AsyncIterator[Conversations]:
        """The service, running within the context."""
        async with self.built() as conversations, anyio.create_task_group() as group:
            await group.start(conversations.run)
            try:
                yield conversations
            finally:
                group.cancel_scope.cancel()

    async def ended(self, task: str) -> None:
        """End a task here, and store that."""
        await self.storage.write(lambda db: over(db, task))
        self.conversations.ended(task)

    async def rows(self) -> list[str]:
        found = await self.storage.read(
            lambda db: db.execute("SELECT id FROM turns ORDER BY created").fetchall()
        )
        return [row[0] for row in found]

    async def settled(self) -> None:
        """Wait until there are no rows."""

        async def are_gone() -> bool:
            return not await self.rows()

        await eventually(are_gone)

    async def tells(self, id_: str, text: str, who: JID = ROMEO, **more: Any) -> None:
        """Record that the agent has told somebody something by itself."""
        said = told.ToldMessage(id=id_, text=text, about="A schedule has run tide.", **more)
        await self.storage.write(lambda db: told.add(db, AGENT, who, said))

    async def lines(self, who: JID = ROMEO) -> list[Line]:
        found = await self.sessions.read(SessionKey("assistant", who), tokens=10**9)
        return list(found.lines)


def begun(database: Database, task: str, state: str = "running", parent: str | None = None) -> None:
    """Insert the row of a task, unless it exists; one that runs waits for something."""
    request = msgspec.json.encode(Request("s", ROMEO, ROMEO, AGENT, origin="tool")).decode()
    database.execute(
        "INSERT INTO tasks (id, principal, requester, target, skill, version, request, state,"
        " revision, priority, fence, promoted, created, updated, retain_until, share, parent,"
        " waits) VALUES (?, ?, 'r', 'a', 's', '1', ?, ?, 1, 0, 0, 1, 0, 0, 0, 's', ?, ?)"
        " ON CONFLICT (id) DO NOTHING",
        (task, str(ROMEO), request, state, parent, int(state == "running")),
    )


def over(database: Database, task: str) -> None:
    """Let a task end, as another part of the service does."""
    database.execute("UPDATE tasks SET state = 'completed' WHERE id = ?", (task,))
    waiters.wake_tasks(database, task)


def message(
    id_: str,
    body: str = "",
    who: JID = ROMEO,
    *,
    agent: str = "assistant",
    target: JID | None = None,
    sender: JID | None = None,
    taint: Taint | None = "person",
    msg_id: str | None = None,
    kind: Literal["chat", "normal"] = "chat",
    thread: str | None = None,
    lang: str | None = None,
) -> TurnRequest:
    """A message of a person, as a request."""
    target = target or JID(agent, AGENT.domain)
    sender = sender or JID(who.local, who.domain, "phone")
    return TurnRequest(
        id=id_,
        starter=MessageStarter(sender, msg_id),
        conversation=Conversation(JID(agent, target.domain), who, thread=thread),
        principal=who,
        reply_to=ReplyAddress(str(sender), target, kind, thread),
        text=body or f"message {id_}",
        taint=taint,
        language=lang,
    )


def command(
    id_: str,
    text: str = "",
    who: JID = ROMEO,
    *,
    agent: str = "assistant",
    by: str = "operator",
    payer: Payer | None = None,
) -> TurnRequest:
    """A request of an operator in a person's conversation."""
    address = JID(agent, AGENT.domain)
    return TurnRequest(
        id=id_,
        starter=OperatorStarter(by),
        conversation=Conversation(address, who),
        principal=who,
        reply_to=ReplyAddress(str(who), address),
        text=text or f"command {id_}",
        payer=payer,
    )


def answered(reply: Reply) -> str:
    """The turn of an answer."""
    return reply.id.removesuffix(".answer")


def says(text: str, *calls: ToolCall, finish: str = "") -> Completion:
    return Completion.of(
        text=text,
        tool_calls=calls,
        finish=finish or ("tool_calls" if calls else "stop"),  # type: ignore[arg-type]
        usage=Usage(tokens_in=10, tokens_out=5, cost_usd=0.01),
        model="brain",
    )


def call(name: str, arguments: str = "{}", id_: str = "") -> ToolCall:
    return ToolCall(id_ or f"c-{name}", name, arguments)


def echo(request: ModelRequest) -> Completion:
    """Answers the last message."""
    return says(f"re: {words(request)[-1]}")


def words(request: ModelRequest) -> list[str]:
    """The messages of people, without their contexts."""
    return [text_of(one.parts[-1:]) for one in request.messages if one.role == "user"]


def contexts(request: ModelRequest) -> list[str]:
    """The contexts of the messages of people."""
    return [text_of(one.parts[:-1]) for one in request.messages if one.role == "user"]


def shopping(*names: str) -> Callable[[ModelRequest], Completion]:
    """Calls these tools for the last message, one in each round, and then answers with the
    results.
    """

    def think(request: ModelRequest) -> Completion:
        messages = request.messages
        asks = [at for at, one in enumerate(messages) if one.role == "user"]
        after = messages[asks[-1] :]
        results = [one.text for one in after if one.role == "tool"]
        if len(results) < len(names):
            name = names[len(results)]
            return says("", call(name, f'{{"n":{len(results)}}}', f"c{len(results)}-{name}"))
        return says(f"re: {words(request)[-1]}: {'; '.join(results)}")

    return think
