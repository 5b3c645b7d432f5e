"""Declare an XML element once as a msgspec.Struct; decoder and encoder come from it.

class Ping(Payload, frozen=True, kw_only=True):
    xml = Name("urn:xmpp:ping", "ping")

decode(Ping, element)     # ContentError when the element does not fit
encode(Ping())            # "<ping xmlns='urn:xmpp:ping'/>"
"""

from xep.binding.declaration import (
    Attr,
    Child,
    Flag,
    Lang,
    Name,
    Payload,
    Text,
    TextChild,
)
from xep.binding.decoder import decode
from xep.binding.encoder import Encoded, encode
from xep.binding.errors import ContentError, DeclarationError, EncodingError
from xep.binding.kept import read

__all__ = [
    "Attr",
    "Child",
    "ContentError",
    "DeclarationError",
    "Encoded",
    "EncodingError",
    "Flag",
    "Lang",
    "Name",
    "Payload",
    "Text",
    "TextChild",
    "decode",
    "encode",
    "read",
]
