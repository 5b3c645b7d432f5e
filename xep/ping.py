"""XEP-0199 XMPP Ping."""

from typing import Final

from xep.binding import Name, Payload

NAMESPACE: Final = "urn:xmpp:ping"


class Ping(Payload, frozen=True, kw_only=True):
    """A ping. The answer is an empty result (XEP-0199 §3)."""

    xml = Name(NAMESPACE, "ping")
