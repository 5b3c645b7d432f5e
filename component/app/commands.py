"""The commands about the service itself, and those that everybody has."""

import platform
from collections.abc import Callable, Sequence
from datetime import datetime
from importlib.metadata import version

from component import system
from component.commands.admin import AdminCommands, Vitals
from component.commands.definition import AnyCommand
from component.commands.everybody import everybody
from component.kernel.kernel import Kernel
from component.kernel.options import SOFTWARE
from component.memory.store import missing_sentence


def commands_of_service(
    kernel: Kernel, warnings: Callable[[], Sequence[str]]
) -> Sequence[AnyCommand]:
    """Return the commands; `warnings` returns what an admin has to decide, in sentences."""
    environment, tasks, started = kernel.environment, kernel.tasks, system.now()
    admin = AdminCommands(
        lambda: _vitals(kernel, started, warnings()),
        tasks.task_admin,
        tasks.switches,
        tasks.pause_gate,
    )
    return (
        *everybody(
            kernel.settings.agent.name,
            kernel.commands.of,
            environment.catalog.view,
            environment.stopped,
        ),
        *admin.commands(),
    )


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
