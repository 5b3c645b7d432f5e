"""Runs the service of a configuration file until a signal stops it.

`xmpp-agent run` starts without the command line in its usual form (`component.cli.main`), so
nothing here imports click.
"""

import gc
import importlib.util
import signal
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from component.app.service import Service
    from component.app.service_manager import ServiceManager
    from component.config import Settings

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_SWITCH_S = 0.001
"""Seconds after which a thread that runs Python yields to another one."""


class StartError(Exception):
    """The service cannot run.

    `sentences` say why; `in_config` says that the configuration has to be changed.
    """

    def __init__(self, *sentences: str, in_config: bool = True) -> None:
        super().__init__(*sentences)
        self.sentences = sentences
        self.in_config = in_config


def run_service(config: Path) -> bool:
    """Run the service of a file; return whether it was stopped gracefully. Raises StartError."""
    # What is imported and made before the service runs is not garbage: nothing looks for any until
    # then, and what is there by then is not visited before the stream is established.
    gc.disable()
    # Imported here, so that nothing of it is visited.
    import anyio  # noqa: PLC0415

    from component import logs  # noqa: PLC0415
    from component.app.faults import config_errors, sentences  # noqa: PLC0415
    from component.app.features import load  # noqa: PLC0415
    from component.app.service_manager import ServiceManager  # noqa: PLC0415
    from component.config import SettingsError  # noqa: PLC0415
    from component.metrics.traces import TracesError  # noqa: PLC0415
    from component.store import StorageError  # noqa: PLC0415

    manager = ServiceManager()
    hangups: list[int] = []
    # The signals that come before the service runs are remembered; none ends the process.
    signal.signal(signal.SIGHUP, lambda number, _frame: hangups.append(number))
    try:
        settings = load(config)
        if settings.is_worker:
            raise StartError(
                f"{config} is the configuration of a worker, without [server]: run"
                f" `xmpp-agent worker --config {config}`."
            )
        logs.configure(settings.log.level, settings.log.format)
        service = make_service(settings, config, manager)
    except SettingsError as error:
        raise StartError(*map(str, error.problems)) from None
    finally:
        gc.freeze()
        gc.enable()
    try:
        return anyio.run(
            partial(serve, service, hangups),
            backend=settings.backend,
            backend_options=event_loop(settings.backend),
        )
    except* (StorageError, TracesError) as errors:
        raise StartError(*sentences(errors), in_config=False) from None
    except* config_errors() as errors:
        raise StartError(*sentences(errors)) from None


def make_service(
    settings: "Settings",
    configuration: Path | None = None,
    manager: "ServiceManager | None" = None,
) -> "Service":
    """Return the service of these settings; raise StartError if they cannot be applied."""
    from component.app.faults import config_errors, sentences  # noqa: PLC0415
    from component.app.service import Service  # noqa: PLC0415

    try:
        return Service(settings, configuration, manager=manager)
    except config_errors() as error:
        raise StartError(*sentences(error)) from None


def event_loop(backend: str) -> dict[str, Any]:
    """Return the options for `anyio.run`: uvloop for asyncio if it is installed."""
    if backend == "asyncio":
        return {"use_uvloop": importlib.util.find_spec("uvloop") is not None}
    return {}


async def serve(service: "Service", hangups: Sequence[int] = ()) -> bool:
    """Run the service. SIGHUP reloads its configuration, once if some of these came before; the
    first other signal stops it gracefully, the second at once.

    Returns whether it stopped gracefully.
    """
    import anyio  # noqa: PLC0415
    import structlog  # noqa: PLC0415

    log = structlog.get_logger("component.cli")
    # Worker threads (skills, the database) run Python too, and the event loop waits for them for
    # this time whenever it has something to do. Python's default is 5 milliseconds.
    sys.setswitchinterval(_SWITCH_S)

    async def watch() -> None:
        with anyio.open_signal_receiver(*_SIGNALS) as signals:
            if hangups:
                service.reload_soon()
            async for number in signals:
                if number == signal.SIGHUP:
                    service.reload_soon()
                    continue
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
