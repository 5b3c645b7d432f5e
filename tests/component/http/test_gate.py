"""Requests of code that is not trusted: where they may go, and how large they may be."""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Sequence

import anyio
import pytest
import trustme
from anyio.abc import SocketAttribute, SocketStream
from hypothesis import example, given, strategies

from component.http.gate import (
    PUBLIC,
    Access,
    HttpError,
    HttpFailed,
    HttpGate,
    HttpLimits,
    HttpRefused,
    HttpRequest,
    HttpTimeout,
    HttpTooLarge,
)
from component.http.targets import is_public, target_of
from tests.component.http.http_server import Server, plain, redirect, serving


def local(server: Server, host: str = "127.0.0.1") -> Access:
    return Access(host, "http", server.port, private=True)


@pytest.mark.anyio
async def test_a_request_and_its_response() -> None:
    """Method, headers and body arrive; status, headers and body come back."""
    async with serving() as server:
        server.answers["a?b=c%20d"] = plain("hello", 201, "X-Note: one", "X-Note: two")
        gate = HttpGate([local(server)])
        request = HttpRequest(
            server.url("a?b=c%20d"), "POST", (("X-Mine", "1"), ("Host", "other")), b"body"
        )
        found = await gate.send(request)
        assert (found.status, found.body) == (201, b"hello")
        assert [value for name, value in found.headers if name == "x-note"] == ["one", "two"]
        (seen,) = server.requests
        assert seen.startswith(b"POST /a?b=c%20d HTTP/1.1\r\n")
        assert f"Host: 127.0.0.1:{server.port}\r\n".encode() in seen
        assert b"other" not in seen
        assert seen.endswith(b"\r\n\r\nbody")


@pytest.mark.anyio
async def test_a_url_that_is_not_permitted_is_refused_and_named() -> None:
    """Another host, port or scheme is refused before anything is sent, and named."""
    async with serving() as server:
        gate = HttpGate([local(server)])
        for url in (
            f"https://127.0.0.1:{server.port}/",
            "http://127.0.0.1/",
            f"http://127.0.0.2:{server.port}/",
            f"http://localhost:{server.port}/",
            "https://example.com/",
        ):
            with pytest.raises(HttpRefused) as refused:
                await gate.send(HttpRequest(url))
            origin = target_of(url).origin
            assert refused.value.capability == f"network:{origin}"
            assert str(refused.value) == f"Requests to {origin} are not permitted."
        assert not server.requests


@pytest.mark.anyio
async def test_addresses_are_those_of_one_answer() -> None:
    """The name is resolved once and the connection goes to what was checked (DNS rebinding)."""
    answers = [["127.0.0.1"], ["8.8.8.8"]]

    async def rebinding(host: str, port: int) -> Sequence[str]:
        return answers.pop()

    async with serving() as server:
        server.answers[""] = plain("secret")
        gate = HttpGate([Access("a.example", "http", server.port)], resolve=rebinding)
        gate._connect = _no_connection  # type: ignore[method-assign]
        with pytest.raises(HttpFailed, match=r"to \['8.8.8.8'\]"):
            await gate.send(HttpRequest(server.url("", "a.example")))
        with pytest.raises(HttpRefused, match="private network"):
            await gate.send(HttpRequest(server.url("", "a.example")))
        assert not server.requests


async def _no_connection(target: object, addresses: Sequence[str]) -> None:
    raise HttpFailed(f"to {addresses}", begun=False)


@pytest.mark.anyio
@pytest.mark.parametrize(
    "addresses",
    [
        ["127.0.0.1"],
        ["::1"],
        ["10.1.2.3"],
        ["192.168.0.1"],
        ["169.254.169.254"],
        ["0.0.0.0"],
        ["::ffff:127.0.0.1"],
        ["64:ff9b::7f00:1"],
        ["2002:7f00:1::"],
        ["fe80::1%lo"],
        ["fd00::1"],
        ["100.64.0.1"],
        ["224.0.0.1"],
        ["93.184.216.34", "127.0.0.1"],
        [],
    ],
    ids=str,
)
async def test_private_addresses(addresses: list[str]) -> None:
    """A name with a private address is refused, also if it has a public one."""

    async def resolve(host: str, port: int) -> Sequence[str]:
        return addresses

    with pytest.raises(HttpRefused, match=r"a\.example"):
        await HttpGate(PUBLIC, resolve=resolve).send(HttpRequest("https://a.example/"))


