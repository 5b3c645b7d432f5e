"""Files are uploaded to the server's upload service (XEP-0363), from which others get them."""

import hashlib
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from component import system
from component.image_size import image_size
from component.skills.outputs import File, Link
from component.tasks.protocol import CannotShare
from component.uploads import Uploads, file_name, slot_headers
from tests.component.http.http_server import Server, plain, serving
from xep.binding import Payload
from xep.data_forms import Field, Form
from xep.disco import Feature, InfoQuery, Item, ItemsQuery
from xep.http_upload import (
    NAMESPACE,
    FileTooLarge,
    Get,
    Header,
    Put,
    Retry,
    Slot,
    SlotRequest,
)
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
        self.sizes: dict[str, str] = {}
        self.refusal: StanzaError | None = None
        self.refusals: dict[str, StanzaError] = {}
        self.headers: tuple[Header, ...] = (
            Header(name="Authorization", value="Bearer\n abc"),
            Header(name="Expires", value="0"),
        )

    async def __call__(self, to: JID, query: Payload, _expected: Any) -> Any:
        self.asked.append((str(to), query))
        match query:
            case ItemsQuery():
                return ItemsQuery(items=tuple([Item(jid=JID.parse(one)) for one in self.items]))
            case InfoQuery() if to == SERVICE or str(to) in self.sizes:
                most = self.sizes.get(str(to), self.most)
                form = Form(type="result", fields=(Field(var="max-file-size", values=(most,)),))
                return InfoQuery(features=(Feature(var=NAMESPACE),), forms=(form,))
            case InfoQuery():
                raise StanzaError("remote-server-timeout")
            case SlotRequest():
                refusal = self.refusals.get(str(to), self.refusal)
                if refusal is not None:
                    raise refusal
                return Slot(put=Put(url=self.put, headers=self.headers), get=Get(url=self.get))
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
    [
        ("a/b.txt", "a_b.txt"),
        ("Käse.txt", "K_se.txt"),
        ("..", "file"),
        (None, "file"),
        ("..\\x", "_x"),
    ],
)
async def test_a_name_is_one_that_a_url_can_have(name: str | None, sent: str) -> None:
    async with serving() as server:
        xmpp = answering(server)
        await Uploads(xmpp, SERVER).share(File(b"x", "text/plain", name))
    query = xmpp.asked[-1][1]
    assert isinstance(query, SlotRequest)
    assert query.filename == sent


@given(st.none() | st.text(max_size=200))
def test_any_name_becomes_one_of_a_url(name: str | None) -> None:
    made = file_name(File(b"", "text/plain", name))
    assert 1 <= len(made) <= 100
    assert made.isascii()
    assert made.isprintable()
    assert not {"/", "\\"} & set(made)
    assert made == made.strip(". ")


HEADERS = st.builds(
    Header,
    name=st.sampled_from(["authorization", "COOKIE", "Expires", "Host", "Content-Length", "X"])
    | st.text(max_size=12),
    value=st.text(max_size=40),
)


@given(st.lists(HEADERS, max_size=5))
def test_of_any_headers_of_a_slot_those_of_the_standard_are_sent_without_line_breaks(
    headers: list[Header],
) -> None:
    sent = slot_headers(headers)
    assert {name for name, _ in sent} <= {"Authorization", "Cookie", "Expires"}
    assert all(len(value.splitlines()) <= 1 for _, value in sent)


async def test_a_cookie_of_a_slot_is_sent_and_other_headers_are_not() -> None:
    async with serving() as server:
        xmpp = answering(server)
        xmpp.headers = (
            Header(name="cookie", value="a=b"),
            Header(name="X-Other", value="1"),
            Header(name="Host", value="elsewhere"),
        )
        await Uploads(xmpp, SERVER).share(PICTURE)
        (sent,) = server.requests
    assert b"Cookie: a=b" in sent
    assert b"X-Other" not in sent
    assert b"elsewhere" not in sent


async def test_the_first_service_that_takes_the_size_is_used() -> None:
    async with serving() as server:
        xmpp = answering(server)
        xmpp.items.append("large.a.example")
        xmpp.sizes = {"upload.a.example": "63", "large.a.example": "64"}
        uploads = Uploads(xmpp, SERVER)
        await uploads.share(PICTURE)
        await uploads.share(File(b"x", "image/png", "map.png"))
    asked = [to for to, query in xmpp.asked if isinstance(query, SlotRequest)]
    assert asked == ["large.a.example", "upload.a.example"]


async def test_a_service_that_refuses_is_passed_over() -> None:
    async with serving() as server:
        xmpp = answering(server)
        xmpp.items.append("large.a.example")
        xmpp.sizes = {"large.a.example": "1000"}
        xmpp.refusals = {"upload.a.example": StanzaError("forbidden", "Denied by ACL")}
        uploads = Uploads(xmpp, SERVER)
        for _ in range(2):
            await uploads.share(PICTURE)
        assert ["does not let this agent upload files" in one for one in uploads.problems] == [True]
    asked = [to for to, query in xmpp.asked if isinstance(query, SlotRequest)]
    assert asked == ["upload.a.example", "large.a.example", "large.a.example"]


