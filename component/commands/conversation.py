"""Commands about one's own conversation with an agent: begun anew, stopped, forgotten; how it is,
and what is remembered. None of them asks a model.
"""

from collections.abc import Sequence
from typing import Annotated, Final, Protocol

import msgspec

from component.agent.conversations import Doing
from component.commands.definition import (
    Answer,
    AnyCommand,
    Asking,
    CommandError,
    NoParams,
    Outline,
)
from component.memory.index_search import Search
from component.memory.knowledge import KnowledgeError, Remembered
from component.memory.lines import SessionKey
from component.memory.packages import Persona
from component.memory.sharing import PRIVATE
from component.memory.upkeep import Forgotten, Status
from xep.jid import JID

_MEMORIES_SHOWN: Final = 20
_LONGEST_SHOWN: Final = 300


class Conversations(Protocol):
    """Conversations under way: `component.agent.conversations.Conversations`."""

    async def stop(self, agent: str, principal: JID) -> str:
        """Stop everything that an agent does for a principal; a sentence for the person."""

    async def new(self, agent: str, principal: JID) -> bool:
        """Begin a new conversation. Raises StorageError."""

    async def forget(self, agent: str, principal: JID) -> Forgotten:
        """Erase a conversation and what is known of a person. Raises StorageError."""

    def doing(self, agent: str, principal: JID) -> Doing:
        """What an agent is at for a principal."""


class Sessions(Protocol):
    """Conversations on disk: `component.memory.sessions.Sessions`."""

    async def status(self, key: SessionKey) -> Status:
        """Count what is there. Raises StorageError."""


class Personas(Protocol):
    """Characters that people choose: `component.memory.personas.Personas`."""

    async def active(self, agent: str, who: JID) -> Persona | None:
        """The one that is chosen. Raises StorageError."""


class Knowledge(Protocol):
    """What is remembered: `component.memory.knowledge.Knowledge`. All raise StorageError."""

    async def get(self, agent: str, principal: JID, key: str) -> list[Remembered]:
        """The memories of this very key, one for each scope that has it."""

    async def search(self, agent: str, principal: JID, search: Search) -> list[Remembered]:
        """The memories that fit best."""

    async def forget(self, agent: str, principal: JID, key: str, scope: str = "private") -> bool:
        """Erase a memory. Raises KnowledgeError."""


class About(msgspec.Struct, frozen=True, kw_only=True):
    """How an agent is for the one who asks. `uptime_s` is in whole seconds."""

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


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What is said of an agent beside the conversation; `sources` are files that shape it."""

    title: str
    state: str
    model: str
    uptime_s: int
    connection: str
    sources: tuple[str, ...]
    idle_timeout_mins: int


class Memory(msgspec.Struct, frozen=True):
    """A memory in a list."""

    key: str
    title: str
    body: str
    scope: str
    version: int


class MemoryParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which memories."""

    words: Annotated[
        tuple[str, ...],
        msgspec.Meta(
            title="Words",
            description="What they are about; forget and a key erases one. The latest ones unless"
            " given.",
        ),
    ] = ()
    scope: Annotated[
        str,
        msgspec.Meta(
            title="Scope",
            description="With forget: whose memory it is, as the list shows it between brackets;"
            " private, which is yours alone, unless given.",
        ),
    ] = ""


NEW = Outline(
    name="new",
    title="New conversation",
    about="we begin anew; what was said is kept apart",
    params=NoParams,
)
RESET = Outline(name="reset", title="Reset", about="the same as new", params=NoParams)
FORGET = Outline(
    name="forget",
    title="Forget",
    about="I forget this conversation and all that I know of you; archived ones stay, and personas",
    params=NoParams,
)
STOP = Outline(name="stop", title="Stop", about="I stop what I am doing for you", params=NoParams)
STATUS = Outline(
    name="status", title="Status", about="how I am, and our conversation", params=NoParams
)
MEMORY = Outline(
    name="memory",
    title="Memory",
    about="what I remember of you; add words to search, or forget and a key (and scope=…)",
    params=MemoryParams,
)


