"""What the stream of a service does when sessions begin and end."""

import pytest

from component.app.features import make_settings
from component.app.service import Service
from component.config import Server
from component.kernel.monitoring import Monitoring
from component.kernel.stream import StreamSubsystem
from component.link.messages.outbox import Outbox, OutputStream

pytestmark = [pytest.mark.anyio, pytest.mark.ports]

MESSAGE = b"<message to='ann@example.com'><body>Hello</body></message>"
PRESENCE = b"<presence to='ann@example.com'/>"


class Collected:
    """Takes what the outbox gives away, as a kernel with room."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        outbox.start(OutputStream())

    def taken(self) -> bytes:
        self._bytes = b""
        self._outbox.flush(self.try_send)
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
    sent = Collected(stream.outbox)
    stream.undelivered([MESSAGE, PRESENCE], certain=False)
    assert sent.taken() == b""
    stream.undelivered([PRESENCE, MESSAGE], certain=True)
    assert sent.taken() == MESSAGE


async def test_the_stream_is_connected_while_there_is_a_session() -> None:
    monitoring, sessions = Monitoring(), []
    stream = stream_of(monitoring)
    stream.on_connected.append(lambda: sessions.append(stream.connected_since))
    assert not stream.is_connected()
    stream.connected()
    assert stream.is_connected()
    assert sessions == [stream.connected_since], "it is known before anything is sent"
    stream.disconnected("The server closed the stream.")
    assert not stream.is_connected()
    assert monitoring.counters.reconnects == 1


async def test_what_is_flushed_before_there_is_a_connection_waits() -> None:
    stream = stream_of(Monitoring())
    stream.outbox.put(MESSAGE.decode())
    stream.flush()
    assert not await stream.handled()
    assert stream.outbox.waiting_bytes == len(MESSAGE)
