"""A stream that is established, as the connection uses it; that of a component."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import msgspec

from component.link.connection.transport import Transport
from xep.component_states import State as ComponentState
from xep.component_stream import ComponentStream, ComponentStreamEvent

if TYPE_CHECKING:
    from xep.client_stream import ClientStreamEvent

StreamEvent: TypeAlias = "ComponentStreamEvent | ClientStreamEvent"


class Session(Protocol):
    """An established stream and the connection under it."""

    @property
    def closed(self) -> bool:
        """Whether both sides have closed the stream."""

    @property
    def pending(self) -> bool:
        """Whether accepted output was not written to the kernel yet."""

    def receive(self, data: bytes, /) -> Sequence[StreamEvent]:
        """Process bytes from the server and return the resulting events."""

    def try_send(self, data: bytes | memoryview, /) -> int:
        """Accept as much output as possible at once; return the number of bytes. Raises
        ConnectionFailed.
        """

    def push(self) -> None:
        """Write waiting output to the kernel. Raises ConnectionFailed."""

    async def wait_sendable(self) -> None:
        """Wait until another `try_send` or `push` may succeed."""

    def close(self) -> bytes:
        """Return the bytes that close our direction of the stream."""


class Opened(msgspec.Struct, frozen=True):
    """A session that was opened.

    Attributes:
        session: the session.
        events: the events that followed the server's acceptance.
        address: our own address, to which probes are sent.
        resumed: it is the session of the previous stream.
        lost: stanzas of an earlier session that were not acknowledged and are not sent again.
        lost_for_certain: whether the server has said that it did not receive them.
    """

    session: Session
    events: list[StreamEvent]
    address: str
    resumed: bool = False
    lost: tuple[bytes, ...] = ()
    lost_for_certain: bool = False


class ComponentSession:
    """A component's stream: stanzas count as sent once the kernel has accepted them (XEP-0114 has
    no acknowledgements).
    """

    pending: Final = False

    def __init__(self, transport: Transport, stream: ComponentStream) -> None:
        self.receive: Callable[[bytes], Sequence[StreamEvent]] = stream.receive
        self.try_send = transport.try_send
        self.wait_sendable = transport.wait_sendable
        self.close = stream.close
        self._stream = stream

    @property
    def closed(self) -> bool:
        """Whether both sides have closed the stream."""
        return self._stream.state is ComponentState.CLOSED

    def push(self) -> None:
        """Nothing waits here."""
