"""A client uploads files to its server and sends their URLs, and the agent answers from what is in
them, with the upload services that docs/how-to/prosody.md and docs/how-to/ejabberd.md set up.
"""

import json
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.request import Request, urlopen
from xml.sax.saxutils import escape, quoteattr

import pytest

from benchmarks.pdfs import with_pages
from component.models.contents import base64_text
from tests.component.models.endpoint import Calls, Text
from tests.servers.base import PortLease, Server
from tests.servers.chatting import Chat, asks, chatting
from tests.servers.clients import SlixClient
from tests.servers.talk import login
from tests.servers.test_uploads import UploadsOnEjabberd, WithUploads

pytestmark = [pytest.mark.servers]

UPLOAD = "urn:xmpp:http:upload:0"
PNG = b"\x89PNG\r\n\x1a\n" + b"p" * 400


@contextmanager
def with_uploads(kind: str, directory: Path) -> Iterator[Chat]:
    """A service whose agents talk, and whose server has an upload service."""
    server: WithUploads | UploadsOnEjabberd
    if kind == "prosody":
        server = WithUploads(directory / "server", additions=[("how-to/prosody.md", "uploads")])
    else:
        server = UploadsOnEjabberd(directory / "server")
    with ExitStack() as stack:
        lease = PortLease(server.address)
        stack.callback(lease.release)
        server.http_port = lease.port
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("SSL_CERT_FILE", str(server.ca_file))
        stack.enter_context(server)
        yield stack.enter_context(chatting(server, directory / "agent", llm__vision=True))


@pytest.fixture(scope="module", params=["prosody", "ejabberd"])
def chat(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Chat]:
    with with_uploads(request.param, tmp_path_factory.mktemp(request.param)) as chat:
        yield chat


@pytest.fixture(scope="module")
def juliet(chat: Chat) -> Iterator[SlixClient]:
    with login(chat.server) as client:
        yield client


def upload(server: Server, client: SlixClient, name: str, data: bytes, media_type: str) -> str:
    """Upload a file as a client does (XEP-0363), and return its URL."""
    asked = (
        f"<request xmlns='{UPLOAD}' filename={quoteattr(name)} size='{len(data)}'"
        f" content-type='{media_type}'/>"
    )
    (slot,) = client.iq(f"upload.{server.host}", asked)
    put = slot.find(f"{{{UPLOAD}}}put")
    get = slot.find(f"{{{UPLOAD}}}get")
    assert put is not None
    assert get is not None
    headers = {each.get("name", ""): each.text or "" for each in put}
    request = Request(put.attrib["url"], data, headers | {"Content-Type": media_type}, method="PUT")
    trusted = ssl.create_default_context(cafile=server.ca_file)
    with urlopen(request, timeout=60, context=trusted) as answer:
        assert answer.status in (200, 201)
    return get.attrib["url"]


def sends(client: SlixClient, to: str, url: str, words: str) -> str:
    """Send a file as Conversations does: the URL alone, and out of band. Return the answer with
    these words.
    """
    return asks(
        client, to, url, words, inside=f"<x xmlns='jabber:x:oob'><url>{escape(url)}</url></x>"
    )


def test_the_agent_answers_from_an_image_and_a_document(chat: Chat, juliet: SlixClient) -> None:
    chat.model.answers(Text("A cat on a sofa."), Text("Sales went up."))
    picture = upload(chat.server, juliet, "cat.png", PNG, "image/png")
    assert sends(juliet, chat.assistant, picture, "cat") == "A cat on a sofa."
    seen = json.dumps(chat.model.requests[-1].messages)
    assert base64_text(PNG) in seen

    report = upload(
        *(chat.server, juliet, "report.pdf", with_pages(["Sales went up by 7 %."])),
        "application/pdf",
    )
    assert sends(juliet, chat.assistant, report, "Sales") == "Sales went up."
    seen = json.dumps(chat.model.requests[-1].messages, ensure_ascii=False)
    assert "Sales went up by 7 %." in seen
    assert base64_text(PNG) in seen, "the conversation still has the image"

    listed = asks(juliet, chat.assistant, "/files", "report.pdf")
    assert "cat.png: image/png, 408 bytes" in listed
    assert "report.pdf: application/pdf" in listed


def test_after_a_kill_the_model_reads_the_file_again(chat: Chat, juliet: SlixClient) -> None:
    asks(juliet, chat.assistant, "/new", "new")
    url = upload(chat.server, juliet, "list.txt", b"milk and bread", "text/plain")
    chat.model.answers(
        Text("Milk and bread."), Calls(("file_read", {"path": "list.txt"})), Text("Still milk.")
    )
    assert sends(juliet, chat.assistant, url, "Milk") == "Milk and bread."
    chat.again()
    assert asks(juliet, chat.assistant, "What was on it?", "Still") == "Still milk."
    seen = json.dumps(chat.model.requests[-1].messages)
    assert seen.count("milk and bread") == 2


def test_a_file_that_is_not_there_is_said(chat: Chat, juliet: SlixClient) -> None:
    url = upload(chat.server, juliet, "gone.txt", b"gone", "text/plain")
    known, _, _ = url.rpartition("/")
    answer = sends(juliet, chat.assistant, f"{known[:-4]}0000/gone.txt", "gone.txt")
    assert answer.startswith("I have not got gone.txt: its server")
