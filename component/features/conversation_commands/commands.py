"""Commands about one's own conversation with an agent: start, stop, delete, and its state. None of
them uses a model.
"""

from collections.abc import Awaitable, Callable, Sequence

import msgspec

from component.agent.conversations import Conversations
from component.commands import (
    AnyCommand,
    Asking,
    CommandError,
    CommandResult,
    NoParams,
    Outline,
    PersonParams,
    person_of,
    whose,
)
from component.memory.lines import SessionKey
from component.memory.personas import Personas
from component.memory.sessions import Sessions
from xep.jid import JID


class About(msgspec.Struct, frozen=True, kw_only=True):
    """The status of an agent for the requester. `uptime_s` is in whole seconds."""

    agent: str
    title: str
    state: str
    model: str
    persona: str | None
    uptime_s: int
    connection: str
    messages: int
    archived: int
    memories: int
    since: str | None
    running: bool
    waiting: int
    parked: int
    sources: tuple[str, ...]
    idle_timeout_mins: int


class AgentStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status of an agent without the conversation; `sources` are files that shape it."""

    title: str
    state: str
    model: str
    uptime_s: int
    connection: str
    sources: tuple[str, ...]
    idle_timeout_mins: int


NEW = Outline(
    name="new",
    title="New conversation",
    about="start a new conversation; the old one is archived",
    params=NoParams,
)
RESET = Outline(name="reset", title="Reset", about="same as /new", params=NoParams)
FORGET = Outline(
    name="forget",
    title="Forget",
    about="delete this conversation, what I remember about you, and your schedules and watches;"
    " archived conversations and personas are kept",
    params=NoParams,
)
FORGET_PERSON = Outline(
    name="forget-person",
    title="Forget a person",
    about="delete the conversation of an agent with a person and what it remembers about them",
    params=PersonParams,
    who="admin",
)
STOP = Outline(name="stop", title="Stop", about="stop what I am doing for you", params=NoParams)
STATUS = Outline(
    name="status", title="Status", about="show my state and this conversation", params=NoParams
)


class ConversationCommands:
    """The commands about conversations.

    Args:
        conversations: the current conversations.
        sessions: the stored conversations.
        personas: the personas.
        told: returns the status of an agent for a person, by the agent's localpart.
        agents: the names of the agents; the first one answers for the domain.
        forget_more: deletes the other data of an agent (by its localpart) about a person.
    """

    def __init__(
        self,
        conversations: Conversations,
        sessions: Sessions,
        personas: Personas,
        told: Callable[[str, JID], Awaitable[AgentStatus]],
        agents: Sequence[str],
        forget_more: Callable[[str, JID], Awaitable[None]] | None = None,
    ) -> None:
        self._forget_more = forget_more
        self._conversations = conversations
        self._sessions = sessions
        self._personas = personas
        self._told = told
        self._agents = agents
        self._default_agent = agents[0]

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
        if await self._conversations.new(*self._whose(asking)):
            return CommandResult("Started a new conversation; the old one is archived.")
        return CommandResult("This conversation is already new.")

    async def _stop(self, asking: Asking, _params: NoParams) -> CommandResult:
        return CommandResult(await self._conversations.stop(*self._whose(asking)))

    async def _forget(self, asking: Asking, _params: NoParams) -> CommandResult:
        return await self._erase(*self._whose(asking), "you")

    async def _forget_person(self, _asking: Asking, params: PersonParams) -> CommandResult:
        agent = params.agent.strip() or self._default_agent
        if agent not in self._agents:
            names = ", ".join(self._agents)
            raise CommandError(f"There is no agent called {agent!r}; there are: {names}.", "agent")
        who = person_of(params.person)
        return await self._erase(agent, who, str(who))

    async def _erase(self, agent: str, who: JID, whom: str) -> CommandResult:
        gone = await self._conversations.forget(agent, who)
        if self._forget_more is not None:
            await self._forget_more(agent, who)
        counted = (
            _many(gone.messages, "message"),
            _many(gone.memories, "memory", "memories"),
            _many(gone.attachments, "attachment"),
        )
        what = ", ".join(each for each in counted if each)
        if not what and not gone.names:
            return CommandResult("There was nothing to delete.", gone)
        return CommandResult(f"Deleted what I knew about {whom}: {what or 'some notes'}.", gone)

    async def _status(self, asking: Asking, _params: NoParams) -> CommandResult:
        agent, who = self._whose(asking)
        told = await self._told(agent, who)
        status = await self._sessions.status(SessionKey(agent, who))
        persona = await self._personas.active(agent, who)
        activity = self._conversations.activity(agent, who)
        about = About(
            agent=agent,
            title=told.title,
            state=told.state,
            model=told.model,
            persona=None if persona is None else persona.name,
            uptime_s=told.uptime_s,
            connection=told.connection,
            messages=status.messages,
            archived=status.archived,
            memories=status.memories,
            since=status.since,
            running=activity.running,
            waiting=activity.waiting,
            parked=activity.parked,
            sources=told.sources,
            idle_timeout_mins=told.idle_timeout_mins,
        )
        return CommandResult("\n".join(_status_lines(about)), about)

    def _whose(self, asking: Asking) -> tuple[str, JID]:
        return whose(asking, self._default_agent)


def _many(count: int, one: str, more: str | None = None) -> str:
    return f"{count} {one if count == 1 else more or one + 's'}" if count else ""


def _status_lines(about: About) -> Sequence[str]:
    persona = f", as {about.persona}" if about.persona else ""
    lines = [
        f"I am {about.title}{persona}, and {about.state}.",
        f"Up for {_span(about.uptime_s)}, {about.connection}. Model: {about.model}.",
        (
            f"{_many(about.messages, 'message') or 'No messages'} in this conversation,"
            f" {_many(about.archived, 'earlier one') or 'none before it'},"
            f" {_many(about.memories, 'memory', 'memories') or 'no memories'}."
        ),
    ]
    at = ["I am writing an answer"] if about.running else []
    at += [f"{_many(about.waiting, 'message')} waiting"] if about.waiting else []
    at += (
        [f"{_many(about.parked, 'request')} waiting for an answer or a task"]
        if about.parked
        else []
    )
    if at:
        lines.append(f"Now: {', '.join(at)}.")
    if about.idle_timeout_mins:
        lines.append(
            f"After {about.idle_timeout_mins} minutes without a message, a new conversation starts."
        )
    if about.sources:
        lines.append(f"My instructions come from: {', '.join(dict.fromkeys(about.sources))}.")
    return lines


def _span(seconds: int) -> str:
    for size, unit in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            return _many(seconds // size, unit)
    return _many(seconds, "second") or "0 seconds"
