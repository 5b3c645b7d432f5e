"""The messages of people: commands, and what they say to agents."""

from component.features.chat.handlers import MessageHandler
from component.features.chat.notices import Notices
from component.features.chat.occupants import OccupantHandler
from component.features.chat.rows import NoticeStore
from component.features.feature import Feature, Opened
from component.kernel.exchange_limit import ExchangeLimit
from component.kernel.kernel import Kernel
from component.kernel.options import agent_at
from xep.jid import JID


class ChatFeature(Feature):
    """Passes the messages of people to questions, commands and agents."""

    def open(self, kernel: Kernel) -> Opened:
        """Make the handlers of messages."""
        stream, settings = kernel.stream, self.settings
        messages = MessageHandler(
            settings.agent.name,
            stream.messenger,
            kernel.commands,
            answers=kernel.answers,
            agents=None if kernel.agents is None else kernel.agents.conversations,
            agent_at=stream.addresses.agent_at,
            let_in=kernel.tasks.pause_gate.check,
            notices=self._notices(kernel),
            forms=kernel.forms,
            is_own=stream.addresses.is_own,
            limit=ExchangeLimit(settings.limits.messages_per_sender),
        )
        occupants = OccupantHandler(
            stream.messenger,
            kernel.environment.catalog.policy.admits,
            stream.is_room,
        )
        return Opened(handlers=(messages, occupants))

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
