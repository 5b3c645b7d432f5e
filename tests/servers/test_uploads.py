"""A result that does not fit into a stanza is uploaded to the server, as docs/prosody.md says."""

from base64 import b64decode
from collections.abc import Iterator
from hashlib import sha256
from urllib.request import urlopen

import pytest

from tests.servers import shipped
from tests.servers.agent_process import AgentProcess
from tests.servers.base import PortLease
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


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentProcess]:
    directory = tmp_path_factory.mktemp("uploads")
    server = WithUploads(directory / "prosody", additions=[("prosody.md", "uploads")])
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
    (file,) = made.iter("{urn:xmpp:file:metadata:0}file")
    assert file.findtext("{urn:xmpp:file:metadata:0}size") == "300000"
    (source,) = made.iter("{http://jabber.org/protocol/url-data}url-data")
    url = source.attrib["target"]
    assert url.startswith(f"http://{server.address}:{server.http_port}/")  # type: ignore[attr-defined]
    with urlopen(url, timeout=60) as found:
        data = found.read()
    assert data == b"x" * 300_000
    digest = file.findtext("{urn:xmpp:hashes:2}hash") or ""
    assert b64decode(digest) == sha256(data).digest()
