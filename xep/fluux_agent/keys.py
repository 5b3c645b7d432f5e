"""urn:fluux:agent:0#keys, the public keys of an agent as PubSub items."""

from datetime import datetime
from typing import Annotated, Final, Literal

from xep.binding import Attr, Name, Payload, Text
from xep.fluux_agent import NAMESPACE as AGENT

NAMESPACE: Final = f"{AGENT}#keys"
"""The name of the node, too."""


class Key(Payload, frozen=True, kw_only=True):
    """A public key: the member ``x`` of its JWK (RFC 8037 §2), in base64url.

    The id of its item is its thumbprint (RFC 7638). ``created`` is when it was made, ``retired``
    when another one took its place.
    """

    xml = Name(NAMESPACE, "key")

    crv: Annotated[Literal["Ed25519"], Attr(always=True)] = "Ed25519"
    created: Annotated[datetime | None, Attr()] = None
    retired: Annotated[datetime | None, Attr()] = None
    x: Annotated[str, Text()]
