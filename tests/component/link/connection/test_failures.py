"""Each thing that can be wrong has its own code and a sentence that says what to do."""

import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from component.link.connection.failure import ConnectionFailed
from component.link.connection.probe import probe_once
from tests.component.link.connection.acceptor import DOMAIN, SECRET, Acceptor, Link
from tests.component.link.connection.running import TIMEOUT_S, settings_for
from xep.stream import Condition

pytestmark = [pytest.mark.anyio, pytest.mark.ports]

Act = Callable[[Link], Awaitable[None]]


@pytest.fixture(autouse=True)
def _probes_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Link, "loops_back", False)


@asynccontextmanager
async def acting(server: Acceptor, act: Act) -> AsyncIterator[None]:
    async def serve() -> None:
        await act(await server.accept())

    with anyio.fail_after(TIMEOUT_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve)
            yield
            tasks.cancel_scope.cancel()


async def failure_of(server: Acceptor, act: Act, **changes: Any) -> ConnectionFailed:
    async with acting(server, act):
        with pytest.raises(ConnectionFailed) as caught:
            await probe_once(settings_for(server, **changes))
    assert SECRET not in str(caught.value)
    return caught.value


async def says_nothing(link: Link) -> None:
    await anyio.sleep_forever()


async def test_a_closed_port_fails_as_a_refused_connection() -> None:
    with Acceptor() as server:
        server.deafen()
        with pytest.raises(ConnectionFailed, match="refuses connections: start the XMPP") as caught:
            await probe_once(settings_for(server))
        assert caught.value.code == "refused"
        assert f"127.0.0.1:{server.port}" in str(caught.value)


@pytest.mark.parametrize("host", ["no-such-host.invalid", "not..a.name"])
async def test_a_host_without_an_address_fails_as_unresolved(host: str) -> None:
    with Acceptor() as server:
        with pytest.raises(ConnectionFailed, match="does not resolve") as caught:
            await probe_once(settings_for(server, host=host))
        assert caught.value.code == "unresolved"


async def test_dropped_packets_fail_as_a_timeout() -> None:
    # A full backlog drops what would open a connection, like a firewall.
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        fillers = []
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
            fillers.append(filler)
        with Acceptor() as server:
            options = settings_for(server, port=listener.getsockname()[1], connect_timeout_s=0.05)
            with pytest.raises(ConnectionFailed, match=r"a connection within 0\.05 s") as caught:
                await probe_once(options)
            assert caught.value.code == "timeout"
        for filler in fillers:
            filler.close()


async def test_the_next_address_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    with Acceptor() as server:
        addresses = [("127.0.0.1", 1), (server.host, server.port)]

        async def resolve(*_: Any, **__: Any) -> list[Any]:
            return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", address) for address in addresses]

        monkeypatch.setattr(anyio, "getaddrinfo", resolve)

        async def refuse(link: Link) -> None:
            await link.event()
            await link.refuse("conflict")

        assert (await failure_of(server, refuse)).code == "conflict"


REFUSALS: dict[Condition, tuple[str, str]] = {
    "host-unknown": ("host-unknown", f"has no component {DOMAIN}: add it"),
    "not-authorized": ("not-authorized", "secret differs from the server's, or, as ejabberd"),
    "conflict": ("conflict", "Another process is connected"),
    "system-shutdown": ("system-shutdown", "is shutting down and says 'the words'"),
    "resource-constraint": ("stream-error", "with resource-constraint and says 'the words'"),
}


@pytest.mark.parametrize("condition", REFUSALS)
@pytest.mark.parametrize("after_proof", [False, True])
async def test_each_refusal_of_the_server_has_its_code_and_sentence(
    condition: Condition, after_proof: bool
) -> None:
    async def refuse(link: Link) -> None:
        await link.event()
        if after_proof:
            await link.send(link.stream.open("stream-id", SECRET))
            await link.event()
        await link.refuse(condition, "the words")

    with Acceptor() as server:
        failure = await failure_of(server, refuse)
        code, sentence = REFUSALS[condition]
        assert failure.code == code
        assert sentence in str(failure)


async def test_a_refusal_is_known_though_the_server_closed_before_it_got_the_proof() -> None:
    async def refuse(link: Link) -> None:
        await link.event()
        header = link.stream.open("stream-id", SECRET)
        await link.send(header + link.stream.fail("not-authorized"))
        link.reset()

    with Acceptor() as server:
        assert (await failure_of(server, refuse)).code in ("not-authorized", "closed")


