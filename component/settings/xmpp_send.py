"""The section about messages that agents send to others on behalf of people.

The skill `xmpp_send` exists if it is there; its limits also hold for other skills.
"""

from typing import Literal

from pydantic import Field

from component.settings.kinds import Count, Section


class XmppSend(Section):
    """The skill `xmpp_send`, by which an agent writes to others on behalf of a person. See
    docs/skills-builtin.md.
    """

    recipients: tuple[str, ...] = Field(
        min_length=1,
        examples=[["*@example.com"]],
        description="Bare addresses that may be written to; `*` and `?` are wildcards.",
    )
    first_contact: Literal["refuse", "introduce"] = Field(
        default="refuse",
        description="What happens to a message to somebody who does not share presence with the"
        " agent: refuse, or introduce (the agent says who it is first).",
    )
    per_hour: Count = Field(
        default=20, description="Maximum number of messages per hour on behalf of one person."
    )
    per_recipient_per_hour: Count = Field(
        default=5, description="Maximum number of messages per hour to one recipient."
    )
    max_characters: Count = Field(
        default=4000, description="Maximum number of characters of a message."
    )
