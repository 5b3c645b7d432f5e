"""The life of the service: open, serve, drain, close."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime

import anyio
import structlog
from anyio import to_thread
from anyio.abc import TaskStatus

from component.audit.protocol import Event
from component.connection.connection import ComponentConnection
from component.control.path import ControlError
from component.control.server import ControlServer
from component.metrics.counters import Counters
from component.router.router import Event as Received
from component.service.options import (
    DEFAULT_AGENT,
    SOFTWARE,
    connection_options,
    load_skills,
    make_policy,
)
from component.service.remembering import Memories, remembering
from component.service.remembering import keep as keep_memory
from component.service.rooms import Rooms
from component.service.watching import Watching, watching
from component.settings import Settings
from component.skills import View
from component.storage import Storage, StorageError
from component.storage.home import home_of
from component.storage.stopped import StoppedContacts
from component.tasks.retention import keep
from xep.jid import JID

_log = structlog.get_logger("component.service")


class Service:
    """The agent service: everything that one component does.

    Args:
        settings: the settings; read once, here.

    Attributes:
        view: gives the skills that a principal sees and may execute.
        established: set when the first handshake has been accepted.

    Raises:
        PolicyError, SkillLoadError, DuplicateSkillError: the settings cannot be kept to.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.policy = make_policy(settings)
        self._memories: Memories | None = None
        self.registry = load_skills(settings, lambda: self._opened.knowledge)
        self.view: Callable[[JID], View] = self.registry.viewer(
            self.policy.view_key, self.policy.may_use
        )
        self.established = anyio.Event()
        self._stopping = anyio.Event()

    @property
    def _opened(self) -> Memories:
        assert self._memories is not None, "skills are called while the service runs"
        return self._memories

    @property
    def stopping(self) -> bool:
        """Whether it has been asked to end."""
        return self._stopping.is_set()

    def stop(self) -> None:
        """Ask the service to end: work under way is answered first. Safe to call again."""
        self._stopping.set()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Serve until `stop` is called.

        Raises:
            StorageError: the data directory, or that of the memory, cannot be used.
            ModelRefusedError: what a model needs is not installed.
        """
        for said in (self.settings.notice, self.settings.speechless):
            if said is not None:
                _log.warning(said)
        where = self.settings.storage
        async with Storage.open(where.path, postgres=where.postgres.get_secret_value()) as storage:
            contacts = StoppedContacts(storage, agent_at)
            await contacts.load()
            async with (
                watching(self.settings, storage) as watches,
                remembering(self.settings, watches.recorder) as self._memories,
            ):
                await self._watched(watches, storage, contacts, task_status)

    async def _watched(
        self,
        watches: Watching,
        storage: Storage,
        contacts: StoppedContacts,
        started: TaskStatus[None],
    ) -> None:
        home = await to_thread.run_sync(home_of, storage.directory)
        rooms = Rooms(
            *(self.settings, self.policy, self.registry, self.view, storage, contacts, watches),
            self._opened,
            home,
        )
        record = watches.recorder.record
        record(Event(kind="start", outcome="started", subject=SOFTWARE))
        try:
            await self._serve(rooms, storage, contacts, watches, home, started)
        finally:
            record(Event(kind="start", outcome="stopped", subject=SOFTWARE))

    async def _serve(
        self,
        rooms: Rooms,
        storage: Storage,
        contacts: StoppedContacts,
        watches: Watching,
        home: str,
        started: TaskStatus[None],
    ) -> None:
        async with anyio.create_task_group() as tasks:

            async def greet() -> None:
                await _guarded(contacts.load, "read who wants to hear nothing more")
                await _guarded(rooms.presence.announce, "announce ourselves to subscribers")
                await _guarded(rooms.tasks.connected, "tell of tasks that changed meanwhile")

            def connected() -> None:
                rooms.connected_since = datetime.now(UTC)
                if rooms.talk is not None:
                    rooms.talk.conversations.connected()
                self.established.set()
                tasks.start_soon(greet)

            connection = ComponentConnection(
                connection_options(self.settings),
                rooms.outbox,
                _Receiver(rooms, connected, watches.counters),
            )
            rooms.flush = connection.flush
            await tasks.start(watches.run)
            if self.settings.metrics.address is not None:
                # Nobody pays for the library who does not ask for figures.
                from component.service.figures import serve_figures  # noqa: PLC0415

                await tasks.start(serve_figures, self.settings.metrics, rooms, watches, storage)
            await tasks.start(rooms.router.run)
            await tasks.start(rooms.news.run)
            await tasks.start(rooms.tasks.run)
            if rooms.talk is not None:
                await tasks.start(rooms.talk.run)
            tasks.start_soon(keep_memory, self._opened, storage, home)
            tasks.start_soon(keep, storage)
            await tasks.start(_controlled, ControlServer(storage.directory, rooms.commands))
            tasks.start_soon(connection.run)
            started.started()
            await self._stopping.wait()
            await self._drain(rooms, connection)
            tasks.cancel_scope.cancel()

    async def _drain(self, rooms: Rooms, connection: ComponentConnection) -> None:
        """Answer what is under way, say good-bye, close the stream; all within a limit."""
        limit = self.settings.server.drain_s
        deadline = anyio.current_time() + limit
        _log.info("stopping")
        async with anyio.create_task_group() as group:
            group.start_soon(rooms.tasks.drain)
            left = await rooms.router.drain(limit)
        if left:
            _log.warning("gave up requests that would not end in time", requests=left)
        if self.established.is_set():
            await _guarded(rooms.presence.take_leave, "tell subscribers that we go")
        await connection.close(max(1.0, deadline - anyio.current_time()))


class _Receiver:
    """Takes what the connection reports to the rooms."""

    def __init__(self, rooms: Rooms, connected: Callable[[], None], counters: Counters) -> None:
        self._rooms = rooms
        self._received = rooms.router.received
        self._counters = counters
        self.connected = connected

    def received(self, events: Sequence[Received]) -> int:
        """Take what one read brought."""
        self._counters.stanzas_in += len(events)
        return self._received(events)

    def disconnected(self, reason: str) -> None:
        """The stream is gone."""
        self._counters.reconnects += 1
        self._rooms.connected_since = None
        self._rooms.router.disconnected(reason)


async def _guarded(work: Callable[[], Awaitable[None]], what: str) -> None:
    """Do what the stream can live without; a disk that refuses must not end the service."""
    try:
        await work()
    except StorageError as error:
        _log.error(f"could not {what}", reason=str(error))


async def _controlled(
    server: ControlServer, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
) -> None:
    """Serve the command line; the service lives without it too."""
    try:
        await server.run(task_status=task_status)
    except ControlError as error:
        _log.error("the command line cannot reach this service", reason=str(error))
        task_status.started()


def agent_at(address: JID) -> JID:
    """The agent that speaks at an address: at the domain it is the default one."""
    return address if address.local else JID.parse(f"{DEFAULT_AGENT}@{address.domain}")
