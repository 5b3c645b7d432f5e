"""The server over real sockets: where it listens, whom it lets in, and what one peer may cost."""

from collections.abc import AsyncIterator

import anyio
import pytest
import structlog.testing
from anyio.abc import SocketAttribute
from hypothesis import given
from hypothesis import strategies as st

from demo_server import DemoServer
from tests.demo_server.peers import AGENT, LIMIT, connect, connect_component, new_server
from tests.demo_server.test_c2s import HEADER, STARTTLS, plain
from xep.component_stream import ComponentStream, HandshakeAccepted
from xep.stanza_stream import StreamErrorReceived
from xep.stream import StreamClosed

pytestmark = pytest.mark.anyio


@pytest.fixture
async def server() -> AsyncIterator[DemoServer]:
    with anyio.fail_after(3 * LIMIT):
        async with new_server() as running:
            yield running


# Where it listens.


@pytest.mark.parametrize("address", ["0.0.0.0", "192.168.0.1", "::", "::ffff:8.8.8.8", "localhost"])
def test_an_address_that_others_can_reach_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match=r"this machine.*127\.0\.0\.1.*::1"):
        DemoServer(address=address)


async def test_it_listens_where_it_says_and_no_longer_than_it_says() -> None:
    async with new_server(address="127.0.0.2") as server:
        ports = server.c2s_port, server.component_port
        assert 0 not in ports
        ca_file = server.ca_file
        assert ca_file is not None
        assert ca_file.exists()
        for port in ports:
            async with await anyio.connect_tcp("127.0.0.2", port) as stream:
                assert stream.extra(SocketAttribute.remote_address)[0] == "127.0.0.2"
            with pytest.raises(OSError, match="connect"):
                await anyio.connect_tcp("127.0.0.1", port)
    assert not ca_file.exists()
    with pytest.raises(OSError, match="connect"):
        await anyio.connect_tcp("127.0.0.2", ports[0])


async def test_it_can_run_in_a_task_of_the_caller() -> None:
    server = new_server()
    async with anyio.create_task_group() as group:
        await group.start(server.run)
        async with connect(server.c2s_port) as raw:
            await raw.says(HEADER, until="</stream:features>")
        group.cancel_scope.cancel()


async def test_a_port_that_is_taken_is_reported(server: DemoServer) -> None:
    with pytest.RaisesGroup(OSError, flatten_subgroups=True, allow_unwrapped=True):
        async with new_server(c2s_port=server.c2s_port):
            pass


# Clients.


async def test_a_client_logs_in_over_tls_that_it_verifies(server: DemoServer) -> None:
    async with connect(server.c2s_port) as raw:
        await raw.log_in(server, "juliet", "pässword", "balcony")
        answer = await raw.says(
            "<iq type='get' id='1'><ping xmlns='urn:xmpp:ping'/></iq>", until="<iq [^>]*/>"
        )
        assert "type='result'" in answer
        assert (await raw.says("</stream:stream>", until="</stream:stream>")) == "</stream:stream>"


async def test_the_second_login_with_a_resource_ends_the_first(server: DemoServer) -> None:
    async with connect(server.c2s_port) as first, connect(server.c2s_port) as second:
        await first.log_in(server, "juliet", "pässword", "balcony")
        await second.log_in(server, "juliet", "pässword", "balcony")
        assert "<conflict " in await first.hears("</stream:stream>")
        await second.says(
            "<message to='juliet@localhost/balcony'/>", until="<message [^>]*balcony[^>]*/>"
        )


async def test_nothing_is_routed_before_a_resource_is_bound(server: DemoServer) -> None:
    async with connect(server.c2s_port) as raw:
        await raw.start_tls(str(server.ca_file))
        await raw.says(HEADER, until="</stream:features>")
        await raw.says(plain("\0juliet\0pässword"), until="<success[^>]*>(</success>)?")
        await raw.says(HEADER, until="</stream:features>")
        answer = await raw.says(
            "<iq type='set' id='1'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'>"
            "<resource>&#x85;</resource></bind></iq>",
            until="</iq>",
        )
        assert "<bad-request" in answer
        answer = await raw.says("<presence/>", until="</stream:stream>")
        assert "<not-authorized" in answer


