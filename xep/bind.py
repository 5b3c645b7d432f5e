"""Resource binding (RFC 6120 §7)."""

from typing import Annotated, Final

from xep.binding import Name, Payload, TextChild
from xep.jid import JID

NAMESPACE: Final = "urn:ietf:params:xml:ns:xmpp-bind"


class Bind(Payload, frozen=True, kw_only=True):
    """A request for a resource (§7.6, §7.7), or the address that was bound."""

    xml = Name(NAMESPACE, "bind")

    resource: Annotated[str | None, TextChild()] = None
    jid: Annotated[JID | None, TextChild()] = None
