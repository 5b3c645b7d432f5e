"""XEP-0444 Message Reactions."""

from typing import Annotated, Final

from xep.binding import Attr, Name, Payload, TextChild

NAMESPACE: Final = "urn:xmpp:reactions:0"
RESTRICTIONS: Final = "urn:xmpp:reactions:0:restrictions"
"""The form type with which an entity announces the reactions that it accepts (XEP-0444 §2.1)."""


class Reactions(Payload, frozen=True, kw_only=True):
    """All reactions of the sender to one message; an empty set withdraws earlier ones (XEP-0444
    §3.2).
    """

    xml = Name(NAMESPACE, "reactions")

    id: Annotated[str, Attr()]
    emoji: Annotated[tuple[str, ...], TextChild("reaction")] = ()
