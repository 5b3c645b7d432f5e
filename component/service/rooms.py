"""Every room of one service, wired: who is told what by whom."""

import platform
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Protocol

import msgspec

from component.commands.admin import AdminCommands, Vitals
from component.commands.audit import AuditCommands
from component.commands.definition import AnyCommand, Asking, Commands
from component.commands.everybody import everybody
from component.commands.intake import Intake
from component.commands.recording import recorded
from component.commands.tasks import TaskCommands
from component.connection.outbox import Outbox
from component.execution import Recent, Road
from component.execution.tools import ToolRoad
from component.handlers.about import About
from component.handlers.chat_answers import ChatAnswers
from component.handlers.command_nodes import CommandNodes
from component.handlers.command_offers import CommandOffers, SkillOffers
from component.handlers.command_sessions import Sessions
from component.handlers.commands import CommandsHandler
from component.handlers.confirm import ConfirmHandler
from component.handlers.dialogues import Dialogues
from component.handlers.disco import Discovery
from component.handlers.events import TaskNews
from component.handlers.execute import ExecuteHandler
from component.handlers.message import Answers, MessageHandler
from component.handlers.presence import PresenceHandler
from component.handlers.questions import question_messages
from component.handlers.skills import SkillsHandler
from component.handlers.speech import Speech
from component.handlers.tasks import TasksHandler
from component.policy import Policy
from component.policy.admins import read_admins
from component.policy.flows import Flow, Flows
from component.policy.persons import Persons
from component.router.router import Router
from component.router.table import Host, Route
from component.service.options import (
    DEFAULT_AGENT,
    SOFTWARE,
    agents,
    facts,
    router_options,
    task_limits,
)
from component.service.remembering import Memories
from component.service.watching import Watching
from component.settings import Settings
from component.skills import AnySkill, Registry, View
from component.skills.threads import Threads
from component.storage import Storage
from component.storage.stopped import StoppedContacts
from component.storage.subscriptions import SubscriptionStore
from component.tasks.ledger import Ledger
from component.tasks.room import TaskRoom
from component.tasks.whom import Whom
from xep.disco import InfoQuery
from xep.fluux_agent.execute import Accepted, Execute, Params, Result
from xep.fluux_agent.task import Task
from xep.jid import JID
from xep.stanza import Message, Presence

if TYPE_CHECKING:
    from component.service.talk import Talk

_PATIENCE_S = 2.0
"""Seconds that work of a life before waits for the stream: the handshake is quicker without it."""


class Handler(Protocol):
    """One protocol face: what it serves."""

    def routes(self) -> Sequence[Route]:
        """The routes of this handler."""


