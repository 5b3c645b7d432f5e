"""Commands: for people in the chat, for clients as forms, and for operators on the command line."""

import platform
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING

import anyio
import structlog
from anyio.abc import TaskStatus

from component.commands.admin import AdminCommands, Vitals
from component.commands.definition import AnyCommand, Asking, Commands
from component.commands.everybody import everybody
from component.commands.memories import MemoryCommands
from component.commands.recording import recorded
from component.commands.tasks import TaskCommands
from component.control.path import ControlError
from component.control.server import ControlServer
from component.handlers.command_nodes import CommandNodes
from component.handlers.command_offers import CommandOffers, Offers, SkillOffers
from component.handlers.command_sessions import Sessions
from component.handlers.commands import CommandsHandler
from component.kernel.contacts import ContactSubsystem
from component.kernel.environment import Environment
from component.kernel.options import SOFTWARE, agent_entries, page_bytes
from component.kernel.stream import Handler, StreamSubsystem
from component.kernel.tasks import TaskSubsystem
from component.memory.store import missing_sentence

if TYPE_CHECKING:
    from component.kernel.agents import AgentSubsystem

_log = structlog.get_logger("component.app")


class OperationsSubsystem:
    """All commands, and the ways by which clients and the command line reach them.

    Args:
        environment: the skills, the database and the audit log.
        stream: the state of the connection.
        contacts: who may be written to.
        tasks: the tasks, and whether new work is accepted.
        agents: those who talk with people; None where no model is set up.
        more: the commands of other subsystems.
        offers: ad-hoc commands of other subsystems that have no other form.
        warnings: returns what an admin has to decide, in sentences.

    Attributes:
        commands: the commands.
        nodes: their discovery nodes, and those of skills.
    """

    def __init__(
        self,
        environment: Environment,
        stream: StreamSubsystem,
        contacts: ContactSubsystem,
        tasks: TaskSubsystem,
        agents: "AgentSubsystem | None",
        more: Sequence[AnyCommand] = (),
        offers: Sequence[Offers] = (),
        warnings: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self._more = more
        self._warnings = warnings
        self._environment = environment
        self._stream = stream
        self._contacts = contacts
        self._tasks = tasks
        self._agents = agents
        self._started = datetime.now(UTC)
        catalog = environment.catalog
        self.commands = Commands(
            recorded(self._all(), environment.monitoring.recorder),
            catalog.admins,
            stream.addresses.agent_at,
        )
        all_offers: tuple[Offers, ...] = (
            SkillOffers(catalog.view, tasks.run_form, catalog.settings.limits.retry_after_s),
            CommandOffers(self.commands),
            *offers,
        )
        self.nodes = CommandNodes(all_offers, page_bytes(catalog.settings))
        self._handler = CommandsHandler(all_offers, Sessions(admins=catalog.admins))

    def handlers(self) -> Sequence[Handler]:
        """Return the handler of ad-hoc commands."""
        return (self._handler,)

    async def serve_command_line(
        self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve the command line until cancelled. If its socket cannot be made, that is logged and
        the service runs without it.
        """
        server = ControlServer(self._environment.storage.directory, self.commands)
        try:
            await server.run(task_status=task_status)
        except ControlError as error:
            _log.error("the command line cannot reach this service", reason=str(error))
            task_status.started()

    def _all(self) -> Sequence[AnyCommand]:
        environment, tasks, agents = self._environment, self._tasks, self._agents
        catalog = environment.catalog

        def offered(asking: Asking) -> Sequence[AnyCommand]:
            return self.commands.of(asking)

        return (
            *everybody(catalog.settings.agent.name, offered, catalog.view, environment.stopped),
            *TaskCommands(tasks.task_admin, tasks.service, tasks.limits.kept).commands(),
            *AdminCommands(
                self._vitals, tasks.task_admin, tasks.switches, tasks.pause_gate
            ).commands(),
            *(() if agents is None else agents.commands()),
            *MemoryCommands(
                environment.memories.knowledge,
                [entry.name for entry in agent_entries(catalog.settings)],
            ).commands(),
            *(() if agents is None else self._tell(agents)),
            *self._more,
        )

    def _tell(self, agents: "AgentSubsystem") -> Sequence[AnyCommand]:
        # Imported only where there is a model, as the agents are.
        from component.commands.tell import TellCommands  # noqa: PLC0415

        return TellCommands(
            agents.conversations,
            agents.agents,
            self._environment.catalog.policy.admits,
            self._contacts.may_write,
            self._tasks.pause_gate.check,
            self._environment.monitoring.recorder,
            self._stream.addresses,
        ).commands()

    def _vitals(self) -> Vitals:
        settings = self._environment.settings
        return Vitals(
            software=SOFTWARE,
            version=version(SOFTWARE),
            domain=settings.server.address,
            storage="PostgreSQL" if settings.storage.postgres.get_secret_value() else "SQLite",
            skills=len(self._environment.catalog.registry),
            python=platform.python_version(),
            backend=settings.backend,
            started=self._started,
            connected_since=self._stream.connected_since,
            warnings=(
                *(
                    missing_sentence(whose, count)
                    for whose, count in self._environment.memories.knowledge.mirror.held.items()
                ),
                *self._warnings(),
                *(self._agents.profiles.refused_tools.warnings() if self._agents else ()),
            ),
        )