async def test_a_request_that_is_too_big_is_answered_and_the_stream_goes_on(
    server: DemoServer,
) -> None:
    async with connect(server.c2s_port) as raw:
        await raw.log_in(server, "juliet", "pässword", "balcony")
        big = f"<iq type='set' id='7' to='{AGENT}'><q xmlns='a'>{'x' * 300_000}</q></iq>"
        answer = await raw.says(big, until="</iq>")
        assert "id='7'" in answer
        assert "<policy-violation" in answer
        await raw.says(
            "<iq type='get' id='8'><ping xmlns='urn:xmpp:ping'/></iq>", until="id='8'[^>]*/>"
        )


# Components.


async def test_a_component_and_a_client_talk(server: DemoServer) -> None:
    async with connect_component(server) as component, connect(server.c2s_port) as raw:
        assert isinstance(await component.log_in(), HandshakeAccepted)
        await raw.log_in(server, "juliet", "pässword", "balcony")
        await raw.says(f"<iq type='get' id='1' to='{AGENT}'><q xmlns='a'><b>c</b></q></iq>")
        request = await component.stanza()
        assert (request.sender, request.to) == ("juliet@localhost/balcony", AGENT)
        assert request.payload_names == ["{a}q"]
        await component.says(
            f"<iq type='result' id='1' from='{AGENT}' to='{request.sender}'><q xmlns='a'/></iq>"
        )
        assert "<q xmlns='a'/></iq>" in await raw.hears("</iq>")
        await component.says(f"<iq type='get' id='2' from='{AGENT}' to='{AGENT}'><a/></iq>")
        assert (await component.stanza()).id == "2"
        await component.stream.send(component.xmpp.close())
        await component.next(StreamClosed)
        answer = await raw.says(
            f"<iq type='get' id='3' to='{AGENT}'><q xmlns='a'/></iq>", until="</iq>"
        )
        assert "remote-server-timeout" in answer
    async with connect_component(server) as component:
        assert isinstance(await component.log_in(), HandshakeAccepted)


@pytest.mark.parametrize(
    ("domain", "secret", "condition"),
    [
        ("other.localhost", "secret", "host-unknown"),
        ("@@", "secret", "host-unknown"),
        (AGENT, "guess", "not-authorized"),
        (AGENT, "secret", "conflict"),
    ],
)
async def test_a_component_that_is_refused_hears_why(
    server: DemoServer, domain: str, secret: str, condition: str
) -> None:
    async with (
        connect_component(server) as first,
        connect_component(server, domain, secret) as second,
    ):
        await first.log_in()
        answer = await second.log_in()
        assert isinstance(answer, StreamErrorReceived)
        assert answer.error.condition == condition
        await first.says(f"<iq type='get' id='1' from='{AGENT}' to='{AGENT}'><a/></iq>")
        assert (await first.stanza()).id == "1"


@pytest.mark.parametrize("data", [b"<handshake>00</handshake>", b"<message/>", b"</stream:stream>"])
async def test_a_component_that_does_not_wait_is_refused(server: DemoServer, data: bytes) -> None:
    with structlog.testing.capture_logs() as logs:
        async with connect(server.component_port) as raw:
            await raw.says(ComponentStream(AGENT, "secret").open() + data)
            assert (await raw.rest()).endswith("</stream:stream>")
    assert logs == []


@pytest.mark.parametrize(
    ("addresses", "condition"),
    [
        ("to='juliet@localhost'", "invalid-from"),
        ("from='localhost' to='juliet@localhost'", "invalid-from"),
        ("from='romeo@localhost' to='juliet@localhost'", "invalid-from"),
        (f"from='@{AGENT}' to='juliet@localhost'", "invalid-from"),
        (f"from='{AGENT}'", "improper-addressing"),
    ],
)
async def test_a_component_speaks_for_its_domain_alone(
    server: DemoServer, addresses: str, condition: str
) -> None:
    async with connect_component(server) as component:
        await component.log_in()
        await component.says(f"<message {addresses}/>")
        error = await component.next(StreamErrorReceived)
        assert isinstance(error, StreamErrorReceived)
        assert error.error.condition == condition


# What one peer may cost the others.


async def test_what_cannot_be_parsed_costs_a_component_the_stanza(server: DemoServer) -> None:
    async with connect_component(server) as component:
        await component.log_in()
        for content in ("<a:b/>", "\1", "<a xmlns='http://www.w3.org/XML/1998/namespace'/>"):
            await component.says(
                f"<iq type='get' id='1' from='{AGENT}' to='localhost'>{content}</iq>"
            )
            answer = await component.stanza()
            assert (answer.type, answer.error().condition) == ("error", "bad-request")
        await component.says(f"<iq type='get' id='2' from='{AGENT}' to='{AGENT}'><a/></iq>")
        assert (await component.stanza()).id == "2"


