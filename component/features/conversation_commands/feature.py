"""The commands of people about their conversation with an agent."""

from component import system
from component.features.conversation_commands.commands import (
    ConversationCommands,
    ConversationStatus,
)
from component.features.feature import Feature, Opened
from component.kernel.kernel import Kernel
from xep.jid import JID


class ConversationCommandsFeature(Feature):
    """Starts, stops and deletes conversations, and shows their state."""

    def open(self, kernel: Kernel) -> Opened:
        """Make the commands."""
        agents, memories = kernel.agents, kernel.environment.memories
        assert agents is not None, "the feature is used only with a model"
        started = system.now()

        async def describe(agent: str, who: JID) -> ConversationStatus:
            model, sources = await agents.profiles.described(agent, who)
            state = agents.agents.get(agent)
            connection = f"connected as {self.settings.server.address}"
            return ConversationStatus(
                agent=agent,
                title=agents.profiles.titles.get(agent, agent),
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
