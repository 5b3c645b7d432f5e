"""Sends messages on behalf of people, for skills."""

import hashlib
from typing import Final

from component.config.model import DEFAULT_AGENT
from component.kernel.contacts import ContactSubsystem
from component.kernel.environment import Environment
from component.kernel.options import agent_titles
from component.kernel.stream import StreamSubsystem
from component.link.messages.inbound import ReplyAddress
from component.link.messages.messenger import TooBigError
from component.link.messages.outbound import OutboundMessage, Text, conversation_with
from component.skills.errors import SkillError
from component.store import StorageError
from component.store.contacts import SubscriptionStore
from xep.jid import JID

_SHARED: Final = ("from", "to", "both")


class Sending:
    """Implements `component.kernel.guarded_messages.MessagePort`.

    Args:
        environment: the settings and the database.
        stream: sends messages.
        contacts: who may be written to.
    """

    def __init__(
        self, environment: Environment, stream: StreamSubsystem, contacts: ContactSubsystem
    ) -> None:
        self._subscriptions = SubscriptionStore(environment.storage)
        self._stream = stream
        self._contacts = contacts
        self._titles = agent_titles(environment.settings)

    def refusal(self, agent: str, person: JID) -> str | None:
        """Return why an agent must not write to an address, as a sentence; None if it may."""
        if self._stream.addresses.is_own(person):
            return f"{person} is an agent of this service: use it directly."
        if not self._contacts.may_write(self._address(agent), person):
            return f"{person} does not want to be contacted."
        return None

    async def knows(self, agent: str, person: JID) -> bool:
        """Return whether a person and an agent share presence. Raises SkillError."""
        try:
            found = await self._subscriptions.get(self._address(agent), person)
        except StorageError:
            raise SkillError("The database is temporarily unavailable.") from None
        return found is not None and found.state in _SHARED

    def send(self, agent: str, person: JID, text: str, key: str) -> None:
        """Send a message, which has its id from the key. Raises SkillError."""
        ours = self._address(agent)
        message = OutboundMessage(
            id=hashlib.sha256(f"xmpp_send {key}".encode()).hexdigest()[:32],
            conversation=conversation_with(ours, person),
            to=ReplyAddress(str(person), ours),
            parts=(Text(text),),
            must_arrive=True,
        )
        try:
            self._stream.messenger.send(message)
        except TooBigError as error:
            raise SkillError(str(error)) from None
        self._stream.flush()

    def title(self, agent: str) -> str:
        """Return the name of an agent that people see."""
        return self._titles.get(agent or DEFAULT_AGENT, agent)

    def _address(self, agent: str) -> JID:
        return self._stream.addresses.address_of(agent or DEFAULT_AGENT)
