"""A client's stream (RFC 6120, XEP-0198): the allowed steps in each state, as a table.

A step that is not in the row of a state is not allowed there. `xep.client_stream` uses the table.

The usual order: a header from each side, the server's features, STARTTLS, new headers, features,
SASL, new headers, features, then either a resource is bound and stream management enabled, or the
session of an earlier stream is resumed.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final


class State(Enum):
    """The state of a stream."""

    NEW = "nothing was sent"
    OPENING = "our header was sent"
    OPENED = "the server's header arrived, its features are to follow"
    STARTING_TLS = "TLS was asked for"
    SECURING = "TLS is being negotiated"
    AUTHENTICATING = "the login is under way"
    BINDING = "a resource was asked for"
    ENABLING = "stream management was asked for"
    RESUMING = "the session of an earlier stream was asked for"
    READY = "stanzas go both ways"
    CLOSING = "we closed; the server may still send until it closes too"
    PEER_CLOSED = "the server closed; what is left may still be sent"
    ENDED = "the server ended the stream; only closing is left"
    CLOSED = "all is over"

    __hash__ = object.__hash__  # Enum's own is written in Python, and runs for each stanza


class Step(Enum):
    """What moves a stream from one state to another."""

    SEND_HEADER = "open the stream"
    RECEIVE_HEADER = "a stream header"
    SEND_STARTTLS = "ask for TLS"
    RECEIVE_PROCEED = "the go-ahead for TLS"
    TLS_NEGOTIATED = "go on under TLS"
    SEND_AUTH = "log in"
    RECEIVE_CHALLENGE = "a challenge"
    RECEIVE_SUCCESS = "a successful login"
    SEND_BIND = "ask for a resource"
    SEND_ENABLE = "ask for stream management"
    RECEIVE_ENABLED = "stream management"
    SEND_RESUME = "ask for the earlier session"
    RECEIVE_RESUMED = "the earlier session"
    RECEIVE_NOT_RESUMED = "the refusal of the earlier session"
    BOUND = "begin the session"
    SEND_STANZA = "send a stanza"
    RECEIVE_STANZA = "a stanza"
    RECEIVE_COUNT = "an acknowledgement, or the request for one"
    RECEIVE_ERROR = "a stream error"
    RECEIVE_CLOSE = "the end of the stream"
    SEND_CLOSE = "close the stream"
    GIVE_UP = "fail the stream"

    __hash__ = object.__hash__


Table = Mapping[State, Mapping[Step, State]]

_GIVING_UP: Final = {Step.SEND_CLOSE: State.CLOSED, Step.GIVE_UP: State.CLOSED}
_UNREADY: Final = {
    Step.RECEIVE_ERROR: State.ENDED,
    Step.RECEIVE_CLOSE: State.ENDED,
    **_GIVING_UP,
}

CLIENT: Final[Table] = {
    State.NEW: {Step.SEND_HEADER: State.OPENING},
    State.OPENING: {Step.RECEIVE_HEADER: State.OPENED, **_UNREADY},
    State.OPENED: {
        Step.SEND_STARTTLS: State.STARTING_TLS,
        Step.SEND_AUTH: State.AUTHENTICATING,
        Step.SEND_BIND: State.BINDING,
        Step.SEND_RESUME: State.RESUMING,
        **_UNREADY,
    },
    State.STARTING_TLS: {Step.RECEIVE_PROCEED: State.SECURING, **_UNREADY},
    State.SECURING: {Step.TLS_NEGOTIATED: State.OPENING, **_GIVING_UP},
    State.AUTHENTICATING: {
        Step.RECEIVE_CHALLENGE: State.AUTHENTICATING,
        Step.RECEIVE_SUCCESS: State.OPENING,
        **_UNREADY,
    },
    State.RESUMING: {
        Step.RECEIVE_RESUMED: State.READY,
        Step.RECEIVE_NOT_RESUMED: State.OPENED,
        **_UNREADY,
    },
    State.BINDING: {
        Step.RECEIVE_STANZA: State.BINDING,
        Step.SEND_ENABLE: State.ENABLING,
        Step.BOUND: State.READY,
        **_UNREADY,
    },
    State.ENABLING: {
        Step.RECEIVE_STANZA: State.ENABLING,
        Step.RECEIVE_ENABLED: State.READY,
        **_UNREADY,
    },
    State.READY: {
        Step.SEND_STANZA: State.READY,
        Step.RECEIVE_STANZA: State.READY,
        Step.RECEIVE_COUNT: State.READY,
        Step.RECEIVE_ERROR: State.ENDED,
        Step.RECEIVE_CLOSE: State.PEER_CLOSED,
        Step.SEND_CLOSE: State.CLOSING,
        Step.GIVE_UP: State.CLOSED,
    },
    State.CLOSING: {
        Step.RECEIVE_STANZA: State.CLOSING,
        Step.RECEIVE_COUNT: State.CLOSING,
        Step.RECEIVE_ERROR: State.CLOSING,
        Step.RECEIVE_CLOSE: State.CLOSED,
        Step.GIVE_UP: State.CLOSED,
    },
    State.PEER_CLOSED: {Step.SEND_STANZA: State.PEER_CLOSED, **_GIVING_UP},
    State.ENDED: {**_UNREADY},
    State.CLOSED: {},
}
"""The transitions of a client's stream."""
