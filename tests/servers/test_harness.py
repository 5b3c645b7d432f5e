"""The harness itself: real servers start from the guides, and slixmpp talks through them."""

import contextlib
import gc
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tomllib
from pathlib import Path
from textwrap import indent
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from slixmpp import Iq

from tests.servers import ejabberd, guides, prosody, shipped
from tests.servers.base import PortLease, Server, ServerError
from tests.servers.clients import Element, PeerRefused, SlixComponent
from tests.servers.fixtures import ServerFactory
from tests.servers.talk import login

pytestmark = [pytest.mark.servers]

EXECUTE = (
    "<execute xmlns='urn:fluux:agent:0#execute' skill='echo'>"
    "<param name='text'>hello &amp; goodbye</param></execute>"
)
OUTPUT = ".//{urn:fluux:agent:0#execute}output"
PUBSUB = "http://jabber.org/protocol/pubsub"
PING = "<ping xmlns='urn:xmpp:ping'/>"


def component(server: Server, **changed: str) -> SlixComponent:
    login = {"domain": server.component_domain, "secret": server.secret, **changed}
    return SlixComponent(**login, host=server.address, port=server.component_port)


def condition(stanza: Element) -> str:
    error = stanza.find(".//{*}error")
    assert error is not None, "not an error"
    return error[0].tag.rpartition("}")[2]


def exchange(server: Server) -> None:
    """One IQ each way between a client and a component."""
    with component(server) as agent, login(server) as juliet:
        reply = juliet.iq(server.component_domain, EXECUTE, "set")
        assert reply.get("type") == "result"
        assert reply.get("from") == server.component_domain
        assert reply.findtext(OUTPUT) == "hello & goodbye"
        back = agent.iq(juliet.jid, PING, sender=server.component_domain)
        assert (back.get("type"), back.get("from")) == ("result", juliet.jid)


# What passes through a server.


def test_an_iq_passes_each_way(xmpp_server: Server) -> None:
    exchange(xmpp_server)


@pytest.mark.anyio
async def test_the_awaitable_face_works_on_both_loops(xmpp_server: Server) -> None:
    domain = xmpp_server.component_domain
    async with component(xmpp_server) as agent, login(xmpp_server) as juliet:
        reply = await juliet.aiq(domain, EXECUTE, "set")
        assert reply.findtext(OUTPUT) == "hello & goodbye"
        agent.send_raw(f"<message from='{domain}' to='{juliet.jid}'><body>hi</body></message>")
        assert (await juliet.anext_message()).findtext("{*}body") == "hi"
        agent.send_raw(f"<presence from='{domain}' to='{juliet.jid}'/>")
        came = {(await juliet.anext_presence()).get("from")}
        while domain not in came:  # other clients of hers may come or go meanwhile
            came.add((await juliet.anext_presence()).get("from"))
        assert juliet.jid in came


def test_starttls_with_the_certificate_of_the_server(xmpp_server: Server) -> None:
    with login(xmpp_server) as juliet:
        assert juliet.encrypted
        assert juliet.iq(None, PING).get("type") == "result"


def test_an_answer_lasts_as_long_as_the_client_that_got_it(xmpp_server: Server) -> None:
    async def answer(_: object) -> Any:
        said = (
            "<iq xmlns='jabber:client' xml:lang='en' type='result' id='1'>"
            f"<pubsub xmlns='{PUBSUB}'><subscription subscription='pending'/></pubsub></iq>"
        )
        return Iq(xml=ET.fromstring(said))

    with login(xmpp_server, plugins=("xep_0060",)) as juliet:
        part = juliet.run(answer)["pubsub"]
        gc.collect()
        assert part["subscription"]["subscription"] == "pending"


def test_two_accounts_write_to_each_other(xmpp_server: Server) -> None:
    with login(xmpp_server) as juliet, login(xmpp_server, "romeo") as romeo:
        juliet.send_raw(f"<message to='{romeo.jid}' type='chat'><body>1</body></message>")
        juliet.send_raw(f"<message to='{romeo.jid}' type='chat'><body>2</body></message>")
        second = romeo.messages.take(lambda message: message.findtext("{*}body") == "2")
        assert second.get("from") == juliet.jid
        assert romeo.next_message().findtext("{*}body") == "1"
        assert romeo.messages.all() == []


