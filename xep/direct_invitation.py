"""XEP-0249 Direct MUC Invitations: an invitation to a room that one person sends to another."""

from typing import Annotated, Final

from xep.binding import Attr, Name, Payload
from xep.jid import JID

NAMESPACE: Final = "jabber:x:conference"


class DirectInvitation(Payload, frozen=True, kw_only=True):
    """An invitation to the room ``jid``."""

    xml = Name(NAMESPACE, "x")

    jid: Annotated[JID | None, Attr()] = None
    password: Annotated[str | None, Attr()] = None
    reason: Annotated[str | None, Attr()] = None
