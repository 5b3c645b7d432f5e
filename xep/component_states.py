"""XEP-0114 Jabber Component Protocol: the allowed steps in each state, as a table for each side.

A step that is not in the row of a state is not allowed there. `xep.component_stream` uses the
tables.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final


class State(Enum):
    """The state of a stream."""

    NEW = "nothing was sent"
    OPENING = "our header was sent"
    OPENED = "the peer's header arrived"
    AUTHENTICATING = "the secret is being proved"
    DECIDING = "the proof arrived and is to be accepted or refused"
    READY = "stanzas go both ways"
    CLOSING = "we closed; the peer may still send until it closes too"
    PEER_CLOSED = "the peer closed; what is left may still be sent"
    ENDED = "the peer ended the stream; only closing is left"
    CLOSED = "all is over"

    __hash__ = object.__hash__  # Enum's own is written in Python, and runs twice for each stanza


class Step(Enum):
    """What moves a stream from one state to another."""

    SEND_HEADER = "open the stream"
    RECEIVE_HEADER = "a stream header"
    RECEIVE_REFUSAL = "a stream header without the id to prove the secret by"
    SEND_HANDSHAKE = "send the handshake"
    RECEIVE_HANDSHAKE = "a handshake"
    SEND_STANZA = "send a stanza"
    RECEIVE_STANZA = "a stanza"
    RECEIVE_ERROR = "a stream error"
    RECEIVE_CLOSE = "the end of the stream"
    SEND_CLOSE = "close the stream"
    SEND_ERROR = "fail the stream"

    __hash__ = object.__hash__


Table = Mapping[State, Mapping[Step, State]]

_GIVING_UP: Final = {Step.SEND_CLOSE: State.CLOSED, Step.SEND_ERROR: State.CLOSED}
_UNREADY: Final = {
    Step.RECEIVE_ERROR: State.ENDED,
    Step.RECEIVE_CLOSE: State.ENDED,
    **_GIVING_UP,
}
_FROM_READY: Final[Table] = {
    State.READY: {
        Step.SEND_STANZA: State.READY,
        Step.RECEIVE_STANZA: State.READY,
        Step.RECEIVE_ERROR: State.ENDED,
        Step.RECEIVE_CLOSE: State.PEER_CLOSED,
        Step.SEND_CLOSE: State.CLOSING,
        Step.SEND_ERROR: State.CLOSED,
    },
    State.CLOSING: {
        Step.RECEIVE_STANZA: State.CLOSING,
        Step.RECEIVE_ERROR: State.CLOSING,
        Step.RECEIVE_CLOSE: State.CLOSED,
    },
    State.PEER_CLOSED: {Step.SEND_STANZA: State.PEER_CLOSED, **_GIVING_UP},
    State.ENDED: {**_UNREADY},
    State.CLOSED: {},
}

COMPONENT: Final[Table] = {
    State.NEW: {Step.SEND_HEADER: State.OPENING},
    State.OPENING: {
        Step.RECEIVE_HEADER: State.OPENED,
        Step.RECEIVE_REFUSAL: State.ENDED,  # the error follows, for example from Prosody
        **_GIVING_UP,
    },
    State.OPENED: {Step.SEND_HANDSHAKE: State.AUTHENTICATING, **_UNREADY},
    State.AUTHENTICATING: {Step.RECEIVE_HANDSHAKE: State.READY, **_UNREADY},
    **_FROM_READY,
}
"""The transitions of a component's stream (XEP-0114 §3)."""

ACCEPTOR: Final[Table] = {
    State.NEW: {Step.RECEIVE_HEADER: State.OPENED, Step.SEND_ERROR: State.CLOSED},
    State.OPENED: {Step.SEND_HEADER: State.AUTHENTICATING, **_UNREADY},
    State.AUTHENTICATING: {Step.RECEIVE_HANDSHAKE: State.DECIDING, **_UNREADY},
    State.DECIDING: {Step.SEND_HANDSHAKE: State.READY, **_UNREADY},
    **_FROM_READY,
}
"""The transitions of the server's side."""
