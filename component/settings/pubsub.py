"""The section about the PubSub service of the agents."""

from pydantic import Field

from component.settings.kinds import Section


class PubSub(Section):
    """The PubSub nodes of the agents (docs/pubsub.md). Admins may create more of them."""

    ask_presence: bool = Field(
        default=False,
        description="Whether an agent asks a contact that subscribes to it for its presence in "
        "return. Then clients that announce an interest in a node (`+notify`) are notified "
        "without a subscription to it. Off by default, because a client may ask its user about "
        "the request.",
    )
