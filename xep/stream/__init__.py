"""Converts the bytes of an XMPP stream to complete stanzas (RFC 6120 §4, §11).

It needs only the standard library: no sockets, no clocks, no other package of `xep`.
"""

from xep.stream.errors import CONDITIONS, STREAM_ERRORS, STREAMS, Condition, StreamError
from xep.stream.events import (
    STANZA_TAGS,
    ElementReceived,
    Limit,
    Other,
    ParserEvent,
    ParserFailed,
    StanzaKind,
    StanzaSkipped,
    StreamClosed,
    StreamOpened,
)
from xep.stream.header import STREAM_CLOSE, encode_header
from xep.stream.parser import ParserOf, StreamParser
from xep.stream.scanner import StreamLimits

__all__ = [
    "CONDITIONS",
    "STANZA_TAGS",
    "STREAMS",
    "STREAM_CLOSE",
    "STREAM_ERRORS",
    "Condition",
    "ElementReceived",
    "Limit",
    "Other",
    "ParserEvent",
    "ParserFailed",
    "ParserOf",
    "StanzaKind",
    "StanzaSkipped",
    "StreamClosed",
    "StreamError",
    "StreamLimits",
    "StreamOpened",
    "StreamParser",
    "encode_header",
]
