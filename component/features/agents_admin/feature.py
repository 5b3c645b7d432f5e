"""Which agents there are and what they can do; for admins states, spending and instructions."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from component import DEFAULT_AGENT
from component.features.agents_admin.commands import AgentCommands, SpendingCommands, TellCommands
from component.features.agents_admin.skills import agents_skill
from component.features.feature import Feature, Opened
from component.kernel.kernel import Kernel
from component.skills import Skill

if TYPE_CHECKING:
    from component.features.agents_admin.listing import AgentListing


class AgentsAdminFeature(Feature):
    """Lists agents, pauses and kills them, shows what models have cost, and gives instructions."""

    _listing: "AgentListing"
    """Made by `open`: skills are called only while the service runs."""

    def skills(self) -> Iterable[Skill]:
        """Return the skill that lists agents."""
        return (agents_skill(lambda: self._listing),)

    def open(self, kernel: Kernel) -> Opened:
        """Make the commands."""
        # Imported here, because the command line has no agents.
        from component.features.agents_admin.listing import AgentListing  # noqa: PLC0415

        agents = kernel.agents
        assert agents is not None, "the feature is used only with a model"
        self._listing = AgentListing(kernel, agents)
        return Opened(
            commands=(
                *SpendingCommands(agents.budgets, DEFAULT_AGENT, kernel.zones.of_caller).commands(),
                *AgentCommands(agents.agents, self._listing).commands(),
                *TellCommands(kernel, agents.conversations, agents.agents).commands(),
            )
        )


FEATURE = AgentsAdminFeature
