"""Files reach people and programs through the server's upload service, as docs/how-to/prosody.md
and docs/how-to/ejabberd.md say, or from the agent itself, as docs/how-to/send-files.md says.
"""

import re
import ssl
import tomllib
from base64 import b64decode
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tests.servers import command_line, shipped
from tests.servers.agent_process import AgentProcess
from tests.servers.base import PortLease, Server
from tests.servers.clients import Element, SlixClient
from tests.servers.conftest import MakeAgent
from tests.servers.ejabberd import Ejabberd
from tests.servers.guides import DOCS, block
from tests.servers.prosody import Prosody
from tests.servers.talk import execute, login, result

pytestmark = [pytest.mark.servers]

SKILL = '''
from xmpp_agent import File, Output, skill


@skill(read_only=True)
def draw(size: int) -> list[Output | File]:
    """Draw a picture."""
    start = b"\\x89PNG\\r\\n\\x1a\\n\\0\\0\\0\\rIHDR\\0\\0\\x02\\x80\\0\\0\\x01\\xe0"
    picture = (start + bytes(range(256)) * (size // 256 + 1))[:size]
    return [Output("It is a map."), File(picture, "image/png", "map.png")]
'''
START = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x02\x80\0\0\x01\xe0"
SIZE = 250_000
SHARING = "{urn:xmpp:sfs:0}file-sharing"
SOURCE = "{http://jabber.org/protocol/url-data}url-data"


