"""The commands of admins about agents: states, spending, and instructions to them."""

from component import DEFAULT_AGENT
from component.features.agents_admin.commands import AgentCommands, SpendingCommands, TellCommands
from component.features.feature import Feature, Opened
from component.kernel.kernel import Kernel


class AgentsAdminFeature(Feature):
    """Shows, pauses and kills agents, shows what models have cost, and gives instructions."""

    def open(self, kernel: Kernel) -> Opened:
        """Make the commands."""
        agents = kernel.agents
        assert agents is not None, "the feature is used only with a model"
        return Opened(
            commands=(
                *SpendingCommands(agents.budgets, DEFAULT_AGENT, kernel.zones.of_caller).commands(),
                *AgentCommands(agents.agents).commands(),
                *TellCommands(kernel, agents.conversations, agents.agents).commands(),
            )
        )


FEATURE = AgentsAdminFeature
