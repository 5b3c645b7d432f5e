"""Agents that talk: models, budgets, the loop and what it is told, wired."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

import anyio
import msgspec
import structlog
from anyio.abc import TaskStatus

from component.agent.children import Children
from component.agent.conversations import Conversations
from component.agent.engine import Engine
from component.agent.labels import Persons
from component.agent.observer import Observer
from component.agent.profile import Away, Profile
from component.agent.protocol import Tools, Voice
from component.agent.registry import Agents
from component.agent.scanner import PatternScanner
from component.audit.protocol import Recorder
from component.budget.book import BudgetBook
from component.commands.agents import AgentCommands, SpendingCommands
from component.commands.conversation import ConversationCommands, Told, whose
from component.commands.definition import AnyCommand
from component.commands.persona_dialogue import PersonaDialogue
from component.commands.personas import PersonaCommands
from component.memory.lines import SessionKey
from component.memory.packages import Persona, tier_of
from component.memory.workspace import Character
from component.models.building import Models
from component.models.protocol import Model
from component.policy.narrower import narrowed
from component.service.options import (
    DEFAULT_AGENT,
    agent_entries,
    agents,
    budget_limits,
    limited_in_usd,
    own_models,
)
from component.service.remembering import Memories
from component.settings import Settings
from component.settings.agents import AgentEntry
from component.settings.llm import Tier
from component.storage import Storage, StorageError
from xep.jid import JID

_log = structlog.get_logger("component.service")

_FIRST_WAIT_S: Final = 0.2
_LONGEST_WAIT_S: Final = 10.0


class Talk:
    """The agents of a service, where a model is set up.

    Args:
        settings: the settings; `llm` is set.
        storage: where open turns, states and spending are kept.
        home: the name of the data directory.
        memories: what is remembered.
        tools: the skills, as models see them.
        names: the names of the skills that a principal may use.
        voice: sends what agents say.
        persons: tells people from all others.
        recorder: takes what is to be recorded.
        observer: counts and traces.
        alert: is told what admins have to know.
        connected_since: since when there is a stream; None while there is none.

    Attributes:
        conversations: where messages go.
        agents: the states of the agents.
        budgets: what was spent.
        dialogue: asks people what personas of their own are to be.

    Raises ModelRefusedError: what a model needs is not installed.
    """

    def __init__(
        self,
        settings: Settings,
        storage: Storage,
        home: str,
        memories: Memories,
        tools: Tools,
        names: Callable[[JID], Iterable[str]],
        voice: Voice,
        persons: Persons,
        recorder: Recorder,
        observer: Observer,
        alert: Callable[[str], None],
        connected_since: Callable[[], datetime | None],
    ) -> None:
        assert settings.llm is not None, "there is a model"
        self._settings = settings
        self._memories = memories
        self._names = names
        self._connected_since = connected_since
        self._started = datetime.now(UTC)
        self._titles = agents(settings)
        self.dialogue = PersonaDialogue(memories.own_personas, memories.drafts)
        self._models = Models(settings.llm, own_models(settings), in_usd=limited_in_usd(settings))
        self._killed: list[str] = []
        self._ended: list[str] = []
        self._any_news = anyio.Event()
        self.agents = Agents(
            agent_entries(settings), storage, recorder, self._stop_agent, settings.loop.idle_s
        )
        self.budgets = BudgetBook(storage, budget_limits(settings), recorder, alert)
        self._engine = Engine(
            models=lambda profile: self.model(profile.tier, profile.model_of),
            tools=tools,
            sessions=memories.sessions,
            scanner=PatternScanner(),
            budgets=self.budgets,
            record=recorder,
            loop=settings.loop,
            recall=memories.knowledge,
            history_tokens=settings.session.history_tokens,
            max_tokens=settings.llm.max_tokens_per_request,
            recalled=settings.memory.recall,
            observer=observer,
        )
        self._engine.add(Children(self._engine, settings.loop, recorder))
        self.conversations = Conversations(
            engine=self._engine,
            profiles=self.profile,
            storage=storage,
            home=home,
            voice=voice,
            persons=persons,
            loop=settings.loop,
            over=self.budgets.ended,
            stream=connected_since,
        )

    def model(self, tier: Tier, of: str = "") -> Model:
        """The model of a tier, or that `of` an agent with its own."""
        return self._models.get(tier, of)

    async def profile(self, key: SessionKey) -> Profile | Away:
        """How an agent is for a person. Raises StorageError."""
        entry = self.agents.entries.get(key.agent)
        away = self.agents.away(key.agent)
        if entry is None:
            return Away(away or "There is no such agent.")
        if away is None:
            await self.agents.heard(key.agent)
            return await self._profile(key, entry)
        known = self.agents.get(key.agent)
        if known is not None and known.state == "paused":
            return Away(away, begun=await self._profile(key, entry))
        return Away(away)

    async def _profile(self, key: SessionKey, entry: AgentEntry) -> Profile:
        """As it is declared, and by the files and the persona that it has."""
        persona, character = await self._character(key, entry)
        tier, model_of = _model_of(entry, persona)
        profile = Profile(
            agent=key.agent,
            title=self._titles[key.agent],
            identity=character.identity,
            personality=character.personality,
            instructions=character.instructions,
            context=character.context,
            user=character.user,
            memory=character.memory,
            tier=tier,
            model_of=model_of,
            temperature=entry.temperature,
            capabilities=entry.capabilities,
            skills=entry.skills,
            max_iterations=entry.max_iterations,
            spawn=entry.spawn,
        )
        if persona is None:
            return profile
        return msgspec.structs.replace(
            profile,
            skills=profile.skills
            if persona.skills is None
            else narrowed(persona.skills, profile.skills, self._names(key.who)),
            max_tokens=persona.max_tokens_per_message,
        )

    async def _character(
        self, key: SessionKey, entry: AgentEntry | None
    ) -> tuple[Persona | None, Character]:
        persona = await self._memories.personas.active(key.agent, key.who)
        folder = None if persona is None else persona.folder
        return persona, await self._memories.workspace.read(key, persona=folder, declared=entry)

    def commands(self) -> Sequence[AnyCommand]:
        """What people and admins can ask about agents."""
        memories = self._memories
        return (
            *ConversationCommands(
                self.conversations,
                memories.sessions,
                memories.personas,
                memories.knowledge,
                self._told,
                DEFAULT_AGENT,
            ).commands(),
            *PersonaCommands(
                memories.personas,
                memories.own_personas,
                self.dialogue,
                lambda asking: whose(asking, DEFAULT_AGENT),
            ).commands(),
            *SpendingCommands(self.budgets, DEFAULT_AGENT).commands(),
            *AgentCommands(self.agents).commands(),
        )

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Let the agents live, until cancelled. Raises StorageError before it has begun."""
        await self.agents.load()
        try:
            async with anyio.create_task_group() as group:
                await group.start(self.budgets.run)
                await group.start(self.agents.run)
                group.start_soon(self._hear)
                await group.start(self.conversations.run)
                task_status.started()
        finally:
            with anyio.CancelScope(shield=True):
                await self._models.aclose()

    def tool_ended(self, task: str) -> None:
        """A task that a model's call went on as is over. Never waits."""
        self._ended.append(task)
        self._any_news.set()

    def _stop_agent(self, name: str) -> None:
        self._killed.append(name)
        self._any_news.set()

    async def _hear(self) -> None:
        """Pass on what came from where nobody can wait."""
        async with anyio.create_task_group() as group:
            while True:
                await self._any_news.wait()
                self._any_news = anyio.Event()
                ended, self._ended = self._ended, []
                killed, self._killed = self._killed, []
                for task in ended:
                    group.start_soon(self._pass_on, self.conversations.ended, task)
                for name in killed:
                    group.start_soon(self._pass_on, self.conversations.stop_agent, name)

    async def _pass_on(self, to: Callable[[str], Awaitable[object]], what: str) -> None:
        wait = _FIRST_WAIT_S
        while True:
            try:
                await to(what)
            except StorageError as error:
                _log.warning("an agent has to wait", of=what, reason=str(error), seconds=wait)
            else:
                return
            await anyio.sleep(wait)
            wait = min(wait * 2, _LONGEST_WAIT_S)

    async def _told(self, agent: str, who: JID) -> Told:
        entry = self.agents.entries.get(agent)
        persona, character = await self._character(SessionKey(agent, who), entry)
        model = self.model("standard") if entry is None else self.model(*_model_of(entry, persona))
        state, since = self.agents.get(agent), self._connected_since()
        return Told(
            title=self._titles.get(agent, agent),
            state="unknown" if state is None else state.state,
            model=model.name,
            uptime_s=int((datetime.now(UTC) - self._started).total_seconds()),
            connection="not connected"
            if since is None
            else f"connected as {self._settings.server.component_domain}",
            sources=character.sources,
            idle_timeout_mins=self._settings.session.idle_timeout_mins,
        )


def _model_of(entry: AgentEntry, persona: Persona | None) -> tuple[Tier, str]:
    """The tier of an agent with this persona, and whose own model it has; "" for none."""
    own = entry.llm is not None
    tier = tier_of(persona, entry.tier, own_model=own)
    return tier or entry.tier, entry.name if own and not tier else ""
