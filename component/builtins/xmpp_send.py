"""The skill `xmpp_send`: an agent writes to somebody on behalf of a person.

The person confirms each message as it will be sent, because the skill is destructive. Whom it may
write to, and how often, is limited here, whatever a model or a person asks for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Protocol

import anyio
from anyio.abc import TaskStatus
from msgspec import Meta

from component.builtins.hourly_limit import HourlyLimit
from component.policy.globs import pattern
from component.skills.context import Context
from component.skills.declare import skill
from component.skills.errors import InvalidParam, SkillError
from component.skills.skill import Skill
from component.skills.sources import Offer
from xep.jid import JID, JIDError

if TYPE_CHECKING:
    from component.settings.builtins import XmppSend


class MessagePort(Protocol):
    """Sends messages: `component.service.sending.Sending`."""

    def refusal(self, agent: str, person: JID) -> str | None:
        """Return why an agent must not write to an address, as a sentence; None if it may."""

    async def knows(self, agent: str, person: JID) -> bool:
        """Return whether a person and an agent share presence. Raises SkillError."""

    def send(self, agent: str, person: JID, text: str, key: str) -> None:
        """Send a message, which has its id from the key. Raises SkillError."""

    def title(self, agent: str) -> str:
        """Return the name of an agent that people see."""


class XmppSendSource:
    """The source of the skill.

    Args:
        settings: the section of the settings.
        messages: sends the messages.
    """

    name = "xmpp_send"

    def __init__(self, settings: XmppSend, messages: MessagePort) -> None:
        self._skill = xmpp_send_skill(settings, messages)

    async def run(self, offer: Offer, *, task_status: TaskStatus[None]) -> None:
        """Offer the skill."""
        offer([self._skill])
        task_status.started()
        await anyio.sleep_forever()


def xmpp_send_skill(settings: XmppSend, messages: MessagePort) -> Skill:
    """Return the skill."""
    allowed = pattern(settings.recipients)
    by_person = HourlyLimit(settings.per_hour)
    by_recipient = HourlyLimit(settings.per_recipient_per_hour)

    @skill(
        title="Send a message",
        destructive=True,
        open_world=True,
        capabilities=("xmpp:send",),
        # It returns nothing that others have written.
        taint="person",
        tags=("message",),
        examples=("Tell romeo@example.com that I am late.",),
        typical_duration=0.1,
        cost_usd=0.0,
    )
    async def xmpp_send(
        context: Context,
        to: Annotated[
            str, Meta(description="Address, such as romeo@example.com.", max_length=1000)
        ],
        text: Annotated[
            str, Meta(description="The text, as the recipient will read it.", min_length=1)
        ],
    ) -> str:
        """Send a message to somebody on behalf of the person.

        The person is shown the message and confirms it before it is sent.
        """
        person = _address(to)
        if len(text) > settings.max_characters:
            raise InvalidParam("text", f"has more than {settings.max_characters} characters")
        agent = context.agent.partition("/")[0]
        if not allowed.fullmatch(str(person)):
            raise SkillError(f"I am not permitted to write to {person}.")
        refusal = messages.refusal(agent, person)
        if refusal is not None:
            raise SkillError(refusal)
        body = f"{context.principal} asks me to tell you:\n{text}"
        if not await messages.knows(agent, person):
            if settings.first_contact == "refuse":
                raise SkillError(
                    f"{person} does not share presence with me, so I do not write first. They can"
                    " add me as a contact."
                )
            title = messages.title(agent)
            body = f"Hello, I am {title}, an agent. Send /stop if you want no messages.\n\n{body}"
        now = anyio.current_time()
        if by_person.full(context.principal, now) or by_recipient.full(str(person), now):
            raise SkillError("I have sent as many messages as I may in an hour. Try again later.")
        by_person.count(context.principal, now)
        by_recipient.count(str(person), now)
        messages.send(agent, person, body, context.key)
        return f"Sent to {person}."

    return xmpp_send


def _address(text: str) -> JID:
    try:
        found = JID.parse(text.strip())
    except JIDError as error:
        raise InvalidParam("to", f"is not an address: {error}") from None
    if found.local is None:
        raise InvalidParam("to", "must be the address of a person, such as romeo@example.com")
    return found.bare
