"""The messages of people: commands, and what they say to agents."""

from collections.abc import Sequence
from typing import ClassVar

from component.features.chat.handlers import MessageHandler, OccupantHandler
from component.features.chat.notices import Notices
from component.features.chat.rows import NoticeStore
from component.features.chat.stages import (
    ENCRYPTED_STAGE,
    AgentStages,
    address_stage,
    command_stage,
    exchange_stage,
    stages_without_model,
)
from component.features.feature import Feature, Opened
from component.kernel.exchange_limit import ExchangeLimit
from component.kernel.kernel import Kernel
from component.kernel.options import agent_at
from component.link.messages.inbound import MessageStage
from xep.jid import JID


class ChatFeature(Feature):
    """Passes the messages of people to questions, commands and agents."""

    reloads: ClassVar = ("agent.name", "agent.notice", "limits.messages_per_sender")

    def open(self, kernel: Kernel) -> Opened:
        """Make the handlers of messages."""
        stream, settings = kernel.stream, self.settings
        messages = MessageHandler(
            stream.messenger,
            kernel.message_stages,
            self._notices(kernel),
            kernel.forms,
            stream.addresses.is_own,
        )
        admits = kernel.environment.catalog.admits
        occupants = OccupantHandler(stream.messenger, admits, stream.is_room)
        return Opened(
            handlers=(messages, occupants),
            message_stages=(
                exchange_stage(ExchangeLimit(settings.limits.messages_per_sender)),
                address_stage(kernel.contacts.used),
                ENCRYPTED_STAGE,
                command_stage(kernel.commands),
                *self._agent_stages(kernel),
            ),
        )

    def _agent_stages(self, kernel: Kernel) -> Sequence[MessageStage]:
        if kernel.agents is None:
            admins = kernel.environment.catalog.admins
            return stages_without_model(admins.__contains__, kernel.contacts.persons.known)
        return AgentStages(
            kernel.agents.conversations,
            kernel.stream.addresses.agent_at,
            kernel.tasks.pause_gate.check,
        ).stages()

    def _notices(self, kernel: Kernel) -> Notices | None:
        template = self.settings.agent.notice
        if not template:
            return None
        profiles = kernel.environment.catalog.profiles

        def text(agent: JID) -> str:
            return profiles[agent.local].filled(template)

        return Notices(
            NoticeStore(kernel.storage),
            kernel.contacts.persons,
            agent_at(self.settings),
            text,
            kernel.stream.handled,
        )


FEATURE = ChatFeature