def test_the_echo_component_runs_as_a_process_of_its_own(xmpp_server: Server) -> None:
    where = [xmpp_server.component_domain, xmpp_server.address, str(xmpp_server.component_port)]
    with subprocess.Popen(
        [sys.executable, "-m", "tests.servers.slix_echo", *where],
        env={**os.environ, "AGENT_SECRET": xmpp_server.secret},
        stdout=subprocess.PIPE,
        text=True,
    ) as echo:
        try:
            assert echo.stdout is not None
            assert echo.stdout.readline() == "ready\n"
            with login(xmpp_server) as juliet:
                reply = juliet.iq(xmpp_server.component_domain, EXECUTE, "set")
                assert reply.findtext(OUTPUT) == "hello & goodbye"
        finally:
            echo.kill()


# What a server refuses: the sentences of the guides, and later of `doctor`, stand on these.


def test_a_wrong_secret_is_not_authorized(xmpp_server: Server) -> None:
    with pytest.raises(PeerRefused) as refused:
        component(xmpp_server, secret="wrong").connect()
    assert refused.value.condition == "not-authorized"


def test_a_server_rejects_a_wrong_password_as_not_authorized(xmpp_server: Server) -> None:
    with pytest.raises(PeerRefused) as refused:
        login(xmpp_server, password="wrong").connect()
    assert refused.value.condition == "not-authorized"


def test_an_unknown_domain_has_a_different_name_on_each_server(xmpp_server: Server) -> None:
    with pytest.raises(PeerRefused) as refused:
        component(xmpp_server, domain="stranger.test").connect()
    names = {"prosody": "host-unknown", "ejabberd": "not-authorized"}
    assert refused.value.condition == names[xmpp_server.name]


def test_prosody_refuses_a_second_connection(prosody_server: Server) -> None:
    with component(prosody_server):
        with pytest.raises(PeerRefused) as refused:
            component(prosody_server).connect()
        assert refused.value.condition == "conflict"


def test_ejabberd_accepts_a_second_connection(ejabberd_server: Server) -> None:
    with component(ejabberd_server) as first, component(ejabberd_server) as second:
        assert first.jid == second.jid


def test_what_callers_of_an_absent_component_see(xmpp_server: Server) -> None:
    with login(xmpp_server) as juliet:
        reply = juliet.iq(xmpp_server.component_domain, EXECUTE, "set")
    # ejabberd takes an absent component for another server's, and this one does not federate.
    names = {"prosody": "remote-server-timeout", "ejabberd": "forbidden"}
    assert condition(reply) == names[xmpp_server.name]


# Starting, stopping, crashing.


def test_a_killed_server_starts_again_with_its_accounts(make_server: ServerFactory) -> None:
    server = make_server()
    agent = component(server).connect()
    juliet = login(server).connect()
    first, ports = server.pid, (server.c2s_port, server.component_port)
    server.kill()
    assert agent.wait_closed() == ""
    with pytest.raises(ConnectionError):
        juliet.iq(server.component_domain, EXECUTE, "set")
    agent.close()
    juliet.close()
    with pytest.raises(ConnectionError):
        component(server).connect()
    server.start()
    assert server.pid != first
    assert (server.c2s_port, server.component_port) == ports
    exchange(server)
    server.restart()
    exchange(server)
    assert server.cpu_seconds() > 0
    server.stop()
    with pytest.raises(ServerError, match="not running"):
        _ = server.pid


def test_a_request_in_flight_fails_with_the_connection(make_prosody: ServerFactory) -> None:
    server = make_prosody()
    with login(server) as juliet:
        os.kill(server.pid, signal.SIGSTOP)  # so that nobody answers
        waiting = juliet.start_iq(server.component_domain, EXECUTE, "set")
        server.kill()
        with pytest.raises(ConnectionError):
            waiting.result(120)


def test_two_servers_and_another_host_live_side_by_side(make_server: ServerFactory) -> None:
    servers = [make_server(host="a.test"), make_server(host="b.test", address="127.0.0.2")]
    for server in servers:
        exchange(server)


def test_an_open_port_for_other_servers(make_server: ServerFactory) -> None:
    lease = PortLease("127.0.0.1")
    server = make_server(host="a.test", s2s_port=lease.port)
    header = (
        "<stream:stream xmlns='jabber:server' xmlns:stream='http://etherx.jabber.org/streams'"
        " xmlns:db='jabber:server:dialback' to='a.test' from='b.test' version='1.0'>"
    )
    with socket.create_connection((server.address, lease.port), 20) as answer:
        answer.sendall(header.encode())
        got = b""
        while b"</stream:features>" not in got and (data := answer.recv(4096)):
            got += data
    lease.release()
    assert b"urn:xmpp:features:dialback" in got


def test_a_port_is_leased_once() -> None:
    leases = [PortLease("127.0.0.1") for _ in range(20)]
    assert len({lease.port for lease in leases}) == 20
    for lease in leases:
        lease.release()


