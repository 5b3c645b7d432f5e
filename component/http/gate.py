"""HTTP requests for code that is not trusted, and to addresses that a model chooses.

A request leaves only if every check passes, and redirects are checked like requests:

1. The URL is one that `target_of` accepts, so that it means the same to every reader.
2. An `Access` permits its scheme, host and port.
3. The name is resolved here, and the connection goes to an address of that answer which the access
   permits. No name is resolved twice, so a second answer (DNS rebinding) changes nothing.
4. Limits of time and size hold for the request, all redirects and the response together.

Proxies of the environment are not used, cookies are not kept, and responses are not decompressed.
"""

# ruff: noqa: N818 - the names say what happened to the caller.

from __future__ import annotations

import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from functools import cache
from typing import Final, TypeAlias
from urllib.parse import urljoin

import anyio
import h11
import msgspec
from anyio.abc import ByteStream
from anyio.streams.tls import TLSStream

from component.http.targets import HttpTarget, is_public, target_of

Headers: TypeAlias = tuple[tuple[str, str], ...]
Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the IP addresses of a name, for a connection to a port. Raises OSError."""

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_READ_BYTES: Final = 65_536
_HOP_HEADERS: Final = frozenset(
    {"connection", "content-length", "expect", "host", "keep-alive", "te", "trailer", "upgrade"}
    | {"accept-encoding", "proxy-authorization", "proxy-connection", "transfer-encoding"}
)
_BODY_HEADERS: Final = frozenset({"content-type", "content-language", "content-encoding"})


class Access(msgspec.Struct, frozen=True):
    """Permission to reach one server, or with `host="*"` every public one.

    `port` 0 stands for the default port of the scheme. `private` permits addresses that are not
    public (loopback, private networks, link-local), for servers that an admin named; never combined
    with `*`.
    """

    host: str
    scheme: str = "https"
    port: int = 0
    private: bool = False

    def permits(self, target: HttpTarget) -> bool:
        """Return whether a request may go to a server, as far as its name says."""
        default = 443 if self.scheme == "https" else 80
        return (
            self.scheme == target.scheme
            and self.host.lower() in ("*", target.host)
            and (self.port or default) == target.port
        )


PUBLIC: Final = (Access("*"), Access("*", "http"))
"""Every public server on the usual ports."""


def access_to(url: str) -> Access:
    """Return the access to the server of a URL that an admin has configured. It may have a private
    address. Raises ValueError if the URL is ambiguous.
    """
    target = target_of(url)
    return Access(target.host, target.scheme, target.port, private=True)


class HttpLimits(msgspec.Struct, frozen=True):
    """Limits of one request with all its redirects. `timeout_s` is in seconds, sizes in bytes."""

    timeout_s: float = 30.0
    request_bytes: int = 1_048_576
    response_bytes: int = 8_388_608
    header_bytes: int = 65_536
    redirects: int = 5


class HttpRequest(msgspec.Struct, frozen=True):
    """A request. `secret_headers` are those that contain credentials: they are sent only to the
    origin of `url`, not to one that a redirect leads to.
    """

    url: str
    method: str = "GET"
    headers: Headers = ()
    body: bytes = b""
    secret_headers: Headers = ()


class HttpResponse(msgspec.Struct, frozen=True):
    """A response: `url` is the last one, after redirects; names of headers are in lower case."""

    status: int
    headers: Headers
    body: bytes
    url: str

    def header(self, name: str) -> str:
        """Return the first value of a header, or an empty text."""
        return next((value for key, value in self.headers if key == name.lower()), "")

    @property
    def media_type(self) -> str:
        """The media type of the body, in lower case and without parameters; empty if unknown."""
        return self.header("content-type").partition(";")[0].strip().lower()


class HttpError(Exception):
    """A request had no response that can be used. The text is a sentence for the caller."""


class HttpRefused(HttpError):
    """A request, or a redirect, goes where nothing permits it to go.

    `capability` is the one that would permit it, as in `network:https://api.example.com:443`.
    """

    def __init__(self, reason: str, capability: str) -> None:
        super().__init__(reason)
        self.capability = capability


class HttpTooLarge(HttpError):
    """The request or the response exceeds a limit of size."""


class HttpTimeout(HttpError):
    """There was no whole response in time."""


class HttpFailed(HttpError):
    """The server has not answered in HTTP. `begun`: it may have had the request."""

    def __init__(self, reason: str, *, begun: bool) -> None:
        super().__init__(reason)
        self.begun = begun


class HttpGate:
    """Sends the requests that `access` permits, which is `PUBLIC` for every public server.

    By default, names are resolved by the system, and certificates verified by its authorities.
    """

    def __init__(
        self,
        access: Iterable[Access],
        limits: HttpLimits | None = None,
        *,
        resolve: Resolve | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._access = tuple(access)
        self._limits = limits or HttpLimits()
        self._resolve = resolve or _resolve
        self._tls = tls

    async def send(self, request: HttpRequest) -> HttpResponse:
        """Send a request, follow its redirects, and return the last response, whatever its status.

        Raises HttpRefused, HttpTooLarge, HttpTimeout and HttpFailed.
        """
        if len(request.body) > self._limits.request_bytes:
            raise HttpTooLarge(
                f"The request has {len(request.body):,} bytes, more than the permitted"
                f" {self._limits.request_bytes:,}."
            )
        begun = False
        try:
            with anyio.fail_after(self._limits.timeout_s):
                target = self._checked(request.url)
                origin = target.origin
                method, body = request.method.upper(), request.body
                headers = tuple(h for h in request.headers if h[0].lower() != "cookie")
                for _ in range(self._limits.redirects + 1):
                    secret = request.secret_headers if target.origin == origin else ()
                    response = await self._exchange(target, method, (*headers, *secret), body)
                    begun = True
                    location = response.header("location")
                    if response.status not in _REDIRECTS or not location:
                        return response
                    if response.status == 303 or (response.status < 303 and method == "POST"):
                        method, body = ("HEAD" if method == "HEAD" else "GET"), b""
                        headers = tuple(h for h in headers if h[0].lower() not in _BODY_HEADERS)
                    target = self._checked(_redirected(target.url, location))
        except TimeoutError:
            raise HttpTimeout(
                f"There was no whole response within {self._limits.timeout_s:g} seconds."
            ) from None
        raise HttpFailed(f"More than {self._limits.redirects} redirects.", begun=begun)

    def _checked(self, url: str) -> HttpTarget:
        try:
            target = target_of(url)
        except ValueError as error:
            raise HttpFailed(str(error), begun=False) from None
        if not any(access.permits(target) for access in self._access):
            raise HttpRefused(
                f"Requests to {target.origin} are not permitted.", f"network:{target.origin}"
            )
        return target

    async def _address_of(self, target: HttpTarget) -> Sequence[str]:
        """Return the addresses to which a connection may go, all of the same answer."""
        try:
            found = await self._resolve(target.host, target.port)
        except (OSError, UnicodeError):
            raise HttpFailed(f"The name {target.host} cannot be resolved.", begun=False) from None
        private = any(
            access.private and access.host != "*" and access.permits(target)
            for access in self._access
        )
        usable = [each for each in found if private or is_public(each)]
        # One private address among public ones is a sign of rebinding: then none is used.
        if not usable or len(usable) < len(found):
            raise HttpRefused(
                f"{target.host} has an address in a private network, which is not permitted."
                if found
                else f"The name {target.host} has no address.",
                f"network:{target.origin} (private)",
            )
        return usable

    async def _exchange(
        self, target: HttpTarget, method: str, headers: Headers, body: bytes
    ) -> HttpResponse:
        addresses = await self._address_of(target)
        request = _request(target, method, headers, body)
        async with AsyncExitStack() as stack:
            stream = await self._connect(target, addresses)
            stack.push_async_callback(anyio.aclose_forcefully, stream)
            try:
                connection = h11.Connection(
                    h11.CLIENT, max_incomplete_event_size=self._limits.header_bytes
                )
                sent = (connection.send(request), connection.send(h11.Data(data=body)))
                await stream.send(b"".join(filter(None, (*sent, connection.send(_END)))))
                return await self._response(connection, stream, target)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError, ssl.SSLError):
                raise HttpFailed(f"{target.origin} closed the connection.", begun=True) from None
            except h11.RemoteProtocolError as error:
                reason = f"{target.origin} does not speak HTTP: {error}"
                raise HttpFailed(reason, begun=True) from None

    async def _connect(self, target: HttpTarget, addresses: Sequence[str]) -> ByteStream:
        for address in addresses:
            try:
                plain = await anyio.connect_tcp(address, target.port)
            except OSError:
                continue
            if target.scheme == "http":
                return plain
            try:
                return await TLSStream.wrap(
                    plain,
                    hostname=target.host,
                    ssl_context=self._tls or _system_tls(),
                    standard_compatible=False,
                )
            except BaseException as error:
                await anyio.aclose_forcefully(plain)
                if isinstance(error, Exception):
                    raise _not_secured(target, error) from None
                raise
        raise HttpFailed(f"{target.origin} cannot be reached.", begun=False)

    async def _response(
        self, connection: h11.Connection, stream: ByteStream, target: HttpTarget
    ) -> HttpResponse:
        head: h11.Response | None = None
        body = bytearray()
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                try:
                    connection.receive_data(await stream.receive(_READ_BYTES))
                except anyio.EndOfStream:
                    connection.receive_data(b"")
            elif isinstance(event, h11.Response):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > self._limits.response_bytes:
                    raise HttpTooLarge(
                        f"The response of {target.origin} has more than the permitted"
                        f" {self._limits.response_bytes:,} bytes."
                    )
            elif isinstance(event, h11.EndOfMessage) and head is not None:
                return HttpResponse(
                    status=head.status_code,
                    headers=tuple(
                        (k.decode("ascii"), v.decode("latin-1")) for k, v in head.headers
                    ),
                    body=bytes(body),
                    url=target.url,
                )
            elif isinstance(event, h11.ConnectionClosed):
                raise HttpFailed(f"{target.origin} closed the connection.", begun=True)


def _not_secured(target: HttpTarget, error: Exception) -> Exception:
    """Return the error for a connection on which TLS cannot be used."""
    cause = error.__cause__ if isinstance(error, anyio.BrokenResourceError) else error
    if isinstance(cause, ssl.SSLCertVerificationError):
        reason = f"The certificate of {target.origin} is not valid: {cause.verify_message}."
    elif isinstance(cause, ssl.SSLError):
        reason = f"{target.origin} does not offer usable TLS: {cause.reason}."
    elif isinstance(error, anyio.BrokenResourceError | anyio.EndOfStream | OSError):
        reason = f"{target.origin} closed the connection."
    else:
        return error
    return HttpFailed(reason, begun=False)


def _redirected(url: str, location: str) -> str:
    try:
        return urljoin(url, location)
    except ValueError:
        raise HttpFailed("The server redirects to something that is no URL.", begun=True) from None


_END: Final = h11.EndOfMessage()


def _request(target: HttpTarget, method: str, headers: Headers, body: bytes) -> h11.Request:
    """Build the request head. Raises HttpFailed if it is not valid HTTP."""
    own = [(name, value) for name, value in headers if name.lower() not in _HOP_HEADERS]
    own.insert(0, ("Host", target.authority))
    if not any(name.lower() == "user-agent" for name, _ in own):
        own.append(("User-Agent", "xmpp-agent"))
    own += [("Accept-Encoding", "identity"), ("Connection", "close")]
    if body or method in ("POST", "PUT", "PATCH"):
        own.append(("Content-Length", str(len(body))))
    try:
        return h11.Request(
            method=method,
            target=target.path,
            headers=[(name.encode("ascii"), value.encode("latin-1")) for name, value in own],
        )
    except (h11.LocalProtocolError, UnicodeError) as error:
        raise HttpFailed(f"The request is not valid HTTP: {error}", begun=False) from None


@cache
def _system_tls() -> ssl.SSLContext:
    return ssl.create_default_context()


async def _resolve(host: str, port: int) -> Sequence[str]:
    found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]
