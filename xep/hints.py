"""XEP-0334 Message Processing Hints."""

from typing import Final

from xep.binding import Name, Payload

NAMESPACE: Final = "urn:xmpp:hints"


class Store(Payload, frozen=True, kw_only=True):
    """Asks archives to store the message, although it has no body (XEP-0334 §4.4)."""

    xml = Name(NAMESPACE, "store")


class NoStore(Payload, frozen=True, kw_only=True):
    """Asks archives not to store the message (XEP-0334 §4.2)."""

    xml = Name(NAMESPACE, "no-store")


class NoPermanentStore(Payload, frozen=True, kw_only=True):
    """Asks archives not to store the message; it may wait for an absent recipient (XEP-0334
    §4.1).
    """

    xml = Name(NAMESPACE, "no-permanent-store")


class NoCopy(Payload, frozen=True, kw_only=True):
    """Asks servers not to send copies to other clients, such as carbons (XEP-0334 §4.3)."""

    xml = Name(NAMESPACE, "no-copy")
