"""`xmpp-agent run`: runs the service until it is stopped."""

import gc
import importlib.util
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from component.cli.frame import ConfigFault, ExitCode, Fault, config_option, load_settings

if TYPE_CHECKING:
    from component.app.service import Service
    from component.config import Settings

_SWITCH_S = 0.001
"""Seconds after which a thread that runs Python yields to another one."""


@click.command()
@config_option
def run(config: Path) -> None:
    """Connect to the XMPP server and run until SIGTERM or Ctrl-C.

    On the first signal the agent finishes the current requests and then stops. On a second signal
    it stops immediately, with exit code 1.

    \b
    Examples:
      xmpp-agent run
      xmpp-agent run --config /etc/xmpp-agent/agent.toml
    """
    # What is imported and made before the service runs is not garbage: nothing looks for any until
    # then, and what is there by then is not visited before the stream is established.
    gc.disable()
    # Imported here, because --help needs none of it.
    import anyio  # noqa: PLC0415

    from component import logs  # noqa: PLC0415
    from component.metrics.traces import TracesError  # noqa: PLC0415
    from component.store import StorageError  # noqa: PLC0415

    try:
        settings = load_settings(config)
        if settings.is_worker:
            raise ConfigFault(
                f"{config} is the configuration of a worker, without [server]: run"
                f" `xmpp-agent worker --config {config}`."
            )
        logs.configure(settings.log.level, settings.log.format)
        service = make_service(settings)
    finally:
        gc.freeze()
        gc.enable()
    try:
        orderly = anyio.run(
            serve, service, backend=settings.backend, backend_options=event_loop(settings.backend)
        )
    except* (StorageError, TracesError) as errors:
        raise Fault(*(str(error) for error in errors.exceptions)) from None
    except* _config_errors() as errors:
        lines = (line for error in errors.exceptions for line in str(error).splitlines())
        raise ConfigFault(*lines) from None
    if not orderly:
        raise click.exceptions.Exit(ExitCode.FAILURE)


def _config_errors() -> tuple[type[Exception], ...]:
    """Return the classes of errors in settings that are found when the service opens."""
    from component.agent.untrusted_text import ScannerError  # noqa: PLC0415
    from component.features.feature import FeatureError  # noqa: PLC0415
    from component.models.protocol import ModelRefusedError  # noqa: PLC0415
    from component.policy import PolicyError  # noqa: PLC0415

    return FeatureError, ModelRefusedError, PolicyError, ScannerError


def make_service(settings: "Settings") -> "Service":
    """Return the service of these settings; raise ConfigFault if they cannot be applied."""
    from component.app.service import Service  # noqa: PLC0415
    from component.features.feature import FeatureError  # noqa: PLC0415
    from component.kernel.avatars import AvatarError  # noqa: PLC0415
    from component.policy import PolicyError  # noqa: PLC0415
    from component.skills import DuplicateSkillError, SkillLoadError  # noqa: PLC0415

    try:
        return Service(settings)
    except PolicyError as error:
        raise ConfigFault(*map(str, error.entries)) from None
    except (AvatarError, SkillLoadError, DuplicateSkillError, FeatureError) as error:
        raise ConfigFault(str(error)) from None


def event_loop(backend: str) -> dict[str, Any]:
    """Return the options for `anyio.run`: uvloop for asyncio if it is installed."""
    if backend == "asyncio":
        return {"use_uvloop": importlib.util.find_spec("uvloop") is not None}
    return {}


async def serve(service: "Service") -> bool:
    """Run the service; the first signal stops it gracefully, the second at once.

    Returns whether it stopped gracefully.
    """
    import anyio  # noqa: PLC0415
    import structlog  # noqa: PLC0415

    log = structlog.get_logger("component.cli")
    # Worker threads (skills, the database) run Python too, and the event loop waits for them for
    # this time whenever it has something to do. Python's default is 5 milliseconds.
    sys.setswitchinterval(_SWITCH_S)

    async def watch() -> None:
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for _ in signals:
                if service.stopping:
                    log.warning(
                        "stopped immediately by a second signal: some requests were not answered"
                    )
                    tasks.cancel_scope.cancel()
                service.stop()

    async def freeze() -> None:
        await service.established.wait()
        # A full collection would visit all loaded objects, for 30 milliseconds or more in which
        # nothing is served. All of them exist as long as the process.
        gc.unfreeze()
        gc.collect()
        gc.freeze()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        tasks.start_soon(freeze)
        await service.run()
        tasks.cancel_scope.cancel()
        return True
    return False