class Rooms:
    """Everything of a service but its connection.

    Args:
        settings: the settings.
        policy: who may do what.
        registry: the skills.
        view: those of them that a principal sees and may execute.
        storage: the data directory, open.
        contacts: who wants to hear nothing more.
        watching: what is recorded, counted and traced.
        memories: what is remembered.
        home: the name of the data directory.

    Attributes:
        outbox: what is to be sent.
        router: the road of every stanza.
        tasks: the durable work.
        news: who tells of it.
        presence: whom we tell that we are here.
        intake: whether new work is taken on.
        ledger: everybody's tasks.
        commands: what can be asked for by form, by slash and on the command line.
        talk: the agents that talk; None where no model is set up.
        connected_since: since when there is a stream; None while there is none.
    """

    def __init__(
        self,
        settings: Settings,
        policy: Policy,
        registry: Registry,
        view: Callable[[JID], View],
        storage: Storage,
        contacts: StoppedContacts,
        watching: Watching,
        memories: Memories,
        home: str,
    ) -> None:
        self._settings = settings
        self._watching = watching
        self._policy = policy
        self._registry = registry
        self._view = view
        self._storage = storage
        self._contacts = contacts
        self._started = datetime.now(UTC)
        self.connected_since: datetime | None = None
        self.flush: Callable[[], None] = _nothing
        """Sends what waits in the outbox; the connection's, once there is one."""
        self.outbox = Outbox(settings.limits.output_bytes)
        limits = settings.limits
        self.news = TaskNews(
            self.outbox,
            lambda: self.connected_since is not None,
            contacts.may_write,
            question_messages,
            settings.server.max_stanza_bytes,
            since=self._started,
            tool_ended=self._tool_ended,
        )
        self.tasks = TaskRoom(
            storage,
            registry.get,
            self._may_use,
            Threads(limits.threads_total, limits.threads_per_principal),
            task_limits(settings),
            self.news,
            patience_s=_PATIENCE_S,
            recorder=watching.recorder,
        )
        self.ledger = Ledger(
            storage, task_limits(settings).retention_ms, self.tasks.cancel, self._retry
        )
        admins = read_admins(settings.agent.admins)
        self.intake = Intake(admins, limits.retry_after_s, watching.full, watching.refused)
        self._persons = Persons(self._info, settings.server.component_domain)
        self._road = Road(
            self._view,
            self.tasks,
            Whom(policy.asking, self._persons, settings.policy.confirm_expires_s),
            Recent(settings.tasks.replay_s),
            self.intake.check,
            self.news.released,
            notes=watching.notes,
        )
        self.talk = self._talk(memories, home) if settings.llm is not None else None
        self.commands = Commands(recorded(self._commands(contacts), watching.recorder), admins)
        offers = (
            SkillOffers(self._view, self._run_command, limits.retry_after_s),
            CommandOffers(self.commands),
        )
        self._discovery = Discovery(
            facts(settings), agents(settings), self._features, self._view, [CommandNodes(offers)]
        )
        self.presence = PresenceHandler(
            SubscriptionStore(storage), self._send, self._discovery.caps, contacts
        )
        handlers: tuple[Handler, ...] = (
            About(SOFTWARE, version(SOFTWARE)),
            self._discovery,
            SkillsHandler(self._view),
            ExecuteHandler(self._road, limits.retry_after_s),
            TasksHandler(self.tasks, limits.retry_after_s),
            ConfirmHandler(self.tasks, limits.retry_after_s),
            CommandsHandler(offers, Sessions(admins=admins)),
            MessageHandler(
                settings.agent.name,
                self._send,
                self.commands,
                answers=self._answers(),
                agents=None if self.talk is None else self.talk.conversations,
                default_agent=DEFAULT_AGENT,
                let_in=self.intake.check,
            ),
            self.presence,
        )
        self.router = Router(
            router_options(settings, admins),
            [route for handler in handlers for route in handler.routes()],
            policy.admits,
            self.outbox,
            self._flush,
            refused=watching.turned_away,
        )

    def _may_use(self, principal: JID, skill: AnySkill) -> bool:
        return self._policy.admits(principal) and self._view(principal).get(skill.name) is skill

    def _commands(self, contacts: StoppedContacts) -> Sequence[AnyCommand]:
        def offered(asking: Asking) -> Sequence[AnyCommand]:
            return self.commands.of(asking)

        return (
            *everybody(self._settings.agent.name, offered, self._view, contacts),
            *TaskCommands(self.ledger, self.tasks, task_limits(self._settings).kept).commands(),
            *AdminCommands(self._vitals, self.ledger, self.intake).commands(),
            *(() if self.talk is None else self.talk.commands()),
            *self._audit_commands(),
        )

    def _answers(self) -> Answers:
        questions = ChatAnswers(self.tasks)
        if self.talk is None:
            return questions
        return Dialogues(questions, self.talk.dialogue, DEFAULT_AGENT)

    def _talk(self, memories: Memories, home: str) -> "Talk":
        # Nobody pays for the loop who has no model.
        from component.service.talk import Talk  # noqa: PLC0415

        settings, watching = self._settings, self._watching
        flows = Flows([Flow(rule.of, rule.to, rule.then) for rule in settings.policy.flows])
        return Talk(
            settings,
            self._storage,
            home,
            memories,
            ToolRoad(
                *(self._road, self.tasks, self._view, flows, watching.recorder),
                settings.loop.tool_timeout_s,
            ),
            lambda who: self._view(who).names(),
            Speech(
                self.outbox,
                lambda: self.connected_since is not None,
                settings.server.max_stanza_bytes,
            ),
            self._persons,
            watching.recorder,
            watching,
            self._tell_admins,
            lambda: self.connected_since,
        )

    def _tool_ended(self, task: str) -> None:
        if self.talk is not None:
            self.talk.tool_ended(task)

    def _tell_admins(self, sentence: str) -> None:
        domain = JID.parse(self._settings.server.component_domain)
        for admin in self.commands.admins:
            if self._contacts.may_write(domain, admin):
                self._send(Message(type="normal", from_=domain, to=admin, body=sentence))

    def _audit_commands(self) -> Sequence[AnyCommand]:
        audit = self._watching.audit
        if audit is None:
            return ()
        return AuditCommands(audit.directory, audit.known, audit.settled).commands()

    async def _retry(self, task: str) -> Task:
        made = await self.tasks.retry(task)
        self.news.released(made.id)  # no request of its own waits for an answer
        return made

    def _vitals(self) -> Vitals:
        settings = self._settings
        return Vitals(
            software=SOFTWARE,
            version=version(SOFTWARE),
            domain=settings.server.component_domain,
            storage="PostgreSQL" if settings.storage.postgres.get_secret_value() else "SQLite",
            skills=len(self._registry),
            python=platform.python_version(),
            backend=settings.backend,
            started=self._started,
            connected_since=self.connected_since,
        )

    def _flush(self) -> None:
        self.flush()

    def _features(self, host: Host) -> tuple[str, ...]:
        return self.router.table.features(host)

    def _send(self, stanza: Message | Presence) -> None:
        self.outbox.put(stanza.encode())

    async def _info(self, to: JID, from_: JID) -> InfoQuery:
        return await self.router.call("get", to, InfoQuery(), InfoQuery, from_=from_)

    def _run_command(
        self,
        *,
        principal: JID,
        requester: JID,
        target: JID,
        skill: str,
        json_params: bytes,
        session: str,
        lang: str | None,
    ) -> Result | Accepted | Awaitable[Result | Accepted]:
        params = Params(json=msgspec.Raw(json_params))
        return self._road.execute_in_session(
            requester,
            principal,
            target,
            Execute(skill=skill, json_params=params),
            session=session,
            origin="command",
            lang=lang,
        )


def _nothing() -> None:
    pass
