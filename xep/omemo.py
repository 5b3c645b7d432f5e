"""XEP-0384 OMEMO Encryption: only what distinguishes a message from a key exchange."""

from typing import Annotated, Final

from xep.binding import Name, Payload, TextChild

NAMESPACE: Final = "urn:xmpp:omemo:2"
LEGACY: Final = "eu.siacs.conversations.axolotl"


class Encrypted(Payload, frozen=True, kw_only=True):
    """The encrypted element; one without `payload` carries keys only (XEP-0384 §5.5.3)."""

    xml = Name(NAMESPACE, "encrypted")

    payload: Annotated[str | None, TextChild()] = None


class LegacyEncrypted(Encrypted, frozen=True, kw_only=True):
    """The same in version 0.3 of XEP-0384 (§4.6), which most clients send."""

    xml = Name(LEGACY, "encrypted")
