"""The agents that talk: their models, budgets and states, and the loop that runs their turns.

It owns the conversations, to which messages and the requests of operators go.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import anyio
import structlog
from anyio.abc import TaskStatus
from anyio.lowlevel import checkpoint

from component import DEFAULT_AGENT
from component.agent.conversations import ConversationPorts, Conversations, Fetch
from component.agent.engine import Engine, EngineLimits
from component.agent.learning import Learning
from component.agent.model_calls import ModelCalls, SkillModel
from component.agent.registry import Agents
from component.agent.requests import SentFile, TurnRequest
from component.agent.told import ToldMessages
from component.agent.untrusted_text import load_scanner
from component.budget.book import BudgetBook
from component.budget.protocol import Amount, Spender, TurnBudget
from component.config import Settings
from component.conversations.facts import Facts
from component.kernel.agent_profiles import AgentProfiles
from component.kernel.agent_trials import AgentTrials
from component.kernel.agent_work import agent_work_skill
from component.kernel.contacts import ContactSubsystem
from component.kernel.environment import Environment
from component.kernel.options import agent_entries, budget_limits
from component.kernel.persona_dialogue import PersonaDialogue
from component.kernel.speech import Speech
from component.kernel.stream import StreamSubsystem
from component.kernel.tasks import TaskSubsystem
from component.memory_directory.layout import SessionKey
from component.models.protocol import Model
from component.skills.operations import ModelQuestion
from component.store import StorageError
from component.store.outages import log_failure
from component.tasks.delegation import budget_of
from component.tasks.request import Request
from component.tools.joint_confirmation import JointConfirmations
from component.tools.spawning import Spawning
from component.tools.tools import ToolExecutor
from xep.jid import JID

_log = structlog.get_logger("component.app")

_FIRST_WAIT_S: Final = 0.2
_LONGEST_WAIT_S: Final = 10.0


class AgentSubsystem:
    """The agents of a service, where a model is set up.

    Args:
        environment: the settings, in which `llm` is set; the database and the memories.
        stream: sends what agents say.
        contacts: distinguishes people from other agents and services.
        tasks: runs the skills that models call.
        zone_of: gives the name of the time zone of a person.

    Attributes:
        profiles: how each agent is for a person.
        budgets: what models may cost, and have cost.
        dialogue: asks people questions about a persona that they define.
        speech: sends what agents say.
        trials: tries personas that nobody uses yet.
        fetch: fetch the files of a request; the first one does.

    Raises ModelRefusedError: what a model needs is not installed; ScannerError: the scanner of the
    settings cannot be used.
    """

    def __init__(
        self,
        environment: Environment,
        stream: StreamSubsystem,
        contacts: ContactSubsystem,
        tasks: TaskSubsystem,
        zone_of: Callable[[JID], Awaitable[str]],
    ) -> None:
        settings, storage = environment.settings, environment.storage
        memories, recorder = environment.memories, environment.monitoring.recorder
        assert settings.llm is not None, "there is a model"
        self.fetch: list[Fetch] = []
        self._killed: list[str] = []
        self._any_killed = anyio.Event()
        self.dialogue = PersonaDialogue(memories.own_personas, memories.drafts)
        self.agents = Agents(
            *(agent_entries(settings), storage, recorder, self._stop_agent),
            settings.loop.idle_s,
        )
        self.profiles = AgentProfiles(environment, self.agents, zone_of)
        # Several instances may share a database of PostgreSQL.
        is_shared = bool(settings.storage.postgres.get_secret_value())
        self.budgets = BudgetBook(
            *(storage, budget_limits(settings), recorder),
            instance=(lambda: tasks.service.instance) if is_shared else None,
            alert=contacts.tell_admins,
        )
        model_calls = ModelCalls(self.budgets, recorder, environment.monitoring)
        tools = ToolExecutor(
            *(tasks.service, environment.catalog.view, tasks.gate, recorder),
            JointConfirmations(tasks.approvers, tasks.service),
            settings.loop.tool_timeout_s,
        )
        engine = Engine(
            models=self.profiles.model_for,
            model_calls=model_calls,
            tools=tools,
            sessions=memories.sessions,
            scanner=load_scanner(settings.policy.scanner),
            limits=EngineLimits(
                loop=settings.loop,
                history_tokens=settings.session.history_tokens,
                max_tokens=settings.llm.max_tokens_per_request,
                recalled=settings.memory.recall,
            ),
            recall=memories.knowledge,
            told=ToldMessages(storage, memories.sessions, stream.addresses.address_of),
        )
        engine.show_files(memories.files)
        tasks.spent.append(self._spent_by_models)
        self._engine = engine
        self._skill_model = SkillModel(self._model_of, model_calls)
        work = agent_work_skill(
            *(engine, partial(self.profiles.profile, received=False), tasks.service.request_of),
            *(stream.addresses.address_of, tools.offered),
        )
        tasks.internal[work.name] = work
        tools.spawning = Spawning(work, settings.loop, recorder)
        self.trials = AgentTrials(engine, self.profiles, memories, stream.addresses.address_of)
        self._learning = Learning(
            Facts(memories.layout, memories.knowledge, recorder),
            partial(self.profiles.profile, received=False),
            self.profiles.model_for,
            model_calls,
            idle_s=settings.memory.learn_after_mins * 60,
        )
        self.speech = Speech(stream.messenger, stream.is_connected, contacts.may_write)
        self.speech.shows_drafts, self.speech.corrects = settings.agent.drafts, contacts.corrects
        self.conversations = Conversations(
            engine=engine,
            storage=storage,
            home=environment.home,
            ports=ConversationPorts(
                profiles=self.profiles.profile,
                voice=self.speech,
                persons=contacts.persons,
                received=self._learning.received,
                stream=lambda: stream.connected_since,
                concluded=tasks.service.requeued,
                fetch=self._fetch,
            ),
        )

    def replace(self, settings: Settings) -> None:
        """Use the models, budgets and declarations of these settings from now on; the agents are
        the same. Raises ModelRefusedError, before anything is changed.
        """
        self.profiles.replace(settings)
        self.agents.declare(agent_entries(settings))
        self.budgets.limits = budget_limits(settings)
        assert settings.llm is not None, "there is a model"
        self._engine.limit_answers(settings.llm.max_tokens_per_request)
        self.speech.shows_drafts = settings.agent.drafts

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Run the agents until cancelled. Raises StorageError before it has started."""
        await self.agents.load()
        try:
            async with anyio.create_task_group() as group:
                await group.start(self.budgets.run)
                await group.start(self.agents.run)
                group.start_soon(self._stop_killed)
                group.start_soon(self.profiles.run)
                await group.start(self.conversations.run)
                group.start_soon(self._learning.run)
                task_status.started()
        finally:
            await self.budgets.close()
            with anyio.CancelScope(shield=True):
                await self.profiles.aclose()

    async def ask_model(self, request: Request, task: str, question: ModelQuestion) -> str:
        """Ask the model of the agent that runs a skill. Raises ModelFailed, StorageError."""
        context = request.caller_context
        agent = context.agent or request.target.local or DEFAULT_AGENT
        agents = [agent]
        while "/" in agents[-1]:
            agents.append(agents[-1].rpartition("/")[0])
        budget = budget_of(request, task) or TurnBudget(context.trace or task)
        spender = Spender(
            tuple(agents),
            request.principal,
            budget.task,
            budget.payer,
            budget.limit_usd,
            budget.limit_tokens,
        )
        return await self._skill_model.ask(spender, question)

    async def _fetch(self, key: SessionKey, request: TurnRequest) -> tuple[SentFile, ...]:
        """Fetch the files of a request."""
        return await self.fetch[0](key, request) if self.fetch else request.files

    async def _spent_by_models(self, task: str) -> Amount:
        """Return what models have cost a task and the work that it has started."""
        await checkpoint()
        used = self.budgets.spent("task", task)
        return Amount(used.tokens, used.usd, output=used.output)

    async def _model_of(self, agent: str, who: JID) -> Model:
        return (await self.profiles.described(SessionKey(agent, who)))[0]

    def tool_ended(self, task: str) -> None:
        """A task that a model's call became has ended. Never waits."""
        self.conversations.ended(task)

    def _stop_agent(self, name: str) -> None:
        self._killed.append(name)
        self._any_killed.set()

    async def _stop_killed(self) -> None:
        """Stop the turns of agents that were killed where nothing can wait for them."""
        async with anyio.create_task_group() as group:
            while True:
                await self._any_killed.wait()
                self._any_killed = anyio.Event()
                killed, self._killed = self._killed, []
                for name in killed:
                    group.start_soon(self._keep_stopping, name)

    async def _keep_stopping(self, agent: str) -> None:
        wait = _FIRST_WAIT_S
        while True:
            try:
                await self.conversations.stop_agent(agent)
            except StorageError as error:
                log_failure(_log, "an agent cannot be stopped", error, agent=agent)
            else:
                return
            await anyio.sleep(wait)
            wait = min(wait * 2, _LONGEST_WAIT_S)