@pytest.mark.parametrize(
    "kind", [prosody.Prosody, pytest.param(ejabberd.Ejabberd, marks=pytest.mark.thorough)]
)
def test_nothing_outlives_a_test_run_that_is_killed(kind: type[Server], tmp_path: Path) -> None:
    run = (
        "import signal, pathlib;"
        f"from tests.servers.{kind.name} import {kind.__name__} as Kind;"
        f"server = Kind(pathlib.Path({str(tmp_path)!r}));"
        "server.start(); print(server.pid, flush=True); signal.pause()"
    )
    with subprocess.Popen([sys.executable, "-c", run], stdout=subprocess.PIPE, text=True) as killed:
        assert killed.stdout is not None
        server = int(killed.stdout.readline())
        end = os.pidfd_open(server)
        killed.kill()
    try:
        gone = select.select([end], [], [], 20)[0]
        if not gone:
            signal.pidfd_send_signal(end, signal.SIGKILL)
        assert gone, "the server lived on"
    finally:
        os.close(end)


@pytest.mark.parametrize("kind", [prosody.Prosody, ejabberd.Ejabberd])
def test_a_missing_server_is_a_failure_that_names_the_package(
    kind: type[Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with (
        pytest.raises(ServerError, match=f"install the Debian package {kind.package}"),
        kind(tmp_path),
    ):
        pass


def test_a_server_that_does_not_start_shows_its_log(make_server: ServerFactory) -> None:
    server = make_server(start=False)
    broken = server.directory / "guide.md"
    text = server.guide.read_text()
    body = guides.block(server.guide, "component")
    broken.write_text(text.replace(body, body + "\t}] no configuration at all\n"))
    server.guide = broken
    with pytest.raises(ServerError, match="instead of starting") as failed:
        server.start()
    assert "agent.cfg.lua" in str(failed.value) or "ejabberd.yml" in str(failed.value)


# The guides are the configuration.

SECOND = {
    "prosody": '\nComponent "second.test"\n\tcomponent_secret = "other"\n',
    "ejabberd": indent('"second.test":\n  password: "other"\n', " " * 6),
}


def test_what_the_guide_says_is_what_the_server_runs(make_server: ServerFactory) -> None:
    server = make_server(start=False)
    edited = server.directory / "guide.md"
    body = guides.block(server.guide, "component")
    second = SECOND[server.name]
    with contextlib.suppress(PeerRefused):
        server.start()
        component(server, domain="second.test", secret="other").connect().close()
        pytest.fail("the guide as it stands knows a second component")
    edited.write_text(server.guide.read_text().replace(body, body + second))
    server.guide = edited
    server.restart()
    component(server, domain="second.test", secret="other").connect().close()


def test_the_component_is_nowhere_but_in_the_guide(xmpp_server: Server) -> None:
    """Outside the guide's block no template of the harness speaks of a component."""
    for template in (prosody.OWN, prosody.FEDERATED):
        assert "omponent" not in template
    assert "ejabberd_service" not in shipped.read(shipped.EJABBERD, "ejabberd")
    body = guides.block(xmpp_server.guide, "component")
    assert guides.SECRET in body
    assert xmpp_server.secret not in xmpp_server.guide.read_text()


def test_the_agent_toml_of_the_guide_fits_the_server(xmpp_server: Server) -> None:
    settings = tomllib.loads(xmpp_server.agent_toml())
    assert settings["server"] == {
        "host": xmpp_server.address,
        "port": xmpp_server.component_port,
        "component_domain": xmpp_server.component_domain,
        "component_secret": "${AGENT_SECRET}",
    }
    assert settings["agent"]["allowed_domains"] == [xmpp_server.host]


@pytest.fixture
def guide(tmp_path: Path) -> Path:
    copy = tmp_path / "guide.md"
    shutil.copy(guides.DOCS / "how-to" / "prosody.md", copy)
    return copy


def test_a_guide_without_its_block_is_a_failure(guide: Path) -> None:
    guide.write_text(guide.read_text().replace("run by the tests: component", "no longer"))
    with pytest.raises(guides.GuideError, match="0 blocks marked 'component'"):
        guides.block(guide, "component")


def test_a_block_without_a_placeholder_is_a_failure(guide: Path) -> None:
    port = guides.PORTS["prosody"]
    body = guides.block(guide, "component").replace(port, "5222")
    with pytest.raises(guides.GuideError, match="lacks 5347"):
        guides.fill(body, {port: "1", guides.HOST: "a.test"})


def test_values_that_look_like_placeholders_stay_as_they_are() -> None:
    values = {guides.HOST: "change-me", guides.SECRET: "example.com"}
    assert guides.fill("example.com change-me", values) == "change-me example.com"
