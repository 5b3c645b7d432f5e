"""`xmpp-agent worker`: runs skills for services on other machines, until it is stopped."""

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from component.cli.frame import ConfigFault, ExitCode, Fault, config_option, load_settings

if TYPE_CHECKING:
    from component.config import Settings
    from component.features.workers.program.process import WorkerProcess
    from component.skills.registry import Registry


@click.command()
@config_option
def worker(config: Path) -> None:
    """Run the skills of this machine for the services that use its queue, until SIGTERM or Ctrl-C.

    On the first signal the worker takes no more calls, and ends those that are running. A second
    signal stops it immediately, with exit code 1.

    \b
    Examples:
      xmpp-agent worker --config worker.toml
    """
    # Imported here, because --help needs none of it.
    import anyio  # noqa: PLC0415

    from component import logs  # noqa: PLC0415
    from component.control.client import ControlError  # noqa: PLC0415
    from component.features.workers.settings import WORKER  # noqa: PLC0415
    from component.skills import SkillLoadError  # noqa: PLC0415
    from component.store import StorageError  # noqa: PLC0415

    settings = load_settings(config)
    if settings[WORKER] is None:
        raise ConfigFault(f"{config} has no section [worker], which says which queue to serve.")
    logs.configure(settings.log.level, settings.log.format)
    process, registry = make_worker(settings)
    try:
        # procrastinate runs on asyncio only.
        anyio.run(serve, settings, process, registry, backend="asyncio")
    except* (SkillLoadError, StorageError, ControlError) as errors:
        raise Fault(*(str(error) for error in errors.exceptions)) from None


def make_worker(settings: "Settings") -> "tuple[WorkerProcess, Registry]":
    """Return the worker of these settings, and its skills; raise ConfigFault if they cannot be
    applied.
    """
    from component.features.workers.settings import WORKER  # noqa: PLC0415
    from component.kernel.module_functions import ModuleFunctions  # noqa: PLC0415
    from component.skills import DuplicateSkillError, SkillLoadError  # noqa: PLC0415
    from component.skills.loading import add_modules  # noqa: PLC0415
    from component.skills.registry import Registry  # noqa: PLC0415

    entry = settings[WORKER]
    assert entry is not None
    try:
        from component.features.workers.program.process import WorkerProcess  # noqa: PLC0415
    except ImportError as error:
        raise ConfigFault(
            "A worker needs the workers extra: pip install 'xmpp-agent-component[workers]'."
        ) from error
    registry = Registry()
    try:
        add_modules(registry, settings.skills.modules)
    except (SkillLoadError, DuplicateSkillError) as error:
        raise ConfigFault(str(error)) from None
    if not len(registry) and not settings.skills.directories:
        raise ConfigFault("The worker has no skills: add [skills] modules or directories.")
    # It keeps no memories, and sends no messages.
    functions = ModuleFunctions(settings, None, lambda: None)
    return WorkerProcess(entry, registry, functions.provide), registry


async def serve(settings: "Settings", process: "WorkerProcess", registry: "Registry") -> None:
    """Run the worker; the first signal stops it gracefully, the second at once. SIGHUP does not."""
    import anyio  # noqa: PLC0415
    import structlog  # noqa: PLC0415

    log = structlog.get_logger("component.cli")

    async def watch() -> None:
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
            stopping = False
            async for number in signals:
                if number == signal.SIGHUP:
                    log.warning("a worker does not reload its configuration: restart it")
                    continue
                if stopping:
                    os._exit(ExitCode.FAILURE)  # its calls are taken up as those of a lost worker
                stopping = True
                process.stop()

    async with anyio.create_task_group() as group, _directories(settings, registry):
        group.start_soon(watch)
        await process.run()
        group.cancel_scope.cancel()


@asynccontextmanager
async def _directories(settings: "Settings", registry: "Registry") -> AsyncIterator[None]:
    """Offer the skills that are installed in directories, and serve the commands about them."""
    if not settings.skills.directories:
        yield
        return
    import anyio  # noqa: PLC0415

    from component.app.schema import SCHEMA  # noqa: PLC0415
    from component.commands import Commands  # noqa: PLC0415
    from component.control.server import ControlServer  # noqa: PLC0415
    from component.features.installed_skills.feature import (  # noqa: PLC0415
        installed_commands,
        skill_directories,
    )
    from component.kernel.monitoring import open_monitoring  # noqa: PLC0415
    from component.skills.sources import SkillSources  # noqa: PLC0415
    from component.store import Storage  # noqa: PLC0415

    postgres = settings.storage.postgres.get_secret_value()
    async with (
        Storage.open(SCHEMA, settings.storage.path, postgres=postgres, upgrade=True) as storage,
        open_monitoring(settings, storage) as monitoring,
        anyio.create_task_group() as group,
    ):
        await group.start(monitoring.run)
        directories = skill_directories(settings, storage, monitoring.recorder)
        assert directories is not None
        server = ControlServer(storage.directory, Commands(installed_commands(directories)))
        await group.start(server.run)
        await group.start(SkillSources(registry, [directories]).run)
        yield
        group.cancel_scope.cancel()