async def refused_slots(xmpp: Xmpp, times: list[float]) -> tuple[list[str], int]:
    """Share a file at these times; return why it fails, and how many slots were asked for."""
    now, problems = 0.0, []
    uploads = Uploads(xmpp, SERVER, clock=lambda: now)
    for after in times:
        now = after
        with pytest.raises(CannotShare) as caught:
            await uploads.share(PICTURE)
        problems.append(str(caught.value))
    return problems, sum(isinstance(query, SlotRequest) for _, query in xmpp.asked)


async def test_an_agent_that_may_not_upload_asks_again_after_ten_minutes_and_logs_it_once() -> None:
    xmpp = Xmpp()
    xmpp.refusal = StanzaError("forbidden", "Denied by ACL")
    with capture_logs() as logs:
        problems, slots = await refused_slots(xmpp, [0.0, 1.0, 599.0, 601.0])
    assert set(problems) == {
        "the upload service upload.a.example does not let this agent upload files: Denied by ACL"
    }
    assert slots == 2
    (warning,) = [one for one in logs if one["log_level"] == "warning"]
    assert "docs/how-to/ejabberd.md" in warning["hint"]


async def test_a_service_that_names_its_maximum_is_believed() -> None:
    xmpp = Xmpp()
    too_large = FileTooLarge(max_file_size=20)
    xmpp.refusal = StanzaError("not-acceptable", "Too big", application=(too_large,))
    problems, slots = await refused_slots(xmpp, [0.0, 1.0])
    assert set(problems) == {"the upload service upload.a.example takes files of 20 bytes"}
    assert slots == 1


async def test_a_quota_is_waited_for() -> None:
    xmpp = Xmpp()
    retry = Retry(stamp=system.now() + timedelta(seconds=300))
    xmpp.refusal = StanzaError("resource-constraint", "Quota reached", application=(retry,))
    problems, slots = await refused_slots(xmpp, [0.0, 200.0, 301.0])
    assert "takes files again at" in problems[0]
    assert "Quota reached" in problems[0]
    assert slots == 2


async def test_a_service_that_does_not_answer_holds_up_one_file_a_minute() -> None:
    xmpp = Xmpp()
    xmpp.refusal = StanzaError("remote-server-timeout", "no answer")
    _, slots = await refused_slots(xmpp, [0.0, 1.0, 59.0, 61.0])
    assert slots == 2


async def test_a_check_asks_for_a_slot_and_uploads_nothing() -> None:
    async with serving() as server:
        xmpp = answering(server)
        address, _ = await Uploads(xmpp, SERVER).offered()
        assert str(address) == "upload.a.example"
        assert server.requests == []
        xmpp.refusal = StanzaError("forbidden", "Denied by ACL")
        with pytest.raises(CannotShare, match="Denied by ACL"):
            await Uploads(xmpp, SERVER).offered()


async def test_uploads_of_one_person_do_not_slow_those_of_others() -> None:
    async with serving() as server, anyio.create_task_group() as group:
        xmpp = answering(server)
        uploads = Uploads(xmpp, SERVER)
        working, xmpp.put = xmpp.put, server.url("hang")

        async def fails() -> None:
            with pytest.raises(CannotShare):
                await uploads.share(PICTURE, "juliet")

        for _ in range(20):
            group.start_soon(fails)
        await server.hangs.wait()
        xmpp.put = working
        with anyio.fail_after(60):
            assert (await uploads.share(PICTURE, "romeo")).size == 64
        assert len([one for one in server.requests if b"/hang" in one]) <= 2
        group.cancel_scope.cancel()


async def test_an_upload_that_is_cancelled_gives_its_place_to_the_next() -> None:
    async with serving() as server:
        xmpp = answering(server)
        uploads = Uploads(xmpp, SERVER)
        working, xmpp.put = xmpp.put, server.url("hang")
        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(uploads.share, PICTURE, "juliet")
            await server.hangs.wait()
            group.cancel_scope.cancel()
        xmpp.put = working
        assert (await uploads.share(PICTURE, "juliet")).size == 64


@pytest.mark.parametrize(
    ("data", "size"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x02\x80\0\0\x01\xe0", (640, 480)),
        (b"GIF89a\x80\x02\xe0\x01rest", (640, 480)),
        (
            b"\xff\xd8\xff\xe0\0\x06JFIF\xff\xff\xc2\0\x0b\x08\x01\xe0\x02\x80\x03rest",
            (640, 480),
        ),
        (b"RIFF\0\0\0\0WEBPVP8X" + b"\0" * 8 + b"\x7f\x02\0\xdf\x01\0", (640, 480)),
        (b"RIFF\0\0\0\0WEBPVP8L" + b"\0" * 4 + b"\x2f\x7f\xc2\x77\0", (640, 480)),
        (b"RIFF\0\0\0\0WEBPVP8 " + b"\0" * 10 + b"\x80\x02\xe0\x01", (640, 480)),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", None),
        (b"\xff\xd8\xff\xe0", None),
        (b"RIFF\0\0\0\0WEBP", None),
        (b"%PDF", None),
    ],
)
def test_the_size_of_an_image_is_in_its_first_bytes(
    data: bytes, size: tuple[int, int] | None
) -> None:
    assert image_size(data) == size


@given(
    st.sampled_from([b"", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"\xff\xd8", b"RIFF0000WEBP"]),
    st.binary(),
)
def test_any_bytes_have_a_size_or_none(start: bytes, rest: bytes) -> None:
    size = image_size(start + rest)
    assert size is None or min(size) > 0
