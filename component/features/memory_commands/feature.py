"""The commands about memories, for people and operators."""

from component.features.feature import Feature, Opened
from component.features.memory_commands.commands import MemoryCommands
from component.kernel.kernel import Kernel


class MemoryCommandsFeature(Feature):
    """Shows, changes, exports and imports memories."""

    def open(self, kernel: Kernel) -> Opened:
        """Make the commands."""
        agents = self.settings.agent_names
        commands = MemoryCommands(kernel.environment.memories.knowledge, agents)
        return Opened(commands=commands.commands())


FEATURE = MemoryCommandsFeature
