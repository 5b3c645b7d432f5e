"""XEP-0335 JSON Containers."""

from typing import Annotated, Final

import msgspec

from xep.binding import Name, Payload, Text

NAMESPACE: Final = "urn:xmpp:json:0"


class Json(Payload, frozen=True, kw_only=True):
    """A JSON value (XEP-0335 §3)."""

    xml = Name(NAMESPACE, "json")

    value: Annotated[msgspec.Raw, Text()]
