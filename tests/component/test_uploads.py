"""Files are uploaded to the server's upload service (XEP-0363), from which others get them."""

import hashlib
from collections.abc import Callable
from typing import Any

import pytest

from component.skills.outputs import File, Link
from component.tasks.protocol import CannotShare
from component.uploads import Uploads
from tests.component.http.http_server import Server, plain, serving
from xep.binding import Payload
from xep.data_forms import Field, Form
from xep.disco import Feature, InfoQuery, Item, ItemsQuery
from xep.http_upload import NAMESPACE, Get, Header, Put, Slot, SlotRequest
from xep.jid import JID
from xep.stanza_error import StanzaError

pytestmark = pytest.mark.anyio

SERVER = JID.parse("a.example")
SERVICE = JID.parse("upload.a.example")
PICTURE = File(b"\x89PNG" + b"x" * 60, "image/png", "map.png")


class Xmpp:
    """A server whose items are a chat service and an upload service."""

    def __init__(self, put: str = "", get: str = "https://files.a.example/1/map.png") -> None:
        self.asked: list[tuple[str, Payload]] = []
        self.put = put
        self.get = get
        self.most = "1000"
        self.items = ["rooms.a.example", "upload.a.example"]
        self.refusal: StanzaError | None = None

    async def __call__(self, to: JID, query: Payload, _expected: Any) -> Any:
        self.asked.append((str(to), query))
        match query:
            case ItemsQuery():
                return ItemsQuery(items=tuple([Item(jid=JID.parse(one)) for one in self.items]))
            case InfoQuery() if to == SERVICE:
                form = Form(
                    type="result", fields=(Field(var="max-file-size", values=(self.most,)),)
                )
                return InfoQuery(features=(Feature(var=NAMESPACE),), forms=(form,))
            case InfoQuery():
                raise StanzaError("remote-server-timeout")
            case SlotRequest():
                if self.refusal is not None:
                    raise self.refusal
                headers = (
                    Header(name="Authorization", value="Bearer\n abc"),
                    Header(name="Expires", value="0"),
                )
                return Slot(put=Put(url=self.put, headers=headers), get=Get(url=self.get))
        raise AssertionError(query)


def answering(server: Server, status: int = 201) -> Xmpp:
    server.answers["put/map.png"] = plain("", status)
    return Xmpp(put=server.url("put/map.png"))


async def test_a_file_is_uploaded_and_its_link_has_size_and_digest() -> None:
    async with serving() as server:
        xmpp = answering(server)
        link = await Uploads(xmpp, SERVER).share(PICTURE)
        assert link == Link(
            "https://files.a.example/1/map.png",
            "image/png",
            "map.png",
            64,
            hashlib.sha256(PICTURE.data).digest(),
        )
        (sent,) = server.requests
    head, _, body = sent.partition(b"\r\n\r\n")
    assert head.startswith(b"PUT /put/map.png HTTP/1.1")
    assert b"Authorization: Bearer abc" in head
    assert b"Content-Type: image/png" in head
    assert body == PICTURE.data
    assert xmpp.asked[-1] == (
        "upload.a.example",
        SlotRequest(filename="map.png", size=64, content_type="image/png"),
    )


async def test_the_service_is_searched_for_once_an_hour() -> None:
    now = 0.0
    async with serving() as server:
        xmpp = answering(server)
        uploads = Uploads(xmpp, SERVER, clock=lambda: now)
        for after in (0.0, 10.0, 3590.0, 3700.0):
            now = after
            await uploads.share(PICTURE)
    assert [to for to, query in xmpp.asked if isinstance(query, ItemsQuery)] == ["a.example"] * 2


async def test_a_service_that_is_named_is_not_searched_for() -> None:
    async with serving() as server:
        xmpp = answering(server)
        await Uploads(xmpp, None, SERVICE).share(PICTURE)
    assert [to for to, _ in xmpp.asked] == ["upload.a.example"] * 2


@pytest.mark.parametrize("most", ["²", "", "-1", "9" * 5000])
async def test_a_maximum_size_that_is_no_number_is_ignored(most: str) -> None:
    async with serving() as server:
        xmpp = answering(server)
        xmpp.most = most
        link = await Uploads(xmpp, SERVER).share(PICTURE)
    assert link.size == 64


def without_service(xmpp: Xmpp) -> None:
    xmpp.items = ["rooms.a.example"]


def too_small(xmpp: Xmpp) -> None:
    xmpp.most = "63"


def refusing(xmpp: Xmpp) -> None:
    xmpp.refusal = StanzaError("not-allowed", "Only for local users.")


def with_a_bad_url(xmpp: Xmpp) -> None:
    xmpp.put = "file:///etc/passwd"


def without_tls(xmpp: Xmpp) -> None:
    xmpp.put = "http://upload.a.example/map.png"


def with_a_bad_link(xmpp: Xmpp) -> None:
    xmpp.get = "javascript:alert(1)"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (without_service, "no upload service"),
        (too_small, "takes files of 63 bytes"),
        (refusing, "Only for local users"),
        (with_a_bad_url, "not one of HTTPS"),
        (without_tls, "not one of HTTPS"),
        (with_a_bad_link, "not one of HTTPS"),
    ],
)
async def test_what_cannot_be_uploaded_is_named(change: Callable[[Xmpp], None], why: str) -> None:
    async with serving() as server:
        xmpp = answering(server)
        change(xmpp)
        with pytest.raises(CannotShare, match=why):
            await Uploads(xmpp, SERVER).share(PICTURE)


async def test_a_refused_upload_gives_no_link() -> None:
    async with serving() as server:
        with pytest.raises(CannotShare, match="HTTP status 413"):
            await Uploads(answering(server, 413), SERVER).share(PICTURE)


@pytest.mark.parametrize(
    ("name", "sent"),
    [("a/b.txt", "a_b.txt"), ("Käse.txt", "K_se.txt"), ("..", "file"), (None, "file")],
)
async def test_a_name_is_one_that_a_url_can_have(name: str | None, sent: str) -> None:
    async with serving() as server:
        xmpp = answering(server)
        await Uploads(xmpp, SERVER).share(File(b"x", "text/plain", name))
    query = xmpp.asked[-1][1]
    assert isinstance(query, SlotRequest)
    assert query.filename == sent
