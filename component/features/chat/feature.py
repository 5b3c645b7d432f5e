"""The messages of people: commands, and what they say to agents."""

from collections.abc import Sequence
from typing import ClassVar

import anyio

from component.features.chat.files import EVERY_S, FileOffers
from component.features.chat.handlers import MessageHandler
from component.features.chat.message_ids import References
from component.features.chat.notices import Hints, Notices
from component.features.chat.rows import NoticeStore
from component.features.chat.stages import (
    ENCRYPTED_STAGE,
    AgentStages,
    CommandStages,
    address_stage,
    exchange_stage,
    stages_without_model,
)
from component.features.feature import Feature, Opened
from component.kernel.exchange_limit import ExchangeLimit
from component.kernel.kernel import Kernel
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
        hints = Hints(anyio.current_time, EVERY_S)
        return Opened(
            handlers=(messages, FileOffers(stream.messenger, hints)),
            message_stages=(
                exchange_stage(ExchangeLimit(settings.limits.messages_per_sender)),
                address_stage(kernel.contacts.used),
                ENCRYPTED_STAGE,
                *self._said_stages(kernel),
            ),
        )

    def _said_stages(self, kernel: Kernel) -> Sequence[MessageStage]:
        """Return the stages for what people say: commands, and messages to agents."""
        references = References()
        commands = CommandStages(kernel.commands, references, kernel.tasks.service.retract)
        if kernel.agents is None:
            admins, persons = kernel.environment.catalog.admins, kernel.contacts.persons
            without = stages_without_model(admins.__contains__, persons.known)
            return (*commands.stages(), *without)
        agents = AgentStages(
            kernel.agents.conversations,
            kernel.stream.addresses.agent_at,
            kernel.tasks.pause_gate.check,
            references,
            commands.is_replacement,
        )
        return (*commands.stages(), *agents.stages())

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
            kernel.stream.addresses.agent_address,
            text,
            kernel.stream.handled,
        )


FEATURE = ChatFeature
