"""The transport, plain and under TLS: both ways at once, slowly, cut anywhere."""

import contextlib
import fcntl
import socket
import ssl
import sys
from collections.abc import Iterator
from typing import Any

import anyio
import pytest
import trustme

from component.link.connection.failure import ConnectionFailed
from component.link.connection.transport import Transport, connect
from component.link.messages.outbox import Outbox, OutputStream
from tests.component.link.connection.acceptor import Acceptor, Link
from tests.component.link.connection.running import TIMEOUT_S, iq, running, settings_for

pytestmark = [pytest.mark.anyio, pytest.mark.ports]

_SIOCOUTQNSD = 0x894B
"""How many bytes the kernel has not sent yet (Linux)."""


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def ca_file(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("ca") / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    return str(path)


def serving(authority: trustme.CA, name: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    return context


@pytest.fixture(params=["plain", "TLSv1.2", "TLSv1.3"])
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@contextlib.contextmanager
def listening(authority: trustme.CA, version: str) -> Iterator[Acceptor]:
    context = None
    if version != "plain":
        context = serving(authority, "127.0.0.1")
        context.maximum_version = ssl.TLSVersion[version.replace(".", "_")]
    with Acceptor(tls=context, receive_buffer=4096) as server:
        yield server


@contextlib.contextmanager
def closing(transport: Transport) -> Iterator[Transport]:
    try:
        yield transport
    finally:
        transport.close()


async def both_ends(server: Acceptor, ca_file: str, version: str) -> tuple[Transport, Link]:
    tls = {} if version == "plain" else {"tls_ca": ca_file}
    links: list[Link] = []

    async def accept() -> None:
        links.append(await server.accept())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(accept)
        transport = await connect(settings_for(server, **tls))
    assert transport.tls_version == (version if tls else None)
    return transport, links[0]


async def test_bytes_go_both_ways_at_once_whatever_the_pace(
    authority: trustme.CA, ca_file: str, version: str
) -> None:
    out = b"".join(b"%07d " % n for n in range(250_000))
    back = b"".join(b"%07d|" % n for n in range(250_000))
    with listening(authority, version) as server, anyio.fail_after(TIMEOUT_S):
        transport, link = await both_ends(server, ca_file, version)
        with closing(transport):
            arrived = bytearray()

            async def write() -> None:
                rest = memoryview(out)
                while rest:
                    # What is offered changes from call to call, as it does in an outbox.
                    sent = transport.try_send(rest[: 30_000 + len(rest) % 1000])
                    rest = rest[sent:]
                    if not sent:
                        await transport.wait_sendable()

            async def read() -> None:
                while len(arrived) < len(back):
                    arrived.extend(await transport.receive(5000))

            async def server_reads() -> None:
                while len(link.received) < len(out):
                    await link.receive()

            async with anyio.create_task_group() as tasks:
                for work in (write, read, server_reads):
                    tasks.start_soon(work)
                await link.send(back)
            assert arrived == back
            assert link.received == out


async def test_a_full_kernel_takes_nothing_and_then_goes_on_where_it_was(
    authority: trustme.CA, ca_file: str, version: str
) -> None:
    with listening(authority, version) as server, anyio.fail_after(TIMEOUT_S):
        transport, link = await both_ends(server, ca_file, version)
        with closing(transport):
            outbox = Outbox(1 << 30)
            outbox.start(OutputStream())
            number = refused = waiting = 0
            while refused < 100:  # the other end's kernel takes its time to take things over
                if outbox.flush(transport.try_send):
                    outbox.put(f"<{number} {'x' * 10_000}>")
                    number += 1
                    refused = 0
                elif outbox.waiting_bytes == waiting:
                    refused += 1
                else:
                    waiting, refused = outbox.waiting_bytes, 0
                await anyio.lowlevel.checkpoint()
            assert not outbox.flush(transport.try_send)
            assert outbox.waiting_bytes == waiting
            # More is put behind what TLS may have begun to send.
            outbox.put(f"<{number} >")
            sent = b"".join(b"<%d %s>" % (n, b"x" * 10_000) for n in range(number))
            sent += b"<%d >" % number

            async def server_reads() -> None:
                while len(link.received) < len(sent):
                    await link.receive()

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(server_reads)
                while not outbox.flush(transport.try_send):
                    await transport.wait_sendable()
            assert link.received == sent


async def test_a_tls_record_that_was_begun_is_offered_again_in_its_own_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else OpenSSL could finish it, fail at the next, and report neither as sent."""
    offered: list[int] = []

    class Full:
        room = 0

        def send(self, data: memoryview) -> int:
            offered.append(len(data))
            if self.room < len(data):
                raise ssl.SSLWantWriteError
            self.room -= len(data)
            return len(data)

    with Acceptor() as server, socket.socket() as sock:
        transport, kernel = Transport(sock, settings_for(server)), Full()
        monkeypatch.setattr(transport, "_tls", kernel)
        assert transport.try_send(b"x" * 100) == 0
        kernel.room = 100
        assert transport.try_send(b"x" * 50_000) == 100
        kernel.room = 50_000
        assert transport.try_send(b"x" * 49_900) == 49_900
    assert offered == [100, 100, 16384, 16384, 16384, 16384, 748]


async def test_the_kernel_buffers_little_that_it_has_not_sent(
    authority: trustme.CA, ca_file: str, version: str
) -> None:
    """Its order cannot be changed any more, so others would wait behind it."""
    with listening(authority, version) as server:
        transport, link = await both_ends(server, ca_file, version)
        with closing(transport):
            while transport.try_send(b"x" * 65536):
                pass
            unsent = fcntl.ioctl(transport._socket, _SIOCOUTQNSD, bytes(4))
            assert int.from_bytes(unsent, sys.byteorder) < 4 * 65536
            link.close()


async def test_the_end_of_a_transport_reads_as_empty_bytes(
    authority: trustme.CA, ca_file: str, version: str
) -> None:
    with listening(authority, version) as server:
        transport, link = await both_ends(server, ca_file, version)
        with closing(transport):
            await link.send(b"last words")
            link.close()
            assert await transport.receive(100) == b"last words"
            assert await transport.receive(100) == b""


async def test_a_reset_is_a_failure_with_a_sentence(authority: trustme.CA, ca_file: str) -> None:
    with listening(authority, "plain") as server:
        transport, link = await both_ends(server, ca_file, "plain")
        with closing(transport):
            link.reset()
            with pytest.raises(ConnectionFailed, match=r"broke \(Connection reset") as caught:
                await transport.receive(100)
            assert caught.value.code == "lost"
            with pytest.raises(ConnectionFailed, match=r"broke \(Broken pipe"):
                transport.try_send(b"anything")


async def test_a_cancelled_receive_loses_nothing(
    authority: trustme.CA, ca_file: str, version: str
) -> None:
    with listening(authority, version) as server:
        transport, link = await both_ends(server, ca_file, version)
        with closing(transport):
            for number in range(20):
                with anyio.CancelScope() as scope:
                    scope.cancel()
                    await transport.receive(100)
                assert scope.cancelled_caught
                await link.send(b"%02d" % number)
                assert await transport.receive(100) == b"%02d" % number


async def test_receiving_lets_others_run_even_when_there_is_always_more(
    authority: trustme.CA, ca_file: str, version: str
) -> None:
    with listening(authority, version) as server:
        transport, link = await both_ends(server, ca_file, version)
        with closing(transport):
            await link.send(b"x" * 1000)
            turns = 0

            async def other() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await anyio.lowlevel.checkpoint()

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(other)
                for _ in range(100):
                    assert len(await transport.receive(10)) == 10
                tasks.cancel_scope.cancel()
            assert turns >= 50  # trio shuffles who comes first in a turn


@pytest.mark.parametrize(
    ("tls", "served", "sentence"),
    [
        ({}, "127.0.0.1", "unable to get local issuer certificate|self.signed certificate"),
        ({"tls_ca": "<ca>"}, "elsewhere.test", "IP address mismatch"),
        ({"tls_ca": "<ca>", "tls_server_name": "xmpp.test"}, "elsewhere.test", "Hostname mismatch"),
    ],
)
async def test_a_certificate_that_is_not_trusted_is_refused(
    authority: trustme.CA, ca_file: str, tls: dict[str, Any], served: str, sentence: str
) -> None:
    if tls:
        tls = tls | {"tls_ca": ca_file}
    with Acceptor(tls=serving(authority, served)) as server:

        async def accept() -> None:
            with contextlib.suppress(OSError):  # the component's alert, or its hanging up
                await server.accept()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(accept)
            with pytest.raises(ConnectionFailed, match=sentence) as caught:
                await connect(settings_for(server, tls=True, **tls))
        assert caught.value.code == "tls"
        assert "set the CA file" in str(caught.value)


@pytest.mark.parametrize(
    ("tls", "served"),
    [
        ({"tls_ca": "<ca>", "tls_server_name": "xmpp.test"}, "xmpp.test"),
        ({"tls_verify": False}, "elsewhere.test"),
    ],
)
async def test_the_server_name_and_verification_are_what_the_options_say(
    authority: trustme.CA, ca_file: str, tls: dict[str, Any], served: str
) -> None:
    tls = tls | {"tls_ca": ca_file}
    with Acceptor(tls=serving(authority, served)) as server:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.accept)
            (await connect(settings_for(server, tls=True, **tls))).close()


async def test_tls_towards_a_port_without_it() -> None:
    with Acceptor() as server:

        async def speak() -> None:
            link = await server.accept()
            await link.send("<?xml version='1.0'?><stream:stream/>")
            await link.ended()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(speak)
            with pytest.raises(ConnectionFailed, match="does not speak TLS: turn TLS off"):
                await connect(settings_for(server, tls=True))


async def test_a_ca_file_that_is_not_there() -> None:
    with (
        Acceptor() as server,
        pytest.raises(ConnectionFailed, match=r"CA file /nowhere/ca\.pem cannot be read"),
    ):
        await connect(settings_for(server, tls_ca="/nowhere/ca.pem"))


async def test_a_transport_can_be_closed_twice(
    authority: trustme.CA, ca_file: str, version: str
) -> None:
    with listening(authority, version) as server:
        transport, link = await both_ends(server, ca_file, version)
        transport.close()
        transport.close()
        transport.abort()
        await link.ended()


async def test_a_component_lives_on_tls(authority: trustme.CA, ca_file: str) -> None:
    with Acceptor(tls=serving(authority, "127.0.0.1")) as server:
        async with running(server, tls_ca=ca_file) as it:
            it.recorder.on_received = lambda _: it.outbox.put(iq("answer", 100_000))
            for round_ in range(1, 3):
                link = await server.component()
                await link.send(iq("question", 100_000))
                assert (await link.stanza()).id == "answer"
                link.close()
                await it.recorder.until(lambda n=round_: len(it.recorder.downs) == n)
            assert it.recorder.ids() == ["question", "question"]
