"""Which servers a client tries: SRV records of a real name server on loopback."""

import socket
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import dns.asyncresolver
import dns.flags
import dns.message
import dns.rcode
import dns.rrset
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from component.config.server import Server
from component.link.connection import failure, srv
from component.link.connection.transport import connect

pytestmark = [pytest.mark.anyio, pytest.mark.ports]

_CLIENT = "_xmpp-client._tcp.example.org."
_DIRECT = "_xmpps-client._tcp.example.org."


@contextmanager
def name_server(records: Mapping[str, list[str]]) -> Iterator[dns.asyncresolver.Resolver]:
    """A resolver whose name server has these SRV records and no others."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            data, client = sock.recvfrom(4096)
            if not data:
                return
            query = dns.message.from_wire(data)
            name = query.question[0].name.to_text()
            answer = dns.message.make_response(query)
            answer.flags |= dns.flags.RA
            if name in records:
                answer.answer.append(dns.rrset.from_text(name, 60, "IN", "SRV", *records[name]))
            else:
                answer.set_rcode(dns.rcode.NXDOMAIN)
            sock.sendto(answer.to_wire(), client)

    thread = threading.Thread(target=serve)
    thread.start()
    resolver = dns.asyncresolver.Resolver(configure=False)
    resolver.nameservers = ["127.0.0.1"]
    resolver.port = sock.getsockname()[1]
    try:
        yield resolver
    finally:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
            end.sendto(b"", ("127.0.0.1", resolver.port))
        thread.join()
        sock.close()


async def test_servers_in_order_of_priority_and_kind() -> None:
    records = {
        _CLIENT: ["20 0 5222 c.example.org.", "5 0 5222 a.example.org."],
        _DIRECT: ["10 0 443 b.example.org."],
    }
    with name_server(records) as resolver:
        found = await srv.look_up("example.org", resolver)
    assert found == [
        srv.Target("a.example.org", 5222, direct_tls=False),
        srv.Target("b.example.org", 443, direct_tls=True),
        srv.Target("c.example.org", 5222, direct_tls=False),
    ]


async def test_without_records_there_is_nothing_to_try() -> None:
    with name_server({}) as resolver:
        assert await srv.look_up("example.org", resolver) == []


async def test_a_service_that_is_not_offered_is_left_out() -> None:
    records = {_DIRECT: ["0 0 0 ."], _CLIENT: ["0 0 5222 a.example.org."]}
    with name_server(records) as resolver:
        (found,) = await srv.look_up("example.org", resolver)
    assert not found.direct_tls


async def test_a_domain_that_offers_no_service_is_an_error() -> None:
    with (
        name_server({_CLIENT: ["0 0 0 ."]}) as resolver,
        pytest.raises(srv.NotOfferedError, match=r"example\.org offers no service"),
    ):
        await srv.look_up("example.org", resolver)


async def test_a_silent_name_server_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(srv, "_LIFETIME_S", 0.2)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        resolver = dns.asyncresolver.Resolver(configure=False)
        resolver.nameservers = ["127.0.0.1"]
        resolver.port = silent.getsockname()[1]
        with pytest.raises(srv.LookupFailedError):
            await srv.look_up("example.org", resolver)


async def test_weights_are_chances() -> None:
    records = {_CLIENT: ["0 30 1 a.", "0 10 2 b.", "0 0 3 c."]}
    first: Counter[str] = Counter()
    with name_server(records) as resolver:
        for draw in range(41):
            found = await srv.look_up("example.org", resolver, lambda draw=draw: draw / 41)  # type: ignore[misc]
            assert {each.host for each in found} == set("abc")
            first[found[0].host] += 1
    assert first == {"a": 30, "b": 10, "c": 1}


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 65535)), max_size=8),
    st.lists(st.floats(0, 1, exclude_max=True), min_size=1),
)
def test_each_server_is_tried_once_and_priorities_come_first(
    records: list[tuple[int, int]], draws: list[float]
) -> None:
    class Record:
        def __init__(self, priority: int, weight: int) -> None:
            self.priority, self.weight = priority, weight

    made = [(Record(*each), False) for each in records]
    chances = iter(draws * (len(records) + 1))
    ordered = srv._in_order(made, lambda: next(chances))  # type: ignore[arg-type]
    assert sorted(map(id, ordered)) == sorted(map(id, made))
    priorities = [record.priority for record, _ in ordered]
    assert priorities == sorted(priorities)


@pytest.fixture
def section() -> Server:
    return Server(
        mode="client",
        host="127.0.0.1",
        port=9,
        jid="helper@example.org",
        password=SecretStr("geheim"),
        srv=True,
    )


async def test_the_next_server_is_tried_when_one_refuses(
    section: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket() as refusing:
        refusing.bind(("127.0.0.1", 0))
        ports = refusing.getsockname()[1], listening.getsockname()[1]
        records = {_CLIENT: [f"{at} 0 {port} localhost." for at, port in enumerate(ports)]}
        with name_server(records) as resolver:
            monkeypatch.setattr(dns.asyncresolver, "default_resolver", resolver)
            transport = await connect(section)
        assert transport.peer == f"127.0.0.1:{ports[1]}"
        transport.close()


async def test_a_refusal_in_dns_is_a_sentence(
    section: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with name_server({_CLIENT: ["0 0 0 ."]}) as resolver:
        monkeypatch.setattr(dns.asyncresolver, "default_resolver", resolver)
        with pytest.raises(failure.ConnectionFailed, match=r"says in DNS that it has no server"):
            await connect(section)


async def test_without_records_the_domain_is_the_server(
    section: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening, name_server({}) as resolver:
        monkeypatch.setattr(dns.asyncresolver, "default_resolver", resolver)
        port = listening.getsockname()[1]
        transport = await connect(section.model_copy(update={"port": port}))
        assert transport.peer == f"127.0.0.1:{port}"
        transport.close()
