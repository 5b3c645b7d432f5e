"""Uploads files to the HTTP upload service of the server (XEP-0363), from which others get them."""

import hashlib
import re
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol, TypeVar
from urllib.parse import urlsplit

import anyio
import msgspec
import structlog

from component.http.gate import Access, HttpError, HttpGate, HttpLimits, HttpRequest
from component.http.targets import is_loopback
from component.skills.outputs import File, Link
from component.tasks.protocol import CannotShare
from xep.binding import Payload
from xep.disco import InfoQuery, ItemsQuery
from xep.http_upload import MAX_FILE_SIZE, NAMESPACE, Slot, SlotRequest
from xep.jid import JID
from xep.stanza_error import StanzaError

_log = structlog.get_logger("component.files")

P = TypeVar("P", bound=Payload)

_KNOWN_S: Final = 3600.0
"""Seconds for which the service that was found is used."""
_UNKNOWN_S: Final = 60.0
"""Seconds for which no service is looked for, if there was none."""
_PUT_S: Final = 60.0
_MOST_BYTES: Final = 50_000_000
_MOST_ITEMS: Final = 50
_LONGEST_NAME: Final = 100
_SIZE: Final = re.compile(r"[0-9]{1,16}")


class Query(Protocol):
    """Sends an IQ of type get from the service's own address."""

    async def __call__(self, to: JID, query: Payload, expected: type[P], /) -> P:
        """Return the result. Raises StanzaError."""


class _Service(msgspec.Struct, frozen=True):
    address: JID
    most_bytes: int


class Uploads:
    """Uploads files.

    Args:
        domain: the domain whose items are searched for a service; None if it is not known.
        service: the address of the service; None to search for one.
        tls_ca: certificates to trust instead of the system's.
        clock: seconds that only go forward.
    """

    def __init__(
        self,
        query: Query,
        domain: JID | None,
        service: JID | None = None,
        tls_ca: Path | None = None,
        clock: Callable[[], float] = anyio.current_time,
    ) -> None:
        self._query = query
        self._domain = domain
        self._named = service
        self._tls_ca = tls_ca
        self._clock = clock
        self._found: _Service | None = None
        self._why = ""
        self._until = float("-inf")
        self._searching = anyio.Lock()

    async def share(self, file: File) -> Link:
        """Upload a file, and return a link to it with its size and digest.

        Raises CannotShare: there is no service, or it refuses the file.
        """
        service = await self._service()
        size = len(file.data)
        if size > service.most_bytes:
            raise CannotShare(f"the upload service takes files of {service.most_bytes:,} bytes")
        request = SlotRequest(
            filename=_file_name(file), size=size, content_type=file.media_type or None
        )
        try:
            slot = await self._query(service.address, request, Slot)
        except StanzaError as error:
            self._until = float("-inf")  # it may have been replaced by another one
            raise CannotShare(
                f"the upload service {service.address} refuses the file: {error.text or error}"
            ) from None
        await self._put(slot, file)
        return Link(
            url=_usable(slot.get.url),
            media_type=file.media_type,
            name=file.name,
            size=size,
            sha256=hashlib.sha256(file.data).digest(),
        )

    async def example_url(self) -> str:
        """Return a URL at which a file of the service could be fetched. Raises CannotShare."""
        service = await self._service()
        try:
            slot = await self._query(service.address, SlotRequest(filename="a.txt", size=1), Slot)
        except StanzaError as error:
            raise CannotShare(
                f"the upload service {service.address} gives no slot: {error.text or error}"
            ) from None
        return _usable(slot.get.url)

    async def _put(self, slot: Slot, file: File) -> None:
        url = _usable(slot.put.url)
        parts = urlsplit(url)
        headers = tuple([(each.name, _one_line(each.value)) for each in slot.put.headers])
        limits = HttpLimits(_PUT_S, request_bytes=_MOST_BYTES, response_bytes=65_536, redirects=0)
        # The server that is named by its own answer may be on this machine or in this network.
        access = Access(parts.hostname or "", parts.scheme, parts.port or 0, private=True)
        ca = self._tls_ca
        tls = None if ca is None else ssl.create_default_context(cafile=str(ca))
        gate = HttpGate((access,), limits, tls=tls)
        kind = ("Content-Type", file.media_type or "application/octet-stream")
        request = HttpRequest(url, "PUT", (kind,), file.data, secret_headers=headers)
        try:
            response = await gate.send(request)
        except HttpError as error:
            raise CannotShare(f"the file cannot be uploaded: {error}") from None
        if response.status not in (200, 201, 204):
            raise CannotShare(f"the upload service answers with HTTP status {response.status}")

    async def _service(self) -> _Service:
        async with self._searching:
            if self._clock() >= self._until:
                self._found, self._why = None, ""
                try:
                    self._found = await self._search()
                except StanzaError as error:
                    self._why = f"the server cannot be asked for an upload service: {error.text}"
                seconds = _UNKNOWN_S if self._found is None else _KNOWN_S
                self._until = self._clock() + seconds
                if self._found is not None:
                    _log.info("found an upload service", service=str(self._found.address))
            if self._found is None:
                raise CannotShare(self._why or "the server has no upload service (XEP-0363)")
            return self._found

    async def _search(self) -> _Service | None:
        if self._named is not None:
            return await self._at(self._named)
        if self._domain is None:
            return None
        items = await self._query(self._domain, ItemsQuery(), ItemsQuery)
        for item in items.items[:_MOST_ITEMS]:
            if item.node is None:
                try:
                    found = await self._at(item.jid)
                except StanzaError:
                    continue
                if found is not None:
                    return found
        return None

    async def _at(self, address: JID) -> _Service | None:
        """Return the service at an address; None if there is none."""
        info = await self._query(address, InfoQuery(), InfoQuery)
        if not any(feature.var == NAMESPACE for feature in info.features):
            return None
        most = _MOST_BYTES
        for form in info.forms:
            for field in form.fields:
                if field.var == MAX_FILE_SIZE and field.values and _SIZE.fullmatch(field.values[0]):
                    most = min(most, int(field.values[0]))
        return _Service(address, most)


def _file_name(file: File) -> str:
    """Return the name for the URL: some services refuse other characters, or names without any."""
    given = (file.name or "file").replace("/", "_").strip(". ")
    plain = "".join([char if char.isascii() and char.isprintable() else "_" for char in given])
    return plain[-_LONGEST_NAME:] or "file"


def _one_line(value: str) -> str:
    """Return a header's value as §5 demands: without line breaks."""
    return "".join(value.splitlines())


def _usable(url: str) -> str:
    """Return a URL of a slot, which has HTTPS (§5), or HTTP on this machine. Raises CannotShare."""
    try:
        parts = urlsplit(url)
        usable = bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not (parts.scheme == "https" or (parts.scheme == "http" and is_loopback(url))):
        raise CannotShare("the upload service gives a URL that is not one of HTTPS")
    return url