def picture(size: int) -> bytes:
    return (START + bytes(range(256)) * (size // 256 + 1))[:size]


def draw_in_chat(client: SlixClient, domain: str, size: int) -> Element:
    """Let a person run the skill in the chat, and return the message that is the file."""
    client.send_raw(
        f"<message to='{domain}' type='chat' id='d{size}'><body>/run draw size={size}</body>"
        "</message>"
    )
    bodies = []
    while True:
        message = client.next_message()
        bodies.append(message.findtext("{jabber:client}body"))
        if message.find(SHARING) is not None:
            assert "It is a map." in bodies, "the text comes first"
            return message


def url_of_message(message: Element) -> str:
    """The URL of a message that is a file, which each kind of client finds in it."""
    url = message.findtext("{jabber:client}body") or ""
    assert message.findtext("{jabber:x:oob}x/{jabber:x:oob}url") == url
    (source,) = message.iter(SOURCE)
    assert source.attrib["target"] == url
    assert message.findtext(f"{SHARING}/*/{{urn:xmpp:file:metadata:0}}width") == "640"
    fallback = message.find("{urn:xmpp:fallback:0}fallback")
    assert fallback is not None
    assert fallback.get("for") == "urn:xmpp:sfs:0"
    return url


def fetched(url: str, ca_file: Path | None = None) -> bytes:
    trusted = None if ca_file is None else ssl.create_default_context(cafile=ca_file)
    with urlopen(url, timeout=60, context=trusted) as found:
        data: bytes = found.read()
    return data


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


class ForbiddenUploads(UploadsOnEjabberd):
    """The same without the rule that lets components upload."""

    def _main(self, pem: Path, components: str) -> str:
        return shipped.change(super()._main(pem, components), ("\n    access: upload\n", "\n"))


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


def test_a_program_gets_a_large_picture_by_reference(agent: AgentProcess) -> None:
    server = agent.server
    assert isinstance(server, WithUploads)
    with login(server) as client:
        made = result(client.iq(agent.domain, execute("draw", size=SIZE), "set"))
    url = url_of_result(made)
    assert url.startswith(f"http://{server.address}:{server.http_port}/")
    assert fetched(url) == picture(SIZE)


@pytest.mark.parametrize("size", [SIZE, 2_000])
def test_a_person_gets_a_picture_as_a_file(agent: AgentProcess, size: int) -> None:
    with login(agent.server) as client:
        url = url_of_message(draw_in_chat(client, agent.domain, size))
    assert fetched(url) == picture(size)


def test_ejabberd_lets_the_agent_upload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = UploadsOnEjabberd(tmp_path / "ejabberd")
    lease = PortLease(server.address)
    server.http_port = lease.port
    monkeypatch.setenv("SSL_CERT_FILE", str(server.ca_file))
    own = tmp_path / "agent"
    own.mkdir()
    (own / "own.py").write_text(SKILL)
    try:
        with server:
            (own / "agent.toml").write_text(server.agent_toml())
            _, checks = command_line.doctor(own, server.secret)
            assert checks["files"][0] == "ok"
            assert "gives the agents places" in checks["files"][1]
            with AgentProcess(server, own, skills__modules=["./own.py"]) as agent:
                agent.connected()
                with login(server) as client:
                    made = result(client.iq(agent.domain, execute("draw", size=SIZE), "set"))
                    sent = url_of_message(draw_in_chat(client, agent.domain, SIZE))
                for url in (url_of_result(made), sent):
                    assert url.startswith(f"https://{server.host}:{lease.port}/upload/")
                    assert fetched(url, server.ca_file) == picture(SIZE)
    finally:
        lease.release()


def test_ejabberd_without_the_rule_refuses_and_the_operator_learns_it(tmp_path: Path) -> None:
    server = ForbiddenUploads(tmp_path / "ejabberd")
    lease = PortLease(server.address)
    server.http_port = lease.port
    own = tmp_path / "agent"
    own.mkdir()
    (own / "own.py").write_text(SKILL)
    try:
        with server:
            (own / "agent.toml").write_text(server.agent_toml())
            _, checks = command_line.doctor(own, server.secret)
            assert checks["files"][0] == "warning", checks["files"]
            assert "does not let this agent upload files" in checks["files"][1]
            with (
                AgentProcess(server, own, skills__modules=["./own.py"]) as agent,
                login(server) as client,
            ):
                agent.connected()
                for size in (2_000, 3_000):
                    client.send_raw(
                        f"<message to='{agent.domain}' type='chat' id='r{size}'>"
                        f"<body>/run draw size={size}</body></message>"
                    )
                    body = ""
                    while "map.png" not in body:
                        body = client.next_message().findtext("{jabber:client}body") or ""
                    assert f"map.png: image/png, {size:,} bytes. I can't send it as a file" in body
                (warning,) = agent.log("an upload service refuses files")
                assert "docs/how-to/ejabberd.md" in str(warning["hint"])
    finally:
        lease.release()


def test_without_an_upload_service_the_agent_serves_the_files(
    xmpp_server: Server, make_agent: MakeAgent, tmp_path: Path
) -> None:
    (tmp_path / "own.py").write_text(SKILL)
    lease = PortLease("127.0.0.1")
    guide = tomllib.loads(block(DOCS / "how-to" / "send-files.md", "files"))
    assert guide == {"http": {"port": 8470, "url": "https://agent.example.com"}}
    url = f"http://127.0.0.1:{lease.port}"
    agent = make_agent(
        xmpp_server,
        skills__modules=[str(tmp_path / "own.py")],
        http__port=lease.port,
        http__url=url,
    ).connected()
    try:
        with login(xmpp_server) as client:
            made = result(client.iq(agent.domain, execute("draw", size=SIZE), "set"))
            sent = url_of_message(draw_in_chat(client, agent.domain, SIZE))
        for address in (url_of_result(made), sent):
            assert address.startswith(f"{url}/files/")
            assert fetched(address) == picture(SIZE)
        agent.kill()
        agent.start().connected()
        assert fetched(sent) == picture(SIZE), "it survives"
        with pytest.raises(HTTPError, match="404"):
            fetched(f"{url}/files/{'x' * 32}/map.png")
    finally:
        agent.stop()
        lease.release()


def url_of_result(made: Element) -> str:
    """The URL of the picture in a result, whose size and digest are right."""
    (file,) = made.iter("{urn:xmpp:file:metadata:0}file")
    assert file.findtext("{urn:xmpp:file:metadata:0}size") == str(SIZE)
    digest = file.findtext("{urn:xmpp:hashes:2}hash") or ""
    assert b64decode(digest) == sha256(picture(SIZE)).digest()
    (source,) = made.iter(SOURCE)
    return source.attrib["target"]
