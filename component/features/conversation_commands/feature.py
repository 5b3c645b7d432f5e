"""The commands of people about their conversation with an agent."""

from component import system
from component.features.conversation_commands.commands import (
    ConversationCommands,
    ConversationStatus,
)
from component.features.feature import Feature, Opened
from component.kernel.kernel import Kernel
from component.memory_directory.layout import SessionKey


class ConversationCommandsFeature(Feature):
    """Starts, stops and deletes conversations, and shows their state."""

    def open(self, kernel: Kernel) -> Opened:
        """Make the commands."""
        agents, memories = kernel.agents, kernel.environment.memories
        assert agents is not None, "the feature is used only with a model"
        started = system.now()

        async def describe(key: SessionKey) -> ConversationStatus:
            model, sources = await agents.profiles.described(key)
            state = agents.agents.get(key.agent)
            connection = f"connected as {self.settings.server.address}"
            return ConversationStatus(
                agent=key.agent,
                title=agents.profiles.titles.get(key.agent, key.agent),
                state="unknown" if state is None else state.state,
                model=model.name,
                uptime_s=int((system.now() - started).total_seconds()),
                connection=connection if kernel.stream.is_connected() else "not connected",
                sources=sources,
                idle_timeout_mins=self.settings.session.idle_timeout_mins,
            )

        commands = ConversationCommands(
            agents.conversations,
            memories,
            describe,
            self.settings.agent_names,
            kernel.forget_person,
        )
        return Opened(commands=commands.commands())


FEATURE = ConversationCommandsFeature
