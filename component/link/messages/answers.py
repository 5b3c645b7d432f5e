"""The interface of objects that process answers of people to questions."""

from typing import Protocol

from component.link.messages.inbound import InboundMessage
from xep.jid import JID


class Answers(Protocol):
    """Processes answers to questions."""

    async def answered(self, message: InboundMessage) -> str | None:
        """Return the outcome of an answer, as a text; None if the message is not an answer."""

    async def returned(self, who: JID, at: JID, message_id: str) -> None:
        """Record that a message from `at` to `who` was returned as an error."""