async def test_prosody_refuses_an_unknown_host_under_a_header_without_id() -> None:
    async def refuse(link: Link) -> None:
        await link.event()
        await link.send(
            "<?xml version='1.0'?><stream:stream xmlns:stream='http://etherx.jabber.org/streams' "
            "xmlns='jabber:component:accept' version='1.0' id=''>"
            "<stream:error><host-unknown xmlns='urn:ietf:params:xml:ns:xmpp-streams'/>"
            "<text xmlns='urn:ietf:params:xml:ns:xmpp-streams'>x does not match any</text>"
            "</stream:error></stream:stream>"
        )
        link.close()

    with Acceptor() as server:
        assert (await failure_of(server, refuse)).code == "host-unknown"


async def test_a_header_without_id_and_nothing_behind_it_gets_no_proof() -> None:
    async def withhold(link: Link) -> None:
        await link.event()
        await link.send(
            "<?xml version='1.0'?><stream:stream xmlns:stream='http://etherx.jabber.org/streams' "
            "xmlns='jabber:component:accept'>"
        )
        await link.ended()

    with Acceptor() as server:
        failure = await failure_of(server, withhold, connect_timeout_s=0.5)
        assert failure.code == "handshake-timeout"
        assert b"<handshake" not in server.links[0].received


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_the_server_closes_before_the_handshake_is_done(how: str) -> None:
    async def leave(link: Link) -> None:
        await link.event()
        getattr(link, how)()

    with Acceptor() as server:
        failure = await failure_of(server, leave)
        assert failure.code == "closed"
        assert "before the handshake was done" in str(failure)


async def test_the_server_speaks_something_else() -> None:
    async def speak(link: Link) -> None:
        await link.send("HTTP/1.1 400 Bad Request\r\n\r\n")
        await link.ended()

    with Acceptor() as server:
        failure = await failure_of(server, speak)
        assert failure.code == "bad-xml"
        assert "component (XEP-0114) listener, without TLS" in str(failure)


async def test_the_server_says_nothing() -> None:
    with Acceptor() as server:
        failure = await failure_of(server, says_nothing, connect_timeout_s=0.5)
        assert failure.code == "handshake-timeout"
        assert "within 0.5 s" in str(failure)


async def test_an_iq_to_oneself_does_not_come_back() -> None:
    async def swallow(link: Link) -> None:
        await link.handshake()
        await link.ended()

    with Acceptor() as server:
        failure = await failure_of(server, swallow, probe_timeout_s=0.02)
        assert failure.code == "silent"
        assert "does not route this component's stanzas" in str(failure)


async def test_an_iq_to_oneself_is_answered_with_an_error_instead() -> None:
    async def bounce(link: Link) -> None:
        await link.handshake()
        probe = await link.stanza()
        await link.send(f"<iq type='error' id='{probe.id}' from='{DOMAIN}' to='{DOMAIN}'/>")
        await link.ended()

    with Acceptor() as server:
        assert (await failure_of(server, bounce)).code == "silent"


async def test_the_stream_ends_while_the_probe_is_out() -> None:
    async def shut_down(link: Link) -> None:
        await link.handshake()
        await link.refuse("system-shutdown")

    with Acceptor() as server:
        assert (await failure_of(server, shut_down)).code == "system-shutdown"


@pytest.mark.parametrize("polite", [True, False])
async def test_a_probe_tells_what_it_saw_and_closes_properly(polite: bool) -> None:
    async def loop_back(link: Link) -> None:
        await link.handshake()
        await link.stanza()  # that one came out at another instance
        probe = await link.stanza()
        await link.send(
            f"<message from='x@y.test' to='{DOMAIN}'/>"
            f"<iq type='get' id='{probe.id}' from='{DOMAIN}' to='{DOMAIN}'>"
            "<ping xmlns='urn:xmpp:ping'/></iq>"
        )
        await link.event()
        if polite:
            await link.send(link.stream.close())
        else:
            link.close()

    with Acceptor() as server:
        async with acting(server, loop_back):
            facts = await probe_once(settings_for(server, probe_timeout_s=1.0))
        assert facts.address == f"127.0.0.1:{server.port}"
        assert facts.tls is None
        assert min(facts.connect_s, facts.handshake_s, facts.round_trip_s) >= 0
        assert bytes(server.links[0].received).endswith(b"</stream:stream>")
