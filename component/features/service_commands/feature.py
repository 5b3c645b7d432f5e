"""The commands about the service itself, and those that everybody has."""

import platform
from collections.abc import Iterator

import msgspec

from component import VERSION, system
from component.commands import when
from component.config import Settings
from component.features.feature import Feature, Opened
from component.features.service_commands.commands import AdminCommands, Vitals, everybody
from component.kernel.kernel import Kernel
from component.kernel.options import SOFTWARE
from component.memory.store import missing_sentence


class ServiceCommandsFeature(Feature):
    """Explains the service to everybody; shows its state to admins, and pauses it."""

    def open(self, kernel: Kernel) -> Opened:
        """Make the commands."""
        environment, tasks, started = kernel.environment, kernel.tasks, system.now()

        def vitals() -> Vitals:
            return msgspec.structs.replace(
                vitals_of(self.settings, len(environment.catalog.registry)),
                started=started,
                connected_since=kernel.stream.connected_since,
                warnings=tuple(_warnings(kernel)),
            )

        return Opened(
            commands=(
                *everybody(
                    self.settings.agent.name,
                    kernel.commands.of,
                    environment.catalog.view,
                    environment.stopped,
                ),
                *AdminCommands(
                    vitals, tasks.task_admin, tasks.switches, tasks.pause_gate
                ).commands(),
            )
        )


def vitals_of(settings: Settings, skills: int) -> Vitals:
    """Return the state of a service that does not run, with this number of skills."""
    return Vitals(
        software=SOFTWARE,
        version=VERSION,
        domain=settings.server.address,
        storage="PostgreSQL" if settings.storage.postgres.get_secret_value() else "SQLite",
        skills=skills,
        python=platform.python_version(),
        backend=settings.backend,
    )


def _warnings(kernel: Kernel) -> Iterator[str]:
    audit = kernel.environment.monitoring.audit
    if audit is not None and audit.outage is not None:
        since, reason = when(audit.outage.since), audit.outage.reason
        yield f"The audit log cannot be written since {since}. {reason}"
    for whose, count in kernel.environment.memories.knowledge.missing.items():
        yield missing_sentence(whose, count)
    late = kernel.tasks.late_sources()
    if late:
        yield f"Sources of skills are not ready yet: {', '.join(late)}. Tasks wait for them."
    for warnings in kernel.warnings:
        yield from warnings()
    if kernel.agents is not None:
        yield from kernel.agents.profiles.refused_tools.warnings()


FEATURE = ServiceCommandsFeature
