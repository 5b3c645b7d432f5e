"""What the skill `create_skill` needs of the service."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from component.kernel.contacts import ContactSubsystem
from component.kernel.environment import Environment
from component.skills.errors import SkillError
from component.storage import StorageError
from xep.jid import JID

if TYPE_CHECKING:
    from component.sources.directories.source import SkillDirectories


class ProposalService:
    """Implements `component.sources.proposals.source.ProposalPort`.

    Args:
        environment: the skills that are offered, and the admins.
        contacts: sends messages to the admins.
        directories: the skills that are installed.
    """

    def __init__(
        self,
        environment: Environment,
        contacts: ContactSubsystem,
        directories: "SkillDirectories",
    ) -> None:
        self._catalog = environment.catalog
        self._contacts = contacts
        self._directories = directories

    async def taken(self) -> Mapping[str, str]:
        """Return the names of all skills, with the directories of installed ones that are not
        offered. Raises SkillError.
        """
        try:
            installed = await self._directories.list()
        except StorageError:
            raise SkillError("The database is temporarily unavailable.") from None
        found = {one.name: one.directory for one in reversed(installed)}
        return found | dict.fromkeys(self._catalog.registry.names(), "")

    def is_admin(self, principal: str) -> bool:
        """Whether a principal is an admin."""
        return JID.parse(principal) in self._catalog.admins

    def announce(self, sentence: str) -> None:
        """Send the admins a message."""
        self._contacts.tell_admins(sentence)
