"""Files are fetched from public servers and from upload services, and from nowhere else."""

from collections.abc import Sequence
from typing import Any

import anyio
import pytest

from component.features.files.fetching import Downloads, beginning_of, is_below
from component.features.files.refusals import Refusal, check_content, file_name, shown_name
from component.features.files.settings import Files
from component.link.messages.inbound import Attachment
from tests.component.http.http_server import plain, redirect, serving

pytestmark = pytest.mark.anyio

ELSEWHERE = "I only fetch files from public servers by HTTPS"


def downloads(own: str | None = None, *addresses: str, **settings: Any) -> Downloads:
    """Return downloads with an own upload service, and with the addresses that all names have."""

    async def own_upload() -> str | None:
        await anyio.lowlevel.checkpoint()
        return own

    async def resolve(_host: str, _port: int) -> Sequence[str]:
        return addresses or ["127.0.0.1"]

    return Downloads(Files(**settings), own_upload, resolve=resolve)


async def get(found: Downloads, url: str) -> bytes:
    return await found.get(Attachment(url=url, name="cat.jpg"))


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "::1", "10.1.2.3", "192.168.0.1", "169.254.169.254", "fe80::1", "fd00::1"],
)
@pytest.mark.parametrize("port", ["", ":5281", ":5443", ":7443"])
async def test_a_name_with_a_private_address_is_refused(address: str, port: str) -> None:
    with pytest.raises(Refusal, match=ELSEWHERE):
        await get(downloads(None, address), f"https://upload.example.com{port}/1/cat.jpg")


async def test_one_private_address_among_public_ones_is_refused() -> None:
    with pytest.raises(Refusal, match=ELSEWHERE):
        await get(downloads(None, "93.184.216.34", "10.0.0.1"), "https://a.example/cat.jpg")


async def test_a_public_name_is_permitted_on_the_usual_ports(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reached: list[tuple[str, int]] = []

    async def connect(host: str, port: int) -> None:
        await anyio.lowlevel.checkpoint()
        reached.append((host, port))
        raise OSError

    monkeypatch.setattr("component.http.gate.anyio.connect_tcp", connect)
    found = downloads(None, "93.184.216.34")
    for port in (443, 5281, 5443, 7443):
        with pytest.raises(Refusal, match="cannot be reached"):
            await get(found, f"https://a.example:{port}/cat.jpg")
    for url in ("https://a.example:8443/cat.jpg", "http://a.example/cat.jpg"):
        with pytest.raises(Refusal, match=ELSEWHERE):
            await get(found, url)
    assert reached == [("93.184.216.34", port) for port in (443, 5281, 5443, 7443)]


async def test_the_own_upload_service_may_be_private() -> None:
    async with serving() as server:
        server.answers["upload/x/cat.jpg"] = plain("meow")
        found = downloads(server.url("upload/1/a.txt"))
        assert await get(found, server.url("upload/x/cat.jpg")) == b"meow"
        for path in ("api/status", "upload/../api/status", "upload/%2e%2e/api", "uploads/x"):
            with pytest.raises(Refusal, match=ELSEWHERE):
                await get(found, server.url(path))
        assert len(server.requests) == 1


async def test_the_own_upload_service_leads_nowhere_else() -> None:
    async with serving() as server, serving() as other:
        other.answers["upload/x"] = plain("secret")
        server.answers["upload/x"] = redirect(other.url("upload/x"))
        server.answers["upload/y"] = redirect(server.url("api/status"))
        found = downloads(server.url("upload/1/a.txt"))
        with pytest.raises(Refusal, match=ELSEWHERE):
            await get(found, server.url("upload/x"))
        with pytest.raises(Refusal, match="More than 0 redirects"):
            await get(found, server.url("upload/y"))
        assert other.requests == []
        assert len(server.requests) == 2


def header(length: int, body: bytes) -> bytes:
    return f"HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n".encode() + body


LARGE = b"x" * 11_000_000


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (header(len(LARGE), LARGE), "it is larger than 10 MB"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + LARGE, "it is larger than 10 MB"),
        (header(20_000_000, b"x" * 100), "I have not got cat.jpg"),
        (b"no HTTP at all\r\n\r\n", "does not speak HTTP"),
        (plain("gone", 410), "it is not there"),
    ],
    ids=["large", "endless", "less", "not HTTP", "gone"],
)
async def test_a_server_that_lies_is_not_believed(answer: bytes, sentence: str) -> None:
    async with serving() as server:
        server.answers["upload/x"] = answer
        with pytest.raises(Refusal, match=sentence):
            await get(downloads(server.url("upload/1/a.txt")), server.url("upload/x"))


async def test_a_length_that_is_too_small_cuts_the_file_which_is_noticed() -> None:
    async with serving() as server:
        server.answers["upload/x"] = header(100, LARGE)
        data = await get(downloads(server.url("upload/1/a.txt")), server.url("upload/x"))
    with pytest.raises(Refusal, match="what I got from its server has 100"):
        check_content(Attachment(url="https://a/x", size=len(LARGE)), data)


async def test_the_service_is_asked_for_again_only_after_some_time() -> None:
    asked: list[None] = []

    async def own_upload() -> str | None:
        await anyio.lowlevel.checkpoint()
        asked.append(None)
        return None

    found = Downloads(Files(), own_upload)
    for _ in range(3):
        with pytest.raises(Refusal):
            await get(found, "https://127.0.0.1/cat.jpg")
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("url", "beginning"),
    [
        ("https://a.example:5281/file_share/Xy9/cat.jpg", "https://a.example:5281/file_share/"),
        ("https://a.example:5443/upload/u/r/cat.jpg", "https://a.example:5443/upload/"),
        ("https://a.example/Xy9/cat.jpg?v=1", "https://a.example/"),
    ],
)
def test_the_beginning_of_all_urls_is_known_from_one(url: str, beginning: str) -> None:
    assert beginning_of(url) == beginning
    assert is_below(url, beginning)
    assert not is_below(url.replace("a.example", "b.example"), beginning)
    assert not is_below("no url", beginning)


@pytest.mark.parametrize(
    ("sent", "shown", "stored"),
    [
        (Attachment(url="https://u/x/My%20cat.jpg"), "My cat.jpg", "My cat.jpg"),
        (
            Attachment(url="https://u/x/y", name="../../etc/passwd"),
            "../../etc/passwd",
            "_.._etc_passwd.png",
        ),
        (Attachment(url="https://u/x/", description="a cat"), "a cat", "file.png"),
        (
            Attachment(url="https://u/x", name="a\u202eb\n.png"),
            "a\ufffdb\ufffd.png",
            "a\ufffdb\ufffd.png",
        ),
        (Attachment(url=""), "a file", "file.png"),
    ],
)
def test_a_name_is_safe_to_show_and_to_store(sent: Attachment, shown: str, stored: str) -> None:
    assert shown_name(sent) == shown
    assert file_name(sent, b"\x89PNG\r\n\x1a\n") == stored


@pytest.mark.parametrize("algorithm", ["sha-1", "sha-512", "sha3-256"])
def test_other_digests_of_xep_0300_are_compared_too(algorithm: str) -> None:
    with pytest.raises(Refusal, match=f"its {algorithm} is another one"):
        check_content(Attachment(url="https://u/x", hashes=((algorithm, "00"),)), b"x")


def test_a_digest_of_an_unknown_function_is_ignored() -> None:
    check_content(Attachment(url="https://u/x", hashes=(("unknown", "00"),)), b"x")
