"""Messages that agents write to others on behalf of people, within the limits of `[xmpp_send]`.

The skill `xmpp_send` and skills with the capability `xmpp` send through one of these, so that their
messages count together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import anyio

from component.kernel.hourly_limit import HourlyLimit
from component.skills.errors import InvalidParam, SkillError
from xep.jid import JID, JIDError

if TYPE_CHECKING:
    from component.config.skills import XmppSend
    from component.skills.context import Context
    from component.skills.host import SendMessage


class MessagePort(Protocol):
    """Sends messages: `component.kernel.sending.Sending`."""

    def refusal(self, agent: str, person: JID) -> str | None:
        """Return why an agent must not write to an address, as a sentence; None if it may."""

    async def knows(self, agent: str, person: JID) -> bool:
        """Return whether a person and an agent share presence. Raises SkillError."""

    def send(self, agent: str, person: JID, text: str, key: str) -> None:
        """Send a message, which has its id from the key. Raises SkillError."""

    def title(self, agent: str) -> str:
        """Return the name of an agent that people see."""


class GuardedMessages:
    """Sends messages to people who may be written to, and not too many.

    Args:
        settings: the limits.
        messages: sends the messages.
    """

    def __init__(self, settings: XmppSend, messages: MessagePort) -> None:
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