class ConversationCommands:
    """The commands.

    Args:
        conversations: what is under way.
        sessions: what is on disk.
        personas: characters that people choose.
        knowledge: what is remembered.
        told: what is said of an agent to one who asks, by its localpart.
        default_agent: the localpart of the agent that answers for the domain.
    """

    def __init__(
        self,
        conversations: Conversations,
        sessions: Sessions,
        personas: Personas,
        knowledge: Knowledge,
        told: "Tell",
        default_agent: str,
    ) -> None:
        self._conversations = conversations
        self._sessions = sessions
        self._personas = personas
        self._knowledge = knowledge
        self._told = told
        self._default_agent = default_agent

    def commands(self) -> tuple[AnyCommand, ...]:
        """All of them."""
        return (
            NEW.done_by(self._new),
            RESET.done_by(self._new),
            STOP.done_by(self._stop),
            STATUS.done_by(self._status),
            MEMORY.done_by(self._memory),
            FORGET.done_by(self._forget),
        )

    async def _new(self, asking: Asking, _params: NoParams) -> Answer:
        if await self._conversations.new(*self._whose(asking)):
            return Answer("What we said is put away. We begin anew.")
        return Answer("This is a new conversation already.")

    async def _stop(self, asking: Asking, _params: NoParams) -> Answer:
        return Answer(await self._conversations.stop(*self._whose(asking)))

    async def _forget(self, asking: Asking, _params: NoParams) -> Answer:
        gone = await self._conversations.forget(*self._whose(asking))
        counted = (
            _many(gone.messages, "message"),
            _many(gone.memories, "memory", "memories"),
            _many(gone.attachments, "attachment"),
        )
        what = ", ".join(each for each in counted if each)
        if not what and not gone.names:
            return Answer("There was nothing to forget.", gone)
        return Answer(f"I have forgotten what I knew of you: {what or 'some notes'}.", gone)

    async def _status(self, asking: Asking, _params: NoParams) -> Answer:
        agent, who = self._whose(asking)
        told = await self._told(agent, who)
        status = await self._sessions.status(SessionKey(agent, who))
        persona = await self._personas.active(agent, who)
        doing = self._conversations.doing(agent, who)
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
            running=doing.running,
            waiting=doing.waiting,
            parked=doing.parked,
            sources=told.sources,
            idle_timeout_mins=told.idle_timeout_mins,
        )
        return Answer("\n".join(_status_lines(about)), about)

    async def _memory(self, asking: Asking, params: MemoryParams) -> Answer:
        agent, who = self._whose(asking)
        if len(params.words) > 1 and params.words[0].casefold() == "forget":
            return await self._forget_one(agent, who, " ".join(params.words[1:]), params.scope)
        if params.scope:
            raise CommandError("A scope goes with forget and a key; a list has all.", "scope")
        search = Search(" ".join(params.words), most=_MEMORIES_SHOWN, common=True)
        found = await self._knowledge.search(agent, who, search)
        if not found:
            none = "I remember nothing like that." if params.words else "I remember nothing of you."
            return Answer(none, ())
        rows = [
            Memory(one.item.key, one.item.title, one.item.body, one.scope, one.item.version)
            for one in found
        ]
        return Answer("\n".join(_memory_line(row) for row in rows), rows)

    async def _forget_one(self, agent: str, who: JID, key: str, scope: str) -> Answer:
        try:
            gone = await self._knowledge.forget(agent, who, key, scope or PRIVATE)
        except KnowledgeError as error:
            raise CommandError(str(error), "scope" if scope else "words") from None
        where = f" in {scope}" if scope else ""
        if gone:
            return Answer(f"I have forgotten {key}{where}.")
        others = [one.scope for one in await self._knowledge.get(agent, who, key)]
        if not others:
            return Answer(f"I remember nothing called {key}{where}.")
        return Answer(
            f"I remember nothing called {key} in {scope or PRIVATE}, but in {', '.join(others)}:"
            f" /memory forget {key} scope={others[0]}"
        )

    def _whose(self, asking: Asking) -> tuple[str, JID]:
        return whose(asking, self._default_agent)


def whose(asking: Asking, default_agent: str) -> tuple[str, JID]:
    """The agent and the person that a command is about. Raises CommandError for the operator."""
    if asking.principal is None:
        raise CommandError("This is for who talks with an agent over XMPP.")
    agent = None if asking.at is None else asking.at.local
    return agent or default_agent, asking.principal


class Tell(Protocol):
    """Says how an agent is."""

    async def __call__(self, agent: str, who: JID, /) -> Told:
        """What is said of an agent to one who asks. Raises StorageError."""


def _many(count: int, one: str, more: str | None = None) -> str:
    return f"{count} {one if count == 1 else more or one + 's'}" if count else ""


def _memory_line(row: Memory) -> str:
    text = row.body if not row.title else f"{row.title}: {row.body}"
    text = " ".join(text.split())
    if len(text) > _LONGEST_SHOWN:
        text = text[: _LONGEST_SHOWN - 1] + "…"
    where = "" if row.scope == PRIVATE else f" [{row.scope}]"
    return f"- {row.key}{where}: {text}"


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
    at += [f"{_many(about.parked, 'thing')} waiting for a word or for work"] if about.parked else []
    if at:
        lines.append(f"Now: {', '.join(at)}.")
    if about.idle_timeout_mins:
        lines.append(f"After {about.idle_timeout_mins} minutes of silence we begin anew.")
    if about.sources:
        lines.append(f"What shapes me: {', '.join(dict.fromkeys(about.sources))}.")
    return lines


def _span(seconds: int) -> str:
    for size, unit in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            return _many(seconds // size, unit)
    return _many(seconds, "second") or "0 seconds"
