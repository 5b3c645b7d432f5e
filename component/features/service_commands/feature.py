"""The commands about the service itself, and those that everybody has."""

import platform
from collections.abc import Iterator
from typing import ClassVar

import msgspec

from component import VERSION, system
from component.commands import Asking, CommandError, CommandResult, NoParams
from component.config import Settings
from component.features.feature import Feature, Opened
from component.features.service_commands.commands import (
    RELOAD,
    AdminCommands,
    Introduction,
    Vitals,
    everybody,
)
from component.features.service_commands.skill_commands import SkillCommands
from component.kernel.kernel import Kernel
from component.kernel.options import SOFTWARE, model_names
from component.memory.store import missing_sentence
from component.zones import spoken_time


class ServiceCommandsFeature(Feature):
    """Explains the service to everybody; shows its state to admins, and pauses it."""

    reloads: ClassVar = ("agent.name",)

    def open(self, kernel: Kernel) -> Opened:
        """Make the commands."""
        environment, tasks = kernel.environment, kernel.tasks

        def vitals(zone: str) -> Vitals:
            return msgspec.structs.replace(
                vitals_of(self.settings, len(environment.catalog.registry)),
                started=kernel.started,
                connected_since=kernel.stream.connected_since,
                warnings=tuple(_warnings(kernel, zone)),
            )

        async def reload(_asking: Asking, _params: NoParams) -> CommandResult:
            if kernel.reload is None:
                raise CommandError("The service has not started yet: try again.")
            reloaded = await kernel.reload()
            return CommandResult("\n".join(reloaded.sentences()), reloaded)

        return Opened(
            commands=(
                *everybody(
                    Introduction(self.settings.agent.name, kernel.agents is not None),
                    kernel.commands.of,
                    SkillCommands(environment.catalog.view, tasks.service.execute),
                    environment.stopped,
                ),
                *AdminCommands(
                    *(vitals, tasks.task_admin, tasks.switches, tasks.pause_gate),
                    kernel.zones.of_caller,
                ).commands(),
                RELOAD.done_by(reload),
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
        models=tuple(model_names(settings)),
        python=platform.python_version(),
        backend=settings.backend,
    )


def _warnings(kernel: Kernel, zone: str) -> Iterator[str]:
    audit = kernel.environment.monitoring.audit
    if audit is not None and audit.outage is not None:
        since = spoken_time(audit.outage.since, system.now(), zone)
        yield f"The audit log cannot be written since {since}. {audit.outage.reason}"
    for whose, count in kernel.environment.memories.knowledge.missing.items():
        yield missing_sentence(whose, count)
    late = kernel.tasks.late_sources()
    if late:
        yield f"Sources of skills are not ready yet: {', '.join(late)}. Tasks wait for them."
    yield from kernel.tasks.upload_problems()
    for warnings in kernel.warnings:
        yield from warnings()
    if kernel.agents is not None:
        yield from kernel.agents.profiles.refused_tools.warnings()


FEATURE = ServiceCommandsFeature
