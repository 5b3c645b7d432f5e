"""The common part of the streams of components and clients: errors, and events of stanzas."""

from xml.etree.ElementTree import Element

import msgspec

from xep.stanza import Incoming
from xep.stream import ElementReceived, StreamError


class LocalProtocolError(Exception):
    """Our side requested something that the stream's state does not allow. Nothing was sent or
    changed.
    """


class RemoteProtocolError(Exception):
    """The peer violated the protocol, or its input is not a stream.

    `error` says why, and `reply` are the bytes to send before the connection is closed.
    """

    def __init__(self, error: StreamError, reply: bytes) -> None:
        """Wrap the stream error, and the bytes to send because of it."""
        super().__init__(str(error))
        self.error = error
        self.reply = reply


# A Struct, because its constructor is written in C.
class StanzaReceived(msgspec.Struct, gc=False):
    """A complete stanza within the limits."""

    stanza: Incoming


class StreamErrorReceived(msgspec.Struct):
    """The peer ended the stream with an error. Only `close()` is left to do."""

    error: StreamError


class StreamFailed(msgspec.Struct):
    """The peer violated the protocol: always the last event. Send `error.reply` and disconnect."""

    error: RemoteProtocolError


def received(element: Element, size: int) -> StanzaReceived | ElementReceived:
    """Return the event of a complete first-level element, for `xep.stream.ParserOf`."""
    stanza = Incoming.of(element, size)
    return ElementReceived(element, size) if stanza.kind is None else StanzaReceived(stanza)
