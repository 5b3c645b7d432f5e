"""Agents that talk: models, budgets, the loop and what it is told, wired."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import anyio
import msgspec
import structlog
from anyio.abc import TaskStatus

from component.agent.conversations import Conversations
from component.agent.engine import Engine
from component.agent.observer import Observer
from component.agent.profile import Away, Profile
from component.agent.protocol import Scanner, Tools, Voice
from component.agent.registry import Agents
from component.audit.protocol import Recorder
from component.budget.book import BudgetBook, Limit, Limits
from component.commands.agents import AgentCommands, SpendingCommands
from component.commands.conversation import ConversationCommands, Told
from component.commands.definition import AnyCommand
from component.memory.lines import SessionKey
from component.models.building import Models
from component.models.protocol import Model
from component.service.options import DEFAULT_AGENT, agent_entries, agents
from component.service.remembering import Memories
from component.settings import Settings
from component.settings.agents import Budget
from component.settings.llm import Tier
from component.storage import Storage
from xep.jid import JID

_log = structlog.get_logger("component.service")


class Talk:
    """The agents of a service, where a model is set up.

    Args:
        settings: the settings; `llm` is set.
        storage: where open turns, states and spending are kept.
        home: the name of the data directory.
        memories: what is remembered.
        tools: the skills, as models see them.
        voice: sends what agents say.
        scanner: looks for orders in data.
        recorder: takes what is to be recorded.
        observer: counts and traces.
        alert: is told what admins have to know.
        connected_since: since when there is a stream; None while there is none.

    Attributes:
        conversations: where messages go.
        agents: the states of the agents.
        budgets: what was spent.

    Raises ModelRefusedError: what a model needs is not installed.
    """

    def __init__(
        self,
        settings: Settings,
        storage: Storage,
        home: str,
        memories: Memories,
        tools: Tools,
        voice: Voice,
        scanner: Scanner,
        recorder: Recorder,
        observer: Observer,
        alert: Callable[[str], None],
        connected_since: Callable[[], datetime | None],
    ) -> None:
        assert settings.llm is not None, "there is a model"
        self._settings = settings
        self._memories = memories
        self._connected_since = connected_since
        self._started = datetime.now(UTC)
        self._titles = agents(settings)
        self._models = Models(settings.llm)
        self._killed: list[str] = []
        self._any_killed = anyio.Event()
        self.agents = Agents(
            agent_entries(settings), storage, recorder, self._stop_agent, settings.loop.idle_s
        )
        self.budgets = BudgetBook(storage, budget_limits(settings), recorder, alert)
        self._engine = Engine(
            models=self.model,
            tools=tools,
            sessions=memories.sessions,
            scanner=scanner,
            budgets=self.budgets,
            record=recorder,
            loop=settings.loop,
            recall=memories.knowledge,
            history_tokens=settings.session.history_tokens,
            max_tokens=settings.llm.max_tokens_per_request,
            recalled=settings.memory.recall,
            observer=observer,
        )
        self.conversations = Conversations(
            engine=self._engine,
            profiles=self.profile,
            storage=storage,
            home=home,
            voice=voice,
            loop=settings.loop,
        )

    def model(self, tier: Tier) -> Model:
        """The model of a tier."""
        return self._models.get(tier)

    async def profile(self, key: SessionKey) -> Profile | Away:
        """How an agent is for a person: as declared, and by the files and persona that it has.

        Raises StorageError.
        """
        entry = self.agents.entries.get(key.agent)
        away = self.agents.away(key.agent)
        if entry is None or away is not None:
            return Away(away or "There is no such agent.")
        await self.agents.heard(key.agent)
        persona = await self._memories.personas.active(key.agent, key.who)
        character = await self._memories.workspace.read(
            key, persona=None if persona is None else persona.folder, declared=entry
        )
        context = character.context.strip()
        field = f"\n\nWhat you know of your field:\n{context}" if context else ""
        profile = Profile(
            agent=key.agent,
            title=self._titles[key.agent],
            identity=character.identity,
            personality=character.personality,
            instructions=character.instructions + field,
            user=character.user,
            memory=character.memory,
            tier=entry.tier,
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
            tier=persona.tier or profile.tier,
            skills=persona.skills if persona.skills is not None else profile.skills,
        )

    def commands(self) -> Sequence[AnyCommand]:
        """What people and admins can ask about agents."""
        return (
            *ConversationCommands(
                self.conversations,
                self._memories.sessions,
                self._memories.personas,
                self._memories.knowledge,
                self._told,
                DEFAULT_AGENT,
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
                group.start_soon(self._stop_killed)
                await group.start(self.conversations.run)
                task_status.started()
        finally:
            with anyio.CancelScope(shield=True):
                await self._models.aclose()

    def _stop_agent(self, name: str) -> None:
        self._killed.append(name)
        self._any_killed.set()

    async def _stop_killed(self) -> None:
        while True:
            await self._any_killed.wait()
            self._any_killed = anyio.Event()
            while self._killed:
                await self.conversations.stop_agent(self._killed.pop(0))

    async def _told(self, agent: str, who: JID) -> Told:
        profile = await self.profile(SessionKey(agent, who))
        tier: Tier = "standard" if isinstance(profile, Away) else profile.tier
        persona = await self._memories.personas.active(agent, who)
        entry = self.agents.entries.get(agent)
        character = await self._memories.workspace.read(
            SessionKey(agent, who),
            persona=None if persona is None else persona.folder,
            declared=entry,
        )
        state, since = self.agents.get(agent), self._connected_since()
        return Told(
            title=self._titles.get(agent, agent),
            state="unknown" if state is None else state.state,
            model=self.model(tier).name,
            uptime_s=int((datetime.now(UTC) - self._started).total_seconds()),
            connection="not connected"
            if since is None
            else f"a component of {self._settings.server.host}",
            sources=character.sources,
            idle_timeout_mins=self._settings.session.idle_timeout_mins,
        )


def budget_limits(settings: Settings) -> Limits:
    """Every budget that is set."""
    budgets = settings.budgets
    return Limits(
        agents={entry.name: _limit(entry.budget) for entry in agent_entries(settings)},
        principal=_limit(budgets.per_principal),
        task=_limit(budgets.per_task),
        day=_limit(budgets.total),
        alert=budgets.alert,
    )


def _limit(budget: Budget) -> Limit:
    return Limit(budget.tokens, budget.usd)
