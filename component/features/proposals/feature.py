"""Skills that people and models propose."""

from collections.abc import Mapping
from pathlib import Path

from component import system
from component.features.feature import Feature, Opened
from component.features.proposals.folder import ProposalFolder
from component.features.proposals.source import ProposalSource
from component.kernel.kernel import Kernel
from component.skill_directories.approvals import Approvals
from component.skill_directories.found import Found, look
from component.skills.errors import SkillError
from component.storage import StorageError
from xep.jid import JID


class ProposalsFeature(Feature):
    """The skill `create_skill`."""

    def open(self, kernel: Kernel) -> Opened:
        """Make the source of the skill."""
        section, path = self.settings.skills.proposals, self.settings.proposals_path
        assert section is not None, "the feature is used"
        assert path is not None, "the feature is used"
        recorder = kernel.environment.monitoring.recorder
        source = ProposalSource(section, ProposalFolder(path), _Service(kernel), recorder)
        return Opened(sources=(source,))


class _Service:
    """Implements `component.features.proposals.source.ProposalPort`.

    Args:
        kernel: has the skills that are offered, and the admins.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._catalog = kernel.environment.catalog
        self._approvals = Approvals(kernel.storage)
        self._roots = [root.expanduser().absolute() for root in kernel.settings.skill_roots]
        self._found: Mapping[Path, Found] = {}
        self.announce = kernel.contacts.tell_admins

    async def taken(self) -> Mapping[str, str]:
        """Return the names of all skills, with the directories of installed ones that are not
        offered. Raises SkillError.
        """
        try:
            approvals = await self._approvals.all()
        except StorageError:
            raise SkillError("The database is temporarily unavailable.") from None
        self._found, _ = await system.in_thread(look, self._roots, self._found)
        names = {one.name: one.directory for one in approvals}
        # Of two directories with one name, the first counts.
        names |= {one.name: str(one.directory) for one in reversed(list(self._found.values()))}
        return names | dict.fromkeys(self._catalog.registry.names(), "")

    def is_admin(self, principal: str) -> bool:
        """Whether a principal is an admin."""
        return JID.parse(principal) in self._catalog.admins


FEATURE = ProposalsFeature
