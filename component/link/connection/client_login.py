"""From an open connection to a client's session (RFC 6120 §4 to §7, XEP-0198 §5)."""

from importlib.util import find_spec
from typing import Final

import anyio

from component.link.connection import failure
from component.link.connection.client_failure import login_failed, login_impossible
from component.link.connection.failure import ConnectionFailed
from component.link.connection.handshake import ended_by, hear, say
from component.link.connection.options import ConnectionOptions
from component.link.connection.transport import Transport
from xep.client_stream import Bound, ClientStream, ClientStreamEvent, LoginFailed, TlsWanted
from xep.jid import JID
from xep.sasl import end_point_of
from xep.stanza_stream import StanzaReceived
from xep.stream import StanzaSkipped, StreamLimits, StreamOpened
from xep.stream_management import StreamManagement

RESUMABLE_S: Final = 300
"""Seconds for which a session is assumed to be resumable if the server does not say (XEP-0198 §3
recommends five minutes).
"""


async def open_stream(
    transport: Transport,
    options: ConnectionOptions,
    account: JID,
    management: StreamManagement | None,
    address: JID | None,
) -> tuple[ClientStream, Bound, list[ClientStreamEvent]]:
    """Log in, and resume the session of ``management`` and ``address`` or start a new one.

    Returns the stream, ready for stanzas, what was bound, and the events that followed it.

    Raises:
        ConnectionFailed: the server refused, closed the stream, or did not answer in time.
    """
    if find_spec("scramp") is None:
        raise login_impossible()
    stream = ClientStream(
        account,
        options.secret,
        resource=options.resource,
        limits=StreamLimits(options.max_stanza_bytes, options.max_depth, options.max_elements),
        secure=transport.tls_version is not None,
        needs_tls=options.tls is not None,
        end_point=_end_point(transport),
        management=management,
        address=address,
    )
    with anyio.move_on_after(options.handshake_timeout_s):
        await say(transport, stream.open())
        while True:
            events = stream.receive(await hear(transport, options))
            if answer := b"" if _is_bound(events) else stream.data_to_send():
                await say(transport, answer)
            for number, event in enumerate(events, 1):
                if isinstance(event, Bound):
                    return stream, event, events[number:]
                if isinstance(event, TlsWanted):
                    await transport.start_tls()
                    await say(transport, stream.secured(_end_point(transport)))
                elif isinstance(event, LoginFailed):
                    raise login_failed(options, event)
                elif not isinstance(event, StreamOpened):
                    raise _ended(event, options)
    raise failure.handshake_timed_out(options)


def _is_bound(events: list[ClientStreamEvent]) -> bool:
    """Return whether the session has begun: from then on the session sends the output."""
    return any(isinstance(event, Bound) for event in events)


def _ended(event: ClientStreamEvent, options: ConnectionOptions) -> ConnectionFailed:
    assert not isinstance(event, StanzaReceived | StanzaSkipped), "none comes before the session"
    return ended_by(event, options, established=False)


def _end_point(transport: Transport) -> bytes | None:
    certificate = transport.certificate
    return None if certificate is None else end_point_of(certificate)
