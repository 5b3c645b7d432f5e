"""The skill `xmpp_send`: an agent writes to somebody on behalf of a person.

The person confirms each message as it will be sent, because the skill is destructive. Whom it may
write to is limited here, and how often in `guarded_messages`, whatever a model or a person asks
for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from msgspec import Meta

from component.config.skills import XmppSend
from component.kernel.guarded_messages import GuardedMessages, read_address
from component.policy.globs import pattern
from component.skills.context import Context
from component.skills.declare import own_skill
from component.skills.errors import SkillError
from component.skills.free_texts import FREE_TEXT
from component.skills.host import SendMessage
from component.skills.skill import Skill


def xmpp_send_skill(settings: XmppSend, messages: Callable[[], GuardedMessages]) -> Skill:
    """Return the skill. `messages` returns what sends its messages, while the service runs."""
    allowed = pattern(settings.recipients)

    @own_skill(
        title="Send a message",
        question="May I send this message to {to}: {text}?",
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
            str,
            Meta(description="The text, as the recipient will read it.", min_length=1),
            FREE_TEXT,
        ],
    ) -> str:
        """Send a message to somebody on behalf of the person.

        The person is shown the message and confirms it before it is sent.
        """
        person = read_address(to)
        if not allowed.fullmatch(str(person)):
            raise SkillError(f"I am not permitted to write to {person}.")
        await messages().send(context, SendMessage(to, text, context.key))
        return f"Sent to {person}."

    return xmpp_send
