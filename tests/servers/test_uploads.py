"""A result that does not fit into a stanza is uploaded to the server, as docs/how-to/prosody.md and
docs/how-to/ejabberd.md say.
"""

import re
import ssl
from base64 import b64decode
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.servers import shipped
from tests.servers.agent_process import AgentProcess
from tests.servers.base import PortLease
from tests.servers.clients import Element
from tests.servers.ejabberd import Ejabberd
from tests.servers.prosody import Prosody
from tests.servers.talk import execute, login, result

pytestmark = [pytest.mark.servers]

SKILL = '''
from xmpp_agent import File, skill


@skill(read_only=True)
def draw(size: int) -> File:
    """Draw a picture."""
    return File(b"x" * size, "image/png", "map.png")
'''


class WithUploads(Prosody):
    """Prosody with an upload service, whose files are at a port of their own."""

    http_port = 0

    def _main(self) -> str:
        http = (
            f"http_ports = {{ {self.http_port} }}\n"
            f'http_interfaces = {{ "{self.address}" }}\n'
            f'http_external_url = "http://{self.address}:{self.http_port}/"\n'
            f'http_default_host = "upload.{self.host}"'
        )
        return shipped.change(super()._main(), ("http_ports = { }", http))


class UploadsOnEjabberd(Ejabberd):
    """ejabberd with the upload service of its guide, and Debian's listener for it on another
    port.
    """

    http_port = 0

    def _main(self, pem: Path, components: str) -> str:
        listen = shipped.between(
            shipped.read(shipped.EJABBERD, self.package), "listen:\n", "\n\n\n"
        )
        (entry,) = re.findall(r"  -\n    port: 5443\n(?:    .*\n?)+", listen)
        listener = shipped.change(
            entry,
            ("port: 5443", f"port: {self.http_port}"),
            ('ip: "::"', f'ip: "{self.address}"'),
            ("## /upload:", "/upload:"),
        )
        text = super()._main(pem, components + listener)
        added = self._added("how-to/ejabberd.md", "uploads").replace("5443", str(self.http_port))
        for section in re.findall(r"^\w+:\n(?: .*\n)+", added, re.MULTILINE):
            name = section.partition("\n")[0]
            text = shipped.change(text, (f"\n{name}\n", f"\n{section}"))
        return text


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentProcess]:
    directory = tmp_path_factory.mktemp("uploads")
    server = WithUploads(directory / "prosody", additions=[("how-to/prosody.md", "uploads")])
    lease = PortLease(server.address)
    server.http_port = lease.port
    own = directory / "agent"
    own.mkdir()
    (own / "own.py").write_text(SKILL)
    try:
        with server, AgentProcess(server, own, skills__modules=["./own.py"]) as agent:
            yield agent.connected()
    finally:
        lease.release()


def test_a_picture_that_does_not_fit_is_given_by_reference(agent: AgentProcess) -> None:
    server = agent.server
    assert isinstance(server, Prosody)
    with login(server) as client:
        made = result(client.iq(agent.domain, execute("draw", size=300_000), "set"))
    url = url_of(made)
    assert url.startswith(f"http://{server.address}:{server.http_port}/")  # type: ignore[attr-defined]
    with urlopen(url, timeout=60) as found:
        assert found.read() == b"x" * 300_000


def test_ejabberd_lets_the_agent_upload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = UploadsOnEjabberd(tmp_path / "ejabberd")
    lease = PortLease(server.address)
    server.http_port = lease.port
    monkeypatch.setenv("SSL_CERT_FILE", str(server.ca_file))
    own = tmp_path / "agent"
    own.mkdir()
    (own / "own.py").write_text(SKILL)
    try:
        with server, AgentProcess(server, own, skills__modules=["./own.py"]) as agent:
            agent.connected()
            with login(server) as client:
                made = result(client.iq(agent.domain, execute("draw", size=300_000), "set"))
            url = url_of(made)
            assert url.startswith(f"https://{server.host}:{lease.port}/upload/")
            trusted = ssl.create_default_context(cafile=server.ca_file)
            with urlopen(url, timeout=60, context=trusted) as found:
                assert found.read() == b"x" * 300_000
    finally:
        lease.release()


def url_of(made: Element) -> str:
    """The URL of a picture of 300,000 bytes, whose size and digest are right."""
    (file,) = made.iter("{urn:xmpp:file:metadata:0}file")
    assert file.findtext("{urn:xmpp:file:metadata:0}size") == "300000"
    digest = file.findtext("{urn:xmpp:hashes:2}hash") or ""
    assert b64decode(digest) == sha256(b"x" * 300_000).digest()
    (source,) = made.iter("{http://jabber.org/protocol/url-data}url-data")
    return source.attrib["target"]
