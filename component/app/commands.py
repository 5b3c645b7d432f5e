"""The commands that no feature contributes: about the service, its agents and memories."""

import platform
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING

from component.commands.admin import AdminCommands, Vitals
from component.commands.definition import AnyCommand
from component.commands.everybody import everybody
from component.commands.memories import MemoryCommands
from component.kernel.kernel import Kernel
from component.kernel.options import SOFTWARE, agent_entries
from component.memory.store import missing_sentence

if TYPE_CHECKING:
    from component.kernel.agents import AgentSubsystem


def commands_of_service(
    kernel: Kernel, warnings: Callable[[], Sequence[str]]
) -> Sequence[AnyCommand]:
    """Return the commands; `warnings` returns what an admin has to decide, in sentences."""
    environment, tasks, agents = kernel.environment, kernel.tasks, kernel.agents
    catalog, started = environment.catalog, datetime.now(UTC)
    return (
        *everybody(
            catalog.settings.agent.name, kernel.commands.of, catalog.view, environment.stopped
        ),
        *AdminCommands(
            lambda: _vitals(kernel, started, warnings()),
            tasks.task_admin,
            tasks.switches,
            tasks.pause_gate,
        ).commands(),
        *(() if agents is None else agents.commands()),
        *MemoryCommands(
            environment.memories.knowledge,
            [entry.name for entry in agent_entries(catalog.settings)],
        ).commands(),
        *(() if agents is None else _tell(kernel, agents)),
    )


def _tell(kernel: Kernel, agents: "AgentSubsystem") -> Sequence[AnyCommand]:
    # Imported only where there is a model, as the agents are.
    from component.commands.tell import TellCommands  # noqa: PLC0415

    return TellCommands(
        agents.conversations,
        agents.agents,
        kernel.environment.catalog.policy.admits,
        kernel.contacts.may_write,
        kernel.tasks.pause_gate.check,
        kernel.environment.monitoring.recorder,
        kernel.stream.addresses,
    ).commands()


def _vitals(kernel: Kernel, started: datetime, warnings: Sequence[str]) -> Vitals:
    settings, agents = kernel.settings, kernel.agents
    held = kernel.environment.memories.knowledge.mirror.held
    return Vitals(
        software=SOFTWARE,
        version=version(SOFTWARE),
        domain=settings.server.address,
        storage="PostgreSQL" if settings.storage.postgres.get_secret_value() else "SQLite",
        skills=len(kernel.environment.catalog.registry),
        python=platform.python_version(),
        backend=settings.backend,
        started=started,
        connected_since=kernel.stream.connected_since,
        warnings=(
            *(missing_sentence(whose, count) for whose, count in held.items()),
            *warnings,
            *(() if agents is None else agents.profiles.refused_tools.warnings()),
        ),
    )
