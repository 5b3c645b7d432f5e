"""Skills that people and models propose."""

from typing import ClassVar

from component.features.feature import Feature, Opened
from component.features.proposals.source import ProposalFolder, ProposalSource, ServiceView
from component.kernel.kernel import Kernel


class ProposalsFeature(Feature):
    """The skill `create_skill`."""

    reloads: ClassVar = ("skills.proposals", "skills.directories")

    def open(self, kernel: Kernel) -> Opened:
        """Make the source of the skill."""
        section, path = self.settings.skills.proposals, self.settings.proposals_path
        assert section is not None, "the feature is used"
        assert path is not None, "the feature is used"
        recorder = kernel.environment.monitoring.recorder
        source = ProposalSource(section, ProposalFolder(path), ServiceView(kernel), recorder)
        return Opened(sources=(source,))


FEATURE = ProposalsFeature
