"""Uploads files to the HTTP upload service of the server (XEP-0363), from which others get them."""

import hashlib
import re
import ssl
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol, TypeVar
from urllib.parse import urlsplit

import anyio
import msgspec
import structlog

from component import system
from component.config import Settings
from component.http.gate import (
    Access,
    Headers,
    HttpError,
    HttpFailed,
    HttpGate,
    HttpLimits,
    HttpRequest,
    HttpTimeout,
)
from component.http.targets import is_loopback
from component.image_size import image_size
from component.skills.errors import printable
from component.skills.outputs import File, Link
from component.tasks.protocol import CannotShare
from xep.binding import Payload
from xep.disco import InfoQuery, ItemsQuery
from xep.http_upload import (
    MAX_FILE_SIZE,
    NAMESPACE,
    FileTooLarge,
    Header,
    Retry,
    Slot,
    SlotRequest,
)
from xep.jid import JID
from xep.stanza_error import StanzaError

_log = structlog.get_logger("component.files")

P = TypeVar("P", bound=Payload)

_KNOWN_S: Final = 3600.0
"""Seconds for which the services that were found are used."""
_UNKNOWN_S: Final = 60.0
"""Seconds for which no service is looked for, if there was none."""
_REFUSED_S: Final = 600.0
"""Seconds for which a service that does not let the agent upload is not asked again."""
_AWAY_S: Final = 60.0
"""The same for one that cannot be reached or has no space, so that nobody waits for it again."""
_PUT_S: Final = 60.0
_AT_ONCE: Final = 2
"""Uploads of one person at the same time; further ones wait."""
_AT_ONCE_TOTAL: Final = 16
_MOST_BYTES: Final = 50_000_000
_MOST_ITEMS: Final = 50
_LONGEST_NAME: Final = 100
_LONGEST_TEXT: Final = 200
_IN_THREAD_BYTES: Final = 1_000_000
_SIZE: Final = re.compile(r"[0-9]{1,16}")
_HEADERS: Final = {"authorization": "Authorization", "cookie": "Cookie", "expires": "Expires"}
_HELP: Final = (
    "let it upload: for ejabberd see access in docs/how-to/ejabberd.md, for Prosody"
    " http_file_share_access in docs/how-to/prosody.md"
)


class Query(Protocol):
    """Sends an IQ of type get from the service's own address."""

    async def __call__(self, to: JID, query: Payload, expected: type[P], /) -> P:
        """Return the result. Raises StanzaError."""


class _Service(msgspec.Struct):
    """An upload service. It is not asked before `again_at`, because of `problem`."""

    address: JID
    most_bytes: int
    again_at: float = float("-inf")
    problem: str = ""


