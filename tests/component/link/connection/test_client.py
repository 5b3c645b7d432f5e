"""A client's connection: what is said and heard when it breaks, at any byte."""

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from component.link.connection import client
from component.link.connection.failure import ConnectionFailed
from component.link.connection.probe import probe_once
from component.link.messages.delivery import Delivery
from tests.component.link.connection.client_peer import attached, client_settings
from tests.xep.client_server import ACCOUNT, PASSWORD, Connection, Server
from xep.client_stream import ClientStream
from xep.jid import JID

pytestmark = [pytest.mark.anyio, pytest.mark.ports]

SAID = [f"said{number}" for number in range(6)]
PUSHED = [f"pushed{number}" for number in range(6)]


def message(id_: str, size: int = 0) -> str:
    return f"<message id='{id_}' to='a@b.c'><body>{'x' * size}</body></message>"


async def test_a_client_connection_logs_in_and_carries_stanzas_both_ways() -> None:
    async with attached(Server()) as (peer, it):
        await it.recorder.until(lambda: it.recorder.ups == 1)
        it.outbox.put(message("one"))
        await peer.until(lambda: peer.server.all[0].taken == ["one"])
        assert it.connection.address == f"{ACCOUNT}/agent"


@given(cuts=st.lists(st.tuples(st.integers(1, 4000), st.integers(1, 4000)), min_size=1, max_size=3))
@settings(deadline=None, max_examples=15)
async def test_nothing_is_lost_or_doubled_wherever_it_breaks(cuts: list[tuple[int, int]]) -> None:
    def begin(link: Connection) -> None:
        assert link.session is not None
        if not link.session.taken and not link.session.sent and not link.session.acknowledged:
            for id_ in PUSHED:
                link.push(id_)

    async with attached(Server(), cuts) as (peer, it):
        peer.on_session = begin
        for id_ in SAID:
            it.outbox.put(message(id_))
        await it.recorder.until(lambda: it.recorder.ids()[-len(PUSHED) :] == PUSHED)
        await peer.until(lambda: peer.server.all[-1].taken[-len(SAID) :] == SAID)
        taken = [id_ for each in peer.server.all for id_ in each.taken]
        # A session that broke before both knew of it cannot be resumed; each is whole by itself.
        if it.recorder.ups == 1:
            assert it.recorder.ids() == PUSHED
            assert it.recorder.downs == []
        assert taken == SAID
        assert it.recorder.lost == []


async def test_a_session_that_is_resumed_is_no_new_one() -> None:
    async with attached(Server(), [(1 << 30, 5000)]) as (peer, it):
        await it.recorder.until(lambda: it.recorder.ups == 1)
        for number in range(100):
            it.outbox.put(message(str(number)))
            await it.connection.handled()
        await peer.until(lambda: len(peer.server.all[0].taken) == 100)
        assert len(peer.links) == 2
        assert (it.recorder.ups, it.recorder.downs) == (1, [])


async def test_what_a_lost_session_did_not_acknowledge_is_reported() -> None:
    async with attached(Server()) as (peer, it):
        await it.recorder.until(lambda: it.recorder.ups == 1)
        link = peer.links[0]
        link._management = lambda name, element: None  # type: ignore[method-assign] # says nothing
        link.receive = lambda data: None  # type: ignore[method-assign]
        delivery = Delivery()
        it.outbox.put(message("gone"), delivery)
        assert await delivery.settled()
        peer.server.sessions.clear()
        link.over = True
        it.outbox.put(message("more"))
        await it.recorder.until(lambda: it.recorder.ups == 2)
        assert len(it.recorder.downs) == 1
        (lost,) = it.recorder.lost
        assert lost[1] is False
        assert lost[0][0] == message("gone").encode()


async def test_acknowledged_waits_for_the_server() -> None:
    async with attached(Server()) as (peer, it):
        await it.recorder.until(lambda: it.recorder.ups == 1)
        held: list[bytes] = []
        link = peer.links[0]
        receive = link.receive
        link.receive = held.append  # type: ignore[method-assign]
        delivery = Delivery()
        it.outbox.put(message("one"), delivery)
        await delivery.settled()
        acknowledged = anyio.Event()

        async def wait() -> None:
            await it.connection.handled()
            acknowledged.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await peer.until(lambda: bool(held))
            assert not acknowledged.is_set()
            link.receive = receive  # type: ignore[method-assign]
            receive(b"".join(held))
            it.outbox.put(message("two"))  # the server speaks when it is spoken to
            await acknowledged.wait()


async def test_a_server_that_acknowledges_nothing_stops_the_output(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client, "_WINDOW_BYTES", 1000)
    async with attached(Server(), limit_bytes=1 << 16) as (peer, it):
        await it.recorder.until(lambda: it.recorder.ups == 1)
        link = peer.links[0]
        link._management = lambda name, element: None  # type: ignore[method-assign] # says nothing
        it.outbox.put(message("big", 2000))
        await peer.until(lambda: peer.server.all[0].taken == ["big"])
        it.outbox.put(message("waits"))
        await anyio.wait_all_tasks_blocked()
        assert it.outbox.waiting_bytes == len(message("waits"))
        await peer.streams[0].send(b"<a xmlns='urn:xmpp:sm:3' h='1'/>")
        await peer.until(lambda: peer.server.all[0].taken == ["big", "waits"])


async def test_without_stream_management_what_the_kernel_took_is_gone() -> None:
    async with attached(Server(managed=False), [(1 << 30, 1200)]) as (peer, it):
        await it.recorder.until(lambda: it.recorder.ups == 1)
        for number in range(30):
            it.outbox.put(message(str(number)))
        await it.recorder.until(lambda: it.recorder.ups == 2)
        assert len(it.recorder.downs) == 1
        it.outbox.put(message("last"))
        await peer.until(lambda: peer.server.all[-1].taken[-1:] == ["last"])


async def test_a_wrong_password_is_a_sentence() -> None:
    server = Server(password="another")
    async with attached(server) as (peer, _):
        with pytest.raises(ConnectionFailed, match=f"refused the login of {ACCOUNT}") as caught:
            await probe_once(client_settings(peer.port))
        assert PASSWORD not in str(caught.value)


async def test_client_mode_without_its_extra_names_the_package_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client, "find_spec", lambda _name: None)
    async with attached(Server()) as (peer, _):
        with pytest.raises(ConnectionFailed, match=r"xmpp-agent-component\[client\]"):
            await probe_once(client_settings(peer.port))


def test_the_account_is_named_to_its_server_as_it_is_configured() -> None:
    address = "helper@xn--zrich-kva.test"
    client.ClientLink(client_settings(5222, address))
    stream = ClientStream(JID.parse(address), "s", secure=True)
    header = stream.open().decode()
    assert "to='xn--zrich-kva.test'" in header.replace('"', "'")
    assert f"from='{address}'" in header.replace('"', "'")