async def test_what_cannot_be_parsed_costs_a_client_its_stream(server: DemoServer) -> None:
    async with connect(server.c2s_port) as raw:
        await raw.log_in(server, "juliet", "pässword", "here")
        await raw.says("<message><a:b/></message>")
        assert "<not-well-formed" in await raw.rest()


async def test_a_peer_that_does_not_read_is_cut_off_and_delays_nobody() -> None:
    async with new_server(max_output=100_000) as server, connect(server.c2s_port) as slow:
        await slow.log_in(server, "juliet", "pässword", "slow")
        async with connect(server.c2s_port) as other:
            await other.log_in(server, "romeo", "r", "quick")
            body = f"<body>{'x' * 50_000}</body>"
            with anyio.fail_after(3 * LIMIT):
                bounced = False
                while not bounced:  # the kernel's buffers take the first ones
                    await other.says(
                        f"<message type='chat' to='juliet@localhost/slow'>{body}</message>"
                        "<iq type='get' id='1'><ping xmlns='urn:xmpp:ping'/></iq>",
                    )
                    bounced = "service-unavailable" in await other.hears("<iq [^>]*/>")


async def test_what_is_said_last_arrives(server: DemoServer) -> None:
    # Much unread input must not turn the end of the stream into a reset connection.
    async with connect(server.c2s_port) as raw:
        await raw.says(HEADER + b"<message/>" + b" " * 200_000)
        assert (await raw.rest()).endswith("</stream:stream>")


async def test_the_tap_is_shown_stanzas_and_no_passwords() -> None:
    seen: list[tuple[str, str, str]] = []
    async with (
        new_server(tap=lambda *stanza: seen.append(stanza)) as server,
        connect_component(server) as component,
        connect(server.c2s_port) as raw,
    ):
        await component.log_in()
        await raw.log_in(server, "juliet", "pässword", "b")
        await raw.says(f"<message to='{AGENT}'><body>hi</body></message>")
        await component.stanza()
    body = "<body>hi</body></message>"
    assert seen == [
        ("received", "juliet@localhost/b", f"<message to='{AGENT}'>{body}"),
        ("sent", AGENT, f"<message to='{AGENT}' from='juliet@localhost/b'>{body}"),
    ]


@pytest.fixture(scope="module")
def hostile_inputs() -> list[bytes]:
    """Streams of clients and components, cut, doubled and spoiled."""
    made: list[bytes] = []
    parts = st.sampled_from(
        [
            HEADER,
            HEADER.replace(b"client", b"component:accept").replace(
                b"'localhost'", b"'agent.localhost'"
            ),
            STARTTLS,
            plain("\0juliet\0pässword"),
            b"<handshake>00</handshake>",
            b"<iq type='get' id='1'><a/></iq>",
            b"</stream:stream>",
            b"<!DOCTYPE a>",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        ]
    )

    @given(st.lists(parts | st.binary(max_size=30), max_size=6).map(b"".join), st.integers(0))
    def collect(data: bytes, at: int) -> None:
        made.append(data[: at % (len(data) + 1)] + data[at % (len(data) + 2) :])

    collect()
    return made


async def test_hostile_bytes_end_their_own_stream_alone(
    server: DemoServer, hostile_inputs: list[bytes]
) -> None:
    with structlog.testing.capture_logs() as logs:
        await survive(server, hostile_inputs)
    assert logs == []  # a fault of the server, caught at the last moment, is logged


async def survive(server: DemoServer, hostile_inputs: list[bytes]) -> None:
    async with connect_component(server) as component, connect(server.c2s_port) as client:
        await component.log_in()
        await client.log_in(server, "juliet", "pässword", "balcony")
        for data in hostile_inputs:
            for port in (server.c2s_port, server.component_port):
                async with connect(port) as raw:
                    await raw.says(data)
                    if port == server.c2s_port and len(data) % 2:
                        await raw.stream.send_eof()
                        await raw.rest()
        await client.says(f"<message to='{AGENT}' id='still here'/>")
        assert (await component.stanza()).id == "still here"
