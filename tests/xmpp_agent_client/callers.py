"""Clients that call agents, on asyncio: one for each adapter."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import slixmpp

from xmpp_agent_client import Agents, slixmpp_plugin

LIMIT = 120.0  # seconds; a bound for a busy machine, not an expectation
Caller = Callable[..., AbstractAsyncContextManager[Agents]]


@asynccontextmanager
async def slixmpp_caller(
    jid: str, password: str, host: str, port: int, ca_file: Path | None
) -> AsyncIterator[Agents]:
    """Log in with slixmpp, which connects again when the stream has ended."""
    xmpp = slixmpp.ClientXMPP(jid, password)
    xmpp.enable_direct_tls = False
    xmpp.ca_certs = ca_file
    agents = slixmpp_plugin.register(xmpp)

    def connect(_event: object = None) -> None:
        xmpp.connect(host, port)

    xmpp.add_event_handler("session_start", lambda _: xmpp.send_presence())
    xmpp.add_event_handler("disconnected", connect)
    connect()
    async with asyncio.timeout(LIMIT):
        await xmpp.wait_until("session_start", LIMIT)
    try:
        yield agents
    finally:
        xmpp.del_event_handler("disconnected", connect)
        await xmpp.disconnect(wait=2.0)


@asynccontextmanager
async def aioxmpp_caller(
    jid: str, password: str, host: str, port: int, ca_file: Path | None
) -> AsyncIterator[Agents]:
    """Log in with aioxmpp."""
    import aioxmpp
    import aioxmpp.connector
    import aioxmpp.security_layer
    from OpenSSL import SSL

    from xmpp_agent_client.aioxmpp_service import AgentsService

    def context() -> Any:
        made = aioxmpp.security_layer.default_ssl_context()
        made.load_verify_locations(str(ca_file))
        return made

    layer = aioxmpp.make_security_layer(password)._replace(ssl_context_factory=context)
    client = aioxmpp.PresenceManagedClient(
        aioxmpp.JID.fromstr(jid),
        layer,
        override_peer=[(host, port, aioxmpp.connector.STARTTLSConnector())],
    )
    client.backoff_start = timedelta(seconds=0.05)
    agents = client.summon(AgentsService)
    established = asyncio.Event()
    client.on_stream_established.connect(established.set)

    def restart(_error: object) -> None:
        asyncio.get_running_loop().call_soon(client.start)

    # It connects again by itself, unless TLS ends without a closing message.
    client.on_failure.connect(restart)
    loop = asyncio.get_running_loop()
    handler = loop.get_exception_handler()
    assert handler is not None, "that of the test runner"

    def without_failures(loop: Any, context: dict[str, Any]) -> None:
        if not isinstance(context.get("exception"), SSL.Error):
            handler(loop, context)

    loop.set_exception_handler(without_failures)
    client.presence = aioxmpp.PresenceState(available=True)
    await established.wait()
    try:
        yield agents
    finally:
        stopped = asyncio.Event()
        client.on_stopped.connect(stopped.set)
        client.stop()
        await stopped.wait()
        loop.set_exception_handler(handler)


CALLERS: dict[str, Caller] = {"slixmpp": slixmpp_caller, "aioxmpp": aioxmpp_caller}
