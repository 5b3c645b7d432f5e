"""What Debian's servers have switched on, so that no change of a configuration loses it."""

import time
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.servers import shipped
from tests.servers.base import Server
from tests.servers.errors import ServerError
from tests.servers.raw_client import log_in
from tests.servers.talk import INFO, login, query, result

pytestmark = [pytest.mark.servers]

FEATURES = {
    "urn:xmpp:blocking",
    "urn:xmpp:carbons:2",
    "urn:xmpp:ping",
    "http://jabber.org/protocol/commands",
}
STREAM = {"urn:xmpp:sm:3", "urn:xmpp:csi:0"}
ARCHIVE = "urn:xmpp:mam:2"
OWN_PEP = ("pubsub", "pep")
BURST = {"prosody": 0, "ejabberd": 20_000}
"""Bytes that a new connection may send at once."""
RATE = {"prosody": 10_000, "ejabberd": 3_000}
"""Bytes in a second after that."""


def test_what_the_server_serves(xmpp_server: Server) -> None:
    with login(xmpp_server) as juliet:
        features = {one.get("var") for one in result(juliet.iq(xmpp_server.host, query(INFO)))}
        assert features >= FEATURES
        own = result(juliet.iq(xmpp_server.jid("juliet"), query(INFO)))
        assert OWN_PEP in {(one.get("category"), one.get("type")) for one in own}
        assert ARCHIVE in {one.get("var") for one in own}


def test_what_a_message_gets_on_its_way(xmpp_server: Server) -> None:
    """It is in the archive, and other clients of the account get a copy."""
    with login(xmpp_server) as juliet, login(xmpp_server, "romeo") as romeo:
        with login(xmpp_server, "romeo") as phone:
            phone.iq(None, "<enable xmlns='urn:xmpp:carbons:2'/>", "set")
            juliet.send_raw(f"<message to='{romeo.jid}' type='chat'><body>Who?</body></message>")
            received = romeo.messages.take(lambda m: m.findtext("{*}body") == "Who?")
            phone.messages.take(lambda m: m.find("{urn:xmpp:carbons:2}received") is not None)
        given = received.find("{urn:xmpp:sid:0}stanza-id")
        assert given is not None
        assert given.get("by") == xmpp_server.jid("romeo")
        last = "<set xmlns='http://jabber.org/protocol/rsm'><max>10</max><before/></set>"
        asked = f"<query xmlns='{ARCHIVE}' queryid='q'>{last}</query>"
        assert romeo.iq(None, asked, "set").get("type") == "result"
        archived = romeo.messages.take(
            lambda m: (
                (found := m.find(f"{{{ARCHIVE}}}result")) is not None
                and found.get("id") == given.get("id")
            )
        )
        assert archived.findtext(".//{*}body") == "Who?"


def test_what_a_stream_offers(xmpp_server: Server) -> None:
    client = log_in(xmpp_server, "juliet")
    try:
        before, after = client.features.split("<stream:features>")[1:]
        assert "<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'><required/>" in before
        offered = ET.fromstring(
            "<features>" + after.partition("</stream:features>")[0] + "</features>"
        )
        assert {one.tag[1:].partition("}")[0] for one in offered} >= STREAM
    finally:
        client.close()


def test_a_client_that_sends_too_fast_is_slowed_down(xmpp_server: Server) -> None:
    seconds = 1
    size = BURST[xmpp_server.name] + (seconds + 1) * RATE[xmpp_server.name]
    client = log_in(xmpp_server, "juliet")
    try:
        began = time.monotonic()
        # One server lets the first bytes pass, and reads the next ones later.
        for number, attribute in enumerate(("x" * size, "")):
            ping = f"<ping xmlns='urn:xmpp:ping' a='{attribute}'/>"
            client.sendall(f"<iq type='get' id='ping{number}'>{ping}</iq>".encode())
            came = b""
            while f"ping{number}".encode() not in came:
                data = client.recv()
                assert data, came
                came += data
        assert time.monotonic() - began > seconds
    finally:
        client.close()


# The packaged files themselves.


def test_a_configuration_that_somebody_has_edited_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edited = tmp_path / "prosody.cfg.lua"
    edited.write_text(shipped.read(shipped.PROSODY, "prosody") + "-- edited\n")
    data = edited.read_bytes()
    monkeypatch.setattr(Path, "read_bytes", lambda _: data)
    with pytest.raises(ServerError, match="is not the one that Debian's package prosody ships"):
        shipped.read(shipped.PROSODY, "prosody")


def test_a_configuration_that_is_not_there_is_a_failure() -> None:
    with pytest.raises(ServerError, match="run 'make servers'"):
        shipped.read(Path("/nonexistent/nothing.cfg"), "prosody")


def test_what_only_root_may_read_is_read_from_the_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = shipped.read(shipped.PROSODY, "prosody")
    (tmp_path / "prosody.cfg.lua").write_text(text)
    monkeypatch.setattr(shipped, "COPIES", tmp_path)
    assert shipped.read(tmp_path / "no" / "prosody.cfg.lua", "prosody") == text


@pytest.mark.parametrize("text", ["no such line", "a line\na line\n"])
def test_a_change_that_does_not_fit_the_package_any_more_is_a_failure(text: str) -> None:
    with pytest.raises(ServerError, match="adapt what the tests change"):
        shipped.change(text, ("a line", "another"))
