"""The skills that are installed in directories, and the commands about them."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from component.audit.protocol import Recorder
from component.commands.definition import AnyCommand
from component.private import make_directory
from component.service.environment import Environment
from component.settings import Settings
from component.skills.sources import SkillSource
from component.storage.database import Transactions
from component.storage.shared import SharedChanges

if TYPE_CHECKING:
    from component.sources.directories.host_functions import Services, SkillMessages
    from component.sources.directories.source import SkillDirectories

APPROVED: Final = "approved-skills"
"""The directory of approved content, in that of the storage."""


class InstalledSkillSubsystem:
    """The skills that are installed in directories; nothing where the settings name none.

    Args:
        environment: the settings, the database and the audit log.
        messages: returns what sends the messages of skills.

    Attributes:
        directories: offers them.
    """

    def __init__(self, environment: Environment, messages: Callable[[], "SkillMessages"]) -> None:
        self.directories = skill_directories(
            environment.settings, environment.storage, environment.monitoring.recorder, messages
        )

    def sources(self) -> Sequence[SkillSource]:
        """Return the source of these skills."""
        return () if self.directories is None else (self.directories,)

    def commands(self) -> Sequence[AnyCommand]:
        """Return the commands of admins."""
        return () if self.directories is None else installed_commands(self.directories)

    def follow(self, changes: SharedChanges) -> None:
        """Follow what admins approve and revoke on other instances."""
        if self.directories is not None:
            changes.register("skills", self.directories.reload)


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


def skill_services(
    settings: Settings,
    storage: Transactions | None,
    messages: Callable[[], "SkillMessages | None"],
) -> "Services":
    """Return what the service has for skills."""
    from component.sources.directories.host_functions import Credential, Services  # noqa: PLC0415

    credentials = {
        name: Credential(
            value=one.value.get_secret_value(),
            hosts=one.hosts,
            header=one.header,
            prefix=one.prefix,
        )
        for name, one in settings.skills.credentials.items()
    }
    return Services(credentials=credentials, storage=storage, messages=messages)


def installed_commands(directories: "SkillDirectories") -> Sequence[AnyCommand]:
    """Return the commands about installed skills."""
    from component.commands.installed_skills import InstalledSkillCommands  # noqa: PLC0415

    return InstalledSkillCommands(directories).commands()
