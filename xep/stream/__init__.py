"""An XMPP stream as bytes in, complete stanzas out (RFC 6120 §4, §11).

It needs nothing but the standard library: no sockets, no clocks, no other room of `xep`.
"""

from xep.stream.errors import CONDITIONS, STREAM_ERRORS, STREAMS, Condition, StreamError
from xep.stream.events import (
    STANZA_TAGS,
    ElementReceived,
    Event,
    Kind,
    Limit,
    Other,
    ParserFailed,
    StanzaSkipped,
    StreamClosed,
    StreamOpened,
)
from xep.stream.header import STREAM_CLOSE, encode_header
from xep.stream.parser import ParserOf, StreamParser
from xep.stream.scanner import Limits

__all__ = [
    "CONDITIONS",
    "STANZA_TAGS",
    "STREAMS",
    "STREAM_CLOSE",
    "STREAM_ERRORS",
    "Condition",
    "ElementReceived",
    "Event",
    "Kind",
    "Limit",
    "Limits",
    "Other",
    "ParserFailed",
    "ParserOf",
    "StanzaSkipped",
    "StreamClosed",
    "StreamError",
    "StreamOpened",
    "StreamParser",
    "encode_header",
]
