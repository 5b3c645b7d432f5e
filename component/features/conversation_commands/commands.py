"""Commands about one's own conversation with an agent: start, stop, delete, and its state. None of
them uses a model.
"""

from collections.abc import Awaitable, Callable, Sequence

import msgspec

from component.agent.conversations import Conversations
from component.commands import (
    AnyCommand,
    Asking,
    CommandResult,
    NoParams,
    Outline,
    PersonParams,
    agent_of,
    conversation_of,
    person_of,
)
from component.kernel.memory import Memories
from component.memory.sharing import PRIVATE
from component.memory_directory.layout import SessionKey
from xep.jid import JID


class ConversationStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status of an agent and of the requester's conversation with it.

    Attributes:
        uptime_s: in whole seconds.
        sources: the files that shape the agent.
    """

    agent: str
    title: str
    state: str
    model: str
    persona: str | None = None
    uptime_s: int
    connection: str
    messages: int = 0
    archived: int = 0
    memories: int = 0
    since: str | None = None
    running: bool = False
    waiting: int = 0
    parked: int = 0
    sources: tuple[str, ...]
    idle_timeout_mins: int


class ForgetParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is forgotten.

    Args:
        key: Key of one memory of your own, which is deleted instead of everything.
    """

    key: tuple[str, ...] = ()


NEW = Outline(
    name="new",
    title="New conversation",
    about="start a new conversation; the old one is archived",
    params=NoParams,
    group="conversation",
)
RESET = Outline(
    name="reset",
    title="Reset",
    about="same as /new",
    params=NoParams,
    group="conversation",
    in_menu=False,
)
FORGET = Outline(
    name="forget",
    title="Forget",
    about="delete this conversation, what I remember about you, your objects, schedules and"
    " watches;"
    " archived conversations and personas are kept; with a KEY, delete only this memory",
    params=ForgetParams,
    group="conversation",
)
FORGET_PERSON = Outline(
    name="forget-person",
    title="Forget a person",
    about="delete the conversation of an agent with a person and what it remembers about them",
    params=PersonParams,
    who="admin",
    group="people",
)
STOP = Outline(
    name="stop",
    title="Stop",
    about="stop what I am doing for you",
    params=NoParams,
    group="everyday",
)
STATUS = Outline(
    name="status",
    title="Status",
    about="show my state and this conversation",
    params=NoParams,
    group="conversation",
    only_reads=True,
)


class ConversationCommands:
    """The commands about conversations.

    Args:
        describe: returns the status of an agent for a person.
        agents: the names of the agents; the first one answers for the domain.
        forget_more: deletes the other data of an agent, by its localpart, about a person.
    """

    def __init__(
        self,
        conversations: Conversations,
        memories: Memories,
        describe: Callable[[SessionKey], Awaitable[ConversationStatus]],
        agents: Sequence[str],
        forget_more: Callable[[str, JID], Awaitable[None]],
    ) -> None:
        self._conversations = conversations
        self._memories = memories
        self._describe = describe
        self._agents = agents
        self._forget_more = forget_more

    def commands(self) -> tuple[AnyCommand, ...]:
        """Return all of them."""
        return (
            NEW.done_by(self._new),
            RESET.done_by(self._new),
            STOP.done_by(self._stop),
            STATUS.done_by(self._status),
            FORGET.done_by(self._forget),
            FORGET_PERSON.done_by(self._forget_person),
        )

    async def _new(self, asking: Asking, _params: NoParams) -> CommandResult:
        if await self._conversations.new(self._whose(asking)):
            return CommandResult("Started a new conversation; the old one is archived.")
        return CommandResult("This conversation is already new.")

    async def _stop(self, asking: Asking, _params: NoParams) -> CommandResult:
        return CommandResult(await self._conversations.stop(self._whose(asking)))

    async def _forget(self, asking: Asking, params: ForgetParams) -> CommandResult:
        whose, key = self._whose(asking), " ".join(params.key)
        if not key:
            return await self._erase(whose, "you")
        knowledge = self._memories.knowledge
        found = [one for one in await knowledge.get(whose, key) if one.scope == PRIVATE]
        if not found or not await knowledge.forget(whose, key, PRIVATE):
            return CommandResult(f"I remember nothing of yours called {key}.")
        text = " ".join(found[0].item.body.split())
        return CommandResult(f"Forgot {key}. To undo it, send /memory set {key} {text}")

    async def _forget_person(self, _asking: Asking, params: PersonParams) -> CommandResult:
        key = SessionKey(agent_of(params.agent, self._agents), person_of(params.person))
        return await self._erase(key, str(key.who))

    async def _erase(self, key: SessionKey, whom: str) -> CommandResult:
        deleted = await self._conversations.forget(key)
        await self._forget_more(key.agent, key.who)
        counted = (
            _many(deleted.messages, "message"),
            _many(deleted.memories, "memory", "memories"),
            _many(deleted.attachments, "attachment"),
        )
        what = ", ".join(each for each in counted if each)
        if not what and not deleted.names:
            return CommandResult("There was nothing to delete.", deleted)
        return CommandResult(f"Deleted what I knew about {whom}: {what or 'some notes'}.", deleted)

    async def _status(self, asking: Asking, _params: NoParams) -> CommandResult:
        key = self._whose(asking)
        counts = await self._memories.sessions.status(key)
        persona = await self._memories.personas.active(key)
        activity = self._conversations.activity(key)
        status = msgspec.structs.replace(
            await self._describe(key),
            persona=None if persona is None else persona.name,
            messages=counts.messages,
            archived=counts.archived,
            memories=counts.memories,
            since=counts.since,
            running=activity.running,
            waiting=activity.waiting,
            parked=activity.parked,
        )
        return CommandResult("\n".join(_status_lines(status)), status)

    def _whose(self, asking: Asking) -> SessionKey:
        return conversation_of(asking, self._agents[0])


def _many(count: int, one: str, more: str | None = None) -> str:
    return f"{count} {one if count == 1 else more or one + 's'}" if count else ""


def _status_lines(status: ConversationStatus) -> Sequence[str]:
    persona = f", as {status.persona}" if status.persona else ""
    lines = [
        f"I am {status.title}{persona}, and {status.state}.",
        f"Up for {_span(status.uptime_s)}, {status.connection}. Model: {status.model}.",
        (
            f"{_many(status.messages, 'message') or 'No messages'} in this conversation,"
            f" {_many(status.archived, 'earlier one') or 'none before it'},"
            f" {_many(status.memories, 'memory', 'memories') or 'no memories'}."
        ),
    ]
    at = ["I am writing an answer"] if status.running else []
    at += [f"{_many(status.waiting, 'message')} waiting"] if status.waiting else []
    at += (
        [f"{_many(status.parked, 'request')} waiting for an answer or a task"]
        if status.parked
        else []
    )
    if at:
        lines.append(f"Now: {', '.join(at)}.")
    if status.idle_timeout_mins:
        lines.append(
            f"After {status.idle_timeout_mins} minutes without a message, a new conversation"
            " starts."
        )
    if status.sources:
        lines.append(f"My instructions come from: {', '.join(dict.fromkeys(status.sources))}.")
    return lines


def _span(seconds: int) -> str:
    for size, unit in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            return _many(seconds // size, unit)
    return _many(seconds, "second") or "0 seconds"
