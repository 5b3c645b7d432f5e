"""The skills that admins approve: those of directories, and those that others describe."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from component.audit.protocol import Recorder
from component.commands.definition import AnyCommand
from component.kernel.contacts import ContactSubsystem
from component.kernel.environment import Environment
from component.kernel.module_functions import skill_services
from component.kernel.stream import StreamSubsystem
from component.private import make_directory
from component.settings import Settings
from component.skills.sources import SkillSource
from component.storage.database import Transactions
from component.storage.shared import SharedChanges

if TYPE_CHECKING:
    from component.sources.descriptions.descriptions import Descriptions
    from component.sources.directories.host_functions import SkillMessages
    from component.sources.directories.source import SkillDirectories

APPROVED: Final = "approved-skills"
"""The directory of approved content, in that of the storage."""


class InstalledSkillSubsystem:
    """The skills that are installed in directories, and those that others describe.

    Args:
        environment: the settings, the database and the audit log.
        messages: returns what sends the messages of skills.
        stream: the state of the connection.
        contacts: sends messages to the admins.

    Attributes:
        directories: offers the skills of directories; None where the settings name none.
        descriptions: has the descriptions by others; None where the settings name no such source.
    """

    def __init__(
        self,
        environment: Environment,
        messages: Callable[[], "SkillMessages"],
        stream: StreamSubsystem,
        contacts: ContactSubsystem,
    ) -> None:
        self._stream = stream
        self._contacts = contacts
        self._unsent: list[str] = []
        base = (environment.settings, environment.storage, environment.monitoring.recorder)
        self.directories = skill_directories(*base, messages)
        self.descriptions = skill_descriptions(*base, self._tell_admins)

    def sources(self) -> Sequence[SkillSource]:
        """Return the source of these skills."""
        return () if self.directories is None else (self.directories,)

    def commands(self) -> Sequence[AnyCommand]:
        """Return the commands of admins."""
        return installed_commands(self.directories, self.descriptions)

    def _tell_admins(self, sentence: str) -> None:
        """Send the admins a message; the sources run before there is a connection."""
        self._unsent.append(sentence)
        if self._stream.is_connected():
            self.connected()

    def connected(self) -> None:
        """Send the admins the messages of the time without a connection."""
        while self._unsent:
            self._contacts.tell_admins(self._unsent.pop(0))

    def warnings(self) -> Sequence[str]:
        """Return what an admin has to decide, in sentences."""
        return () if self.descriptions is None else self.descriptions.warnings()

    def held_sources(self) -> Sequence[str]:
        """Return the names of the sources of which descriptions wait for an approval."""
        return () if self.descriptions is None else self.descriptions.held_sources()

    def follow(self, changes: SharedChanges) -> None:
        """Follow what admins approve and revoke on other instances."""
        if self.directories is not None:
            changes.register("skills", self.directories.reload)
        if self.descriptions is not None:
            changes.register("descriptions", self.descriptions.reload)


def skill_directories(
    settings: Settings,
    storage: Transactions,
    recorder: Recorder,
    messages: Callable[[], "SkillMessages | None"] = lambda: None,
) -> "SkillDirectories | None":
    """Return the source of the skills that are installed in directories; None without any."""
    if not settings.skill_roots:
        return None
    # Imported only where there are directories: the service starts faster without.
    from component.sources.directories.approvals import Approvals  # noqa: PLC0415
    from component.sources.directories.content import ContentStore  # noqa: PLC0415
    from component.sources.directories.kinds import makers  # noqa: PLC0415
    from component.sources.directories.runners import Runners  # noqa: PLC0415
    from component.sources.directories.source import SkillDirectories  # noqa: PLC0415

    services = skill_services(settings, storage, messages)
    if settings.proposals_path is not None:
        with suppress(OSError):  # reported when the directories are read
            make_directory(settings.proposals_path.expanduser())
    return SkillDirectories(
        settings.skill_roots,
        Approvals(storage),
        ContentStore(settings.storage.path / APPROVED),
        Runners(makers(services, settings.storage.path / "compiled-skills")),
        recorder,
        settings.skills.auto_approve,
    )


def skill_descriptions(
    settings: Settings,
    storage: Transactions,
    recorder: Recorder,
    tell_admins: Callable[[str], None] = lambda _sentence: None,
) -> "Descriptions | None":
    """Return the descriptions of skills by others; None where the settings name no such source."""
    if not settings.described_sources:
        return None
    from component.sources.descriptions.descriptions import Descriptions  # noqa: PLC0415
    from component.sources.descriptions.rows import DescriptionRows  # noqa: PLC0415
    from component.sources.descriptions.seen import SeenSources  # noqa: PLC0415

    return Descriptions(
        DescriptionRows(storage),
        settings.described_sources,
        SeenSources(settings.storage.path),
        recorder,
        tell_admins,
        hold_first=settings.skills.hold_first_descriptions,
    )


def installed_commands(
    directories: "SkillDirectories | None", descriptions: "Descriptions | None"
) -> Sequence[AnyCommand]:
    """Return the commands about these skills; none where there are none."""
    found = [one for one in (directories, descriptions) if one is not None]
    if not found:
        return ()
    from component.commands.installed_skills import InstalledSkillCommands  # noqa: PLC0415

    return InstalledSkillCommands(found).commands()
