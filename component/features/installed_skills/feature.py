"""What admins approve: the skills of directories, those that somebody else describes, and proposed
personas.
"""

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar, Self

from component import system
from component.audit.protocol import Recorder
from component.commands import AnyCommand
from component.config import Settings
from component.features.feature import Feature, Opened
from component.features.installed_skills.commands import Installed, InstalledSkillCommands
from component.kernel.check import Check
from component.kernel.kernel import Kernel
from component.kernel.module_functions import skill_services
from component.private import make_directory
from component.skills.sources import SkillSource
from component.store.shared import Reload
from component.store.storage import Storage

if TYPE_CHECKING:
    from component.features.installed_skills.descriptions import Descriptions
    from component.features.installed_skills.directories import SkillDirectories
    from component.features.installed_skills.personas import ProposedPersonas
    from component.skill_directories.host_functions import SendMessageOf


class InstalledSkillsFeature(Feature):
    """The skills that admins approve. The code about one sort is imported only for that sort."""

    reloads: ClassVar = (
        "skills.directories",
        "skills.auto_approve",
        "skills.proposals",
        "skills.credentials",
        "skills.hold_first_descriptions",
        "mcp",
        "openapi",
        "workers",
    )

    _directories: "SkillDirectories | None" = None
    _descriptions: "Descriptions | None" = None

    def open(self, kernel: Kernel) -> Opened:
        """Make what offers approved skills, and the commands of admins."""
        storage, recorder = kernel.storage, kernel.environment.monitoring.recorder
        messages = _AdminMessages(kernel)
        directories = self._directories or skill_directories(
            self.settings, storage, recorder, lambda: kernel.messages().send
        )
        descriptions = self._descriptions or skill_descriptions(
            self.settings, storage, recorder, messages.send
        )
        self._directories, self._descriptions = directories, descriptions
        personas = persona_proposals(self.settings, storage, recorder)
        commands = installed_commands(directories, descriptions, personas)
        sources: Sequence[SkillSource] = ()
        changes: dict[str, Reload] = {}
        if directories is not None:
            sources, changes["skills"] = (directories,), _both(directories, personas)
        if descriptions is None:
            return Opened(sources=sources, commands=commands, shared_changes=changes)
        return Opened(
            sources=sources,
            commands=commands,
            shared_changes={**changes, "descriptions": descriptions.reload},
            pin=descriptions.pin,
            warnings=descriptions.warnings,
            held_sources=descriptions.held_sources,
            connected=messages.connected,
        )

    def reopen(self, kernel: Kernel, before: Self) -> Opened:
        """Do the same; what is not affected by the change continues."""
        if _of_directories(self.settings) == _of_directories(before.settings):
            self._directories = before._directories
        described, known = self.settings.described_sources, before._descriptions
        if (
            described
            and known is not None
            and _hold_first(self.settings) == _hold_first(before.settings)
        ):
            known.describe(described)
            self._descriptions = known
        return self.open(kernel)

    async def availability(self) -> AsyncIterator[Check]:
        """Check the manifests in directories, and whether something waits for an approval."""
        from component.features.installed_skills.descriptions import check_descriptions  # noqa: PLC0415
        from component.features.installed_skills.directories import check_directories  # noqa: PLC0415

        for check in await system.in_thread(check_directories, self.settings):
            yield check
        waiting = await system.in_thread(check_descriptions, self.settings)
        if waiting is not None:
            yield waiting


def _of_directories(settings: Settings) -> tuple[object, ...]:
    skills = settings.skills
    return settings.skill_roots, skills.auto_approve, skills.credentials


def _hold_first(settings: Settings) -> bool:
    return settings.skills.hold_first_descriptions


class _AdminMessages:
    """Sends the admins messages. Sources run before there is a connection: it keeps theirs."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._unsent: list[str] = []

    def send(self, sentence: str) -> None:
        self._unsent.append(sentence)
        if self._kernel.stream.is_connected():
            self.connected()

    def connected(self) -> None:
        while self._unsent:
            self._kernel.contacts.tell_admins(self._unsent.pop(0))


def skill_directories(
    settings: Settings,
    storage: Storage,
    recorder: Recorder,
    messages: Callable[[], "SendMessageOf | None"] = lambda: None,
) -> "SkillDirectories | None":
    """Return the source of the skills that are installed in directories; None without any."""
    if not settings.skill_roots:
        return None
    from component.features.installed_skills.directories import SkillDirectories  # noqa: PLC0415
    from component.skill_directories.version import Runners  # noqa: PLC0415

    services = skill_services(settings, storage, messages)
    if settings.proposals_path is not None:
        with suppress(OSError):  # reported when the directories are read
            make_directory(settings.proposals_path)
    runners = Runners(services)
    auto_approve = settings.skills.auto_approve
    return SkillDirectories(settings.skill_roots, storage, runners, recorder, auto_approve)


def skill_descriptions(
    settings: Settings,
    storage: Storage,
    recorder: Recorder,
    tell_admins: Callable[[str], None] = lambda _sentence: None,
) -> "Descriptions | None":
    """Return the descriptions of skills by others; None where the settings name no such source."""
    if not settings.described_sources:
        return None
    from component.features.installed_skills.descriptions import Descriptions  # noqa: PLC0415

    return Descriptions(
        storage,
        settings.described_sources,
        recorder,
        tell_admins,
        hold_first=settings.skills.hold_first_descriptions,
    )


def persona_proposals(
    settings: Settings, storage: Storage, recorder: Recorder
) -> "ProposedPersonas | None":
    """Return the proposed personas; None where none can be proposed."""
    if settings.proposals_path is None:
        return None
    from component.features.installed_skills.personas import ProposedPersonas  # noqa: PLC0415
    from component.memory_directory.layout import Layout  # noqa: PLC0415
    from component.skill_directories.proposals import ProposalFolder  # noqa: PLC0415

    folder = ProposalFolder(settings.proposals_path)
    return ProposedPersonas(folder, Layout(settings.memory_path), storage, recorder)


def _both(directories: "SkillDirectories", personas: "ProposedPersonas | None") -> Reload:
    """Return what reloads the approvals of skills and of personas, which are in one table."""

    async def reload(names: Collection[str] | None) -> None:
        await directories.reload(names)
        if personas is not None:
            await personas.reload(names)

    return reload


def installed_commands(*installed: Installed | None) -> Sequence[AnyCommand]:
    """Return the commands about what admins approve; none where there is nothing."""
    found = [one for one in installed if one is not None]
    return InstalledSkillCommands(found).commands() if found else ()


FEATURE = InstalledSkillsFeature
