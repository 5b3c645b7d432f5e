"""The lifecycle of the service: open, serve, drain, close.

Everything that runs is started in one task group, in the order in which `Service._serve` lists it.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import structlog
from anyio.abc import TaskStatus

from component.app.features import load, make_features, unfinished
from component.app.outside_service import find_unknown_skills
from component.app.schema import SCHEMA
from component.app.service_manager import ServiceManager
from component.app.subsystems import Subsystems
from component.app.summary import summary
from component.audit.protocol import AuditEvent
from component.commands import CommandError
from component.config import Settings
from component.kernel import memory
from component.kernel.environment import Catalog, Environment, open_environment
from component.kernel.kernel import Reloaded
from component.kernel.options import SOFTWARE
from component.kernel.policy_advice import policy_advice
from component.kernel.tasks import TaskSubsystem
from component.link.connection.connection import Connect, Connection
from component.link.connection.transport import connect
from component.memory.knowledge import Knowledge
from component.models.protocol import MakeModel
from component.skills.sources import SkillSources
from component.store import StorageError
from component.store.outages import log_failure
from component.tasks import expiry

_log = structlog.get_logger("component.app")

_OWN_SOURCES_S: Final = 2.0
"""Seconds for which the connection waits for skills that are in the settings and directories; for
those of other programs it waits not at all.
"""


class _Reload:
    """A reload, for everybody who requests one before it begins. `result` is what has changed, or
    what is wrong, in sentences.
    """

    def __init__(self) -> None:
        self.requested = anyio.Event()
        self.done = anyio.Event()
        self.result: Reloaded | Sequence[str] = ()


class Service:
    """One running component, with all its agents.

    Args:
        settings: the settings.
        configuration: the file of the settings, from which they can be reloaded.
        connect: opens the connection to the server.
        make_model: makes a model from its settings, in place of the client of its provider.
        manager: receives the state of the service.

    Attributes:
        catalog: the skills, the policy, the admins and the contact profiles.
        established: set when the first handshake has been accepted.
        read: reads the settings again; called in a thread.

    Raises:
        PolicyError, SkillLoadError, DuplicateSkillError, AvatarError, FeatureError: the settings
            cannot be used.
    """

    def __init__(
        self,
        settings: Settings,
        configuration: Path | None = None,
        *,
        connect: Connect = connect,
        make_model: MakeModel | None = None,
        manager: ServiceManager | None = None,
    ) -> None:
        self._configuration = configuration
        self.read = None if configuration is None else partial(load, configuration)
        self._manager = manager or ServiceManager({})
        self._next_reload = _Reload()
        self._connect = connect
        self._make_model = make_model
        self._subsystems: Subsystems | None = None
        self._features = make_features(settings)
        skills = {name: feature.skills() for name, feature in self._features.items()}
        self.catalog = Catalog(settings, skills, self._knowledge)
        for feature in self._features.values():
            feature.prepare(self.catalog.registry)
        self.established = anyio.Event()
        self._environment: Environment | None = None
        self._stopping = anyio.Event()

    def _knowledge(self) -> Knowledge:
        assert self._environment is not None, "skills are called while the service runs"
        return self._environment.memories.knowledge

    @property
    def settings(self) -> Settings:
        """The settings that apply now."""
        return self.catalog.settings

    @property
    def stopping(self) -> bool:
        """Whether `stop` was called."""
        return self._stopping.is_set()

    def stop(self) -> None:
        """End `run`, after requests under way are answered. It can be called again."""
        self._stopping.set()

    def reload_soon(self) -> None:
        """Read the settings again and apply them; the log has the result. Never waits."""
        self._next_reload.requested.set()

    async def reload(self) -> Reloaded:
        """Read the settings again and apply them; return what has changed.

        Several requests are answered together. Settings that need a restart stay as they are.
        Raises CommandError: the settings cannot be used, and nothing has changed.
        """
        this = self._next_reload
        this.requested.set()
        await this.done.wait()
        if not isinstance(this.result, Reloaded):
            raise CommandError("\n".join(this.result))
        return this.result

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Serve until `stop` is called.

        Raises:
            StorageError: the data directory, or that of the memory, cannot be used.
            ModelRefusedError: what a model needs is not installed.
            TracesError: the extra for traces is not installed.
        """
        for notice in (self.settings.notice, self.settings.speechless):
            if notice is not None:
                _log.warning(notice)
        for sentence in policy_advice(self.settings, self.catalog.admits):
            _log.warning(sentence)
        async with open_environment(self.catalog, SCHEMA, self._make_model) as environment:
            self._environment = environment
            left = make_features(self.settings, await unfinished(environment.storage))
            self._features = {name: self._features.get(name, left[name]) for name in left}
            self._subsystems = subsystems = Subsystems(environment, self._features)
            self._log_settings("starting")
            record = environment.monitoring.recorder.record
            record(AuditEvent(kind="start", outcome="started", subject=SOFTWARE))
            try:
                await self._serve(environment, subsystems, task_status)
            finally:
                record(AuditEvent(kind="start", outcome="stopped", subject=SOFTWARE))

    async def _serve(
        self, environment: Environment, subsystems: Subsystems, started: TaskStatus[None]
    ) -> None:
        kernel = subsystems.kernel
        stream, tasks, agents = kernel.stream, kernel.tasks, kernel.agents
        storage = environment.storage
        async with anyio.create_task_group() as group:

            def connected() -> None:
                subsystems.connected()
                self._manager.status(f"connected as {self.settings.server.address}")
                if not self.established.is_set():
                    self.established.set()
                    self._manager.ready()
                group.start_soon(_catch_up, environment, subsystems)

            def features_changed() -> None:
                if stream.is_connected():
                    group.start_soon(_announce, subsystems)

            def disconnected() -> None:
                self._manager.status("not connected to the XMPP server; trying again")

            def missed() -> None:
                if stream.is_connected():
                    group.start_soon(_catch_up_missed, subsystems)

            stream.on_features_changed.append(features_changed)
            stream.on_missed.append(missed)
            stream.on_connected.append(connected)
            stream.on_disconnected.append(disconnected)
            connection = stream.connect(self._connect)
            await group.start(environment.monitoring.run)
            own, outside = (
                SkillSources(
                    self.catalog.registry,
                    subsystems.sources(remote=remote),
                    start_s=_OWN_SOURCES_S,
                    offered=tasks.service.skills_changed,
                )
                for remote in (False, True)
            )
            tasks.late.append(own.late)
            tasks.late.append(outside.late)
            outside_started = anyio.Event()

            async def run_outside() -> None:
                await group.start(outside.run)
                outside_started.set()

            group.start_soon(run_outside)
            await group.start(own.run)
            group.start_soon(self._report_unknown_skills, tasks, outside_started)
            await group.start(stream.router.run)
            await group.start(tasks.news.run)
            await group.start(tasks.service.run)
            if agents is not None:
                await group.start(agents.run)
            await group.start(subsystems.run)
            await group.start(subsystems.changes.run)
            group.start_soon(environment.memories.knowledge.files.index.embed)
            group.start_soon(environment.memories.knowledge.documents.run)
            group.start_soon(memory.tidy, environment.memories, storage, environment.home)
            group.start_soon(expiry.keep, storage, expiry.EVERY_S, tasks.service.deleted)
            kernel.reload = self.reload
            group.start_soon(self._keep_reloading, subsystems, own, outside)
            group.start_soon(self._manager.run)
            group.start_soon(connection.run)  # last: requests find everything running
            started.started()
            await self._stopping.wait()
            self._manager.stopping()
            await self._drain(subsystems, connection)
            group.cancel_scope.cancel()

    def _log_settings(self, event: str, **values: str) -> None:
        _log.info(event, **values, **summary(self.settings, self._configuration))

    async def _keep_reloading(self, subsystems: Subsystems, *sources: SkillSources) -> None:
        """Reload the settings at each request, until cancelled."""
        while True:
            await self._next_reload.requested.wait()
            this, self._next_reload = self._next_reload, _Reload()
            self._manager.reloading()
            this.result = await self._reload(subsystems, sources)
            self._manager.ready()
            this.done.set()

    async def _reload(
        self, subsystems: Subsystems, sources: Sequence[SkillSources]
    ) -> Reloaded | Sequence[str]:
        """Return what has changed, or what is wrong, in sentences."""
        # Imported here, because most services never reload anything.
        from component.app.reload import ReloadError, reload  # noqa: PLC0415

        try:
            found = await reload(self.read, subsystems, sources)
        except ReloadError as error:
            for sentence in error.sentences:
                _log.error("the configuration was not reloaded", reason=sentence)
            return error.sentences
        except Exception:  # noqa: BLE001 - a bug must not end the service
            _log.exception("the configuration could not be reloaded")
            return ("The configuration was not reloaded: an internal error, see the log.",)
        self._log_settings(
            "reloaded",
            changed=", ".join(found.changed) or "nothing",
            restart_to_use=", ".join(found.restart) or "nothing",
        )
        return found

    async def _report_unknown_skills(self, tasks: TaskSubsystem, started: anyio.Event) -> None:
        """When all sources have started, warn of rules and agents that name unknown skills."""
        await started.wait()
        names = (*self.catalog.registry.names(), *tasks.internal)
        unready = tasks.unready_sources()
        for sentence in await find_unknown_skills(self.settings, names, unready):
            _log.warning(sentence)

    async def _drain(self, subsystems: Subsystems, connection: Connection) -> None:
        """Answer the requests under way, send unavailable presence, close the stream.

        All of it together takes no longer than the limit in the settings.
        """
        limit = self.settings.server.drain_s
        deadline = anyio.current_time() + limit
        _log.info("stopping")
        async with anyio.create_task_group() as group:
            group.start_soon(subsystems.kernel.tasks.service.drain)
            cancelled = await subsystems.kernel.stream.router.drain(limit)
        if cancelled:
            _log.warning("cancelled requests that took too long", requests=cancelled)
        if self.established.is_set():
            subsystems.leaving()
            with anyio.CancelScope(deadline=deadline):
                for opened in subsystems.opened:
                    await _guarded(opened.closing, "tell subscribers that the service stops")
        await connection.close(max(1.0, deadline - anyio.current_time()))


async def _catch_up(environment: Environment, subsystems: Subsystems) -> None:
    """Catch up with what happened without a session, and send presence to subscribers."""
    await _guarded(environment.stopped.load, "read which contacts want no messages")
    await _guarded(subsystems.kernel.tasks.service.connected, "report tasks that changed meanwhile")
    # Last, because it takes long where there are many subscribers.
    await _announce(subsystems)


async def _announce(subsystems: Subsystems) -> None:
    for opened in subsystems.opened:
        await _guarded(opened.announce, "send presence to subscribers")


async def _catch_up_missed(subsystems: Subsystems) -> None:
    for opened in subsystems.opened:
        await _guarded(opened.missed, "catch up with what was missed")


async def _guarded(work: Callable[[], Awaitable[None]], what: str) -> None:
    """Run work that the service can do without: an error of the disk is logged."""
    try:
        await work()
    except StorageError as error:
        log_failure(_log, f"could not {what}", error)