@pytest.mark.anyio
async def test_redirects_are_checked() -> None:
    """A redirect goes only where a request could go."""
    async with serving() as server:
        gate = HttpGate([local(server), Access("a.example", "http", server.port)])
        server.answers["here"] = redirect("/there")
        server.answers["there"] = plain("found")
        found = await gate.send(HttpRequest(server.url("here")))
        assert (found.body, found.url) == (b"found", server.url("there"))
        for to in (
            "http://169.254.169.254/latest",
            "//127.0.0.9/",
            "file:///etc/passwd",
        ):
            server.answers["out"] = redirect(to)
            with pytest.raises(HttpError):
                await gate.send(HttpRequest(server.url("out")))
        server.answers["loop"] = redirect("loop")
        with pytest.raises(HttpFailed, match="5 redirects"):
            await gate.send(HttpRequest(server.url("loop")))
        server.answers["posted"] = redirect("/there", 303)
        await gate.send(HttpRequest(server.url("posted"), "POST", body=b"data"))
        assert server.requests[-1].startswith(b"GET /there")


@pytest.mark.anyio
async def test_credentials_stay_with_their_server() -> None:
    """A redirect to another server does not take secret headers along."""
    async with serving() as server, serving() as other:
        gate = HttpGate([local(server), local(other)])
        server.answers["same"] = redirect("/end")
        server.answers["away"] = redirect(other.url("end"))
        for path in ("same", "away"):
            secret = (("Authorization", "Bearer hush-hush"),)
            await gate.send(HttpRequest(server.url(path), secret_headers=secret))
        assert all(b"hush-hush" in each for each in server.requests)
        assert len(server.requests) == 3
        assert [b"hush-hush" in each for each in other.requests] == [False]


@pytest.mark.anyio
async def test_the_sizes_and_the_time_of_a_request_are_limited() -> None:
    """Sizes and the time are limited, whatever the server does."""
    async with serving() as server:
        gate = HttpGate([local(server)], HttpLimits(request_bytes=10, response_bytes=100_000))
        server.answers["endless"] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        server.answers["large"] = plain("x" * 200_000)
        server.answers["header"] = b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000
        server.answers["short"] = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort"
        server.answers["noise"] = b"\x00\x01\x02 nothing\r\n\r\n"
        for path in ("endless", "large"):
            with pytest.raises(HttpTooLarge, match="100,000"):
                await gate.send(HttpRequest(server.url(path)))
        with pytest.raises(HttpTooLarge, match="11 bytes"):
            await gate.send(HttpRequest(server.url("x"), "POST", body=b"x" * 11))
        with pytest.raises(HttpTimeout):
            await HttpGate([local(server)], HttpLimits(timeout_s=0.5)).send(
                HttpRequest(server.url("hang"))
            )
        for path in ("header", "short", "noise"):
            with pytest.raises(HttpFailed) as failed:
                await HttpGate([local(server)]).send(HttpRequest(server.url(path)))
            assert failed.value.begun


@pytest.mark.anyio
async def test_nothing_listens() -> None:
    """A server that cannot be reached had nothing of the request."""
    gate = HttpGate([Access("127.0.0.1", "http", 1, private=True)])
    with pytest.raises(HttpFailed, match="cannot be reached") as failed:
        await gate.send(HttpRequest("http://127.0.0.1:1/"))
    assert not failed.value.begun


@pytest.mark.anyio
async def test_a_name_that_cannot_be_resolved() -> None:
    """No server had anything of the request, so it may be made again."""

    async def resolve(host: str, port: int) -> Sequence[str]:
        raise OSError("Name or service not known")

    with pytest.raises(HttpFailed, match="cannot be resolved") as failed:
        await HttpGate(PUBLIC, resolve=resolve).send(HttpRequest("https://a.example/"))
    assert not failed.value.begun


def test_the_default_port_is_that_of_the_scheme() -> None:
    for scheme, port in (("http", 80), ("https", 443)):
        access = Access("a.example", scheme)
        permitted = [
            url
            for url in (
                f"{scheme}://a.example/",
                f"{scheme}://a.example:{port}/",
                f"{scheme}://a.example:{port + 1}/",
            )
            if access.permits(target_of(url))
        ]
        assert permitted == [f"{scheme}://a.example/", f"{scheme}://a.example:{port}/"]


