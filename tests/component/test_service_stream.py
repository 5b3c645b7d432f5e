"""What the stream of a service does when sessions begin and end."""

import pytest

from component.app.service import Service
from component.app.settings import make_settings
from component.connection.outbox import Outbox
from component.connection.transport import connect
from component.kernel.monitoring import Monitoring
from component.kernel.stream import StreamSubsystem, _Receiver
from component.settings import Server

pytestmark = [pytest.mark.anyio, pytest.mark.ports]

MESSAGE = b"<message to='ann@example.com'><body>Hello</body></message>"
PRESENCE = b"<presence to='ann@example.com'/>"


class Collected:
    """Takes what the outbox gives away, as a kernel with room."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        outbox.start()

    def taken(self) -> bytes:
        self._bytes = b""
        self._outbox.flush(self)
        return self._bytes

    def try_send(self, data: bytes | memoryview) -> int:
        self._bytes += bytes(data)
        return len(data)


def stream_of(monitoring: Monitoring) -> StreamSubsystem:
    settings = make_settings(
        server=Server(component_domain="agent.example", component_secret="s"),  # type: ignore[arg-type]
    )
    stream = StreamSubsystem(Service(settings).catalog, monitoring)
    stream.dispatch(())
    return stream


async def test_only_messages_that_were_certainly_not_taken_are_sent_again() -> None:
    stream = stream_of(Monitoring())
    receiver = _Receiver(stream, lambda: None, Monitoring().counters)
    sent = Collected(stream.outbox)
    receiver.undelivered([MESSAGE, PRESENCE], certain=False)
    assert sent.taken() == b""
    receiver.undelivered([PRESENCE, MESSAGE], certain=True)
    assert sent.taken() == MESSAGE


async def test_the_stream_is_connected_while_there_is_a_session() -> None:
    monitoring, sessions = Monitoring(), []
    stream = stream_of(monitoring)
    connection = stream.connect(lambda: sessions.append(stream.connected_since), connect)
    receiver = connection._receiver
    assert not stream.is_connected()
    receiver.connected()
    assert stream.is_connected()
    assert sessions == [stream.connected_since], "it is known before anything is sent"
    receiver.disconnected("The server closed the stream.")
    assert not stream.is_connected()
    assert monitoring.counters.reconnects == 1


async def test_what_is_flushed_before_there_is_a_connection_waits() -> None:
    stream = stream_of(Monitoring())
    stream.outbox.put(MESSAGE.decode())
    stream.flush()
    assert not await stream.handled()
    assert stream.outbox.waiting_bytes == len(MESSAGE)
