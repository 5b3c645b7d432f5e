"""From an open connection to an accepted handshake (XEP-0114 §3), and how a stream ends."""

import contextlib
from typing import TYPE_CHECKING

import anyio

from component.link.connection import failure
from component.link.connection.failure import ConnectionFailed
from component.link.connection.options import ConnectionOptions
from component.link.connection.transport import Transport
from xep.component_states import State
from xep.component_stream import ComponentStream, ComponentStreamEvent, HandshakeAccepted
from xep.stanza_stream import StreamErrorReceived, StreamFailed
from xep.stream import StreamLimits, StreamOpened

if TYPE_CHECKING:
    from xep.client_stream import ClientStreamEvent


async def open_stream(
    transport: Transport, options: ConnectionOptions
) -> tuple[ComponentStream, list[ComponentStreamEvent]]:
    """Open the stream and prove the secret.

    Returns the stream, ready for stanzas, and what the server sent right behind its acceptance.

    Raises:
        ConnectionFailed: the server refused, broke off, or did not answer in time.
    """
    limits = StreamLimits(options.max_stanza_bytes, options.max_depth, options.max_elements)
    stream = ComponentStream(options.address, options.secret, limits)
    with anyio.move_on_after(options.handshake_timeout_s):
        await say(transport, stream.open())
        while True:
            events = stream.receive(await hear(transport, options))
            for number, event in enumerate(events, 1):
                if isinstance(event, StreamOpened):
                    # A server that refuses at once says so right behind its header.
                    if stream.state is State.OPENED:
                        await say(transport, stream.handshake())
                elif isinstance(event, HandshakeAccepted):
                    return stream, events[number:]
                else:
                    raise ended_by(event, options, established=False)
    raise failure.handshake_timed_out(options)


def ended_by(
    event: "ComponentStreamEvent | ClientStreamEvent",
    options: ConnectionOptions,
    *,
    established: bool,
) -> ConnectionFailed:
    """Return what it means that the server ended the stream with ``event``."""
    if isinstance(event, StreamErrorReceived):
        return failure.refused_by_server(options, event.error)
    if isinstance(event, StreamFailed):
        return failure.bad_xml(options, event.error.error, established=established)
    return failure.closed(options, established=established)


async def say(transport: Transport, data: bytes) -> None:
    """Send ``data``, where what comes in tells best what became of it.

    A server that refuses may close before it has read this; why it does is still to be read.
    """
    with contextlib.suppress(ConnectionFailed):
        await transport.send(data)


async def hear(transport: Transport, options: ConnectionOptions) -> bytes:
    """Return what the server says next, before there is a session. Raises ConnectionFailed."""
    try:
        data = await transport.receive(options.read_bytes)
    except ConnectionFailed as error:
        raise failure.closed(options, established=False) from error
    if not data:
        raise failure.closed(options, established=False)
    return data