@pytest.mark.anyio
async def test_certificates_are_verified_for_the_name() -> None:
    """The connection goes to an address, and the certificate must be that of the name."""
    authority = trustme.CA()
    server_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("a.example").configure_cert(server_tls)
    client_tls = ssl.create_default_context()
    authority.configure_trust(client_tls)

    async def resolve(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    async with serving(server_tls) as server:
        port = server.port
        server.answers[""] = plain("private")
        access = [Access(name, "https", port, private=True) for name in ("a.example", "b.example")]
        gate = HttpGate(access, resolve=resolve, tls=client_tls)
        assert (await gate.send(HttpRequest(f"https://a.example:{port}/"))).body == b"private"
        with pytest.raises(HttpFailed, match="certificate"):
            await gate.send(HttpRequest(f"https://b.example:{port}/"))
        with pytest.raises(HttpFailed, match="certificate"):
            await HttpGate(access, resolve=resolve).send(HttpRequest(f"https://a.example:{port}/"))


@pytest.mark.anyio
async def test_a_server_that_closes_before_tls_has_received_no_part_of_the_request() -> None:
    async def close(stream: SocketStream) -> None:
        await stream.aclose()

    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as group,
    ):
        group.start_soon(listener.serve, close)
        port = listener.extra(SocketAttribute.local_port)
        gate = HttpGate([Access("127.0.0.1", "https", port, private=True)])
        with pytest.raises(HttpFailed, match="closed the connection") as failed:
            await gate.send(HttpRequest(f"https://127.0.0.1:{port}/"))
        assert not failed.value.begun
        group.cancel_scope.cancel()


AMBIGUOUS = [
    "http://a.example@b.example/", "http://user:pw@a.example/", "http://a.example\\@b.example/",
    "http://0x7f.0.0.1/", "http://0177.0.0.1/", "http://127.1/", "http://2130706433/",
    "http://127.0.0.1./../", "http://a%2eexample/", "http://[::1", "http://[fe80::1%25lo]/",
    "http:/a.example/", "http:a.example", "//a.example/", "ftp://a.example/", "file:///etc/passwd",
    "gopher://a.example/", "http://a.example:0/", "http://a.example:99999/", "http://a..example/",
    "http://-a.example/", "http://a.example\t/", "http://a.example\n/", " http://a.example/",
    "http://a.exa mple/", "http://\uff41..example/", "http://", "https://?", "javascript:alert(1)",
    "http://127.0.0.1:80:80/", "http://a.example#@b.example:80:x/",
]  # fmt: skip


@pytest.mark.parametrize("url", AMBIGUOUS)
def test_ambiguous_urls_are_refused_or_have_one_meaning(url: str) -> None:
    """What two readers could take for different servers is refused."""
    one_meaning = {
        "http://127.0.0.1./../": "127.0.0.1",
        "http://a.example#@b.example:80:x/": "a.example",
    }
    if url in one_meaning:
        assert target_of(url).host == one_meaning[url]
    else:
        with pytest.raises(ValueError, match=r"\.$"):  # a sentence
            target_of(url)


@given(
    strategies.text(max_size=60) | strategies.from_regex(r"https?://[!-~]{1,40}", fullmatch=True)
)
@example("http://[::ffff:7f00:1]/")
def test_reading_a_url_twice_changes_nothing(url: str) -> None:
    """What is read is written in one form, which is read as the same."""
    try:
        target = target_of(url)
    except ValueError:
        return
    assert target_of(target.url) == target
    assert target.host == target.host.lower()
    assert target.url.isascii()


@given(strategies.ip_addresses(v=4))
def test_public_addresses_of_ipv4_inside_ipv6(address: ipaddress.IPv4Address) -> None:
    """An address that tunnels or translates to a private one is not public."""
    if not is_public(str(address)):
        number = int(address)
        for inside in (
            0xFFFF << 32 | number,
            0x64FF9B << 96 | number,
            0x2002 << 112 | number << 80,
            number,
        ):
            assert not is_public(str(ipaddress.IPv6Address(inside)))
