"""Messages that agents write to others on behalf of people, within the limits of `[xmpp_send]`.

The skill `xmpp_send` and skills with the capability `xmpp` send through one `GuardedMessages`, so
that their messages count together.
"""

import hashlib
from collections import deque
from typing import Any, Final

import anyio

from component import DEFAULT_AGENT
from component.agent_addresses import both_addresses
from component.config.skills import XmppSend
from component.kernel.contacts import ContactSubsystem
from component.kernel.environment import Environment
from component.kernel.options import agent_titles
from component.kernel.stream import StreamSubsystem
from component.link.messages.inbound import ReplyAddress
from component.link.messages.messenger import TooBigError
from component.link.messages.outbound import OutboundMessage, Text, conversation_with
from component.skills.context import Context
from component.skills.errors import InvalidParam, SkillError
from component.skills.host import SendMessage
from component.store import StorageError
from component.store.contacts import SubscriptionStore
from xep.jid import JID, JIDError

_HOUR_S: Final = 3600.0
_MOST_COUNTED: Final = 10_000
_SHARED: Final = ("from", "to", "both")


class HourlyLimit:
    """Counts events in the last hour, for each key. A new process starts to count at zero.

    Args:
        most: the maximum of a key.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._times: dict[str, deque[float]] = {}

    def full(self, key: str, now: float) -> bool:
        """Return whether the maximum is reached."""
        times: Any = self._times.get(key, ())
        while times and times[0] <= now - _HOUR_S:
            times.popleft()
        return len(times) >= self._most

    def count(self, key: str, now: float) -> None:
        """Count an event."""
        if len(self._times) > _MOST_COUNTED:
            self._times = {k: v for k, v in self._times.items() if v and v[-1] > now - _HOUR_S}
        self._times.setdefault(key, deque()).append(now)


class Sending:
    """Sends messages of agents, without limits."""

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
        if not self._contacts.may_write(self._address(agent, person), person):
            return f"{person} does not want to be contacted."
        return None

    async def knows(self, agent: str, person: JID) -> bool:
        """Return whether a person and an agent share presence. Raises SkillError."""
        try:
            for address in both_addresses(self._address(agent, person)):
                found = await self._subscriptions.get(address, person)
                if found is not None and found.state in _SHARED:
                    return True
        except StorageError:
            raise SkillError("The database is temporarily unavailable.") from None
        return False

    def send(self, agent: str, person: JID, text: str, key: str) -> None:
        """Send a message, which has its id from the key. Raises SkillError."""
        ours = self._address(agent, person)
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

    def _address(self, agent: str, person: JID) -> JID:
        return self._contacts.address_of(agent or DEFAULT_AGENT, person)


class GuardedMessages:
    """Sends messages to people who may be written to, and not too many."""

    def __init__(self, settings: XmppSend, messages: Sending) -> None:
        self._settings = settings
        self._messages = messages
        self._by_person = HourlyLimit(settings.per_hour)
        self._by_recipient = HourlyLimit(settings.per_recipient_per_hour)

    async def send(self, context: Context, message: SendMessage, skill: str = "") -> None:
        """Send a message on behalf of the person of a context, which it names.

        `skill` has written the text; it is empty if the person has. The message has a key, which
        identifies it.

        Raises SkillError if the message must not be sent, and InvalidParam for an address or a text
        that cannot be used.
        """
        principal, text = context.principal, message.text
        person = read_address(message.to)
        if len(text) > self._settings.max_characters:
            raise InvalidParam("text", f"has more than {self._settings.max_characters} characters")
        agent = context.agent.partition("/")[0]
        refusal = self._messages.refusal(agent, person)
        if refusal is not None:
            raise SkillError(refusal)
        words = (
            f"{principal} uses {skill}, which says" if skill else f"{principal} asks me to tell you"
        )
        body = f"{words}:\n{text}"
        if not await self._messages.knows(agent, person):
            if self._settings.first_contact == "refuse":
                raise SkillError(
                    f"{person} does not share presence with me, so I do not write first. They can"
                    " add me as a contact."
                )
            title = self._messages.title(agent)
            body = f"Hello, I am {title}, an agent. Send /stop if you want no messages.\n\n{body}"
        now = anyio.current_time()
        if self._by_person.full(principal, now) or self._by_recipient.full(str(person), now):
            raise SkillError("I have sent as many messages as I may in an hour. Try again later.")
        self._by_person.count(principal, now)
        self._by_recipient.count(str(person), now)
        key = f"{skill} {principal} {message.key}" if skill else message.key
        self._messages.send(agent, person, body, key or "")


def read_address(text: str) -> JID:
    """Return the bare address of a recipient. Raises InvalidParam."""
    try:
        found = JID.parse(text.strip())
    except JIDError as error:
        raise InvalidParam("to", f"is not an address: {error}") from None
    if found.local is None:
        raise InvalidParam("to", "must be the address of a person, such as romeo@example.com")
    return found.bare
