"""XEP-0425 Moderated Message Retraction, and its form before version 0.3: what a room says about a
message that a moderator has removed.
"""

from typing import Annotated, Final

from xep.binding import Attr, Flag, Name, Payload
from xep.binding import Child as _Child
from xep.message_retraction import FASTENING
from xep.message_retraction import LEGACY as RETRACTION_0
from xep.message_retraction import NAMESPACE as RETRACTION

NAMESPACE: Final = "urn:xmpp:message-moderate:1"
LEGACY: Final = "urn:xmpp:message-moderate:0"


class ModeratedRetraction(Payload, frozen=True, kw_only=True):
    """The message with the stanza id ``id`` was retracted; ``moderated`` says that a moderator has
    done so.
    """

    xml = Name(RETRACTION, "retract")

    id: Annotated[str, Attr()]
    moderated: Annotated[bool, Flag(namespace=NAMESPACE)] = False


class _Moderated(Payload, frozen=True, kw_only=True):
    xml = Name(LEGACY, "moderated")

    retract: Annotated[bool, Flag(namespace=RETRACTION_0)] = False


class LegacyModeration(Payload, frozen=True, kw_only=True):
    """The same before version 0.3: it is applied to the message with the stanza id ``id``."""

    xml = Name(FASTENING, "apply-to")

    id: Annotated[str, Attr()]
    moderated: Annotated[_Moderated | None, _Child()] = None
