"""Declares an XML element as a msgspec.Struct; decoder and encoder are derived from it.

class Ping(Payload, frozen=True, kw_only=True):
    xml = Name("urn:xmpp:ping", "ping")

decode(Ping, element)     # ContentError when the element does not fit
encode(Ping())            # "<ping xmlns='urn:xmpp:ping'/>"
"""

from xep.binding.declaration import (
    AnyChild,
    Attr,
    Child,
    Flag,
    Lang,
    Name,
    Payload,
    RawXML,
    Text,
    TextChild,
)
from xep.binding.decoder import decode
from xep.binding.encoder import encode
from xep.binding.errors import ContentError, DeclarationError, EncodingError
from xep.binding.kept import keep, read

__all__ = [
    "AnyChild",
    "Attr",
    "Child",
    "ContentError",
    "DeclarationError",
    "EncodingError",
    "Flag",
    "Lang",
    "Name",
    "Payload",
    "RawXML",
    "Text",
    "TextChild",
    "decode",
    "encode",
    "keep",
    "read",
]
