"""The command by which people choose and define the persona of an agent."""

from component.features.feature import Feature, Opened
from component.features.personas.commands import PersonaCommands, PersonaProposals
from component.kernel.kernel import Kernel


class PersonasFeature(Feature):
    """Lets people choose and define personas."""

    def open(self, kernel: Kernel) -> Opened:
        """Make the command."""
        agents, memories = kernel.agents, kernel.environment.memories
        assert agents is not None, "the feature is used only with a model"
        proposals = PersonaProposals(kernel.environment.catalog.view, kernel.tasks.service.execute)
        commands = PersonaCommands(
            *(memories.personas, memories.own_personas, agents.dialogue), proposals
        )
        return Opened(commands=commands.commands())


FEATURE = PersonasFeature
