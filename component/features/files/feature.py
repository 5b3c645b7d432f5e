"""Takes the files that people send, and keeps those of agents."""

from collections.abc import AsyncIterator, Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, ClassVar, Final

import anyio
import structlog
from anyio.abc import TaskStatus

from component import system
from component.config import Settings
from component.features.feature import Feature, Opened
from component.features.files.settings import FILES, Files
from component.kernel.check import Check
from component.kernel.kernel import Kernel
from component.link.messages.inbound import Handled, InboundMessage, MessageStage, StageOrder
from component.memory_directory.layout import SessionKey, memory_event
from component.skills import Skill
from component.skills.errors import printable
from component.store import StorageError
from component.store.outages import log_failure
from component.tasks.protocol import CannotShare

if TYPE_CHECKING:
    from component.agent.conversations import Fetch
    from component.agent.requests import SentFile, TurnRequest
    from component.conversations.stored_files import StoredFile
    from component.features.files.fetching import Fetcher
    from component.features.files.places import PersonFiles

_log = structlog.get_logger("component.files")

_EVERY_S: Final = 3600.0
_DAY_S: Final = 86_400.0


class FilesFeature(Feature):
    """Takes files of messages, and offers skills and commands for them."""

    reloads: ClassVar = ("files", "uploads")

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._section: Files = settings[FILES] or Files()
        self._files: PersonFiles | None = None

    def skills(self) -> Iterator[Skill]:
        """Yield the skills."""
        from component.features.files.skills import file_skills  # noqa: PLC0415 - with their first use

        section = self.settings[FILES]
        yield from file_skills(self._opened, write=section is not None and section.enabled)

    def _opened(self) -> "PersonFiles":
        assert self._files is not None, "skills are called while the service runs"
        return self._files

    def open(self, kernel: Kernel) -> Opened:
        """Make the commands, and what fetches files."""
        from component.features.files.commands import FileCommands  # noqa: PLC0415
        from component.features.files.places import PersonFiles, limits_of  # noqa: PLC0415

        memories, section = kernel.environment.memories, self._section
        self._files = PersonFiles(
            memories.files, memories.sharing, limits_of(section), shared=section.shared
        )
        commands = FileCommands(self._files, self.settings.agent_names)

        async def expire(*, task_status: TaskStatus[None]) -> None:
            task_status.started()
            while True:
                try:
                    # The earlier of two clocks: a wall clock that has jumped ahead removes nothing.
                    steady = await kernel.storage.read(lambda database: database.steady)
                    now = min(system.time(), steady / 1000)
                    await memories.files.expire(now - section.keep_days * _DAY_S)
                except StorageError as error:
                    log_failure(_log, "old files cannot be deleted", error)
                await anyio.sleep(_EVERY_S)

        return Opened(
            commands=commands.commands(),
            loops=(expire,) if section.keep_days else (),
            fetch=None if kernel.agents is None else self._fetch(kernel),
            message_stages=(FILES_STAGE,) if kernel.agents is not None else (),
        )

    def _fetch(self, kernel: Kernel) -> "Fetch":
        """Return what fetches the files of a message. It is made with the first of them."""
        fetcher: Fetcher | None = None

        async def fetch(key: SessionKey, request: "TurnRequest") -> "tuple[SentFile, ...]":
            nonlocal fetcher
            if fetcher is None:
                fetcher = self._make_fetcher(kernel)
            return await fetcher.fetch(key, request)

        return fetch

    def _make_fetcher(self, kernel: Kernel) -> "Fetcher":
        # Imported with the first file: the service starts faster without.
        from component.features.files.fetching import Downloads, Fetcher  # noqa: PLC0415

        recorder = kernel.environment.monitoring.recorder

        async def own_upload() -> str | None:
            try:
                return (await kernel.tasks.uploads().offered())[1]
            except CannotShare as error:
                _log.info("the upload service of the server is not known", reason=str(error))
                return None

        def stored(key: SessionKey, request: "TurnRequest", file: "StoredFile") -> None:
            recorder.record(memory_event(key, "done", file.name, "file stored", request.id))

        downloads = Downloads(self._section, own_upload, self.settings.server.tls_ca)
        return Fetcher(self._section, kernel.environment.memories.files, downloads, stored)

    async def availability(self) -> AsyncIterator[Check]:
        """Yield whether what reads documents is installed."""
        missing = [name for name in ("selectolax", "pypdf") if find_spec(name) is None]
        if missing and self._section.receive:
            text = (
                f"{' and '.join(missing)} must be installed to read the PDF and HTML files that"
                " people send: pip install 'xmpp-agent-component[documents]'"
            )
            yield Check("files", "warning", text)


async def _with_command(message: InboundMessage) -> Handled | None:
    """Say that files beside a command are not read."""
    if not message.attachments or not message.text.startswith("/") or message.is_action:
        return None
    # Imported with the first such message: the service starts faster without.
    from component.features.files import refusals  # noqa: PLC0415
    from component.task_messages.value_rendering import listed  # noqa: PLC0415

    names = [refusals.shown_name(file) for file in message.attachments]
    return Handled(refusals.WITH_COMMAND.format(names=printable(listed(names), 300)), goes_on=True)


FILES_STAGE: Final = MessageStage(StageOrder.FILES, _with_command)
FEATURE = FilesFeature
