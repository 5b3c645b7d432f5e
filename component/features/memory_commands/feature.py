"""The commands about memories, for people and operators."""

from component.features.feature import Feature, Opened
from component.features.memory_commands.commands import MemoryCommands
from component.kernel.kernel import Kernel
from component.kernel.options import agent_entries


class MemoryCommandsFeature(Feature):
    """Shows, changes, exports and imports memories."""

    def open(self, kernel: Kernel) -> Opened:
        """Make the commands."""
        agents = [entry.name for entry in agent_entries(self.settings)]
        commands = MemoryCommands(kernel.environment.memories.knowledge, agents)
        return Opened(commands=commands.commands())


FEATURE = MemoryCommandsFeature
