"""What a client's session takes from the outbox, it has: it is sent once, whatever breaks."""

from typing import Any, cast

import pytest

from component.link.connection.client import ClientSession
from component.link.connection.failure import ConnectionFailed
from component.link.connection.transport import Transport
from component.link.messages.outbox import Outbox, OutputStream
from tests.xep.test_client_stream import ready

STANZA = "<message id='m' to='a@b.c'/>"


class BrokenTransport:
    """Takes so many bytes, then nothing; or it is broken."""

    def __init__(self) -> None:
        self.room = 0
        self.broken = False
        self.taken = b""

    def try_send(self, data: Any) -> int:
        if self.broken:
            raise ConnectionFailed("lost", "It broke.")
        taken = bytes(data)[: self.room]
        self.room -= len(taken)
        self.taken += taken
        return len(taken)


def test_what_was_kept_when_the_connection_broke_does_not_wait_in_the_outbox_too() -> None:
    transport, outbox = BrokenTransport(), Outbox(1000)
    stream, _ = ready()
    session = ClientSession(cast("Transport", transport), stream, lambda: None)
    outbox.start(OutputStream())
    outbox.put(STANZA)
    transport.broken = True
    outbox.flush(session.try_send)
    assert stream.management is not None
    assert stream.management.unacknowledged == (STANZA.encode(),)
    assert not outbox.waiting_bytes, "or it would be sent again after the resumption, and once more"
    with pytest.raises(ConnectionFailed):
        session.push()


def test_a_full_kernel_takes_the_rest_later_and_nothing_more_is_taken_meanwhile() -> None:
    transport, outbox = BrokenTransport(), Outbox(1000)
    stream, _ = ready()
    session = ClientSession(cast("Transport", transport), stream, lambda: None)
    outbox.start(OutputStream())
    transport.room = 5
    outbox.put(STANZA)
    outbox.flush(session.try_send)
    assert session.pending
    outbox.put(STANZA.replace("'m'", "'n'"))
    assert not outbox.flush(session.try_send)
    assert outbox.waiting_bytes
    transport.room = 1000
    assert outbox.flush(session.try_send)
    assert not session.pending
    assert [transport.taken.count(f"id='{id_}'".encode()) for id_ in "mn"] == [1, 1]
