"""Skills and agents that people and models propose."""

from typing import ClassVar

from component.features.feature import Feature, Opened
from component.features.proposals.proposing import Proposing, ServiceView
from component.features.proposals.skills import agent_create_skill, create_skill_skill
from component.features.proposals.source import ProposalSource
from component.kernel.kernel import Kernel
from component.skill_directories.proposals import ProposalFolder


class ProposalsFeature(Feature):
    """The skills `create_skill` and, where there is a model, `agent_create`."""

    reloads: ClassVar = ("skills.proposals", "skills.directories")

    def open(self, kernel: Kernel) -> Opened:
        """Make the source of the skills."""
        section, path = self.settings.skills.proposals, self.settings.proposals_path
        assert section is not None, "the feature is used"
        assert path is not None, "the feature is used"
        environment, folder = kernel.environment, ProposalFolder(path)
        recorder = environment.monitoring.recorder
        proposing = Proposing(section, folder, ServiceView(kernel), recorder)
        skills = [create_skill_skill(proposing)]
        if kernel.agents is not None:
            # Imported only where there is a model: a service without one starts faster.
            from component.features.proposals.agents import AgentDesigner  # noqa: PLC0415

            designer = AgentDesigner(environment, kernel.agents, section.max_bytes)
            skills.append(agent_create_skill(proposing, designer))
        return Opened(sources=(ProposalSource(folder, skills),))


FEATURE = ProposalsFeature