class Uploads:
    """Uploads files, to the first service that takes them.

    Uploads of one person wait for each other, and not for those of others. A service that refuses
    the agent, or cannot be reached, is not asked again for a while.

    Args:
        domain: the domain whose items are searched for services; None if it is not known.
        service: the address of the service; None to search for them.
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
        self._found: Sequence[_Service] = ()
        self._why = ""
        self._until = float("-inf")
        self._searching = anyio.Lock()
        self._turns: dict[str, anyio.CapacityLimiter] = {}
        self._all = anyio.CapacityLimiter(_AT_ONCE_TOTAL)
        self._told: set[JID] = set()
        """The services whose refusal is in the log."""

    @property
    def problems(self) -> Sequence[str]:
        """Why services are not used at the moment, in sentences for the operator."""
        refused = [one for one in self._found if self._clock() < one.again_at]
        return [f"Files are not shared: {one.problem}." for one in refused]

    async def share(self, file: File, person: str = "") -> Link:
        """Upload a file for a person, and return a link to it with its size and digest.

        Raises CannotShare: there is no service, or it refuses the file.
        """
        turn = self._turns.setdefault(person, anyio.CapacityLimiter(_AT_ONCE))
        try:
            async with turn, self._all:
                return await self._share(file)
        finally:
            if not turn.borrowed_tokens and not turn.statistics().tasks_waiting:
                self._turns.pop(person, None)

    async def _share(self, file: File) -> Link:
        size, problems = len(file.data), dict[str, None]()
        for service in await self._services():
            if self._clock() < service.again_at:
                problems[service.problem] = None
            elif size > service.most_bytes:
                problems[_too_large(service)] = None
            else:
                try:
                    slot = await self._slot(service, file)
                    await self._put(service, slot, file)
                except CannotShare as error:
                    problems[str(error)] = None
                else:
                    self._told.discard(service.address)
                    return await link_to(file, _usable(slot.get.url))
        raise CannotShare("; ".join(problems))

    async def offered(self) -> tuple[JID, str]:
        """Ask for a slot, without using it; return the address of the service that gives one, and a
        URL at which its files are fetched. Raises CannotShare.
        """
        problems = []
        for service in await self._services():
            try:
                slot = await self._slot(service, File(b"x", "text/plain", "check.txt"))
            except CannotShare as error:
                problems.append(str(error))
            else:
                return service.address, _usable(slot.get.url)
        raise CannotShare("; ".join(problems))

    async def _slot(self, service: _Service, file: File) -> Slot:
        request = SlotRequest(
            filename=file_name(file), size=len(file.data), content_type=file.media_type or None
        )
        try:
            slot = await self._query(service.address, request, Slot)
        except StanzaError as error:
            raise CannotShare(self._refused(service, error)) from None
        _usable(slot.get.url)
        return slot

    def _refused(self, service: _Service, error: StanzaError) -> str:
        """Return why a service refuses a file, and note for how long it is not asked again."""
        text = printable(error.text or error.condition.replace("-", " "), _LONGEST_TEXT).rstrip(".")
        address = service.address
        for condition in error.application:
            match condition:
                case FileTooLarge():
                    most = condition.max_file_size
                    if most is None:
                        return f"the file is too large for the upload service {address}"
                    service.most_bytes = max(0, min(service.most_bytes, most))
                    return _too_large(service)
                case Retry(stamp=datetime() as stamp):
                    left_s = (stamp - system.now()).total_seconds()
                    at = f"{stamp.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
                    problem = f"the upload service {address} takes files again at {at}: {text}"
                    return self._rest(service, min(max(left_s, 0), _KNOWN_S), problem)
        if error.type == "auth" or error.condition == "not-allowed":
            problem = f"the upload service {address} does not let this agent upload files: {text}"
            if address not in self._told:
                self._told.add(address)
                _log.warning("an upload service refuses files", reason=problem, hint=_HELP)
            return self._rest(service, _REFUSED_S, problem)
        problem = f"the upload service {address} refuses the file: {text}"
        if error.type == "modify":
            return problem
        self._until = float("-inf")  # it may have been replaced by another one
        return self._rest(service, _AWAY_S, problem)

    def _rest(self, service: _Service, seconds: float, problem: str) -> str:
        service.again_at, service.problem = self._clock() + seconds, problem
        return problem

    async def _put(self, service: _Service, slot: Slot, file: File) -> None:
        url = _usable(slot.put.url)
        parts = urlsplit(url)
        limits = HttpLimits(_PUT_S, request_bytes=_MOST_BYTES, response_bytes=65_536, redirects=0)
        # The server that is named by its own answer may be on this machine or in this network.
        access = Access(parts.hostname or "", parts.scheme, parts.port or 0, private=True)
        ca = self._tls_ca
        tls = None if ca is None else ssl.create_default_context(cafile=str(ca))
        gate = HttpGate((access,), limits, tls=tls)
        kind = ("Content-Type", file.media_type or "application/octet-stream")
        secret = slot_headers(slot.put.headers)
        request = HttpRequest(url, "PUT", (kind,), file.data, secret_headers=secret)
        try:
            response = await gate.send(request)
        except HttpError as error:
            problem = f"the file cannot be uploaded: {str(error).rstrip('.')}"
            if isinstance(error, HttpTimeout | HttpFailed):
                self._rest(service, _AWAY_S, problem)
            raise CannotShare(problem) from None
        if response.status not in (200, 201, 204):
            problem = f"the upload service answers with HTTP status {response.status}"
            if response.status >= 500:
                self._rest(service, _AWAY_S, problem)
            raise CannotShare(problem)

    async def _services(self) -> Sequence[_Service]:
        async with self._searching:
            if self._clock() >= self._until:
                known, self._why = {one.address: one for one in self._found}, ""
                try:
                    found = await self._search()
                except StanzaError as error:
                    found = ()
                    self._why = f"the server cannot be asked for an upload service: {error.text}"
                for one in found:
                    if one.address not in known:
                        _log.info("found an upload service", service=str(one.address))
                    elif (before := known[one.address]).again_at > self._clock():
                        one.again_at, one.problem = before.again_at, before.problem
                self._found = found
                self._until = self._clock() + (_KNOWN_S if found else _UNKNOWN_S)
            if not self._found:
                raise CannotShare(self._why or "the server has no upload service (XEP-0363)")
            return self._found

    async def _search(self) -> Sequence[_Service]:
        if self._named is not None:
            found = await self._at(self._named)
            return () if found is None else (found,)
        if self._domain is None:
            return ()
        services: list[_Service] = []
        items = await self._query(self._domain, ItemsQuery(), ItemsQuery)
        for item in items.items[:_MOST_ITEMS]:
            if item.node is None:
                try:
                    found = await self._at(item.jid)
                except StanzaError:
                    continue
                if found is not None:
                    services.append(found)
        return services

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


async def link_to(file: File, url: str) -> Link:
    """Return the link to a file that is at a URL, with its size and digest."""
    if len(file.data) > _IN_THREAD_BYTES:
        digest = (await system.in_thread(hashlib.sha256, file.data)).digest()
    else:
        digest = hashlib.sha256(file.data).digest()
    width, height = image_size(file.data) or (None, None)
    return Link(url, file.media_type, file.name, len(file.data), digest, width, height)


def uploads_of(settings: Settings, query: Query) -> Uploads:
    """Return what uploads files to the service of the settings, or to one of the server above."""
    server, named = settings.server.parent_domain, settings.uploads.address
    return Uploads(
        query,
        JID.parse(server) if server else None,
        None if named is None else JID.parse(named),
        settings.server.tls_ca,
    )


def file_name(file: File) -> str:
    """Return the name for the URL: some services refuse other characters, or names without any."""
    given = (file.name or "file").replace("/", "_").replace("\\", "_").strip(". ")
    plain = "".join([char if char.isascii() and char.isprintable() else "_" for char in given])
    return plain[-_LONGEST_NAME:].strip(". ") or "file"


def slot_headers(headers: Sequence[Header]) -> Headers:
    """Return the headers of a slot that are sent: those that §5 allows, without line breaks."""
    return tuple(
        [
            (_HEADERS[name], _one_line(each.value))
            for each in headers
            if (name := _one_line(each.name).strip().lower()) in _HEADERS
        ]
    )


def _one_line(value: str) -> str:
    return "".join(value.splitlines())


def _too_large(service: _Service) -> str:
    return f"the upload service {service.address} takes files of {service.most_bytes:,} bytes"


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
