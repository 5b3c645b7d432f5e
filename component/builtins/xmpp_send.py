"""The skill `xmpp_send`: an agent writes to somebody on behalf of a person.

The person confirms each message as it will be sent, because the skill is destructive. Whom it may
write to is limited here, and how often in `guarded_messages`, whatever a model or a person asks
for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import anyio
from anyio.abc import TaskStatus
from msgspec import Meta

from component.builtins.guarded_messages import GuardedMessages, read_address
from component.policy.globs import pattern
from component.skills.context import Context
from component.skills.declare import skill
from component.skills.errors import SkillError
from component.skills.skill import Skill
from component.skills.sources import Offer

if TYPE_CHECKING:
    from component.settings.builtins import XmppSend


class XmppSendSource:
    """The source of the skill.

    Args:
        settings: the section of the settings.
        messages: sends the messages.
    """

    name = "xmpp_send"

    def __init__(self, settings: XmppSend, messages: GuardedMessages) -> None:
        self._skill = xmpp_send_skill(settings, messages)

    async def run(self, offer: Offer, *, task_status: TaskStatus[None]) -> None:
        """Offer the skill."""
        offer([self._skill])
        task_status.started()
        await anyio.sleep_forever()


def xmpp_send_skill(settings: XmppSend, messages: GuardedMessages) -> Skill:
    """Return the skill."""
    allowed = pattern(settings.recipients)

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
        person = read_address(to)
        if not allowed.fullmatch(str(person)):
            raise SkillError(f"I am not permitted to write to {person}.")
        await messages.send(context.agent, context.principal, to, text, key=context.key)
        return f"Sent to {person}."

    return xmpp_send
